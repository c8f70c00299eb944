"""Search in a journal of 100,000 entries beside ripgrep, and durable append beside write + fsync.

    python -m benchmarks.journal_search [--entries 100000] [--rounds 5] [--seconds 2] [--json FILE]

Search: `Journal.search` in this process, as the MCP server and the command call it, gives the
newest 20 matching entries, read and checked. Beside it a process of ripgrep (`rg -i -F`, or
`grep -i -F` where there is none: the output says which) writes all matching lines into a pipe, of
which the last 20 are taken; both must name the same entries. A filter by kind and word has no
one-pass equivalent there: it searches for the word. The file is in the page cache for both.

Append: `Journal.append`, which locks, chains, validates and syncs, beside the cheapest code with
the same durability, one O_APPEND write of as many bytes and one fdatasync each. Rounds alternate;
each number is the median of its rounds.
"""

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from journals import Filter, Journal, files, lines
from journals.searching import words_of
from specs.ids import Prefix, new_id
from specs.journal import EntryKind, JournalDraft, Link

PAGE = 20
TEXT_CHARS = 300
WRITERS = (1, 8)
KINDS: tuple[EntryKind, ...] = ("observation", "hypothesis", "change", "comparison", "note")
WORDS = re.findall(
    r"[a-z-]+",
    "reward loss baseline checkpoint held-out sampler update gradient token probe review prompt"
    " verifier tool timeout sandbox profile batch seed curve score task epoch adapter dataset the"
    " of and was with after than rises falls stays equals differs because again only never",
)
DRAFT = JournalDraft(kind="note", author="bench", text="x" * TEXT_CHARS)


def fill(folder: Path, entries: int) -> tuple[Journal, Link]:
    """A journal, its lines written at once; a rare link and a rare word are in its oldest part."""
    journal = Journal.create(folder, title="Benchmark", author="bench")
    previous, chance = journal.header().digest, random.Random(7)
    runs = [new_id(Prefix.RUN) for _ in range(200)]
    rare = new_id(Prefix.RUN)
    with (folder / files.LINES).open("ab") as file:
        for number in range(1, entries + 1):
            text = " ".join(chance.choices(WORDS, k=TEXT_CHARS // 7))
            oldest = number == entries // 50
            line = lines.encode(
                {
                    "kind": "decision" if number % 1000 == 0 else chance.choice(KINDS),
                    "author": "bench",
                    "text": f"{text} Quixotic" if oldest else text,
                    "links": [{"type": "run", "id": rare if oldest else chance.choice(runs)}],
                    "data": {"reward": round(chance.random(), 4)},
                    "id": new_id(Prefix.JOURNAL_ENTRY),
                    "seq": number,
                    "at": f"2026-01-01T00:00:00.{number:06d}Z",
                    "previous": previous,
                }
            )
            previous = lines.checked_digest(line[:-1])
            file.write(line)
    return journal, Link(type="run", id=rare)


def beside(program: list[str], words: str, path: Path) -> list[str]:
    """The last lines that the other program finds."""
    done = subprocess.run([*program, words, str(path)], stdout=subprocess.PIPE, check=False)
    return [json.loads(line)["id"] for line in done.stdout.splitlines()[-PAGE:]]


def timed[T](work: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds, and what came of it."""
    started = time.perf_counter()
    result = work()
    return 1000 * (time.perf_counter() - started), result


def searches(folder: Path, entries: int, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of alternating rounds, in milliseconds."""
    journal, link = fill(folder, entries)
    path = folder / files.LINES
    program = ["rg", "-i", "-F"] if shutil.which("rg") else ["grep", "-i", "-F"]
    print(f"{entries} entries, {path.stat().st_size >> 20} MiB, beside: {' '.join(program)}")
    cases = {
        "word in no entry": (Filter(words=words_of("antediluvian")), "antediluvian"),
        "word in one old entry": (Filter(words=words_of("quixotic")), "quixotic"),
        "word in most entries": (Filter(words=words_of("reward")), "reward"),
        "link of one old entry": (Filter(link=link), link.id),
        "kind and word": (Filter(words=words_of("sampler"), kinds=("decision",)), "sampler"),
    }
    results: dict[str, dict[str, float]] = {}
    for name, (wanted, words) in cases.items():
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(rounds):
            spent, found = timed(lambda wanted=wanted: journal.search(wanted, limit=PAGE))
            ours.append(spent)
            spent, other = timed(lambda words=words: beside(program, words, path))
            theirs.append(spent)
            if not wanted.kinds and [entry.id for entry in found.entries] != other[::-1]:
                raise SystemExit(f"{name}: not the entries that {program[0]} finds")
        results[name] = {"ours": median(ours), program[0]: median(theirs)}
    return results


def append_ours(folder: Path, until: float) -> int:
    """Entries appended until a moment of the monotonic clock."""
    journal, count = Journal(folder), 0
    while time.monotonic() < until:
        journal.append(DRAFT)
        count += 1
    return count


def append_plain(folder: Path, until: float) -> int:
    """Writes of as many bytes, each synced, until a moment of the monotonic clock."""
    line, count = b"x" * 620 + b"\n", 0
    descriptor = os.open(folder / "plain", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while time.monotonic() < until:
        os.write(descriptor, line)
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count


def rate(append: Callable[[Path, float], int], folder: Path, writers: int, seconds: float) -> float:
    """Appends per second of so many processes on one file."""
    with multiprocessing.get_context("fork").Pool(writers) as pool:
        until = time.monotonic() + seconds
        return sum(pool.starmap(append, [(folder, until)] * writers)) / seconds


def appends(folder: Path, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Medians of alternating rounds, in appends per second."""
    Journal.create(folder, title="Appends", author="bench")
    results: dict[str, dict[str, float]] = {}
    for writers in WRITERS:
        found: dict[str, list[float]] = {"ours": [], "plain": []}
        for _ in range(rounds):
            found["ours"].append(rate(append_ours, folder, writers, seconds))
            found["plain"].append(rate(append_plain, folder, writers, seconds))
        medians = {side: median(values) for side, values in found.items()}
        ratio = medians["ours"] / medians["plain"]
        results[f"{writers} writing"] = {**medians, "ratio": ratio}
    if problems := Journal(folder).verify():
        raise SystemExit(f"the journal is damaged: {problems[0]}")
    return results


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one round of appends")
    parser.add_argument("--json", type=Path, default=None, help="also write the numbers there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="journal-") as name:
        folder = Path(name)
        found = searches(folder / "search", options.entries, options.rounds)
        other = next(side for side in next(iter(found.values())) if side != "ours")
        print(f"{'search (ms)':24}{'ours':>8}{other:>8}")
        for case, row in found.items():
            print(f"{case:24}{row['ours']:8.1f}{row[other]:8.1f}")
        added = appends(folder / "append", options.rounds, options.seconds)
    print(f"{'append (per s)':24}{'ours':>8}{'plain':>8}{'ratio':>8}")
    for case, row in added.items():
        print(f"{case:24}{row['ours']:8.0f}{row['plain']:8.0f}{row['ratio']:7.2f}×")
    if options.json is not None:
        report = {"search": found, "append": added}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
