"""Kinds from outside: how they come in, what is said of those that cannot, and the plug-in.

Goal: a library of a stranger is a kind like ours. Method: the example in C, compiled here, in
processes of their own. `make test-python-device` runs the tests of every kind on it.
"""

import pytest

from outside_kind import library
from processes import output_of, run

OUTCOME = """
import accelrt
from children import outcome
"""


def test_the_environment_brings_a_kind_that_is_used_as_ours_are() -> None:
    code = """
        import accelrt
        npu = accelrt.get_device_module("npu")
        print(accelrt.accelerator.current_accelerator(), npu.device_count(), npu.__name__)
        buffer = accelrt.zeros(64, device="npu:2").fill_(7)
        host = bytearray(64)
        buffer.copy_to(host)
        print(set(host), npu.memory_allocated("npu:2"), buffer.stream.device_type)
        view = buffer.view("float32")
        print(view.__dlpack_device__(), accelrt.from_dlpack(view).device)
        print(accelrt._core.settings()["ACCELRT_KINDS"])
    """
    settings = {"ACCELRT_KINDS": f"npu={library()}", "ACCELRT_ACCELERATOR": "npu"}
    lines = output_of(code, **settings).splitlines()
    kinds = settings["ACCELRT_KINDS"]
    assert lines == ["npu 3 accelrt.npu", "{7} 512 64", "(12, 2) npu:2", kinds]


def test_two_kinds_are_loaded_and_dlpack_cannot_tell_them_apart() -> None:
    code = """
        import accelrt
        from children import outcome
        for name in ("npu", "other"):
            print(accelrt.empty(1, device=name).device)
        view = accelrt.zeros(64, device="other").view("float32")
        print(outcome(lambda: accelrt.from_dlpack(view)))
    """
    second = library('NPU_NAME="other"', "NPU_TYPE_CODE=77")
    lines = output_of(code, ACCELRT_KINDS=f"npu={library()}, other={second}").splitlines()
    assert lines[:2] == ["npu:0", "other:0"]
    assert "may be of npu or of other" in lines[2]


def test_a_program_loads_a_kind_before_the_first_use() -> None:
    code = f"""
        import accelrt, pathlib
        from children import outcome
        print(accelrt.load_kind(pathlib.Path({library()!r})))
        print(accelrt.empty(1, device="npu:1").device)
        print(outcome(lambda: accelrt.load_kind({library()!r})))
    """
    name, device, late = output_of(code).splitlines()
    assert (name, device) == ("npu", "npu:1")
    assert late.startswith("RuntimeError: load_kind(")
    assert "comes too late" in late
    assert "ACCELRT_KINDS" in late


@pytest.mark.parametrize(
    ("value", "error", "parts"),
    [
        ("npu=/nowhere/libnpu.so", "RuntimeError", ["/nowhere/libnpu.so", "No such file"]),
        ("npu=libm.so.6", "RuntimeError", ["libm.so.6", "exports no function accelrt_backend_"]),
        ("npu", "ValueError", ['ACCELRT_KINDS="npu" is not valid', "NAME=LIBRARY"]),
        ("=libnpu.so", "ValueError", ["is not valid"]),
        ("tpu={library}", "RuntimeError", ["its kind is npu", "ACCELRT_KINDS calls it tpu"]),
        ("npu={library},npu={library}", "RuntimeError", ["A backend is registered for kind npu"]),
        ("cpu={cpu}", "RuntimeError", ["cpu", "type code 99"]),
        ("low={low}", "RuntimeError", ["low", "64 to 127"]),
    ],
)
def test_what_is_wrong_is_raised_by_the_first_call_that_needs_it(
    value: str, error: str, parts: list[str]
) -> None:
    if "{" in value:
        value = value.format(
            library=library(),
            cpu=library('NPU_NAME="cpu"', "NPU_TYPE_CODE=99"),
            low=library('NPU_NAME="low"', "NPU_TYPE_CODE=20"),
        )
    code = OUTCOME + (
        'print(outcome(lambda: accelrt.device("gpu:0")))\n'
        "print(outcome(accelrt.accelerator.device_count))\n"
    )
    lines = output_of(code, ACCELRT_KINDS=value).splitlines()
    assert lines[0] == lines[1]
    assert lines[0].startswith(f"{error}: ")
    assert all(part in lines[0] for part in parts), lines


def test_an_accelerator_that_no_kind_is_says_what_is_allowed() -> None:
    code = OUTCOME + "print(outcome(accelrt.Stream))\n"
    line = output_of(code, ACCELRT_ACCELERATOR="npu")
    assert line.startswith('ValueError: ACCELRT_ACCELERATOR="npu" is not valid')
    assert "a kind that is registered" in line


def test_the_plug_in_tests_a_kind_and_says_which_promise_is_not_kept() -> None:
    options = ["-m", "pytest", "-c", "/dev/null", "--accelrt-kind", "npu"]
    passed = run(*options, "--accelrt-library", library())
    assert passed.returncode == 0, passed.stdout
    assert "accelrt kind: npu, 3 devices: Example NPU in C" in passed.stdout
    short = library("NPU_FILL_SHORT")
    # In CI pytest compares what differs in full.
    failed = run(*options, "--accelrt-library", short, CI="1")
    assert failed.returncode == 1, failed.stdout
    assert "FAILED" in failed.stdout
    assert "test_tasks_of_one_stream_run_in_order" in failed.stdout
    assert "Failed: byte 1048575 of 1048576 is " in failed.stdout, failed.stdout


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--accelrt-kind", "nosuch"], "--accelrt-kind nosuch: "),
        (["--accelrt-library", "libnpu.so"], "--accelrt-library needs --accelrt-kind"),
        (["--accelrt-kind", "npu", "--accelrt-library", "/nowhere.so"], "No such file"),
        (["--accelrt-kind", "tpu", "--accelrt-library", "{}"], "brings the kind npu, not tpu"),
    ],
)
def test_a_wrong_use_of_the_plug_in_is_told_in_one_line(options: list[str], part: str) -> None:
    given = [option.format(library()) for option in options]
    ended = run("-m", "pytest", "-q", "-c", "/dev/null", *given)
    assert ended.returncode == 4, ended
    assert part in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_the_option_the_plug_in_changes_nothing() -> None:
    ended = run("-m", "pytest", "-q", "-c", "/dev/null", "--collect-only", __file__)
    assert ended.returncode == 0, ended
    assert "_promises" not in ended.stdout
    assert "accelrt kind" not in ended.stdout
    assert "random-0" not in ended.stdout  # no schedule
