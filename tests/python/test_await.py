"""Goal: events, streams and handles are awaited; the loop runs other tasks meanwhile.

Method: a gate, which a task of the loop opens, keeps the awaited work from being done. Each test
runs on asyncio's own loop and on uvloop's.
"""

import asyncio
import gc
import selectors
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import accelrt
from gates import Gate, fail
from kinds import KIND
from processes import output_of

LONG = 60.0  # far beyond what any of this takes
Awaitable = accelrt.Event | accelrt.Stream | accelrt.HostCall[object]


def new_uvloop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return loop


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": new_uvloop}
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=LOOPS, name="run")
def run_on_a_loop(request: pytest.FixtureRequest) -> Run:
    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main)

    return run


def stream() -> accelrt.Stream:
    return accelrt.Stream(f"{KIND}:0", dedicated=True)


def event_of(work: accelrt.Stream) -> Awaitable:
    return work.record_event()


def stream_of(work: accelrt.Stream) -> Awaitable:
    return work


def handle_of(work: accelrt.Stream) -> Awaitable:
    return work.launch_host(int)


AWAITABLES = [event_of, stream_of, handle_of]


@pytest.mark.parametrize("awaitable_of", AWAITABLES)
def test_other_tasks_run_while_one_awaits(
    run: Run, awaitable_of: Callable[[accelrt.Stream], Awaitable]
) -> None:
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        awaitable = awaitable_of(work)

        async def wait() -> bool:
            await awaitable
            return work.query()

        waiting = asyncio.create_task(wait())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        gate.open()
        await asyncio.wait_for(waiting, LONG)
        work.synchronize()
        gate.close()

    run(main())


@pytest.mark.parametrize("awaitable_of", AWAITABLES)
def test_what_is_done_is_awaited_without_a_turn_of_the_loop(
    run: Run, awaitable_of: Callable[[accelrt.Stream], Awaitable]
) -> None:
    async def main() -> None:
        work = stream()
        awaitable = awaitable_of(work)
        work.synchronize()
        turns = list[int]()
        asyncio.get_running_loop().call_soon(turns.append, 1)
        for _ in range(100):
            await awaitable
        assert turns == []

    run(main())


def test_an_awaited_handle_has_what_the_callable_returned_or_raised(run: Run) -> None:
    async def main() -> None:
        work = stream()
        calls = [work.launch_host(pow, 2, number) for number in range(50)]
        assert await asyncio.gather(*calls) == [2**number for number in range(50)]
        assert await work.launch_host(lambda: (1, 2)) == (1, 2)
        with pytest.raises(ZeroDivisionError):
            await work.launch_host(lambda: 1 / 0)
        with pytest.raises(accelrt.StreamError):
            await work.launch_host(int)
        with pytest.raises(accelrt.StreamError, match="division by zero"):
            await work

    run(main())


def test_an_awaited_stop_iteration_is_no_result(run: Run) -> None:
    work = stream()

    def stop() -> None:
        raise StopIteration(7)

    async def main() -> None:
        call = work.launch_host(stop)
        for _ in range(2):  # pending or done
            with pytest.raises(RuntimeError, match="raised StopIteration") as raised:
                await call
            assert raised.value.__cause__ is call.exception()
        with pytest.raises(accelrt.StreamError, match="StopIteration: 7"):
            await work

    run(main())


def test_an_awaited_event_raises_its_records_failure_and_ends_no_error(run: Run) -> None:
    async def main() -> None:
        work = stream()
        before = work.record_event()
        fail(work, 7)
        behind = work.record_event()
        await before
        for _ in range(2):
            with pytest.raises(accelrt.StreamError, match="status 7"):
                await behind
        with pytest.raises(accelrt.StreamError, match="status 7"):
            await work
        await work

    run(main())


def test_an_awaited_stream_is_its_work_so_far(run: Run) -> None:
    async def main() -> None:
        work = stream()
        first = Gate(work)

        async def wait() -> None:
            await work

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        second = Gate(work)  # behind what is awaited
        first.open()
        await asyncio.wait_for(waiting, LONG)
        assert not work.query()
        second.open()
        await work
        first.close()
        second.close()

    run(main())


@pytest.mark.parametrize("awaitable_of", AWAITABLES)
def test_a_cancelled_await_ends_the_wait_and_leaves_the_work(
    run: Run, awaitable_of: Callable[[accelrt.Stream], Awaitable]
) -> None:
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        seen = list[int]()
        work.launch_host(seen.append, 1)
        awaitable = awaitable_of(work)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await awaitable
        gate.open()
        await awaitable
        await work
        assert seen == [1]
        gate.close()

    run(main())


@pytest.mark.parametrize("awaitable_of", AWAITABLES)
def test_cancelled_awaits_of_pending_work_leave_nothing(
    run: Run, awaitable_of: Callable[[accelrt.Stream], Awaitable]
) -> None:
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        awaitable = awaitable_of(work)
        for _ in range(100):
            waiting = asyncio.create_task(wait_for(awaitable))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        del waiting
        accelrt.Stream().query()  # drops what was left without the GIL
        gc.collect()
        assert sum(isinstance(it, asyncio.Future) for it in gc.get_objects()) < 10
        gate.open()
        await work
        gate.close()

    run(main())


def test_a_future_that_was_cancelled_holds_no_other_back(run: Run) -> None:
    # Both futures end in one turn of the loop, the cancelled one first.
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        events = [work.record_event() for _ in range(2)]
        waiting = [asyncio.create_task(wait_for(event)) for event in events]
        await asyncio.sleep(0)
        gate.open()
        work.synchronize()  # holds the loop
        waiting[0].cancel()
        await asyncio.wait_for(waiting[1], LONG)
        assert waiting[0].cancelled()
        gate.close()

    run(main())


def test_an_await_of_a_stream_at_its_limit_holds_no_loop_up() -> None:
    program = """
        import asyncio, threading, accelrt

        async def main() -> None:
            work, goes_on = accelrt.Stream(dedicated=True), threading.Event()
            work.launch_host(goes_on.wait)
            for _ in range(63):
                work.launch_host(int)
            waiting = [asyncio.ensure_future(work) for _ in range(100)]
            await asyncio.sleep(0)  # each of them enqueues a task
            goes_on.set()
            await asyncio.gather(*waiting)

        asyncio.run(main())
    """
    assert output_of(program, ACCELRT_STREAM_TASKS="64") == ""


def test_a_cancelled_await_of_a_stream_ends_no_error(run: Run) -> None:
    async def main() -> None:
        work, gated = stream(), stream()
        gate = Gate(gated)
        fail(work, 3)
        work.wait_stream(gated)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await work
        gate.open()
        with pytest.raises(accelrt.StreamError, match="status 3"):
            await work
        await gated
        gate.close()

    run(main())


def test_awaits_are_gathered_shielded_and_waited_for(run: Run) -> None:
    async def main() -> None:
        works = [stream() for _ in range(3)]
        gates = [Gate(work) for work in works]
        events = [work.record_event() for work in works]
        pending = {asyncio.ensure_future(event) for event in events}
        gates[1].open()
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(pending)) == (1, 2)
        shielded = asyncio.shield(events[0])
        shielded.cancel()
        for gate in (gates[0], gates[2]):
            gate.open()
        await asyncio.gather(*events, *works, *pending)
        for gate in gates:
            gate.close()

    run(main())


def test_several_tasks_await_one_event(run: Run) -> None:
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        event = work.record_event()
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(wait_for(event))
            await asyncio.sleep(0)
            gate.open()
        await work
        gate.close()

    run(main())


async def wait_for(awaitable: Awaitable) -> None:
    await awaitable


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


def event_fds() -> int:
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum("eventfd" in str(target) for target in links)


def test_a_loop_has_one_eventfd_and_gives_it_back() -> None:
    before, counts = event_fds(), list[int]()

    async def main() -> None:
        works = [stream() for _ in range(10)]
        for _ in range(5):
            goes_on = threading.Event()
            for work in works:
                work.launch_host(goes_on.wait, LONG)
            waits = [asyncio.ensure_future(work) for work in works]
            await asyncio.sleep(0)  # so that each waits
            goes_on.set()
            await asyncio.gather(*waits)
            counts.append(event_fds() - before)

    for _ in range(3):
        asyncio.run(main())
    gc.collect()
    assert set(counts) == {1}
    assert event_fds() == before


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


def test_many_awaits_leave_memory_threads_and_descriptors_as_they_are() -> None:
    program = """
        import asyncio, resource, threading
        from pathlib import Path
        import accelrt

        def counts() -> tuple[int, int]:
            folders = [Path("/proc/self/fd"), Path("/proc/self/task")]
            return tuple(len(list(folder.iterdir())) for folder in folders)

        async def await_all(count: int) -> None:
            work, other = accelrt.Stream(dedicated=True), accelrt.Stream(dedicated=True)
            for number in range(count):
                other.wait_stream(work)
                work.launch_host(int)
                await work.record_event()
                if number % 3 == 0:
                    await other
                if number % 100 == 0:
                    try:
                        await asyncio.wait_for(work.launch_host(int), 0)
                    except TimeoutError:
                        pass
            await work

        async def main() -> None:
            await await_all(5_000)
            before, least = counts(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await await_all({count})
            after, most = counts(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert before[0] == after[0], (before, after)
            assert after[1] <= before[1] + 3, (before, after)  # the pool of callables may grow
            assert most - least < 2_000, (least, most)

        asyncio.run(main())
    """
    assert output_of(textwrap.dedent(program).replace("{count}", "20_000")) == ""


def test_an_await_needs_a_running_loop() -> None:
    work = stream()
    gate = Gate(work)
    coroutine = wait_for(work.record_event())
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)
    gate.open()
    work.synchronize()
    gate.close()


def test_a_callable_does_not_await_unfinished_work() -> None:
    work, gated = stream(), stream()
    gate = Gate(gated)
    event = gated.record_event()
    with pytest.raises(RuntimeError, match="cannot wait for unfinished work"):
        work.launch_host(lambda: asyncio.run(wait_for(event))).result(LONG)
    gate.open()
    gated.synchronize()
    with pytest.raises(accelrt.StreamError):
        work.synchronize()
    assert work.launch_host(lambda: asyncio.run(wait_for(event))).result() is None
    gate.close()


def test_awaits_are_refused_in_a_forked_child() -> None:
    program = """
        import asyncio, os, accelrt

        work = accelrt.Stream()
        event, call = work.record_event(), work.launch_host(int)
        work.synchronize()

        async def main() -> None:
            for awaitable in (event, call, work):
                try:
                    await awaitable
                except RuntimeError as error:
                    assert "forked" in str(error), error
                else:
                    raise AssertionError(awaitable)

        child = os.fork()
        if child == 0:
            asyncio.run(main())
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert output_of(program) == "0\n"


def test_a_program_may_end_while_its_loop_awaits() -> None:
    program = """
        import asyncio, sys, threading, time, accelrt

        work = accelrt.Stream()
        work.launch_host(time.sleep, 0.2)
        event = work.record_event()
        async def wait() -> None:
            await event

        threading.Thread(target=lambda: asyncio.run(wait()), daemon=True).start()
        time.sleep(0.02)
    """
    output_of(program)


def test_a_hundred_requests_have_streams_of_their_own(run: Run) -> None:
    served = list[tuple[int, int]]()

    async def serve(number: int) -> None:
        with accelrt.Stream(f"{KIND}:0", dedicated=True) as own:
            for step in range(10):
                assert accelrt.accelerator.current_stream() == own
                own.launch_host(served.append, (number, step))
                await own
                assert (number, step) in served

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(serve(number))

    run(main())
    assert sorted(served) == [(number, step) for number in range(100) for step in range(10)]
    assert all(
        [step for other, step in served if other == number] == list(range(10))
        for number in range(100)
    )


def test_a_producer_and_a_consumer_await_each_other(run: Run) -> None:
    journal = list[str]()

    async def produce(queue: "asyncio.Queue[accelrt.Event | None]") -> None:
        work = stream()
        for number in range(30):
            work.launch_host(journal.append, f"produced {number}")
            event = work.record_event()
            await queue.put(event)
            await event
        await queue.put(None)

    async def consume(queue: "asyncio.Queue[accelrt.Event | None]") -> None:
        work, number = stream(), 0
        while (event := await queue.get()) is not None:
            work.wait_event(event)
            await work.launch_host(journal.append, f"consumed {number}")
            number += 1

    async def main() -> None:
        queue = asyncio.Queue["accelrt.Event | None"](1)
        await asyncio.gather(produce(queue), consume(queue))

    run(main())
    for number in range(30):
        produced, consumed = (
            journal.index(f"{word} {number}") for word in ("produced", "consumed")
        )
        assert produced < consumed


def test_the_iterator_of_an_await_is_one_use_of_a_generator() -> None:
    work = stream()
    work.synchronize()
    awaiting: Generator[Any, None, None] = work.record_event().__await__()
    work.synchronize()
    assert iter(awaiting) is awaiting
    with pytest.raises(StopIteration) as ended:
        next(awaiting)
    assert ended.value.value is None
    assert sys.getrefcount(awaiting) > 0
