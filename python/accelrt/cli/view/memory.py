"""Memory over time: the allocations of a trace, as columns."""

from array import array
from collections.abc import Sequence
from typing import Any

from accelrt.cli.replay.errors import TraceError
from accelrt.cli.view.columns import Columns

Operation = tuple[bool, int, int, int]
"""Whether it allocates, the id, the size in bytes and the stream."""

# Born before the trace.
BEFORE = -1
# Streams and tags have numbers of two bytes in a page.
MOST_STREAMS = 1 << 16


class Allocations:
    """Allocations in the order of a stacked picture: what was there before, then by birth.

    `born`, `asked` and `died` are entries of the trace: where a block was handed out, where its
    free was requested, and where it was over. What never ended has the number of entries.
    """

    def __init__(self) -> None:
        """Start without any."""
        self.size: array[float] = array("d")
        self.address: array[float] = array("d")
        self.stream, self.tag = array("H"), array("H")
        self.born, self.asked, self.died = array("i"), array("i"), array("i")
        self.stack, self.free_stack = array("i"), array("i")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.size)

    def add(self, born: int, size: int, stream: int, *, address: int = 0, stack: int = -1) -> int:
        """Add one that has no end yet; return its index."""
        self.size.append(size)
        self.address.append(address)
        self.stream.append(stream)
        self.tag.append(0)
        self.born.append(born)
        self.asked.append(BEFORE)
        self.died.append(BEFORE)
        self.stack.append(stack)
        self.free_stack.append(-1)
        return len(self.size) - 1

    def columns(self, entry_count: int) -> tuple[Columns, "array[int]"]:
        """Return the columns, in order, and the new index of each allocation.

        What has no end gets the number of entries for it.
        """
        for ends in (self.asked, self.died):
            for index, entry in enumerate(ends):
                if entry == BEFORE:
                    ends[index] = entry_count
        order = sorted(range(len(self)), key=lambda i: (self.born[i], -self._end(i)))
        columns = Columns()
        for name, values in vars(self).items():
            columns.add(name, array(values.typecode, [values[i] for i in order]))
        places = array("I", bytes(4 * len(order)))
        for place, index in enumerate(order):
            places[index] = place
        return columns, places

    def _end(self, index: int) -> int:
        """Order what was there before by its end: the last freed is the lowest."""
        return self.died[index] if self.born[index] == BEFORE else 0


def of_operations(operations: Sequence[Operation]) -> tuple[dict[str, Any], Columns]:
    """Return the head and the columns of a table of events, which has no addresses or stacks."""
    allocations, live = Allocations(), dict[int, int]()
    streams: dict[int, int] = {}
    for entry, (is_allocation, identity, size, stream) in enumerate(operations):
        if is_allocation:
            number = streams.setdefault(stream, len(streams))
            if number >= MOST_STREAMS:
                message = f"event {entry} is of another stream than {MOST_STREAMS} before it"
                raise TraceError(message)
            live[identity] = allocations.add(entry, size, number)
        else:
            index = live.pop(identity)
            allocations.asked[index] = allocations.died[index] = entry
    head = {"entries": len(operations), "streams": [str(stream) for stream in streams]}
    return head, allocations.columns(len(operations))[0]
