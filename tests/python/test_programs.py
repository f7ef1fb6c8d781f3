"""Goal: whatever is enqueued, in whatever order, ends as if done one after the other.

Method: `programs` runs random ones on the cpu device beside a sequential model. A program that
fails is shown as a list of steps; `Program().run([...])` with that list repeats it. Since threads
run it, a failure may need several runs to show again.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinds import host_cores
from programs import ACTIONS, Program, Step

NUMBERS = st.integers(0, 7)
STEPS = st.builds(Step, st.sampled_from(ACTIONS), NUMBERS, NUMBERS, NUMBERS)
# Lists without a least size are short; those that fail are made as short as the first sort.
PROGRAMS = st.lists(STEPS, max_size=60) | st.lists(STEPS, min_size=25, max_size=60)


@host_cores
@settings(max_examples=250)
@given(PROGRAMS)
@pytest.mark.accelrt_unordered
def test_any_program_ends_as_its_sequential_model(steps: list[Step]) -> None:
    Program().run(steps)
