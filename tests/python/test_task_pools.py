"""Goal: a pool that is entered inside a running loop serves the asyncio task, and no other one.

Method: tasks take turns inside their pools; each buffer is looked for in what the pools have.
"""

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelrt
from accelrt import accelerator
from kinds import KIND

POOLS: list[accelerator.MemPool] = []
ENTERED: list[accelerator.use_mem_pool] = []
STREAM = accelrt.Stream(f"{KIND}:0", dedicated=True)


@pytest.fixture(autouse=True, scope="module")
def pools() -> Iterator[None]:
    # They go at the end, with the memory that they keep.
    POOLS.extend(accelerator.MemPool() for _ in range(3))
    ENTERED.extend(map(accelerator.use_mem_pool, POOLS))
    yield
    ENTERED.clear()
    POOLS.clear()


def has(pool: accelerator.MemPool, buffer: accelrt.Buffer) -> bool:
    segments, address = pool.snapshot(), buffer.data_ptr()
    return any(block["address"] == address for segment in segments for block in segment["blocks"])


def serving() -> int | None:
    """Return which pool serves here, if one does."""
    buffer = accelrt.empty(512)
    return next((number for number, pool in enumerate(POOLS) if has(pool, buffer)), None)


def leave(number: int) -> None:
    ENTERED[number].__exit__()


def test_tasks_that_take_turns_keep_their_pools() -> None:
    async def use(number: int) -> None:
        for _ in range(10):
            with accelerator.use_mem_pool(POOLS[number]):
                await asyncio.sleep(0)
                assert serving() == number
                with STREAM:
                    await asyncio.sleep(0)
                    buffer = accelrt.empty(512)
                    assert (has(POOLS[number], buffer), buffer.stream) == (True, STREAM)
                await asyncio.sleep(0)
                assert has(POOLS[number], accelrt.zeros(64).clone())
            await asyncio.sleep(0)
            assert serving() is None

    async def main() -> None:
        await asyncio.gather(*map(use, range(3)))

    asyncio.run(main())
    assert serving() is None


def test_a_threads_pool_is_below_those_of_its_tasks() -> None:
    async def use(number: int) -> None:
        assert serving() == 0
        with ENTERED[number]:
            await asyncio.sleep(0)
            assert serving() == number
        assert serving() == 0

    async def main() -> None:
        await asyncio.gather(use(1), use(2))

    with ENTERED[0]:
        asyncio.run(main())
        assert serving() == 0
    assert serving() is None


def test_what_is_created_inside_of_a_pool_keeps_it_and_an_executor_has_none() -> None:
    async def child(is_left: asyncio.Event) -> None:
        await is_left.wait()
        assert serving() == 0
        with ENTERED[1]:
            assert serving() == 1
        assert serving() == 0

    async def main() -> None:
        loop, is_left = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            with ENTERED[0]:
                group.create_task(child(is_left))
                assert await asyncio.to_thread(serving) == 0
                assert await loop.run_in_executor(None, serving) is None
                assert await STREAM.launch_host(serving) is None
            assert serving() is None
            is_left.set()

    asyncio.run(main())


def test_pools_that_are_left_out_of_order_serve_while_they_are_open() -> None:
    async def main() -> None:
        for number in (0, 1, 0):
            ENTERED[number].__enter__()
        leave(1)
        assert serving() == 0
        leave(0)
        assert serving() == 0
        leave(0)
        assert serving() is None
        with pytest.raises(RuntimeError, match="Memory pool context stack is empty"):
            leave(0)

    asyncio.run(main())


def test_a_stream_that_is_set_inside_of_a_pool_ends_with_it() -> None:
    default = accelerator.current_stream()

    async def main() -> None:
        with ENTERED[0]:
            accelerator.set_stream(STREAM)
            await asyncio.sleep(0)
            assert (accelerator.current_stream(), serving()) == (STREAM, 0)
        assert (accelerator.current_stream(), serving()) == (default, None)

    asyncio.run(main())


def test_a_pool_that_another_thread_leaves_changes_nothing_there() -> None:
    seen = list[int | None]()

    def act() -> None:
        with ENTERED[1]:
            leave(0)  # of the task
            seen.append(serving())

    async def main() -> None:
        with ENTERED[2]:
            ENTERED[0].__enter__()
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
            assert (seen, serving()) == ([1], 0)
            leave(0)
            assert serving() == 2

    asyncio.run(main())


def test_the_cache_goes_back_where_the_task_is_inside_of_no_pool() -> None:
    # Each call follows a turn of the other task: what it did last is not what counts.
    changes = list[int]()

    def cache_and_empty() -> None:
        before = accelerator.memory_reserved()
        accelerator.empty_cache()
        changes.append(accelerator.memory_reserved() - before)

    async def stay(is_inside: asyncio.Event, is_left: asyncio.Event) -> None:
        with ENTERED[0]:
            assert serving() == 0
            is_inside.set()
            await is_left.wait()
            cache_and_empty()

    async def main() -> None:
        is_inside, is_left = asyncio.Event(), asyncio.Event()
        accelrt.empty(32 << 20).release()
        accelerator.synchronize()
        staying = asyncio.create_task(stay(is_inside, is_left))
        await is_inside.wait()
        cache_and_empty()
        accelrt.empty(32 << 20).release()
        accelerator.synchronize()
        is_left.set()
        await staying

    asyncio.run(main())
    assert changes[0] <= -(32 << 20)
    assert changes[1] == 0


def test_a_pool_gives_its_memory_back_when_no_task_is_inside_any_more() -> None:
    accelerator.synchronize()
    accelerator.empty_cache()
    reserved = accelerator.memory_reserved()

    async def main() -> None:
        with accelerator.use_mem_pool(accelerator.MemPool()):
            accelrt.empty(32 << 20).release()
            await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    accelerator.synchronize()
    accelerator.empty_cache()  # which takes nothing from a pool that is still there
    assert accelerator.memory_reserved() == reserved


# A program: each task is a list of steps; a number enters or leaves that pool.
STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave", "turn", "child", "thread"]), st.integers(0, 2)),
    max_size=10,
)


def act(stack: list[int], word: str, number: int) -> None:
    """Enter or leave a pool, in the model and in the context that runs."""
    if word == "enter":
        ENTERED[number].__enter__()
        stack.append(number)
    elif word == "leave" and number in stack:
        leave(number)
        del stack[len(stack) - 1 - stack[::-1].index(number)]
    assert serving() == innermost(stack)


def innermost(stack: list[int]) -> int | None:
    return stack[-1] if stack else None


@given(st.lists(STEPS, min_size=3, max_size=3))
def test_random_programs_of_tasks_have_the_models_pools(
    programs: list[list[tuple[str, int]]],
) -> None:
    left = [9]  # how many tasks a program creates at most

    async def run(stack: list[int], steps: list[tuple[str, int]], group: asyncio.TaskGroup) -> None:
        for word, number in steps:
            if word == "turn":
                await asyncio.sleep(0)
            elif word == "thread":
                assert await asyncio.to_thread(serving) == innermost(stack)
            elif word == "child" and left[0] > 0:
                left[0] -= 1
                group.create_task(run(list(stack), programs[number], group))
            act(stack, word, number)
        while stack:
            leave(stack.pop())

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for steps in programs:
                group.create_task(run([], steps, group))
        assert serving() is None

    asyncio.run(main())
