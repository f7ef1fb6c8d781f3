"""What accelrt shows of a program of torch: operators by name, their order, their memory.

Goal: profiles, races and failures name operators, not functions of C++. Method: a short program
under each tool.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import accelrt
from gates import Gate


def test_a_profile_has_the_operators_by_name() -> None:
    rows = torch.ones(8, 8, device="accelrt")
    torch.accelerator.synchronize()
    with accelrt.profiler.profile() as profile:
        torch.softmax(rows @ rows, 1)
        torch.accelerator.synchronize()
    names = [row.key for row in profile.key_averages()]
    assert "aten::mm" in names
    assert "aten::_softmax" in names


def test_a_missing_order_of_two_streams_is_reported_with_both_operators() -> None:
    side = torch.Stream("accelrt")
    with accelrt.sanitizer.watch() as report:
        with Gate():  # what is over when the next task comes is in order
            rows = torch.ones(64, device="accelrt")
            with side:
                rows.mul_(2)  # which does not wait for the fill
        torch.accelerator.synchronize()
    (finding,) = report.findings
    assert finding.kind == "race"
    assert finding.first.name == "aten::fill_.Scalar"
    assert finding.second.name == "aten::mul_.Tensor"
    assert "wait_stream" in finding.fix
    assert {finding.first.file, finding.second.file} == {__file__}
    assert finding.first.line == finding.second.line - 2


def test_a_race_on_memory_that_is_older_than_the_watch_is_reported() -> None:
    side, weights = torch.Stream("accelrt"), torch.ones(64, device="accelrt")
    torch.accelerator.synchronize()
    with accelrt.sanitizer.watch() as report:
        with Gate():
            weights.add_(1)
            with side:
                weights.mul_(2)
        torch.accelerator.synchronize()
    assert [finding.kind for finding in report.findings] == ["race"]


def test_a_watch_that_raises_does_so_at_the_second_use() -> None:
    side = torch.Stream("accelrt")
    with accelrt.sanitizer.watch(action="raise"), Gate():
        rows = torch.ones(64, device="accelrt")
        with side, pytest.raises(accelrt.sanitizer.SanitizerError, match=r"aten::mul_\.Tensor"):
            rows.mul_(2)
        torch.accelerator.current_stream().wait_stream(side)
        rows.add_(1)  # and goes on
    torch.accelerator.synchronize()


def test_a_watch_that_raises_does_so_in_a_backward_pass() -> None:
    side = torch.Stream("accelrt")
    rows = torch.ones(64, device="accelrt", requires_grad=True)
    with accelrt.sanitizer.watch(action="raise"), Gate():
        scale = torch.full((64,), 2.0, device="accelrt")
        loss = (rows * scale).sum()
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            scale.data.mul_(3)  # which the backward pass reads, on the other stream
        with pytest.raises(accelrt.sanitizer.SanitizerError, match=r"aten::mul\.Tensor"):
            loss.backward()
    torch.accelerator.synchronize()
    side.synchronize()


def test_equal_races_of_backward_passes_are_one_that_is_counted() -> None:
    side = torch.Stream("accelrt")
    with accelrt.sanitizer.watch() as report:
        for _ in range(3):
            with Gate():
                rows = torch.ones(64, device="accelrt", requires_grad=True)
                scale = torch.full((64,), 2.0, device="accelrt")
                loss = (rows * scale).sum()
                side.wait_stream(torch.accelerator.current_stream())
                with side:
                    scale.data.mul_(3)
                loss.backward()
                scale.record_stream(side)
            torch.accelerator.synchronize()
            side.synchronize()
    (race,) = [finding for finding in report.findings if finding.second.name == "aten::mul.Tensor"]
    assert race.count == 3


RAISING = """
import torch
rows, side = torch.ones(1000, device="accelrt"), torch.Stream("accelrt")
with side:
    rows.add_(1)
print("not raised")
"""


def test_the_environment_makes_a_watch_raise() -> None:
    command = [sys.executable, "-c", RAISING]
    variables = {**os.environ, "ACCELRT_SANITIZER": "raise"}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=variables, timeout=300
    )
    assert done.returncode == 1
    assert "SanitizerError: race" in done.stderr, done.stderr
    assert "not raised" not in done.stdout


def test_statistics_that_a_batch_norm_writes_are_part_of_the_order(seed: int) -> None:
    torch.manual_seed(seed)
    side = torch.Stream("accelrt")
    for is_training in (True, False):
        with accelrt.sanitizer.watch() as report:
            layer = torch.nn.BatchNorm1d(4).to("accelrt").train(is_training)
            rows = torch.randn(8, 4, device="accelrt")
            torch.accelerator.synchronize()
            with Gate():
                layer(rows)
                with side:
                    layer.running_mean + 1
                    layer.running_var * 2
            torch.accelerator.synchronize()
        names = [(finding.first.name, finding.second.name) for finding in report.findings]
        readers = ["aten::add.Tensor", "aten::mul.Tensor"] if is_training else []
        assert names == [("aten::native_batch_norm", reader) for reader in readers]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # What an operator makes.
        (lambda rows: rows * 2, lambda _, made: made + 1),
        # What stands in a list.
        (lambda rows: rows.mul_(2), lambda rows, _: torch.cat([rows, rows])),
        (lambda rows: torch._foreach_mul_([rows], 2), lambda rows, _: rows + 1),
        # Bytes behind the first ones.
        (lambda rows: rows.mul_(2), lambda rows, _: rows[60:] + 1),
        (lambda rows: rows[60:].mul_(2), lambda rows, _: rows + 1),
        (lambda rows: rows.view(8, 8)[:, 7].mul_(2), lambda rows, _: rows[63] + 1),
    ],
)
def test_a_race_is_found_whatever_holds_the_bytes(
    first: Callable[..., object], second: Callable[..., object]
) -> None:
    side = torch.Stream("accelrt")
    with accelrt.sanitizer.watch() as report:
        rows = torch.ones(64, device="accelrt", dtype=torch.float64)
        torch.accelerator.synchronize()
        with Gate():
            made = first(rows)
            with side:
                second(rows, made)
        torch.accelerator.synchronize()
    assert "race" in [finding.kind for finding in report.findings]


def test_a_tensor_that_dies_before_its_use_on_another_stream_is_reported() -> None:
    side = torch.Stream("accelrt")
    with accelrt.sanitizer.watch() as report:
        with Gate():
            rows = torch.ones(64, device="accelrt")
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                rows.sum()
            del rows
        torch.accelerator.synchronize()
    assert [finding.kind for finding in report.findings] == ["missing-record-stream"]


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
