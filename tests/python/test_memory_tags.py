"""Goal: `memory_tag` names the memory that its thread or asyncio task requests inside of it.

Method: what runs asks which tag applies to it, inside and outside of `with` statements that
threads, asyncio tasks, generators and decorators enter and leave in every order.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Generator, Iterator

import pytest

import accelrt
from accelrt import _core

applying = _core.current_memory_tag


def test_the_innermost_tag_applies_and_the_outer_one_comes_back() -> None:
    assert applying() == ""
    with accelrt.memory_tag("weights"):
        assert applying() == "weights"
        with accelrt.memory_tag("kv cache"):
            assert applying() == "kv cache"
            with accelrt.memory_tag("weights"):
                assert applying() == "weights"
            assert applying() == "kv cache"
        assert applying() == "weights"
    assert applying() == ""


def test_an_exception_leaves_the_tag() -> None:
    with pytest.raises(KeyError), accelrt.memory_tag("weights"):
        raise KeyError
    assert applying() == ""


def test_one_tag_object_serves_several_with_statements_at_once() -> None:
    tag = accelrt.memory_tag("weights")
    with tag, tag:
        assert applying() == "weights"
    assert applying() == ""
    assert repr(tag) == "accelrt.memory_tag('weights')"


def test_a_decorated_function_runs_inside_of_the_tag_each_time() -> None:
    @accelrt.memory_tag("batch")
    def load(depth: int) -> list[str]:
        return [applying(), *(load(depth - 1) if depth else [])]

    assert load(2) == ["batch"] * 3
    assert (applying(), load.__name__) == ("", "load")


def test_a_decorated_generator_and_coroutine_function_run_inside_of_the_tag() -> None:
    @accelrt.memory_tag("batch")
    def generate() -> Iterator[str]:
        yield applying()
        yield applying()

    @accelrt.memory_tag("request")
    async def serve() -> str:
        await asyncio.sleep(0)
        return applying()

    seen = [(tag, applying()) for tag in generate()]
    assert seen == [("batch", "")] * 2

    async def main() -> None:
        assert [await serve(), await asyncio.create_task(serve())] == ["request"] * 2
        assert applying() == ""

    asyncio.run(main())


def test_a_decorated_generator_is_closed_thrown_into_and_sent_to_inside_of_the_tag() -> None:
    seen: list[object] = []

    @accelrt.memory_tag("batch")
    def generate() -> Generator[str, object, str]:
        try:
            seen.append((yield "first"))
            yield "second"
        except KeyError as error:
            seen.append((applying(), error.args))
        try:
            yield "third"
        finally:
            seen.append(applying())
        return "end"

    def whole() -> Generator[str, object, None]:
        seen.append((yield from generate()))

    batches = whole()
    assert (next(batches), batches.send("sent"), batches.throw(KeyError(1))) == (
        "first",
        "second",
        "third",
    )
    assert next(batches, None) is None
    assert seen == ["sent", ("batch", (1,)), "batch", "end"]
    seen.clear()
    closed = generate()
    assert [next(closed), closed.send(2), closed.throw(KeyError(2)), applying()][2:] == [
        "third",
        "",
    ]
    closed.close()
    assert seen == [2, ("batch", (2,)), "batch"]


def test_an_asynchronous_generator_is_refused_as_it_would_keep_the_tag_of_its_caller() -> None:
    async def generate() -> AsyncIterator[str]:
        yield applying()

    with pytest.raises(TypeError, match="decorates no asynchronous generator: use `with` inside"):
        accelrt.memory_tag("batch")(generate)


def test_each_thread_has_its_own_tags_and_a_new_one_has_none() -> None:
    seen: dict[str, str] = {}
    entered = threading.Barrier(2)

    def act() -> None:
        seen["new"] = applying()
        with accelrt.memory_tag("other"):
            entered.wait()
            entered.wait()
            seen["inside"] = applying()

    thread = threading.Thread(target=act)
    with accelrt.memory_tag("weights"):
        thread.start()
        entered.wait()
        assert applying() == "weights"
        entered.wait()
        thread.join()
        assert applying() == "weights"
    assert seen == {"new": "", "inside": "other"}


def test_tasks_that_take_turns_keep_their_tags() -> None:
    async def use(name: str) -> None:
        for _ in range(5):
            with accelrt.memory_tag(name):
                await asyncio.sleep(0)
                assert applying() == name
                with accelrt.memory_tag(f"{name}, inner"):
                    await asyncio.sleep(0)
                    assert applying() == f"{name}, inner"
                await asyncio.sleep(0)
                assert applying() == name
            await asyncio.sleep(0)
            assert applying() == "all requests"

    async def main() -> None:
        await asyncio.gather(use("first"), use("second"))

    with accelrt.memory_tag("all requests"):
        asyncio.run(main())
        assert applying() == "all requests"
    assert applying() == ""


def test_what_is_created_inside_of_a_tag_keeps_it_and_an_executor_has_none() -> None:
    async def child(is_left: asyncio.Event) -> str:
        await is_left.wait()
        return applying()

    async def main() -> None:
        loop, is_left = asyncio.get_running_loop(), asyncio.Event()
        with accelrt.memory_tag("request"):
            task = asyncio.create_task(child(is_left))
            assert await asyncio.to_thread(applying) == "request"
            assert await loop.run_in_executor(None, applying) == ""
            assert await accelrt.Stream().launch_host(applying) == ""
        assert applying() == ""
        is_left.set()
        assert await task == "request"

    asyncio.run(main())


def test_a_callable_that_leaves_a_tag_open_gives_it_to_no_later_one() -> None:
    stream = accelrt.Stream()
    opened = [stream.launch_host(accelrt.memory_tag("left open").__enter__) for _ in range(4)]
    tags = [stream.launch_host(applying).result() for _ in range(4)]
    assert ([handle.result() for handle in opened], tags) == ([None] * 4, [""] * 4)


def test_tags_that_are_left_out_of_order_apply_while_they_are_open() -> None:
    first, second = accelrt.memory_tag("first"), accelrt.memory_tag("second")

    def leave_out_of_order() -> None:
        first.__enter__()
        second.__enter__()
        first.__exit__()
        assert applying() == "second"
        second.__exit__()
        assert applying() == ""
        with pytest.raises(RuntimeError, match=r"Memory tag context stack is empty\."):
            second.__exit__()

    async def main() -> None:
        leave_out_of_order()

    leave_out_of_order()
    asyncio.run(main())


def test_a_suspended_generator_keeps_its_tag_in_what_runs_it_until_it_is_closed() -> None:
    def generate() -> Generator[str, None, None]:
        with accelrt.memory_tag("batch"):
            yield applying()

    with contextlib.closing(generate()) as batches:
        assert next(batches) == "batch"
        with accelrt.memory_tag("step"):
            batches.close()
            assert applying() == "step"
    assert applying() == ""


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="a memory tag must be a str, not int"):
        accelrt.memory_tag(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a memory tag must be a str, not function"):
        accelrt.memory_tag(test_wrong_arguments_are_named)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a memory tag must not be empty"):
        accelrt.memory_tag("")
    with pytest.raises(ValueError, match=r"must be Unicode, and '.ud800' has half of a surrogate"):
        accelrt.memory_tag("\ud800")


def test_tag_of_a_task_precedes_the_tag_of_its_thread() -> None:
    async def main() -> None:
        with accelrt.memory_tag("task"):
            assert applying() == "task"
            await asyncio.sleep(0)
            assert applying() == "task"
        assert applying() == "thread"

    with accelrt.memory_tag("thread"):
        asyncio.run(main())
        assert applying() == "thread"
    assert applying() == ""
