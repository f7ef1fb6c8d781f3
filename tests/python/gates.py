"""A native task that ends when a test says so, to keep a stream busy for as long as it needs."""

import ctypes
import os

import accelrt

libc = ctypes.CDLL(None)


class Gate:
    """A task that ends when the test says so: a read from a pipe."""

    def __init__(self, work: accelrt.Stream) -> None:
        """Enqueue the task."""
        self.read, self.write = os.pipe()
        self.byte = ctypes.create_string_buffer(1)
        work.launch(libc.read, self.read, self.byte, 1)

    def open(self) -> None:
        """Let the task end."""
        os.write(self.write, b"x")

    def close(self) -> None:
        """Give the pipe back; the task has ended or was skipped."""
        os.close(self.read)
        os.close(self.write)
