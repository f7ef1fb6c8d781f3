"""A product of matrices that have four times the memory of the devices, over two workers.

The matrices are blocks; each task multiplies two of them and adds the third. Workers of accelrt
keep blocks on their device, those that its memory is needed for on the host, and the rest on disk.
Plain dask has as much memory for its blocks, in one piece, and writes what is above it to disk as
well. What each worker did is written as one timeline, for `python -m accelrt view` and Perfetto.

    python examples/out_of_core.py [--block ROWS] [--alone] [--trace out_of_core.json]
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("ACCELRT_CPU_DEVICES", "2")

import dask
import distributed
import numpy as np
from distributed import Client

import accelrt
from accelrt.dask import LocalCluster, profile

BLOCKS = 4  # in a row of each matrix
ON_DEVICE, ON_HOST = 6, 3  # blocks that a worker has room for; 48 are a quarter in two devices
Array = np.typing.NDArray[np.float32]


def on_device(rows: int) -> accelrt.View:
    """Return a block in the device's memory, with what it has had."""
    return accelrt.empty(4 * rows * rows).view("float32", (rows, rows))


def on_host(rows: int) -> Array:
    """Return a block for plain dask."""
    return np.empty((rows, rows), "float32")


def numbers(rows: int, seed: int) -> Array:
    """Return whole numbers so small that sums of their products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, rows)).astype("float32")


def make(block: Callable[[int], object], rows: int, seed: int) -> object:
    """Return a block of numbers; a negative seed means zeros."""
    made = block(rows)
    np.asarray(made)[:] = numbers(rows, seed) if seed >= 0 else 0
    return made


def add_product(block: Callable[[int], object], total: object, a: object, b: object) -> object:
    """Return total + a b in a new block."""
    rows = np.asarray(a).shape[0]
    result = block(rows)
    np.matmul(np.asarray(a), np.asarray(b), out=np.asarray(result))
    np.asarray(result)[:] += np.asarray(total)
    return result


def times(block: object, part: Array) -> Array:
    """Return the product of a block and a part of a vector."""
    return np.asarray(block).astype("float64") @ part


def multiply(client: Client, block: Callable[[int], object], rows: int) -> float:
    """Return the seconds that the product takes; check it by the vector (AB)x, which is A(Bx)."""
    places, begin_s = range(BLOCKS), time.perf_counter()
    seeds = np.arange(2 * BLOCKS * BLOCKS).reshape(2, BLOCKS, BLOCKS)
    a, b = ([[client.submit(make, block, rows, int(it)) for it in row] for row in m] for m in seeds)
    c = [[client.submit(make, block, rows, -1)] * BLOCKS for _ in places]
    for k in places:
        for i in places:
            for j in places:
                c[i][j] = client.submit(add_product, block, c[i][j], a[i][k], b[k][j])
    x = np.random.default_rng(0).integers(-4, 5, (BLOCKS, rows)).astype("float64")
    found = client.gather([client.submit(times, c[i][j], x[j]) for i in places for j in places])
    took_s = time.perf_counter() - begin_s
    of_a, of_b = ([[numbers(rows, int(it)) for it in row] for row in m] for m in seeds)
    bx = [sum(of_b[k][j] @ x[j] for j in places) for k in places]
    for i in places:
        expected = sum(of_a[i][k] @ bx[k] for k in places)
        assert np.array_equal(sum(found[i * BLOCKS : (i + 1) * BLOCKS]), expected)
    return took_s


def multiply_by_plain_dask(rows: int) -> float:
    """Return the seconds of two workers that have as much memory in one piece."""
    keep = {f"distributed.worker.memory.{it}": False for it in ("spill", "pause", "terminate")}
    with (
        dask.config.set(keep | {"distributed.worker.memory.target": 0.5}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=2 * (ON_DEVICE + ON_HOST) * 4 * rows * rows,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        return multiply(client, on_host, rows)


def main() -> None:
    """Multiply by both and show what they took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--block", type=int, default=1024, help="rows of a block")
    parser.add_argument("--alone", action="store_true", help="without plain dask beside it")
    parser.add_argument("--trace", type=Path, help="where the timeline goes")
    given = parser.parse_args()
    size = 4 * given.block * given.block
    trace = given.trace or Path(tempfile.mkdtemp()) / "out_of_core.json"

    limits = {"device_memory": ON_DEVICE * size, "host_memory": ON_HOST * size}
    with (
        LocalCluster(devices=[0, 1], dashboard_address=":0", **limits) as cluster,
        Client(cluster) as client,
        profile(client) as run,
    ):
        ours_s = multiply(client, on_device, given.block)
    run.export_chrome_trace(trace)

    beside = "" if given.alone else f", {multiply_by_plain_dask(given.block):.2f} s with plain dask"
    records = json.loads(trace.read_text())["traceEvents"]
    spilled = sum(it["name"] == "write to disk" for it in records)
    print(f"checked: {ours_s:.2f} s with accelrt{beside}")
    print(f"{spilled} blocks went to disk: python -m accelrt view {trace}")


if __name__ == "__main__":
    main()
