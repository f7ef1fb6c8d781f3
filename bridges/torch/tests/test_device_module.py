"""`torch.accelrt`: what `torch.xpu` has, of accelrt's devices.

Goal: a program for `torch.xpu` finds the same functions with the same keywords. Method: the names
that `torch.xpu` exports against ours; each function against accelrt's own, on a device that is not
the current one.
"""

import importlib
import inspect
from collections.abc import Callable

import pytest
import torch

import accelrt

# What `torch.xpu` has of GPUs' drivers, of graphs, of pools and of allocators from outside.
NOT_THERE = {
    *("XPUGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"),
    *("make_graphed_callables", "MemPool", "use_mem_pool"),
    *("XPUPluggableAllocator", "change_current_allocator", "get_stream_from_external"),
    *("clock_rate", "device_memory_used", "list_gpu_processes", "memory_usage", "power_draw"),
    *("temperature", "utilization", "get_arch_list", "get_gencode_flags", "is_tf32_supported"),
}


def test_what_torch_xpu_exports_is_there_or_listed() -> None:
    lacking = {name for name in torch.xpu.__all__ if not hasattr(torch.accelrt, name)}
    assert lacking == NOT_THERE & set(torch.xpu.__all__)
    assert set(torch.accelrt.__all__) <= set(dir(torch.accelrt))


def test_its_parts_are_imported_by_name() -> None:
    for part in ("memory", "random", "streams"):
        module = importlib.import_module(f"torch.accelrt.{part}")
        assert module is getattr(torch.accelrt, part)


def test_a_kernel_has_a_number_of_threads_that_there_may_be() -> None:
    for count in (0, 100_000):
        with pytest.raises(RuntimeError, match=f"1 to 1024 threads, not {count}"):
            torch.accelrt.set_num_threads(count)


def test_what_is_not_there_says_that_torch_xpu_has_it() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'MemPool', which torch.xpu has"):
        _ = torch.accelrt.MemPool
    with pytest.raises(AttributeError, match=r"no attribute 'mempool'$"):
        _ = torch.accelrt.mempool


FUNCTIONS = [
    name for name in torch.xpu.__all__
    if name not in NOT_THERE and inspect.isfunction(getattr(torch.xpu, name))
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_have_the_names_of_torch_xpus(name: str) -> None:
    theirs = inspect.signature(getattr(torch.xpu, name)).parameters.values()
    ours = inspect.signature(getattr(torch.accelrt, name)).parameters.values()
    ours_by_name = [own.name for own in ours if own.kind is own.POSITIONAL_OR_KEYWORD]
    asked = [of_torch.name for of_torch in theirs if of_torch.name != "mempool_id"]
    assert ours_by_name == asked


def test_what_is_known_of_a_device_is_accelrts() -> None:
    assert torch.accelrt.get_device_name("accelrt:1") == accelrt.cpu.get_device_name(1)
    properties = torch.accelrt.get_device_properties(device=1)
    assert properties.total_memory == torch.accelrt.mem_get_info(1)[1]
    assert torch.float32 in torch.accelrt.get_device_capability(1)["supported_dtypes"]
    assert torch.accelrt.can_device_access_peer(0, 1)
    assert torch.accelrt.is_bf16_supported()
    assert torch.accelrt.is_bf16_supported(False) == accelrt.cpu.is_bf16_supported(  # noqa: FBT003
        including_emulation=False
    )


def test_figures_of_memory_are_of_the_device_that_is_asked_for() -> None:
    kept = torch.empty(3 << 20, device="accelrt:1", dtype=torch.uint8)
    for asked in (1, "accelrt:1", torch.device("accelrt:1")):
        assert torch.accelrt.memory_allocated(device=asked) == accelrt.cpu.memory_allocated(1)
        assert torch.accelrt.memory_reserved(device=asked) == accelrt.cpu.memory_reserved(1)
    nested = torch.accelrt.memory_stats_as_nested_dict(1)
    allocated = torch.accelrt.memory_allocated(1)
    assert nested["allocated_bytes"]["all"]["current"] == allocated >= 3 << 20
    assert torch.accelrt.memory_stats(1)["allocated_bytes.all.current"] == allocated
    del kept
    torch.accelrt.synchronize(1)
    assert torch.accelrt.max_memory_allocated(device=1) >= allocated
    assert torch.accelrt.max_memory_reserved(device=1) >= allocated
    torch.accelrt.reset_peak_memory_stats(device=1)
    assert torch.accelrt.max_memory_allocated(1) == torch.accelrt.memory_allocated(1)
    torch.accelrt.reset_accumulated_memory_stats(device=1)
    assert torch.accelrt.memory_stats(1)["num_device_alloc"] == 0


def test_a_fraction_of_the_memory_limits_a_device() -> None:
    total = torch.accelrt.mem_get_info(2)[1]
    torch.accelrt.empty_cache()
    torch.accelrt.set_per_process_memory_fraction((8 << 20) / total, device=2)
    try:
        assert torch.accelrt.get_per_process_memory_fraction(2) == (8 << 20) / total
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(9 << 20, device="accelrt:2", dtype=torch.uint8)
        torch.empty(9 << 20, device="accelrt:1", dtype=torch.uint8)
    finally:
        torch.accelrt.set_per_process_memory_fraction(1.0, 2)
    torch.empty(9 << 20, device="accelrt:2", dtype=torch.uint8)


def test_no_stream_changes_nothing() -> None:
    before = torch.accelrt.current_stream()
    with torch.accelrt.stream(None):
        assert torch.accelrt.current_stream() == before
    torch.accelrt.set_stream(None)
    assert torch.accelrt.current_stream() == before
    with pytest.raises(TypeError, match=r"must be a torch.Stream or None, not int"):
        torch.accelrt.stream(3)


def test_a_context_of_a_stream_may_be_entered_again_inside() -> None:
    outer, inner = torch.Stream("accelrt:1"), torch.Stream("accelrt:0")
    context = torch.accelrt.stream(outer)
    before = torch.accelrt.current_stream()
    with context, torch.accelrt.stream(inner), context:
        assert torch.accelrt.current_stream() == outer
        assert torch.accelrt.current_device() == 1
    assert torch.accelrt.current_stream() == before
    assert torch.accelrt.current_device() == 0


def test_default_stream_is_current_at_first() -> None:
    for index in range(4):
        default = torch.accelrt.default_stream(index)
        assert default == torch.accelrt.current_stream(index)
        assert default.device == torch.device(f"accelrt:{index}")
    with torch.Stream("accelrt:1") as side:
        assert torch.accelrt.default_stream() != side
        assert torch.accelrt.default_stream().device.index == 1


def test_the_default_generators_are_those_of_the_devices() -> None:
    generators = torch.accelrt.default_generators
    assert [generator.device.index for generator in generators] == [0, 1, 2, 3]
    generators[1].manual_seed(17)
    assert torch.equal(torch.accelrt.get_rng_state(1), generators[1].get_state())


def test_a_storages_device_is_current_inside_of_its_context() -> None:
    storage = torch.ones(2, device="accelrt:1").untyped_storage()
    with torch.accelrt.device_of(storage):
        assert torch.accelrt.current_device() == 1
    with torch.accelrt.device_of(torch.ones(2).untyped_storage()):
        assert torch.accelrt.current_device() == 0
    torch.accelrt.set_device(-1)
    assert torch.accelrt.current_device() == 0


ASKING: list[Callable[[int], object]] = [
    torch.accelrt.get_device_name,
    torch.accelrt.get_rng_state,
    torch.accelrt.mem_get_info,
    torch.accelrt.memory_summary,
    torch.accelrt.set_device,
    torch.accelerator.memory_allocated,
    torch.accelerator.reset_peak_memory_stats,
    torch.accelerator.synchronize,
    torch.accelerator.current_stream,
    lambda index: torch.Stream(f"accelrt:{index}"),
    lambda index: torch.Generator(f"accelrt:{index}"),
]


@pytest.mark.parametrize("ask", ASKING)
def test_each_function_tells_which_devices_there_are(ask: Callable[[int], object]) -> None:
    with pytest.raises(
        RuntimeError, match=r"no device accelrt:9: there are 4.*ACCELRT_CPU_DEVICES=10"
    ):
        ask(9)


def test_a_negative_index_is_no_device() -> None:
    with pytest.raises(RuntimeError, match="no device accelrt:-3: an index is 0 to 3"):
        torch.accelrt.memory_stats(-3)
