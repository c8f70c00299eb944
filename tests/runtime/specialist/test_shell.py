"""Programs of a command: all of them, and no guess where the reader cannot tell."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.specialist.shell import programs


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ls", ["ls"]),
        ("wc -l < a > b", ["wc"]),
        ("sort a 2>&1 | uniq -c|head -n1", ["sort", "uniq", "head"]),
        ("cd /a && ls; cat b || rm c & echo d", ["cd", "ls", "cat", "rm", "echo"]),
        ("A=1 B='x y' env", ["env"]),
        ("x=$(date)", ["date"]),
        ("echo $(cat a | wc -l) `id`", ["echo", "cat", "wc", "id"]),
        ('echo "n: $(grep -c \\"a)\\" f)"', ["echo", "grep"]),
        ("echo '$(rm a)' \"\\$(rm a)\"", ["echo"]),
        ("diff <(sort a) <(sort b)", ["diff", "sort", "sort"]),
        ("for f in *.txt; do cat $f; done > all", ["cat"]),
        ("while read x; do echo $x; done < f", ["read", "echo"]),
        ("if ! grep a f; then touch f; else rm f; fi", ["grep", "touch", "rm"]),
        ("(cd a; ls) # and rm", ["cd", "ls"]),
        ("{ ls; }", ["ls"]),
        ("/usr/bin/sort a", ["sort"]),
        ("echo a#b ${x:-y} $((1 + 2)) \\\n c", ["echo"]),
        (">out echo a", ["echo"]),
        ("cat <<< word", ["cat"]),
        ("ls &> log", ["ls"]),
        ("sort a>b;ls", ["sort", "ls"]),
        ("", []),
    ],
)
def test_programs_are_named_in_their_order(text: str, found: list[str]) -> None:
    assert programs(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "cat << EOF\nrm a\nEOF",
        "case a in a) ls;; esac",
        "f() { ls; }",
        "echo 'a",
        'echo "a',
        "echo `a",
        "echo $(ls",
        "echo ${a",
        "echo ${a:-$(rm b)}",
        "$CMD a",
        "$(which ls)",
        "ls >",
        "((i++))",
        "[[ -f a ]]",
        "a=(1 2)",
        "echo $'a\\'b'",
    ],
)
def test_what_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"read|closed|written|nowhere"):
        programs(text)


names = st.sampled_from(["cat", "ls", "grep", "sort", "./run.sh", "/opt/x"])
arguments = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8))
simple = st.tuples(names, arguments).map(lambda one: (one[0], shlex.join([one[0], *one[1]])))
joints = st.sampled_from([" | ", "; ", " && ", " || ", "\n", " &\n"])


commands = st.lists(st.tuples(simple, joints), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(commands)
def test_no_program_is_missed_whatever_the_arguments_are(
    joined: list[tuple[tuple[str, str], str]],
) -> None:
    text = "".join(f"{command}{joint}" for (_, command), joint in joined)
    assert programs(text) == [name.rpartition("/")[2] for (name, _), _ in joined]
