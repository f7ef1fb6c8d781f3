"""Goal: a callable that sleeps delays its own stream alone, and the pool is no larger than needed.

Method: callables of several streams meet at a barrier, which lets none go before all are there.
What depends on the size of the pool runs in a process of its own.
"""

import textwrap
import threading
import time
from collections.abc import Callable

import pytest

import accelrt
from kinds import KIND
from processes import output_of, run, threads_named

LONG = 60.0  # far beyond what any of this takes


def streams(count: int) -> list[accelrt.Stream]:
    return [accelrt.Stream(f"{KIND}:0", dedicated=True) for _ in range(count)]


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.01)


@pytest.mark.parametrize("count", [2, 5])
def test_callables_of_several_streams_wait_for_each_other(count: int) -> None:
    barrier = threading.Barrier(count)
    works = streams(count)
    for _ in range(3):
        for work in works:
            work.launch_host(barrier.wait, LONG)
    for work in works:
        work.synchronize()


def test_a_callable_that_sleeps_delays_no_other_stream() -> None:
    slow, other = streams(2)
    goes_on, seen = threading.Event(), list[int]()
    slow.launch_host(goes_on.wait, LONG)
    slow.launch_host(seen.append, -1)
    for number in range(200):
        other.launch_host(seen.append, number)
    other.synchronize()
    assert seen == list(range(200))
    goes_on.set()
    slow.synchronize()
    assert seen[-1] == -1


def test_streams_keep_their_orders_while_callables_block_each_other() -> None:
    works, events = streams(5), [threading.Event() for _ in range(5)]
    seen: list[list[int]] = [[] for _ in works]

    def meet(place: int, number: int) -> None:
        seen[place].append(number)
        events[place].set()
        events[(place + 1) % 5].wait(LONG)

    for number in range(20):
        for place, work in enumerate(works):
            work.launch_host(meet, place, number)
    for work in works:
        work.synchronize()
    assert seen == [list(range(20))] * 5


def test_a_failure_beside_blocked_callables_is_its_streams() -> None:
    slow, failing = streams(2)
    goes_on = threading.Event()
    slow.launch_host(goes_on.wait, LONG)
    failing.launch_host(lambda: 1 / 0)
    with pytest.raises(accelrt.StreamError, match="division by zero"):
        failing.synchronize()
    goes_on.set()
    slow.synchronize()


def test_threads_without_work_end() -> None:
    works, barrier = streams(5), threading.Barrier(5)
    for work in works:
        work.launch_host(barrier.wait, LONG)
    for work in works:
        work.synchronize()
    wait_until(lambda: threads_named("accelrt-python") == 1)
    works[0].launch_host(int)
    works[0].synchronize()


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_threads_than_the_setting_call_callables(limit: int) -> None:
    program = f"""
    import threading, time, accelrt
    works = [accelrt.Stream(dedicated=True) for _ in range(8)]
    goes_on, inside, lock, most = threading.Event(), 0, threading.Lock(), 0
    everyone = threading.Semaphore(0)

    def call():
        global inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        everyone.release()
        goes_on.wait()
        with lock:
            inside -= 1

    for work in works:
        work.launch_host(call)
    for _ in range({limit}):
        assert everyone.acquire(timeout=60)
    assert not everyone.acquire(timeout=0.05)
    goes_on.set()
    for work in works:
        work.synchronize()
    print(most)
    """
    assert output_of(program, ACCELRT_HOST_THREADS=str(limit)) == f"{limit}\n"


def test_callables_that_end_soon_share_a_thread() -> None:
    # Goal: threads are started while callables wait, not for each of them. Method: many callables
    # that end at once; a machine that is busy makes one wait now and then.
    program = """
    import accelrt
    from processes import threads_named
    work = accelrt.Stream(dedicated=True)
    for number in range(2000):
        work.launch_host(int)
    work.synchronize()
    print(threads_named("accelrt-python") < 8)
    """
    assert output_of(program, ACCELRT_HOST_THREADS="32") == "True\n"


def test_pending_callables_beside_one_that_never_ends_run_at_exit() -> None:
    program = """
    import accelrt, threading
    endless, others = accelrt.Stream(), [accelrt.Stream(dedicated=True) for _ in range(4)]
    begun = threading.Event()

    def call():
        begun.set()
        threading.Event().wait()

    endless.launch_host(call)
    begun.wait()
    for number, other in enumerate(others):
        other.launch_host(print, number)
    """
    ended = run("-c", textwrap.dedent(program), ACCELRT_EXIT_MS="500")
    assert sorted(ended.stdout.split()) == ["0", "1", "2", "3"]
    assert "inside a task" in ended.stderr or "not run" in ended.stderr
    assert ended.returncode == 0


def test_a_forked_child_of_a_program_with_many_host_threads_ends() -> None:
    program = """
    import accelrt, os, threading
    works = [accelrt.Stream(dedicated=True) for _ in range(4)]
    barrier, goes_on = threading.Barrier(5), threading.Event()

    def call():
        barrier.wait()
        goes_on.wait()

    for work in works:
        work.launch_host(call)
    barrier.wait()
    child = os.fork()
    if child == 0:
        os._exit(7)
    _, status = os.waitpid(child, 0)
    goes_on.set()
    for work in works:
        work.synchronize()
    print(os.waitstatus_to_exitcode(status))
    """
    assert output_of(program) == "7\n"
