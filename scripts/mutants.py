"""Mutation testing: do the tests fail when the code is wrong?

    python -m scripts.mutants [--count 100] [--seed 0] [--jobs 2]

A seeded sample of mutants of the parts that must be right, each tried in a copy of the tracked
files: first a covered run of the fast tests, dealt out to the copies, says which tests execute
which lines, and how long each takes; then each mutant is given to the tests that execute its line
(a line that only an import executes: those that execute any of its file, and those of its folder),
the quickest first, as many as take `BUDGET` together; it is killed if one of them fails or hangs.
Tests that are left out could only have killed more. A place in the code is drawn before what is
done to it, so that places with many possible mutations do not crowd out the others. Left out is
what mostly changes nothing: annotations (`|`), exchanges of identity and equality, and guards
switched off (`slots`, `frozen`, the `strict` of a zip). The mutations are cosmic-ray's. Exit code
1: fewer were killed than `--floor`.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast
from xml.etree import ElementTree

import coverage
import parso
from cosmic_ray import ast, mutating, plugins

PLUGINS, MUTATING, AST = cast("Any", plugins), cast("Any", mutating), cast("Any", ast)
"""Its modules have no types."""

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {
    "specs": "tests/specs",
    "journals": "tests/journals",
    "runtime/learning": "tests/runtime/learning",
    "runtime/storage": "tests/runtime/storage",
    "proxy/calls.py": "tests/proxy",
    "proxy/chains.py": "tests/proxy",
    "proxy/compaction.py": "tests/proxy",
    "proxy/replay.py": "tests/proxy",
    "proxy/sealing.py": "tests/proxy",
    "proxy/spool.py": "tests/proxy",
}
"""What is mutated, and the tests of its folder."""
GUARD = re.compile(r"^@dataclass\(|\bstrict=True")
MEANINGLESS = ("_Eq_Is", "_NotEq_IsNot", "_Is_Eq", "_IsNot_NotEq", "Operator_BitOr_")
BUDGET = 60.0
"""Seconds that the tests of one mutant took on the unchanged code, but for the first of them."""
PATIENCE = 8.0
"""So many times as long may they take on changed code, and the start of pytest once more."""
START = 60.0


type Place = tuple[tuple[int, int], tuple[int, int]]
"""(line, column) of the start and of the end, lines from 1."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file; `lines` are the first and last line of what changes."""

    path: str
    lines: tuple[int, int]
    operator: str
    occurrence: int

    def applied(self, source: str) -> str:
        operator = PLUGINS.get_operator(self.operator)()
        mutated: str | None = MUTATING.mutate_code(source, operator, self.occurrence)
        assert mutated is not None
        return mutated


@dataclass(frozen=True, slots=True)
class Covered:
    """What the tests did on the unchanged code.

    :ivar lines: per file and line, the tests that execute it; an empty name is an import.
    :ivar seconds: how long each test took.
    """

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def choice(self, mutant: Mutant) -> list[str]:
        """The tests for a mutant, the quickest first."""
        lines = self.lines.get(mutant.path, {})
        first, last = mutant.lines
        known = tests_of(lines.get(line, []) for line in range(first, last + 1))
        if not known:
            folder = f"{suite_of(mutant.path)}/"
            known = tests_of(lines.values()) | {t for t in self.seconds if t.startswith(folder)}
        chosen: list[str] = []
        spent = 0.0
        for name in sorted(known, key=lambda name: (self.time([name]), name)):
            if chosen and spent + self.time([name]) > BUDGET:
                break
            chosen.append(name)
            spent += self.time([name])
        return chosen

    def time(self, names: Sequence[str]) -> float:
        """Seconds of some tests; none are known of a name that XML cannot hold."""
        return sum(self.seconds.get(name, 0.0) for name in names)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`killed` by the named tests' run, or not."""

    mutant: Mutant
    killed: bool
    tests: int
    diff: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="mutants to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--floor", type=float, default=0.8, help="share that must be killed")
    given = parser.parse_args()
    mutants = sample(given.count, given.seed)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [copy(Path(folder) / str(number)) for number in range(given.jobs)]
        verdicts = list(tried(mutants, copies, covered(copies)))
    killed = sum(verdict.killed for verdict in verdicts)
    for verdict in verdicts:
        if not verdict.killed:
            print(f"\nsurvived {verdict.tests} tests: {verdict.mutant.operator}\n{verdict.diff}")
    print(f"\nkilled {killed} of {len(verdicts)}")
    return 0 if killed >= given.floor * len(verdicts) else 1


def sample(count: int, seed: int) -> list[Mutant]:
    """Mutants at places drawn without repetition."""
    places: dict[tuple[str, Place], list[Mutant]] = {}
    for path in tracked():
        if suite_of(path) is not None:
            for place, mutant in possible(path):
                places.setdefault((path, place), []).append(mutant)
    draw = random.Random(seed)
    chosen = draw.sample(sorted(places), min(count, len(places)))
    return [draw.choice(places[place]) for place in chosen]


def possible(path: str) -> Iterator[tuple[Place, Mutant]]:
    """Every mutant of a file, with the start and end of its place."""
    source = (ROOT / path).read_text()
    nodes: list[Any] = list(AST.ast_nodes(parso.parse(source)))
    text = source.splitlines()
    names: list[str] = sorted(PLUGINS.operator_names())
    for name in names:
        make = PLUGINS.get_operator(name)
        if make.arguments() or any(part in f"{name}_" for part in MEANINGLESS):
            continue
        operator = make()
        found: list[Place] = [
            place for node in nodes for place in operator.mutation_positions(node)
        ]
        for occurrence, (start, end) in enumerate(found):
            if name.endswith("ReplaceTrueWithFalse") and GUARD.search(text[start[0] - 1]):
                continue
            yield (start, end), Mutant(path, (start[0], end[0]), name, occurrence)


def tracked() -> list[str]:
    """The Python files under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return listed.stdout.split()


def copy(folder: Path) -> Path:
    """A copy of all tracked files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder


def covered(copies: Sequence[Path]) -> Covered:
    """Run the fast tests on the unchanged code, each copy its share of their files.

    Raises:
        SystemExit: they cannot run at all.
    """
    suites = [path for path in tracked() if re.fullmatch(r"tests/.*test_\w+\.py", path)]
    shares = [suites[number :: len(copies)] for number in range(len(copies))]
    with ThreadPoolExecutor(len(copies)) as pool:
        parts = list(pool.map(measured, copies, shares))
    found = Covered({}, {})
    for part in parts:
        found.seconds.update(part.seconds)
        for path, lines in part.lines.items():
            known = found.lines.setdefault(path, {})
            for line, names in lines.items():
                known.setdefault(line, []).extend(names)
    return found


def measured(folder: Path, suites: Sequence[str]) -> Covered:
    """What some test files did on the unchanged code."""
    configuration = folder / "coverage.ini"
    configuration.write_text("[run]\nsource = specs, journals, runtime, proxy\ncore = ctrace\n")
    times = folder / "times.xml"
    words = ["-m", "not slow", f"--cov-config={configuration}", "--cov", "--cov-context=test"]
    words += ["--cov-report=", f"--junit-xml={times}", "-o", "junit_family=xunit1", *suites]
    if pytest(folder, words, limit=None) not in (0, 1):
        sys.exit("the tests cannot run before anything is changed")
    return recorded(folder)


def recorded(folder: Path) -> Covered:
    """What the covered run of a copy left; a test that failed can kill nothing, and is told."""
    data = coverage.CoverageData(str(folder / ".coverage"))
    data.read()
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for case in ElementTree.parse(folder / "times.xml").iter("testcase"):
        name = f"{case.attrib['file']}::{case.attrib['name']}"
        if case.find("failure") is None and case.find("error") is None:
            seconds[name] = float(case.attrib["time"])
        else:
            failed.add(name)
            print(f"left out, for it fails on the unchanged code: {name}", flush=True)
    lines = {
        str(Path(file).relative_to(folder)): {
            line: [name for name in names if name.rpartition("|")[0] not in failed]
            for line, names in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    return Covered(lines, seconds)


def tried(mutants: Sequence[Mutant], copies: Sequence[Path], found: Covered) -> Iterator[Verdict]:
    """Each mutant's verdict, as many at a time as there are copies."""
    free: SimpleQueue[Path] = SimpleQueue()
    for folder in copies:
        free.put(folder)

    def one(mutant: Mutant) -> Verdict:
        folder = free.get()
        try:
            chosen = found.choice(mutant)
            limit = START + PATIENCE * found.time(chosen)
            return attempt(mutant, folder, chosen, limit=limit)
        finally:
            free.put(folder)

    with ThreadPoolExecutor(len(copies)) as pool:
        for verdict in pool.map(one, mutants):
            word = "killed  " if verdict.killed else "survived"
            place = f"{verdict.mutant.path}:{verdict.mutant.lines[0]}"
            print(f"{word} {place} {verdict.mutant.operator} ({verdict.tests} tests)", flush=True)
            yield verdict


def tests_of(contexts: Iterable[Iterable[str]]) -> set[str]:
    """The tests of some lines' contexts; one without a name is an import."""
    return {name.rpartition("|")[0] for names in contexts for name in names if name}


def suite_of(path: str) -> str | None:
    """The tests of the folder of a file that is mutated; None for any other file."""
    return next((TARGETS[t] for t in TARGETS if path == t or path.startswith(f"{t}/")), None)


def attempt(mutant: Mutant, folder: Path, tests: Sequence[str], *, limit: float) -> Verdict:
    """Run the tests on the changed file, and put it back."""
    path = folder / mutant.path
    source = path.read_text()
    mutated = mutant.applied(source)
    diff = "\n".join(
        unified_diff(source.split("\n"), mutated.split("\n"), mutant.path, "mutant", "", "", 2, "")
    )
    chosen = folder / "chosen-tests"
    chosen.write_text("\n".join(tests))
    path.write_text(mutated)
    try:
        failed = pytest(folder, ["-x", f"@{chosen}"], limit=limit) != 0
    finally:
        path.write_text(source)
    return Verdict(mutant, failed, len(tests), diff)


def pytest(folder: Path, words: Sequence[str], *, limit: float | None) -> int:
    """Run tests in a copy; the exit code, or 124 where they took longer than `limit` seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [*command, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "CI": "1"},
        stdout=subprocess.DEVNULL if limit is not None else None,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return 124


if __name__ == "__main__":
    sys.exit(main())
