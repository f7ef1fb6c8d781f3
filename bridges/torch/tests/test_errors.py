"""Errors: what is refused at the call, and what a task finds out later.

Goal: a mistake that the arguments show is raised by the call, as on the CPU; what the data shows
fails the stream, and the next wait raises it with the operator's name. Method: mistakes of both
kinds, compared with the CPU's own text.
"""

import re
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from gates import Gate


@pytest.mark.parametrize(
    "mistake",
    [
        lambda device: torch.zeros(3, device=device) + torch.zeros(4, device=device),
        lambda device: torch.zeros(2, 3, device=device) @ torch.zeros(2, 3, device=device),
        lambda device: torch.zeros(3, device=device).view(2, 2),
        lambda device: torch.zeros(3, device=device).sum(4),
        lambda device: torch.zeros(3, device=device).scatter_(
            0, torch.zeros(2, 2, dtype=torch.long, device=device), 1.0
        ),
        lambda device: torch.zeros(3, device=device, dtype=torch.long).add_(0.5),
        lambda device: torch.linalg.inv(torch.zeros(3, 3, device=device, dtype=torch.half)),
        # Types that kernels lack, which Meta's do not know.
        lambda device: torch.mm(*[torch.ones(2, 2, device=device, dtype=torch.bool)] * 2),
        lambda device: torch.softmax(torch.zeros(3, 4, device=device, dtype=torch.long), 1),
        lambda device: torch.linalg.qr(torch.zeros(3, 3, device=device, dtype=torch.half)),
        lambda device: torch.zeros(3, device=device, dtype=torch.cfloat).sort(),
        lambda device: torch.zeros(3, device=device, dtype=torch.bool).bitwise_left_shift_(1),
        lambda device: torch.zeros(60_000, device=device, dtype=torch.cfloat).erfinv(),
        # Memory that is written and read at other places, which Meta's tensors do not have.
        lambda device: torch.add((x := torch.zeros(4, device=device))[:-1], 1, out=x[1:]),
        lambda device: (x := torch.zeros(4, device=device))[1:].mul_(x[:-1]),
        lambda device: (x := torch.zeros(4, 4, device=device)).add_(x.T),
        lambda device: torch.zeros(1, 4, device=device).expand(3, 4).add_(1),
        lambda device: torch._foreach_add_([(x := torch.zeros(4, device=device))[1:]], [x[:-1]]),
        lambda device: (x := torch.zeros(4, device=device))[1:].copy_(x[:-1]),
        lambda device: torch.zeros(1, 4, device=device).expand(3, 4).copy_(torch.zeros(3, 4)),
        lambda device: torch.zeros(1, 4).expand(3, 4).copy_(torch.zeros(3, 4, device=device)),
        lambda device: (x := torch.arange(4, device=device)).index_fill_(0, x, 0),
        lambda device: (x := torch.arange(4, device=device)).scatter_(0, x, 1),
        lambda device: (x := torch.arange(4, device=device)).index_add_(0, x, x),
        lambda device: torch.gather((x := torch.arange(4, device=device)), 0, x.clone(), out=x),
        lambda device: torch.zeros(1, 4, device=device).logical_or_(
            torch.zeros(3, 4, device=device)
        ),
        # Masks of which the count does not fit the values.
        lambda device: torch.zeros(4, device=device).__setitem__(
            torch.tensor([True, False, True, True], device=device), torch.ones(2, device=device)
        ),
        lambda device: torch.zeros(2, 3, device=device).index_put_(
            (torch.tensor([True, True], device=device), torch.tensor([0, 1, 2], device=device)),
            torch.ones(3, device=device),
        ),
        lambda device: torch.zeros(4, device=device).masked_scatter_(
            torch.ones(4, device=device, dtype=torch.bool), torch.ones(3, device=device)
        ),
        lambda device: torch.cat(
            [torch.zeros(2, 2, device=device), torch.zeros(3, 3, device=device)]
        ),
        # Other arguments that Meta's kernels take and the CPU's do not.
        lambda device: torch.softmax(torch.zeros(3, device=device), 2),
        lambda device: torch.zeros(0, device=device).max(),
        lambda device: torch.zeros(3, device=device).index_fill_(
            0, torch.zeros(1, device=device), 1.0
        ),
        lambda device: torch.multinomial(torch.ones(3, device=device), 5),
        lambda device: torch.randint(5, 2, (3,), device=device),
        lambda device: torch.zeros(3, device=device).uniform_(1, 0),
        lambda device: torch.histc(torch.zeros(3, device=device), 3, min=5, max=3),
        lambda device: functional.conv2d(
            torch.zeros(1, 1, 5, 5, device=device),
            torch.zeros(1, 1, 3, 3, device=device),
            padding=-1,
        ),
        # Numbers, behind a call with others that are right.
        lambda device: (x := torch.arange(3, device=device), x[0] ** 2, x**2, x**-1),
        lambda device: torch.zeros(3, device=device, dtype=torch.int8).fill_(3).fill_(300),
        lambda device: torch.native_dropout(torch.ones(3, device=device), 2.0, True),  # noqa: FBT003 - of torch
    ],
)
def test_a_mistake_in_the_arguments_is_raised_by_the_call(mistake: object) -> None:
    with pytest.raises((RuntimeError, IndexError, TypeError)) as there:
        mistake("cpu")  # type: ignore[operator]
    with pytest.raises(type(there.value)) as here:
        mistake("accelrt")  # type: ignore[operator]
    assert str(here.value) == str(there.value)


def test_a_refusal_of_a_type_is_kept_and_other_types_go_on() -> None:
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
            torch.mm(*[torch.ones(2, 2, device="accelrt", dtype=torch.bool)] * 2)
    assert torch.mm(*[torch.ones(2, 2, device="accelrt")] * 2).tolist() == [[2.0] * 2] * 2


def test_a_refusal_of_an_argument_does_not_reach_calls_without_it() -> None:
    image, kernel = (
        torch.ones(1, 1, 5, 5, device="accelrt"),
        torch.ones(1, 1, 3, 3, device="accelrt"),
    )
    with pytest.raises(RuntimeError, match="negative padding is not supported"):
        functional.conv2d(image, kernel, padding=-1)
    assert functional.conv2d(image, kernel).sum().item() == 81
    with pytest.raises(RuntimeError, match="negative values for beta"):
        functional.smooth_l1_loss(kernel, kernel, beta=-1.0)
    assert functional.smooth_l1_loss(kernel, kernel).item() == 0


def test_graphs_and_collectives_are_refused_by_the_devices_name() -> None:
    with pytest.raises(RuntimeError, match="Graph is not supported on device type: accelrt"):
        torch.accelerator.Graph()
    with pytest.raises(ValueError, match=r"accelerator accelrt .*communication backend"):
        torch.distributed.init_process_group(
            rank=0, world_size=1, store=torch.distributed.HashStore()
        )
    model = torch.nn.Linear(2, 2).to("accelrt")
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    try:
        with pytest.raises(RuntimeError, match=r"backend type .* device type accelrt"):
            torch.nn.parallel.DistributedDataParallel(model)
    finally:
        torch.distributed.destroy_process_group()


def test_tensors_of_two_devices_are_refused() -> None:
    here, there = torch.ones(3, device="accelrt:0"), torch.ones(3, device="accelrt:1")
    with pytest.raises(RuntimeError, match="at least two devices, accelrt:0 and accelrt:1"):
        torch.mm(here.view(1, 3), there.view(3, 1))
    with pytest.raises(RuntimeError, match="at least two devices, accelrt:0 and cpu"):
        here + torch.ones(3)


@pytest.mark.parametrize(
    "write",
    [
        lambda ours: torch.tensor(0.0).add_(ours),
        lambda ours: torch.add(ours, 1, out=torch.tensor(0.0)),
        lambda ours: torch._foreach_add_([torch.tensor(0.0)], [ours]),
        lambda ours: torch.zeros(3).__setitem__(ours.long().view(1), 1.0),
        lambda ours: torch.zeros(3)[ours.long().view(1)],
    ],
)
def test_a_tensor_of_the_host_is_not_written_by_a_device(
    write: Callable[[torch.Tensor], object],
) -> None:
    with pytest.raises(RuntimeError, match="at least two devices, accelrt:1 and cpu"):
        write(torch.ones((), device="accelrt:1"))


def test_values_of_the_host_are_refused() -> None:
    x, index = torch.zeros(4, device="accelrt"), torch.tensor([0, 2])
    for values in (torch.ones(2), torch.ones(1)):
        with pytest.raises(RuntimeError, match="at least two devices, accelrt:0 and cpu"):
            x.index_put_((index,), values)
    x.index_put_((index,), torch.tensor(5.0))
    assert x.tolist() == [5, 0, 5, 0]


def test_mask_with_one_value_does_not_wait() -> None:
    x, rows = torch.zeros(4, device="accelrt"), torch.zeros(4, 2, device="accelrt")
    mask = torch.tensor([True, False, True, True], device="accelrt")
    row = torch.tensor([1.0, 2.0], device="accelrt")
    torch.accelrt.synchronize()
    torch.accelrt.clear_sync_report()
    with Gate():
        x[mask] = 3.0
        rows[mask] = row
        x.masked_scatter_(mask, torch.arange(4.0, device="accelrt"))
    assert torch.accelrt.sync_report() == []
    assert x.tolist() == [0, 0, 1, 2]
    assert rows.tolist() == [[1, 2], [0, 0], [1, 2], [1, 2]]


def test_deferred_mask_check_fails_the_stream() -> None:
    x, mask = torch.zeros(4, device="accelrt"), torch.ones(4, device="accelrt", dtype=torch.bool)
    torch.accelrt.defer_mask_checks()
    try:
        with Gate():
            x[mask] = torch.ones(3, device="accelrt")
        with pytest.raises(torch.AcceleratorError, match="shape mismatch"):
            torch.accelrt.synchronize()
    finally:
        torch.accelrt.defer_mask_checks(enabled=False)
    x[mask] = torch.ones(4, device="accelrt")
    assert x.tolist() == [1] * 4


def test_a_number_of_the_host_goes_with_every_device() -> None:
    number = torch.tensor(2.0)
    with Gate():
        result = torch.ones(3, device="accelrt") * number
        number.fill_(100)  # the task has a copy
    assert result.tolist() == [2.0] * 3


def test_a_tasks_failure_is_raised_by_the_next_wait_with_its_operator() -> None:
    table = torch.zeros(3, device="accelrt")
    rows = table.index_select(0, torch.tensor([0, 99], device="accelrt"))
    behind = rows + 1
    with pytest.raises(torch.AcceleratorError, match=r"aten::index_select: .*out of range"):
        torch.accelerator.synchronize()
    assert behind.shape == (2,)
    assert (table + 1).tolist() == [1.0] * 3  # the stream goes on


def test_a_failure_does_not_reach_other_streams() -> None:
    other, table = torch.Stream("accelrt"), torch.zeros(3, device="accelrt")
    torch.accelerator.synchronize()
    with other:
        table.index_select(0, torch.tensor([99], device="accelrt"))
    assert (table + 1).tolist() == [1.0] * 3
    with pytest.raises(torch.AcceleratorError, match="index_select"):
        other.synchronize()


def test_a_failure_has_the_line_of_its_call_while_a_history_is_on() -> None:
    rows = torch.zeros(3, device="accelrt")
    torch.accelrt.memory._record_memory_history()  # noqa: SLF001 - torch's name
    try:
        rows.index_select(0, torch.tensor([99], device="accelrt"))
        with pytest.raises(torch.AcceleratorError) as raised:
            torch.accelerator.synchronize()
    finally:
        torch.accelrt.memory._record_memory_history(None)  # noqa: SLF001 - torch's name
    assert re.search(
        r"aten::index_select at .*test_errors\.py:\d+: .*out of range", str(raised.value)
    )


def test_the_texts_of_failures_have_no_frames_of_torch() -> None:
    torch.zeros(3, device="accelrt").index_select(0, torch.tensor([99], device="accelrt"))
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accelerator.synchronize()
    assert "frame #" not in str(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3, device="accelrt").to_sparse(),
        lambda: torch.eye(3).to_sparse().to("accelrt"),
        lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), device="accelrt"),
        lambda: torch.empty(3, device="accelrt", layout=torch.sparse_coo),
        lambda: torch.nested.nested_tensor([torch.ones(2, device="accelrt")]) + 1,
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8).to("accelrt"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of what torch plans with these
def test_layouts_that_are_not_strided_are_refused_by_name(make: Callable[[], object]) -> None:
    with pytest.raises(NotImplementedError, match="accelrt has strided tensors alone"):
        make()


def test_an_out_of_another_size_is_resized_with_the_warning_of_the_cpu() -> None:
    ones, empty = torch.ones(4, device="accelrt"), torch.empty(0, device="accelrt")
    torch.add(ones, ones, out=empty)
    assert empty.tolist() == [2.0] * 4
    wrong = torch.empty(9, device="accelrt")
    with pytest.warns(UserWarning, match="resized"):
        torch.add(ones, ones, out=wrong)
    assert wrong.tolist() == [2.0] * 4


def test_quantized_tensors_are_refused_by_what_makes_them() -> None:
    with pytest.raises(NotImplementedError, match="no operator aten::quantize_per_tensor"):
        torch.quantize_per_tensor(torch.ones(3, device="accelrt"), 0.1, 0, torch.qint8)


def test_a_wait_that_raises_is_in_the_report() -> None:
    rows = torch.zeros(3, device="accelrt")
    total = rows.index_select(0, torch.tensor([99], device="accelrt")).sum()
    with pytest.raises(torch.AcceleratorError, match="out of range"):
        total.item()
    (row,) = torch.accelrt.sync_report()
    assert (row.operator, row.file) == ("aten::_local_scalar_dense", __file__)


def test_failures_have_no_lines_when_the_history_is_off_again() -> None:
    rows = torch.zeros(3, device="accelrt")
    torch.accelrt.memory._record_memory_history()  # noqa: SLF001 - torch's name
    torch.accelrt.memory._record_memory_history(None)  # noqa: SLF001 - torch's name
    rows.index_select(0, torch.tensor([99], device="accelrt"))
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accelerator.synchronize()
    assert "test_errors.py" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:An output")  # Meta's, which does not see that it is an argument
def test_an_argument_that_is_the_output_keeps_its_shape() -> None:
    texts = []
    for device in ("cpu", "accelrt"):
        small, large = torch.zeros(4, device=device), torch.ones(3, 4, device=device)
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape") as raised:
            torch.add(small, large, out=small)
        assert small.tolist() == [0] * 4
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
