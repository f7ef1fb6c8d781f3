"""Goal: whatever asyncio tasks enter, leave and set, each has what it made current itself.

Method: random programs of tasks, compared with a model that copies a list for each task.
"""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

import accelrt
from accelrt import accelerator
from current_streams import DEFAULT, STREAMS, current, leave

# A program: each task is a list of steps. A number enters that stream, minus a number leaves the
# innermost statement of that stream if there is one, and the words do what they say.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["enter", "leave", "set"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["turn", "thread", "check"]), st.just(0)),
        st.tuples(st.just("child"), st.integers(0, 2)),
    ),
    max_size=14,
)


class Model:
    """What is open in a context: a stack of streams, each with what was set inside of it."""

    def __init__(self, stack: list[list[int]]) -> None:
        self.stack = [list(entry) for entry in stack]

    def current(self) -> accelrt.Stream:
        return STREAMS[self.stack[-1][-1]] if self.stack else DEFAULT

    def act(self, word: str, number: int) -> None:
        """Do a step, in the model and in the context that runs."""
        if word == "enter":
            STREAMS[number].__enter__()
            self.stack.append([number])
        elif word == "leave":
            places = [place for place, entry in enumerate(self.stack) if entry[0] == number]
            if places:
                leave(STREAMS[number])
                del self.stack[places[-1]]
        elif word == "set" and self.stack:  # else it is the thread's
            accelerator.set_stream(STREAMS[number])
            self.stack[-1].append(number)
        assert current() == self.current()


@given(st.lists(STEPS, min_size=3, max_size=3))
def test_random_programs_of_tasks_have_the_models_streams(
    programs: list[list[tuple[str, int]]],
) -> None:
    left = [12]  # how many tasks a program creates at most

    async def run(model: Model, steps: list[tuple[str, int]], group: asyncio.TaskGroup) -> None:
        assert current() == model.current()
        for word, number in steps:
            if word == "turn":
                await asyncio.sleep(0)
            elif word == "thread":
                assert await asyncio.to_thread(current) == model.current()
            elif word == "child" and left[0] > 0:
                left[0] -= 1
                group.create_task(run(Model(model.stack), programs[number], group))
            model.act(word, number)
        while model.stack:
            leave(STREAMS[model.stack.pop()[0]])
            assert current() == model.current()
            await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for steps in programs:
                group.create_task(run(Model([]), steps, group))
        assert current() == DEFAULT

    asyncio.run(main())
