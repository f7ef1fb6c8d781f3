"""Random programs, run on the cpu device beside a sequential model: both have to agree.

A program is a list of steps, each with a few small numbers that are taken modulo what there is, so
any list is a program, and so is every shorter one. Before a step touches a buffer, its stream is
made to wait for what it must not overlap with, unless it is ordered after that already: the model
knows that by vector clocks. So the outcome is that of the steps one after the other, and an order
that a stream does not keep shows in the bytes. Gates hold streams back, so that work piles up. Host
waits block or are awaited in a loop, which keeps some awaits pending while the program goes on.
"""

import asyncio
import ctypes
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

import accelrt
from gates import Gate, libc

SIZE = 16
# The last one is of another device: it takes no copies and no fills of the buffers.
STREAMS = 4
EVENTS = 3
BUFFERS = 3

Clock = dict[int, int]


class Step(NamedTuple):
    """What to do, on which stream, and two numbers whose meaning depends on that."""

    action: str
    stream: int = 0
    first: int = 0
    second: int = 0


class Failure(str):
    """The end of an error's text. One that a stream inherits is another one with the same text."""

    __slots__ = ()


@dataclass
class Mark:
    """What an event stands for: the work that is done with it, and the failure it carries."""

    clock: Clock = field(default_factory=dict)
    failure: str | None = None


@dataclass
class Lane:
    """A stream, what is ordered before its next task, and its open failure."""

    stream: accelrt.Stream
    clock: Clock = field(default_factory=dict)
    failure: str | None = None
    seen: list[bytes] = field(default_factory=list)
    expected: list[bytes] = field(default_factory=list)

    def mark(self) -> Mark:
        """Return what a record stands for here and now."""
        return Mark(dict(self.clock), self.failure)


@dataclass
class Cell:
    """A buffer, its bytes when all is done, and who touched it."""

    buffer: accelrt.Buffer
    content: bytearray
    is_released: bool = False
    reads: Clock = field(default_factory=dict)
    writes: Clock = field(default_factory=dict)
    # By stream, the failures that cover its latest use and its latest write, until a synchronise.
    use_failures: dict[int, str] = field(default_factory=dict)
    write_failures: dict[int, str] = field(default_factory=dict)

    def failures(self) -> dict[int, str]:
        """Return the failures that the host gets."""
        return self.write_failures | self.use_failures


class Program:
    """One run. The methods with three numbers are the actions."""

    def __init__(self) -> None:
        """Make streams without a past, so that gates are left to workers."""
        self.lanes = [Lane(accelrt.Stream(index // 3, dedicated=True)) for index in range(STREAMS)]
        self.events = [(accelrt.Event(), Mark()) for _ in range(EVENTS)]
        self.cells = [Cell(accelrt.zeros(SIZE), bytearray(SIZE)) for _ in range(BUFFERS)]
        self.cells[0].buffer.stream.synchronize()
        self.gates: dict[int, tuple[int, Gate]] = {}
        self.opened: list[Gate] = []
        self.done: Clock = {}
        self.loop = asyncio.new_event_loop()
        self.awaiting: list[tuple[asyncio.Future[None], Mark]] = []

    def run(self, steps: list[Step]) -> None:
        """Run every step; then end and compare everything."""
        try:
            for step in steps:
                getattr(self, step.action)(step.stream % STREAMS, step.first, step.second)
            self.end_awaits()
        finally:
            self.open_gates()
            self.loop.close()
        for index, lane in enumerate(self.lanes):
            self.synchronize(index)
            assert lane.stream.query()
            assert lane.seen == lane.expected, f"stream {index}"
        for number in range(BUFFERS):
            self.read(0, number)
        for gate in self.opened:
            gate.close()

    def tick(self, index: int) -> Lane:
        """Count one more task of a stream."""
        lane = self.lanes[index]
        lane.clock[index] = lane.clock.get(index, 0) + 1
        return lane

    def join(self, index: int, mark: Mark) -> None:
        """Note that a stream waits for a mark, whose failure it inherits unless it has one."""
        lane = self.tick(index)
        merge(lane.clock, mark.clock)
        if lane.failure is None and mark.failure is not None:
            lane.failure = Failure(mark.failure)

    def order(self, index: int, clock: Clock, how: int) -> None:
        """Make a stream wait for what a clock has and the stream is not ordered after."""
        for other, at in sorted(clock.items()):
            if max(self.lanes[index].clock.get(other, 0), self.done.get(other, 0)) < at:
                if how % 2:
                    self.wait_stream(index, other)
                else:
                    event = self.tick(other).stream.record_event()
                    event.wait(self.lanes[index].stream)
                    self.join(index, self.lanes[other].mark())

    def use(self, index: int, how: int, reads: list[Cell], writes: list[Cell]) -> bool:
        """Order a task behind what it must not overlap with and note its uses; True if it runs."""
        for cell in reads + writes:
            self.order(index, cell.writes, how)
        for cell in writes:
            self.order(index, cell.reads, how)
        lane = self.tick(index)
        for cell in reads:
            cell.reads[index] = lane.clock[index]
        for cell in writes:
            cell.writes[index] = lane.clock[index]
        uses = [cell.use_failures for cell in reads + writes]
        for failures in uses + [cell.write_failures for cell in writes]:
            failures.pop(index, None)
            if lane.failure:
                failures[index] = lane.failure
        return lane.failure is None

    def receive(self, index: int, failure: str | None) -> None:
        """Note that a call received a failure through a handle, which ends it."""
        if self.lanes[index].failure is failure:  # not an equal one that came later
            self.lanes[index].failure = None

    def expect(self, clock: Clock, *, is_done: bool) -> None:
        """Compare the answer of a query with what has to be."""
        is_held = any(clock.get(index, 0) >= at for index, (at, _) in self.gates.items())
        if is_held or all(self.done.get(index, 0) >= at for index, at in clock.items()):
            assert is_done is not is_held

    def open_gates(self) -> None:
        """Let the gates' tasks end, before the host waits for something."""
        for _, gate in self.gates.values():
            gate.open()
            self.opened.append(gate)
        self.gates.clear()

    # Actions on streams and events.

    def gate(self, index: int, _first: int, _second: int) -> None:
        """Hold a stream back until the host waits for something."""
        if self.lanes[index].failure is None and index not in self.gates:
            lane = self.tick(index)
            self.gates[index] = (lane.clock[index], Gate(lane.stream))

    def query(self, index: int, _first: int, _second: int) -> None:
        """Ask a stream whether it is done."""
        lane = self.lanes[index]
        self.expect({index: lane.clock.get(index, 0)}, is_done=lane.stream.query())

    def synchronize(self, index: int, _first: int = 0, _second: int = 0) -> None:
        """Wait for a stream, which raises its failure and ends it."""
        self.open_gates()
        lane = self.lanes[index]
        with raises(lane.failure):
            lane.stream.synchronize()
        self.end(index)

    def synchronize_device(self, index: int, _first: int, _second: int) -> None:
        """Wait for all streams of a device, which raises their failures and ends them."""
        self.open_gates()
        device = index // 3
        indices = [index for index in range(STREAMS) if index // 3 == device]
        failures = [self.lanes[index].failure for index in indices]
        expected = sorted(failure for failure in failures if failure)
        with raises(*expected):
            accelrt.accelerator.synchronize(device)
        for each in indices:
            self.end(each)

    def end(self, index: int) -> None:
        """Note that a stream was synchronised with."""
        lane = self.lanes[index]
        merge(self.done, lane.clock)
        lane.failure = None
        for cell in self.cells:
            cell.use_failures.pop(index, None)
            cell.write_failures.pop(index, None)

    def wait_stream(self, index: int, first: int, _second: int = 0) -> None:
        """Make a stream wait for another one, or for itself."""
        other = self.lanes[first % STREAMS]
        self.tick(first % STREAMS)
        self.lanes[index].stream.wait_stream(other.stream)
        self.join(index, other.mark())

    def record(self, index: int, first: int, _second: int) -> None:
        """Record an event, which stays with the device of its first record."""
        lane, (event, _) = self.lanes[index], self.events[first % EVENTS]
        if event.device.index not in (None, lane.stream.device_index):
            with pytest.raises(RuntimeError, match="does not match recording stream's device"):
                event.record(lane.stream)
            return
        event.record(lane.stream)
        self.events[first % EVENTS] = (event, self.tick(index).mark())

    def wait_event(self, index: int, first: int, _second: int) -> None:
        """Make a stream wait for the latest record."""
        event, mark = self.events[first % EVENTS]
        self.lanes[index].stream.wait_event(event)
        self.join(index, mark)

    def query_event(self, _index: int, first: int, _second: int) -> None:
        """Ask an event whether it is done."""
        event, mark = self.events[first % EVENTS]
        self.expect(mark.clock, is_done=event.query())

    def synchronize_event(self, _index: int, first: int, _second: int) -> None:
        """Wait for an event, which raises its failure and ends nothing."""
        self.open_gates()
        event, mark = self.events[first % EVENTS]
        with raises(mark.failure):
            event.synchronize()
        merge(self.done, mark.clock)

    # Awaits.

    def await_stream(self, index: int, _first: int, _second: int) -> None:
        """Await a stream, which raises its failure and ends it."""
        self.open_gates()
        lane = self.lanes[index]
        with raises(lane.failure):
            self.loop.run_until_complete(lane.stream)
        self.end(index)

    def await_event(self, _index: int, first: int, second: int) -> None:
        """Begin to await an event, whose later records do not count; end some awaits before."""
        if second % 2:
            self.end_awaits()
        event, mark = self.events[first % EVENTS]
        self.awaiting.append((asyncio.ensure_future(event, loop=self.loop), mark))
        self.loop.run_until_complete(asyncio.sleep(0))

    def cancel_await(self, _index: int, first: int, _second: int) -> None:
        """Cancel an await, which changes nothing else."""
        if self.awaiting:
            waiting, _ = self.awaiting.pop(first % len(self.awaiting))
            if not waiting.done():
                waiting.cancel()
            self.loop.run_until_complete(asyncio.wait([waiting]))
            waiting.cancelled() or waiting.exception()

    def await_call(self, index: int, first: int, _second: int) -> None:
        """Await a callable, which a failed stream does not call. Its task ends a little later."""
        self.open_gates()
        lane = self.tick(index)
        call = lane.stream.launch_host(abs, -first)
        with raises(lane.failure):
            assert self.loop.run_until_complete(call) == first
        self.receive(index, lane.failure)

    def end_awaits(self) -> None:
        """Wait for what is awaited, which raises the failures of the records and ends nothing."""
        self.open_gates()
        for waiting, mark in self.awaiting:
            with raises(mark.failure):
                self.loop.run_until_complete(waiting)
            merge(self.done, mark.clock)
        self.awaiting.clear()

    def fail(self, index: int, first: int, second: int) -> None:
        """Enqueue a task that fails, as a native call or as a callable."""
        lane = self.tick(index)
        if second % 2:
            lane.stream.launch(libc.abs, -first - 1, check=True)
            failure = f"returned status {first + 1}"
        else:
            lane.stream.launch_host(fail_with, first)
            failure = f"no. {first}"
        lane.failure = lane.failure or failure

    # Actions on buffers.

    def set_bytes(self, index: int, first: int, second: int) -> None:
        """Set the bytes of a buffer from some place on, by a native call with a slice."""
        cell, start = self.cells[first % BUFFERS], second % SIZE
        if not cell.is_released:
            runs = self.use(index, second, [], [cell])
            byte, count = 16 * first + second + 1, SIZE - start
            self.lanes[index].stream.launch(libc.memset, cell.buffer[start:], byte, count)
            if runs:
                cell.content[start:] = bytes([byte]) * count

    def call_copy(self, index: int, first: int, second: int) -> None:
        """Copy a buffer by a native call."""
        target, source = self.cells[first % BUFFERS], self.cells[second % BUFFERS]
        if target is not source and not target.is_released and not source.is_released:
            runs = self.use(index, second, [source], [target])
            given = accelrt.writes(target.buffer), accelrt.reads(source.buffer)
            self.lanes[index].stream.launch(libc.memcpy, *given, SIZE)
            if runs:
                target.content[:] = source.content

    def fill(self, index: int, first: int, second: int) -> None:
        """Fill a buffer; one that was released refuses."""
        cell, index = self.cells[first % BUFFERS], index % 3
        with self.lanes[index].stream:
            if cell.is_released:
                with pytest.raises(BufferError, match="was released"):
                    cell.buffer.fill_(second)
            else:
                runs = self.use(index, second, [], [cell])
                cell.buffer.fill_(second)
                if runs:
                    cell.content[:] = bytes([second]) * SIZE

    def copy(self, index: int, first: int, second: int) -> None:
        """Copy a buffer, or the host's bytes, and wait for that or not."""
        target, source, index = self.cells[first % BUFFERS], self.cells[second % BUFFERS], index % 3
        if target.is_released or source.is_released:
            return
        is_blocking, lane = second >= BUFFERS, self.lanes[index]
        content = bytes(range(second, second + SIZE)) if target is source else source.content
        given: Any = content if target is source else source.buffer
        runs = self.use(index, first, [] if target is source else [source], [target])
        if is_blocking:
            self.open_gates()
        with lane.stream, raises(lane.failure if is_blocking else None):
            target.buffer.copy_(bytes(given) if target is source else given, not is_blocking)
        if is_blocking:
            merge(self.done, lane.clock)
            self.receive(index, lane.failure)
        if runs:
            target.content[:] = content

    def look(self, index: int, first: int, second: int) -> None:
        """Have a callable look at a buffer, which is told by `record_stream`."""
        cell, lane = self.cells[first % BUFFERS], self.lanes[index]
        if not cell.is_released:
            runs = self.use(index, second, [cell], [])
            address = cell.buffer.data_ptr()
            lane.stream.launch_host(lambda: lane.seen.append(ctypes.string_at(address, SIZE)))
            cell.buffer.record_stream(lane.stream)
            if runs:
                lane.expected.append(bytes(cell.content))

    def read(self, _index: int, first: int, _second: int = 0) -> None:
        """Read a buffer on the host, which waits for its uses and raises their failures."""
        self.open_gates()
        cell = self.cells[first % BUFFERS]
        if cell.is_released:
            with pytest.raises(BufferError, match="was released"):
                memoryview(cell.buffer)
            return
        failures = cell.failures()
        with raises(*failures.values()):
            assert bytes(cell.buffer) == bytes(cell.content)
        for index, failure in failures.items():
            self.receive(index, failure)
        merge(self.done, cell.reads)
        merge(self.done, cell.writes)

    def release(self, _index: int, first: int, _second: int) -> None:
        """Free a buffer behind its uses."""
        cell = self.cells[first % BUFFERS]
        cell.buffer.release()
        cell.is_released = True

    def replace(self, index: int, first: int, second: int) -> None:
        """Drop a buffer, whose memory goes behind its uses, and make another one."""
        lane = self.lanes[index % 3]
        if lane.failure is None:
            with lane.stream:
                cell = self.cells[first % BUFFERS] = Cell(accelrt.empty(SIZE), bytearray(SIZE))
                self.use(index % 3, 0, [], [cell])
                cell.buffer.fill_(second)
            cell.content[:] = bytes([second]) * SIZE


# The simplest first: programs that fail are made simple in this direction.
ACTIONS = [
    "fill",
    "set_bytes",
    "call_copy",
    "copy",
    "look",
    "read",
    "replace",
    "release",
    "record",
    "wait_event",
    "wait_stream",
    "gate",
    "query",
    "query_event",
    "synchronize",
    "synchronize_event",
    "synchronize_device",
    "await_stream",
    "await_event",
    "await_call",
    "cancel_await",
    "fail",
]


def merge(clock: Clock, other: Clock) -> None:
    """Add what another clock has."""
    for index, at in other.items():
        clock[index] = max(clock.get(index, 0), at)


def fail_with(number: int) -> None:
    """Fail as a callable does."""
    message = f"no. {number}"
    raise ValueError(message)


class raises:  # noqa: N801  as pytest's
    """Expect a `StreamError` with these failures, one a stream, or none where there are none."""

    def __init__(self, *failures: str | None) -> None:
        """Keep what is expected."""
        self.failures = sorted(failure for failure in failures if failure)

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        """Compare."""
        if error is not None and not isinstance(error, accelrt.StreamError):
            return False
        errors = [] if error is None else error.errors
        texts = [str(each) for each in errors]
        assert len(texts) == len(self.failures), (texts, self.failures)
        for failure in self.failures:
            assert any(text.endswith(failure) for text in texts), (texts, self.failures)
        return True
