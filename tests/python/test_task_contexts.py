"""Goal: what `with` makes current inside a running loop belongs to the asyncio task.

Method: tasks take turns inside their `with` statements and ask what is current.
"""

import asyncio
import contextlib
import contextvars
import copy
import gc
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator

import pytest

import accelrt
from accelrt import accelerator
from current_streams import DEFAULT, STREAMS, current, leave
from gates import Gate
from kinds import KIND, module

LONG = 60.0


@pytest.fixture(autouse=True)
def nothing_stays_current() -> Iterator[None]:
    yield
    assert current() == DEFAULT


def test_tasks_that_take_turns_keep_their_streams() -> None:
    async def use(own: accelrt.Stream) -> None:
        for _ in range(20):
            with own:
                await asyncio.sleep(0)
                assert current() == own
                event = accelrt.Event()
                event.record()
                assert event.device == own.device
                await asyncio.sleep(0)
                assert current() == own
            await asyncio.sleep(0)
            assert current() == DEFAULT

    async def main() -> None:
        await asyncio.gather(*map(use, STREAMS))

    asyncio.run(main())


def test_buffers_are_at_home_on_the_tasks_stream() -> None:
    # A buffer's memory is taken for the current stream, which a thread keeps a hint of. The fill of
    # a task's own stream is behind its gate.
    async def use(own: accelrt.Stream) -> None:
        with own:
            for _ in range(20):
                accelrt.empty(64)
                await asyncio.sleep(0)
                gate = Gate(own)
                assert "pending" in repr(accelrt.zeros(64))
                gate.open()
                await own
                gate.close()

    async def main() -> None:
        await asyncio.gather(*map(use, STREAMS))

    asyncio.run(main())


MAKES: dict[str, Callable[[accelrt.Buffer], accelrt.Buffer]] = {
    "empty": lambda _: accelrt.empty(64),
    "empty on a device": lambda _: accelrt.empty(64, device=f"{KIND}:0"),
    "empty with an alignment": lambda _: accelrt.empty(64, alignment=4096),
    "empty_pinned": lambda _: accelrt.empty_pinned(64),
    "zeros": lambda _: accelrt.zeros(64),
    "clone": lambda source: source.clone(),
    "deepcopy": copy.deepcopy,
}
if module.get_device_properties(0).has_shared_memory:
    MAKES["empty_shared"] = lambda _: accelrt.empty_shared(64)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.accelrt_unordered
def test_whatever_makes_a_buffer_makes_it_on_the_tasks_stream(
    make: Callable[[accelrt.Buffer], accelrt.Buffer],
) -> None:
    # The turns end right before the call: nothing else has looked at what is current.
    source = accelrt.zeros(64)

    async def use(own: accelrt.Stream) -> None:
        with own:
            for _ in range(5):
                await asyncio.sleep(0)
                assert make(source).stream == own
        await asyncio.sleep(0)
        assert make(source).stream == DEFAULT

    async def main() -> None:
        await asyncio.gather(*map(use, STREAMS))

    asyncio.run(main())


@pytest.mark.skipif(module.device_count() < 2, reason="needs two devices")
def test_devices_and_indices_are_the_tasks_own_too() -> None:
    async def use(index: int) -> None:
        for context in (
            accelrt.device(KIND, index),
            accelerator.device_index(index),
            module.device(index),
        ):
            with context:
                await asyncio.sleep(0)
                assert accelerator.current_device_index() == index
                assert accelrt.empty(8).device == accelrt.device(KIND, index)
                assert module.current_stream().device_index == index
            assert accelerator.current_device_index() == 0

    async def main() -> None:
        await asyncio.gather(use(1), use(0), use(1))

    asyncio.run(main())


def test_statements_that_are_left_out_of_order_restore_what_is_open() -> None:
    async def main() -> None:
        first, second, third, _ = STREAMS
        for context in (first, second, third, second):
            context.__enter__()
        leave(second)  # the innermost of the two
        assert current() == third
        leave(first)
        assert current() == third
        leave(third)
        assert current() == second
        leave(second)
        assert current() == DEFAULT

    asyncio.run(main())


def test_a_task_inherits_what_is_current_when_it_is_created_and_keeps_it() -> None:
    first, second, *_ = STREAMS

    async def child(is_left: asyncio.Event) -> None:
        assert current() == first
        await is_left.wait()
        assert current() == first
        with second:
            await asyncio.sleep(0)
            assert current() == second
        assert current() == first

    async def main() -> None:
        is_left = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            with first:
                for _ in range(3):
                    group.create_task(child(is_left))
                await asyncio.sleep(0)
            assert current() == DEFAULT
            is_left.set()
        assert current() == DEFAULT

    asyncio.run(main())


def test_to_thread_has_what_is_current_in_its_task_and_an_executor_its_threads() -> None:
    first, second, *_ = STREAMS

    def inside() -> list[accelrt.Stream]:
        seen = [current()]
        with second:
            seen.append(current())
        return [*seen, current()]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with first:
            assert await asyncio.to_thread(inside) == [first, second, first]
            assert await loop.run_in_executor(None, inside) == [DEFAULT, second, DEFAULT]
            assert current() == first
        assert await asyncio.to_thread(inside) == [DEFAULT, second, DEFAULT]

    asyncio.run(main())


def test_a_statement_that_another_thread_leaves_changes_nothing_there() -> None:
    first, second, *_ = STREAMS

    async def main() -> None:
        with second:
            first.__enter__()
            # A thread of its own, which is inside of the same stream by itself.
            states = list[accelrt.Stream]()

            def act() -> None:
                with first:
                    leave(first)
                    states.append(current())
                    leave(first)
                    states.append(current())
                    first.__enter__()

            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
            assert states == [DEFAULT, DEFAULT]
            assert current() == first
            leave(first)
            assert current() == second

    asyncio.run(main())


def test_a_statement_that_another_task_leaves_changes_neither() -> None:
    first, second, *_ = STREAMS

    async def main() -> None:
        is_entered, is_left = asyncio.Event(), asyncio.Event()

        async def enter() -> None:
            first.__enter__()
            is_entered.set()
            await is_left.wait()
            assert current() == first

        entering = asyncio.create_task(enter())
        await is_entered.wait()
        with second:
            leave(first)
            assert current() == second
        assert current() == DEFAULT
        is_left.set()
        await entering

    asyncio.run(main())


def test_a_copied_context_has_a_list_of_its_own() -> None:
    first, second, *_ = STREAMS

    async def main() -> None:
        with first:
            copied = contextvars.copy_context()
            assert copied.run(current) == first
            copied.run(second.__enter__)
            assert (current(), copied.run(current)) == (first, second)
        assert (current(), copied.run(current)) == (DEFAULT, second)
        copied.run(leave, second)
        assert copied.run(current) == first
        copied.run(leave, first)
        assert copied.run(current) == DEFAULT
        contexts.append(copied)

    contexts = list[contextvars.Context]()
    asyncio.run(main())
    assert contexts[0].run(current) == DEFAULT


def test_a_context_that_was_copied_goes_on_without_a_loop() -> None:
    first, second, *_ = STREAMS
    copies = list[contextvars.Context]()

    async def main() -> None:
        with first:
            copies.append(contextvars.copy_context())

    asyncio.run(main())
    [copied] = copies

    def inside() -> list[accelrt.Stream]:
        with second:
            seen = current()
        return [seen, current()]

    assert copied.run(inside) == [second, first]
    assert current() == DEFAULT
    with second:
        assert copied.run(current) == first
        assert current() == second


def test_a_generator_that_is_suspended_inside_a_with_leaves_its_stream_to_the_task() -> None:
    first, second, *_ = STREAMS

    def numbers() -> Generator[int, None, None]:
        with first:
            yield 1
            yield 2

    async def main() -> None:
        with second:
            generator = numbers()
            next(generator)
            assert current() == first
            await asyncio.sleep(0)
            assert current() == first
            generator.close()
            assert current() == second
            for _ in numbers():
                assert current() == first
            assert current() == second

    async def beside() -> None:
        for _ in range(5):
            assert current() == DEFAULT
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(main(), beside())

    asyncio.run(both())


def test_an_asynchronous_generator_that_is_dropped_leaves_its_stream_to_the_task() -> None:
    first, *_ = STREAMS

    async def numbers() -> AsyncGenerator[int, None]:
        with first:
            yield 1
            yield 2

    async def main() -> None:
        async with contextlib.aclosing(numbers()) as generator:
            async for _ in generator:
                assert current() == first
                break
        assert current() == DEFAULT

    async def forgetful() -> None:
        async for _ in numbers():
            break
        gc.collect()
        for _ in range(3):
            await asyncio.sleep(0)  # the loop closes the generator in a task of its own
        assert current() == first

    async def both() -> None:
        await asyncio.create_task(forgetful())
        assert current() == DEFAULT

    asyncio.run(main())
    asyncio.run(both())


def test_what_a_dead_coroutine_leaves_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = STREAMS

    async def wait() -> None:
        with first:
            await asyncio.sleep(LONG)

    async def main() -> None:
        coroutine = wait()
        coroutine.send(None)
        kept.append(coroutine)

    kept = list[object]()
    context = contextvars.copy_context()
    context.run(asyncio.run, main())
    kept.clear()  # closes the coroutine here, outside of the loop
    gc.collect()
    assert capsys.readouterr().err == ""


def test_what_was_never_entered_is_refused_as_before() -> None:
    first, second, *_ = STREAMS

    async def main() -> None:
        with first, pytest.raises(RuntimeError, match="Stream context stack is empty"):
            leave(second)
        with pytest.raises(RuntimeError, match="Device context stack is empty"):
            leave(accelrt.device(KIND))

    asyncio.run(main())


def test_what_a_thread_made_current_is_below_its_tasks() -> None:
    first, second, third, _ = STREAMS

    async def use(own: accelrt.Stream) -> None:
        assert current() == first
        with own:
            await asyncio.sleep(0)
            assert current() == own
        assert current() == first

    async def main() -> None:
        await asyncio.gather(use(second), use(third))

    with first:
        asyncio.run(main())
        assert current() == first


def test_what_is_set_inside_of_a_with_ends_with_it_and_else_is_the_threads() -> None:
    first, second, third, _ = STREAMS

    async def beside(seen: list[accelrt.Stream]) -> None:
        seen.append(current())

    async def main() -> None:
        seen = list[accelrt.Stream]()
        with first:
            accelerator.set_stream(second)
            assert current() == second
            await asyncio.sleep(0)
            assert current() == second
            with third:
                assert current() == third
            assert current() == second
        assert current() == DEFAULT
        accelerator.set_stream(third)
        await asyncio.create_task(beside(seen))
        assert seen == [third]
        accelerator.set_stream(DEFAULT)

    asyncio.run(main())


def test_what_is_set_behind_a_with_is_that_of_the_tasks_beside_too() -> None:
    first, second, _, _ = STREAMS

    async def beside(is_set: asyncio.Event) -> accelrt.Stream:
        await is_set.wait()
        return current()

    async def main() -> None:
        is_set = asyncio.Event()
        other = asyncio.create_task(beside(is_set))
        with first:
            await asyncio.sleep(0)
        accelerator.set_stream(second)
        is_set.set()
        assert await other == second
        assert current() == second

    asyncio.run(main())
    assert current() == second
    accelerator.set_stream(DEFAULT)


def test_a_threads_with_that_is_left_inside_of_a_tasks_with_is_the_threads() -> None:
    first, second, _, _ = STREAMS

    async def main() -> None:
        with second:
            leave(first)
            assert current() == second
        assert current() == DEFAULT

    first.__enter__()
    asyncio.run(main())
    assert current() == DEFAULT


def test_a_with_between_the_runs_of_a_loop_is_the_threads() -> None:
    # Goal: a task that waits inside its `with` changes nothing for the thread that runs its loop
    # in steps. Method: the thread enters a `with` right behind the task's.
    first, second, _, _ = STREAMS
    goes_on = asyncio.Event()

    async def use() -> None:
        with first:
            await goes_on.wait()
            assert current() == first

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        waiting = loop.create_task(use())
        loop.run_until_complete(asyncio.sleep(0))
        with second:
            assert current() == second
        assert current() == DEFAULT
        goes_on.set()
        loop.run_until_complete(waiting)


@pytest.mark.skipif(module.device_count() < 2, reason="needs two devices")
def test_a_device_index_that_is_set_inside_of_a_with_ends_with_it() -> None:
    index = accelerator.current_device_index

    async def use(own: accelrt.Stream) -> None:
        with own:
            accelerator.set_device_index(1)
            await asyncio.sleep(0)
            assert index() == 1
            with own:
                assert index() == 0
            assert index() == 1
        assert index() == 0

    async def main() -> None:
        await asyncio.gather(*map(use, STREAMS[:2]))
        accelerator.set_device_index(1)
        assert await asyncio.create_task(asyncio.to_thread(index)) == 0  # of another thread
        accelerator.set_device_index(0)

    asyncio.run(main())


def test_a_refused_statement_changes_nothing() -> None:
    first, *_ = STREAMS

    async def main() -> None:
        with first:
            with pytest.raises(RuntimeError), accelrt.device(KIND, 99):
                pass
            assert current() == first
            with pytest.raises(RuntimeError):
                accelerator.set_device_index(99)
            assert current() == first

    asyncio.run(main())


def test_a_callable_of_a_task_has_the_stream_that_calls_it() -> None:
    first, second, *_ = STREAMS

    async def main() -> None:
        with first:
            assert await second.launch_host(current) == second
            assert current() == first
            event = second.record_event()
            seen = asyncio.get_running_loop().create_future()
            loop = asyncio.get_running_loop()

            def note(_event: accelrt.Event) -> None:
                loop.call_soon_threadsafe(seen.set_result, current())

            event.add_done_callback(note)
            assert await seen == DEFAULT

    asyncio.run(main())


def test_a_loop_inside_of_a_callable_has_tasks_of_its_own() -> None:
    first, second, third, _ = STREAMS

    async def use() -> list[accelrt.Stream]:
        seen = [current()]
        with second:
            await asyncio.sleep(0)
            seen.append(current())
        return [*seen, current()]

    async def leave_open() -> accelrt.Stream:
        second.__enter__()
        return current()

    assert first.launch_host(lambda: asyncio.run(use())).result() == [first, second, first]
    for _ in range(10):
        assert first.launch_host(lambda: asyncio.run(leave_open())).result() == second
        assert third.launch_host(current).result() == third


def test_threads_have_loops_beside_each_other() -> None:
    failures = list[BaseException]()

    async def use(own: accelrt.Stream) -> None:
        for _ in range(50):
            with own:
                await asyncio.sleep(0)
                assert current() == own

    async def main(number: int) -> None:
        await asyncio.gather(*(use(STREAMS[(number + it) % 4]) for it in range(4)))

    def run(number: int) -> None:
        try:
            asyncio.run(main(number))
            assert current() == DEFAULT
        except BaseException as error:  # noqa: BLE001  the test raises it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
