"""The texts of objects: each class's whole text; and of streams, events and buffers the state.

A state is done, pending or failed, at the moment of the call.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import accelrt
from accelrt import profiler, sanitizer, testing
from accelrt._verbose import VerboseLog
from accelrt.backends import mkl, mkldnn
from gates import NATIVE, Gate, fail
from kinds import KIND
from processes import output_of


@pytest.fixture
def work() -> Iterator[accelrt.Stream]:
    """Give a stream of the test's own, and end its error."""
    stream = accelrt.Stream(dedicated=True)
    yield stream
    try:
        stream.synchronize()
    except accelrt.StreamError:
        stream.synchronize()


def _state(thing: object) -> str:
    return repr(thing).rstrip(")").rpartition(", ")[2]


@pytest.mark.accelrt_unordered
def test_what_is_under_way_is_pending_and_then_done(work: accelrt.Stream) -> None:
    buffer = accelrt.zeros(8)
    buffer.stream.synchronize()
    gate = Gate(work)
    with work:
        buffer.fill_(1)
    event = work.record_event()
    assert [_state(thing) for thing in (work, event, buffer)] == ["pending"] * 3
    assert not event.query()  # nobody waited
    gate.open()
    work.synchronize()
    assert [_state(thing) for thing in (work, event, buffer)] == ["done"] * 3
    gate.close()


def test_what_failed_says_so_and_raises_nothing(work: accelrt.Stream) -> None:
    buffer = accelrt.zeros(8)
    buffer.stream.synchronize()
    fail(work, 3)
    with work:
        buffer.fill_(1)
    event = work.record_event()
    with pytest.raises(accelrt.StreamError):
        event.synchronize()
    assert [_state(thing) for thing in (work, event, buffer)] == ["failed"] * 3
    with pytest.raises(accelrt.StreamError, match="returned status 3"):
        work.synchronize()
    # The error ended; of the record it is part for ever.
    assert [_state(thing) for thing in (work, event, buffer)] == ["done", "failed", "done"]
    work.record_event(event)
    event.synchronize()
    assert _state(event) == "done"


def test_a_failed_stream_with_more_to_do_is_failed(work: accelrt.Stream) -> None:
    fail(work, 3)
    failed = work.record_event()
    with pytest.raises(accelrt.StreamError):
        failed.synchronize()
    work.launch_host(int)
    assert _state(work) == "failed"


def test_what_is_released_says_so() -> None:
    buffer = accelrt.zeros(8)
    part = buffer[:4]
    part.release()
    assert _state(buffer) == _state(part) == "released"


def test_what_was_never_used_is_done() -> None:
    assert _state(accelrt.Event()) == "done"
    assert _state(accelrt.Stream(dedicated=True)) == "done"
    assert _state(accelrt.empty(0)) == "done"


@pytest.mark.accelrt_unordered
def test_looking_from_many_threads_holds_nobody_up(work: accelrt.Stream) -> None:
    buffer, event = accelrt.zeros(64), accelrt.Event()
    seen: set[str] = set()

    def look() -> None:
        for _ in range(300):
            seen.update(_state(thing) for thing in (work, event, buffer))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        with work:
            buffer.fill_(number % 256)
        event.record(work)
    for thread in threads:
        thread.join()
    work.synchronize()
    assert seen <= {"done", "pending"}


@pytest.mark.skipif(not NATIVE or KIND != "cpu", reason="about the cpu device")
def test_after_the_end_and_in_a_child_they_still_show_themselves() -> None:
    code = """
        import os
        import accelrt
        from gates import Gate
        stream, event = accelrt.Stream(), accelrt.Event()
        buffer = accelrt.zeros(8)
        buffer.stream.synchronize()
        gate = Gate(stream)
        with stream:
            buffer.fill_(1)
        event.record(stream)
        if (child := os.fork()) == 0:
            print(repr(stream).rpartition(" ")[2], repr(event).rpartition(" ")[2], repr(buffer),
                  flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        gate.open()
        stream.synchronize()
        accelrt._core.shut_down()
        print(repr(stream).rpartition(" ")[2], repr(event).rpartition(" ")[2], repr(buffer))
    """
    shown = "accelrt.Buffer(nbytes=8, device='cpu:0', "
    child, ended = output_of(code).splitlines()
    assert child == f"pending pending {shown}of the parent process)"
    assert ended == f"done done {shown}done)"


# Pairs of an object and its whole text, which names all numbers in their places.
Shown = Iterator[tuple[object, str]]


def _runtime_objects() -> Shown:
    device = accelrt.device("cpu:2")
    yield device, "device(type='cpu', index=2)"
    yield accelrt.device("xpu"), "device(type='xpu')"
    properties = accelrt.cpu.get_device_properties(2)
    megabytes, cores = properties.total_memory >> 20, properties.core_count
    text = f"(name='{properties.name}', total_memory={megabytes}MB, core_count={cores})"
    yield properties, f"DeviceProperties{text}"
    stream = accelrt.Stream(device, dedicated=True)
    call = stream.launch_host(int)
    call.result()
    stream.synchronize()
    number = stream.stream_id
    text = f"accelrt.Stream device_type=cpu, device_index=2, stream_id={number}, done"
    yield stream, text
    yield call, f"accelrt.HostCall(device='cpu:2', stream_id={number}, done)"
    yield accelrt.Generator(device), "accelrt.Generator device=cpu:2"
    for is_timed in (False, True):
        event = stream.record_event(accelrt.Event(device, enable_timing=is_timed))
        event.synchronize()
        flags = f"event_flag={int(is_timed)}, event_id={event.event_id:#x}"
        yield event, f"accelrt.Event device_type=cpu, device_index=2, {flags}, done"
    unused = "accelrt.Event device_type=cpu, device_index=-1, event_flag=0, event_id=0, done"
    yield accelrt.cpu.Event(), unused


def _memory_objects() -> Shown:
    buffer = accelrt.empty(48, device="cpu:2")
    text = "accelrt.Buffer(nbytes=48, device='cpu:2', done)"
    yield buffer, text
    yield accelrt.reads(buffer), f"accelrt.reads({text})"
    yield accelrt.writes(buffer), f"accelrt.writes({text})"
    view = buffer.view("float32", (3, 4))
    text = "accelrt.View(dtype='float32', shape=(3, 4), device='cpu:2')"
    yield view, text
    yield accelrt.reads(view), f"accelrt.reads({text})"
    yield accelrt.writes(view), f"accelrt.writes({text})"
    yield accelrt.memory_tag("it's"), 'accelrt.memory_tag("it\'s")'
    report = accelrt.memory_report()
    total, rows = report.total_bytes, len(report.rows)
    assert total != rows
    yield report, f"<accelrt.MemoryReport of {total} bytes in {rows} rows>"
    row = report.rows[0]
    uses = ", ".join(f"{name}={value!r}" for name, value in zip(row._fields, row, strict=True))
    yield row, f"MemoryUse({uses})"


def _verbose_objects() -> Shown:
    for scope, level, library in (
        (accelrt.verbose(0), 0, "accelrt"),
        (accelrt.verbose(1), 1, "accelrt"),
        (mkl.verbose(mkl.VERBOSE_ON), 1, "mkl"),
        (mkldnn.verbose(mkldnn.VERBOSE_ON_CREATION), 2, "mkldnn"),
    ):
        yield scope, f"<verbose level {level} of {library}, open 0 times>"
    scope = accelrt.verbose(0)
    with scope, scope:
        yield scope, "<verbose level 0 of accelrt, open 2 times>"
    yield scope, "<verbose level 0 of accelrt, open 0 times>"
    yield VerboseLog(None), "<VerboseLog without a capture>"
    yield VerboseLog(["one", "two"]), "<VerboseLog of 2 lines>"


def _profiler_objects() -> Shown:
    one, two = (accelrt.Stream("cpu:2", dedicated=True) for _ in range(2))
    entered, goes_on = threading.Event(), threading.Event()
    outer, inner = profiler.record_function("outer"), profiler.record_function("inner")
    with profiler.profile() as recorded, outer, inner:
        one.launch_host(goes_on.wait)
        two.launch_host(entered.set)
        two.wait_event(one.record_event())
        two.launch_host(time.sleep, 0.005)
        entered.wait()
        time.sleep(0.02)  # the second stream waits for the first one meanwhile
        goes_on.set()
        two.synchronize()
    averages = {row.key: row for row in recorded.key_averages()}
    assert averages["outer"].total_ms >= averages["outer"].self_ms + 1
    for row in averages.values():
        times = f"self_ms={row.self_ms:.3f}, total_ms={row.total_ms:.3f}"
        yield row, f"KeyAverage({row.key}, count={row.count}, {times})"
    streams = {use.stream_id: use for use in recorded.streams()}
    for number, use in streams.items():
        times = f"busy_ms={use.busy_ms:.3f}, waited_ms={use.waited_ms:.3f}"
        count = f"num_tasks={use.num_tasks}"
        yield use, f"StreamUse(cpu:2 stream {number}, {count}, {times})"
    for device in recorded.devices():
        times = f"busy_ms={device.busy_ms:.3f}, stream_ms={device.stream_ms:.3f}"
        overlap = f"overlap_percent={device.overlap_percent:.1f}"
        yield device, f"DeviceUse(cpu:2, {times}, {overlap})"
    for wait in recorded.longest_waits():
        awaited = f"{wait.awaited or '?'} on stream {wait.stream_id}"
        yield wait, f"LongWait({wait.waiter} waited {wait.ms:.3f} ms for {awaited})"


WITH_ALL = (mkl, mkldnn, profiler, sanitizer, testing)
GROUPS = [_runtime_objects, _memory_objects, _verbose_objects, _profiler_objects]


@pytest.mark.parametrize("objects", GROUPS)
@pytest.mark.accelrt_unordered
def test_whole_texts(objects: Callable[[], Shown]) -> None:
    for thing, text in objects():
        assert repr(thing) == text


def test_every_public_class_is_covered() -> None:
    covered = {type(thing) for objects in GROUPS for thing, _ in objects()}
    # test_program.py compares the texts of programs and kernels, which need an xpu device.
    covered |= {accelrt.xpu.Program, accelrt.xpu.Kernel}
    public: set[object] = set()
    for module in (accelrt, accelrt.accelerator, accelrt.cpu, accelrt.xpu, *WITH_ALL):
        names = getattr(module, "__all__", None) or dir(module)
        public |= {getattr(module, name) for name in names if not name.startswith("_")}
    generated: list[object] = [object.__repr__, list.__repr__, BaseException.__repr__]
    uncovered = [
        it.__name__
        for it in public - covered
        if isinstance(it, type)
        and it.__module__.partition(".")[0] == "accelrt"
        and not dataclasses.is_dataclass(it)
        and it.__repr__ not in generated
    ]
    assert uncovered == []
