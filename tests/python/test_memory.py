"""Goal: what the modules say about memory is what programs did with it, with PyTorch's keys.

Method: buffers are made and dropped, and differences are looked at, since tests share the process;
what needs a small device, other settings or a fresh allocator runs in a process of its own.
"""

import sys
import threading
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelrt
from accelrt._memory import fraction_of
from gates import Gate
from kinds import KIND, host_cores
from processes import output_of, run

MIB = 1 << 20
MODULES = [accelrt.accelerator, accelrt.get_device_module(KIND)]
POOLED = [
    *("allocation", "allocated_bytes", "segment", "reserved_bytes", "active", "active_bytes"),
    *("requested_bytes", "inactive_split", "inactive_split_bytes"),
]
VALUES = ["current", "peak", "allocated", "freed"]
COUNTERS = [
    *("num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams"),
    *("num_device_alloc", "num_device_free"),
]


@pytest.mark.parametrize("module", MODULES)
def test_statistics_have_the_122_keys_of_pytorch_and_ours_sorted(module: ModuleType) -> None:
    pools = [f"{name}.{pool}" for name in POOLED for pool in ("all", "small_pool", "large_pool")]
    stats = [*pools, "oversize_allocations", "oversize_segments"]
    theirs = [*(f"{stat}.{value}" for stat in stats for value in VALUES), *COUNTERS]
    assert len(theirs) == 122
    found = module.memory_stats()
    assert list(found) == sorted(found)
    # Tags have keys from their first memory on.
    assert [key for key in found if not key.startswith("tags.")] == sorted(
        [*theirs, "num_oom_rejections", "num_pages_stolen", "num_frontier_reuses"]
    )
    assert all(type(value) is int for value in found.values())


@pytest.mark.parametrize("module", MODULES)
def test_a_buffer_is_counted_until_it_is_dropped(module: ModuleType) -> None:
    before = module.memory_allocated()
    module.reset_peak_memory_stats()
    buffer = accelrt.empty(3 * MIB + 1)
    assert module.memory_allocated() - before == 3 * MIB + 512
    stats = module.memory_stats()
    assert (
        module.memory_reserved()
        >= module.memory_allocated()
        == stats["allocated_bytes.all.current"]
    )
    del buffer
    accelrt.accelerator.synchronize()
    assert module.memory_allocated() == before
    assert module.max_memory_allocated() - before == 3 * MIB + 512
    assert module.max_memory_reserved() >= module.max_memory_allocated()
    module.reset_peak_memory_stats()
    assert module.max_memory_allocated() == before


def test_256_floats_take_1024_bytes() -> None:
    # PyTorch's own test of its statistics.
    before = accelrt.accelerator.memory_allocated()
    buffer = accelrt.empty(256 * 4)
    assert accelrt.accelerator.memory_allocated() - before == 1024
    buffer.release()


def test_nothing_is_started_by_a_question() -> None:
    code = """
        import accelrt
        print(set(accelrt.accelerator.memory_stats().values()), accelrt.cpu.memory_snapshot())
        print(accelrt.cpu.memory_allocated("cpu:1"), accelrt.cpu.is_initialized())
        accelrt.cpu.empty_cache()
        accelrt.cpu.reset_peak_memory_stats()
        accelrt.cpu.reset_accumulated_memory_stats()
        print(accelrt.cpu.host_memory_stats()["num_host_alloc"], accelrt.cpu.is_initialized())
    """
    out = output_of(code, ACCELRT_CPU_DEVICES="2")
    assert out.splitlines() == ["{0, -1} []", "0 False", "0 False"]


def test_accumulated_sums_start_again() -> None:
    accelrt.empty(MIB).release()
    accelrt.accelerator.reset_accumulated_memory_stats()
    stats = accelrt.accelerator.memory_stats()
    assert all(stats[key] == 0 for key in stats if key.endswith((".allocated", ".freed")))
    accelrt.empty(MIB).release()
    assert accelrt.accelerator.memory_stats()["allocation.all.allocated"] == 1


def test_an_empty_cache_gives_everything_back_and_waits_for_its_users() -> None:
    gate = threading.Event()
    stream = accelrt.Stream()
    with stream:
        buffer = accelrt.empty(5 * MIB)
    stream.launch_host(gate.wait)
    buffer.release()  # behind the gate
    threading.Timer(0.05, gate.set).start()
    accelrt.accelerator.empty_cache()
    assert gate.is_set()
    stats = accelrt.accelerator.memory_stats()
    live = stats["active_bytes.all.current"]
    assert stats["reserved_bytes.all.current"] <= live + 20 * MIB * stats["active.all.current"]


def test_inside_a_callable_an_empty_cache_does_not_wait_for_itself() -> None:
    raised: list[BaseException] = []
    stream = accelrt.Stream()
    with stream:
        buffer = accelrt.empty(MIB)

    def inside() -> None:
        buffer.release()
        try:
            accelrt.accelerator.empty_cache()
        except RuntimeError as error:
            raised.append(error)

    stream.launch_host(inside)
    stream.synchronize()
    assert "cannot wait for unfinished work" in str(raised[0])


def test_the_snapshot_has_the_segments_with_their_blocks() -> None:
    buffer = accelrt.empty(1000)
    segments = accelrt.accelerator.memory_snapshot()
    segment, block = _found(buffer.data_ptr())
    assert block["address"] == buffer.data_ptr()
    assert (block["size"], block["requested_size"]) == (1024, 1000)
    assert block["state"] == "active_allocated"
    assert segment["segment_type"] == "small"
    assert segment["device"] == 0
    assert segment["is_expandable"] is (KIND == "cpu")  # made of pages
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    assert segment["total_size"] % (2 * MIB) == 0
    stats = accelrt.accelerator.memory_stats()
    sums = [("reserved_bytes", "total_size"), ("allocated_bytes", "allocated_size")]
    for key, field in sums:
        on_device = [segment[field] for segment in segments if segment["device"] == 0]
        assert sum(on_device) == stats[f"{key}.all.current"]


def test_what_another_stream_uses_awaits_its_free_in_the_snapshot() -> None:
    buffer, other = accelrt.empty(1000), accelrt.Stream(dedicated=True)
    address, gate = buffer.data_ptr(), Gate(other)
    buffer[300:301].record_stream(other)  # some bytes in the middle are a use of the whole
    del buffer
    segment, block = _found(address)
    assert (block["address"], block["state"]) == (address, "active_awaiting_free")
    assert (block["size"], block["requested_size"]) == (1024, 1000)
    assert segment["active_size"] >= segment["allocated_size"] + 1024
    gate.open()
    other.synchronize()
    gate.close()
    assert _found(address)[1]["state"] == "inactive"


def _found(address: int) -> tuple[dict[str, Any], dict[str, Any]]:
    found = [
        (segment, block)
        for segment in accelrt.accelerator.memory_snapshot()
        for block in segment["blocks"]
        if block["address"] <= address < block["address"] + block["size"]
    ]
    ((segment, block),) = found
    return segment, block


def test_the_summary_is_a_table() -> None:
    buffer = accelrt.empty(MIB)
    lines = accelrt.accelerator.memory_summary().splitlines()
    assert {len(line) for line in lines} == {77}
    assert f"accelrt memory summary of {KIND}:0" in lines[1]
    assert sum("from large pool" in line for line in lines) == 9
    short = accelrt.accelerator.memory_summary(abbreviated=True)
    assert "pool" not in short
    assert "Allocated memory" in short
    buffer.release()


def test_pinned_memory_is_counted_apart() -> None:
    module = accelrt.accelerator
    before = module.host_memory_stats()
    assert list(before) == sorted(before)
    buffer = accelrt.empty_pinned(40_000)
    stats = module.host_memory_stats()
    assert stats["active_requests.current"] == int(str(before["active_requests.current"])) + 1
    assert stats["active_bytes.current"] == int(str(before["active_bytes.current"])) + 40_448
    buckets = stats["bucket_allocation"]
    assert isinstance(buckets, list)
    assert len(buckets) == 64
    assert sum(buckets) == stats["num_host_alloc"]
    del buffer
    module.empty_host_cache()
    after = module.host_memory_stats()
    assert after["active_requests.current"] == before["active_requests.current"]


def test_a_limit_is_kept_and_told() -> None:
    code = """
        import accelrt
        a = accelrt.accelerator
        print(a.get_per_process_memory_fraction())
        a.set_per_process_memory_fraction(0.5)
        print(accelrt.cpu.get_per_process_memory_fraction("cpu:0"))
        told = []
        with a.register_oom_observer(lambda *numbers: told.append(numbers)):
            kept = accelrt.empty(30 << 20)
            try:
                accelrt.empty(10 << 20)
            except accelrt.OutOfMemoryError as error:
                print(error)
        (number,) = told
        print(number[0], number[1] >> 20, number[2] >> 20)
        try:
            accelrt.empty(10 << 20)
        except RuntimeError:
            print(len(told), a.memory_stats()["num_ooms"])
    """
    lines = output_of(code, ACCELRT_CPU_MEMORY=str(64 * MIB)).splitlines()
    assert lines[:2] == ["1.0", "0.5"]
    assert "CPU out of memory. Tried to allocate 10.00 MiB. cpu:0 has a total" in lines[2]
    assert "30.00 MiB are allocated" in lines[2]
    assert "The limit is 32.00 MiB" in lines[2]
    assert lines[3:] == ["cpu:0 10 32", "1 2"]


def test_free_is_what_the_limit_leaves_and_total_what_a_fraction_multiplies() -> None:
    code = """
        import accelrt
        a = accelrt.accelerator
        kept = accelrt.empty(10 << 20)
        print(a.get_memory_info(), accelrt.cpu.mem_get_info())
        a.set_per_process_memory_fraction(0.5)
        print([size >> 20 for size in a.get_memory_info()])
    """
    lines = output_of(code, ACCELRT_CPU_MEMORY="64M").splitlines()
    left = (54 * MIB, 64 * MIB)
    assert lines == [f"{left} {left}", "[54, 64]"]


@host_cores
def test_no_more_is_free_than_the_machine_has_available() -> None:
    def available_bytes() -> int:
        lines = Path("/proc/meminfo").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        return int(line.split()[1]) << 10

    for _ in range(1000):  # others take and give meanwhile
        before, (free, total), after = (
            available_bytes(),
            accelrt.accelerator.get_memory_info(),
            available_bytes(),
        )
        assert free < total
        if free <= max(before, after):
            return
    pytest.fail(f"{free} bytes are free of {after} that are available")


def test_a_text_of_settings_ends_what_an_earlier_text_named_and_nothing_else() -> None:
    code = """
        import accelrt
        a = accelrt.accelerator
        accelrt.empty(1)
        a.set_allocator_settings("per_process_memory_fraction:0.5")
        print(a.get_per_process_memory_fraction())
        a.set_allocator_settings("")
        print(a.get_per_process_memory_fraction())
        a.set_per_process_memory_fraction(0.25)
        a.set_allocator_settings("")
        print(a.get_per_process_memory_fraction())
    """
    assert output_of(code).split() == ["0.5", "1.0", "0.25"]


def test_under_policy_torch_a_text_resets_what_pytorch_resets() -> None:
    code = """
        import accelrt
        a = accelrt.accelerator
        accelrt.empty(1)
        a.set_allocator_settings("per_process_memory_fraction:0.5,max_split_size_mb:64")
        print(a.memory_stats()["max_split_size"] >> 20)
        a.set_allocator_settings("policy:torch")
        print(a.memory_stats()["max_split_size"], a.get_per_process_memory_fraction())
        print(a.get_per_process_memory_fraction(1))
        a.set_allocator_settings("")
        print(a.get_per_process_memory_fraction())
    """
    assert output_of(code, ACCELRT_CPU_DEVICES="2").split() == ["64", "-1", "0.5", "0.5", "1.0"]


def test_keys_of_torch_without_an_effect_give_one_warning_where_a_text_is_not_strict() -> None:
    module, before = accelrt.accelerator, accelrt.accelerator.get_allocator_settings()
    text = "pinned_num_register_threads:8,backend:native"
    with pytest.raises(ValueError, match="would have no effect"):
        module.set_allocator_settings(text)
    with pytest.warns(UserWarning, match=r"backend \(.*; pinned_num_register_threads \(") as warned:
        module.set_allocator_settings(f"strict:False,{text}")
    (warning,) = warned
    assert warning.filename == __file__
    assert module.get_allocator_settings() == f"strict:False,{text}"
    module.set_allocator_settings(before)


def test_the_variable_names_keys_without_an_effect_once() -> None:
    code = "import accelrt; accelrt.empty(1); accelrt.empty_pinned(1)"
    ended = run("-c", code, ACCELRT_ALLOC_CONF="backend:native,strict:False")
    assert ended.returncode == 0
    assert ended.stderr == "accelrt: no effect in ACCELRT_ALLOC_CONF: backend\n"


def test_what_an_observer_raises_is_unraisable(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: raised.append(hook.exc_value))

    def observer(*_numbers: object) -> None:
        message = "observed"
        raise ValueError(message)

    handle = accelrt.accelerator.register_oom_observer(observer)
    with pytest.raises(accelrt.OutOfMemoryError):
        accelrt.empty(1 << 60)
    handle.remove()
    handle.remove()
    assert [str(error) for error in raised] == ["observed"]


@given(total=st.integers(1 << 20, 1 << 42), data=st.data())
def test_fraction_of_a_size_is_exact(total: int, data: st.DataObject) -> None:
    nbytes = data.draw(st.integers(0, total))
    assert int(fraction_of(nbytes, total) * total) == nbytes
    assert fraction_of(total + nbytes, total) == 1.0


def test_wrong_arguments_are_refused() -> None:
    module = accelrt.accelerator
    with pytest.raises(TypeError, match="Invalid type for fraction argument, must be `float`"):
        module.set_per_process_memory_fraction(1)
    for fraction in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="allowed is a number from 0 to 1"):
            module.set_per_process_memory_fraction(fraction)
    with pytest.raises(TypeError, match="observer must be callable, not int"):
        module.register_oom_observer(3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="does not exist"):
        module.memory_stats(99)
    with pytest.raises(TypeError):
        module.memory_summary(abbreviated=3)  # type: ignore[arg-type]


def test_settings_are_taken_whole_or_not_at_all() -> None:
    code = """
        import accelrt
        a = accelrt.accelerator
        print(a.get_allocator_settings(), a.memory_stats()["max_split_size"] >> 20)
        try:
            a.set_allocator_settings("expandable_segments:True,max_split_size_mb:1")
        except ValueError as error:
            print(error)
        print(a.get_allocator_settings(), a.memory_stats()["max_split_size"] >> 20)
        buffer = accelrt.empty(1 << 20)
        print(a.memory_snapshot()[0]["is_expandable"])
        a.set_allocator_settings("")
        print(repr(a.get_allocator_settings()), a.memory_stats()["max_split_size"])
    """
    lines = output_of(code, ACCELRT_ALLOC_CONF="max_split_size_mb:32").splitlines()
    assert lines[0] == lines[2] == "max_split_size_mb:32 32"
    assert "max_split_size_mb" in lines[1]
    assert "from 20" in lines[1]
    assert "ACCELRT_ALLOC_CONF" not in lines[1]
    assert lines[3:] == ["False", "'' -1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "max_split_size_mb:2",
            'Allocator setting "max_split_size_mb" with value "2" is not valid',
        ),
        ("max_split:2", "Unrecognized key 'max_split' in allocator settings"),
        ("backend:native", "Allocator setting 'backend' would have no effect"),
    ],
)
def test_malformed_settings_of_the_environment_are_told_by_the_first_call(
    text: str, said: str
) -> None:
    code = """
        import accelrt
        for _ in range(2):
            try:
                accelrt.accelerator.memory_allocated()
            except ValueError as error:
                print(error)
    """
    lines = output_of(code, ACCELRT_ALLOC_CONF=text).splitlines()
    assert [line.startswith(f"ACCELRT_ALLOC_CONF: {said}") for line in lines] == [True, True]


def test_expandable_segments_are_used_when_asked_for() -> None:
    code = """
        import accelrt
        buffer = accelrt.empty(1 << 20)
        print(accelrt.cpu.memory_snapshot()[0]["is_expandable"])
        print(accelrt.cpu.memory_stats()["segment.all.current"])
    """
    lines = output_of(code, ACCELRT_ALLOC_CONF="expandable_segments:True").splitlines()
    assert lines == ["True", "0"]


def test_a_pool_serves_its_thread_and_the_inner_one_wins() -> None:
    module = accelrt.accelerator
    outer, inner = module.MemPool(), module.MemPool()
    buffers = []

    def elsewhere() -> None:
        buffers.append(accelrt.empty(1001))

    with module.use_mem_pool(outer):
        buffers.append(accelrt.empty(1002))
        with module.use_mem_pool(inner):
            buffers.append(accelrt.empty(1003))
        buffers.append(accelrt.empty(1004))
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    buffers.append(accelrt.empty(1005))
    sizes = [
        sorted(
            block["requested_size"]
            for segment in pool.snapshot()
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        )
        for pool in (outer, inner)
    ]
    assert sizes == [[1002, 1004], [1003]]
    assert {segment["segment_pool_id"] for segment in inner.snapshot()} == {inner.id}
    assert outer.id != inner.id


def test_a_pool_gives_its_memory_back_when_it_is_dropped() -> None:
    module = accelrt.accelerator
    module.empty_cache()
    reserved = module.memory_reserved()
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        buffer = accelrt.empty(30 * MIB)
        cached = accelrt.empty(30 * MIB)
        cached.release()
        accelrt.accelerator.synchronize()
        module.empty_cache()
        assert module.memory_reserved() == reserved + 60 * MIB, "inside of a pool nothing goes back"
    del pool, cached
    assert module.memory_reserved() == reserved + 30 * MIB
    buffer.release()
    module.empty_cache()
    assert module.memory_reserved() == reserved


def test_wrong_pools_are_refused() -> None:
    module = accelrt.accelerator
    with pytest.raises(TypeError, match="pool must be a MemPool, not int"):
        module.use_mem_pool(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        module.MemPool(use_on_oom=3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="Memory pool context stack is empty"):
        module.use_mem_pool(module.MemPool()).__exit__()


def test_free_pinned_memory_is_for_every_stream() -> None:
    module = accelrt.accelerator
    module.empty_host_cache()
    first, second = accelrt.Stream(), accelrt.Stream()
    with first:
        address = accelrt.empty_pinned(5 * MIB).data_ptr()
    module.synchronize()
    with second:
        buffer = accelrt.empty_pinned(5 * MIB)
    assert buffer.data_ptr() == address
    assert module.host_memory_stats()["allocations.current"] == 1


def test_an_observer_may_make_requests_that_fail() -> None:
    told = []

    def observer(*numbers: object) -> None:
        told.append(numbers)
        with pytest.raises(accelrt.OutOfMemoryError):
            accelrt.empty(1 << 50)

    with accelrt.accelerator.register_oom_observer(observer):
        for round_number in (1, 2):
            with pytest.raises(accelrt.OutOfMemoryError):
                accelrt.empty(1 << 50)
            assert len(told) == round_number


def test_an_observer_goes_when_it_is_removed() -> None:
    class Observer:
        def __call__(self, *_numbers: object) -> None: ...

    observer = Observer()
    seen = weakref.ref(observer)
    handle = accelrt.accelerator.register_oom_observer(observer)
    handle.remove()
    del observer
    assert seen() is None


def test_a_look_at_the_bytes_leaves_threads_what_they_keep() -> None:
    # The piece that was freed last is the next one again; behind the whole statistics, which give
    # back what threads keep, it is the one at the lowest address.
    code = """
        import accelrt
        from accelrt import accelerator

        def reused(look):
            pieces = [accelrt.empty(512) for _ in range(3)]
            addresses = [piece.data_ptr() for piece in pieces]
            while pieces:
                pieces.pop(0)
            look()
            return addresses.index(accelrt.empty(512).data_ptr())

        looks = (accelerator.memory_allocated, accelerator.max_memory_allocated,
                 accelerator.memory_reserved, accelerator.max_memory_reserved)
        print([reused(look) for look in looks], reused(accelerator.memory_stats))
    """
    assert output_of(code) == "[2, 2, 2, 2] 0\n"
