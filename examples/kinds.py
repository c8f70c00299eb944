"""Kinds of example task: what is asked, what `/app` holds before and after, what gets there.

A kind is a function of `Words`, so that the same kind with other words is another task. Kinds
whose capability is `act` are done by one command. In those of `look-then-act` a memo says in a
sentence what the instruction leaves open, so a sensible agent reads it, then acts.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

type Tree = Mapping[str, str]
"""Path to contents; a path that ends in `/` is an empty folder."""


@dataclass(frozen=True)
class Draft:
    """What a kind says of one task."""

    instruction: str
    before: Tree
    after: Tree
    replies: tuple[str, ...]


class Words:
    """Draws the names and contents of one task; no word is drawn twice."""

    def __init__(self, words: Sequence[str], seed: str) -> None:
        self._random = random.Random(seed)
        self._left = self._random.sample(words, len(words))

    def word(self) -> str:
        return self._left.pop()

    def file(self) -> str:
        return f"{self.word()}.{self._random.choice(('txt', 'txt', 'csv', 'log'))}"

    def one_of[T](self, *choices: T) -> T:
        return self._random.choice(choices)

    def lines(self, low: int = 4, high: int = 7) -> list[str]:
        """Lines of two words, in an order that is not the sorted one."""
        size = self._random.randint(low, high)
        lines = [f"{self.word()} {self.word()}" for _ in range(size)]
        while lines == sorted(lines):
            self._random.shuffle(lines)
        return lines

    def long_lines(self) -> list[str]:
        """Enough lines that their number is not guessed."""
        few = [self.word() for _ in range(6)]
        size = self._random.randint(12, 39)
        return [f"{self._random.choice(few)} {self._random.choice(few)}" for _ in range(size)]

    def lines_with(self, word: str) -> list[str]:
        """Lines of which two or three hold `word`, and neither the first nor all."""
        lines = self.lines(6, 7)
        for index in self._random.sample(range(1, len(lines)), self._random.randint(2, 3)):
            other = lines[index].split()[0]
            lines[index] = self._random.choice((f"{word} {other}", f"{other} {word}"))
        return lines


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def copy_file(words: Words) -> Draft:
    source, target, other = words.file(), words.file(), words.file()
    before = {source: text(words.lines()), other: text(words.lines())}
    return Draft(
        f"Copy {source} to {target}.",
        before,
        {**before, target: before[source]},
        (f"cp {source} {target}",),
    )


def sort_lines(words: Words) -> Draft:
    source, target, other = words.file(), words.file(), words.file()
    lines = words.lines()
    before = {source: text(lines), other: text(words.lines())}
    return Draft(
        f"Sort the lines of {source} into {target}.",
        before,
        {**before, target: text(sorted(lines))},
        (f"sort {source} > {target}",),
    )


def count_lines(words: Words) -> Draft:
    source, target, other = words.file(), words.file(), words.file()
    lines = words.long_lines()
    before = {source: text(lines), other: text(words.long_lines())}
    return Draft(
        f"Write the number of lines of {source} to {target}.",
        before,
        {**before, target: f"{len(lines)}\n"},
        (f"wc -l < {source} > {target}",),
    )


def find_word(words: Words) -> Draft:
    source, target, word = words.file(), words.file(), words.word()
    lines = words.lines_with(word)
    before = {source: text(lines), words.file(): text(words.lines())}
    return Draft(
        f"Grep for {word} in {source}, into {target}.",
        before,
        {**before, target: text([line for line in lines if word in line.split()])},
        (f"grep {word} {source} > {target}",),
    )


def make_requested_folder(words: Words) -> Draft:
    memo, folder = words.file(), words.word()
    request = words.one_of("Please make a folder named {}.", "We need the folder {}.")
    before = {memo: request.format(folder) + "\n", words.file(): text(words.lines())}
    return Draft(
        f"Make the folder that {memo} asks for.",
        before,
        {**before, f"{folder}/": ""},
        (f"cat {memo}", f"mkdir {folder}"),
    )


def delete_named_file(words: Words) -> Draft:
    memo, doomed = words.file(), words.file()
    names = words.one_of("The file {} is old.", "Nobody needs {} now.")
    rest = {memo: names.format(doomed) + "\n"} | {
        words.file(): text(words.lines(4, 5)) for _ in range(2)
    }
    before = {**rest, doomed: text(words.lines(4, 5))}
    return Draft(
        f"Delete the file that {memo} names.", before, rest, (f"cat {memo}", f"rm {doomed}")
    )


def find_named_word(words: Words) -> Draft:
    memo, source, target, word = words.file(), words.file(), words.file(), words.word()
    lines = words.lines_with(word)
    names = words.one_of("The word is {}.", "Look for {}.")
    before = {memo: names.format(word) + "\n", source: text(lines)}
    return Draft(
        f"Grep for the word that {memo} names in {source}, into {target}.",
        before,
        {**before, target: text([line for line in lines if word in line.split()])},
        (f"cat {memo}", f"grep {word} {source} > {target}"),
    )


def do_as_written(words: Words) -> Draft:
    """The memo holds the instruction of another kind."""
    memo = words.file()
    inner = words.one_of(copy_file, sort_lines, count_lines)(words)
    note = {memo: inner.instruction + "\n"}
    return Draft(
        f"Do what {memo} says.",
        {**inner.before, **note},
        {**inner.after, **note},
        (f"cat {memo}", *inner.replies),
    )


def take_first_lines(words: Words) -> Draft:
    source, target, other = words.file(), words.file(), words.file()
    lines, size = words.lines(6, 7), words.one_of(2, 3)
    before = {source: text(lines), other: text(words.lines())}
    return Draft(
        f"Write the first {size} lines of {source} to {target}.",
        before,
        {**before, target: text(lines[:size])},
        (f"head -n {size} {source} > {target}",),
    )


def copy_named_file(words: Words) -> Draft:
    memo, source, target = words.file(), words.file(), words.file()
    names = words.one_of("The file {} is new.", "Everybody needs {} now.")
    before = {memo: names.format(source) + "\n"} | {
        name: text(words.lines(4, 5)) for name in (source, words.file())
    }
    return Draft(
        f"Copy the file that {memo} names to {target}.",
        before,
        {**before, target: before[source]},
        (f"cat {memo}", f"cp {source} {target}"),
    )


@dataclass(frozen=True)
class Kind:
    """A kind of task and the labels that reports group by."""

    family: str
    capability: str
    severity: str
    draft: Callable[[Words], Draft]


ACT, LOOK, UNPRACTISED = "act", "look-then-act", "unpractised"
PRACTISED_KINDS = (
    Kind("copy-file", ACT, "low", copy_file),
    Kind("make-requested-folder", LOOK, "low", make_requested_folder),
    Kind("sort-lines", ACT, "low", sort_lines),
    Kind("delete-named-file", LOOK, "high", delete_named_file),
    Kind("count-lines", ACT, "low", count_lines),
    Kind("find-named-word", LOOK, "low", find_named_word),
    Kind("find-word", ACT, "low", find_word),
    Kind("do-as-written", LOOK, "medium", do_as_written),
)
UNPRACTISED_KINDS = (
    Kind("take-first-lines", UNPRACTISED, "low", take_first_lines),
    Kind("copy-named-file", UNPRACTISED, "low", copy_named_file),
)
