"""A launch is a use of each buffer that it is given: what frees the buffer waits for it.

Method: the function reads from a pipe, and so is not done before the test writes; where the next
buffer is made says whether this one's memory is still in use. The launch is on another stream than
the buffer's own, which knows nothing of it.
"""

import ctypes
import os

import accelrt
from kinds import host_cores

pytestmark = host_cores

DEVICE = "cpu:2"
SIZE = 20 << 20  # a segment of its own


def next_address() -> int:
    return accelrt.empty(SIZE, device=DEVICE).data_ptr()


def test_a_buffer_that_is_dropped_is_freed_behind_the_launches_that_use_it() -> None:
    work = accelrt.Stream(DEVICE, dedicated=True)
    buffer = accelrt.empty(SIZE, device=DEVICE)
    address = buffer.data_ptr()
    read, write = os.pipe()
    work.launch(ctypes.CDLL(None).read, read, buffer, 1)
    del buffer
    assert next_address() != address, "it was freed in front of the launch"
    os.write(write, b"x")
    work.synchronize()
    other = accelrt.empty(SIZE, device=DEVICE)
    assert address in (other.data_ptr(), next_address())
    os.close(read)
    os.close(write)
