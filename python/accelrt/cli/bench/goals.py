"""The goals: one for each figure, by which a measurement is judged."""

from dataclasses import dataclass

#: Who measures a row that Python cannot: the Rust benches, which are not in the wheel.
NEEDS_THE_SOURCE_TREE = "needs the source tree: make bench"


@dataclass(frozen=True)
class Measurement:
    """What was measured for a row, or why it was not."""

    name: str
    ours: float | None = None
    ours_min: float | None = None
    peer: str | None = None
    peer_ns: float | None = None
    excess_ns: float | None = None  # the median of what ours took more, of pairs with the peer's
    reason: str | None = None
    quiet: int | None = None  # of eleven repetitions, that were taken while the machine was quiet


@dataclass(frozen=True)
class Goal:
    """One row: what is measured, and the limit that counts, if there is one."""

    name: str
    what: str
    unit: str = "ns"
    at_most: float | None = None  # of ours
    ratio: float | None = None  # of ours over the peer's
    excess_ns: float | None = None  # of ours over the peer's, taken in pairs
    is_for_rust: bool = False

    def __str__(self) -> str:
        """Return the limit in words; nothing for a row that is only printed beside."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g} {self.unit}"
        if self.ratio is not None:
            return f"≤ {self.ratio:.3g} x"
        return "" if self.excess_ns is None else f"≤ peer + {self.excess_ns:g} ns"

    def is_met(self, measured: Measurement) -> bool | None:
        """Judge a measurement; `None` when there is no limit or too little was measured.

        >>> goal = Goal("Q4", "through an awake worker", ratio=2)
        >>> [goal.is_met(Measurement("Q4", ours=100, peer_ns=ns)) for ns in (66, 40, None)]
        [True, False, None]
        """
        ours, peer_ns = measured.ours, measured.peer_ns
        if ours is None:
            return None
        if self.at_most is not None:
            return ours <= self.at_most
        if self.excess_ns is not None:
            return None if measured.excess_ns is None else measured.excess_ns <= self.excess_ns
        return None if self.ratio is None or peer_ns is None else ours <= self.ratio * peer_ns


def _rust(
    name: str,
    what: str,
    *,
    unit: str = "ns",
    at_most: float | None = None,
    ratio: float | None = None,
    excess_ns: float | None = None,
) -> Goal:
    return Goal(name, what, unit, at_most, ratio, excess_ns, is_for_rust=True)


# In nanoseconds over one second: a millionth is a thousand of them.
_FIFTY_PPM_NS = 50_000

_MALLOCS = ("mimalloc", "jemalloc", "tcmalloc", "glibc")


def _pairs(name: str, what: str, ratios: dict[str, float]) -> tuple[Goal, ...]:
    """Return the rows of one size: ours, the model of PyTorch's, each malloc, the best of them."""
    peers = ("model", *_MALLOCS, "best")
    rows = (_rust(f"{name}.{peer}", "the same", ratio=ratios.get(peer)) for peer in peers)
    return _rust(name, what, at_most=10), *rows


_OF_MODEL = {"model": 0.13}
_LARGE = {**_OF_MODEL, "best": 0.25}
# What is reserved for the requests of a program, over what they need: percent above it.
_WASTE = "reserved above live"

_ALLOCATION = (
    *_pairs("A1.512B", "allocate and free, cached", {**_OF_MODEL, "mimalloc": 1.8}),
    *_pairs("A1.64KiB", "allocate and free, cached", _OF_MODEL),
    *_pairs("A1.2MiB", "allocate and free, cached", _LARGE),
    *_pairs("A1.64MiB", "allocate and free, cached", _LARGE),
    _rust("A2", "not cached, 1e3 live", at_most=60),
    _rust("A2.model", "the same", ratio=0.3),
    _rust("A3", "an event of whole traces, mean", at_most=25),
    _rust("A3.model", "the same"),
    Goal("A4.512B", "empty and its release from Python", ratio=1.05),
    Goal("A4.512B.torch", "the same", ratio=0.13),
    Goal("A4.64KiB", "empty and its release from Python", ratio=1.05),
    Goal("A4.64KiB.torch", "the same", ratio=0.13),
    Goal("A4.2MiB", "empty and its release from Python", ratio=1.05),
    Goal("A4.2MiB.torch", "the same", ratio=0.13),
    _rust("A4.heap", "heap calls of a buffer", unit="calls", at_most=0),
    _rust("A5", "two threads, each its own", ratio=1.1),
    _rust("A6", "freed by another thread"),
    _rust("A6.mimalloc", "the same", ratio=0.8),
    *(_rust(f"A6.{peer}", "the same") for peer in _MALLOCS[1:]),
    Goal("A7", f"{_WASTE}, 2 MiB pages, mean", unit="%", at_most=1.5),
    Goal("A7.expandable", "the same", unit="%"),
    Goal("A7.max", "the worst", unit="%", at_most=3),
    Goal("A7.max.expandable", "the same", unit="%"),
    Goal("A7.own", "of what little ones may, the worst", unit="%", at_most=100),
    Goal("A8", f"{_WASTE}, 64 KiB pages, mean", unit="%", at_most=0.5),
    Goal("A8.expandable", "the same", unit="%"),
    Goal("A8.max", "the worst", unit="%", at_most=2),
    Goal("A8.max.expandable", "the same", unit="%"),
    Goal("A9.robson", f"{_WASTE}, Robson's adversary", unit="%", at_most=6),
    Goal("A9.fuzz", f"{_WASTE}, four random streams", unit="%", at_most=6),
    Goal("A10", "pages mapped or moved over their peak", unit="x", at_most=2),
    Goal("A10.worst", "the worst", unit="x", at_most=8),
    Goal("A10.third", "the third time, an event", unit="pages", at_most=0.1),
    Goal("A10.third.worst", "the worst", unit="pages", at_most=0.7),
    _rust("A11", "a pair among 1e6", ratio=1.5),
    _rust("A11.model", "the same"),
    _rust("A11.most", "a pair among 1e7", ratio=3),
    _rust("A12", "heap of a live block of 512 B", unit="bytes", at_most=4),
    _rust("A12.model", "the same", unit="bytes"),
    _rust("A12.other", "heap of one above 32 KiB", unit="bytes", at_most=40),
    _rust("A12.other.model", "the same", unit="bytes"),
    _rust("A13", "first touch of a fresh 2 MiB", ratio=0.08),
    _rust("A13.huge", "the same"),
    _rust("A14", "moving a resident 2 MiB", ratio=0.15),
)

# What others get from the host cache; there are no limits yet.
_OF_OTHERS = (
    Goal("H1.512B", "an array of NumPy and its release"),
    Goal("H1.64KiB", "an array of NumPy and its release"),
    Goal("H1.2MiB", "an array of NumPy and its release"),
    Goal("H1.2MiB.ones", "one that is written"),
    Goal("H1.2MiB.zeros", "one of zeros, not written"),
    *(
        Goal(f"H2.{size}{suffix}", what)
        for size, what in (
            ("64", "a GEMM of 64 by oneMKL, one thread"),
            ("512", "a GEMM of 512 by oneMKL, one thread"),
            ("64.fresh", "one of 64 without kept buffers"),
            ("512.fresh", "one of 512 without kept buffers"),
        )
        for suffix in ("", ".mimalloc")
    ),
)

_RANDOM = tuple(
    Goal(f"{name}.{peer}", f"64 MiB of {what}", ratio=1)
    for name, what in (
        ("R1", "raw uint32"),
        ("R2", "raw uint64"),
        ("R3", "uniform float32"),
        ("R4", "uniform float64"),
        ("R5", "normal float32"),
        ("R6", "normal float64"),
    )
    for peer in ("philox", "sfc64")
)

GOALS = (
    _rust("Q1", "enqueue 40 bytes, nobody drains", at_most=15),
    _rust("Q1.crossbeam", "the same"),
    _rust("Q1.std", "the same"),
    _rust("Q1.opencl", "the same"),
    _rust("Q1.beside", "enqueue 40 bytes beside a worker", at_most=15),
    _rust("Q1.beside.crossbeam", "the same", ratio=0.2),
    _rust("Q1.beside.std", "the same"),
    Goal("Q2", "launch from Python, nobody drains", at_most=90),
    Goal("Q2.executor", "the same"),
    Goal("Q2.dpctl", "the same", ratio=0.1),
    Goal("Q2.two", "launch with two arguments", at_most=130),
    Goal("Q2.beside", "launch beside a worker", at_most=90),
    Goal("Q2.two.beside", "with two arguments", at_most=130),
    _rust("Q3", "round trip, caller helps", at_most=40),
    _rust("Q3.opencl", "the same"),
    _rust("Q3.first", "the first after 1 ms of idleness"),
    Goal("Q3.python", "round trip from Python", at_most=200),
    Goal("Q3.python.executor", "the same"),
    Goal("Q3.python.dpctl", "the same"),
    Goal("Q3.python.first", "the first after 1 ms of idleness"),
    _rust("Q4", "through an awake worker", ratio=2),
    _rust("Q5", "through a sleeping worker", ratio=1.1),
    _rust("Q5.wakes", "wakes an idle-busy edge", unit="wakes", at_most=1),
    _rust("Q6", "pipelined, 1 producer", at_most=20),
    _rust("Q6.crossbeam", "the same"),
    _rust("Q6.std", "the same"),
    _rust("Q6.four", "pipelined, 4 producers", at_most=60),
    _rust("Q6.four.crossbeam", "the same"),
    _rust("Q6.four.std", "the same"),
    _rust("Q6.flat", "pipelined, after 1e7 tasks", ratio=1.25),
    _rust("Q6.backlog", "a queued task", unit="bytes", at_most=64),
    _rust("Q6.backlog.faults", "page faults of a backlog", unit="per 1000"),
    _rust("Q6.backlog.enqueue", "enqueue into fresh memory"),
    Goal("Q7", "CPU time of 1 s after 100 us", at_most=0),
    _rust("E1", "record, nobody drains", at_most=20),
    _rust("E1.beside", "record beside a worker", at_most=20),
    _rust("E1.query", "query", at_most=3),
    Goal("E1.python", "record from Python, nobody drains", at_most=80),
    Goal("E1.python.beside", "record beside a worker", at_most=80),
    Goal("E2", "tick, where the TSC keeps time", at_most=1),
    Goal("E2.clock", "tick, elsewhere", ratio=1),
    Goal("E2.negative", "negative times on one stream", unit="times", at_most=0),
    Goal("E3", "off CLOCK_MONOTONIC over 1 s", at_most=_FIFTY_PPM_NS),
    _rust("G1", "a use by one more stream among 16,000", ratio=1.5),
    _rust("G2", "a free that waits, and a request", ratio=1.5),
    _rust("G3", "first request of a stream", ratio=1.5),
    _rust("G4", "a stream, used and dropped: the last of 1e6", ratio=1.1),
    _rust("G4.memory", "what is left of one that is gone", unit="bytes", at_most=1),
    _rust("G4.mappings", "mappings that 9e5 of them left", unit="mappings", at_most=16),
    _rust("C1.4KiB", "async copy, pipelined", excess_ns=150),
    _rust("C1.4KiB.waited", "each waited for"),
    _rust("C1.1MiB", "async copy, pipelined", ratio=1 / 0.97),
    _rust("C1.1MiB.waited", "each waited for"),
    _rust("C1.64MiB", "async copy, pipelined", ratio=1),
    _rust("C1.64MiB.waited", "each waited for"),
    _rust("C1.64MiB.unstreamed", "where libc does not stream", ratio=1 / 1.15),
    Goal("C1.python.4KiB", "from Python, pipelined"),
    Goal("C1.python.1MiB", "from Python, pipelined", ratio=1 / 0.97),
    Goal("C1.python.64MiB", "from Python, pipelined", ratio=1),
    Goal("C2", "copies while the GIL is held", ratio=1.1),
    _rust("D1", "xpu: record, nothing runs", excess_ns=100),
    _rust("D1.copy", "xpu: enqueue a copy, nothing runs", excess_ns=100),
    _rust("D1.beside", "xpu: record beside the device"),
    _rust("D2", "xpu: round trip of a marker"),
    _rust("D3.4KiB", "xpu: copy, pipelined"),
    _rust("D3.64MiB", "xpu: copy, pipelined"),
    Goal("D1.python", "xpu: record from Python"),
    Goal("D2.python", "xpu: round trip from Python"),
    Goal("I1", "import, beyond an empty program", unit="ms", at_most=10),
    Goal("I1.stream", "the first stream and synchronise beyond it", unit="ms", at_most=1),
    Goal("I1.numpy", "import, beyond an empty program", unit="ms"),
    Goal("I1.torch", "the same", unit="ms"),
    *_ALLOCATION,
    *_OF_OTHERS,
    *_RANDOM,
)
