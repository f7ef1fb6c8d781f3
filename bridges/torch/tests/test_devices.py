"""Devices, as `torch.accelerator` has them.

Goal: a program that names no kind of device finds accelrt's. Method: what `torch.accelerator` and
`torch.accelrt` say and change, on two devices; programs of their own where the import is concerned.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]


def _run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with these variables, and return what it wrote."""
    variables = {"PATH": "", "ACCELRT_CPU_DEVICES": "2", **environment}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=variables, timeout=300
    )


def test_torch_alone_knows_the_device() -> None:
    done = _run("import torch; print(torch.ones(2, device='accelrt:1').sum().item())")
    assert done.stdout == "2.0\n", done.stderr


def test_the_package_can_be_imported_first() -> None:
    program = "import accelrt_torch, torch; print(torch.accelrt.device_count())"
    for autoload in ("0", "1"):
        done = _run(program, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
        assert done.stdout == "2\n", done.stderr


REFUSED = """
import torch
assert not torch.accelrt.is_available() and torch.accelrt.device_count() == 0
try:
    torch.ones(1, device="accelrt")
except RuntimeError as error:
    print(error)
"""


def test_an_accelerator_that_is_not_there_is_told_at_its_first_use() -> None:
    done = _run(REFUSED, ACCELRT_ACCELERATOR="xpu", ACCELRT_OPENCL_LIBRARY="none")
    assert done.returncode == 0, done.stderr
    assert "No xpu device is available" in done.stdout
    assert "accelrt has no devices for torch: No xpu device" in done.stderr


def test_a_wrong_setting_is_told_where_a_program_asks_whether_there_is_a_device() -> None:
    program = "import torch; print(torch.accelerator.is_available(), torch.accelrt.device_count())"
    done = _run(program, ACCELRT_CPU_DEVICES="two")
    assert done.stdout == "False 0\n", done.stderr
    assert done.stderr.count("accelrt has no devices for torch") == 1, done.stderr
    assert "ACCELRT_CPU_DEVICES" in done.stderr


def test_devices_whose_memory_the_host_cannot_read_are_refused_by_name(tmp_path: Path) -> None:
    library = tmp_path / "libnpu.so"
    command = ["cc", "-shared", "-fPIC", "-pthread", f"-I{ROOT}/include", f"-o{library}"]
    subprocess.run([*command, f"{ROOT}/examples/device/c/npu.c"], check=True)
    done = _run(REFUSED, ACCELRT_ACCELERATOR="npu", ACCELRT_KINDS=f"npu={library}")
    assert done.returncode == 0, done.stderr
    assert "accelrt's accelerator is npu, whose memory the host cannot read" in done.stdout


def test_the_accelerator_is_accelrt() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("accelrt")
    assert torch.accelerator.device_count() == torch.accelrt.device_count() == 4


def test_the_current_device_is_that_of_new_tensors() -> None:
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(1)
    assert torch.ones(1, device="accelrt").device == torch.device("accelrt:1")
    with torch.accelerator.device_index(0):
        assert torch.accelrt.current_device() == 0
        assert torch.empty(1, device="accelrt").device.index == 0
    assert torch.accelrt.current_device() == 1
    with torch.accelrt.device("accelrt:0"):
        assert torch.accelrt.current_device() == 0
    assert torch.accelrt.current_device() == 1


def test_the_device_of_a_tensor_can_be_made_current() -> None:
    tensor = torch.ones(1, device="accelrt:1")
    with torch.accelrt.device_of(tensor):
        assert torch.accelrt.current_device() == 1
    with torch.accelrt.device_of(torch.ones(1)):
        assert torch.accelrt.current_device() == 0


def test_a_device_that_is_not_there_is_refused() -> None:
    text = "no device accelrt:7: there are 4, indices 0 to 3.*ACCELRT_CPU_DEVICES=8"
    with pytest.raises(RuntimeError, match=text):
        torch.ones(1, device="accelrt:7")
    with pytest.raises(RuntimeError, match=text):
        torch.accelerator.set_device_index(7)
    with pytest.raises(ValueError, match="Expected an accelrt device"):
        torch.accelrt.set_device("cpu")


def test_strided_types_are_those_of_the_device() -> None:
    types = torch.accelerator.get_device_capability("accelrt")["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.bool, torch.complex64} <= set(types)
    assert torch.qint8 not in types


def test_a_tensor_says_where_it_is() -> None:
    tensor = torch.arange(3, device="accelrt:1")
    assert tensor.is_accelrt
    assert tensor.get_device() == 1
    assert repr(tensor) == "tensor([0, 1, 2], device='accelrt:1')"
    assert torch.ones(2).accelrt().device == torch.device("accelrt:0")


def test_a_copy_between_devices_is_behind_what_made_the_source() -> None:
    first = torch.full((1000,), 2.0, device="accelrt:0")
    second = first.to("accelrt:1")
    second += 1
    back = second.to("accelrt:0")
    assert torch.equal((first + back).cpu(), torch.full((1000,), 5.0))


def test_a_storage_moves_and_grows_with_its_bytes() -> None:
    tensor = torch.ones(4, device="accelrt")
    tensor.resize_(8)
    tensor[4:] = 2
    assert tensor.tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    storage = tensor.untyped_storage()
    assert storage.device == torch.device("accelrt:0")
    storage.resize_(64)
    assert storage.nbytes() == 64
    assert tensor.tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert storage.cpu().device == torch.device("cpu")
