"""`torch.nn.DataParallel`: one model on several devices.

Goal: a step on two devices has the numbers of a step on one. Method: results and gradients beside
those of the plain model, and torch's functions for copies between devices.
"""

import pytest
import torch
from torch.nn.parallel import DataParallel, comm


def _model() -> torch.nn.Module:
    torch.manual_seed(3)
    layers = (
        torch.nn.Linear(6, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Linear(8, 3),
    )
    return torch.nn.Sequential(*layers).to("accelrt:0")


@pytest.mark.parametrize("device", ["cpu", "accelrt:0"])
def test_data_parallel_matches_plain_model(device: str) -> None:
    rows = torch.linspace(-1, 1, 60).view(10, 6).to(device)
    plain = _model().eval()
    parallel = DataParallel(_model().eval(), device_ids=[0, 1])
    wanted, found = plain(rows.to("accelrt:0")), parallel(rows)
    assert found.device == torch.device("accelrt:0")
    torch.testing.assert_close(found, wanted)
    wanted.square().sum().backward()
    found.square().sum().backward()
    for theirs, ours in zip(plain.parameters(), parallel.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_data_parallel_uses_all_devices() -> None:
    used = []

    class Notes(torch.nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            used.append(str(rows.device))
            return rows * 2

    rows = torch.arange(8.0).view(8, 1)
    assert DataParallel(Notes())(rows).tolist() == (rows * 2).tolist()
    assert sorted(used) == ["accelrt:0", "accelrt:1", "accelrt:2", "accelrt:3"]


def test_copies_between_devices_match_their_source() -> None:
    rows = torch.arange(12.0).view(4, 3).to("accelrt:1")
    copies = comm.broadcast(rows, devices=[1, 2])
    assert [copy.device.index for copy in copies] == [1, 2]
    assert [copy.tolist() for copy in copies] == [rows.tolist()] * 2
    outs = [torch.empty(4, 3, device=f"accelrt:{index}") for index in (0, 3)]
    comm.broadcast(rows, out=outs)
    assert [out.tolist() for out in outs] == [rows.tolist()] * 2
    parts = comm.scatter(rows, [0, 1], chunk_sizes=[1, 3])
    assert [part.shape[0] for part in parts] == [1, 3]
    assert comm.gather(parts, destination=2).tolist() == rows.tolist()
    assert comm.gather(parts, destination="cpu").device.type == "cpu"
    halves = [torch.empty(2, 3, device=f"accelrt:{index}") for index in (0, 3)]
    comm.scatter(rows, out=halves)
    whole = torch.empty(4, 3, device="accelrt:2")
    assert comm.gather(halves, out=whole).tolist() == rows.tolist()
    (total,) = comm.reduce_add_coalesced([[copies[0]], [copies[1]]], destination=1)
    assert total.tolist() == (rows * 2).tolist()
