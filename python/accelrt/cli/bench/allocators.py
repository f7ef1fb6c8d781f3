"""What others get from our host cache: NumPy's arrays (H1) and oneMKL's buffers (H2).

oneMKL reads its functions once: each allocator has a process of its own, and they measure in turns.
"""

import contextlib
import ctypes
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from types import ModuleType

import accelrt
from accelrt.backends import mkl
from accelrt.cli.bench.measure import (
    Thing,
    in_blocks,
    in_turns,
    ns_per_round,
    once,
    optional,
    row,
)
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.quiet import Watch

# How many blocks of how many rounds.
_ARRAYS = (
    ("H1.512B", "empty(512, byte)", 20, 500),
    ("H1.64KiB", "empty(1 << 16, byte)", 20, 500),
    ("H1.2MiB", "empty(1 << 21, byte)", 20, 500),
    ("H1.2MiB.ones", "ones(1 << 21, byte)", 30, 8),
    ("H1.2MiB.zeros", "zeros(1 << 21, byte)", 30, 8),
)
_PRODUCTS = (
    ("H2.64", "gemm(64)", 300),
    ("H2.512", "gemm(512)", 3),
    ("H2.64.fresh", "gemm(64); free()", 300),
    ("H2.512.fresh", "gemm(512); free()", 3),
)
_PEERS = {"oneMKL's own": None, "mimalloc": "mimalloc"}


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    yield from _of_arrays()
    yield from _of_products()


def _of_arrays() -> Iterator[Measurement]:
    numpy = optional("numpy")
    if numpy is None:
        yield from (Measurement(name, reason="numpy is missing") for name, *_ in _ARRAYS)
        return
    for name, statement, blocks, rounds in _ARRAYS:
        measured = (in_blocks(blocks, rounds, statement, **_names(numpy)) for _ in _SCOPES)
        figures = in_turns(*map(_within, _SCOPES, measured))
        yield row(name, figures[0], "NumPy's own", figures[1])


_SCOPES = (accelrt.numpy_memory, contextlib.nullcontext)


def _names(numpy: ModuleType) -> dict[str, object]:
    return {"empty": numpy.empty, "ones": numpy.ones, "zeros": numpy.zeros, "byte": numpy.uint8}


def _within(scope: Callable[[], contextlib.AbstractContextManager[None]], thing: Thing) -> Thing:
    def scoped(watch: Watch) -> float:
        with scope():
            return thing(watch)

    return scoped


def _of_products() -> Iterator[Measurement]:
    if not mkl.is_available():
        yield from _unmeasured("oneMKL is missing")
        return
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(_process(name)) for name in ("accelrt", *_PEERS.values())]
        refused, *missing = [pool.submit(_Products.refusal).result() for pool in pools]
        if refused is not None:
            yield from _unmeasured(refused)
            return
        reasons = (None, *missing)
        there = [pool for pool, reason in zip(pools, reasons, strict=True) if reason is None]
        for name, statement, rounds in _PRODUCTS:
            ours, *figures = in_turns(*(_products(pool, statement, rounds) for pool in there))
            theirs = iter(figures)
            for (peer, allocator), reason in zip(_PEERS.items(), missing, strict=True):
                figure = next(theirs) if reason is None else None
                yield row(_name(name, allocator), ours, peer, figure)


def _name(name: str, allocator: str | None) -> str:
    return name if allocator is None else f"{name}.{allocator}"


def _unmeasured(reason: str) -> Iterator[Measurement]:
    for name, *_ in _PRODUCTS:
        for allocator in _PEERS.values():
            yield Measurement(_name(name, allocator), reason=reason)


def _process(allocator: str | None) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, _Products.begin, (allocator,))


def _products(pool: ProcessPoolExecutor, statement: str, rounds: int) -> Thing:
    return once(lambda: pool.submit(_Products.measure, statement, rounds).result())


class _Products:
    """A process that has oneMKL multiply: its library, and why its allocator was refused."""

    names: dict[str, object]
    reason: str | None = None

    @classmethod
    def begin(cls, allocator: str | None) -> None:
        mkl.version()  # loads it
        with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123  no file
            path = next(line.split()[-1] for line in maps if "libmkl_rt" in line)
        library = ctypes.CDLL(path)
        if allocator is not None:
            try:
                mkl.use_allocator(allocator)
            except RuntimeError as error:
                cls.reason = str(error)
        library.MKL_Set_Num_Threads(1)
        cls.names = {"gemm": _gemm(library), "free": library.MKL_Free_Buffers}

    @classmethod
    def refusal(cls) -> str | None:
        return cls.reason

    @classmethod
    def measure(cls, statement: str, rounds: int) -> float:
        return ns_per_round(rounds, statement, **cls.names)


def _gemm(library: ctypes.CDLL) -> Callable[[int], None]:
    most = 512
    a, b, c = ((ctypes.c_double * (most * most))() for _ in range(3))
    one, zero, row_major, plain = ctypes.c_double(1), ctypes.c_double(0), 101, 111

    def gemm(size: int) -> None:
        library.cblas_dgemm(
            row_major, plain, plain, size, size, size, one, a, size, b, size, zero, c, size
        )

    return gemm
