"""What is a name in a text, and what only looks like one."""

import pytest

from runtime.specialist import mentions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cat /data/a.txt /home/x/", ["/data/a.txt", "/home/x/"]),
        ("It is in ~/notes.md.", ["~/notes.md"]),
        ("see (/mnt/q), '/tmp/z'", ["/mnt/q", "/tmp/z"]),
        ("cat </srv/a >/tmp/b", ["/srv/a", "/tmp/b"]),
        ("x=/opt/./a/../b", ["/opt/b"]),
        ("/own/place", ["/own/place"]),
        ("and/or, 1/2, s/tmp/var/, a/home/b, ./data/x", []),
        ("https://example.org/data/x and file paths", []),
        ("</home> <b>/b</b>", []),
        ("/users/7 and /v1/messages", []),
        ("/dev/null /bin/sh /usr/bin/env /usr/local/bin/x", []),
        ("${HOME}/data/x $X/data/y */data/z", []),
    ],
)
def test_paths_begin_at_the_root_or_at_home(text: str, found: list[str]) -> None:
    assert list(mentions.absolute_paths(text, ["own"])) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cat a.txt ./b.csv sub/c.md > d.log", ["a.txt", "b.csv", "sub/c.md", "d.log"]),
        ("wc -l <a.txt", ["a.txt"]),
        ("version 1.2, e.g. this, a.b.c", ["a.b.c"]),
        ("*.txt $f.txt /data/x.txt https://a.test/y.txt", []),
    ],
)
def test_file_names_have_a_known_ending(text: str, found: list[str]) -> None:
    assert list(mentions.file_names(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("See handbook.md.", ["handbook.md"]),
        ("as described in the file `a/limits.md`, or (see ./b.pdf)", ["a/limits.md", "b.pdf"]),
        ("According to policy.md and shown in x.csv", ["policy.md", "x.csv"]),
        ("Write it into a.md, and edit b.yaml", []),
        ("See above, and oversee c.md", []),
    ],
)
def test_a_reader_is_sent_to_documents(text: str, found: list[str]) -> None:
    assert list(mentions.documents_sent_to(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("curl http://a.test:80/x HTTPS://User@B.test", ["a.test", "b.test"]),
        ("git clone ssh://git@c.test/r.git", ["c.test"]),
        ("mail me at a@b.test, or http:// nowhere", []),
    ],
)
def test_hosts_are_those_of_addresses(text: str, found: list[str]) -> None:
    assert list(mentions.hosts(text)) == found


@pytest.mark.parametrize(
    "text",
    [
        '<invoke name="oracle">',
        "<function=oracle>",
        '{"name": "oracle", "arguments": {}}',
        "the `oracle` tool",
        "call the tool 'oracle'",
    ],
)
def test_tools_are_known_by_the_form_of_a_call(text: str) -> None:
    assert list(mentions.tools(text)) == ["oracle"]


def test_a_tool_is_known_by_a_name_that_only_a_program_would_have() -> None:
    assert list(mentions.tools("using web_search tool")) == ["web_search"]
    assert list(mentions.tools("mcp__docs__find")) == ["mcp__docs__find"]
    assert list(mentions.tools('the right tool, a tool for it, {"name": "x"}')) == []


@pytest.mark.parametrize(
    ("name", "inside", "beside"),
    [
        ("answers.key", "THE Answers.Key.", "my-answers.key answers.keys answers_key"),
        ("secret/", "cat secret/a", "topsecret/a secret"),
    ],
)
def test_a_name_is_found_whole(name: str, inside: str, beside: str) -> None:
    assert mentions.whole_word(name).search(inside)
    assert not mentions.whole_word(name).search(beside)
