"""What accelrt shows of a program of torch: operators by name, their order, their memory.

Goal: profiles, races and failures name operators, not functions of C++. Method: a short program
under each tool.
"""

import subprocess
import sys
from pathlib import Path

import torch

import accelrt


def test_a_profile_has_the_operators_by_name() -> None:
    rows = torch.ones(8, 8, device="accelrt")
    torch.accelerator.synchronize()
    with accelrt.profiler.profile() as profile:
        torch.softmax(rows @ rows, 1)
        torch.accelerator.synchronize()
    names = [row.key for row in profile.key_averages()]
    assert "aten::mm" in names
    assert "aten::_softmax" in names


def test_halves_of_a_tensor_are_no_race() -> None:
    side = torch.Stream("accelrt")
    with accelrt.sanitizer.watch() as report:
        rows = torch.ones(64, device="accelrt")
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            rows[:32].mul_(2)
        rows[32:].mul_(3)
        torch.accelerator.current_stream().wait_stream(side)
        total = rows.sum()
        torch.accelerator.synchronize()
    assert report.findings == []
    assert total.item() == 32 * 5


def test_the_example_shows_the_operators_of_a_network_none_of_which_waited() -> None:
    program = Path(__file__).parents[3] / "examples" / "torch_profile.py"
    command = [sys.executable, str(program), "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "aten::convolution" in done.stdout
    assert done.stdout.endswith("\n0 operators waited\n")
