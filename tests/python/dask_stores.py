"""Stores of dask's workers, without a worker."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import accelrt
from accelrt._memory import fraction_of
from accelrt.dask import DeviceStore
from processes import LIMIT_SECONDS

VALUE_BYTES = 2 << 20
LIMIT_S = 2 * LIMIT_SECONDS


@contextmanager
def made_store(directory: Path) -> Iterator[DeviceStore]:
    """Make a store on a device with room for three values, and a host for two."""
    with limited(1):
        device = accelrt.device("cpu:1")
        store = DeviceStore(str(directory), device, host_limit=2 * VALUE_BYTES)
        yield store
        store.close()


@contextmanager
def limited(index: int) -> Iterator[None]:
    """Limit a device to three values."""
    gc.collect()
    accelrt.cpu.synchronize(index)
    accelrt.cpu.empty_cache()
    total = accelrt.cpu.mem_get_info(index)[1]
    accelrt.cpu.set_per_process_memory_fraction(fraction_of(3 * VALUE_BYTES, total), index)
    yield
    accelrt.cpu.set_per_process_memory_fraction(1.0, index)


def fill(store: DeviceStore, count: int) -> None:
    """Put values in that take the device's room one by one."""
    for number in range(count):
        store[f"x-{number}"] = full(number)


def full(byte: int) -> accelrt.Buffer:
    """Return a value that is complete, as those that tasks return."""
    value = accelrt.empty(VALUE_BYTES, device="cpu:1").fill_(byte)
    accelrt.cpu.synchronize(1)
    return value
