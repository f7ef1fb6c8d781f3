"""Streams and events, as `torch.Stream` and `torch.Event` have them.

Goal: operators run on the current stream, in its order, while their thread goes on. Method: a gate
that the test opens stands in a stream, so that what is behind it has not run yet.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import accelrt
from accelrt import testing
from gates import CPU, Gate, resident_bytes


def _current() -> torch.Stream:
    return torch.accelerator.current_stream()


def test_an_operator_returns_before_it_ran() -> None:
    tensor = torch.zeros(4, device="accelrt")
    torch.accelerator.synchronize()
    with Gate():
        tensor += 1
        total = tensor.sum()
        assert not _current().query()
    _current().synchronize()
    assert total.item() == 4
    assert _current().query()


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="a processor without the mode")
def test_a_task_has_the_mode_of_denormal_numbers_that_its_call_had() -> None:
    small = torch.full((8,), 1e-310, dtype=torch.float64, device="accelrt")
    with Gate():
        kept = small * 1
        torch.set_flush_denormal(True)
        flushed = small * 1
        torch.set_flush_denormal(False)
        kept_again = small * 1
    assert [tensor.count_nonzero().item() for tensor in (kept, flushed, kept_again)] == [8, 0, 8]


def test_the_default_stream_is_number_0_of_each_device() -> None:
    for index in range(2):
        stream = torch.accelerator.current_stream(index)
        assert (stream.device_index, stream.stream_id) == (index, 0)


def test_streams_are_others_and_compare_by_number() -> None:
    first, second = torch.Stream("accelrt:1"), torch.Stream("accelrt:1")
    assert first != second
    assert first.device == torch.device("accelrt:1")
    again = torch.Stream(
        stream_id=first.stream_id, device_index=1, device_type=int(first.device_type)
    )
    assert again == first
    assert hash(again) == hash(first)


def test_a_priority_beyond_the_devices_is_the_nearest_one() -> None:
    assert torch.Stream("accelrt", priority=-1000).query()
    assert torch.Stream("accelrt", priority=1000).query()


def test_a_stream_is_current_inside_of_its_context() -> None:
    stream = torch.Stream("accelrt:1")
    with stream:
        assert _current() == stream
        assert torch.accelerator.current_device_index() == 1
        with torch.accelrt.stream(torch.Stream("accelrt:0")):
            assert torch.accelerator.current_device_index() == 0
        assert _current() == stream
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream(1) == stream
    torch.accelerator.set_stream(torch.Stream(stream_id=0, device_index=1, device_type=20))
    torch.accelerator.set_device_index(0)


def test_the_current_stream_is_a_threads_own() -> None:
    seen = []
    with torch.Stream("accelrt"):
        thread = threading.Thread(target=lambda: seen.append(_current().stream_id))
        thread.start()
        thread.join()
    assert seen == [0]


def test_streams_run_side_by_side() -> None:
    other = torch.Stream("accelrt")
    with Gate() as gate:
        with other:
            tensor = torch.full((8,), 3.0, device="accelrt") * 2
        other.synchronize()
        assert not _current().query()
        gate.open()
    assert tensor.tolist() == [6.0] * 8


def test_a_stream_waits_for_another_without_its_thread() -> None:
    producer, tensor = torch.Stream("accelrt"), torch.zeros(1000, device="accelrt")
    torch.accelerator.synchronize()
    with Gate(producer):
        with producer:
            tensor += 1
        _current().wait_stream(producer)
        result = tensor * 5
        assert not _current().query()
    assert result.unique().tolist() == [5.0]


def test_a_stream_waits_for_an_event() -> None:
    producer, tensor = torch.Stream("accelrt"), torch.zeros(1000, device="accelrt")
    torch.accelerator.synchronize()
    with Gate(producer):
        with producer:
            tensor += 1
        event = producer.record_event()
        assert not event.query()
        _current().wait_event(event)
        result = tensor * 5
    event.synchronize()
    assert event.query()
    assert result.unique().tolist() == [5.0]


def test_an_event_without_a_record_is_done_and_blocks_nothing() -> None:
    event = torch.Event("accelrt")
    assert event.query()
    event.synchronize()
    _current().wait_event(event)
    torch.accelerator.synchronize()


def test_an_event_stands_for_its_latest_record() -> None:
    event = torch.Event("accelrt")
    event.record()
    event.synchronize()
    with Gate():
        event.record()
        assert not event.query()
    event.synchronize()
    assert event.query()


def test_events_measure_time_between_them() -> None:
    start, end = (torch.Event("accelrt", enable_timing=True) for _ in range(2))
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    torch.ones(1000, device="accelrt").exp()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert end.elapsed_time(start) < 0
    plain = torch.Event("accelrt")
    plain.record()
    plain.synchronize()
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(plain)


def test_an_event_of_one_device_is_not_recorded_on_another() -> None:
    event = torch.Event("accelrt:0")
    event.record(torch.accelerator.current_stream(0))
    with pytest.raises(RuntimeError):
        event.record(torch.accelerator.current_stream(1))


def test_a_device_synchronises_all_of_its_streams() -> None:
    stream = torch.Stream("accelrt:1")
    gate = Gate(stream)
    threading.Timer(0.05, gate.open).start()
    torch.accelerator.synchronize("accelrt:1")
    assert stream.query()


def test_threads_enqueue_on_streams_of_their_own() -> None:
    results: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        with torch.Stream("accelrt"):
            tensor = torch.full((64,), float(number), device="accelrt")
            for _ in range(50):
                tensor = tensor + 1
            results[number] = tensor.cpu()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key: value.unique().tolist() for key, value in results.items()} == {
        number: [number + 50.0] for number in range(8)
    }


def test_a_thread_that_waits_holds_up_no_other_that_does() -> None:
    side, ready = torch.Stream("accelrt"), threading.Event()
    held, free = torch.ones(1, device="accelrt"), torch.ones(1, device="accelrt:1")
    torch.accelerator.synchronize()
    seen: list[float] = []

    def wait_for_the_gate() -> None:
        with side:
            ready.set()
            held.item()

    with Gate(side):
        waiting = threading.Thread(target=wait_for_the_gate)
        waiting.start()
        ready.wait()
        time.sleep(0.2)  # until it waits
        other = threading.Thread(target=lambda: seen.append(free.item()))
        other.start()
        other.join(10)
        assert seen == [1]
    waiting.join()
    other.join()


def test_events_that_are_gone_leave_no_memory_behind() -> None:
    def record(count: int) -> None:
        for number in range(count):
            torch.Event("accelrt", enable_timing=True).record()
            if number % 1_000 == 0:  # what is queued is memory, too
                torch.accelerator.synchronize()
        torch.accelerator.synchronize()

    record(20_000)
    before = resident_bytes()
    record(100_000)
    assert resident_bytes() <= before + (4 << 20)


def test_who_waits_lets_functions_of_python_run() -> None:
    program = """
import pickle, threading, torch
from gates import Gate
ones = torch.ones(3, device="accelrt")
torch.accelerator.synchronize()
gate = Gate()
threading.Timer(0.1, gate.open).start()
print(len(pickle.dumps(ones)) > 0)  # torch has the GIL when it asks for the bytes
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=60
    )
    assert done.stdout == "True\n", done.stderr


def test_a_query_under_a_schedule_lets_a_function_of_python_run() -> None:
    stream, seen = torch.Stream("accelrt"), list[int]()
    ours = accelrt.Stream(stream.stream_id, stream.device_index, CPU)
    event = torch.Event("accelrt")
    began = time.monotonic()
    with testing.schedule(3):
        ours.launch_host(seen.append, 1)
        while not stream.query():
            pass
        ours.launch_host(seen.append, 2)
        event.record(stream)
        while not event.query():
            pass
    assert seen == [1, 2]
    assert time.monotonic() < began + 4  # a schedule waits for a function for five seconds
