"""A request fails although enough memory is free: what happened, and which setting helps.

The program takes 18 buffers of 3 MiB, frees every other one, and asks for 20 MiB of a device that
has 64. Under PyTorch's decisions (`policy:torch`) that fails: the free bytes are in nine holes
between what is in use. The error's numbers say so, the statistics how much it is, and the snapshot
where. Under this runtime's own policy the same requests succeed, since memory of free blocks moves
to where it is missing.

    python examples/memory_diagnosis.py
"""

import os

os.environ["ACCELRT_CPU_MEMORY"] = "64MiB"  # before the first use, which reads it
os.environ["ACCELRT_ACCELERATOR"] = "cpu"

import accelrt
from accelrt import accelerator

MIB = 1 << 20


def take_and_free_every_other() -> list[accelrt.Buffer]:
    """Leave holes; return what stays in use."""
    buffers = [accelrt.empty(3 * MIB) for _ in range(18)]
    return buffers[::2]  # the others are freed where they are dropped: here


def show_numbers() -> None:
    """Print what an engineer looks at first."""
    stats = accelerator.memory_stats()
    in_use, reserved = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
    stuck = stats["inactive_split_bytes.all.current"]
    print(f"  {in_use / MIB:.0f} MiB in use, {reserved / MIB:.0f} MiB taken from the device")
    print(f"  {stuck / MIB:.0f} MiB are free beside what is in use, and cannot go back")


def show_map() -> None:
    """Print each segment of the snapshot as a line: a letter is one MiB, `#` in use, `.` free."""
    for segment in accelerator.memory_snapshot():
        line = ""
        for block in segment["blocks"]:
            sign = "#" if block["state"] == "active_allocated" else "."
            line += sign * (block["size"] // MIB)
        print(f"  |{line}|")


def request() -> accelrt.OutOfMemoryError | None:
    """Ask for 20 MiB; return the error where that fails."""
    try:
        accelrt.empty(20 * MIB).release()
    except accelrt.OutOfMemoryError as error:
        return error.with_traceback(None)  # whose frames would keep the buffers of their callers
    return None


def under_torchs_decisions() -> None:
    """See the failure, and read it."""
    accelerator.set_allocator_settings("policy:torch")
    failures = []
    with accelerator.register_oom_observer(lambda *numbers: failures.append(numbers)):
        kept = take_and_free_every_other()
        error = request()
    assert error is not None, "the holes are too small"
    assert error.reserved_bytes is not None
    assert error.allocated_bytes is not None
    assert error.largest_bytes is not None
    free_bytes = error.reserved_bytes - error.allocated_bytes
    print(f"policy:torch: {error}")
    show_numbers()
    show_map()
    # Fragmentation: more is free than was asked for, and no piece of it is large enough.
    assert free_bytes > 20 * MIB > error.largest_bytes
    assert len(kept) == 9
    # A program may be told of each failure, for its log.
    ((device, requested_bytes, _limit, _free),) = failures
    assert (device, requested_bytes) == (accelrt.device("cpu:0"), 20 * MIB)


def under_our_own() -> None:
    """See the same requests succeed."""
    accelerator.empty_cache()  # what is free goes back to the device
    accelerator.set_allocator_settings("policy:native")
    accelerator.reset_peak_memory_stats()
    kept = take_and_free_every_other()
    assert request() is None, "memory moves to where it is missing"
    print("policy:native: the request succeeded")
    show_numbers()
    assert accelerator.memory_stats()["num_pages_stolen"] > 0
    assert accelerator.max_memory_reserved() <= 64 * MIB
    assert len(kept) == 9
    print(accelerator.memory_summary(abbreviated=True))


if __name__ == "__main__":
    under_torchs_decisions()
    under_our_own()
    print("checked")
