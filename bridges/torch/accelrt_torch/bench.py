"""The figures of docs/torch.md, T1 to T4: `python -m accelrt_torch.bench`, or `make bench-torch`.

Each stands beside the CPU's own eager operators in the same run. Method: both are measured in turn,
eleven times, and the medians are compared, so that a machine that is busy for a while is busy for
both. What is measured ends with a synchronise: a call that leaves its work to later gains nothing.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn
from torch.nn import functional

DEVICES = 2
ROUNDS = 11
OPERATORS = 1000  # of one element, in one measurement

Work = Callable[[], object]


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


def compare(*works: Work) -> list[float]:
    """Return the median seconds of each, measured in turn."""
    for work in works:
        work()
    rounds = [[seconds(work) for work in works] for _ in range(ROUNDS)]
    return [median(each) for each in zip(*rounds, strict=True)]


def show(name: str, text: str, value: str, limit: str) -> None:
    """Print a row."""
    print(f"{name:3} {text:58} {value:>10}   {limit}", flush=True)  # noqa: T201 - a command


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


def one_element() -> None:
    """T1: microseconds of an operator of one element beyond the CPU's."""
    for operators, limit in ((ONE_ELEMENT, 4), (ASKS_META, 15)):
        for name, operator in operators.items():
            hits, misses = torch.accelrt.shape_cache_counts()
            eager, ours = compare(repeated(operator, "cpu"), repeated(operator, "accelrt"))
            more_us = (ours - eager) / OPERATORS * 1e6
            text = f"{name}: {ours / OPERATORS * 1e6:.2f} us, CPU {eager / OPERATORS * 1e6:.2f} us"
            hits, misses = (
                now - before
                for now, before in zip(
                    torch.accelrt.shape_cache_counts(), (hits, misses), strict=True
                )
            )
            if hits + misses:
                text += f", {100 * hits / (hits + misses):.2f} % of shapes known"
            show("T1", text, f"{more_us:.2f} us", f"at most {limit} us")


def set_threads(count: int) -> None:
    """Set how many threads a kernel may use, the CPU's own and a task's."""
    torch.set_num_threads(count)
    torch.accelrt.set_num_threads(count)


def transformer_step() -> None:
    """T2: a training step over the CPU's."""
    processors = torch.get_num_threads()
    for count in sorted({processors, 1}, reverse=True):
        set_threads(count)
        for width, limit in ((256, "at most 1.10"), (32, "not judged")):
            shape = (width, 4, 8, 128 * width // 256)
            trainees = [Trainee(device, *shape) for device in ("cpu", "accelrt")]
            eager, ours = compare(*(trainee.step for trainee in trainees))
            text = (
                f"step, width {width}, {count} threads: "
                f"{ours * 1e3:.1f} ms, CPU {eager * 1e3:.1f} ms"
            )
            show("T2", text, f"{ours / eager:.3f}", limit)
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

    one, two = compare(in_turn, at_once)
    return one / two


def data_parallel() -> None:
    """T3: two devices of one thread, each with half of the batch, over one."""
    before = torch.get_num_threads()
    set_threads(1)
    whole = Trainee("accelrt:0", 256, 4, 8, 128)
    halves = [Trainee(f"accelrt:{index}", 256, 4, 4, 128) for index in range(2)]
    one, two = compare(whole.step, lambda: shared_step(halves))
    text = f"two devices: {two * 1e3:.1f} ms, one {one * 1e3:.1f} ms"
    text += f", two threads: {machine_limit():.2f} x"
    show("T3", text, f"{one / two:.2f} x", "at least 1.5 x")
    set_threads(before)


def memory_of_a_step() -> None:
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
    text = f"{reserved / 1e6:.1f} MB reserved, {live / 1e6:.1f} MB alive"
    show("T4", text, f"{reserved / live:.4f}", "at most 1.02")


FIGURES = {"T1": one_element, "T2": transformer_step, "T3": data_parallel, "T4": memory_of_a_step}


def main() -> None:
    """Print the figures that are named, or all."""
    if torch.accelrt.device_count() < DEVICES:  # it is too late to change that here
        os.environ["ACCELRT_CPU_DEVICES"] = str(DEVICES)
        command = [sys.executable, "-m", "accelrt_torch.bench", *sys.argv[1:]]
        os.execv(sys.executable, command)  # noqa: S606 - the same program again
    for name in sys.argv[1:] or FIGURES:
        FIGURES[name]()


if __name__ == "__main__":
    main()
