"""A launch is a use of each buffer that it is given: what frees the buffer waits for it.

Method: the function reads from a pipe, and so is not done before the test writes; the device's free
memory says whether the buffer is still there. The launch is on another stream than the buffer's
own, which knows nothing of it.
"""

import ctypes
import os

import accelrt
from accelrt import accelerator
from kinds import host_cores

pytestmark = host_cores

DEVICE = "cpu:2"


def free_bytes() -> int:
    return accelerator.get_memory_info(DEVICE)[0]


def test_a_buffer_that_is_dropped_is_freed_behind_the_launches_that_use_it() -> None:
    work = accelrt.Stream(DEVICE, dedicated=True)
    before = free_bytes()
    buffer = accelrt.empty(1 << 20, device=DEVICE)
    with_buffer = free_bytes()
    assert with_buffer < before
    read, write = os.pipe()
    work.launch(ctypes.CDLL(None).read, read, buffer, 1)
    del buffer
    assert free_bytes() == with_buffer, "it was freed in front of the launch"
    os.write(write, b"x")
    work.synchronize()
    assert free_bytes() == before
    os.close(read)
    os.close(write)
