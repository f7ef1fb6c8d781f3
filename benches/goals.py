"""The goals: one for each figure, in the order of the table, by which a measurement is judged.

They are this project's own and not in the wheel: `python -m accelrt bench` measures and judges
nothing. What Python measures has its words in the wheel's table of rows.
"""

from dataclasses import dataclass

from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.rows import ROWS, Row


@dataclass(frozen=True)
class Goal:
    """One row, and the limit that counts for it, if there is one."""

    row: Row
    at_most: float | None = None  # of ours
    ratio: float | None = None  # of ours over the peer's
    excess_ns: float | None = None  # of ours over the peer's, taken in pairs

    def __str__(self) -> str:
        """Return the limit in words; nothing for a row that is only printed beside."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g} {self.row.unit}"
        if self.ratio is not None:
            return f"≤ {self.ratio:.3g} x"
        return "" if self.excess_ns is None else f"≤ peer + {self.excess_ns:g} ns"

    def is_met(self, measured: Measurement) -> bool | None:
        """Judge a measurement; `None` when there is no limit or too little was measured.

        >>> goal = Goal(Row("Q4", "through an awake worker"), ratio=2)
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
    return Goal(Row(name, what, unit), at_most, ratio, excess_ns)


_torch = _rust  # the bridge's rows have their words here, too

_BY_NAME = {row.name: row for row in ROWS}


def _python(
    name: str,
    *,
    at_most: float | None = None,
    ratio: float | None = None,
    excess_ns: float | None = None,
) -> Goal:
    return Goal(_BY_NAME[name], at_most, ratio, excess_ns)


# In nanoseconds over one second: a millionth is a thousand of them.
_FIFTY_PPM_NS = 50_000

_MALLOCS = ("mimalloc", "jemalloc", "tcmalloc", "glibc")


def _pairs(name: str, ratios: dict[str, float]) -> tuple[Goal, ...]:
    """Return the rows of one size: ours beside PyTorch's, its model, each malloc, their best."""
    peers = ("model", "c10", *_MALLOCS, "best")
    limits = {"model": 0.09, **ratios}
    rows = (_rust(f"{name}.{peer}", "the same", ratio=limits.get(peer)) for peer in peers)
    return _rust(name, "allocate and free, cached"), *rows


_LARGE = {"best": 0.25}
# Of PyTorch's own compiled allocator, and of our model of it.
_OF_REAL, _OF_MODEL = 0.2, 0.35

# Five million events a second.
_TABLE_NS = 200

# The recorded requests that replays are measured with, of `TRACES`/ops.
TABLES = (
    "G_1",
    "df_index_resolver",
    "own_cnn_multires",
    "own_generate",
    "own_gpt_fixed",
    "own_gpt_varlen_ckpt",
    "pangu_2.6B",
    "resnet50",
    "synth_3streams",
    "synth_moe",
    "synth_robson",
    "synth_serving",
)

_ALLOCATION = (
    *_pairs("A1.512B", {"best": 1.4}),
    *_pairs("A1.64KiB", {}),
    *_pairs("A1.2MiB", _LARGE),
    *_pairs("A1.64MiB", _LARGE),
    _rust("A2", "not cached, 1e3 live of 1 to 16 MiB"),
    _rust("A2.model", "the same", ratio=_OF_MODEL),
    _rust("A2.c10", "the same", ratio=_OF_REAL),
    _rust("A3", "an event of whole traces, mean"),
    _rust("A3.model", "the same", ratio=_OF_MODEL),
    _rust("A3.c10", "the same", ratio=_OF_REAL),
    *(_rust(f"A3.c10.{table}", "of one of them") for table in TABLES),
    _rust("A3.again", "of another replay, mean"),
    _rust("A3.again.c10", "the same"),
    _python("A4.512B", ratio=1.05),
    _python("A4.512B.torch", ratio=0.13),
    _python("A4.64KiB", ratio=1.05),
    _python("A4.64KiB.torch", ratio=0.13),
    _python("A4.2MiB", ratio=1.05),
    _python("A4.2MiB.torch", ratio=0.13),
    _rust("A4.heap", "heap calls of a buffer", unit="calls", at_most=0),
    _rust("A5", "two threads, each its own", ratio=1.1),
    _rust("A6", "freed by another thread"),
    _rust("A6.mimalloc", "the same", ratio=0.8),
    *(_rust(f"A6.{peer}", "the same") for peer in _MALLOCS[1:]),
    _python("A7", at_most=0.8),
    _python("A7.expandable"),
    _python("A7.max", at_most=1.5),
    _python("A7.max.expandable"),
    _python("A7.own", at_most=100),
    _python("A8", at_most=0.5),
    _python("A8.expandable"),
    _python("A8.max", at_most=2),
    _python("A8.max.expandable"),
    _python("A9.robson", at_most=6),
    _python("A9.fuzz", at_most=6),
    _python("A10", at_most=2),
    _python("A10.worst", at_most=8),
    _python("A10.third", at_most=0.1),
    _python("A10.third.worst", at_most=0.7),
    _rust("A11", "a pair among 1e6", ratio=1.5),
    _rust("A11.model", "the same"),
    _rust("A11.most", "a pair among 1e7", ratio=3),
    _rust("A12", "heap of a live block of 512 B", unit="bytes", at_most=4),
    _rust("A12.model", "the same", unit="bytes"),
    _rust("A12.other", "heap of one above 32 KiB", unit="bytes", at_most=40),
    _rust("A12.other.model", "the same", unit="bytes"),
    _rust("A13", "first touch of a fresh 2 MiB", ratio=0.08),
    _rust("A13.huge", "the same"),
    _rust("A13.kernel", "of it the kernel's", unit="%"),
    _rust("A14", "moving a resident 2 MiB", ratio=0.15),
    _rust("A15", "four threads, memory is short", ratio=1.5),
)

# There are no limits yet.
_OF_OTHERS = tuple(Goal(row) for row in ROWS if row.name.startswith("H"))

_RANDOM = tuple(Goal(row, ratio=1) for row in ROWS if row.name.startswith("R"))

GOALS = (
    _rust("Q1", "enqueue 40 bytes, nobody drains", at_most=15),
    _rust("Q1.crossbeam", "the same"),
    _rust("Q1.std", "the same"),
    _rust("Q1.opencl", "the same"),
    _rust("Q1.beside", "enqueue 40 bytes beside a worker", at_most=15),
    _rust("Q1.beside.crossbeam", "the same", ratio=0.2),
    _rust("Q1.beside.std", "the same"),
    _python("Q2", at_most=90),
    _python("Q2.executor"),
    _python("Q2.dpctl", ratio=0.1),
    _python("Q2.two", at_most=130),
    _python("Q2.beside", at_most=90),
    _python("Q2.two.beside", at_most=130),
    _rust("Q3", "round trip, caller helps", at_most=40),
    _rust("Q3.opencl", "the same"),
    _rust("Q3.first", "the first after 1 ms of idleness"),
    _python("Q3.python", at_most=200),
    _python("Q3.python.executor"),
    _python("Q3.python.dpctl"),
    _python("Q3.python.first"),
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
    _python("Q7", at_most=0),
    _rust("E1", "record, nobody drains", at_most=20),
    _rust("E1.beside", "record beside a worker", at_most=20),
    _rust("E1.query", "query", at_most=3),
    _python("E1.python", at_most=80),
    _python("E1.python.beside", at_most=80),
    _python("E2", at_most=1),
    _python("E2.clock", ratio=1),
    _python("E2.negative", at_most=0),
    _python("E3", at_most=_FIFTY_PPM_NS),
    _python("W1", at_most=300),
    _python("W2", ratio=1),
    _python("W2.callable", ratio=1),
    _python("W3", excess_ns=60),
    _python("W3.empty", excess_ns=60),
    _python("W4", at_most=500),
    _python("W4.callable", at_most=500),
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
    _python("C1.python.4KiB"),
    _python("C1.python.1MiB", ratio=1 / 0.97),
    _python("C1.python.64MiB", ratio=1),
    _python("C2", ratio=1.1),
    _rust("D1", "xpu: record, nothing runs", excess_ns=100),
    _rust("D1.copy", "xpu: enqueue a copy, nothing runs", excess_ns=100),
    _rust("D1.beside", "xpu: record beside the device"),
    _rust("D2", "xpu: round trip of a marker"),
    _rust("D3.4KiB", "xpu: copy, pipelined"),
    _rust("D3.64MiB", "xpu: copy, pipelined"),
    _python("D1.python"),
    _python("D2.python"),
    _python("I1", at_most=10),
    _python("I1.stream", at_most=1),
    _python("I1.numpy"),
    _python("I1.torch"),
    _rust("F1.enqueue", "enqueue through C", excess_ns=5),
    _rust("F1.record", "record through C", excess_ns=5),
    _rust("F1.buffer", "allocate, free through C", excess_ns=5),
    _rust("F1.memory", "the same by address"),
    _rust("F1.event_query", "query through C", excess_ns=4),
    _rust("F1.stream_query", "the same of a stream", excess_ns=4),
    *_ALLOCATION,
    *_OF_OTHERS,
    *_RANDOM,
    _rust("V2", "a task in a profile", excess_ns=15),
    _rust("V2.long", "one of 5e5, in new memory"),
    _python("V2.empty", excess_ns=30),
    _python("V2.empty.stacks", excess_ns=1_830),
    _python("V3", at_most=3),
    _python("V3.page"),
    _python("V3.open", at_most=3),
    _python("V4", at_most=_TABLE_NS),
    _python("V4.reading"),
    _python("V4.traces", at_most=_TABLE_NS),
    _python("V4.traces.reading"),
    _python("S1", excess_ns=300),
    _python("S1.number", excess_ns=300),
    _python("S1.copy", excess_ns=300),
    _python("Z1.host", ratio=1.11),
    _python("Z1.disk", ratio=1.25),
    _python("Z1.disk.dask"),
    _python("Z2", ratio=1.1),
    _python("Z3", ratio=1),
    *(
        _torch(f"T1.{name}", "torch: one element", excess_ns=4_000)
        for name in ("add_", "mul", "relu")
    ),
    *(_torch(f"T1.{name}", "the same", excess_ns=15_000) for name in ("mm", "softmax", "cat")),
    _torch("T2.256", "torch: a step, width 256", unit="ms", ratio=1.1),
    _torch("T2.256.one", "with one thread", unit="ms", ratio=1.1),
    _torch("T2.32", "torch: a step, width 32", unit="ms"),
    _torch("T2.32.one", "with one thread", unit="ms"),
    _torch("T3", "torch: two devices, half each", unit="ms", ratio=1 / 1.5),
    _torch("T4", "torch: reserved for a step", unit="MB", ratio=1.02),
    _torch("T5", "torch: operators of a ResNet-50", unit="ms"),
)
