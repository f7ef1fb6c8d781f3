"""An all-reduce over four devices: every device ends with the sum of what each one had.

The ring of data-parallel training: vectors are cut into as many pieces as there are devices. In
each step a device takes a piece from its left neighbour: at first to add it to its own, then, when
each device has one whole sum, to hand those round. So what a device sends does not grow with the
number of devices. `Stream.wait_event` orders a step behind the neighbour's last one; no thread
waits before the end, and all devices work at the same time. NumPy adds in the devices' memory.

Here the devices are four of the cpu's, which any machine has. NumPy is needed.

    python examples/all_reduce.py
"""

import os
import sys

os.environ["ACCELRT_CPU_DEVICES"] = "4"  # before the first use, which reads it
os.environ["ACCELRT_ACCELERATOR"] = "cpu"

import numpy as np

import accelrt

DEVICES = 4
PIECE = 50_000  # numbers
WIDTH = np.dtype(np.float32).itemsize


class Rank:
    """A device with its stream and its vector."""

    def __init__(self, number: int) -> None:
        """Take memory on the device of this number, and fill it with numbers of this rank."""
        self.device = accelrt.device("cpu", number)
        self.stream = accelrt.Stream(self.device)
        with self.stream:
            self.vector = accelrt.empty(DEVICES * PIECE * WIDTH)
            self.inbox = accelrt.empty(PIECE * WIDTH)
        # Views for NumPy, without a copy. Taking them waits for the memory's tasks: once, here.
        self.numbers = np.asarray(self.vector.view("float32", (DEVICES, PIECE)))
        self.received = np.asarray(self.inbox.view("float32"))
        self.numbers[:] = np.random.default_rng(number).integers(0, 1000, (DEVICES, PIECE))
        self.finished = accelrt.Event()  # behind the latest step

    def piece(self, number: int) -> accelrt.Buffer:
        """Return a piece of the vector: a slice, which shares its memory."""
        start = number % DEVICES * PIECE * WIDTH
        return self.vector[start : start + PIECE * WIDTH]

    def add_from(self, left: "Rank", number: int) -> None:
        """Enqueue: take a piece of the neighbour's and add it."""
        with self.stream:
            self.inbox.copy_(left.piece(number), non_blocking=True)
        mine = self.numbers[number % DEVICES]
        self.stream.launch_host(np.add, mine, self.received, mine)  # into `mine`

    def take_from(self, left: "Rank", number: int) -> None:
        """Enqueue: take a piece of the neighbour's, which is a whole sum."""
        with self.stream:
            self.piece(number).copy_(left.piece(number), non_blocking=True)


def all_reduce(ranks: list[Rank]) -> None:
    """Enqueue the whole of it. A wait binds to the record that is the latest when it is called.

    No step overwrites a piece before the right neighbour has it: what comes back to overwrite it is
    a sum that went through that neighbour first.
    """
    for step in range(2 * (DEVICES - 1)):
        # Of the last step, before the first of this one is recorded.
        for number, rank in enumerate(ranks):
            rank.stream.wait_event(ranks[number - 1].finished)
        for number, rank in enumerate(ranks):
            left = ranks[number - 1]
            if step < DEVICES - 1:
                rank.add_from(left, number - 1 - step)
            else:
                rank.take_from(left, number - (step - (DEVICES - 1)))
        for rank in ranks:
            rank.stream.record_event(rank.finished)


def main() -> int:
    """Reduce four vectors, and compare with NumPy's sum of them."""
    ranks = [Rank(number) for number in range(DEVICES)]
    expected = np.sum([rank.numbers for rank in ranks], axis=0)  # whole numbers: exact in any order
    all_reduce(ranks)
    for rank in ranks:
        rank.stream.synchronize()  # raises what went wrong on it
    if not all(np.array_equal(rank.numbers, expected) for rank in ranks):
        print("WRONG: a device has another sum", file=sys.stderr)
        return 1
    print(f"{DEVICES} devices have the sum of {DEVICES * PIECE} numbers each, checked")
    for rank in ranks:
        held = accelrt.cpu.memory_allocated(rank.device)
        print(f"{rank.device.type}:{rank.device.index} holds {held} bytes: its vector and a piece")
    return 0


if __name__ == "__main__":
    sys.exit(main())
