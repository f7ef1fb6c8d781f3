"""Processes: forks, ends, schedules.

Goal: a program that uses the device forks, ends and repeats as programs do. Method: small programs
of their own.
"""

import subprocess
import sys


def _run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": "", "ACCELRT_CPU_DEVICES": "2", **environment}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=variables, timeout=300
    )


def test_a_forked_child_is_refused_and_its_parent_goes_on() -> None:
    program = """
import os, torch
ones = torch.ones(3, device="accelrt")
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    try:
        torch.ones(3, device="accelrt")
    except RuntimeError as error:
        os.write(writer, str(error).encode())
    os._exit(0)
os.waitpid(child, 0)
print(os.read(reader, 1000).decode())
print(ones.sum().item())
"""
    done = _run(program)
    assert done.returncode == 0, done.stderr
    text, total = done.stdout.strip().rsplit("\n", 1)
    assert "fork" in text
    assert total == "3.0"


def test_init_in_forked_child_raises() -> None:
    program = """
import os, torch
torch.ones(3, device="accelrt")
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    try:
        torch.accelrt.init()
    except RuntimeError as error:
        os.write(writer, str(error).encode())
    os._exit(0)
os.waitpid(child, 0)
os.close(writer)
print(os.read(reader, 1000).decode())
torch.accelrt.init()
"""
    done = _run(program)
    assert done.returncode == 0, done.stderr
    assert "fork" in done.stdout


def test_a_child_of_a_process_that_has_not_used_the_device_may() -> None:
    program = """
import os, torch
child = os.fork()
print(torch.ones(3, device="accelrt").sum().item(), flush=True)
if child:
    os.waitpid(child, 0)
else:
    os._exit(0)
"""
    done = _run(program)
    assert done.stdout == "3.0\n3.0\n", done.stderr


def test_a_program_may_end_with_work_in_its_streams() -> None:
    program = """
import torch
tensor = torch.ones(500, 500, device="accelrt")
for _ in range(20):
    tensor = tensor @ tensor / 500
print("end")
"""
    done = _run(program)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_loaders_workers_are_forked_beside_a_used_device() -> None:
    program = """
import torch
ones = torch.ones(2, device="accelrt")
data = torch.utils.data.TensorDataset(torch.arange(8.0).view(4, 2))
loader = torch.utils.data.DataLoader(data, 2, num_workers=1, multiprocessing_context="fork")
print(sum((batch.to("accelrt") * ones).sum().item() for (batch,) in loader))
"""
    done = _run(program)
    assert done.stdout == "28.0\n", done.stderr


def test_a_schedule_repeats_a_program_and_changes_no_result() -> None:
    program = """
import torch
from torch import nn
torch.manual_seed(1)
torch.set_num_threads(1)
torch.accelrt.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("accelrt")
side, rows = torch.Stream("accelrt"), torch.linspace(0, 1, 12).view(3, 4).to("accelrt")
side.wait_stream(torch.accelerator.current_stream())
with side:
    model(rows).square().sum().backward()
torch.accelerator.current_stream().wait_stream(side)
print([parameter.grad.sum().item() for parameter in model.parameters()])
"""
    plain = _run(program)
    assert plain.returncode == 0, plain.stderr
    for schedule in ("seed:1", "seed:2", "seed:3,strategy:invert"):
        done = _run(program, ACCELRT_CPU_SCHEDULE=schedule)
        assert done.stdout == plain.stdout, (schedule, done.stderr)
