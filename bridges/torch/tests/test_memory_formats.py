"""The order of results' dimensions: channels last where the CPU's are.

Goal: a result has the CPU's strides and numbers, also where its kernel writes in another order than
torch's Meta says. Method: images with channels last, beside the CPU; kernels that give what they
write an order of their own are called with `out=`, too.
"""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

Images = Callable[[torch.Tensor], torch.Tensor]


def _weights(*sizes: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(sizes).numel()).reshape(sizes)


def _images(*sizes: int) -> torch.Tensor:
    order = torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
    return _weights(*sizes).contiguous(memory_format=order)


def _of_doubles(images: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(images.double(), _weights(6, 4, 3, 3).double().to(images.device))


PLANES: dict[str, Images] = {
    "convolution": lambda x: functional.conv2d(x, _weights(6, 4, 3, 3).to(x.device)),
    "of groups": lambda x: functional.conv2d(x, _weights(4, 1, 3, 3).to(x.device), groups=4),
    "of doubles": _of_doubles,
    "transposed": lambda x: functional.conv_transpose2d(x, _weights(4, 6, 3, 3).to(x.device)),
    "by weights": lambda x: functional.conv2d(x.contiguous(), _images(6, 4, 3, 3).to(x.device)),
    "normalised": lambda x: functional.batch_norm(x, None, None, training=True),
    "pooled": lambda x: functional.max_pool2d(x, 2),
    "shuffled": lambda x: functional.pixel_shuffle(x, 2),
    "channels shuffled": lambda x: functional.channel_shuffle(x, 2),
    "reflected": lambda x: functional.pad(x, (1, 1, 2, 1), mode="reflect"),
    "repeated": lambda x: functional.pad(x, (1, 1, 2, 1), mode="replicate"),
    "rolled": lambda x: x.roll(1, 2),
    "interpolated": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
}
SOLIDS: dict[str, Images] = {
    "convolution": lambda x: functional.conv3d(x, _weights(6, 4, 3, 3, 3).to(x.device)),
    "transposed": lambda x: functional.conv_transpose3d(x, _weights(4, 6, 3, 3, 3).to(x.device)),
    "reflected": lambda x: functional.pad(x, (1,) * 6, mode="reflect"),
    "repeated": lambda x: functional.pad(x, (1,) * 6, mode="replicate"),
    "pooled": lambda x: functional.avg_pool3d(x, 2),
}


def _same(images: torch.Tensor, operator: Images) -> None:
    here, there = images.clone().requires_grad_(), images.to("accelrt").requires_grad_()
    wanted, found = operator(here), operator(there)
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found.cpu(), wanted, rtol=0, atol=1e-4)
    wanted.square().sum().backward()
    found.square().sum().backward()
    assert here.grad is not None
    assert there.grad is not None
    assert there.grad.stride() == here.grad.stride()
    torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=0, atol=1e-2)


@pytest.mark.parametrize("name", PLANES)
def test_results_for_channels_last_have_the_cpus_order(name: str) -> None:
    _same(_images(2, 4, 8, 8), PLANES[name])


@pytest.mark.parametrize("name", SOLIDS)
def test_results_for_solids_with_channels_last_have_the_cpus_order(name: str) -> None:
    _same(_images(2, 4, 5, 6, 7), SOLIDS[name])


@pytest.mark.parametrize("name", ["reflection_pad2d", "replication_pad2d"])
def test_what_out_names_keeps_its_order_where_the_kernel_writes_in_another(name: str) -> None:
    pad = getattr(torch.ops.aten, name).out
    images = _images(2, 4, 8, 8)
    wanted = pad(images, [1, 1, 2, 1], out=torch.empty(0))
    for out in (torch.empty(wanted.shape, device="accelrt"), torch.empty(0, device="accelrt")):
        pad(images.to("accelrt"), [1, 1, 2, 1], out=out)
        assert torch.equal(out.cpu(), wanted)


def test_a_network_with_channels_last_stays_so() -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)
    ).to("accelrt", memory_format=torch.channels_last)
    result = network(_images(2, 3, 9, 9).to("accelrt"))
    assert result.is_contiguous(memory_format=torch.channels_last)
    result.sum().backward()
    for weights in network.parameters():
        assert weights.grad is not None
        assert weights.grad.stride() == weights.stride()


PERMUTED: dict[str, Images] = {
    "abs": torch.abs,
    "complex": lambda x: torch.complex(x, x),
    "polar": lambda x: torch.polar(x, x),
    "logical_not": torch.logical_not,
    "logical_and": lambda x: torch.logical_and(x, x),
    "isinf": torch.isinf,
    "logsigmoid": functional.logsigmoid,
    "rrelu": lambda x: functional.rrelu(x, 0.2, 0.2),
    "abs, out": lambda x: torch.abs(x, out=torch.empty(0, device=x.device)),
    "add, out": lambda x: torch.add(x, 1, out=torch.empty(0, device=x.device)),
}


# Of the large one no probe is made.
@pytest.mark.parametrize("sizes", [(3, 4, 5), (50, 40, 60)])
@pytest.mark.parametrize("name", PERMUTED)
def test_permuted_results_keep_their_order(name: str, sizes: tuple[int, int, int]) -> None:
    if name == "rrelu" and sizes[0] == 50:
        pytest.xfail("a large result of rrelu has the strides of torch's Meta kernel")
    numbers = _weights(*sizes).permute(2, 0, 1)
    wanted, found = PERMUTED[name](numbers), PERMUTED[name](numbers.to("accelrt"))
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found.cpu(), wanted)
