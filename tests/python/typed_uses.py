"""Uses that the documentation shows, with the types that a type checker gives them.

`test_typed_uses.py` checks this file for the oldest Python and for a newer one.
"""

import asyncio
from typing import assert_type

import numpy as np

import accelrt

buffer = accelrt.zeros(16)
view = buffer.view("float32", (2, 2))
data: bytes = bytes(buffer)
assert_type(memoryview(buffer), "memoryview[int]")
assert_type(memoryview(view), "memoryview[int]")
buffer.copy_(buffer).copy_(view).copy_(b"0123456789abcdef").copy_(np.zeros(4, np.float32))
array = np.asarray(buffer)
for dtype in ("<f4", np.float32, np.dtype("f4"), float):
    buffer.view(dtype)

stream, event = accelrt.Stream(priority=-9), accelrt.Event(enable_timing=True)
call = stream.launch_host(max, 3, 4)
assert_type(call.result(), int)
assert_type(stream.launch_host(sorted, [2, 1]).result(), list[int])
assert_type(stream.launch_host(print), accelrt.HostCall[None])


async def awaits() -> int:
    """Await everything that can be awaited."""
    await stream
    await event
    await asyncio.wait_for(stream, 1)
    await asyncio.gather(stream, event)
    assert_type(await asyncio.gather(call, stream), tuple[int, None])
    assert_type(await asyncio.wait_for(call, 1), int)
    return await call


with accelrt.profiler.profile() as run:
    pass
table: str = run.key_averages().table()
peak: int = accelrt.accelerator.memory_stats()["allocated_bytes.all.peak"]
with accelrt.memory_tag("weights"):
    pass


@accelrt.memory_tag("cache")
def tagged(number: int) -> str:
    """Return a text."""
    return str(number)


assert_type(tagged(3), str)
