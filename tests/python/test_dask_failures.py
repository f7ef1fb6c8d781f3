"""Failures of streams, as errors of the tasks and actors of a worker.

Goal: work that failed fails the call that enqueued it, also on the default stream, which all calls
of a worker share; a failure reaches no later call. Method: a cluster of one worker with two
threads, and the shared stream without a cluster, where the order of the calls is given.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.config
import pytest
from distributed import Client, Worker, get_worker

import accelrt
from accelrt.dask import LocalCluster, device_of
from accelrt.dask.failures import DefaultStream
from bounded import bounded
from clusters import LIMIT_S, TIMEOUTS, allocated, make
from kinds import KIND
from processes import run

pytestmark = [
    pytest.mark.longer(600),
    pytest.mark.skipif(KIND != "cpu", reason="the clusters are of cpu devices"),
    pytest.mark.filterwarnings("default"),  # those of other packages
]

DEVICE = "cpu:1"
OWN = "the call's own error"


@pytest.fixture(autouse=True)
def bounded_test() -> Iterator[None]:
    """Bound each test."""
    with bounded(LIMIT_S):
        yield


@pytest.fixture(scope="module", name="client")
def shared_client() -> Iterator[Client]:
    """Return the client of one worker with two threads."""
    with (
        dask.config.set(TIMEOUTS),
        LocalCluster("cpu", 1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def fail(text: str) -> None:
    """Enqueue work that fails on the current stream."""
    accelrt.accelerator.current_stream().launch_host(int, text)


def fail_on_default(text: str) -> None:
    accelrt.cpu.default_stream(device_of()).launch_host(int, text)


def event(name: str, worker: Worker) -> threading.Event:
    """Return an event of a worker's process."""
    found: threading.Event = vars(worker).setdefault(name, threading.Event())
    return found


def nothing() -> str:
    return "succeeded"


def next_results(client: Client) -> list[str]:
    """Return the results of two tasks, one after the other, which fail if a failure is left."""
    return [client.submit(nothing, pure=False).result() for _ in range(2)]


def error_of(client: Client, function: Callable[[], Any]) -> tuple[str, str, str]:
    """Return the type, the text and the notes of a task's error."""
    error: Any = client.submit(function, pure=False).exception()
    return type(error).__name__, str(error), "\n".join(getattr(error, "__notes__", []))


def test_two_failed_streams_fail_one_task(client: Client) -> None:
    def fails() -> None:
        fail_on_default("of the default stream")
        fail("of the own stream")

    name, text, notes = error_of(client, fails)
    assert (name, "'of the own stream'" in text) == ("StreamError", True)
    assert "'of the default stream'" in notes
    assert next_results(client) == ["succeeded"] * 2


def test_default_failure_fails_running_tasks(client: Client) -> None:
    """The one that ends first does not take the failure from the other one."""

    def fails() -> None:
        fail_on_default("of the slow task")
        event("has_enqueued", get_worker()).set()
        assert event("may_end", get_worker()).wait(LIMIT_S / 4)

    def ends_first() -> None:
        assert event("has_enqueued", get_worker()).wait(LIMIT_S / 4)

    def let_end(dask_worker: Worker) -> None:
        event("may_end", dask_worker).set()

    slow = client.submit(fails, pure=False)
    fast = client.submit(ends_first, pure=False)
    errors: list[Any] = [fast.exception()]
    client.run(let_end)
    errors.append(slow.exception())
    for error in errors:
        assert isinstance(error, accelrt.StreamError)
        assert "of the slow task" in str(error)
        assert "another one may have enqueued" in "".join(error.__notes__)
    assert next_results(client) == ["succeeded"] * 2


def test_raising_task_keeps_its_error(client: Client) -> None:
    def raises() -> None:
        fail("of the stream")
        raise KeyError(OWN)

    async def raises_as_coroutine() -> None:
        fail("of the stream")
        raise KeyError(OWN)

    for function in (raises, raises_as_coroutine):
        name, text, notes = error_of(client, function)
        assert (name, text) == ("KeyError", repr(OWN))
        assert "'of the stream'" in notes, function
        assert next_results(client) == ["succeeded"] * 2


def test_failed_task_frees_its_values(client: Client) -> None:
    def fails(given: accelrt.Buffer) -> accelrt.Buffer:
        kept = make(given.nbytes % 2)
        fail("of the stream")
        return kept

    client.run(gc.disable)
    try:
        values = client.map(make, range(3))
        failed = [client.submit(fails, value, pure=False) for value in values]
        assert [type(it.exception()) for it in failed] == [accelrt.StreamError] * 3
        del values, failed
        give_up = time.monotonic() + LIMIT_S / 2
        while any(client.run(allocated).values()):
            assert time.monotonic() < give_up
    finally:
        client.run(gc.enable)


class Fails:
    """An actor whose methods enqueue work that fails."""

    def raises(self) -> None:
        fail("of the call's stream")
        raise KeyError(OWN)

    async def fails_as_coroutine(self) -> str:
        fail("of the coroutine")
        return "succeeded"

    async def raises_as_coroutine(self) -> None:
        fail("of the coroutine")
        raise KeyError(OWN)

    def fails(self) -> str:
        fail("of the method")
        return "succeeded"

    def succeeds(self) -> str:
        return "succeeded"


def test_raising_actor_call_ends_its_failure(client: Client) -> None:
    actor: Any = client.submit(Fails, actor=True, pure=False).result()
    for method, text in ((actor.raises, "call's stream"), (actor.raises_as_coroutine, "coroutine")):
        with pytest.raises(KeyError, match=OWN) as raised:
            method().result()
        assert text in "".join(raised.value.__notes__)
        assert actor.succeeds().result() == "succeeded"
        assert next_results(client) == ["succeeded"] * 2


def test_actor_coroutine_receives_its_failure(client: Client) -> None:
    """Also a method that is called on the event loop by request."""
    actor: Any = client.submit(Fails, actor=True, pure=False).result()
    with pytest.raises(accelrt.StreamError, match="of the coroutine"):
        actor.fails_as_coroutine().result()
    assert next_results(client) == ["succeeded"] * 2
    with pytest.raises(accelrt.StreamError, match="of the method"):
        actor.fails(separate_thread=False).result()
    assert next_results(client) == ["succeeded"] * 2


def test_second_worker_of_a_process_is_refused() -> None:
    code = """if True:
        from distributed import Client, LocalCluster
        import accelrt.dask

        with (
            LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            try:
                client.register_plugin(accelrt.dask.Devices())
            except RuntimeError as error:
                print(error)
        with (  # another one may follow
            LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(accelrt.dask.Devices())
            print(client.submit(lambda: str(accelrt.dask.device_of())).result())
    """
    ended = run("-c", code)
    told = ended.stdout.splitlines()
    assert "of this process has a device already: start each worker" in told[0], ended
    assert told[1:] == ["cpu:0"], ended


@pytest.fixture(name="stream")
def default_stream() -> Iterator[accelrt.Stream]:
    """Return the default stream of a device, without a failure before and after."""
    stream = accelrt.cpu.default_stream(DEVICE)
    stream.synchronize()
    yield stream
    stream.synchronize()


def test_ended_failure_reaches_skipped_calls(stream: accelrt.Stream) -> None:
    """A call whose work was skipped fails, although its event is recorded after the end."""
    default = DefaultStream(accelrt.device(DEVICE))
    first, second = default.begin(), default.begin()
    stream.launch_host(int, "of the first")
    skipped = stream.launch_host(int, "1")
    assert "of the first" in str(default.end(first))
    assert "of the first" in str(default.end(second))
    assert default.end(default.begin()) is None
    assert isinstance(skipped.exception(), accelrt.StreamError)


def test_failure_the_program_ended_is_passed_on(stream: accelrt.Stream) -> None:
    """The program receives it between the event of a call and its synchronise."""
    default = DefaultStream(accelrt.device(DEVICE))
    first, second = default.begin(), default.begin()
    stream.launch_host(int, "of the first")
    event = stream.record_event()
    with pytest.raises(accelrt.StreamError) as received:
        stream.synchronize()
    with pytest.raises(accelrt.StreamError):
        event.synchronize()
    assert default._end(first, received.value) is not None
    assert default.end(second) is not None
    assert default.end(default.begin()) is None


def test_coroutine_and_thread_share_a_failure(stream: accelrt.Stream) -> None:
    default = DefaultStream(accelrt.device(DEVICE))
    in_thread = default.begin()

    async def call() -> str:
        stream.launch_host(int, "of the thread")
        return "result"

    result, failure = asyncio.run(default.awaited(call))
    assert (result, "of the thread" in str(failure)) == ("result", True)
    assert "of the thread" in str(default.end(in_thread))


def test_coroutine_is_passed_an_ended_failure(stream: accelrt.Stream) -> None:
    default = DefaultStream(accelrt.device(DEVICE))
    first = default.begin()

    async def call() -> Exception | None:
        stream.launch_host(int, "of the first")
        return default.end(first)

    failures = asyncio.run(default.awaited(call))
    assert ["of the first" in str(it) for it in failures] == [True, True]
    assert default.end(default.begin()) is None


class Slow:
    """A stream whose synchronise returns late."""

    def __init__(self, stream: accelrt.Stream) -> None:
        self.record_event, self.stream = stream.record_event, stream
        self.has_ended, self.may_return = threading.Event(), threading.Event()

    def synchronize(self) -> None:
        try:
            self.stream.synchronize()
        finally:
            self.has_ended.set()
            self.may_return.wait(LIMIT_S / 4)


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_call_waits_for_a_failure_passed_on(stream: accelrt.Stream, kind: str) -> None:
    """Another call has ended the failure and not passed it on: the event does not fail any more."""
    default, is_running = DefaultStream(accelrt.device(DEVICE)), threading.Event()
    default._stream = slow = Slow(stream)

    def run_until_ended() -> None:
        is_running.set()
        slow.has_ended.wait(LIMIT_S / 4)

    def in_thread() -> Exception | None:
        use = default.begin()
        run_until_ended()
        return default.end(use)

    async def call() -> None:
        run_until_ended()

    def in_coroutine() -> Exception | None:
        return asyncio.run(default.awaited(call))[1]

    first = default.begin()
    with ThreadPoolExecutor(2) as threads:
        second = threads.submit(in_thread if kind == "thread" else in_coroutine)
        is_running.wait(LIMIT_S / 4)
        stream.launch_host(int, "of the first")
        ending = threads.submit(default.end, first)
        with pytest.raises(TimeoutError):
            second.result(0.3)
        slow.may_return.set()
        failures = ending.result(), second.result()
    assert ["of the first" in str(it) for it in failures] == [True, True]


def test_cancelled_coroutine_ends_its_registration(stream: accelrt.Stream) -> None:
    default = DefaultStream(accelrt.device(DEVICE))

    async def main() -> None:
        call = asyncio.ensure_future(default.awaited(asyncio.Event().wait))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(main())
    assert not default._running
    stream.synchronize()


def test_no_failure_of_many_calls_is_lost(stream: accelrt.Stream) -> None:
    """Each call on four threads whose work failed or was skipped receives a failure."""
    default = DefaultStream(accelrt.device(DEVICE))

    def calls(number: int) -> list[tuple[accelrt.HostCall[int], Exception | None]]:
        ended = []
        for turn in range(200):
            use = default.begin()
            work = stream.launch_host(int, "wrong" if (turn + number) % 5 == 0 else "1")
            ended.append((work, default.end(use)))
        return ended

    with ThreadPoolExecutor(4) as threads:
        ended = [it for of_thread in threads.map(calls, range(4)) for it in of_thread]
    assert default.end(default.begin()) is None
    assert [str(it) for it, failure in ended if it.exception() and not failure] == []
    assert any(failure is None for _, failure in ended)
