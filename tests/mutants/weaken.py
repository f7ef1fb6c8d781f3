"""Ask of every atomic ordering whether it is needed: weaken each, and see a model fail.

    weaken.py BINARY [--sample COUNT] [--seed SEED] [WORD...]

BINARY has the library's loom models. It is told by its environment which access of the text asks
for less than it says there (`src/base/sync/models.rs`), so nothing is compiled again. The models of
its room run first, then the quick ones of the others. A weakening is caught when one fails. It is
no mistake that none does where the comment above the access has the words "No model: " and says
why; any other survivor is, and so is an access that no model comes to.

WORDs choose those whose names, as they are printed, contain one of them; `--sample` so many by
chance. What was found out about this binary is kept below the target folder, and not asked again.
"""

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run import ROOT, Ended, run

KEPT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "weaken"

# Where the protocols stand that models cover.
PLACES = (
    "queue", "engine", "memory/allocator", "base/spin.rs", "base/asymmetric.rs",
    "base/sync.rs", "memory/buffer/counted.rs", "base/task_parts.rs",
    "backend/cpu/run_queue.rs",
)  # fmt: skip

# Far above what all models take together.
LIMIT_SECONDS = 600

CALL = re.compile(
    r"(?<=\.)(load|store|swap|fetch_\w+|compare_exchange(?:_weak)?)\(|(?<![\w.:])fence\("
)
# What tests of a file begin with; not a module that is another file's.
OWN_TESTS = re.compile(r"^#\[cfg\((?:all\()?test.*\n(?:pub\(crate\) )?mod \w+ \{", re.MULTILINE)
LOAD = {"SeqCst": ["Acquire"], "Acquire": ["Relaxed"]}
STORE = {"SeqCst": ["Release"], "Release": ["Relaxed"]}
EXCHANGE = {
    "SeqCst": ["AcqRel"],
    "AcqRel": ["Acquire", "Release"],
    "Acquire": ["Relaxed"],
    "Release": ["Relaxed"],
}
FENCE = {"SeqCst": ["AcqRel"]}

# Either may be broken by what else is printed.
FAILED = re.compile(r"([\w:]+::loom_\w+)(?: \.\.\. FAILED|'.* panicked at )")
REACHED = "an access was made weaker"


@dataclass(frozen=True)
class Weakening:
    """One ordering of the text, and what its access asks for instead."""

    file: str
    line: int
    column: int
    place: int
    operation: str
    ordering: str
    weaker: str
    why_unseen: str | None

    @property
    def name(self) -> str:
        """Return how the weakening is named to people."""
        which = " (failure)" if self.place else ""
        what = f"{self.operation}{which} {self.ordering} -> {self.weaker}"
        return f"{self.file}:{self.line}:{self.column} {what}"

    @property
    def setting(self) -> str:
        """Return how it is named to the binary."""
        return f"{self.file}:{self.line}:{self.column}:{self.place}:{self.weaker}"


def weakenings() -> Iterator[Weakening]:
    """Find every ordering that could be weaker, in the order of the text."""
    for place in PLACES:
        path = ROOT / "src" / place
        for file in sorted(path.rglob("*.rs")) if path.is_dir() else [path]:
            if not file.name.endswith("tests.rs") and not file.name.startswith("loom_"):
                yield from weakenings_of(file)


def weakenings_of(file: Path) -> Iterator[Weakening]:
    """Find those of one file, without its tests."""
    text = OWN_TESTS.split(file.read_text())[0]
    lines = text.splitlines()
    for call in CALL.finditer(text):
        line = text.count("\n", 0, call.start())
        begin = text.rfind("\n", 0, call.start()) + 1
        if "//" in text[begin : call.start()] or text[begin : call.start()].endswith("fn "):
            continue
        operation = call[1] or "fence"
        for place, ordering in enumerate(orderings(text, call.end())):
            known = {"load": LOAD, "store": STORE, "fence": FENCE}.get(operation, EXCHANGE)
            for weaker in (LOAD if place else known).get(ordering, []):
                yield Weakening(
                    file=str(file.relative_to(ROOT)),
                    line=line + 1,
                    column=call.start() - begin + 1,
                    place=place,
                    operation=operation,
                    ordering=ordering,
                    weaker=weaker,
                    why_unseen=why_unseen(lines, line, place),
                )


def orderings(text: str, begin: int) -> list[str]:
    """Return the orderings among the arguments of the call whose parenthesis ends at `begin`."""
    depth, end, own = 1, begin, ""
    while depth:
        character = text[end]
        depth += {"(": 1, ")": -1}.get(character, 0)
        own += character if depth == 1 else " "
        end += 1
    return re.findall(r"\bOrdering::(\w+)", own)


def why_unseen(lines: list[str], line: int, place: int) -> str | None:
    """Return what the comment at an access, or above its statement, says behind "No model: ".

    Behind "on failure" it is about the ordering of an exchange that fails, and about that alone.
    """
    first = line
    while first and not re.search(r"(^|[;{}]|//.*)$", lines[first - 1].strip()):
        first -= 1
    comment = [lines[line].partition("// ")[2]]
    while first and lines[first - 1].strip().startswith("// "):
        first -= 1
        comment.insert(0, lines[first].strip().removeprefix("// "))
    before, _, why = " ".join(comment).strip().partition("No model: ")
    is_of_failure = re.search(r"on failure[^.]*\. $", before) is not None
    return why if why and is_of_failure == bool(place) else None


class Models:
    """The binary with the models."""

    def __init__(self, binary: Path) -> None:
        """Ask it which there are."""
        self._binary = binary
        command = [str(binary), "--list", "--format", "terse", "loom_tests"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        self._names: list[str] = re.findall(r"^(.*): test$", listed.stdout, re.MULTILINE)
        self._seconds: dict[str, float] = {}

    def digest(self) -> str:
        """Name the binary by what it is."""
        return hashlib.sha256(self._binary.read_bytes()).hexdigest()[:16]

    def measure(self, seconds: dict[str, float]) -> str | None:
        """See that all pass and how long each takes, unless that is known; which one fails."""
        self._seconds = seconds
        for name in self._names:
            started = time.monotonic()
            if name not in seconds and self._run([name], None).status != 0:
                return name
            seconds.setdefault(name, time.monotonic() - started)
        return None

    def outcome(self, weakening: Weakening) -> str:
        """Run the models until one fails; say which, or what else there is to say."""
        is_reached = False
        for names in self._batches(weakening):
            ended = self._run(names, weakening)
            is_reached |= REACHED in ended.output
            if ended.status is None:
                return "ran out of time"
            if ended.status != 0:
                failed = FAILED.search(ended.output)
                return f"caught by {failed[1] if failed else f'a crash, {ended.status}'}"
        return "survived" if is_reached else "not reached"

    def _batches(self, weakening: Weakening) -> Iterator[list[str]]:
        """Models of the file's own room, then the quick ones, then what is left."""
        room = "::".join(Path(weakening.file).with_suffix("").parts[1:-1])
        quick = sum(self._seconds.values()) / 10
        own = [name for name in self._names if name.startswith(f"{room}::")]
        others = [name for name in self._names if name not in own]
        first = [name for name in others if self._seconds[name] < quick]
        yield from filter(None, [own, first, [name for name in others if name not in first]])

    def _run(self, names: list[str], weakening: Weakening | None) -> Ended:
        # The setting admits that the first failure ends the run, which is unstable in libtest.
        settings = {"RUST_BACKTRACE": "0", "RUSTC_BOOTSTRAP": "1"}
        if weakening:
            settings["LOOM_WEAKEN"] = weakening.setting
        command = [str(self._binary), "-Zunstable-options", "--fail-fast", "--nocapture"]
        return run([*command, "--exact", *names], settings, LIMIT_SECONDS, ROOT)


def chosen(arguments: argparse.Namespace) -> list[Weakening]:
    """Return the weakenings that are asked for."""
    words = arguments.words
    found = [it for it in weakenings() if not words or any(word in it.name for word in words)]
    if arguments.sample is not None and arguments.sample < len(found):
        print(f"a sample of {arguments.sample} of {len(found)}: --seed {arguments.seed}")
        picked = set(random.Random(arguments.seed).sample(found, arguments.sample))  # noqa: S311
        found = [it for it in found if it in picked]
    return found


def main() -> int:
    """Do what the head of this file says; the process's status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))  # noqa: S311
    arguments = parser.parse_args()
    models = Models(arguments.binary.resolve())
    KEPT.mkdir(parents=True, exist_ok=True)
    kept_in = KEPT / f"{models.digest()}.json"
    new: dict[str, dict[str, Any]] = {"seconds": {}, "outcomes": {}}
    kept = json.loads(kept_in.read_text()) if kept_in.exists() else new
    if failed := models.measure(kept["seconds"]):
        print(f"without a weakening {failed} fails", file=sys.stderr)
        return 1
    counts: Counter[str] = Counter()
    for weakening in chosen(arguments):
        started = time.monotonic()
        if weakening.setting not in kept["outcomes"]:
            kept["outcomes"][weakening.setting] = models.outcome(weakening)
            kept_in.write_text(json.dumps(kept, indent=1))
        outcome = kept["outcomes"][weakening.setting]
        kind = "caught" if outcome.startswith("caught") else outcome
        if kind != "caught" and weakening.why_unseen:
            kind, outcome = "explained", f"{outcome}: {weakening.why_unseen}"
        counts[kind] += 1
        seconds = time.monotonic() - started
        print(f"{weakening.name}\n  {seconds:4.0f} s  {outcome}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing was chosen")
    return 0 if counts and counts.keys() <= {"caught", "explained"} else 1


if __name__ == "__main__":
    sys.exit(main())
