"""`python -m accelrt info`: devices, why others are not there, settings; and the command line."""

import os
import platform
from types import SimpleNamespace

import pytest

import accelrt
from accelrt import _core, cli
from accelrt.cli.terminal import Style
from processes import run


def info(**settings: str) -> list[str]:
    ended = run("-m", "accelrt", "info", **settings)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_info_names_the_build_the_accelerator_and_the_devices() -> None:
    lines = info(ACCELRT_CPU_DEVICES="2", ACCELRT_CPU_MEMORY="1073741824")
    assert lines[0] == f"accelrt {accelrt.__version__}"
    assert "accelerator: cpu" in lines
    devices = [line for line in lines if line.startswith("  cpu:")]
    assert [line.split()[0] for line in devices] == ["cpu:0", "cpu:1"]
    assert all("of 1.0 GiB free" in line for line in devices)


def test_info_says_why_a_kind_is_not_there() -> None:
    lines = info()
    for kind in ("cuda", "xpu"):
        if not any(line.startswith(f"  {kind}:") for line in lines):
            (reason,) = [line for line in lines if line.startswith(f"  {kind} ")]
            assert "none: " in reason


INFO = """\
[1 accelrt 1.2.3]
Python 3.99.0 on somewhere
accelerator: [1 tpu]

[1 devices]
  [32 tpu:0  ] Big; 8 cores; 102 B of 0.1 KiB free; caches unknown; pages 4 KiB, huge none; \
no memory shared with the host
  [32 tpu:1  ] Small; 1 cores; 0 B of 1.5 GiB free; caches 32 KiB, 1024 KiB; pages 64 KiB, \
huge 2048 KiB; memory shared with the host
[33   tpu     not used: Old: too old]
[2   gpu     none: no driver]

[1 settings]
  ACCELRT_SET            [2 5 (default)]
  ACCELRT_ZERO           0
  ACCELRT_EMPTY          [2 default]
  ACCELRT_NONE           [2 default]
  ACCELRT_ALLOC_CONF     [2 policy:native (default)]
  ACCELRT_CPU_MEMORY     [2 103 (default)]
  ACCELRT_CPU_THREADS    [2 4 (default)]
[33   ACCELRT_SETT           ignored: no setting has this name]
[33   ACCELRT_TYPO           ignored: no setting has this name]
"""


def test_info_whole_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = [
        SimpleNamespace(
            name="Big", core_count=8, cache_bytes=[], page_bytes=4096, huge_page_bytes=0
        ),
        SimpleNamespace(
            name="Small",
            core_count=1,
            cache_bytes=[32 << 10, 1 << 20],
            page_bytes=65536,
            huge_page_bytes=2 << 20,
        ),
    ]
    for index, device in enumerate(devices):
        device.has_shared_memory = index == 1
    names = "ACCELRT_ALLOC_CONF", "ACCELRT_CPU_MEMORY", "ACCELRT_CPU_THREADS"
    given = {"ACCELRT_SET": 5, "ACCELRT_ZERO": 0, "ACCELRT_EMPTY": "", "ACCELRT_NONE": None}
    memory = [(102, 103), (0, 3 << 29)]
    answers = {
        "current_accelerator": lambda: "tpu",
        "kind_names": lambda: ["tpu", "gpu"],
        "unavailable_reason": {"gpu": "no driver"}.get,
        "device_count": lambda _: 2,
        "left_out_devices": lambda _: [("Old", "too old")],
        "get_device_properties": lambda _, index: devices[index],
        "get_memory_info": lambda _, index: memory[index],
        "settings": lambda: given | dict.fromkeys(names),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(_core, name, answer)
    for name in [name for name in os.environ if name.startswith("ACCELRT_")]:
        monkeypatch.delenv(name)
    for name, value in (("ZERO", "0"), ("EMPTY", ""), ("TYPO", "1"), ("TEST_X", "1")):
        monkeypatch.setenv(f"ACCELRT_{name}", value)
    for name in ("ACCELRT_SETT", "ACCELRTX", "OTHER_ACCELRT_X"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(accelrt, "__version__", "1.2.3")
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    monkeypatch.setattr(platform, "platform", lambda: "somewhere")
    monkeypatch.setattr(Style, "_marked", lambda _, code, text: f"[{code} {text}]")
    assert cli.main(["info"]) == 0
    assert capsys.readouterr().out == INFO


def test_info_lists_the_settings_in_force() -> None:
    lines = [line.split() for line in info(ACCELRT_CPU_DEVICES="2", ACCELRT_EXIT_MS="5")]
    assert ["ACCELRT_CPU_DEVICES", "2"] in lines
    assert ["ACCELRT_EXIT_MS", "5"] in lines
    cores = accelrt.cpu.get_device_properties().core_count
    assert ["ACCELRT_CPU_THREADS", str(max(2, cores // 2)), "(default)"] in lines
    assert ["ACCELRT_ACCELERATOR", "default"] in lines
    assert ["ACCELRT_ALLOC_CONF", "policy:native", "(default)"] in lines


def test_info_says_of_each_value_whether_it_is_the_default() -> None:
    lines = [line for line in info(ACCELRT_EXIT_MS="5") if line.startswith("  ACCELRT_")]
    given = [line.split()[0] for line in lines if "default" not in line]
    assert given == ["ACCELRT_EXIT_MS"]
    assert len(lines) > len(given) + 10


def test_an_accelerator_that_an_extra_brings_is_named_with_it() -> None:
    settings = {"ACCELRT_ACCELERATOR": "xpu", "ACCELRT_OPENCL_LIBRARY": "/nowhere/libOpenCL.so"}
    ended = run("-m", "accelrt", "demo", **settings)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("accelrt demo: No xpu device is available: ")
    assert "pip install '.[xpu]'" in line


def test_info_shows_the_memory_in_force_in_a_unit_that_fits() -> None:
    lines = info(ACCELRT_CPU_MEMORY="1000")
    assert any("1000 B of 1000 B free" in line or "1.0 KiB of 1.0 KiB" in line for line in lines)
    (memory,) = [line.split() for line in info() if "ACCELRT_CPU_MEMORY" in line]
    assert memory[1:] == [str(accelrt.cpu.mem_get_info()[1]), "(default)"]


def test_info_names_variables_that_nothing_reads() -> None:
    ended = run("-m", "accelrt", "info", ACCELRT_CPU_DEVICE="3", ACCELRT_TEST_MORE="1")
    lines = [line.split(maxsplit=1) for line in ended.stdout.splitlines()]
    assert ["ACCELRT_CPU_DEVICE", "ignored: no setting has this name"] in lines
    assert "ACCELRT_TEST_MORE" not in ended.stdout
    # Every program that uses the runtime is told, once.
    told = "accelrt: ACCELRT_CPU_DEVICE is ignored: no setting has this name\n"
    assert (ended.returncode, ended.stderr) == (0, told)


def test_sizes_of_settings_take_units_and_an_empty_setting_is_none() -> None:
    lines = info(ACCELRT_CPU_MEMORY="256M", ACCELRT_CPU_THREADS="", ACCELRT_ACCELERATOR="")
    settings = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if "ACCELRT_" in line}
    assert settings["ACCELRT_CPU_MEMORY"] == str(256 << 20)
    assert settings["ACCELRT_CPU_THREADS"].endswith("(default)")


def test_the_version_is_told() -> None:
    ended = run("-m", "accelrt", "--version")
    assert (ended.returncode, ended.stdout) == (0, f"accelrt {accelrt.__version__}\n")


def test_info_answers_also_when_the_accelerator_asked_for_is_not_there() -> None:
    lines = info(ACCELRT_ACCELERATOR="cuda")
    (accelerator,) = [line for line in lines if line.startswith("accelerator: ")]
    assert accelerator.startswith("accelerator: none: No cuda device is available: ")
    assert any(line.startswith("  cpu:0") for line in lines)


def test_info_runs_in_this_process_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    assert "cpu:2" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["info", "demo"])
def test_a_malformed_setting_is_one_line_and_status_2(command: str) -> None:
    ended = run("-m", "accelrt", command, ACCELRT_CPU_DEVICES="many")
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"accelrt {command}: ")
    assert "ACCELRT_CPU_DEVICES" in line
    assert "many" in line


def test_a_demo_without_the_accelerator_asked_for_is_one_line_and_status_2() -> None:
    ended = run("-m", "accelrt", "demo", ACCELRT_ACCELERATOR="cuda")
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("accelrt demo: No cuda device is available: ")


@pytest.mark.parametrize(
    "arguments", [[], ["nothing"], ["info", "more"], ["demo", "--in-flight", "0"]]
)
def test_a_wrong_command_line_is_told_what_is_right(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    assert raised.value.code == 2
    assert "usage: python -m accelrt" in capsys.readouterr().err
