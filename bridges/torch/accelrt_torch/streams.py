"""`torch.accelrt.streams`: which stream is current, as torch's modules have it."""

import torch
from torch import Event, Stream

from accelrt_torch._argument import DeviceArgument, index_of

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
    "synchronize",
]


def current_stream(device: DeviceArgument = None) -> torch.Stream:
    """Return the stream that is current for the thread on a device."""
    return torch.accelerator.current_stream(index_of(device))


def default_stream(device: DeviceArgument = None) -> torch.Stream:
    """Return the stream that is current on a device until the program sets another one."""
    privateuse1 = torch.accelerator.current_stream(index_of(device)).device_type
    return Stream(stream_id=0, device_index=index_of(device), device_type=privateuse1)


def synchronize(device: DeviceArgument = None) -> None:
    """Wait for all streams of a device, without the GIL; a failed one's error is raised."""
    torch.accelerator.synchronize(index_of(device))


class StreamContext:
    """Makes a stream and its device current inside of a `with` statement; none changes nothing.

    Entered again inside, it does so again, which `torch.Stream` itself does not do while another
    device is current.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        """Take the stream."""
        if stream is not None and not isinstance(stream, Stream):
            message = f"stream must be a torch.Stream or None, not {type(stream).__name__}"
            raise TypeError(message)
        self.stream = stream
        # What was current at each entry: in the thread, and on the stream's device.
        self._previous: list[tuple[torch.Stream, torch.Stream]] = []

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            there = current_stream(self.stream.device)
            self._previous.append((current_stream(), there))
            torch.accelerator.set_stream(self.stream)
        return self.stream

    def __exit__(self, *_exception: object) -> None:
        if self.stream is not None:
            before, there = self._previous.pop()
            torch.accelerator.set_stream(there)
            torch.accelerator.set_stream(before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context in which a stream is current."""
    return StreamContext(stream)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream current for the thread; none changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)
