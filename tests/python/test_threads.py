"""What is current belongs to a thread; streams and events belong to all."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import accelrt
from accelrt import accelerator
from kinds import KIND, default_stream, several_devices

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> T:
    """Return what a function returns in a new thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@several_devices
def test_a_new_thread_starts_at_device_0_with_default_streams() -> None:
    def start() -> tuple[int, list[accelrt.Stream]]:
        return (
            accelerator.current_device_index(),
            [accelerator.current_stream(index) for index in range(3)],
        )

    with accelrt.Stream(f"{KIND}:2"), accelrt.Stream(f"{KIND}:1"):
        assert in_thread(start) == (0, [default_stream(index) for index in range(3)])


@several_devices
def test_what_a_thread_sets_stays_in_it() -> None:
    def change() -> int:
        accelerator.set_stream(accelrt.Stream(f"{KIND}:2"))
        return accelerator.current_device_index()

    assert in_thread(change) == 2
    assert accelerator.current_device_index() == 0
    assert accelerator.current_stream(2) == default_stream(2)


@several_devices
def test_a_context_is_seen_by_its_thread_alone() -> None:
    with accelrt.device(f"{KIND}:1"):
        assert in_thread(lambda: accelrt.Stream().device) == accelrt.device(f"{KIND}:0")


@several_devices
def test_streams_and_events_are_used_by_every_thread() -> None:
    stream, event = accelrt.Stream(f"{KIND}:1"), accelrt.Event()
    in_thread(lambda: stream.record_event(event))
    accelrt.Stream().wait_event(event)
    event.synchronize()
    assert event.query()


@several_devices
def test_threads_share_the_pool_of_a_device() -> None:
    # Goal: 32 requests by eight threads are 32 streams. Method: one device, one priority.
    start = threading.Barrier(8)

    def take() -> list[accelrt.Stream]:
        start.wait()
        return [accelrt.Stream(f"{KIND}:2", priority=-1) for _ in range(4)]

    with ThreadPoolExecutor(8) as pool:
        taken = [pool.submit(take) for _ in range(8)]
    assert len({stream for future in taken for stream in future.result()}) == 32


@several_devices
def test_threads_record_and_wait_at_once() -> None:
    streams = [accelrt.Stream(index % 3) for index in range(4)]

    def cross(own: accelrt.Stream) -> None:
        for _ in range(200):
            for other in streams:
                own.wait_event(other.record_event())
        own.synchronize()

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(cross, stream) for stream in streams]:
            future.result()
    for index in range(3):
        accelerator.synchronize(index)
    assert all(stream.query() for stream in streams)


def test_a_stream_is_dropped_by_another_thread() -> None:
    own = [accelrt.Stream(dedicated=True)]
    own[0].record_event()
    in_thread(own.clear)
    accelerator.synchronize()
