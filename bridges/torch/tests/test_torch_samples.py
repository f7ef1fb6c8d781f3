"""torch's own list of operators, each with torch's samples of arguments, as the CPU computes them.

Goal: the device gives the CPU's values, shapes, strides, types, warnings and errors. Method: each
entry of torch's database is called on the CPU and on the device, also in place, with `out=`, with
permuted arguments, and with torch's wrong arguments. A run takes one sample of types and
arguments, another one with SEED=…, and all with `ACCELRT_TORCH_SAMPLES=all`. Samples are torch's: a
newer torch brings new ones.
"""

import os
import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

Arguments = tuple[object, tuple[object, ...], dict[str, object]]
Operator = Callable[..., object]


class Sample(Protocol):
    """Arguments of a call."""

    input: object
    args: tuple[object, ...]
    kwargs: dict[str, object]


class Mistake(Protocol):
    """Wrong arguments of a call."""

    sample_input: Sample


class Info(Protocol):
    """An entry of torch's database."""

    name: str
    op: Operator
    inplace_variant: Operator | None
    supports_out: bool
    error_inputs_func: object

    def supports_dtype(self, dtype: torch.dtype, device: str) -> bool:
        """Return whether the kernels of a device support the type."""

    def sample_inputs(self, device: str, dtype: torch.dtype) -> Iterable[Sample]:
        """Make the samples."""

    def error_inputs(self, device: str) -> Iterable[Mistake]:
        """Make wrong arguments."""


TAKES_ALL = os.environ.get("ACCELRT_TORCH_SAMPLES") == "all"
TYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64),
)
MAX_SAMPLES = 8  # of an operator and type
PARTS = 8

# Whose results are random, or not initialised.
_UNKNOWN = """
    bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal
    multinomial new_empty new_empty_strided nn.functional.alpha_dropout nn.functional.dropout
    nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.rrelu
    nn.functional.multi_head_attention_forward nn.functional.scaled_dot_product_attention normal
    pca_lowrank rand_like randint randint_like randn randn_like svd_lowrank uniform
    torch.ops.aten._safe_softmax.default
"""
UNKNOWN = frozenset(_UNKNOWN.split())

# A warning that torch issues only once in a process, on the CPU too.
ONCE_IN_A_PROCESS = "ComplexHalf support is experimental"
# Known differences: by operator the differences that are accepted, and why.
EXPLAINED: dict[str, tuple[set[str], str]] = {
    "_native_batch_norm_legit": (
        {"values"},
        "the CPU's kernel is wrong for permuted half-precision inputs with `out=`",
    ),
    "addbmm": ({"error"}, "an in-place result of another shape is refused with another text"),
    "addr": ({"error"}, "an in-place result of another shape is refused with another text"),
    "_batch_norm_with_update": ({"error"}, "torch's text for an unknown `out=` shows the tensors"),
    "sparse.mm": ({"error"}, "sparse tensors are refused"),
    "sparse.sampled_addmm": ({"error", "warnings"}, "sparse tensors are refused"),
    "tensor_split": ({"error"}, "its indices are the host's, as on CUDA"),
    "to_sparse": ({"error"}, "sparse tensors are refused"),
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": (
        {"values"},
        "the CPU's kernel reads other memory where the last dimension has gaps",
    ),
    "vdot": ({"strides"}, "the CPU leaves it to readers to conjugate the result"),
}


@dataclass
class Outcome:
    """The results of a call as the host sees them, or its error."""

    error: str | None = None
    values: list[object] = field(default_factory=list)
    layouts: list[object] = field(default_factory=list)
    warned: set[str] = field(default_factory=set)


@dataclass
class Difference:
    """A call whose outcome on the device is not the CPU's."""

    operator: str
    subject: str  # error, shape, type, strides, warnings or values
    detail: str


@pytest.fixture(scope="module")
def database() -> list[Info]:
    methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    return list(methods.op_db)


@pytest.fixture(autouse=True)
def _warnings_of_each_call() -> Iterator[None]:
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def _copy(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Return a copy with the tensor's own strides."""
    if tensor.layout != torch.strided or tensor.is_meta or type(tensor) is not torch.Tensor:
        return tensor.detach().clone().to(device)
    contents = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    storage = contents.clone().to(device).untyped_storage()
    made = torch.empty(0, dtype=tensor.dtype, device=device)
    made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    made = made.conj() if tensor.is_conj() else made
    return torch._neg_view(made) if tensor.is_neg() else made  # noqa: SLF001 - no other way


def _on(device: str, values: object) -> object:
    copies: dict[int, torch.Tensor] = {}  # one for a tensor that is two arguments

    def place(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return copies.setdefault(id(value), _copy(value, device))
        is_cpu = value == "cpu" or (isinstance(value, torch.device) and value.type == "cpu")
        return torch.device(device) if is_cpu else value

    return tree_map(place, values)


def _permuted(values: object) -> object:
    """Return the arguments with the strides of a transposed tensor, where they have dimensions."""

    def permute(value: object) -> object:
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.dim() < 2:
            return value
        order = tuple(reversed(range(value.dim())))
        return value.detach().permute(order).contiguous().permute(order)

    return tree_map(permute, values)


def _plain(text: str) -> str:
    """Return a text without the name of the device and torch's own places."""
    places = r"\(Triggered internally at .*\)|Exception raised from .*"
    text = re.sub(places, "", text, flags=re.DOTALL)
    return text.replace("accelrt:0", "cpu").replace("accelrt", "cpu").strip()


def _describe(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return type(value)
    strides = value.stride() if value.layout == torch.strided else None
    return tuple(value.shape), value.dtype, strides, value.is_conj(), value.is_neg()


def _outcome(operator: Operator, device: str, arguments: Arguments) -> Outcome:
    """Call an operator, and wait for the results."""
    outcome = Outcome()
    with warnings.catch_warnings(record=True) as caught:
        try:
            warnings.simplefilter("ignore")
            first, others, named = _on(device, arguments)  # type: ignore[misc]
            warnings.simplefilter("always")
            results = tree_leaves((operator(first, *others, **named), named.get("out")))
            if device != "cpu":
                torch.accelerator.synchronize()
            outcome.layouts = [_describe(result) for result in results]
            outcome.values = [it.cpu() if isinstance(it, torch.Tensor) else it for it in results]
        except torch.AcceleratorError as error:  # which the task found
            outcome.error = re.sub(r"^.*?aten::[\w.]+: ", "", _plain(str(error)))
        except Exception as error:  # noqa: BLE001 - operators raise what they like
            outcome.error = _plain(str(error))
    texts = {_plain(str(warning.message)) for warning in caught}
    outcome.warned = {text for text in texts if not text.startswith(ONCE_IN_A_PROCESS)}
    return outcome


def _compared(info: Info, said: str, here: Outcome, there: Outcome) -> Iterator[Difference]:
    """Yield how the outcome on the device differs from the CPU's."""
    if here.warned != there.warned:
        yield Difference(info.name, "warnings", f"{said}: {here.warned} {there.warned}")
    if here.error != there.error:
        yield Difference(info.name, "error", f"{said}: {here.error!r} {there.error!r}")
        return
    if here.layouts != there.layouts:
        yield Difference(info.name, "strides", f"{said}: {here.layouts} {there.layouts}")
    if info.name in UNKNOWN or len(here.values) != len(there.values):
        return
    for theirs, ours in zip(here.values, there.values, strict=True):
        if isinstance(theirs, torch.Tensor) and theirs.layout == torch.strided:
            wide = theirs.dtype.itemsize > 2 or not theirs.dtype.is_floating_point
            limits = {"rtol": 1e-4, "atol": 1e-5} if wide else {"rtol": 2e-2, "atol": 2e-2}
            try:
                torch.testing.assert_close(ours, theirs, equal_nan=True, **limits)
            except AssertionError as error:
                yield Difference(info.name, "values", f"{said}: {error}")


def _with_out(info: Info, arguments: Arguments) -> Iterator[tuple[str, Arguments]]:
    """Yield the call with an `out=` that is resized, and with one that fits but is transposed."""
    if not info.supports_out or "out" in arguments[2]:
        return
    first, others, named = _on("cpu", arguments)  # type: ignore[misc]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = info.op(first, *others, **named)
        except Exception:  # noqa: BLE001 - the plain call compares it
            return
    made = tree_leaves(results)
    if not all(isinstance(it, torch.Tensor) and it.layout == torch.strided for it in made):
        return
    first, others, named = arguments
    empty = tree_map(lambda it: torch.empty(0, dtype=it.dtype), results)
    yield "out=empty", (first, others, {**named, "out": empty})
    fitting = _permuted(tree_map(torch.zeros_like, results))
    yield "out=transposed", (first, others, {**named, "out": fitting})


def _samples(info: Info, chance: random.Random) -> Iterator[Arguments]:
    """Yield torch's samples: one of one type, or all."""
    types = [dtype for dtype in TYPES if info.supports_dtype(dtype, "cpu")]
    for dtype in types if TAKES_ALL else chance.sample(types, min(1, len(types))):
        taken = list(islice(info.sample_inputs("cpu", dtype), MAX_SAMPLES))
        for sample in taken if TAKES_ALL else chance.sample(taken, min(1, len(taken))):
            yield sample.input, sample.args, sample.kwargs


def _calls(info: Info, chance: random.Random) -> Iterator[tuple[str, Operator, Arguments]]:
    for arguments in _samples(info, chance):
        for layout, values in (("", arguments), ("permuted ", _permuted(arguments))):
            yield f"{layout}call", info.op, values  # type: ignore[misc]
            if info.inplace_variant is not None:
                yield f"{layout}in place", info.inplace_variant, values  # type: ignore[misc]
            for how, with_out in _with_out(info, values):  # type: ignore[arg-type]
                yield f"{layout}{how}", info.op, with_out
    if info.error_inputs_func is not None:
        mistakes = list(info.error_inputs("cpu"))
        for mistake in mistakes if TAKES_ALL else chance.sample(mistakes, min(1, len(mistakes))):
            wrong = mistake.sample_input
            yield "mistake", info.op, (wrong.input, wrong.args, wrong.kwargs)


def _differences(info: Info, chance: random.Random) -> tuple[int, list[Difference]]:
    count, found = 0, []
    for how, operator, arguments in _calls(info, chance):
        torch.manual_seed(0)
        here = _outcome(operator, "cpu", arguments)
        there = _outcome(operator, "accelrt", arguments)
        tensors = [_describe(it) for it in tree_leaves(arguments) if isinstance(it, torch.Tensor)]
        found += _compared(info, f"{how} {tensors} {arguments[2]}", here, there)
        count += 1
    return count, found


@pytest.mark.filterwarnings("ignore")  # of making samples
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_match_the_cpu(database: list[Info], part: int, seed: int) -> None:
    # The same sample in each run, unless one is asked for: others show what is not known yet.
    start = seed if "SEED" in os.environ else 0
    torch.manual_seed(start + part)
    chance = random.Random(start + part)  # noqa: S311 - no secret
    count, unexplained = 0, []
    for info in database[part::PARTS]:
        compared, found = _differences(info, chance)
        count += compared
        known = EXPLAINED.get(info.name, (set(), ""))[0]
        unexplained += [each for each in found if each.subject not in known]
    assert count > 300
    assert not unexplained
