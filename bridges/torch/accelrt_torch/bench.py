"""The figures of docs/torch.md, T1 to T5: `python -m accelrt_torch.bench`, or `make bench-torch`.

Each stands beside the CPU's own eager operators in the same run. Method: both are measured in turn,
eleven times, and the medians are compared, so that a machine that is busy for a while is busy for
both. What is measured ends with a synchronise: a call that leaves its work to later gains nothing.
With `--json FILE` before the names the figures are kept, for the table of `make bench`.
"""

import argparse
import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import accelrt

DEVICES = 2
ROUNDS = 11
PASSES = 3  # of ResNet-50 in a profile
OPERATORS = 1000  # of one element, in one measurement

Work = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Figure:
    """One row: ours beside the peer's, in the row's unit, and what else there is to say."""

    name: str
    what: str
    unit: str
    ours: float
    peer: str
    peer_value: float
    wanted: str
    ours_min: float | None = None
    excess_ns: float | None = None
    more: str = ""

    def shown(self) -> str:
        """Return the row as a line."""
        ours, theirs = (f"{value:.2f} {self.unit}" for value in (self.ours, self.peer_value))
        if self.excess_ns is None:
            judged = f"{self.ours / self.peer_value:.3f} x"
        else:
            judged = f"{self.excess_ns / 1e3:+.2f} us"
        text = f"{self.what}: {ours}, {self.peer} {theirs}{self.more}"
        return f"{self.name:12} {text:74} {judged:>9}   {self.wanted}"

    def record(self) -> dict[str, Any]:
        """Return what the table of `make bench` has of it."""
        kept = ("name", "ours", "ours_min", "peer", "excess_ns")
        return {**{key: getattr(self, key) for key in kept}, "peer_ns": self.peer_value}


class Transformer(nn.Module):  # type: ignore[misc] # torch is not where types are checked
    """A small language model: the network of T2, T3 and T4."""

    def __init__(self, width: int, layers: int) -> None:
        """Make the layers, without dropout, so that every device comes to the same numbers."""
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores of each next token."""
        return self.head(self.encoder(self.embedding(tokens)))


class Trainee:
    """A network on one device, with its optimiser and a batch."""

    def __init__(self, device: str, width: int, layers: int, batch: int, length: int) -> None:
        """Make the network of a seed, so that all devices begin with the same one."""
        torch.manual_seed(1)
        self.device = torch.device(device)
        self.model = Transformer(width, layers).to(device)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.tokens = torch.randint(0, 1000, (batch, length + 1)).to(device)

    def backward(self) -> None:
        """Compute the gradients."""
        scores = self.model(self.tokens[:, :-1])
        functional.cross_entropy(scores.flatten(0, 1), self.tokens[:, 1:].flatten()).backward()

    def update(self) -> None:
        """Take the optimiser's step."""
        self.optimiser.step()
        self.optimiser.zero_grad()

    def step(self) -> None:
        """Train on the batch once, to the end."""
        self.backward()
        self.update()
        synchronize(self.device)


def synchronize(device: torch.device) -> None:
    """Wait for a device; the CPU's own operators are over when they return."""
    if device.type == "accelrt":
        torch.accelerator.synchronize(device)


def seconds(work: Work) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def compare(*works: Work) -> list[list[float]]:
    """Return the seconds of each in every round, measured in turn."""
    for work in works:
        work()
    rounds = [[seconds(work) for work in works] for _ in range(ROUNDS)]
    return [list(each) for each in zip(*rounds, strict=True)]


def repeated(operator: Callable[[torch.Tensor], object], device: str) -> Work:
    """Return a loop of calls that ends with a synchronise."""
    tensor = torch.ones(1, 1, device=device)
    where = tensor.device

    def loop() -> None:
        for _ in range(OPERATORS):
            operator(tensor)
        synchronize(where)

    return loop


ONE_ELEMENT: dict[str, Callable[[torch.Tensor], object]] = {
    "add_": lambda tensor: tensor.add_(1),
    "mul": lambda tensor: tensor.mul(tensor),
    "relu": torch.relu,
}
ASKS_META: dict[str, Callable[[torch.Tensor], object]] = {
    "mm": lambda tensor: torch.mm(tensor, tensor),
    "softmax": lambda tensor: torch.softmax(tensor, 1),
    "cat": lambda tensor: torch.cat([tensor, tensor]),
}


def one_element() -> Iterator[Figure]:
    """T1: an operator of one element beyond the CPU's."""
    for operators, limit in ((ONE_ELEMENT, 4), (ASKS_META, 15)):
        for name, operator in operators.items():
            before = torch.accelrt.shape_cache_counts()
            eager, ours = compare(repeated(operator, "cpu"), repeated(operator, "accelrt"))
            after = torch.accelrt.shape_cache_counts()
            hits, misses = (now - then for now, then in zip(after, before, strict=True))
            known = f", {100 * hits / (hits + misses):.2f} % of shapes known" * bool(hits + misses)
            pairs = zip(ours, eager, strict=True)
            ns = 1e9 / OPERATORS
            yield Figure(
                f"T1.{name}",
                "of one element",
                "ns",
                median(ours) * ns,
                "CPU",
                median(eager) * ns,
                f"at most {limit} us more",
                min(ours) * ns,
                median(one - other for one, other in pairs) * ns,
                known,
            )


def set_threads(count: int) -> None:
    """Set how many threads a kernel may use, the CPU's own and a task's."""
    torch.set_num_threads(count)
    torch.accelrt.set_num_threads(count)


def transformer_step() -> Iterator[Figure]:
    """T2: a training step over the CPU's."""
    processors = torch.get_num_threads()
    for count in sorted({processors, 1}, reverse=True):
        set_threads(count)
        for width, wanted in ((256, "at most 1.10 x"), (32, "not judged")):
            shape = (width, 4, 8, 128 * width // 256)
            trainees = [Trainee(device, *shape) for device in ("cpu", "accelrt")]
            eager, ours = compare(*(trainee.step for trainee in trainees))
            name = f"T2.{width}" + ".one" * (count == 1)
            what = f"step, width {width}, {count} threads"
            took = (median(ours) * 1e3, "CPU", median(eager) * 1e3)
            yield Figure(name, what, "ms", *took, wanted, min(ours) * 1e3)
    set_threads(processors)


def shared_step(replicas: list[Trainee]) -> None:
    """Train on each device's part of the batch; every device takes the mean of the gradients."""
    for replica in replicas:
        replica.backward()
    for parameters in zip(*(replica.model.parameters() for replica in replicas), strict=True):
        total = sum(parameter.grad.to(replicas[0].device) for parameter in parameters)
        mean = total / len(parameters)
        for parameter in parameters:
            parameter.grad.copy_(mean, non_blocking=True)
    for replica in replicas:
        replica.update()
    for replica in replicas:
        synchronize(replica.device)


def machine_limit() -> float:
    """Return how much faster two threads of the host are than one, with the CPU's operators."""
    matrices = torch.randn(2, 512, 512)

    def multiply(matrix: torch.Tensor) -> None:
        for _ in range(20):
            matrix @ matrix

    def in_turn() -> None:
        for matrix in matrices:
            multiply(matrix)

    def at_once() -> None:
        threads = [threading.Thread(target=multiply, args=(matrix,)) for matrix in matrices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    one, two = map(median, compare(in_turn, at_once))
    return one / two


def data_parallel() -> Iterator[Figure]:
    """T3: two devices of one thread, each with half of the batch, over one."""
    before = torch.get_num_threads()
    set_threads(1)
    whole = Trainee("accelrt:0", 256, 4, 8, 128)
    halves = [Trainee(f"accelrt:{index}", 256, 4, 4, 128) for index in range(2)]
    one, two = compare(whole.step, lambda: shared_step(halves))
    more = f"; two threads of the host {1 / machine_limit():.2f} x"
    took = (median(two) * 1e3, "one", median(one) * 1e3)
    yield Figure("T3", "two devices", "ms", *took, "at most 0.67 x", min(two) * 1e3, more=more)
    set_threads(before)


def memory_of_a_step() -> Iterator[Figure]:
    """T4: what the allocator reserves for a step over what is alive, at the peaks."""
    torch.accelerator.empty_cache()
    trainee = Trainee("accelrt:0", 256, 4, 8, 128)
    trainee.step()
    trainee.step()
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    for _ in range(3):
        trainee.step()
    stats = torch.accelerator.memory_stats()
    reserved, live = (stats[f"{name}_bytes.all.peak"] for name in ("reserved", "requested"))
    yield Figure(
        "T4", "reserved for a step", "MB", reserved / 1e6, "alive", live / 1e6, "at most 1.02 x"
    )


def total_of_a_profile() -> Iterator[Figure]:
    """T5: the total of the operators' table of a ResNet-50 over that of torch's profiler on CPU."""
    sys.path.append(str(Path(__file__).parents[3] / "examples"))
    try:
        import torch_profile  # noqa: PLC0415 - it is in the repository alone
    except ImportError:
        return
    network = torch_profile.resnet50().eval()
    images = torch.randn(1, 3, 224, 224)

    def theirs_ms(forward: Work) -> float:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            forward()
        return float(sum(row.self_cpu_time_total for row in profile.key_averages())) / 1e3

    def ours_ms(forward: Work) -> float:
        with accelrt.profiler.profile() as profile:
            forward()
            torch.accelerator.synchronize()
        return float(sum(row.self_ms for row in profile.key_averages()))

    totals = []
    before = torch.get_num_threads()
    set_threads(1)
    with torch.no_grad():
        for device, total_ms in (("cpu", theirs_ms), ("accelrt", ours_ms)):
            forward = partial(network.to(device), images.to(device))
            forward()
            totals.append([total_ms(forward) for _ in range(PASSES)])
    set_threads(before)
    theirs, ours = totals
    took = (median(ours), "torch.profiler on CPU", median(theirs))
    yield Figure("T5", "operators of ResNet-50, 1 thread", "ms", *took, "not judged", min(ours))


FIGURES: dict[str, Callable[[], Iterator[Figure]]] = {
    "T1": one_element,
    "T2": transformer_step,
    "T3": data_parallel,
    "T4": memory_of_a_step,
    "T5": total_of_a_profile,
}


def main() -> None:
    """Print the figures that are named, or all, and keep them where that is asked for."""
    if torch.accelrt.device_count() < DEVICES:  # it is too late to change that here
        os.environ["ACCELRT_CPU_DEVICES"] = str(DEVICES)
        command = [sys.executable, "-m", "accelrt_torch.bench", *sys.argv[1:]]
        os.execv(sys.executable, command)  # noqa: S606 - the same program again
    parser = argparse.ArgumentParser(prog="python -m accelrt_torch.bench")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=" ".join(FIGURES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures as records")
    asked = parser.parse_args()
    unknown = [name for name in asked.figures if name not in FIGURES]
    if unknown:
        parser.error(f"no figure is called {unknown[0]!r}: there are {', '.join(FIGURES)}")
    figures = []
    for name in asked.figures or FIGURES:
        for figure in FIGURES[name]():
            print(figure.shown(), flush=True)  # noqa: T201 - a command
            figures.append(figure.record())
    if asked.json:
        asked.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
