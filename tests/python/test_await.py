"""Goal: events, streams and handles are awaited; the loop runs other tasks meanwhile.

Method: a gate, which a task of the loop opens, keeps the awaited work from being done. Each test
runs on asyncio's own loop and on uvloop's.
"""

import asyncio
import collections.abc
import gc
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest

import accelrt
from gates import Gate, fail
from loops import AWAITABLES, Awaitable, Run, stream, wait_for
from processes import output_of

LONG = 60.0  # far beyond what any of this takes


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
        failing, skipped = work.launch_host(lambda: 1 / 0), work.launch_host(int)
        with pytest.raises(ZeroDivisionError):
            await failing
        with pytest.raises(accelrt.StreamError, match="division by zero"):
            await skipped
        assert await work.launch_host(int) == 0
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


def test_each_await_of_an_event_is_of_its_latest_record(run: Run) -> None:
    async def main() -> None:
        work, event = stream(), accelrt.Event()
        await event  # never recorded: nothing is waited for
        first, record = Gate(work), work.record_event(event)
        waiting = asyncio.ensure_future(record)
        await asyncio.sleep(0)
        second = Gate(work)
        work.record_event(event)
        first.open()
        await asyncio.wait_for(waiting, LONG)  # reached before the second record
        assert not event.query()
        waiting = asyncio.ensure_future(event)
        await asyncio.sleep(0)
        assert not waiting.done()
        second.open()
        await asyncio.wait_for(waiting, LONG)
        await event
        for gate in (first, second):
            gate.close()

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


async def timed(awaitable: Awaitable) -> None:
    async with asyncio.timeout(LONG):
        await awaitable


async def grouped(awaitable: Awaitable) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(wait_for(awaitable))


TOOLS: list[Callable[[Awaitable], collections.abc.Awaitable[object]]] = [
    lambda it: asyncio.wait_for(it, LONG),
    timed,
    asyncio.gather,
    asyncio.shield,
    lambda it: asyncio.wait([asyncio.ensure_future(it)]),
    grouped,
]


@pytest.mark.parametrize("awaitable_of", AWAITABLES)
def test_what_asyncio_has_for_awaits_takes_events_streams_and_handles(
    run: Run, awaitable_of: Callable[[accelrt.Stream], Awaitable]
) -> None:
    async def main() -> None:
        work = stream()
        gate = Gate(work)
        awaitable = awaitable_of(work)
        pending = [asyncio.ensure_future(tool(awaitable)) for tool in TOOLS]
        await asyncio.sleep(0)
        assert not any(waiting.done() for waiting in pending)
        gate.open()
        await asyncio.gather(*pending)
        for tool in TOOLS:  # and what is done
            await tool(awaitable)
        work.synchronize()
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


def test_a_callable_does_not_await_unfinished_work() -> None:
    work, gated = stream(), stream()
    gate = Gate(gated)
    event = gated.record_event()
    with pytest.raises(RuntimeError, match="cannot wait for unfinished work"):
        work.launch_host(lambda: asyncio.run(wait_for(event))).result(LONG)
    gate.open()
    gated.synchronize()
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
