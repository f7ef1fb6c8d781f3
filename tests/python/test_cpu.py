"""`accelrt.cpu`: the surface that the module of every kind has, and what starts nothing."""

import math
import os

import pytest

import accelrt
from accelrt import cpu
from processes import output_of


def test_every_public_name_is_there() -> None:
    assert sorted(cpu.__all__) == list(cpu.__all__)
    assert all(hasattr(cpu, name) for name in cpu.__all__)
    assert cpu.Stream is accelrt.Stream
    assert cpu.Event is accelrt.Event


def test_its_devices_are_there() -> None:
    assert cpu.is_available()
    assert cpu.device_count() == 3


@pytest.mark.parametrize("device", [2, "cpu:2", accelrt.device("cpu:2")])
def test_set_device_takes_an_index_a_name_or_a_device(
    device: str | int | accelrt.device | None,
) -> None:
    cpu.set_device(device)
    assert cpu.current_device() == 2
    cpu.set_device(-1)
    assert cpu.current_device() == 2


@pytest.mark.parametrize("device", [None, "cpu", accelrt.device("cpu")])
def test_set_device_needs_an_index(device: str | accelrt.device | None) -> None:
    with pytest.raises(ValueError, match=f"a specified index or an integer, but got:{device}$"):
        cpu.set_device(device)


def test_functions_mean_the_current_device_by_default() -> None:
    cpu.set_device(1)
    assert cpu.current_stream().device_index == 1
    assert cpu.current_stream("cpu").device_index == 1
    cpu.synchronize()


def test_another_kind_is_refused() -> None:
    for call in (cpu.set_device, cpu.synchronize, cpu.current_stream, cpu.get_device_name):
        with pytest.raises(ValueError, match=r"^Expected a cpu device, but got: cuda$"):
            call("cuda:0")


def test_a_device_that_does_not_exist_says_which_do() -> None:
    for call in (cpu.set_device, cpu.synchronize, cpu.mem_get_info, cpu.get_device_properties):
        with pytest.raises(RuntimeError, match="cpu:5 does not exist: there are 3 cpu devices"):
            call(5)


def test_set_stream_switches_the_device_too() -> None:
    stream = cpu.Stream("cpu:2")
    cpu.set_stream(stream)
    assert (cpu.current_device(), cpu.current_stream()) == (2, stream)


def test_properties_are_those_of_the_machine() -> None:
    properties = cpu.get_device_properties(1)
    assert type(properties) is accelrt.DeviceProperties
    assert accelrt.DeviceProperties.__module__ == "accelrt"
    assert properties.name == cpu.get_device_name(1) != ""
    assert properties.total_memory == cpu.mem_get_info(1)[1]
    assert 1 <= properties.core_count <= (os.cpu_count() or 1)
    assert all(size > 0 for size in properties.cache_bytes)
    assert properties.page_bytes == os.sysconf("SC_PAGE_SIZE")
    huge = properties.huge_page_bytes
    assert huge is None or math.log2(huge).is_integer()
    assert not properties.is_gpu
    assert repr(properties).startswith(f"DeviceProperties(name='{properties.name}', total_memory=")


def test_capability_is_that_of_the_accelerator() -> None:
    assert cpu.get_device_capability(0) == accelrt.accelerator.get_device_capability(0)


def test_init_makes_the_device_ready() -> None:
    cpu.init()
    assert cpu.is_initialized()


def test_init_makes_a_process_ready_that_has_used_nothing() -> None:
    answers = output_of(
        """
        from accelrt import cpu
        print(cpu.is_initialized())
        cpu.init()
        print(cpu.is_initialized())
        """
    )
    assert answers.split() == ["False", "True"]


def test_questions_do_not_initialise() -> None:
    answers = output_of(
        """
        import os
        import accelrt
        from accelrt import accelerator, cpu

        accelerator.is_available(), accelerator.device_count(), accelerator.current_accelerator()
        accelerator.current_device_index(), accelerator.get_memory_info(), cpu.is_available()
        accelerator.get_device_capability(), cpu.get_device_properties(), cpu.mem_get_info()
        accelerator.set_device_index(0), accelerator.synchronize(), cpu.synchronize()
        accelrt.get_device_module(), accelrt.device(0), accelrt.Stream.priority_range()
        event = accelrt.Event(enable_timing=True)
        event.query(), event.synchronize()
        with accelrt.device("cpu:0"), accelerator.device_index(0):
            pass
        print(cpu.is_initialized(), len(os.listdir("/proc/self/task")))
        accelrt.Stream()
        print(cpu.is_initialized())
        """
    )
    assert answers == "False 1\nTrue\n"
