"""Random programs: a program is a function of its kind and its seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
AMPLE = 64 * GIB  # an expandable segment takes addresses for 9/8 of it
STEPS = 500


@dataclass(frozen=True)
class Kind:
    """What the programs of a kind have in common."""

    settings: str = ""
    capacity: int = AMPLE
    streams: int = 2
    # Streams that use others' memory, and those of them that work. Where memory is short none does:
    # then PyTorch waits for all of them, accelrt for those without which the request would fail.
    uses: tuple[int, ...] = ()
    works: tuple[int, ...] = ()
    begins: tuple[str, ...] = ()
    # Steps that come now and then.
    changes: tuple[str, ...] = ()
    devices: int = 1
    threads: int = 1
    # What private pools may be, as words of `pool`; none without an entry.
    pools: tuple[str, ...] = ()

    @property
    def is_short(self) -> bool:
        """True when requests fail for want of memory."""
        return self.capacity != AMPLE


ALL = (0, 1, 2)
USED = (0, 1, 2, 3)
EXPANDABLE = "expandable_segments:True"
# Without a limit of splits: where that changes, PyTorch frees parts of segments in a shortage.
TOGGLES = (
    "settings expandable_segments:True",
    "settings expandable_segments:False",
    "settings expandable_segments:False,roundup_power2_divisions:4",
)
# What a text does not name is reset, or stays.
PARTIAL = (
    "settings expandable_segments:True",
    "settings max_split_size_mb:100",
    "settings roundup_power2_divisions:4",
    "settings large_segment_size_mb:30",
    "settings max_non_split_rounding_mb:60",
)
PARTIAL_OOM = (
    "settings expandable_segments:True",
    "settings expandable_segments:False",
    "settings roundup_power2_divisions:4",
    "settings garbage_collection_threshold:0.6",
    "settings throw_on_cudamalloc_oom:True",
    "settings throw_on_cudamalloc_oom:False",
)
REFUSALS = ("refuse allocate 1", "refuse allocate 2", "refuse allocate 3")
PAGE_REFUSALS = ("refuse create 1", "refuse create 2", "refuse create 4", "refuse create 7")
FRACTIONS = ("fraction 0.5", "fraction 0.3", "fraction 0.9", "fraction 1.0")
THRESHOLD = "garbage_collection_threshold:0.6"
SPLIT = "max_split_size_mb:40"

KINDS = {
    "default": Kind(streams=3),
    "record": Kind(streams=3, uses=ALL, works=ALL),
    "expandable": Kind(EXPANDABLE, streams=3),
    "expandable_record": Kind(EXPANDABLE, streams=3, uses=USED, works=USED),
    "max_split": Kind(SPLIT),
    "max_split_rounding": Kind(f"{SPLIT},max_non_split_rounding_mb:60"),
    "roundup": Kind("roundup_power2_divisions:4", uses=ALL, works=ALL),
    "roundup_list": Kind("roundup_power2_divisions:[1:2,16:8,64:4,>:1]"),
    "gc": Kind(THRESHOLD, GIB, begins=("fraction 0.8",), changes=("fraction 0.8",)),
    "gc_split": Kind(f"{THRESHOLD},{SPLIT}", GIB, begins=("fraction 0.8",)),
    "gc_record": Kind(THRESHOLD, GIB, uses=USED, begins=("fraction 0.8",)),
    "oom": Kind("", GIB // 2, streams=3),
    "oom_max_split": Kind(SPLIT, GIB // 2),
    "oom_expandable": Kind(EXPANDABLE, GIB // 2, streams=3),
    "oom_gc_expandable": Kind(
        f"{EXPANDABLE},{THRESHOLD}", GIB // 2, begins=("fraction 0.7",), changes=("fraction 0.7",)
    ),
    "oom_record": Kind("", GIB // 2, streams=3, uses=USED),
    "oom_record_expandable": Kind(EXPANDABLE, GIB // 2, streams=3, uses=USED),
    "fraction": Kind("", GIB, changes=FRACTIONS),
    "fraction_expandable": Kind(EXPANDABLE, GIB, changes=FRACTIONS),
    "toggle": Kind(changes=("settings expandable_segments:True", "settings ")),
    "toggle_oom": Kind("", GIB // 2, changes=TOGGLES),
    "settings_partial": Kind(changes=PARTIAL),
    "settings_partial_oom": Kind("", GIB // 2, changes=PARTIAL_OOM),
    "large_segment": Kind("large_segment_size_mb:40"),
    "large_segment_expandable": Kind(f"large_segment_size_mb:40,{EXPANDABLE}", GIB // 2),
    "per_process": Kind("per_process_memory_fraction:0.4", GIB),
    "throw": Kind("throw_on_cudamalloc_oom:True", GIB),
    "throw_fraction": Kind(
        "per_process_memory_fraction:0.4,throw_on_cudamalloc_oom:True", GIB, changes=FRACTIONS
    ),
    "throw_expandable": Kind(
        f"per_process_memory_fraction:0.6,throw_on_cudamalloc_oom:True,{EXPANDABLE}",
        GIB,
        changes=FRACTIONS,
    ),
    "refused": Kind(changes=REFUSALS),
    "refused_expandable": Kind(EXPANDABLE, changes=PAGE_REFUSALS),
    "refused_max_split": Kind(SPLIT, GIB, changes=REFUSALS),
    "devices": Kind(devices=2),
    "devices_expandable_oom": Kind(EXPANDABLE, GIB // 2, devices=2),
    "threads": Kind(threads=3, streams=3),
    "pools": Kind(threads=2, pools=("", "helps", "whole")),
    "pools_oom": Kind("", GIB // 2, pools=("", "helps", "helps whole")),
    "pools_expandable": Kind(EXPANDABLE, pools=("", "helps")),
    "pools_devices": Kind(devices=2, threads=2, pools=("",)),
}


@dataclass
class _Program:
    """A program as it grows."""

    kind: Kind
    chance: random.Random
    sizes: Callable[[], int]
    most: int
    streams: int
    lines: list[str] = field(default_factory=list)
    # What is held, with the device that it is on.
    live: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0
    device: int = 0
    thread: int = 0
    # Of each device the pools that are there, and those that threads are in.
    pools: dict[int, list[int]] = field(default_factory=dict)
    inside: dict[tuple[int, int], int] = field(default_factory=dict)
    pool_count: int = 0
    # Those that help out are not dropped: PyTorch goes on asking them, and fails.
    helpers: set[int] = field(default_factory=set)
    has_dropped: bool = False

    def add(self, line: str) -> None:
        self.lines.append(line)

    def allocate(self) -> None:
        stream = self.chance.randrange(self.streams)
        self.add(f"allocate {self.count} {max(1, self.sizes())} {stream}")
        self.live.append((self.count, self.device))
        self.count += 1

    def free(self) -> None:
        last = len(self.live) - 1
        index = self.chance.choice([0, last, self.chance.randrange(last + 1)])
        self.add(f"free {self.live.pop(index)[0]}")

    def free_many(self) -> None:
        for number, _ in self.live[: self.most]:
            self.add(f"free {number}")
        del self.live[: self.most]

    def work(self) -> None:
        chance, works = self.chance, self.kind.works
        what = chance.random()
        if works and what < 0.3:
            self.add(f"work {chance.choice(works)} {chance.randint(1, 3)}")
        elif works and what < 0.6:
            self.add(f"finish {chance.choice(works)} {chance.choice([1, 1, 2, -1])}")
        elif self.live:
            self.add(f"use {chance.choice(self.live)[0]} {chance.choice(self.kind.uses)}")

    def switch(self) -> None:
        """Go on on another device, or in another thread."""
        if self.kind.devices > 1 and self.chance.random() < 0.5:
            self.device = self.chance.randrange(self.kind.devices)
            self.add(f"device {self.device}")
        elif self.kind.threads > 1:
            self.thread = self.chance.randrange(self.kind.threads)
            self.add(f"thread {self.thread}")

    def pool(self) -> None:
        """Make, enter, leave or drop a pool of this device."""
        here = (self.thread, self.device)
        pools = self.pools.setdefault(self.device, [])
        if here in self.inside:
            self.add(f"leave {self.inside.pop(here)}")
            return
        entered = {pool for (_, device), pool in self.inside.items() if device == self.device}
        others = [pool for pool in pools if pool not in entered]
        what = self.chance.random()
        if not others or (what < 0.2 and len(pools) < 3):
            self.pool_count += 1
            # One helps: which of several is asked first is a hash's choice.
            choices = [it for it in self.kind.pools if "helps" not in it or not self.helpers]
            options = self.chance.choice(choices)
            self.add(f"pool {self.pool_count} {options}".rstrip())
            pools.append(self.pool_count)
            if "helps" in options:
                self.helpers.add(self.pool_count)
        elif what < 0.4 and (ended := [pool for pool in others if pool not in self.helpers]):
            self.drop(self.chance.choice(ended), pools)
        else:
            self.inside[here] = self.chance.choice(others)
            self.add(f"enter {self.inside[here]}")

    def drop(self, pool: int, pools: list[int]) -> None:
        """Drop a pool, which may have memory in use; that of others dropped before has gone back.

        PyTorch gives that of several back in no order that could be named.
        """
        if self.has_dropped:
            self.lines += [f"free {number}" for number, _ in self.live]
            self.live.clear()
            self.add("empty")
        self.has_dropped = True
        pools.remove(pool)
        self.add(f"drop {pool}")

    def step(self) -> None:
        what = self.chance.random()
        kind = self.kind
        if what < 0.02 and kind.changes:
            self.add(self.chance.choice(kind.changes).rstrip())
        elif what < 0.03:
            # cudaFree waits for the device, accelrt for what it gives back.
            self.lines += ["synchronize", "empty"] if kind.uses else ["empty"]
        elif what < 0.035:
            self.add(self.chance.choice(["reset_peaks", "reset_peaks", "reset_sums"]))
        elif what < 0.07 and (kind.devices > 1 or kind.threads > 1):
            self.switch()
        elif what < 0.10 and kind.pools:
            self.pool()
        elif what < 0.30 and kind.uses:
            self.work()
        elif len(self.live) < 2 or self.chance.random() < 0.5 + 0.3 * (
            1 - len(self.live) / self.most
        ):
            self.allocate()
        else:
            self.free()
        if len(self.live) > 2 * self.most:
            self.free_many()

    def end(self) -> None:
        """End with a request of each device, which takes in what streams have passed."""
        for (thread, device), pool in self.inside.items():
            self.lines += [f"thread {thread}", f"device {device}", f"leave {pool}"]
        self.add("synchronize")
        for device in range(self.kind.devices):
            number = self.count + device
            self.lines += [f"device {device}", f"allocate {number} 512 0", f"free {number}"]


def _sizes(chance: random.Random, *, is_short: bool) -> Callable[[], int]:
    """Draw sizes of some sorts, of which a program has a few."""
    round_ones = [512, 4 * KIB, 64 * KIB, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 64 * MIB]
    fixed = [chance.choice(round_ones) + chance.choice([0, 0, 1, -1, 511, 512]) for _ in range(6)]
    most_large = (120 if is_short else 400) * MIB

    sorts: dict[str, Callable[[], int]] = {
        "fixed": lambda: chance.choice(fixed),
        "large": lambda: chance.randint(10 * MIB, most_large),
        "line": lambda: MIB + chance.randint(-2048, 2048),
        "log": lambda: int(2 ** chance.uniform(0, 27)),
        "middle": lambda: chance.randint(MIB, 20 * MIB),
        "small": lambda: int(2 ** chance.uniform(9, 20)),
        "tiny": lambda: chance.randint(1, 4096),
    }
    chosen = chance.sample(sorted(sorts), chance.randint(1, 4))
    return sorts[chance.choice(chosen)]


def is_sound(lines: list[str]) -> bool:
    """Tell whether pools are there when a program names them, and left before they are dropped."""
    there, inside = set[str](), list[str]()
    for word, *rest in (line.split() for line in lines):
        if word == "pool":
            there.add(rest[0])
        elif word == "enter":
            if rest[0] not in there or rest[0] in inside:
                return False
            inside.append(rest[0])
        elif word == "leave":
            if rest[0] not in inside:
                return False
            inside.remove(rest[0])
        elif word == "drop":
            if rest[0] not in there or rest[0] in inside:
                return False
            there.remove(rest[0])
    return not inside


def head(kind: Kind) -> list[str]:
    """Return the lines before the first step."""
    lines = [f"capacity {kind.capacity}", f"devices {kind.devices}"]
    return [*lines, f"with {kind.settings}"] if kind.settings else lines


def program(name: str, seed: int, steps: int = STEPS) -> list[str]:
    """Make the lines of the program of a kind and a seed."""
    kind = KINDS[name]
    chance = random.Random(f"{name} {seed}")
    sizes = _sizes(chance, is_short=kind.is_short)
    most = chance.choice([3, 10, 40, 120])
    growing = _Program(kind, chance, sizes, most, chance.randint(1, kind.streams))
    growing.lines += [*head(kind), *kind.begins]
    while len(growing.lines) < steps:
        growing.step()
    growing.end()
    return growing.lines
