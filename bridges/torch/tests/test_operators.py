"""Operators: the CPU's results, whichever type, shape or variant, without a thread that waits.

Goal: an operator on the device computes what the CPU computes, bit by bit, and returns before it
has run, in whichever order the streams run. Method: each of a table is called on the CPU and on the
device, several types, shapes and variants, while nothing is waited for; then the results are
compared, and the list of waits is empty. Once the workers run the tasks; once a seed chooses the
order of three streams: one makes the arguments, one calls the operator, one reads. The arguments
are freed as soon as they may be, and all memory that is given anew is poisoned.
"""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional

from accelrt import testing
from gates import Gate

Operator = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
NUMBERS = (*FLOATS, torch.int64, torch.int32)
SHAPES = ((), (5,), (3, 4), (2, 3, 4))

ONE_OF_FLOATS = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "i0",
    "isfinite",
    "isinf",
    "isnan",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "neg",
    "rad2deg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
ONE_OF_FUNCTIONAL = [
    "celu",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softsign",
    "tanhshrink",
]
TWO_OF_NUMBERS = [
    "add",
    "sub",
    "mul",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "logical_and",
    "logical_or",
    "logical_xor",
]
TWO_OF_FLOATS = [
    "div",
    "atan2",
    "copysign",
    "fmod",
    "hypot",
    "nextafter",
    "remainder",
    "xlogy",
    "heaviside",
]
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "std",
    "var",
    "norm",
    "all",
    "any",
    "logsumexp",
    "count_nonzero",
    "median",
]


LONG = torch.int64

# Of matrices of three rows and four columns.
OF_MATRICES: dict[str, Operator] = {
    "matmul": lambda x, y: x @ y.T,
    "mm": lambda x, y: torch.mm(x, y.T),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "outer": lambda x, y: torch.outer(x[0], y[1]),
    "bmm": lambda x, y: torch.bmm(x[None], y.T[None]),
    "addmm": lambda x, y: torch.addmm(x[:, :3], x, y.T, beta=0.5, alpha=2),
    "addmv": lambda x, y: torch.addmv(x[:, 0], x, y[0]),
    "addr": lambda x, y: torch.addr(x, x[:, 0], y[0]),
    "baddbmm": lambda x, y: torch.baddbmm(x[None, :, :3], x[None], y.T[None]),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "linear": lambda x, y: functional.linear(x, y, y[:, 0]),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "stack": lambda x, y: torch.stack([x, y]),
    "where": lambda x, y: torch.where(x > y, x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y.abs() + 1, value=0.5),
    "clamp": lambda x, _: x.clamp(-0.5, 0.5),
    "clamp_tensor": lambda x, y: torch.clamp(x, min=y),
    "softmax": lambda x, _: torch.softmax(x, 1),
    "log_softmax": lambda x, _: torch.log_softmax(x, 0),
    "cumsum": lambda x, _: x.cumsum(1),
    "cumprod": lambda x, _: x.cumprod(0),
    "cummax": lambda x, _: torch.cummax(x, 1),
    "sort": lambda x, _: torch.sort(x, dim=1, stable=True),
    "argsort": lambda x, _: torch.argsort(x, dim=1, stable=True),
    "topk": lambda x, _: torch.topk(x, 2),
    "kthvalue": lambda x, _: torch.kthvalue(x, 2),
    "max_dim": lambda x, _: torch.max(x, 1),
    "min_dim": lambda x, _: torch.min(x, 0),
    "flip": lambda x, _: x.flip(0, 1),
    "roll": lambda x, _: x.roll(1, 0),
    "tril": lambda x, _: x.tril(),
    "triu": lambda x, _: x.triu(1),
    "diag": lambda x, _: torch.diag(x[0]),
    "trace": lambda x, _: torch.trace(x),
    "repeat": lambda x, _: x.repeat(2, 1),
    "pad": lambda x, _: functional.pad(x, (1, 2)),
    "reflect": lambda x, _: functional.pad(x[None], (1, 2), mode="reflect"),
    "gather": lambda x, _: x.gather(1, torch.zeros(3, 2, dtype=LONG, device=x.device)),
    "index_select": lambda x, _: x.index_select(0, torch.tensor([2, 0], device=x.device)),
    "index": lambda x, _: x[torch.tensor([2, 0], device=x.device)],
    "index_of_the_host": lambda x, _: x[torch.tensor([2, 0])],
    "index_put": lambda x, _: x.index_put(
        (torch.tensor([0, 1], device=x.device),), torch.ones((), dtype=x.dtype, device=x.device)
    ),
    "index_add": lambda x, y: x.index_add(0, torch.tensor([1, 1, 2], device=x.device), y),
    "scatter": lambda x, y: x.scatter(1, torch.zeros(3, 1, dtype=LONG, device=x.device), y),
    "scatter_add": lambda x, y: x.scatter_add(0, torch.zeros(2, 4, dtype=LONG, device=x.device), y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 3.0),
    "take": lambda x, _: x.take(torch.tensor([5, 1], device=x.device)),
    "transpose_clone": lambda x, _: x.T.contiguous(),
    "to_double": lambda x, _: x.to(torch.float64),
    "to_int": lambda x, _: (x * 10).to(torch.int32),
    "cdist": lambda x, y: torch.cdist(x.float(), y.float()),
    "mse_loss": functional.mse_loss,
    "l1_loss": functional.l1_loss,
    "smooth_l1_loss": functional.smooth_l1_loss,
    "cross_entropy": lambda x, _: functional.cross_entropy(
        x, torch.tensor([0, 3, 1], device=x.device)
    ),
    "embedding": lambda x, _: functional.embedding(torch.tensor([0, 2, 2], device=x.device), x),
    "layer_norm": lambda x, y: functional.layer_norm(x, (4,), y[0], y[1]),
    "batch_norm": lambda x, _: functional.batch_norm(x, None, None, training=True),
    "group_norm": lambda x, _: functional.group_norm(x, 2),
    "glu": lambda x, _: functional.glu(x, 1),
    "normalize": lambda x, _: functional.normalize(x),
    "conv1d": lambda x, y: functional.conv1d(x[None], y[None, :, :2]),
    "max_pool1d": lambda x, _: functional.max_pool1d(x[None], 2),
    "avg_pool1d": lambda x, _: functional.avg_pool1d(x[None], 2),
    "interpolate": lambda x, _: functional.interpolate(x[None], scale_factor=2.0),
    "new_zeros": lambda x, _: x.new_zeros(2, 2),
    "full_like": lambda x, _: torch.full_like(x, 4),
    "arange": lambda x, _: torch.arange(1, 7, 2, device=x.device),
    "linspace": lambda x, _: torch.linspace(0, 1, 5, device=x.device),
    "eye": lambda x, _: torch.eye(3, 4, device=x.device),
    "out": lambda x, y: torch.mul(x, y, out=torch.empty(0, dtype=x.dtype, device=x.device)),
    "out_of_a_view": lambda x, y: torch.mul(x, y, out=torch.empty_like(x.T).T),
    "out_of_several": lambda x, _: torch.max(
        x, 1, out=(x.new_empty(0), torch.empty(0, dtype=LONG, device=x.device))
    ),
    "in_place": lambda x, y: x.clone().mul_(y).add_(1).neg_(),
    "in_place_of_itself": lambda x, _: (z := x.clone()).mul_(z).add_(z),
    "in_place_of_a_view": lambda x, y: x.clone()[:, 1].add_(y[:, 0]),
    "overlapping_source": lambda x, _: x.clone().mul_(x[0].expand(3, 4)),
    "setitem": lambda x, y: (
        torch.Tensor.__setitem__(z := x.clone(), (slice(None), 1), y[:, 0]) or z
    ),
    "copy_of_a_row": lambda x, y: x.clone().copy_(y[0]),
    "copy_of_a_column": lambda x, y: x.clone().copy_(y[:, :1]),
    "vander": lambda x, _: torch.vander(x[0]),
    "mish_backward": torch.ops.aten.mish_backward,
    "channel_shuffle": lambda x, _: torch.native_channel_shuffle(x.T[None, :, :, None], 2),
    "chunks": lambda x, _: tuple(part + 1 for part in x.chunk(2, 1)),
    "unbind": lambda x, _: tuple(row * 2 for row in x.unbind()),
    "foreach": lambda x, y: tuple(torch._foreach_add([x, y], [y, x])),  # noqa: SLF001 - optimisers call it
    "var_mean": lambda x, _: torch.var_mean(x, 1),
    "complex": lambda x, y: torch.view_as_real(torch.complex(x.double(), y.double()).conj() * 2),
    "fft": lambda x, _: torch.view_as_real(torch.fft.rfft(x.float())),
}

OF_SQUARES: dict[str, Operator] = {
    "inv": torch.linalg.inv_ex,
    "det": torch.linalg.det,
    "solve": lambda x: torch.linalg.solve_ex(x, x[0]),
    "cholesky": lambda x: torch.linalg.cholesky_ex(x @ x.mT),
    "qr": torch.linalg.qr,
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.mT),
    "svdvals": torch.linalg.svdvals,
    "matrix_exp": torch.matrix_exp,
    "matrix_power": lambda x: torch.linalg.matrix_power(x, 3),
}


def _same(on_device: object, on_cpu: object) -> None:
    """Compare results bit by bit; a NaN is one on both."""
    if isinstance(on_cpu, torch.Tensor):
        assert isinstance(on_device, torch.Tensor)
        assert on_device.device.type == "accelrt"
        assert on_device.dtype == on_cpu.dtype
        assert on_device.stride() == on_cpu.stride() or on_cpu.numel() <= 1
        torch.testing.assert_close(on_device.cpu(), on_cpu, rtol=0, atol=0, equal_nan=True)
        return
    assert len(on_device) == len(on_cpu)  # type: ignore[arg-type]
    for one, other in zip(on_device, on_cpu, strict=True):  # type: ignore[call-overload]
        _same(one, other)


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    torch.accelrt.memory.poison()
    yield
    torch.accelrt.memory.poison(False)  # noqa: FBT003 - a switch


def _compare_in_an_order(
    order: int, operator: Operator, expected: object, arguments: tuple[torch.Tensor, ...]
) -> None:
    """Call the operator between three streams, which a schedule runs in the order of a seed."""
    with testing.schedule(order):
        before, between = torch.Stream("accelrt"), torch.Stream("accelrt")
        with before:
            there = [argument.to("accelrt") for argument in arguments]
        between.wait_stream(before)
        with between:
            result = operator(*there)
        for tensor in there:
            tensor.record_stream(between)
        del there
        if arguments:
            del tensor
        with before:  # which the memory of the arguments is of
            again = [torch.empty_like(argument, device="accelrt") for argument in arguments]
        torch.accelerator.current_stream().wait_stream(between)
        assert torch.accelrt.sync_report() == []
        _same(result, expected)
        torch.accelerator.synchronize()
        del again


def _compare(operator: Operator, *arguments: torch.Tensor) -> None:
    there = [argument.to("accelrt") for argument in arguments]
    torch.accelerator.synchronize()
    torch.accelrt.clear_sync_report()
    expected = operator(*arguments)
    order = torch.initial_seed() % 1000  # of the test's seed
    _compare_in_an_order(order, operator, expected, arguments)
    torch.accelrt.clear_sync_report()
    result = operator(*there)
    assert torch.accelrt.sync_report() == []
    torch.accelerator.synchronize()
    _same(result, expected)
    for before, after in zip(arguments, there, strict=True):  # nothing else was written
        _same(after, before)


def _tensors(seed: int, dtype: torch.dtype, *shape: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield (torch.randn(shape, generator=generator) * 3).to(dtype)


def _has_out(operator: Operator, *arguments: torch.Tensor) -> bool:
    try:
        operator(*arguments, out=torch.empty(0, dtype=operator(*arguments).dtype))
    except (TypeError, RuntimeError):
        return False
    return True


def _into_new(operator: Operator) -> Operator:
    def call(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        dtype = operator(x, *others).dtype
        return operator(x, *others, out=torch.empty(0, dtype=dtype, device=x.device))

    return call


def _into_a_view(operator: Operator) -> Operator:
    def call(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        whole = torch.zeros(*x.shape, 2, dtype=operator(x, *others).dtype, device=x.device)
        operator(x, *others, out=whole[..., 1])
        return whole

    return call


def _into_an_argument(operator: Operator) -> Operator:
    def call(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        copy = x.clone()
        return operator(copy, *others, out=copy)

    return call


def _in_place(name: str) -> Operator:
    return lambda x, *others: getattr(x.clone(), name)(*others)


def _in_place_of_a_view(name: str) -> Operator:
    def call(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        whole = torch.stack([x, x], -1)
        getattr(whole[..., 0], name)(*others)
        return whole

    return call


def _of_overlapping(operator: Operator) -> Operator:
    """Of windows that have elements in common, or of one element many times."""

    def call(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        windows = x.unfold(-1, 2, 1) if x.dim() else x.expand(3)
        return operator(windows, *(windows for _ in others))

    return call


def _variants(name: str, *arguments: torch.Tensor) -> Iterator[Operator]:
    """Yield an operator's own form, and those with `out=`, in place, of views."""
    operator = getattr(torch, name)
    yield operator
    yield _of_overlapping(operator)
    if _has_out(operator, *arguments):
        yield _into_new(operator)
        yield _into_a_view(operator)
        if operator(*arguments).dtype == arguments[0].dtype:
            yield _into_an_argument(operator)
    if hasattr(torch.Tensor, f"{name}_") and arguments[0].is_floating_point():
        yield _in_place(f"{name}_")
        yield _in_place_of_a_view(f"{name}_")


@pytest.mark.parametrize("name", ONE_OF_FLOATS)
def test_one_argument(name: str, seed: int) -> None:
    for dtype in FLOATS:
        for shape in SHAPES:
            tensor = next(_tensors(seed, dtype, *shape))
            for operator in _variants(name, tensor):
                _compare(operator, tensor)


@pytest.mark.parametrize("name", ONE_OF_FUNCTIONAL)
def test_activations(name: str, seed: int) -> None:
    for dtype in FLOATS:
        for shape in SHAPES:
            _compare(getattr(functional, name), next(_tensors(seed, dtype, *shape)))


@pytest.mark.parametrize("name", TWO_OF_NUMBERS)
def test_two_arguments(name: str, seed: int) -> None:
    for dtype in NUMBERS:
        for shape in SHAPES:
            tensors = _tensors(seed, dtype, *shape)
            one, other = next(tensors), next(tensors)
            for operator in _variants(name, one, other):
                _compare(operator, one, other)
            _compare(getattr(torch, name), one, next(_tensors(seed, dtype)))


@pytest.mark.parametrize("name", TWO_OF_FLOATS)
def test_two_floating_arguments(name: str, seed: int) -> None:
    for dtype in FLOATS:
        for shape in SHAPES:
            tensors = _tensors(seed, dtype, *shape)
            one, other = next(tensors), next(tensors)
            for operator in _variants(name, one, other):
                _compare(operator, one, other)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, seed: int) -> None:
    for dtype in (torch.float32, torch.float64):
        tensor = next(_tensors(seed, dtype, 3, 4))
        needs_dim = name == "logsumexp"
        if not needs_dim:
            _compare(getattr(torch, name), tensor)
        _compare(lambda x: getattr(torch, name)(x, dim=1), tensor)


@pytest.mark.parametrize("name", OF_MATRICES)
def test_matrices(name: str, seed: int) -> None:
    for dtype in (torch.float32, torch.float64):
        tensors = _tensors(seed, dtype, 3, 4)
        _compare(OF_MATRICES[name], next(tensors), next(tensors))


@pytest.mark.parametrize("name", OF_SQUARES)
def test_squares(name: str, seed: int) -> None:
    for dtype in (torch.float32, torch.float64):
        _compare(
            OF_SQUARES[name], next(_tensors(seed, dtype, 4, 4)) + 5 * torch.eye(4, dtype=dtype)
        )


def test_what_depends_on_data_waits_and_says_where(seed: int) -> None:
    tensor = next(_tensors(seed, torch.float32, 20))
    there = tensor.to("accelrt")
    for operator in (torch.nonzero, torch.unique, lambda x: x[x > 0], torch.masked_select):
        arguments = (tensor, tensor > 0) if operator is torch.masked_select else (tensor,)
        moved = (there, there > 0) if operator is torch.masked_select else (there,)
        torch.accelrt.clear_sync_report()
        result = operator(*moved)
        (row,) = torch.accelrt.sync_report()[:1]
        assert row.file == __file__
        assert row.line > 0
        assert row.count >= 1
        _same(result, operator(*arguments))


def test_masks_of_the_host_choose_by_what_they_hold() -> None:
    numbers = torch.arange(20).view(10, 2)
    there = numbers.to("accelrt")
    for count in (7, 3, 0, 10):  # a shape of one call is not that of another
        mask = torch.arange(10) < count
        _same(there[mask], numbers[mask])


def test_scalars_of_lists_are_the_hosts(seed: int) -> None:
    tensors = [next(_tensors(seed, torch.float32, 3)) for _ in range(3)]
    there = [tensor.to("accelrt") for tensor in tensors]
    for operator in (torch._foreach_addcdiv_, torch._foreach_addcmul_):
        for one, two, three in (tensors, there):
            operator([one], [two], [three], torch.tensor([2.0]))
        _same(there[0], tensors[0])


def test_a_number_waits_and_says_where() -> None:
    tensor = torch.ones(3, device="accelrt").sum()
    torch.accelrt.clear_sync_report()
    assert tensor.item() == 3
    (row,) = torch.accelrt.sync_report()
    assert row.operator == "aten::_local_scalar_dense"
    assert row.file == __file__


def test_shapes_are_asked_once() -> None:
    tensor = torch.ones(7, 3, device="accelrt")
    torch.softmax(tensor, 0)
    hits, misses = torch.accelrt.shape_cache_counts()
    for _ in range(10):
        torch.softmax(tensor, 0)
    assert torch.accelrt.shape_cache_counts() == (hits + 10, misses)


def test_operators_are_counted() -> None:
    tensor = torch.ones(3, device="accelrt")
    before = torch.accelrt.operator_count()
    tensor.add_(1)
    assert torch.accelrt.operator_count() == before + 1


def test_the_longest_wait_comes_first_in_the_report() -> None:
    tensor = torch.ones(3, device="accelrt")
    torch.accelerator.synchronize()
    torch.accelrt.clear_sync_report()
    gate = Gate()
    with gate:
        threading.Timer(0.1, gate.open).start()
        tensor.sum().item()
    tensor.nonzero()
    names = [row.operator for row in torch.accelrt.sync_report()]
    assert names == ["aten::_local_scalar_dense", "aten::nonzero"]


def test_a_program_that_makes_its_code_as_it_runs_has_a_bounded_report() -> None:
    one = torch.ones(1, device="accelrt")
    for number in range(4200):
        exec(compile("one.item()", f"made{number}.py", "exec"), {"one": one})  # noqa: S102
    rows = torch.accelrt.sync_report()
    assert sum(row.count for row in rows) == 4200
    assert len(rows) == 4097
    (rest,) = [row for row in rows if not row.file]
    assert rest.count == 4200 - 4096
    torch.accelrt.clear_sync_report()


def test_set_tensor_is_set_to_its_source() -> None:
    source = torch.arange(6.0, device="accelrt").view(2, 3)
    same = torch.empty(0, device="accelrt").set_(source)
    assert same.is_set_to(source)
    assert not source.is_set_to(source[:1])
    assert not source.is_set_to(source.clone())


def test_mode_writes_out() -> None:
    numbers = torch.tensor([[3, 1, 3], [2, 2, 5]])
    wanted = torch.mode(numbers)
    outs = [torch.empty(0, dtype=torch.long, device="accelrt") for _ in range(2)]
    torch.mode(numbers.to("accelrt"), out=tuple(outs))
    _same(outs[0], wanted.values)
    _same(outs[1], wanted.indices)
