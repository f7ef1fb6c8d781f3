"""Profiles and snapshots of tests, made by a program whose runs are all the same."""

import copy
import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STAGES = ("copy in", "compute", "copy out")
_KERNELS = ("gemm_f32", "softmax", "layer_norm", "gelu", "reduce_sum")


def profile(chunk_count: int) -> dict[str, Any]:
    """Return a Chrome trace of a pipeline: three streams, a host thread, arrows and a counter."""
    return {"traceEvents": [*_names(), *_records(chunk_count)]}


def write_profile(path: Path, chunk_count: int) -> Path:
    path.write_text(json.dumps(profile(chunk_count)))
    return path


def _names() -> Iterator[dict[str, Any]]:
    for pid, name, place in ((0, "host", 0), (1, "cpu:0", 1)):
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": place}}
    yield {"ph": "M", "pid": 0, "tid": 7, "name": "thread_name", "args": {"name": "MainThread"}}
    for tid, name in enumerate(_STAGES):
        thread = f"stream {tid} ({name})"
        yield {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": thread}}


def _records(chunk_count: int) -> Iterator[dict[str, Any]]:
    free_us = [0.0, 0.0, 0.0]
    arrows = 0
    for chunk in range(chunk_count):
        ready_us = chunk * 42.0 + chunk * 7919 % 13
        yield _slice("step", (0, 7), ready_us, 30.0, chunk=chunk)
        yield _slice("enqueue", (0, 7), ready_us + 2, 9.5)
        for tid, stage in enumerate(_STAGES):
            start_us = max(ready_us + 12, free_us[tid])
            length_us = (14.0, 31.0, 11.0)[tid] + (chunk * 31 + tid * 17) % 9
            if tid:
                arrows += 1
                yield _arrow("s", arrows, tid - 1, ready_us)
                yield _arrow("f", arrows, tid, start_us)
            if stage == "compute":
                yield from _kernels(chunk, start_us, length_us)
            else:
                yield _slice(stage, (1, tid), start_us, length_us, bytes=262_144)
            ready_us = free_us[tid] = start_us + length_us
        live = 262_144 * (3 + chunk % 5)
        counted = {"allocated": live, "reserved": 2 << 20}
        yield {"ph": "C", "pid": 1, "name": "memory", "ts": ready_us, "args": counted}


def _kernels(chunk: int, start_us: float, length_us: float) -> Iterator[dict[str, Any]]:
    yield _slice(f"layer {chunk % 4}", (1, 1), start_us, length_us, chunk=chunk)
    part_us = length_us / len(_KERNELS)
    for place, kernel in enumerate(_KERNELS):
        yield _slice(kernel, (1, 1), start_us + place * part_us, part_us * 0.92)


def _slice(
    name: str, place: tuple[int, int], start_us: float, length_us: float, **args: object
) -> dict[str, Any]:
    (pid, tid), times = place, {"ts": start_us, "dur": length_us}
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, **times, "args": args}


def _arrow(phase: str, number: int, tid: int, time_us: float) -> dict[str, Any]:
    place = {"pid": 1, "tid": tid, "ts": time_us}
    return {"ph": phase, "id": number, "name": "wait", "cat": "event", **place}


MIB = 1 << 20
SEGMENT_BYTES = 20 * MIB
_BASE = 0x7F00_0000_0000
_LAYERS = 8


class Program:
    """A program that trains a small network, and the snapshot of its allocator.

    Blocks are placed by first fit. `live` and `peak_bytes` are kept as the program goes, so that
    tests have numbers that no reader of ours has counted.
    """

    def __init__(self) -> None:
        self.trace: list[dict[str, Any]] = []
        self.live: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._frames: dict[int, list[dict[str, Any]]] = {}
        self._awaiting: set[int] = set()
        self._segments: list[int] = []
        self.live_bytes = self.peak_bytes = self.entries_at_peak = 0

    def allocate(self, size: int, *frames: tuple[str, str, int], recorded: bool = True) -> int:
        address = self._place(size)
        self.live[address] = size
        self._frames[address] = [
            {"name": name, "filename": file, "line": line}
            for name, file, line in (("at::empty_strided", "??", 0), *frames)
        ]
        self.live_bytes += size
        if recorded:
            self._record("alloc", address, size, self._frames[address])
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes, self.entries_at_peak = self.live_bytes, len(self.trace)
        return address

    def free(self, address: int, *, completes: bool = True) -> None:
        frames = [{"name": "backward", "filename": "/app/train.py", "line": 44}]
        self._record("free_requested", address, self.live[address], frames)
        if completes:
            self.complete(address)
        else:
            self._awaiting.add(address)

    def complete(self, address: int) -> None:
        size = self.live.pop(address)
        self._awaiting.discard(address)
        self.live_bytes -= size
        self._record("free_completed", address, size, [])

    def run_out(self, size: int) -> None:
        self.trace.append({"action": "oom", "size": size, "stream": 0, "device_free": MIB})
        self.trace[-1] |= {"time_us": self._now(), "frames": []}

    def _now(self) -> int:
        return 1_700_000_000_000_000 + 40 * len(self.trace)

    def _record(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": 0}
        self.trace.append({**entry, "time_us": self._now(), "frames": frames})

    def _place(self, size: int) -> int:
        rounded = -(-size // 512) * 512
        for segment in self._segments:
            at = segment
            for address, block in sorted(self.live.items()):
                if segment <= address < segment + SEGMENT_BYTES:
                    if address - at >= rounded:
                        return at
                    at = address + -(-block // 512) * 512
            if segment + SEGMENT_BYTES - at >= rounded:
                return at
        self._segments.append(_BASE + 2 * SEGMENT_BYTES * len(self._segments))
        self._record("segment_alloc", self._segments[-1], SEGMENT_BYTES, [])
        return self._segments[-1]

    def snapshot(self) -> dict[str, Any]:
        """Return what `torch.cuda.memory._snapshot` would."""
        times = [entry["time_us"] for entry in self.trace]
        marks = (("START", times[0]), ("END", times[len(times) // 2])) if times else ()
        return {
            "segments": [self._segment(address) for address in self._segments],
            "device_traces": [self.trace],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
            "external_annotations": [
                {"stage": stage, "name": "warm-up", "device": 0, "time_us": time}
                for stage, time in marks
            ],
        }

    def _segment(self, start: int) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        at, end = start, start + SEGMENT_BYTES
        for address, size in sorted(self.live.items()):
            if not start <= address < end:
                continue
            if address > at:
                blocks.append(_free_block(at, address - at))
            state = "active_awaiting_free" if address in self._awaiting else "active_allocated"
            rounded = -(-size // 512) * 512
            blocks.append(
                {"address": address, "size": rounded, "requested_size": size, "state": state}
                | {"frames": self._frames[address]}
            )
            at = address + rounded
        if at < end:
            blocks.append(_free_block(at, end - at))
        active = sum(block["size"] for block in blocks if block["state"] != "inactive")
        return {
            "device": 0,
            "address": start,
            "total_size": SEGMENT_BYTES,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "allocated_size": active,
            "active_size": active,
            "requested_size": active,
            "frames": [],
            "blocks": blocks,
        }


def _free_block(address: int, size: int) -> dict[str, Any]:
    block = {"address": address, "size": size, "requested_size": 0, "state": "inactive"}
    return block | {"frames": []}


def training(steps: int, *, width: int = 1) -> Program:
    """Return a program after some steps: weights from before, activations, states, a shortage."""
    program = Program()
    for layer in range(_LAYERS):
        program.allocate(MIB + 4096 * layer, ("build", "/app/model.py", 12), recorded=False)
    train = ("train", "/app/train.py", 31)
    for step in range(steps):
        activations = []
        for layer in range(_LAYERS):
            call = ("forward", "/app/model.py", 20 + layer % 3), train
            activations.append(program.allocate((2 * MIB + 700 * layer) * width, *call))
            score = program.allocate(3 * MIB, ("attention", "/app/model.py", 51), *call)
            program.free(score)
        if step == 0:
            for layer in range(_LAYERS):
                size = MIB + 4096 * layer
                program.allocate(size, ("step", "/app/optimizer.py", 7), train)
        for layer, address in enumerate(reversed(activations)):
            gradient = program.allocate(MIB, ("backward", "/app/train.py", 44), train)
            program.free(address, completes=layer % 4 != 0)
            program.free(gradient)
            if layer % 4 == 0:
                program.complete(address)
    program.run_out(64 * MIB)
    return program


PAGE_BYTES = 2 * MIB
_PAGES = 24

Ranges = list[tuple[int, int]]
"""Beginnings and ends of ranges of addresses, in their order."""


def growing(numbers: random.Random, steps: int) -> tuple[dict[str, Any], list[Ranges]]:
    """Return a snapshot of segments that grew and shrank, and what was mapped after each entry.

    Some pages are there before the recording, and an ordinary segment comes and goes beside them.
    """
    mapped = {page for page in range(_PAGES) if numbers.random() < 0.5}
    beside = _BASE + 2 * _PAGES * PAGE_BYTES
    has_beside = False
    trace: list[dict[str, Any]] = []
    states = [_mapped_ranges(mapped)]
    for _ in range(steps):
        if numbers.random() < 0.2:
            action = "segment_free" if has_beside else "segment_alloc"
            has_beside = not has_beside
            trace.append({"action": action, "addr": beside, "size": SEGMENT_BYTES})
        else:
            pages = _some_pages(numbers, mapped)
            action = "segment_unmap" if pages <= mapped else "segment_map"
            mapped ^= pages
            place = {"addr": _BASE + min(pages) * PAGE_BYTES, "size": len(pages) * PAGE_BYTES}
            trace.append({"action": action, **place})
        ordinary = [(beside, beside + SEGMENT_BYTES)] if has_beside else []
        states.append([*_mapped_ranges(mapped), *ordinary])
    segments = [
        {"device": 0, "address": begin, "total_size": end - begin, "stream": 0, "blocks": []}
        | {"segment_type": "large", "is_expandable": begin < beside}
        for begin, end in states[-1]
    ]
    return {"segments": segments, "device_traces": [trace]}, states


def _some_pages(numbers: random.Random, mapped: set[int]) -> set[int]:
    """Return neighbours of which all are mapped, or none."""
    first = numbers.randrange(_PAGES)
    pages = {first}
    for page in range(first + 1, min(first + numbers.randint(1, 6), _PAGES)):
        if (page in mapped) != (first in mapped):
            break
        pages.add(page)
    return pages


def _mapped_ranges(mapped: set[int]) -> Ranges:
    begins = [page for page in sorted(mapped) if page - 1 not in mapped]
    ends = [page + 1 for page in sorted(mapped) if page + 1 not in mapped]
    places = zip(begins, ends, strict=True)
    return [(_BASE + begin * PAGE_BYTES, _BASE + end * PAGE_BYTES) for begin, end in places]


def write_snapshot(path: Path, program: Program) -> Path:
    path.write_bytes(pickle.dumps(program.snapshot()))
    return path


_WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    1 << 40,
    (1 << 63) - 1,
    1e9,
    "",
    "x",
    "</script>",
    [],
    {},
    "\ud800",
)


def damage(content: Any, numbers: random.Random) -> None:
    """Change, drop or double a value somewhere in a nest of lists and dictionaries."""
    place = content
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = numbers.choice(keys)
        inner = place[key]
        if isinstance(inner, dict | list) and inner and numbers.random() > 0.15:
            place = inner
        elif numbers.random() < 0.6:
            place[key] = copy.copy(numbers.choice(_WRONG))
            return
        elif isinstance(place, dict):
            del place[key]
            return
        else:
            place.insert(key, numbers.choice(place))
            return
