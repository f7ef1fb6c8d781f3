"""What child processes do: `multiprocessing` imports it by name. Each answers with text."""

from collections.abc import Callable

import accelrt


def outcome(call: Callable[[], object]) -> str:
    """Return what a call returned, or the type and text of what it raised."""
    try:
        return repr(call())
    except Exception as error:  # noqa: BLE001  what is raised is the answer
        return f"{type(error).__name__}: {error}"


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
