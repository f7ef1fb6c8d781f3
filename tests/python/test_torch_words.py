"""What programs for torch say of a kind's devices, memory and random numbers, they say here.

Goal: the names, the places of arguments and the answers are torch's. Method: each is used as such a
program does.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import accelrt
from accelrt import accelerator
from kinds import KIND, default_stream, host_cores, module, several_devices
from processes import output_of

# Memory functions about one device.
ABOUT_A_DEVICE = (
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "shared_memory_stats",
)


@several_devices
@pytest.mark.parametrize("place", [1, f"{KIND}:1", accelrt.device(f"{KIND}:1")])
def test_memory_functions_take_their_device_by_name_and_by_place(place: Any) -> None:
    for functions in (accelerator, accelerator.memory, module):
        for name in ABOUT_A_DEVICE:
            function = getattr(functions, name)
            assert type(function(device=place)) is type(function(place))
        functions.set_per_process_memory_fraction(1.0, device=place)
    assert accelerator.get_memory_info(device=place)[1] == module.mem_get_info(device=place)[1]


@several_devices
def test_a_device_by_name_is_that_device() -> None:
    kept = accelrt.empty(3000, device=f"{KIND}:2")
    assert accelerator.memory_allocated(device=2) == kept.nbytes + 72
    with pytest.raises(RuntimeError, match="does not exist"):
        accelerator.memory_stats(device=77)


def test_the_accelerators_memory_is_a_module_with_the_same_functions() -> None:
    for name in accelerator.memory.__all__:
        assert getattr(accelerator.memory, name) is getattr(accelerator, name)
    assert sorted(accelerator.memory.__all__) == accelerator.memory.__all__
    assert accelerator.memory.__name__ == "accelrt.accelerator.memory"


@several_devices
def test_a_priority_and_flags_may_stand_at_their_places() -> None:
    stream = module.Stream(f"{KIND}:1", 0)
    assert (stream.device, stream.priority) == (accelrt.device(f"{KIND}:1"), 0)
    least, greatest = accelrt.Stream.priority_range()
    for priority in (least, greatest):
        assert module.Stream(None, priority).priority == priority
    start, end = module.Event(True), module.Event(True, False, False)
    start.record()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    with pytest.raises(ValueError, match="enable_timing=True"):
        module.Event(False).elapsed_time(end)


@several_devices
def test_the_default_stream_is_the_one_that_is_current_at_first() -> None:
    assert module.default_stream() == default_stream(0)
    assert module.default_stream(f"{KIND}:1") == default_stream(1)
    with module.stream(module.Stream()):
        assert module.default_stream() == default_stream(0) != module.current_stream()


def test_random_numbers_of_the_host_are_seeded_and_restored_at_the_top() -> None:
    seed = accelrt.seed()
    assert accelrt.initial_seed() == accelrt.cpu.initial_seed() == module.initial_seed() == seed
    assert accelrt.seed() != seed
    accelrt.manual_seed(11)
    state = accelrt.get_rng_state()
    generator = accelrt.cpu.default_generator()
    first = generator.random_raw(4)
    accelrt.set_rng_state(state)
    assert generator.random_raw(4) == first
    assert (
        accelrt.cpu.get_rng_state() != state == accelrt.Generator("cpu").manual_seed(11).get_state()
    )


@host_cores
@several_devices
def test_random_numbers_at_the_top_are_those_of_the_current_cpu_device() -> None:
    accelrt.manual_seed(5)
    with accelrt.cpu.device(1):
        accelrt.cpu.manual_seed(6)
        assert accelrt.initial_seed() == 6
        state = accelrt.get_rng_state()
        accelrt.cpu.default_generator(1).random_raw(4)
        accelrt.set_rng_state(state)
        assert accelrt.cpu.get_rng_state(1) == state
    assert accelrt.initial_seed() == 5
    assert accelrt.get_rng_state() != state


@several_devices
def test_devices_of_the_host_reach_each_others_memory() -> None:
    assert module.can_device_access_peer(0, 0)
    assert module.can_device_access_peer(0, peer=f"{KIND}:1") == (KIND == "cpu")
    for device, peer in ((0, 55), (55, 0)):
        with pytest.raises(RuntimeError, match="does not exist"):
            module.can_device_access_peer(device, peer)


def test_the_native_code_of_a_kind_is_named() -> None:
    assert accelrt.cpu.get_arch_list() == [os.uname().machine]
    assert accelrt.xpu.get_arch_list() == []


def test_bfloat16_is_computed_with_by_instructions_or_without() -> None:
    assert module.is_bf16_supported()
    has_instructions = module.get_device_properties().has_bfloat16_conversions
    assert module.is_bf16_supported(including_emulation=False) == has_instructions
    if KIND == "cpu":
        flags = Path("/proc/cpuinfo").read_text().split()
        assert has_instructions == ("avx512_bf16" in flags)
        assert accelrt.xpu.is_bf16_supported() == accelrt.xpu.is_available()


def test_statistics_are_nested_where_their_keys_have_dots() -> None:
    kept = accelrt.empty(5000)
    flat, nested = module.memory_stats(), module.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"] > 0
    assert set(nested) == {key.split(".")[0] for key in flat}

    def leaves(inner: dict[str, Any]) -> int:
        return sum(leaves(each) if isinstance(each, dict) else 1 for each in inner.values())

    assert leaves(nested) == len(flat)
    kept.release()


@several_devices
def test_properties_of_one_device_are_equal_and_hash_alike() -> None:
    first, again = module.get_device_properties(0), module.get_device_properties(0)
    assert first is not again
    assert (first, hash(first)) == (again, hash(again))
    assert len({first, again}) == 1
    assert first != "cpu"


@host_cores
def test_properties_of_devices_that_differ_are_not_equal() -> None:
    code = """
        import accelrt
        print(hash(accelrt.cpu.get_device_properties()), accelrt.cpu.get_device_properties())
    """
    hashes = {output_of(code, ACCELRT_CPU_MEMORY=size).split()[0] for size in ("64M", "65M", "64M")}
    assert len(hashes) == 2


def test_a_forked_child_sets_no_device() -> None:
    code = """
        import os, accelrt
        accelrt.accelerator.synchronize()
        accelrt.Stream().synchronize()
        if (child := os.fork()) == 0:
            for switch in (accelrt.cpu.set_device, accelrt.accelerator.set_device_index):
                switch(-1)  # which changes nothing
                try:
                    switch(0)
                except RuntimeError as error:
                    print(str(error).split(".")[0], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """
    expected = "Cannot re-initialize accelrt in forked subprocess\n"
    assert output_of(code) == expected * 2


def test_kinds_of_others_are_not_built_in() -> None:
    backends = accelrt.backends
    assert not backends.cuda.is_built()
    assert (backends.mps.is_available(), backends.mps.is_built()) == (False, False)


def test_cudnn_is_asked_where_it_is_found(tmp_path: Path) -> None:
    code = """
        from accelrt.backends import cudnn
        print(cudnn.is_available(), cudnn.version())
    """
    source = "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 90100; }\n"
    library = tmp_path / "libcudnn.so.9"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)  # noqa: S603  the house's compiler
    assert output_of(code, LD_LIBRARY_PATH=str(tmp_path)) == "True 90100\n"
