"""What holds on every kind of device: collected by `pytest --accelrt-kind KIND`.

Contents are seen through copies to host memory, so that nothing here needs memory that the host
can read. No test waits on a clock.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

import accelrt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SIZES = (1, 7, 63, 64, 65, 4096, 1_000_003)


@pytest.fixture(autouse=True)
def _first_device(accelrt_kind: ModuleType) -> Iterator[None]:
    """Start on device 0 with its default stream."""
    accelrt_kind.set_stream(accelrt_kind.default_stream(0))
    yield
    accelrt_kind.synchronize()


@pytest.fixture(name="kind")
def _name(accelrt_kind: ModuleType) -> str:
    stream: accelrt.Stream = accelrt_kind.current_stream()
    return stream.device.type


@pytest.fixture(params=["first", "last"], name="device")
def _device(request: pytest.FixtureRequest, accelrt_kind: ModuleType) -> accelrt.device:
    index = 0 if request.param == "first" else accelrt_kind.device_count() - 1
    return accelrt.device(accelrt_kind.default_stream(index).device.type, index)


def content(buffer: accelrt.Buffer) -> bytes:
    """Return the bytes of a buffer."""
    target = bytearray(buffer.nbytes)
    buffer.copy_to(target)
    return bytes(target)


def assert_holds(buffer: accelrt.Buffer, expected: bytes) -> None:
    """Fail with the first byte that differs: pytest's own comparison takes minutes for a MiB."""
    found = content(buffer)
    if found != expected:
        pairs = enumerate(zip(found, expected, strict=True))
        place, (byte, wanted) = next(it for it in pairs if it[1][0] != it[1][1])
        pytest.fail(f"byte {place} of {len(found)} is {byte}, not {wanted}")


def pattern(size: int, salt: int) -> bytes:
    """Return bytes that tell where they belong."""
    return random.Random(salt).randbytes(size)  # noqa: S311  a pattern, no secret


def test_the_kind_has_devices_with_names_and_memory(accelrt_kind: ModuleType, kind: str) -> None:
    assert accelrt_kind.is_available()
    assert accelrt.accelerator.current_accelerator() == accelrt.device(kind)
    assert accelrt.get_device_module(kind) is accelrt_kind
    for index in range(accelrt_kind.device_count()):
        properties = accelrt_kind.get_device_properties(index)
        assert properties.name.strip()
        free, total = accelrt_kind.mem_get_info(index)
        assert 0 < free <= total == properties.total_memory
        assert str(accelrt.device(kind, index)) == f"{kind}:{index}"


def test_a_device_that_is_not_there_is_an_error_that_names_it(
    accelrt_kind: ModuleType, kind: str
) -> None:
    missing = accelrt_kind.device_count()
    with pytest.raises(RuntimeError, match=f"{kind}:{missing}"):
        accelrt.empty(1, device=f"{kind}:{missing}")


@pytest.mark.parametrize("size", SIZES)
def test_bytes_survive_the_way_through_a_device(device: accelrt.device, size: int) -> None:
    sent = pattern(size, 1)
    first, second = accelrt.empty(size, device=device), accelrt.empty(size, device=device)
    second.copy_(first.copy_(sent, non_blocking=True))
    assert_holds(second, sent)


def test_bytes_go_from_each_device_to_the_next(accelrt_kind: ModuleType, kind: str) -> None:
    sent = pattern(100_000, 2)
    last: accelrt.Buffer | bytes = sent
    for index in range(accelrt_kind.device_count()):
        last = accelrt.empty(len(sent), device=f"{kind}:{index}").copy_(last)
    assert isinstance(last, accelrt.Buffer)
    assert_holds(last, sent)


def test_parts_are_copied_and_filled_and_nothing_beside_them(device: accelrt.device) -> None:
    model = bytearray(pattern(4096, 3))
    buffer = accelrt.empty(4096, device=device).copy_(bytes(model))
    for start, stop, byte in ((0, 1, 1), (1, 64, 2), (100, 4000, 3), (4095, 4096, 255)):
        buffer[start:stop].fill_(byte)
        model[start:stop] = bytes([byte]) * (stop - start)
        part = pattern(stop - start, byte)
        buffer[start // 2 : start // 2 + len(part)].copy_(part)
        model[start // 2 : start // 2 + len(part)] = part
    assert_holds(buffer, bytes(model))


def test_tasks_of_one_stream_run_in_order(device: accelrt.device) -> None:
    stream = accelrt.Stream(device)
    with stream:
        buffer = accelrt.empty(1 << 20, device=device)
        for byte in range(100):
            buffer.fill_(byte)
    stream.synchronize()
    assert stream.query()
    assert_holds(buffer, bytes([99]) * (1 << 20))


def test_an_event_hands_memory_from_stream_to_stream(device: accelrt.device) -> None:
    first, second = accelrt.Stream(device), accelrt.Stream(device)
    places = [accelrt.zeros(1 << 20, device=device) for _ in range(2)]
    accelrt.get_device_module(device).synchronize(device)
    for turn in range(1, 20):
        writes, follows = (first, second) if turn % 2 else (second, first)
        with writes:
            places[turn % 2].fill_(turn)
        follows.wait_event(writes.record_event())
        with follows:
            places[(turn + 1) % 2].copy_(places[turn % 2], non_blocking=True)
        writes.wait_stream(follows)
    for stream in (first, second):
        stream.synchronize()
    for place in places:
        assert_holds(place, bytes([19]) * (1 << 20))


def test_events_are_done_when_they_are_reached_and_tell_the_time(device: accelrt.device) -> None:
    assert accelrt.Event(device).query()  # never recorded
    stream = accelrt.Stream(device)
    start, end = (accelrt.Event(device, enable_timing=True) for _ in range(2))
    start.record(stream)
    with stream:
        accelrt.empty(1 << 22, device=device).fill_(1)
    end.record(stream)
    end.synchronize()
    assert start.query()
    assert end.query()
    assert start.elapsed_time(end) >= 0


def test_streams_have_the_priorities_of_their_range(device: accelrt.device) -> None:
    least, greatest = accelrt.Stream.priority_range()
    assert greatest <= 0 <= least
    for priority in range(greatest, least + 1):
        stream = accelrt.Stream(device, priority=priority)
        stream.record_event().synchronize()


def test_a_callable_runs_in_stream_order(device: accelrt.device) -> None:
    stream, seen = accelrt.Stream(device), list[int]()
    with stream:
        for number in range(50):
            stream.launch_host(seen.append, number)
    stream.synchronize()
    assert seen == list(range(50))


def test_a_failure_is_raised_once_and_what_comes_later_runs(device: accelrt.device) -> None:
    def fail() -> None:
        message = "on purpose"
        raise LookupError(message)

    stream, seen = accelrt.Stream(device), list[int]()
    stream.launch_host(fail)
    stream.launch_host(seen.append, 1)  # skipped
    event = stream.record_event()
    with pytest.raises(accelrt.StreamError) as raised:
        stream.synchronize()
    assert isinstance(raised.value.__cause__, LookupError)
    assert event.query()
    with pytest.raises(accelrt.StreamError):
        event.synchronize()
    stream.launch_host(seen.append, 2)
    stream.synchronize()
    assert seen == [2]


def test_statistics_follow_what_is_allocated(device: accelrt.device) -> None:
    module = accelrt.get_device_module(device)

    def allocated() -> int:
        count = module.memory_stats(device)["allocated_bytes.all.current"]
        assert isinstance(count, int)
        return count

    before, size = allocated(), 3 << 20
    buffer = accelrt.empty(size, device=device)
    assert allocated() - before >= size
    assert module.memory_reserved(device) >= allocated()
    snapshot = module.memory_snapshot()
    of_device = [it for it in snapshot if it["device"] == device.index]
    assert sum(it["allocated_size"] for it in of_device) >= size
    buffer.release()
    module.synchronize(device)
    assert allocated() == before
    module.empty_cache()
    assert module.mem_get_info(device)[0] <= module.get_device_properties(device).total_memory


def test_too_much_memory_is_refused_with_numbers_and_changes_nothing(
    device: accelrt.device,
) -> None:
    module = accelrt.get_device_module(device)
    total = module.get_device_properties(device).total_memory
    before = module.memory_allocated(device)
    with pytest.raises(accelrt.OutOfMemoryError) as raised:
        accelrt.empty(2 * total, device=device)
    assert vars(raised.value)["requested_bytes"] >= 2 * total
    assert module.memory_allocated(device) == before
    assert content(accelrt.zeros(64, device=device)) == bytes(64)


def test_memory_that_a_stream_still_uses_is_given_to_no_other(device: accelrt.device) -> None:
    home, other = accelrt.Stream(device), accelrt.Stream(device)
    for byte in range(20):
        with home:
            buffer = accelrt.empty(1 << 20, device=device).fill_(byte)
        other.wait_stream(home)
        with other:
            copied = accelrt.empty(1 << 20, device=device).copy_(buffer, non_blocking=True)
        buffer.record_stream(other)
        del buffer
        with home:  # may be the same memory
            accelrt.empty(1 << 20, device=device).fill_(255)
        other.synchronize()
        assert_holds(copied, bytes([byte]) * (1 << 20))
    home.synchronize()


def test_random_numbers_repeat_and_are_the_same_bits_on_every_kind(device: accelrt.device) -> None:
    def numbers(where: accelrt.device) -> bytes:
        buffer = accelrt.empty(4096, device=where)
        accelrt.Generator(where).manual_seed(7).fill_uniform_(buffer, "float32")
        return content(buffer)

    assert numbers(device) == numbers(device) == numbers(accelrt.device("cpu"))
    one, other = (accelrt.Generator(device).manual_seed(3) for _ in range(2))
    assert one.random_raw(10) == other.random_raw(10)


def test_what_is_current_belongs_to_its_thread(device: accelrt.device) -> None:
    module, found = accelrt.get_device_module(device), list[accelrt.Stream]()
    stream = accelrt.Stream(device)
    with stream:
        assert module.current_stream(device) == stream
        thread = threading.Thread(target=lambda: found.append(module.current_stream(device)))
        thread.start()
        thread.join()
    assert found == [module.default_stream(device)]
    assert module.current_stream(device) == module.default_stream(device)


def test_a_wait_with_a_limit_ends_at_it_and_the_work_goes_on(device: accelrt.device) -> None:
    stream, go_on = accelrt.Stream(device), threading.Event()
    waits = stream.launch_host(go_on.wait)
    try:
        with pytest.raises(TimeoutError):
            stream.synchronize(timeout=0.01)
    finally:
        go_on.set()  # else a kind that fails here would hang
    assert waits.result()
    stream.synchronize()


def test_a_view_is_offered_by_dlpack_on_its_device(device: accelrt.device) -> None:
    view = accelrt.zeros(64, device=device).view("float32")
    code, index = view.__dlpack_device__()
    again = accelrt.from_dlpack(view)
    assert (again.device.type, again.nbytes) == (device.type, 64)
    assert code == 1 or index == device.index


def test_a_profile_names_what_ran(device: accelrt.device) -> None:
    from accelrt import profiler  # noqa: PLC0415  at its first use, as a program does

    stream = accelrt.Stream(device)
    with profiler.profile() as profile, stream:
        accelrt.empty(4096, device=device).fill_(1)
        stream.synchronize()
    assert "fill" in profile.key_averages().table()
