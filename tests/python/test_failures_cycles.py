"""Goal: a handled exception keeps nothing alive, although no garbage collection runs.

Method: a frame that an exception passes holds a value. After the handler the value must be freed,
with the garbage collector off: a full device runs no collection, and frames hold its buffers.
"""

import asyncio
import copy
import gc
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import accelrt
from accelrt import accelerator
from gates import fail, refuse
from kinds import KIND, host_cores, module
from loops import Awaitable

Receiver = Callable[[accelrt.Stream], object]


class Held:
    """A value that a frame holds."""


@pytest.fixture(autouse=True)
def _without_collections() -> Iterator[None]:
    accelerator.synchronize()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def raised_in_task(stream: accelrt.Stream) -> accelrt.HostCall[object]:
    """Return the handle of a callable that raises on a stream without a failure."""
    with pytest.raises(accelrt.StreamError):
        stream.synchronize()
    return stream.launch_host(refuse, 1)


def raised_by_several(stream: accelrt.Stream) -> None:
    other = accelrt.Stream(stream.device, dedicated=True)
    fail(other, 2)
    accelerator.synchronize(stream.device)


def raised_through_handle(stream: accelrt.Stream) -> None:
    call = raised_in_task(stream)
    try:
        stream.synchronize()
    finally:
        assert call.exception() is not None


def raised_by_deleted_handle(stream: accelrt.Stream) -> None:
    call = raised_in_task(stream)
    try:
        call.result()
    finally:
        del call


def raised_from_exception(stream: accelrt.Stream) -> None:
    raise raised_in_task(stream).exception() or AssertionError


def raised_while_handled(stream: accelrt.Stream) -> None:
    try:
        stream.record_event().synchronize()
    except accelrt.StreamError:
        stream.synchronize()


def raised_after_errors(stream: accelrt.Stream) -> None:
    try:
        raised_by_several(stream)
    except accelrt.StreamError as error:
        error.add_note(f"{error.errors}, {error.errors[0].errors}")
        raise


def transferred(stream: accelrt.Stream, *, to_device: bool) -> None:
    buffer = accelrt.empty(8, device=stream.device)
    with stream:
        if to_device:
            buffer.copy_(bytes(8))
        else:
            buffer.copy_to(bytearray(8))


def accessed(stream: accelrt.Stream, use: Callable[[accelrt.Buffer], object]) -> None:
    buffer = accelrt.zeros(8, device=stream.device)
    buffer.stream.synchronize()
    with stream:
        buffer.fill_(1)  # skipped
    use(buffer)


RECEIVERS: dict[str, Receiver] = {
    "stream": lambda stream: stream.synchronize(),
    "stream with a limit": lambda stream: stream.synchronize(timeout=60),
    "device": lambda _: accelerator.synchronize(0),
    "device of a module": lambda _: module.synchronize(0),
    "several streams": raised_by_several,
    "errors of several": raised_after_errors,
    "event": lambda stream: stream.record_event().synchronize(),
    "elapsed time": lambda stream: timed(stream).elapsed_time(timed(stream)),
    "result of a skipped callable": lambda stream: stream.launch_host(int).result(),
    "result": lambda stream: raised_in_task(stream).result(),
    "result of a handle in a variable": raised_by_deleted_handle,
    "exception": raised_from_exception,
    "stream while the handle exists": raised_through_handle,
    "second failure": raised_while_handled,
    "copy to the device": lambda stream: transferred(stream, to_device=True),
    "copy to the host": lambda stream: transferred(stream, to_device=False),
    "memory": lambda stream: accelrt.empty(1 << 59, device=stream.device),
    "argument": lambda stream: accelrt.empty(8, device=stream.device).copy_(bytes(9)),
    "foreign memory": lambda stream: accelrt.empty(8, device=stream.device).copy_to(bytes(8)),
    "callable": lambda stream: stream.launch_host(1),  # type: ignore[arg-type]
}
AWAITED: dict[str, Callable[[accelrt.Stream], Awaitable]] = {
    "stream": lambda stream: stream,
    "event": lambda stream: stream.record_event(),
    "callable": raised_in_task,
    "skipped callable": lambda stream: stream.launch_host(int),
}
HOST_USES: dict[str, Callable[[accelrt.Buffer], object]] = {
    "bytes": bytes,
    "memoryview": memoryview,
    "array interface": lambda buffer: buffer.view("int16").__array_interface__,
    "DLPack": lambda buffer: buffer.view("int16").__dlpack__(),
}


def failed_stream() -> accelrt.Stream:
    stream = accelrt.Stream(f"{KIND}:0", dedicated=True)
    fail(stream, 1)
    return stream


def timed(stream: accelrt.Stream) -> accelrt.Event:
    event = accelrt.Event(enable_timing=True)
    event.record(stream)
    return event


def assert_freed(receive: Receiver) -> None:
    """Handle the exception of a receiver, and check that its frames are freed."""
    alive: list[weakref.ref[Held]] = []

    def request(stream: accelrt.Stream) -> None:
        held = Held()
        alive.append(weakref.ref(held))
        receive(stream)

    stream = failed_stream()
    error: Exception | None = None
    try:
        request(stream)
    except Exception as raised:  # noqa: BLE001  of any type
        error = raised
    assert error is not None
    assert alive[0]() is not None
    error = None
    assert alive[0]() is None
    with suppress(accelrt.StreamError):
        stream.synchronize()


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_handled_error_frees_frames(receiver: str) -> None:
    assert_freed(RECEIVERS[receiver])


@pytest.mark.parametrize("awaited", AWAITED)
def test_awaited_error_frees_frames(awaited: str) -> None:
    alive: list[weakref.ref[Held]] = []

    async def request(stream: accelrt.Stream) -> None:
        held = Held()
        alive.append(weakref.ref(held))
        await AWAITED[awaited](stream)

    async def main() -> None:
        stream = failed_stream()
        with suppress(accelrt.StreamError, ArithmeticError):
            await request(stream)
        assert alive[0]() is None
        with suppress(accelrt.StreamError):
            stream.synchronize()

    asyncio.run(main())


@host_cores
@pytest.mark.parametrize("use", HOST_USES)
@pytest.mark.accelrt_unordered
def test_handled_error_of_host_access_frees_frames(use: str) -> None:
    assert_freed(lambda stream: accessed(stream, HOST_USES[use]))


@pytest.mark.parametrize("way", ["copy", "deepcopy", "pickle"])
def test_copied_error_frees_frames(way: str) -> None:
    if way == "deepcopy" and "distributed" in sys.modules:
        pytest.skip("distributed makes `deepcopy` copy tracebacks, in a cycle")
    ways: dict[str, Callable[[accelrt.StreamError], accelrt.StreamError]] = {
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle": lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301  its own
    }

    def copied(stream: accelrt.Stream) -> accelrt.StreamError:
        try:
            raised_by_several(stream)
        except accelrt.StreamError as error:
            return ways[way](error.with_traceback(None))
        raise AssertionError

    def receive(stream: accelrt.Stream) -> None:
        raise copied(stream)

    assert_freed(receive)
