"""What a failing task does: where its error is raised, what is skipped, how its stream goes on.

Enqueueing never raises for a task that fails later. A failure opens an error on its stream, whose
later tasks are skipped, and on streams that wait for one of its events. A call that raises the
error ends it, with its cause: a synchronise, the handle of a callable, a read of the buffer. Tasks
that are enqueued after that run again. Events only observe.

    python examples/errors.py
"""

import ctypes
from collections.abc import Callable

import accelrt


def raised_by(wait: Callable[[], object]) -> accelrt.StreamError:
    """Return the error that a wait raises; it has to raise one."""
    try:
        wait()
    except accelrt.StreamError as error:
        return error
    message = f"{wait} raised nothing"
    raise AssertionError(message)


def a_callable_that_raises() -> None:
    """See that the exception of a callable is the cause of what `synchronize` raises."""
    stream = accelrt.Stream()
    seen: list[int] = []

    def divide(a: int, b: int) -> None:
        seen.append(a // b)

    stream.launch_host(divide, 6, 3)
    stream.launch_host(divide, 1, 0)  # fails when the stream comes to it, not here
    stream.launch_host(divide, 8, 2)  # skipped
    error = raised_by(stream.synchronize)
    print(f"1. {error}")
    assert isinstance(error.__cause__, ZeroDivisionError)
    # The stream keeps no frames, which would keep variables alive: the traceback is a note.
    assert "in divide" in error.__cause__.__notes__[0]
    assert (error.stream, error.skipped) == (stream, 1)
    assert seen == [2]

    stream.launch_host(divide, 8, 2)  # the error ended with the synchronise that raised it
    stream.synchronize()
    assert seen == [2, 4]


def a_native_function_with_a_status() -> None:
    """See that a status other than 0 fails the stream where `check=True` asks for it."""
    stream, libc = accelrt.Stream(), ctypes.CDLL(None)
    stream.launch(libc.rmdir, b"/no/such/folder")
    stream.synchronize()  # its status was not asked for
    stream.launch(libc.rmdir, b"/no/such/folder", check=True)
    error = raised_by(stream.synchronize)
    print(f"2. {error}")
    assert "rmdir" in str(error)


def an_event_passes_it_on() -> None:
    """See that streams which wait for an event behind the failure have it too, and no others."""
    failing, waiting, beside = (accelrt.Stream() for _ in range(3))
    seen: list[str] = []
    failing.launch_host(int, "no number")
    event = failing.record_event()
    waiting.wait_event(event)
    waiting.launch_host(seen.append, "behind the event")  # skipped
    beside.launch_host(seen.append, "beside it")
    beside.synchronize()
    errors = [raised_by(it.synchronize) for it in (event, waiting, failing)]
    print(f"3. {len(errors)} waits raised: {errors[1]}")
    assert all(isinstance(error.__cause__, ValueError) for error in errors)
    assert seen == ["beside it"]

    assert event.query()  # done, although failed: no wait for it is for ever
    failing.record_event(event)  # a new record is about what runs from here on
    event.synchronize()


def memory_that_was_not_written() -> None:
    """See that bytes which a skipped task should have written are not handed out."""
    stream = accelrt.Stream()
    with stream:
        buffer = accelrt.zeros(4)
        stream.launch_host(int, "no number")
        buffer.fill_(7)  # skipped
    error = raised_by(lambda: bytes(buffer))
    print(f"4. {error}")
    # The read has received the error, which ends it for later tasks. The bytes stay refused until a
    # task writes them or a synchronise says that the program knows.
    accelrt.accelerator.synchronize()
    assert bytes(buffer) == bytes(4)  # what was there before the fill


if __name__ == "__main__":
    a_callable_that_raises()
    a_native_function_with_a_status()
    an_event_passes_it_on()
    memory_that_was_not_written()
    print("checked")
