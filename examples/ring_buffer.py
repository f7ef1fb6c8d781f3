"""A fixed ring of buffers streams a file of any size through a device, in constant memory.

The file has samples of 16 bits in the byte order of networks; what is written has them in the other
one. Each slot of the ring has its memory and an event. Three streams bring a chunk to the device,
swap its bytes there by a native function of the C library, without the GIL, and bring it back; a
callable on the last one writes it to the file. This thread reads ahead meanwhile, and waits for a
slot only when the ring came round to it: for its event, which says that its last chunk is written.

    python examples/ring_buffer.py
"""

import ctypes
import sys
import tempfile
from dataclasses import dataclass, field
from io import BufferedReader, BufferedWriter
from pathlib import Path

import accelrt

CHUNK_BYTES = 128 << 10  # even, so that no sample is cut in two
SLOTS = 4

# void swab(const void *from, void *to, ssize_t nbytes): swaps adjacent bytes (POSIX).
swab = ctypes.CDLL(None).swab
swab.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)
swab.restype = None


def pinned() -> accelrt.Buffer:
    """Return memory of the host that a device reaches directly."""
    return accelrt.empty_pinned(CHUNK_BYTES)


def on_device() -> accelrt.Buffer:
    """Return memory of the device."""
    return accelrt.empty(CHUNK_BYTES)


@dataclass
class Slot:
    """The memory of one chunk on its way, and the event behind its last task."""

    read: accelrt.Buffer = field(default_factory=pinned)
    source: accelrt.Buffer = field(default_factory=on_device)
    swapped: accelrt.Buffer = field(default_factory=on_device)
    result: accelrt.Buffer = field(default_factory=pinned)
    written: accelrt.Event = field(default_factory=accelrt.Event)

    def __post_init__(self) -> None:
        """Take the host's views now: asking for the bytes later would wait for the streams."""
        self.input, self.output = memoryview(self.read), memoryview(self.result)


class Ring:
    """Slots that are used in turn, and a stream for each stage."""

    def __init__(self) -> None:
        """Take all memory that there will be."""
        self.slots = [Slot() for _ in range(SLOTS)]
        self.load, self.compute, self.store = (accelrt.Stream() for _ in range(3))

    def run(self, source: BufferedReader, target: BufferedWriter) -> int:
        """Send a file through; return how many chunks it had."""
        count = 0
        while True:
            slot = self.slots[count % SLOTS]
            slot.written.synchronize()  # never recorded, in the first round: done
            nbytes = source.readinto(slot.input)
            if not nbytes:
                break
            if nbytes % 2:
                message = "the file ends inside of a sample"
                raise ValueError(message)
            self.enqueue(slot, nbytes, target)
            count += 1
        self.store.synchronize()  # raises what went wrong in any stage: events pass it on
        return count

    def enqueue(self, slot: Slot, nbytes: int, target: BufferedWriter) -> None:
        """Enqueue what happens to a chunk. Nothing here waits."""
        with self.load:
            slot.source[:nbytes].copy_(slot.read[:nbytes], non_blocking=True)
        self.compute.wait_event(self.load.record_event())
        self.compute.launch(swab, accelrt.reads(slot.source), accelrt.writes(slot.swapped), nbytes)
        self.store.wait_event(self.compute.record_event())
        with self.store:
            slot.swapped[:nbytes].copy_to(slot.result[:nbytes], non_blocking=True)
        self.store.launch_host(target.write, slot.output[:nbytes])
        self.store.record_event(slot.written)


def swapped_serially(content: bytes) -> bytes:
    """Return what should come of the file."""
    expected = bytearray(content)
    expected[0::2], expected[1::2] = content[1::2], content[0::2]
    return bytes(expected)


def main() -> int:
    """Stream a file of eleven chunks and a rest, and check every byte."""
    content = b"".join((i * 40503 & 0xFFFF).to_bytes(2, "big") for i in range(11 * 65536 + 99))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.write_bytes(content)
        with source.open("rb") as input_, target.open("wb") as output:
            chunks = Ring().run(input_, output)
        found = target.read_bytes()
    if found != swapped_serially(content):
        print("WRONG: the file that came back has other bytes", file=sys.stderr)
        return 1
    held = accelrt.accelerator.max_memory_allocated()
    print(f"{len(found)} bytes in {chunks} chunks, checked")
    print(f"the device held {held} bytes: {SLOTS} slots, whatever the size of the file")
    return 0


if __name__ == "__main__":
    sys.exit(main())
