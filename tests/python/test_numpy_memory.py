"""NumPy's arrays from the host cache: `accelrt.numpy_memory`.

Goal: arrays of the scope and no others come from it, are counted exactly, hold what was written,
and go back wherever they die. Method: the statistics before and after; random programs beside
arrays of NumPy's own memory; processes of their own for forks, ends and what is missing.
"""

import gc
import os
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy._core.multiarray import get_handler_name
from numpy.typing import NDArray

import accelrt
from processes import output_of

Bytes = NDArray[np.uint8]


def active() -> tuple[int, int]:
    """Return how many requests and bytes are in use."""
    stats = accelrt.accelerator.host_memory_stats()
    requests, size = stats["active_requests.current"], stats["active_bytes.current"]
    assert isinstance(requests, int)
    assert isinstance(size, int)
    return requests, size


def added(since: tuple[int, int]) -> tuple[int, int]:
    requests, size = active()
    return requests - since[0], size - since[1]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    gc.collect()
    before = active()
    yield
    gc.collect()
    for _ in range(100_000):  # a driver's thread may be the last to have a pinned buffer
        if added(before) == (0, 0):
            break
        os.sched_yield()
    assert added(before) == (0, 0)


def name(array: Bytes) -> str:
    return str(get_handler_name(array))


def test_arrays_of_the_scope_and_no_others_are_counted() -> None:
    before = active()
    outside = np.empty(1000, np.uint8)
    with accelrt.numpy_memory():
        small, large = np.empty(1000, np.uint8), np.empty(100_000, np.uint8)
        assert added(before) == (2, 1024 + 102_400)
    after = np.empty(1000, np.uint8)
    assert [name(array) for array in (small, large)] == ["accelrt"] * 2
    assert [name(array) for array in (outside, after)] == ["default_allocator"] * 2
    assert small.ctypes.data % 64 == 0
    assert large.ctypes.data % 64 == 0
    del small
    assert added(before) == (1, 102_400)
    del large


def test_nested_scopes_restore_what_was() -> None:
    @accelrt.numpy_memory()
    def inside() -> Bytes:
        return np.empty(8, np.uint8)

    with accelrt.numpy_memory():
        with accelrt.numpy_memory():
            assert name(np.empty(8, np.uint8)) == "accelrt"
        assert name(np.empty(8, np.uint8)) == "accelrt"
    assert name(np.empty(8, np.uint8)) == "default_allocator"
    assert [name(inside()) for _ in range(2)] == ["accelrt"] * 2
    with pytest.raises(RuntimeError, match="not entered"):
        accelrt.numpy_memory().__exit__()
    error = ValueError("of the body")
    with pytest.raises(ValueError, match="of the body"), accelrt.numpy_memory():
        raise error
    assert name(np.empty(8, np.uint8)) == "default_allocator"


def test_a_scope_is_that_of_one_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        with accelrt.numpy_memory():
            assert name(pool.submit(np.empty, 8, np.uint8).result()) == "default_allocator"

        def inside() -> tuple[str, Bytes]:
            with accelrt.numpy_memory():
                return name(np.empty(8, np.uint8)), np.arange(50_000, dtype=np.uint8)

        found, array = pool.submit(inside).result()
    assert found == "accelrt"
    assert array[255] == 255, "its thread is gone"


def test_arrays_die_on_other_threads_after_the_scope() -> None:
    before = active()
    with accelrt.numpy_memory():
        arrays = [np.full(1 + number * 7, number % 256, np.uint8) for number in range(3000)]
    assert added(before)[0] == 3000

    def drop(part: list[Bytes]) -> bool:
        is_whole = all((array == array[0]).all() for array in part)
        part.clear()
        return is_whole

    parts = [arrays[start::4] for start in range(4)]
    arrays.clear()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(drop, parts))
    assert added(before) == (0, 0)


def test_threads_that_make_and_drop_arrays_at_once_have_their_own_memory() -> None:
    wrong, gate = list[int](), threading.Barrier(4)

    def work(byte: int) -> None:
        gate.wait()
        with accelrt.numpy_memory():
            for number in range(2000):
                array = np.full(number * 37 % 70_000, byte, np.uint8)
                if not (array == byte).all():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(byte,)) for byte in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_zeros_are_zeros_where_something_else_was() -> None:
    with accelrt.numpy_memory():
        for size in (1, 64, 1000, 40_000, 1 << 21):
            dirty = np.full(size, 255, np.uint8)
            del dirty
            assert not np.zeros(size, np.uint8).any()
        assert np.empty((0, 3), np.uint8).size == 0


@pytest.mark.parametrize("size", [1 << 62, 1 << 50])
def test_too_much_is_a_memory_error(size: int) -> None:
    before = active()
    with accelrt.numpy_memory():
        for make in (np.empty, np.zeros):
            with pytest.raises(MemoryError):
                make(size, np.uint8)
        array = np.arange(100, dtype=np.uint8)
        with pytest.raises(MemoryError):
            array.resize(size, refcheck=False)
        assert array.tolist() == list(range(100))
    assert added(before) == (1, 128)


def test_an_empty_host_cache_reaches_what_threads_keep() -> None:
    with accelrt.numpy_memory():
        for size in (100, 10_000, 1_000_000):
            np.empty(size, np.uint8)
    accelrt.accelerator.empty_host_cache()
    stats = accelrt.accelerator.host_memory_stats()
    assert stats["active_bytes.current"] == 0
    assert stats["allocated_bytes.current"] == 0
    peak, taken, given = (
        stats[key] for key in ("active_bytes.peak", "num_host_alloc", "num_host_free")
    )
    assert isinstance(peak, int)
    assert peak >= 1_000_000
    assert taken == given != 0


def test_arrays_and_pinned_buffers_are_counted_together() -> None:
    before = active()
    buffer = accelrt.empty_pinned(1000)
    with accelrt.numpy_memory():
        array = np.empty(2000, np.uint8)
    assert added(before) == (2, 1024 + 2048)
    stats = accelrt.accelerator.host_memory_stats()
    buckets, taken = stats["bucket_allocation"], stats["num_host_alloc"]
    assert isinstance(buckets, list)
    assert sum(buckets) == stats["host_alloc_time.count"] == taken
    assert stats["host_alloc_time.max"] >= stats["host_alloc_time.min"]  # type: ignore[operator]
    del array
    assert added(before) == (1, 1024)
    del buffer


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["empty", "zeros", "resize", "copy", "drop", "take"]),
        st.integers(0, 1 << 16),
        st.integers(0, 255),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_programs_see_what_they_see_with_memory_of_numpys_own(
    steps: list[tuple[str, int, int]],
) -> None:
    ours, plain = list[Bytes](), list[Bytes]()
    before = active()
    for what, size, byte in steps:
        place = byte % len(ours) if ours else 0
        with accelrt.numpy_memory():
            change(ours, what, size, byte, place)
        change(plain, what, size, byte, place)
        assert added(before)[0] == sum(name(array) == "accelrt" for array in ours) == len(ours)
    for array, expected in zip(ours, plain, strict=True):
        assert array.tobytes() == expected.tobytes()
        del array
    ours.clear()
    assert added(before) == (0, 0)


def change(arrays: list[Bytes], what: str, size: int, byte: int, place: int) -> None:
    """Do one step of a program."""
    if what == "empty":
        arrays.append(np.empty(size, np.uint8))
        arrays[-1].fill(byte)
    elif what == "zeros" or not arrays:
        arrays.append(np.zeros(size, np.uint8))
    elif what == "resize":
        arrays[place].resize(size, refcheck=False)  # what is new is zero
    elif what == "copy":
        arrays.append(arrays[place].copy())
    elif what == "take":
        arrays.append(np.frombuffer(arrays[place].tobytes(), np.uint8)[::2].copy())
    else:
        del arrays[place]


HEAD = """
import os, sys, threading
import numpy as np
import accelrt
from children import outcome
from numpy._core.multiarray import get_handler_name as name

def active():
    return accelrt.accelerator.host_memory_stats()["active_requests.current"]
"""


def test_a_forked_child_uses_what_it_inherits_and_memory_of_its_own() -> None:
    code = """
        with accelrt.numpy_memory():
            small, large = np.arange(100), np.arange(100_000)
            child = os.fork()
            status = os.waitpid(child, 0)[1] if child else 0
            made = np.arange(100, 200)
            small.resize(10_000, refcheck=False)
            print(small[:100].sum(), large.sum(), made.sum(), name(made), flush=True)
            del small, large, made
            grown = [np.ones(number) for number in range(1000)]
            print(sum(map(len, grown)), flush=True)
            del grown
        if child == 0:
            print(outcome(lambda: accelrt.numpy_memory().__enter__())[:40], flush=True)
            os._exit(0)
        print(os.waitstatus_to_exitcode(status), active())
    """
    lines = output_of(HEAD + textwrap.dedent(code)).splitlines()
    sums = "4950 4999950000 14950 accelrt"
    assert lines.count(sums) == 2
    assert lines.count("499500") == 2
    assert sum(line.startswith("RuntimeError") for line in lines) == 1
    assert lines[-1] == "0 0"


def test_arrays_that_outlive_the_runtime_are_read_and_freed() -> None:
    code = """
        import atexit

        kept = []

        @atexit.register  # before accelrt's own, so it runs after
        def last():
            print(kept[0].sum(), kept[1].sum())
            kept[0].resize(50_000, refcheck=False)
            print(kept[0].sum())
            kept.clear()
            print(len(np.ones(1000)))

        import accelrt
        scope = accelrt.numpy_memory()
        scope.__enter__()
        kept += [np.ones(1000), np.ones(100_000)]
        stays = np.ones(1000)
    """
    printed = output_of("import sys\nimport numpy as np\n" + textwrap.dedent(code))
    assert printed.splitlines() == ["1000.0 100000.0", "1000.0", "1000"]


def test_a_numpy_that_is_missing_or_too_old_is_named() -> None:
    code = """
        import sys
        import accelrt
        from children import outcome
        sys.modules["numpy"] = None
        print(outcome(accelrt.numpy_memory().__enter__))

        import ctypes, types
        version = ctypes.CFUNCTYPE(ctypes.c_uint)(lambda: 0xE)
        table = (ctypes.c_void_p * 400)()
        table[211] = ctypes.cast(version, ctypes.c_void_p).value
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        old = types.ModuleType("numpy")
        old.__version__, old.__path__ = "1.21.6", []
        core = types.ModuleType("numpy.core")
        core.__path__ = []
        module = types.ModuleType("numpy.core._multiarray_umath")
        module._ARRAY_API = new(table, None, None)
        for one in (old, core, module):
            sys.modules[one.__name__] = one
        print(outcome(accelrt.numpy_memory().__enter__))
    """
    assert output_of(code).splitlines() == [
        "ImportError: numpy_memory needs NumPy, which cannot be imported",
        "RuntimeError: numpy_memory needs NumPy 1.22 or newer: this is 1.21.6",
    ]
