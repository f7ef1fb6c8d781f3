"""The operators of a ResNet-50 on accelrt, as a table: where the time of a forward pass goes.

The network's weights are random. Run it where `make torch` has installed torch:
`.venv-torch/bin/python examples/torch_profile.py`, with a number of images behind it.
"""

import sys

import torch
from torch import nn

import accelrt


class Bottleneck(nn.Module):  # type: ignore[misc]  # torch is not where types are checked
    """Three convolutions, beside which the input goes on: to a quarter of the channels and back."""

    def __init__(self, taken: int, inside: int, stride: int) -> None:
        """Make the layers; the way beside them is a convolution where the shape changes."""
        super().__init__()
        given = 4 * inside
        self.inside = nn.Sequential(
            nn.Conv2d(taken, inside, 1, bias=False),
            nn.BatchNorm2d(inside),
            nn.ReLU(),
            nn.Conv2d(inside, inside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(inside),
            nn.ReLU(),
            nn.Conv2d(inside, given, 1, bias=False),
            nn.BatchNorm2d(given),
        )
        self.beside: nn.Module = nn.Identity()
        if taken != given or stride != 1:
            convolution = nn.Conv2d(taken, given, 1, stride, bias=False)
            self.beside = nn.Sequential(convolution, nn.BatchNorm2d(given))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the sum of both ways."""
        return torch.relu(self.inside(images) + self.beside(images))


def resnet50() -> nn.Module:
    """Return the network of He, Zhang, Ren and Sun (2015) with 50 layers."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    taken = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(taken, 64 << stage, stride))
            taken = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(taken, 1000))


def main() -> None:
    """Print the table of one pass, behind another one that finds the shapes."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    network = resnet50().to("accelrt").eval()
    images = torch.randn(count, 3, 224, 224, device="accelrt")
    with torch.no_grad():
        network(images)
        torch.accelerator.synchronize()
        torch.accelrt.clear_sync_report()
        with accelrt.profiler.profile() as profile:
            network(images)
            torch.accelerator.synchronize()
    print(profile.key_averages().table())
    print(f"{len(torch.accelrt.sync_report())} operators waited")


if __name__ == "__main__":
    main()
