"""Exception classes, malformed settings, and that a wrong input is told what is right.

Method: settings are read once a process, so each malformed one has a process of its own.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

import accelrt
from processes import output_of, run

CLASSES = [accelrt.DeviceLost, accelrt.OutOfMemoryError, accelrt.StreamError]

BYTES = "a number of bytes from 1 to 9223372036854775807"
KINDS = "cpu, cuda or xpu, or the name of a kind that is registered"
MALFORMED = [
    ("ACCELRT_ACCELERATOR", "tpu", KINDS),
    ("ACCELRT_ACCELERATOR", "null", KINDS),
    ("ACCELRT_CPU_DEVICES", "0", "a whole number from 1 to 128"),
    ("ACCELRT_CPU_DEVICES", "129", "a whole number from 1 to 128"),
    ("ACCELRT_CPU_DEVICES", "two", "a whole number from 1 to 128"),
    ("ACCELRT_CPU_THREADS", "-1", "a whole number from 1 to 1024"),
    ("ACCELRT_CPU_THREADS", "1025", "a whole number from 1 to 1024"),
    ("ACCELRT_CPU_MEMORY", "4GB", f"{BYTES}, as 16777216, 256M or 8GiB"),
    ("ACCELRT_EXIT_MS", "1.5", "a number of milliseconds from 0 to 86400000"),
    ("ACCELRT_STREAM_TASKS", "63", "a number of tasks from 64 to 18446744073709551615"),
    ("ACCELRT_STREAM_TASKS", f"{2**64}", "a number of tasks from 64 to 18446744073709551615"),
    ("ACCELRT_HOST_THREADS", "0", "a whole number from 1 to 1024"),
    ("ACCELRT_TRACEBACKS", "yes", "0 or 1"),
]


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_are_runtime_errors_of_the_package(kind: type[Exception]) -> None:
    assert issubclass(kind, RuntimeError)
    assert kind.__module__ == "accelrt"
    assert getattr(accelrt, kind.__name__) is kind
    assert kind.__doc__


@pytest.mark.parametrize(("name", "value", "allowed"), MALFORMED)
def test_a_malformed_setting_is_told_by_each_call_and_not_by_the_import(
    name: str, value: str, allowed: str
) -> None:
    code = """
        import accelrt
        from children import outcome

        for call in (accelrt.Stream, accelrt.accelerator.device_count, accelrt.Event):
            print(outcome(call))
    """
    expected = f'ValueError: {name}="{value}" is not valid: allowed is {allowed}\n'
    assert output_of(code, **{name: value}) == expected * 3


def test_a_setting_may_be_mended_before_the_first_call_that_works() -> None:
    code = """
        import os
        import accelrt
        from children import outcome

        print(outcome(accelrt.accelerator.device_count))
        os.environ["ACCELRT_CPU_DEVICES"] = "4"
        print(outcome(accelrt.accelerator.device_count))
    """
    first, second = output_of(code, ACCELRT_CPU_DEVICES="many").splitlines()
    assert first.startswith('ValueError: ACCELRT_CPU_DEVICES="many"')
    assert second == "4"


def test_an_accelerator_that_is_not_there_is_told_where_it_is_used() -> None:
    code = """
        import accelrt
        from children import outcome

        for call in (accelrt.Stream, accelrt.accelerator.device_count, accelrt.Event):
            print(outcome(call))
        print(accelrt.cpu.device_count(), outcome(lambda: accelrt.Stream("cpu").device))
    """
    *refused, last = output_of(code, ACCELRT_ACCELERATOR="cuda").splitlines()
    assert len(refused) == 3
    for line in refused:
        assert line.startswith("RuntimeError: No cuda device is available: ")
    assert last == "1 device(type='cpu', index=0)"


def test_settings_have_their_effect() -> None:
    settings = {
        "ACCELRT_CPU_DEVICES": "5",
        "ACCELRT_CPU_MEMORY": "1048576",
        "ACCELRT_ACCELERATOR": "cpu",
    }
    code = "import accelrt as a; print(a.cpu.device_count(), a.cpu.mem_get_info(4)[1])"
    assert output_of(code, **settings) == "5 1048576\n"


# Wrong types on purpose.
untyped: Any = accelrt

WRONG = [
    (lambda: untyped.device(1.5), TypeError, "float", "an accelrt.device, a string"),
    (lambda: untyped.device("gpu:0"), RuntimeError, "gpu", "cpu, cuda, xpu"),
    (lambda: untyped.device("cpu", 128), RuntimeError, "128", "at most 127"),
    (lambda: untyped.device("cpu", 2**70), RuntimeError, str(2**70), "at most 127"),
    (lambda: untyped.Stream("cpu:3"), RuntimeError, "cpu:3", "indices 0 to 2"),
    (lambda: untyped.Stream(priority="high"), TypeError, "str", "priority must be an integer"),
    (lambda: untyped.Stream(priority=True), TypeError, "bool", "priority must be an integer"),
    (lambda: untyped.Stream(dedicated=1), TypeError, "int", "dedicated must be True or False"),
    (lambda: untyped.Stream(colour=1), TypeError, "colour", "Stream(device=None, priority=0, *"),
    (lambda: untyped.Stream(stream_id=1), TypeError, "device_index", "Stream(stream_id, "),
    (lambda: untyped.Stream(0, device=0), TypeError, "device comes twice", "Stream(device=None"),
    (lambda: untyped.Event(True, enable_timing=True), TypeError, "twice", "Event(enable_timing"),
    (lambda: untyped.Stream(1, 2, 3, 4), TypeError, "too many", "Stream(stream_id, device_index"),
    (lambda: untyped.Stream(0, 0, 0, priority=1), TypeError, "priority", "Stream(stream_id, "),
    (lambda: untyped.Stream(1.5, 0, 0), TypeError, "float", "stream_id must be an integer"),
    (lambda: untyped.Stream(0, "0", 0), TypeError, "str", "device_index must be an integer"),
    (lambda: untyped.Stream(0, 0, None), TypeError, "NoneType", "device_type must be an integer"),
    (lambda: untyped.Stream(0, 300, 0), RuntimeError, "300", "at most 127"),
    (lambda: untyped.Stream(0, 0, 99), RuntimeError, "99", "0 for cpu"),
    (lambda: untyped.Stream(-1, 0, 0), RuntimeError, "-1", "not negative"),
    (lambda: untyped.Event(1.5), TypeError, "float", "an accelrt.device, a string"),
    (lambda: untyped.Event().record(3), TypeError, "int", "an accelrt.Stream"),
    (lambda: untyped.Stream().wait_event("e"), TypeError, "str", "an accelrt.Event"),
    (lambda: untyped.Stream().wait_stream(1), TypeError, "int", "an accelrt.Stream"),
    (lambda: untyped.accelerator.set_stream(None), TypeError, "NoneType", "an accelrt.Stream"),
    (lambda: untyped.accelerator.synchronize(-1), RuntimeError, "-1", "0 to 127"),
    (lambda: untyped.accelerator.synchronize(2**70), RuntimeError, str(2**70), "at most 127"),
    (lambda: untyped.get_device_module(1.5), TypeError, "float", "an accelrt.device, a string"),
]


@pytest.mark.parametrize(("call", "kind", "given", "allowed"), WRONG)
def test_a_wrong_input_is_told_what_was_given_and_what_is_allowed(
    call: Callable[[], object], kind: type[Exception], given: str, allowed: str
) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert type(raised.value) is kind
    message = str(raised.value)
    assert re.search(rf"(?<!\w){re.escape(given)}(?!\w)", message), message
    assert allowed in message


def test_a_malformed_setting_leaves_the_exit_silent() -> None:
    ended = run("-c", "import accelrt", ACCELRT_CPU_DEVICES="0")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
