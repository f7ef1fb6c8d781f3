"""Bugs that other projects had, as programs of ours: the sanitizer finds each, and none in the fix.

Goal: the order that went wrong elsewhere is one that a user of accelrt gets wrong too. Method: what
was inside of another allocator is restated over a pool that the program makes of one buffer, whose
parts it hands out by itself; the rest needs streams, events and addresses alone. Each program takes
`is_fixed`, and does then what the project's fix did.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import pytest

import accelrt
from accelrt import sanitizer
from kinds import host_cores

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 4096

memset, memcpy = ctypes.CDLL(None).memset, ctypes.CDLL(None).memcpy
memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def a_merged_free_list_keeps_an_old_event(is_fixed: bool) -> None:  # noqa: FBT001
    """Restate rmm's pull request 2490: the event of a merged free list says too little.

    A pool has an event for the parts that each stream gave back. One stream takes over the parts
    of another and waits for that one's event, but does not record its own anew: a third stream,
    which waits for this event, takes memory that the first one still uses.
    """
    pool = accelrt.empty(SIZE)
    donor, owner, thief = (accelrt.Stream() for _ in range(3))
    event = owner.record_event()
    donor.launch(memset, pool, 1, SIZE)
    owner.wait_event(donor.record_event())  # the parts are merged
    if is_fixed:
        owner.record_event(event)
    thief.wait_event(event)
    thief.launch(memset, pool, 2, SIZE)


def record_stream_of_a_shifted_view(is_fixed: bool) -> None:  # noqa: FBT001
    """Restate PyTorch's issue 27366: record_stream of a shifted view recorded nothing.

    The memory could go to another stream too early.
    """
    other, buffer = accelrt.Stream(), accelrt.zeros(SIZE)
    other.wait_stream(buffer.stream)
    view = buffer[SIZE // 2 :]
    other.launch(memset, view.data_ptr(), 1, SIZE // 2)
    if is_fixed:
        view.record_stream(other)


def a_result_is_compared_too_early(is_fixed: bool) -> None:  # noqa: FBT001
    """Restate cudf's pull request 21122: tests looked at results before their stream was done."""
    stream, result = accelrt.Stream(), accelrt.empty_pinned(SIZE)
    stream.launch(memset, result, 1, SIZE)
    if is_fixed:
        stream.synchronize()
    with accelrt.host_access(result, writes=False):
        pass  # here the program reads by an address


def a_cache_is_used_by_two_stages(is_fixed: bool) -> None:  # noqa: FBT001
    """Restate torchrec's pull request 4191: two stages of a pipeline use one cache, unordered."""
    cache = accelrt.empty(SIZE)
    prefetch, distribute = accelrt.Stream(), accelrt.Stream()
    for turn in range(3):
        distribute.launch(memset, cache, turn, SIZE)
        prefetch.wait_stream(distribute)
        prefetch.launch(memset, cache, turn, SIZE)
        if is_fixed:
            distribute.wait_stream(prefetch)


def memory_is_given_back_under_a_copy(is_fixed: bool) -> None:  # noqa: FBT001
    """Restate torchrec's pull request 4231: a side stream copies memory that is released.

    The copy is a native one here, of an address: what takes buffers is recorded.
    """
    side, stash = accelrt.Stream(), accelrt.empty_pinned(SIZE)
    activation = accelrt.zeros(SIZE)
    side.wait_stream(activation.stream)
    side.launch(memcpy, accelrt.writes(stash), activation.data_ptr(), SIZE)
    if is_fixed:
        activation.record_stream(side)
    activation.release()


def take_view_of_part(buffer: accelrt.Buffer) -> None:
    """Take a view of a typed part of a buffer."""
    memoryview(buffer.view("u1")[8:]).release()


@host_cores
@pytest.mark.accelrt_unordered
@pytest.mark.parametrize("view", [bytes, memoryview, accelrt.Buffer.__dlpack__, take_view_of_part])
@pytest.mark.parametrize("writes", [False, True])
def test_view_beside_a_writing_callable_is_found(
    view: Callable[[accelrt.Buffer], object],
    writes: bool,  # noqa: FBT001
) -> None:
    buffer, stream = accelrt.zeros(SIZE), accelrt.Stream(dedicated=True)
    accelrt.accelerator.synchronize()
    opened = threading.Event()

    def wait(_: object) -> None:
        opened.wait()

    with sanitizer.watch() as report:
        stream.launch_host(wait, accelrt.writes(buffer) if writes else buffer)
        view(buffer)
        opened.set()
        stream.synchronize()
        view(buffer)
    assert [finding.kind for finding in report.findings] == ["host-access"] * writes, str(report)


BUGS = [
    (a_merged_free_list_keeps_an_old_event, "race"),
    (record_stream_of_a_shifted_view, "missing-record-stream"),
    (a_result_is_compared_too_early, "host-access"),
    (a_cache_is_used_by_two_stages, "race"),
    (memory_is_given_back_under_a_copy, "missing-record-stream"),
]


@host_cores
@pytest.mark.accelrt_unordered
@pytest.mark.parametrize(("program", "kind"), BUGS)
def test_a_bug_of_others_is_found_and_its_fix_has_no_finding(
    program: Callable[[bool], None], kind: str
) -> None:
    for is_fixed in (False, True):
        with sanitizer.watch() as report:
            program(is_fixed)
            accelrt.accelerator.synchronize()
        kinds = {finding.kind for finding in report.findings}
        assert kinds == (set() if is_fixed else {kind}), str(report)
