"""Tasks of every kind: one that ends when a test says so, one that writes, one that fails."""

import ctypes
import os
import threading

import accelrt
from kinds import KIND

libc = ctypes.CDLL(None)
# Whether native functions are tasks; elsewhere callables are.
NATIVE = KIND == "cpu"


class Gate:
    """A task that ends when the test says so: a read from a pipe, else a callable that waits."""

    def __init__(self, work: accelrt.Stream) -> None:
        """Enqueue the task."""
        self.read, self.write = os.pipe()
        self.byte = ctypes.create_string_buffer(1)
        self.is_open = threading.Event()
        if NATIVE:
            work.launch(libc.read, self.read, self.byte, 1)
        else:
            work.launch_host(self.is_open.wait)

    def open(self) -> None:
        """Let the task end."""
        self.is_open.set()
        if NATIVE:  # the other task has ended by now, and the pipe may be closed
            os.write(self.write, b"x")

    def close(self) -> None:
        """Give the pipe back; the task has ended or was skipped."""
        os.close(self.read)
        os.close(self.write)


def write(work: accelrt.Stream, text: ctypes.Array[ctypes.c_char], byte: int, count: int) -> None:
    """Enqueue a task that writes to memory of the host."""
    if NATIVE:
        work.launch(libc.memset, text, byte, count)
    else:
        work.launch_host(ctypes.memset, text, byte, count)


def fail(work: accelrt.Stream, status: int) -> None:
    """Enqueue a task that fails; the text of the failure ends with the status."""
    if NATIVE:
        work.launch(libc.abs, status, check=True)
    else:
        work.launch_host(refuse, status)


def refuse(status: int) -> None:
    """Fail, as a callable."""
    message = f"returned status {status}"
    raise ArithmeticError(message)
