"""Goal: a thread that has asked for memory before is served quickly, and never from elsewhere.

Method: `warm` asks twice, so that the thread knows its place and has allocations to reuse; then
one thing is changed and the next buffer is looked at. What ends a process has one of its own.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

import accelrt
from accelrt import accelerator
from kinds import KIND, several_devices
from processes import output_of

SIZE = 512


def warm() -> None:
    for _ in range(2):
        del [accelrt.empty(SIZE) for _ in range(3)][:]


def home() -> tuple[str, accelrt.Stream]:
    """Return where the next buffer comes from."""
    buffer = accelrt.empty(SIZE)
    return str(buffer.device), buffer.stream


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@several_devices
@pytest.mark.parametrize(
    "context",
    [
        lambda: accelrt.device(f"{KIND}:1"),
        lambda: accelerator.device_index(1),
        lambda: accelrt.Stream(f"{KIND}:1"),
    ],
)
def test_a_context_changes_the_place_and_its_end_changes_it_back(
    context: Callable[[], AbstractContextManager[object]],
) -> None:
    warm()
    before = home()
    with context():
        warm()
        assert home()[0] == f"{KIND}:1"
        assert home()[1] == accelerator.current_stream()
    assert home() == before == (f"{KIND}:0", accelerator.current_stream())


def test_a_kind_alone_changes_the_place() -> None:
    warm()
    with accelrt.device("cpu"):
        assert home()[0] == "cpu:0"
        warm()
    assert home()[0] == f"{KIND}:0"


@several_devices
def test_what_is_set_changes_the_place() -> None:
    warm()
    accelerator.set_device_index(1)
    assert home()[0] == f"{KIND}:1"
    stream = accelrt.Stream(f"{KIND}:2")
    accelerator.set_stream(stream)
    assert home() == (f"{KIND}:2", stream)
    warm()
    accelerator.set_device_index(0)
    assert home()[0] == f"{KIND}:0"


def test_a_device_that_is_named_is_not_the_place() -> None:
    warm()
    assert str(accelrt.empty(SIZE, device="cpu:0").device) == "cpu:0"
    with accelrt.Stream() as stream:
        warm()
        assert accelrt.empty(SIZE, device=f"{KIND}:0").stream == stream


def test_a_pool_is_left_at_its_end() -> None:
    pool = accelerator.MemPool()
    warm()
    with accelerator.use_mem_pool(pool):
        inside = [accelrt.empty(SIZE) for _ in range(2)]
    outside = [accelrt.empty(SIZE) for _ in range(2)]
    blocks = [block for segment in pool.snapshot() for block in segment["blocks"]]
    addresses = {block["address"] for block in blocks if block["state"] == "active_allocated"}
    assert addresses == {buffer.data_ptr() for buffer in inside}
    assert addresses.isdisjoint(buffer.data_ptr() for buffer in outside)


def test_threads_have_places_of_their_own() -> None:
    warm()
    stream, seen = accelrt.Stream(), []

    def other() -> None:
        warm()
        seen.append(home()[1])

    with stream:
        warm()
        in_thread(other)
        assert home()[1] == stream
    assert seen == [accelerator.current_stream()]


def test_a_reused_allocation_has_nothing_of_its_earlier_life() -> None:
    warm()
    released = accelrt.empty(SIZE)
    released.release()
    del released
    used, other = accelrt.empty(SIZE), accelrt.Stream()
    used.record_stream(other)
    used.fill_(1)
    used.copy_to(bytearray(SIZE))
    if KIND == "cpu":
        memoryview(used).release()
    del used
    for _ in range(3):
        buffer = accelrt.empty(SIZE + 1)
        assert repr(buffer).startswith(f"accelrt.Buffer(nbytes={SIZE + 1}, device='{KIND}:0', ")
        buffer.release()  # nobody has its bytes
        with pytest.raises(BufferError, match="released"):
            buffer.data_ptr()


def test_slices_keep_a_reused_allocation() -> None:
    warm()
    buffer = accelrt.zeros(SIZE)
    part = buffer[8:16]
    address = buffer.data_ptr()
    del buffer
    others = [accelrt.empty(SIZE) for _ in range(8)]
    assert part.data_ptr() == address + 8
    assert address not in [other.data_ptr() for other in others]


def test_every_byte_comes_back_whoever_drops_it() -> None:
    warm()
    accelerator.synchronize()
    before = accelerator.memory_allocated()
    passed: list[accelrt.Buffer] = []

    def make() -> None:
        passed.extend(accelrt.empty(SIZE) for _ in range(200))

    for _ in range(3):
        in_thread(make)  # which has ended when these are dropped
        assert accelerator.memory_allocated() == before + 200 * SIZE
        passed.clear()
        passed.extend(accelrt.empty(SIZE) for _ in range(200))
        in_thread(passed.clear)
        assert accelerator.memory_allocated() == before


def test_limits_and_settings_count_for_a_known_place() -> None:
    code = """
        import accelrt
        from accelrt import accelerator
        for _ in range(3):
            accelrt.empty(512)
        accelerator.empty_cache()
        accelerator.set_per_process_memory_fraction(0.0)
        try:
            accelrt.empty(512)
        except accelrt.OutOfMemoryError as error:
            print(type(error).__name__)
        accelerator.set_per_process_memory_fraction(1.0)
        accelrt.empty(512)
        accelrt.accelerator.set_allocator_settings("roundup_power2_divisions:4")
        before = accelerator.memory_allocated()
        buffer = accelrt.empty((1 << 20) + 1)
        print(accelerator.memory_allocated() - before)
    """
    assert output_of(code).split() == ["OutOfMemoryError", str(5 << 18)]


def test_a_device_that_a_handler_of_signals_sets_during_a_request_is_the_next_place() -> None:
    code = """
        import signal, threading
        import accelrt
        from accelrt import accelerator
        SIZE, gate, stream = 20 << 20, threading.Event(), accelrt.Stream()

        def handle(number, frame):
            accelerator.set_device_index(1)
            gate.set()

        signal.signal(signal.SIGALRM, handle)
        used = accelrt.empty(SIZE)
        with stream:
            stream.launch_host(gate.wait)
            used.fill_(1)
        del used
        accelerator.set_device_index(0)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        first = accelrt.empty(SIZE)  # waits for the fill, which waits for the handler
        print(first.device)
        del first
        print(accelrt.empty(SIZE).device)
    """
    settings = {"ACCELRT_ACCELERATOR": "cpu", "ACCELRT_CPU_DEVICES": "2"}
    printed = output_of(code, ACCELRT_CPU_MEMORY="32M", **settings)
    assert printed.split() == ["cpu:0", "cpu:1"]


def test_a_forked_child_is_refused_though_its_parent_had_a_place() -> None:
    code = """
        import os, warnings
        import accelrt
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
        kept = [accelrt.empty(512) for _ in range(3)]
        child = os.fork()
        if child == 0:
            kept.clear()
            try:
                accelrt.empty(512)
            except RuntimeError as error:
                print(str(error)[:45], flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        kept.clear()
        print(accelrt.empty(512).nbytes)
    """
    said = "Cannot re-initialize accelrt in forked subpro\n512\n"
    assert output_of(code) == said


def test_nothing_is_given_after_the_end() -> None:
    code = """
        import accelrt
        from accelrt import _core
        kept = [accelrt.empty(512) for _ in range(3)]
        _core.shut_down()
        kept.clear()
        try:
            accelrt.empty(512)
        except RuntimeError as error:
            print(error)
    """
    assert "shut down" in output_of(code)
