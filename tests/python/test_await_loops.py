"""Goal: a loop is woken by what completes, by one eventfd, and by nothing else.

Method: loops count their turns and what wakes them; a gate keeps the awaited work from being done.
"""

import asyncio
import ctypes
import gc
import os
import select
import selectors
import struct
import threading
import time
import weakref
from functools import partial
from pathlib import Path

import pytest

import accelrt
from gates import Gate
from kinds import host_cores
from loops import AWAITABLES, LOOPS, stream, wait_for

LONG = 60.0  # far beyond what any of this takes


def event_fd_numbers() -> set[int]:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return {int(link.name) for link in links if "eventfd" in str(link.readlink())}


def test_eventfds_are_not_inherited() -> None:
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        waiting = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        numbers = event_fd_numbers()
        inherited = [number for number in numbers if os.get_inheritable(number)]
        gate.open()
        await waiting
        assert numbers
        assert not inherited

    asyncio.run(main())


def test_a_loop_has_one_eventfd_and_gives_it_back() -> None:
    # From the first await that has to wait on: what is awaited is behind gates.
    before, counts = len(event_fd_numbers()), list[int]()

    async def main() -> None:
        works = [stream() for _ in range(10)]
        done = works[0].record_event()
        done.synchronize()
        await done
        counts.append(len(event_fd_numbers()) - before)
        for _ in range(5):
            gates = [Gate(work) for work in works]
            waiting = [asyncio.ensure_future(work) for work in works]
            await asyncio.sleep(0)
            counts.append(len(event_fd_numbers()) - before)
            for gate in gates:
                gate.open()
            await asyncio.gather(*waiting)
            for gate in gates:
                gate.close()

    for _ in range(3):
        asyncio.run(main())
        assert counts == [0, 1, 1, 1, 1, 1]
        counts.clear()
        gc.collect()
        end = time.monotonic() + LONG
        while len(event_fd_numbers()) > before:  # the thread that raised it last may have it still
            assert time.monotonic() < end, "it is not given back"


class CountingSelector(selectors.DefaultSelector):
    """Counts its calls, and how often a descriptor was found ready."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.found = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.calls += 1
        ready = super().select(timeout)
        self.found += len(ready)
        return ready


def test_completions_of_a_busy_loop_wake_it_once() -> None:
    # While the loop is busy with a task, the first completion raises the eventfd, and the other
    # ones find it raised.
    selector = CountingSelector()

    async def main() -> None:
        works = [stream() for _ in range(50)]
        gates = [Gate(work) for work in works]
        waiting = [asyncio.create_task(wait_for(work.record_event())) for work in works]
        await asyncio.sleep(0)
        before = selector.found
        for gate in gates:
            gate.open()
        for work in works:
            work.synchronize()  # holds the loop
        await asyncio.gather(*waiting)
        assert selector.found == before + 1
        for gate in gates:
            gate.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(main())


def test_awaits_poll_nothing() -> None:
    # Nothing looks at the work while it is pending: neither the loop, whose turns are counted, nor
    # another thread, which would need processor time. Of that, other tests' threads need some too:
    # the least of three awaits is what counts.
    used = []

    async def main(selector: CountingSelector) -> None:
        work = stream()
        gate = Gate(work)
        waiting = asyncio.create_task(wait_for(work.record_event()))
        await asyncio.sleep(0)
        threading.Timer(0.1, gate.open).start()
        calls, found, began = selector.calls, selector.found, time.process_time()
        await waiting
        used.append(time.process_time() - began)
        # A driver kind's work wakes the loop when it is submitted, and when it is done.
        wakes = selector.found - found
        assert wakes == 1 if work.device.type == "cpu" else wakes in {1, 2}
        # The loop waits, then it runs the callback that a wake asks for, then the task.
        assert selector.calls - calls <= 1 + 2 * wakes
        gate.close()

    for _ in range(3):
        selector = CountingSelector()
        with asyncio.Runner(loop_factory=partial(asyncio.SelectorEventLoop, selector)) as runner:
            runner.run(main(selector))
    assert min(used) < 0.05


@host_cores
def test_a_completion_wakes_the_loop_without_the_gil() -> None:
    # The loop's thread keeps the GIL until the eventfd can be read. The limit is for a defect.
    with_gil = ctypes.PyDLL(None)

    async def main() -> None:
        work, others = stream(), event_fd_numbers()
        gate = Gate(work)
        waiting = asyncio.ensure_future(work.record_event())
        await asyncio.sleep(0)
        [descriptor] = event_fd_numbers() - others
        awaited = ctypes.create_string_buffer(struct.pack("ihh", descriptor, select.POLLIN, 0))
        gate.open()
        assert with_gil.poll(awaited, 1, 10_000) == 1
        assert not waiting.done()
        await waiting
        gate.close()

    asyncio.run(main())


def thread_count() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_pending_awaits_have_no_threads() -> None:
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        events = [work.record_event() for _ in range(100)]
        waiting = [asyncio.ensure_future(events[0])]
        await asyncio.sleep(0)
        before = thread_count()
        waiting += [asyncio.ensure_future(event) for event in events]
        await asyncio.sleep(0)
        assert thread_count() < before + 10  # a driver may start some of its own
        gate.open()
        await asyncio.gather(*waiting)
        gate.close()

    asyncio.run(main())


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    def add_reader(self, *_arguments: object) -> None:
        raise NotImplementedError


def test_a_loop_that_reads_no_descriptors_is_refused_what_is_pending() -> None:
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        event = work.record_event()
        for _ in range(2):
            with pytest.raises(NotImplementedError):
                await event
        gate.open()
        work.synchronize()
        await event
        gate.close()

    with asyncio.Runner(loop_factory=LoopWithoutReaders) as runner:
        runner.run(main())


def test_loops_of_several_threads_await_one_event() -> None:
    work = stream()
    gate = Gate(work)
    event, ended = work.record_event(), list[int]()
    is_waiting = threading.Barrier(5)

    async def main() -> None:
        waiting = asyncio.create_task(wait_for(event))
        await asyncio.sleep(0)
        is_waiting.wait(LONG)
        await waiting
        ended.append(1)

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
    for thread in threads:
        thread.start()
    is_waiting.wait(LONG)
    assert ended == []
    gate.open()
    for thread in threads:
        thread.join()
    assert ended == [1] * 4
    work.synchronize()
    gate.close()


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_may_end_with_awaits_pending(name: str) -> None:
    work, loops = stream(), list["weakref.ref[asyncio.AbstractEventLoop]"]()
    gate = Gate(work)
    for awaitable_of in AWAITABLES:
        loop = LOOPS[name]()
        loop.set_exception_handler(lambda _loop, _context: None)  # of the task that is left
        task = loop.create_task(wait_for(awaitable_of(work)))
        loop.run_until_complete(asyncio.sleep(0))
        loops.append(weakref.ref(loop))
        loop.close()
        del loop, task
    gate.open()
    work.synchronize()
    accelrt.Stream().query()  # drops what the completer left
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3
    gate.close()


def test_an_await_needs_a_running_loop() -> None:
    work = stream()
    gate = Gate(work)
    coroutine = wait_for(work.record_event())
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)
    gate.open()
    work.synchronize()
    gate.close()
