"""What child processes do: `multiprocessing` imports it by name. Each answers with text."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import accelrt


def outcome(call: Callable[[], object]) -> str:
    """Return what a call returned, or the type and text of what it raised."""
    try:
        return repr(call())
    except Exception as error:  # noqa: BLE001  what is raised is the answer
        return f"{type(error).__name__}: {error}"


def in_task(call: Callable[[], object]) -> object:
    """Call in an asyncio task; a call that raises must leave the task's device as it was."""

    async def main() -> object:
        before = accelrt.accelerator.current_device_index()
        try:
            return call()
        finally:
            assert accelrt.accelerator.current_device_index() == before

    return asyncio.run(main())


def work() -> str:
    """Use streams and events of two devices."""
    with accelrt.Stream("cpu:0") as first:
        event = first.record_event()
    second = accelrt.Stream("cpu:1")
    second.wait_event(event)
    second.synchronize()
    return f"done: {event.query()} {second.query()}"


def use() -> str:
    """Try to work."""
    return outcome(accelrt.Stream)


def leave_queued(path: str, count: int) -> None:
    """Return while callables are queued, which wait until multiprocessing ends this process."""
    from multiprocessing.util import Finalize  # noqa: PLC0415  not imported for the other tests

    has_begun, seen = threading.Event(), list[int]()
    Finalize(None, has_begun.set, exitpriority=0)
    stream = accelrt.Stream("cpu:0")
    stream.launch_host(has_begun.wait)
    for number in range(count):
        stream.launch_host(seen.append, number)
    stream.launch_host(lambda: Path(path).write_text(str(len(seen)), "ascii"))


def ask() -> dict[str, str]:
    """Ask everything that an answer needs no thread for."""
    return {
        "is_available": outcome(accelrt.accelerator.is_available),
        "device_count": outcome(accelrt.accelerator.device_count),
        "current_accelerator": outcome(accelrt.accelerator.current_accelerator),
        "current_device_index": outcome(accelrt.accelerator.current_device_index),
        "is_initialized": outcome(accelrt.cpu.is_initialized),
        "cpu.is_available": outcome(accelrt.cpu.is_available),
        "cpu.device_count": outcome(accelrt.cpu.device_count),
        "cpu.current_device": outcome(accelrt.cpu.current_device),
    }
