"""Goal: destructors may wait, and hold no callable up wherever they run.

Method: objects that a launch keeps alive have destructors that synchronise with the stream whose
callable comes next. The main thread makes no call of ours from then on, so that only threads of
ours drop them.
"""

import ctypes
import threading

import accelrt
from gates import Gate
from kinds import host_cores
from processes import output_of, thread_name

libc = ctypes.CDLL(None)

LONG = 60.0  # far beyond what any of this takes


class Owner:
    """Owns memory of native functions, and waits for them before it goes."""

    def __init__(self, work: accelrt.Stream) -> None:
        self.memory = ctypes.create_string_buffer(8)
        self._as_parameter_ = ctypes.addressof(self.memory)
        self.work = work
        self.gone = threading.Event()
        self.seen: list[object] = []
        self.report = (self.seen, self.gone)

    def __del__(self) -> None:
        self.seen.append(thread_name())
        try:
            self.work.synchronize()
            self.seen.append("synchronised")
        except RuntimeError as refusal:
            self.seen.append(str(refusal))
        self.gone.set()


@host_cores
def test_a_destructor_that_waits_holds_no_callable_up() -> None:
    work = accelrt.Stream(dedicated=True)
    called = threading.Event()
    gate = Gate(work)
    owner = Owner(work)
    seen, gone = owner.report
    work.launch(libc.memset, owner, 0, 4)
    del owner
    work.launch_host(called.set)
    gate.open()
    assert called.wait(LONG)
    assert gone.wait(LONG)
    assert seen[1] == "synchronised"
    assert seen[0] == "accelrt-reaper"
    gate.close()


@host_cores
def test_a_call_inside_of_a_callable_drops_nothing_that_was_parked() -> None:
    work, other = accelrt.Stream(dedicated=True), accelrt.Stream(dedicated=True)
    called = threading.Event()
    gate = Gate(work)
    owner = Owner(other)
    seen, gone = owner.report
    work.launch(libc.memset, owner, 0, 4)
    del owner

    goes_on = threading.Event()

    def call() -> None:
        other.launch_host(goes_on.wait)  # unfinished while this one runs
        assert not other.query()
        called.set()

    work.launch_host(call)
    gate.open()
    assert called.wait(LONG)
    goes_on.set()
    assert gone.wait(LONG)
    assert seen[1] == "synchronised"
    assert seen[0] == "accelrt-reaper"
    gate.close()


def test_a_destructor_of_a_callables_argument_may_wait_for_nothing_unfinished() -> None:
    work = accelrt.Stream(dedicated=True)
    owner = Owner(work)
    seen, gone = owner.report
    work.launch_host(lambda _: None, owner)
    del owner
    assert gone.wait(LONG)
    assert seen[0] == "accelrt-python"
    assert "cannot wait for unfinished work" in str(seen[1])
    work.synchronize()


@host_cores
def test_destructors_that_wait_do_not_stand_on_each_other() -> None:
    # Goal: many of them need no deep stack. Method: each counts those of its thread.
    work = accelrt.Stream(dedicated=True)
    depths: list[int] = []
    here = threading.local()

    class Counting:
        def __init__(self) -> None:
            self.memory = ctypes.create_string_buffer(8)
            self._as_parameter_ = ctypes.addressof(self.memory)

        def __del__(self) -> None:
            here.depth = getattr(here, "depth", 0) + 1
            work.synchronize()
            depths.append(here.depth)
            here.depth -= 1

    gate = Gate(work)
    for _ in range(300):
        work.launch(libc.memset, Counting(), 0, 4)
    gate.open()
    event = work.record_event()
    event.synchronize()
    while len(depths) < 300:
        event.query()
    assert set(depths) == {1}
    gate.close()


@host_cores
def test_what_is_parked_while_no_thread_starts_is_dropped_behind_the_next_callable() -> None:
    # Goal: a refusal is no end. Method: the system has no room for a thread's stack when the first
    # callable leaves something parked, and has some again before the second one.
    code = """
        import ctypes, os, resource, threading, time
        import accelrt
        from gates import Gate, libc

        class Owner:
            def __init__(self) -> None:
                self.memory = ctypes.create_string_buffer(8)
                self._as_parameter_ = ctypes.addressof(self.memory)

            def __del__(self) -> None:
                gone.set()

        work, gone, first = accelrt.Stream(dedicated=True), threading.Event(), threading.Event()
        work.launch_host(lambda: None)
        work.synchronize()
        gates = [Gate(work)]
        work.launch(libc.memset, Owner(), 0, 4)
        work.launch_host(first.set)
        gates.append(Gate(work))
        work.launch_host(lambda: None)
        with open("/proc/self/statm") as pages:
            taken = int(pages.read().split()[0]) * resource.getpagesize()
        limits = resource.getrlimit(resource.RLIMIT_AS)
        room = 4 << 20  # half of a stack
        resource.setrlimit(resource.RLIMIT_AS, (taken + room, limits[1]))
        gates[0].open()
        first.wait()
        time.sleep(0.05)  # until the start was refused
        resource.setrlimit(resource.RLIMIT_AS, limits)
        assert not gone.is_set()
        gates[1].open()
        print(gone.wait(20))
    """
    assert output_of(code) == "True\n"
