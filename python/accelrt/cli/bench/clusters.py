"""Workers of dask.distributed with devices, beside plain dask (Z1 to Z3).

Spilling is that of a store in this process. Plain dask has as much memory for its values as device
and host are together, and no other limit.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import accelrt
from accelrt._memory import fraction_of
from accelrt.cli.bench.measure import Figure, in_turns, once, optional, row
from accelrt.cli.bench.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_VALUES: Final = 16
_VALUE_BYTES: Final = 4 << 20
_TASKS: Final = 300
# Of the product: blocks in a row, of rows of float32; a worker's room on device and host.
_BLOCKS: Final = 4
_ROWS: Final = 1024
_ON_DEVICE, _ON_HOST = 6, 3
_PRODUCTS: Final = 3
_NAMES: Final = ("Z1.host", "Z1.disk", "Z1.disk.dask", "Z2", "Z3")


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    if optional("distributed") is None or optional("numpy") is None:
        for name in _NAMES:
            yield Measurement(name, reason="needs the extra `dask`, and NumPy")
        return
    yield row("Z1.host", *_with_peer("memcpy", in_turns(once(_left_ms), once(_copied_ms))))
    disk = in_turns(*map(once, (_spilled_ms, _written_ms, _spilled_by_dask_ms)))
    yield row("Z1.disk", *_with_peer("raw writes", [disk[0], disk[1]]))
    yield row("Z1.disk.dask", *_with_peer("dask", [disk[0], disk[2]]))
    with _ours(4 * _ROWS * _ROWS) as ours, _plain(4 * _ROWS * _ROWS) as plain:
        tasks = in_turns(*(once(partial(_task_us, client)) for client in (ours, plain)))
        yield row("Z2", *_with_peer("dask", tasks))
        turns = [
            [_product_s(ours, is_ours=True), _product_s(plain, is_ours=False)]
            for _ in range(_PRODUCTS)
        ]
    of_ours, of_dask = zip(*turns, strict=True)
    median = statistics.median
    yield Measurement("Z3", median(of_ours), min(of_ours), "dask", median(of_dask))


def _with_peer(name: str, figures: list[Figure]) -> tuple[Figure, str, Figure]:
    ours, theirs = figures
    return ours, name, theirs


def _ms(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1e3


def _left_ms() -> float:
    """Return what a request takes that all values of a store make room for."""
    from accelrt.dask import DeviceStore  # noqa: PLC0415  an extra

    module, whole = accelrt.cpu, _VALUES * _VALUE_BYTES
    module.empty_cache()
    limit, total = module.memory_reserved() + whole, module.mem_get_info()[1]
    module.set_per_process_memory_fraction(fraction_of(limit, total))
    with tempfile.TemporaryDirectory() as folder:
        store = DeviceStore(folder, accelrt.device("cpu:0"), host_limit=2 * whole)
        try:
            for number in range(_VALUES):
                store[str(number)] = accelrt.empty(_VALUE_BYTES, device="cpu:0").fill_(number)
            module.synchronize()
            return _ms(lambda: _request(whole))
        finally:
            module.set_per_process_memory_fraction(1.0)
            store.close()
            store.clear()


def _request(nbytes: int) -> None:
    with accelrt.empty(nbytes, device="cpu:0"):
        accelrt.cpu.synchronize(0)


def _pinned(nbytes: int) -> accelrt.Buffer:
    buffer = accelrt.empty_pinned(nbytes).fill_(1)
    accelrt.cpu.synchronize()
    return buffer


def _noise() -> Any:  # noqa: ANN401  what has the buffer protocol
    """Return a value that dask does not compress."""
    return _pinned(_VALUE_BYTES).copy_(random.Random(1).randbytes(_VALUE_BYTES))  # noqa: S311


def _copied_ms() -> float:
    # Of the pool both, and what is written to was used one turn ago, as ours.
    to, of = accelrt.empty_pinned(_VALUES * _VALUE_BYTES), _pinned(_VALUES * _VALUE_BYTES)
    return _ms(lambda: ctypes.memmove(to.data_ptr(), of.data_ptr(), to.nbytes))


def _spilled_ms() -> float:
    from accelrt.dask import DeviceStore  # noqa: PLC0415  an extra
    from accelrt.dask.frames import OnHost  # noqa: PLC0415  as above

    def make(folder: str) -> DeviceStore:
        return DeviceStore(folder, accelrt.device("cpu:0"), host_limit=1 << 40)

    return _evicted_ms(make, lambda: OnHost(_noise(), None), DeviceStore.close)


def _spilled_by_dask_ms() -> float:
    import numpy as np  # noqa: PLC0415  optional
    from distributed.spill import SpillBuffer  # noqa: PLC0415  an extra

    return _evicted_ms(
        lambda folder: SpillBuffer(folder, 1 << 40),
        lambda: np.frombuffer(_noise(), "u1").copy(),
        SpillBuffer.close,
    )


def _evicted_ms(
    make: Callable[[str], Any], value: Callable[[], object], close: Callable[[Any], None]
) -> float:
    with tempfile.TemporaryDirectory() as folder:
        store = make(folder)
        for number in range(_VALUES):
            store[str(number)] = value()
        took_ms = _ms(lambda: [store.evict() for _ in range(_VALUES)])
        close(store)
    return took_ms


def _written_ms() -> float:
    with tempfile.TemporaryDirectory() as folder:
        values = [memoryview(_noise()) for _ in range(_VALUES)]  # as many as ours

        def write() -> None:
            for number, value in enumerate(values):
                Path(folder, str(number)).write_bytes(value)

        return _ms(write)


@contextmanager
def _ours(block_bytes: int) -> Iterator[Any]:
    """Start two workers with room for blocks of a size."""
    from distributed import Client  # noqa: PLC0415  an extra

    from accelrt.dask import LocalCluster  # noqa: PLC0415  an extra

    limits = {
        "device_memory": _ON_DEVICE * block_bytes,
        "host_memory": _ON_HOST * block_bytes,
    }
    with (
        LocalCluster("cpu", [0, 0], dashboard_address=":0", **limits) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def _plain(block_bytes: int) -> Iterator[Any]:
    """Start two workers of dask alone, with as much memory."""
    import dask  # noqa: PLC0415  an extra
    import distributed  # noqa: PLC0415  as above

    keep = {f"distributed.worker.memory.{it}": False for it in ("spill", "pause", "terminate")}
    with (
        dask.config.set(keep | {"distributed.worker.memory.target": 0.5}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=2 * (_ON_DEVICE + _ON_HOST) * block_bytes,
            dashboard_address=":0",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def _task_us(client: Any) -> float:  # noqa: ANN401  of distributed
    from distributed import wait  # noqa: PLC0415  an extra

    return _ms(lambda: wait(client.map(abs, range(_TASKS), pure=False))) * 1e3 / _TASKS


def _product_s(client: Any, *, is_ours: bool) -> float:  # noqa: ANN401  as above
    """Return the seconds of a product of blocks; each task adds the product of two to a third."""
    from distributed import wait  # noqa: PLC0415  an extra

    def multiply() -> None:
        places = range(_BLOCKS)
        a, b = (
            [[client.submit(_block, _ROWS, is_ours, pure=False) for _ in places] for _ in places]
            for _ in range(2)
        )
        c = [[client.submit(_block, _ROWS, is_ours)] * _BLOCKS for _ in places]
        for k in places:
            for i in places:
                for j in places:
                    c[i][j] = client.submit(_add_product, c[i][j], a[i][k], b[k][j], is_ours)
        wait([block for line in c for block in line])

    return _ms(multiply) / 1e3


def _block(rows: int, is_ours: bool, value: float = 1.0) -> Any:  # noqa: ANN401, FBT001  an array
    import numpy as np  # noqa: PLC0415  optional

    if not is_ours:
        return np.full((rows, rows), value, "float32")
    made = accelrt.empty(4 * rows * rows).view("float32", (rows, rows))
    np.asarray(made)[:] = value
    return made


def _add_product(total: Any, a: Any, b: Any, is_ours: bool) -> Any:  # noqa: ANN401, FBT001  as above
    import numpy as np  # noqa: PLC0415  optional

    result = _block(a.shape[0], is_ours)
    np.matmul(np.asarray(a), np.asarray(b), out=np.asarray(result))
    np.asarray(result)[:] += np.asarray(total)
    return result
