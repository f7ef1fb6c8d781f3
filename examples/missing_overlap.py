"""A pipeline whose stages should overlap, and one wait too many that keeps them from it.

Three streams read, compute and write chunks through a ring of slots: a stage waits for the one
before it, and reading for the write that last had the slot. With `--waits-for-every-write` reading
waits for the write of the chunk before instead, as if the ring had one slot: the result is the
same, and the stages take turns. Nothing in the program says so, but a profile does:

    python examples/missing_overlap.py
    ACCELRT_PROFILE=wait.json python examples/missing_overlap.py --waits-for-every-write
    python -m accelrt view wait.json --open
"""

import argparse
import ctypes
from collections import defaultdict, deque

import accelrt
from accelrt import profiler

CHUNKS = 12
SLOTS = 4
STAGE_US = 2000

# int usleep(useconds_t usec): stands for a device that is busy.
usleep = ctypes.CDLL(None).usleep
usleep.argtypes = (ctypes.c_uint,)


def stage(stream: accelrt.Stream, name: str) -> None:
    """Enqueue one stage of one chunk."""
    with profiler.record_function(name):
        stream.launch(usleep, STAGE_US, blocking=True)


def run(slots: int) -> None:
    """Send chunks through a ring of so many slots."""
    read, compute, write = (accelrt.Stream(dedicated=True) for _ in range(3))
    written: deque[accelrt.Event] = deque()
    for _ in range(CHUNKS):
        if len(written) == slots:
            read.wait_event(written.popleft())
        stage(read, "read")
        compute.wait_event(read.record_event())
        stage(compute, "compute")
        write.wait_event(compute.record_event())
        stage(write, "write")
        written.append(write.record_event())
    write.synchronize()


def show_waits(recorded: profiler.profile) -> None:
    """Print which stream waited for which one."""
    waited: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for wait in recorded.longest_waits(10 * CHUNKS):
        waited[wait.waiter, wait.stream_id].append(wait.ms)
    for (waiter, stream_id), times in sorted(waited.items()):
        print(f"  {waiter} waits for stream {stream_id}: {len(times)} times, {sum(times):.0f} ms")


def main() -> None:
    """Run both, or the one that is asked for, and show where streams waited."""
    parser = argparse.ArgumentParser(
        description="A wait too many, in a profile.", allow_abbrev=False
    )
    parser.add_argument("--waits-for-every-write", action="store_true", help="run this one alone")
    is_wrong_alone = parser.parse_args().waits_for_every_write
    overlaps = []
    for slots in [1] if is_wrong_alone else [SLOTS, 1]:
        with profiler.profile() as recorded:
            run(slots)
        device = recorded.devices()[0]
        overlaps.append(device.overlap_percent)
        print(f"{slots} slots: {device.busy_ms:.0f} ms busy, of which {overlaps[-1]:.0f} % overlap")
        show_waits(recorded)
    # With one slot no two stages ever run at once; with several the first waits for no write.
    assert overlaps[-1] < 1, overlaps
    assert len(overlaps) == 1 or overlaps[0] > 1, overlaps
    print("checked: a ring of one slot has no overlap")


if __name__ == "__main__":
    main()
