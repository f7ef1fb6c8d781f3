"""`accelrt.testing`: faults that are planned, for users' own tests.

Method: processes of their own, because a process is prepared for faults before its first use of a
device.
"""

import pytest

from processes import output_of

FAULTS = """
import accelrt
from accelrt import testing

def outcome(function):
    try:
        function()
        return "passes"
    except Exception as error:
        return type(error).__name__

def program():
    memory = accelrt.zeros(1 << 20, device="cpu").fill_(1)
    accelrt.cpu.synchronize()
"""


def test_planned_faults_fail_the_calls_of_a_device() -> None:
    code = f"""{FAULTS}
for plan in ("allocate:from 1", "fill:1", "lose cpu:0 after 0", "copy:1", "fill@cpu:1:1"):
    accelrt.accelerator.empty_cache()
    with testing.faults(plan) as planned:
        said = outcome(program)
    outcome(accelrt.cpu.synchronize)
    print(plan, said, planned.num_failed > 0)
"""
    assert output_of(code, ACCELRT_CPU_DEVICES="2").splitlines() == [
        "allocate:from 1 OutOfMemoryError True",
        "fill:1 StreamError True",
        "lose cpu:0 after 0 DeviceLost True",
        "copy:1 passes False",
        "fill@cpu:1:1 passes False",
    ]


def test_the_variable_plans_faults_of_a_whole_program() -> None:
    code = f"{FAULTS}\nprint(outcome(program), outcome(program))"
    said = output_of(code.replace("from accelrt import testing", ""), ACCELRT_FAULTS="fill:1")
    assert said == "StreamError passes\n"


def test_lost_device_skips_later_callables() -> None:
    # No call of the device is made for a callable, so only the stream's failure can skip it.
    code = f"""{FAULTS}
stream, ran = accelrt.Stream("cpu:0"), []
memory = accelrt.empty(1 << 20, device="cpu:0")
with stream, testing.faults("lose cpu:0 after 0"):
    memory.fill_(1)
    outcome(stream.synchronize)
for _ in range(2):
    stream.launch_host(ran.append, 1)
    print(outcome(stream.synchronize), outcome(accelrt.cpu.synchronize), ran)
"""
    assert output_of(code).splitlines() == ["StreamError StreamError []"] * 2


def test_each_fault_fails_every_call_once_and_raises_what_a_program_does_wrong() -> None:
    code = f"""{FAULTS}
print(testing.each_fault(program) > 3)

def careless():
    memory = accelrt.empty(1000, device="cpu")
    written = False
    try:
        memory.fill_(1).fill_(2)
        accelrt.cpu.synchronize()
    except RuntimeError:
        written = True
    assert not written

try:
    testing.each_fault(careless, "fill")
except AssertionError as error:
    print(error.__notes__)
print(testing.each_fault(lambda: None))
"""
    assert output_of(code).splitlines() == ["True", "['with the fault fill:1']", "0"]


# With 19 streams before it, the last of 32 is made while calls fail for the second time.
@pytest.mark.parametrize("num_streams", [0, 19])
def test_each_fault_fails_the_same_calls_however_warm_the_process_is(num_streams: int) -> None:
    # Goal: no call goes unfailed because earlier ones were made for the last time. Method: a
    # program that is the first one of its process, and says what failed.
    code = f"""{FAULTS}
def several():
    stream = accelrt.Stream(device="cpu")
    with stream:
        memory, other = (accelrt.empty(1 << 20) for _ in range(2))
        other.copy_(memory.fill_(7), non_blocking=True)
    try:
        stream.synchronize()
    except RuntimeError as error:
        failed.append(str(error).split()[-1])
        raise

for _ in range({num_streams}):
    accelrt.Stream(device="cpu")
failed = []
first = testing.each_fault(several)
print(failed[-2:], first == testing.each_fault(several))
print(testing.each_fault(several, "allocate") > 0)
"""
    assert output_of(code).splitlines() == ["['fill', 'copy'] True", "True"]


def test_what_a_function_leaves_queued_fails_as_well() -> None:
    # Goal: a function need not wait. Method: under a schedule nothing runs before a wait.
    code = f"""{FAULTS}
def leaves():
    accelrt.empty(1000, device="cpu").fill_(1).fill_(2)

accelrt.empty(1000, device="cpu")
with testing.schedule(1):
    print(testing.each_fault(leaves, "fill"))
"""
    assert output_of(code) == "2\n"


def test_what_a_function_raises_without_a_fault_is_raised() -> None:
    code = f"""{FAULTS}
def wrong():
    raise RuntimeError("its own")
print(outcome(lambda: testing.each_fault(wrong)))
"""
    assert output_of(code) == "RuntimeError\n"


def test_faults_that_come_too_late_or_twice_or_are_malformed_are_refused() -> None:
    code = """
    import accelrt
    accelrt.cpu.synchronize()
    from accelrt import testing
    try:
        testing.faults("fill:1").__enter__()
    except RuntimeError as error:
        print(error)
    """
    assert "before accelrt.testing was imported" in output_of(code)
    code = f"""{FAULTS}
print(outcome(testing.faults("fills:1").__enter__))
with testing.faults("fill:1"):
    print(outcome(testing.faults("fill:1").__enter__))
print(outcome(testing.faults("fill:1").__enter__))
"""
    assert output_of(code) == "ValueError\nValueError\npasses\n"
