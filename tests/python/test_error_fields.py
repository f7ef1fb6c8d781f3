"""What errors carry beside their text: sizes, streams, tickets, counts.

Goal: a program decides by numbers that are true, and by the words that it knows from torch. Method:
devices of known capacities in processes of their own; streams that fail at known tasks.
"""

import copy
import gc
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

import accelrt
from gates import NATIVE, fail, libc
from kinds import KIND, default_stream, several_devices
from processes import output_of

MIB = 1 << 20
SIZES = ("requested_bytes", "allocated_bytes", "reserved_bytes", "limit_bytes", "largest_bytes")

_Error = TypeVar("_Error", bound=Exception)

# How an error gets to somebody else.
WAYS: dict[str, Callable[[Exception], Exception]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301  our own bytes
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def raised(kind: type[_Error], call: Callable[[], object]) -> _Error:
    """Return the error that a call raises."""
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def work(stream: accelrt.Stream, count: int) -> None:
    """Enqueue tasks that succeed."""
    for _ in range(count):
        if NATIVE:
            stream.launch(libc.abs, 1)
        else:
            stream.launch_host(abs, 1)


def sizes_after(code: str, **settings: str) -> dict[str, int | None]:
    """Return the sizes of the error that a program ends in, by name."""
    program = f"""
        import accelrt
        a = accelrt.accelerator
        try:
            {code}
        except accelrt.OutOfMemoryError as error:
            print([getattr(error, name) for name in {SIZES}])
    """
    values = output_of(program, **settings).strip().strip("[]").split(", ")
    numbers = [None if value == "None" else int(value) for value in values]
    return dict(zip(SIZES, numbers, strict=True))


def test_programs_find_out_of_memory_in_the_text() -> None:
    error = raised(accelrt.OutOfMemoryError, lambda: accelrt.empty(1 << 59))
    expected = f"{KIND.upper()} out of memory. Tried to allocate 536870912.00 GiB."
    assert str(error).startswith(expected)


def test_more_than_an_exbibyte_is_told_as_torch_tells_it() -> None:
    for make in (accelrt.empty, accelrt.empty_pinned):
        error = raised(accelrt.OutOfMemoryError, lambda: make(1 << 61))  # noqa: B023
        assert "out of memory. Tried to allocate more than 1EB memory" in str(error)
        assert error.requested_bytes == 1 << 61


def test_the_sizes_are_those_of_the_request_and_the_device() -> None:
    code = "kept = accelrt.empty(30 << 20); accelrt.empty(40 << 20)"
    assert sizes_after(code, ACCELRT_CPU_MEMORY="64M") == {
        "requested_bytes": 40 * MIB,
        "allocated_bytes": 30 * MIB,
        "reserved_bytes": 30 * MIB,
        "limit_bytes": 64 * MIB,
        "largest_bytes": 34 * MIB,
    }


def test_a_memory_fraction_is_the_limit_that_is_told() -> None:
    code = "a.set_per_process_memory_fraction(0.5); accelrt.empty(40 << 20)"
    sizes = sizes_after(code, ACCELRT_CPU_MEMORY="64M")
    assert (sizes["limit_bytes"], sizes["largest_bytes"]) == (32 * MIB, 32 * MIB)


def test_under_policy_torch_the_largest_size_is_a_free_block() -> None:
    code = "kept = accelrt.empty(15 << 19); "
    sizes = sizes_after(
        code + "accelrt.empty(60 << 20)",
        ACCELRT_CPU_MEMORY="64M",
        ACCELRT_ALLOC_CONF="policy:torch,large_segment_size_mb:20",
    )
    assert (sizes["allocated_bytes"], sizes["reserved_bytes"]) == (15 * MIB // 2, 20 * MIB)
    assert sizes["largest_bytes"] == 25 * MIB // 2


def test_pinned_memory_has_sizes_of_its_own() -> None:
    code = "kept = accelrt.empty(9 << 20), accelrt.empty_pinned(5 << 20); "
    sizes = sizes_after(code + "accelrt.empty_pinned(1 << 50)", ACCELRT_CPU_MEMORY="64M")
    limit_bytes = sizes.pop("limit_bytes")
    assert limit_bytes is not None
    assert limit_bytes > 64 * MIB  # the machine's
    assert sizes == {
        "requested_bytes": 1 << 50,
        "allocated_bytes": 5 * MIB,
        "reserved_bytes": 5 * MIB,
        "largest_bytes": 0,
    }


@pytest.mark.parametrize("size", ["1 << 50", "1 << 61", "(1 << 63) - 4096"])
def test_first_pinned_shortage_names_the_limit(size: str) -> None:
    # The driver never sees the larger sizes: the allocator refuses them itself.
    sizes = sizes_after(f"accelrt.empty_pinned({size})", ACCELRT_CPU_MEMORY="64M")
    assert sizes["requested_bytes"] == eval(size)  # noqa: S307  a literal of this file
    assert sizes["limit_bytes"] is not None
    assert sizes["limit_bytes"] > 64 * MIB


def test_a_pinned_request_that_needs_a_large_segment_says_so() -> None:
    code = """
        import accelrt
        accelrt.accelerator.set_allocator_settings("pinned_reserve_segment_size_mb:1000000000")
        try:
            accelrt.empty_pinned(1000)
        except accelrt.OutOfMemoryError as error:
            print(error)
    """
    text = output_of(code)
    expected = (
        "Tried to allocate 1000 B, pinned on the host, which takes a segment of 976562.50 GiB. "
        "The host has a total capacity of"
    )
    assert expected in text


def test_an_error_that_no_allocator_raised_has_no_sizes() -> None:
    error = accelrt.OutOfMemoryError("by hand")
    assert [getattr(error, name) for name in SIZES] == [None] * 5
    failure = accelrt.StreamError("by hand")
    assert (failure.device, failure.stream, failure.stream_id) == (None, None, None)
    assert (failure.ticket, failure.skipped, failure.errors) == (None, None, [failure])


@pytest.mark.parametrize("way", WAYS)
def test_sizes_go_where_the_error_goes(way: str) -> None:
    error = raised(accelrt.OutOfMemoryError, lambda: accelrt.empty(1 << 59))
    again = WAYS[way](error)
    assert type(again) is accelrt.OutOfMemoryError
    assert str(again) == str(error)
    assert [getattr(again, name) for name in SIZES] == [getattr(error, name) for name in SIZES]


def test_a_failure_says_which_task_of_which_stream_failed_and_how_many_were_skipped() -> None:
    stream = accelrt.Stream(dedicated=True)
    work(stream, 1)
    fail(stream, 3)
    work(stream, 4)
    error = raised(accelrt.StreamError, stream.synchronize)
    assert (error.stream, error.stream_id) == (stream, stream.stream_id)
    assert error.device == stream.device
    assert (error.ticket, error.skipped) == (2, 4)


@several_devices
def test_each_of_several_failures_has_its_own() -> None:
    streams = [accelrt.Stream(f"{KIND}:2", dedicated=True) for _ in range(3)]
    for place, stream in enumerate(streams):
        work(stream, place)
        fail(stream, 1)
        work(stream, place)
    error = raised(accelrt.StreamError, lambda: accelrt.accelerator.synchronize(f"{KIND}:2"))
    found = [(each.stream, each.ticket, each.skipped) for each in error.errors]
    expected = [(stream, place + 1, place) for place, stream in enumerate(streams)]
    assert sorted(found, key=lambda entry: entry[1] or 0) == expected
    assert all(each.errors == [each] for each in error.errors)
    assert (error.stream, error.ticket, error.skipped) == found[0]


def test_an_inherited_failure_has_the_place_where_it_came_in() -> None:
    first, second = (accelrt.Stream(dedicated=True) for _ in range(2))
    work(first, 4)
    fail(first, 1)
    event = first.record_event()
    work(first, 3)
    work(second, 1)
    second.wait_event(event)
    work(second, 2)
    error = raised(accelrt.StreamError, second.synchronize)
    assert (error.stream, error.ticket, error.skipped) == (second, 2, 2)
    origin = raised(accelrt.StreamError, first.synchronize)
    assert (origin.stream, origin.ticket, origin.skipped) == (first, 5, 3)


def test_the_stream_of_a_failure_is_none_when_it_is_gone() -> None:
    stream = accelrt.Stream(dedicated=True)
    fail(stream, 1)
    error = raised(accelrt.StreamError, stream.synchronize)
    stream_id = stream.stream_id
    error.__traceback__ = None  # its frames have the stream
    del stream
    gc.collect()
    while error.stream is not None:  # a worker may have it for a moment longer
        time.sleep(0)
    assert error.stream_id == stream_id


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_a_failure_keeps_where_it_was(way: str) -> None:
    stream = accelrt.Stream(dedicated=True)
    fail(stream, 1)
    error = raised(accelrt.StreamError, stream.synchronize)
    again = WAYS[way](error)
    assert isinstance(again, accelrt.StreamError)
    assert str(again) == str(error)
    assert (again.stream, again.ticket, again.skipped) == (stream, 1, 0)
    assert [str(each) for each in again.errors] == [str(error)]


@several_devices
@pytest.mark.parametrize("way", WAYS)
def test_copy_of_several_failures_keeps_errors(way: str) -> None:
    for _ in range(2):
        fail(accelrt.Stream(f"{KIND}:2", dedicated=True), 1)
    error = raised(accelrt.StreamError, lambda: accelrt.accelerator.synchronize(f"{KIND}:2"))
    again = WAYS[way](error)
    assert isinstance(again, accelrt.StreamError)
    found, expected = ([(str(it), it.stream_id) for it in each.errors] for each in (again, error))
    assert found == expected
    assert len(found) == 2


def test_in_another_process_a_failure_has_numbers_and_no_stream() -> None:
    stream = default_stream(0)  # every process has one
    fail(stream, 1)
    error = raised(accelrt.StreamError, stream.synchronize)
    code = (
        "import pickle, sys; error = pickle.load(sys.stdin.buffer); "
        "print(error.stream, error.stream_id, error.device, error.skipped)"
    )
    told = subprocess.run(  # noqa: S603  the interpreter of this test
        [sys.executable, "-c", code], input=pickle.dumps(error), capture_output=True, check=True
    )
    assert told.stdout.decode().split() == ["None", str(stream.stream_id), f"{KIND}:0", "0"]
