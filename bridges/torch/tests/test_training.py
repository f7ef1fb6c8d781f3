"""Training: networks on the device, equal to the CPU's bit by bit.

Goal: a training loop changes nothing but the device's name, waits for nothing that it does not ask
for, and comes to the same bits. Method: the same loop on the CPU and on the device, one thread for
each kernel so that sums have one order; all parameters compared.
"""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from accelrt import testing


@pytest.fixture(autouse=True)
def _one_thread_a_kernel() -> Iterator[None]:
    before, of_tasks = torch.get_num_threads(), torch.accelrt.get_num_threads()
    torch.set_num_threads(1)
    torch.accelrt.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.accelrt.set_num_threads(of_tasks)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, groups=2),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


def _step(
    model: nn.Module, optimiser: torch.optim.Optimizer, batch: tuple[torch.Tensor, ...]
) -> None:
    optimiser.zero_grad()
    functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimiser.step()


def _inputs(name: str) -> torch.Tensor:
    if name == "mlp":
        return torch.randn(8, 16)
    return torch.randn(8, 1, 10, 10) if name == "cnn" else torch.randint(0, 11, (8, 6))


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": _mlp, "cnn": _cnn, "transformer": _Transformer}


def _assert_equal(on_device: nn.Module, on_cpu: nn.Module) -> None:
    for (name, here), there in zip(
        on_device.state_dict().items(), on_cpu.state_dict().values(), strict=True
    ):
        assert torch.equal(here.cpu(), there), name


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_a_network_is_trained_to_the_same_bits_without_a_wait(
    name: str, optimiser: str, seed: int
) -> None:
    torch.manual_seed(seed)
    on_cpu = MODELS[name]()
    on_device = copy.deepcopy(on_cpu).to("accelrt:1")
    batches = [(_inputs(name), torch.randint(0, 4, (8,))) for _ in range(6)]
    moved = [tuple(part.to("accelrt:1") for part in batch) for batch in batches]
    make = getattr(torch.optim, optimiser)
    cpu_optimiser = make(on_cpu.parameters(), lr=0.01)
    device_optimiser = make(on_device.parameters(), lr=0.01)
    torch.accelerator.synchronize(1)
    torch.accelrt.clear_sync_report()
    for batch in moved:
        _step(on_device, device_optimiser, batch)
    assert torch.accelrt.sync_report() == []
    for batch in batches:
        _step(on_cpu, cpu_optimiser, batch)
    _assert_equal(on_device, on_cpu)


def _step_together(replicas: list[nn.Module], batch: tuple[torch.Tensor, ...]) -> None:
    """Take a step of all replicas with the sum of their parts' gradients."""
    parts = zip(*(part.chunk(len(replicas)) for part in batch), strict=True)
    for replica, part in zip(replicas, parts, strict=True):
        device = next(replica.parameters()).device
        inputs, labels = (tensor.to(device) for tensor in part)
        functional.cross_entropy(replica(inputs), labels).backward()
    with torch.no_grad():
        for parameters in zip(*(replica.parameters() for replica in replicas), strict=True):
            total = parameters[0].grad
            for other in parameters[1:]:
                total = total + other.grad.to(total.device)
            for parameter in parameters:
                parameter.sub_(0.1 * total.to(parameter.device))
                parameter.grad = None


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_devices_share_a_batch_by_hand_without_a_wait(name: str, count: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = MODELS[name]()
    on_cpu = [copy.deepcopy(model) for _ in range(count)]
    on_devices = [copy.deepcopy(model).to(f"accelrt:{index}") for index in range(count)]
    torch.accelrt.clear_sync_report()
    for _ in range(3):
        batch = (_inputs(name), torch.randint(0, 4, (8,)))
        _step_together(on_cpu, batch)
        _step_together(on_devices, batch)
    assert torch.accelrt.sync_report() == []
    for here, there in zip(on_devices, on_cpu, strict=True):
        _assert_equal(here, there)


class _Calls(TorchDispatchMode):
    """Lists the operators that come by."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_the_state_of_a_thread_that_waits_does_not_reach_the_tasks_that_it_runs(seed: int) -> None:
    torch.manual_seed(seed)
    on_cpu, rows = _mlp(), torch.randn(8, 16)
    on_device = copy.deepcopy(on_cpu).to("accelrt")
    on_cpu(rows).square().sum().backward()
    with testing.schedule(seed % 1000):  # the thread that waits runs all tasks
        there = on_device(rows.to("accelrt"))
        there.square().sum().backward()
        lower = torch.autocast("cpu", dtype=torch.bfloat16)
        with torch.inference_mode(), lower, _Calls() as calls:
            torch.accelerator.synchronize()
    assert calls.names == []
    for here, other in zip(on_device.parameters(), on_cpu.parameters(), strict=True):
        assert torch.equal(here.grad.cpu(), other.grad)


def test_a_thread_that_waits_has_its_own_state_behind_the_tasks_that_it_ran() -> None:
    torch.set_num_threads(2)  # of tasks it is one, see above
    denormal = torch.full((8,), 1e-310, dtype=torch.float64)
    with testing.schedule(1):
        there = torch.ones(8, device="accelrt")
        torch.set_flush_denormal(True)
        there.exp().add_(1)
        is_flushed = not denormal.mul(1).any().item()
        torch.set_flush_denormal(False)
        with torch.inference_mode():
            torch.accelerator.synchronize()
            assert torch.is_inference_mode_enabled()
            assert not torch.is_grad_enabled()
        assert torch.get_num_threads() == 2
        assert denormal.mul(1).all().item()
        there.neg_()
        torch.set_flush_denormal(True)
        torch.accelerator.synchronize()
        assert is_flushed == (not denormal.mul(1).any().item())
        torch.set_flush_denormal(False)
    assert torch.is_grad_enabled()


def test_a_profile_of_torch_has_nothing_of_the_tasks_that_its_thread_runs() -> None:
    with testing.schedule(1):
        there = torch.ones(8, device="accelrt").cosh()
        with torch.autograd.profiler.profile() as profile:
            torch.accelerator.synchronize()
        assert [event.name for event in profile.function_events or []] == []
    assert there.shape == (8,)


def test_a_dropout_of_everything_leaves_zeros() -> None:
    rows = torch.ones(20, device="accelrt").requires_grad_()
    dropped, kept = torch.native_dropout(rows, 1.0, True)  # noqa: FBT003 - torch's
    dropped.sum().backward()
    assert dropped.tolist() == [0] * 20
    assert not kept.any().item()
    assert rows.grad is not None
    assert rows.grad.tolist() == [0] * 20


def test_an_optimisers_operator_on_a_list_is_one_task() -> None:
    parts = [torch.ones(3, device="accelrt") for _ in range(5)]
    before = torch.accelrt.operator_count()
    torch._foreach_add_(parts, 1)
    assert torch.accelrt.operator_count() == before + 1
    assert [part.tolist() for part in parts] == [[2.0] * 3] * 5


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_have_the_cpus_numbers(cell: type[nn.RNNBase], seed: int) -> None:
    torch.manual_seed(seed)
    on_cpu = cell(5, 7, 2)
    on_device = copy.deepcopy(on_cpu).to("accelrt")
    rows = torch.randn(4, 3, 5)
    on_cpu(rows)[0].square().sum().backward()
    on_device(rows.to("accelrt"))[0].square().sum().backward()
    for here, there in zip(on_device.parameters(), on_cpu.parameters(), strict=True):
        torch.testing.assert_close(here.grad.cpu(), there.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*nested tensors")  # the CPU makes some
def test_an_encoder_at_inference_takes_torchs_fast_way(seed: int) -> None:
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    on_cpu = nn.TransformerEncoder(layer, 2).eval()
    on_device = copy.deepcopy(on_cpu).to("accelrt")
    rows, padding = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False] * 3])
    with torch.no_grad():
        torch.testing.assert_close(on_device(rows.to("accelrt")).cpu(), on_cpu(rows))
        padded = on_device(rows.to("accelrt"), src_key_padding_mask=padding.to("accelrt")).cpu()
        expected = on_cpu(rows, src_key_padding_mask=padding)
        torch.testing.assert_close(padded[~padding], expected[~padding])
        attention = on_device.layers[0].self_attn
        assert attention(*[rows.to("accelrt")] * 3, need_weights=False)[1] is None


@pytest.mark.parametrize(
    "name",
    ["Adadelta", "Adagrad", "Adam", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"],
)
@pytest.mark.parametrize("foreach", [False, True])
def test_optimisers_take_the_same_steps(name: str, foreach: bool, seed: int) -> None:  # noqa: FBT001 - a parameter of the test
    torch.manual_seed(seed)
    on_cpu = _mlp()
    on_device = copy.deepcopy(on_cpu).to("accelrt")
    batch = (_inputs("mlp"), torch.randint(0, 4, (8,)))
    make = getattr(torch.optim, name)
    for model in (on_cpu, on_device):
        device = next(model.parameters()).device
        optimiser = make(model.parameters(), foreach=foreach)
        for _ in range(3):
            _step(model, optimiser, tuple(part.to(device) for part in batch))
    _assert_equal(on_device, on_cpu)


def test_a_module_that_moves_keeps_its_parameters_and_who_has_them(seed: int) -> None:
    torch.manual_seed(seed)
    words = nn.Embedding(5, 4)
    scores = nn.Linear(4, 5, bias=False)
    scores.weight = words.weight  # of which both modules have one
    on_device = nn.Sequential(words, scores)
    on_cpu = copy.deepcopy(on_device)
    optimisers = [torch.optim.SGD(model.parameters(), 0.1) for model in (on_device, on_cpu)]
    on_device.to("accelrt")  # behind the optimiser's beginning
    assert scores.weight is words.weight
    tokens = torch.tensor([1, 2, 4])
    for model, optimiser in zip((on_device, on_cpu), optimisers, strict=True):
        for _ in range(2):
            _step(model, optimiser, (tokens.to(model[0].weight.device),) * 2)
    _assert_equal(on_device, on_cpu)
    assert on_device.cpu()[0].weight is scores.weight


def test_autocast_chooses_the_types_of_every_device() -> None:
    matrix = torch.ones(4, 4, device="accelrt")
    with torch.autocast("accelrt", dtype=torch.bfloat16):
        assert (matrix @ matrix).dtype == torch.bfloat16
        assert torch.softmax(matrix @ matrix, 0, dtype=torch.float32).dtype == torch.float32
        assert torch.acos(matrix.bfloat16()).dtype == torch.float32
    assert (matrix @ matrix).dtype == torch.float32


def test_gradients_are_scaled() -> None:
    scaler, model = torch.amp.GradScaler("accelrt"), nn.Linear(3, 1).to("accelrt")
    before = copy.deepcopy(model)
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    scaler.scale(model(torch.ones(2, 3, device="accelrt")).sum()).backward()
    scaler.step(optimiser)
    scaler.update()
    torch.testing.assert_close((before.weight - model.weight).cpu(), torch.ones(1, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("of_parameters", [None, torch.float32])
def test_norms_of_half_precision_have_the_cpus_bits(
    dtype: torch.dtype, of_parameters: torch.dtype | None, seed: int
) -> None:
    torch.manual_seed(seed)
    rows = torch.randn(3, 4, 5, 5).to(dtype)
    for norm in (nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm((4, 5, 5))):
        on_cpu = norm.to(of_parameters or dtype)
        on_device = copy.deepcopy(on_cpu).to("accelrt")
        for is_trained in (True, False):
            here, there = rows.clone().requires_grad_(), rows.to("accelrt").requires_grad_()
            for model, given in ((on_cpu, here), (on_device, there)):
                model.train(is_trained)(given).square().sum().backward()
            assert there.grad.dtype == dtype
            assert torch.equal(there.grad.cpu(), here.grad)
            _assert_equal(on_device, on_cpu)


def test_a_compiled_layer_takes_sequences_of_any_length() -> None:
    torch._dynamo.reset()  # noqa: SLF001 - as its tests do
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    compiled = torch.compile(copy.deepcopy(layer).to("accelrt"), backend="aot_eager", dynamic=True)
    for length in (3, 5, 4):
        rows = torch.linspace(0, 1, length * 8).view(1, length, 8)
        torch.testing.assert_close(compiled(rows.to("accelrt")).cpu(), layer(rows))


def test_a_compiled_function_runs_by_aot_eager() -> None:
    compiled = torch.compile(lambda x: (x.sin() + x.cos()).sum(), backend="aot_eager")
    rows = torch.linspace(0, 1, 5)
    there = rows.to("accelrt").requires_grad_()
    compiled(there).backward()
    torch.testing.assert_close(there.grad.cpu(), rows.cos() - rows.sin())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_is_computed_again_draws_the_same_numbers(use_reentrant: bool) -> None:  # noqa: FBT001 - a parameter of the test
    rows = torch.ones(200, device="accelrt", requires_grad=True)
    kept = checkpoint(functional.dropout, rows, use_reentrant=use_reentrant)
    kept.sum().backward()
    assert torch.equal(rows.grad.cpu(), kept.cpu())


def test_a_checkpoint_is_loaded_to_where_it_is_wanted(tmp_path: object) -> None:
    path = f"{tmp_path}/checkpoint"
    model = _mlp().to("accelrt:1")
    torch.save(model.state_dict(), path)
    for target in ("accelrt:0", "cpu"):
        loaded = torch.load(path, map_location=target)
        assert {str(part.device) for part in loaded.values()} == {target}
        assert torch.equal(loaded["0.weight"].cpu(), model[0].weight.cpu())
    assert torch.load(path)["0.weight"].device == torch.device("accelrt:1")
