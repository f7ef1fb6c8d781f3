"""The rows of the figures that Python measures: their names, in the order of the table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """What is measured, and in which unit."""

    name: str
    what: str
    unit: str = "ns"


# What is reserved for the requests of a program, over what they need: percent above it.
_WASTE = "reserved above live"

ROWS = (
    Row("Q2", "launch from Python, nobody drains"),
    Row("Q2.executor", "the same"),
    Row("Q2.dpctl", "the same"),
    Row("Q2.two", "launch with two arguments"),
    Row("Q2.beside", "launch beside a worker"),
    Row("Q2.two.beside", "with two arguments"),
    Row("Q3.python", "round trip from Python"),
    Row("Q3.python.executor", "the same"),
    Row("Q3.python.dpctl", "the same"),
    Row("Q3.python.first", "the first after 1 ms of idleness"),
    Row("Q7", "CPU time of 1 s after 100 us"),
    Row("E1.python", "record from Python, nobody drains"),
    Row("E1.python.beside", "record beside a worker"),
    Row("E2", "tick, where the TSC keeps time"),
    Row("E2.clock", "tick, elsewhere"),
    Row("E2.negative", "negative times on one stream", "times"),
    Row("E3", "off CLOCK_MONOTONIC over 1 s"),
    Row("W1", "await of a done event"),
    Row("W2", "await of a pending event"),
    Row("W2.callable", "await of a callable"),
    Row("W3", "the current stream of an asyncio task"),
    Row("W3.empty", "empty and its release in one"),
    Row("W4", "eight native calls that sleep 0.25 s", "ms"),
    Row("W4.callable", "eight callables that sleep 0.25 s", "ms"),
    Row("C1.python.4KiB", "from Python, pipelined"),
    Row("C1.python.1MiB", "from Python, pipelined"),
    Row("C1.python.64MiB", "from Python, pipelined"),
    Row("C2", "copies while the GIL is held"),
    Row("D1.python", "xpu: record from Python"),
    Row("D2.python", "xpu: round trip from Python"),
    Row("I1", "import, beyond an empty program", "ms"),
    Row("I1.stream", "the first stream and synchronise beyond it", "ms"),
    Row("I1.numpy", "import, beyond an empty program", "ms"),
    Row("I1.torch", "the same", "ms"),
    Row("A4.512B", "empty and its release from Python"),
    Row("A4.512B.torch", "the same"),
    Row("A4.64KiB", "empty and its release from Python"),
    Row("A4.64KiB.torch", "the same"),
    Row("A4.2MiB", "empty and its release from Python"),
    Row("A4.2MiB.torch", "the same"),
    Row("A7", f"{_WASTE}, 2 MiB pages, mean", "%"),
    Row("A7.expandable", "the same", "%"),
    Row("A7.max", "the worst", "%"),
    Row("A7.max.expandable", "the same", "%"),
    Row("A7.own", "of what little ones may, the worst", "%"),
    Row("A8", f"{_WASTE}, 64 KiB pages, mean", "%"),
    Row("A8.expandable", "the same", "%"),
    Row("A8.max", "the worst", "%"),
    Row("A8.max.expandable", "the same", "%"),
    Row("A9.robson", f"{_WASTE}, Robson's adversary", "%"),
    Row("A9.fuzz", f"{_WASTE}, four random streams", "%"),
    Row("A10", "pages mapped or moved over their peak", "x"),
    Row("A10.worst", "the worst", "x"),
    Row("A10.third", "the third time, an event", "pages"),
    Row("A10.third.worst", "the worst", "pages"),
    # What others get from the host cache.
    Row("H1.512B", "an array of NumPy and its release"),
    Row("H1.64KiB", "an array of NumPy and its release"),
    Row("H1.2MiB", "an array of NumPy and its release"),
    Row("H1.2MiB.ones", "one that is written"),
    Row("H1.2MiB.zeros", "one of zeros, not written"),
    *(
        Row(f"H2.{size}{suffix}", what)
        for size, what in (
            ("64", "a GEMM of 64 by oneMKL, one thread"),
            ("512", "a GEMM of 512 by oneMKL, one thread"),
            ("64.fresh", "one of 64 without kept buffers"),
            ("512.fresh", "one of 512 without kept buffers"),
        )
        for suffix in ("", ".mimalloc")
    ),
    *(
        Row(f"{name}.{peer}", f"64 MiB of {what}")
        for name, what in (
            ("R1", "raw uint32"),
            ("R2", "raw uint64"),
            ("R3", "uniform float32"),
            ("R4", "uniform float64"),
            ("R5", "normal float32"),
            ("R6", "normal float64"),
        )
        for peer in ("philox", "sfc64")
    ),
    Row("V2.empty", "empty and its release in a memory history"),
    Row("V2.empty.stacks", "with the stacks of requests, ten frames"),
    Row("V3", "a profile of 5e5 tasks, exported", "s"),
    Row("V3.page", "its trace made into a page", "s"),
    Row("V3.open", "the page, opened in a browser", "s"),
    Row("V4", "an event of a hot table, read and replayed"),
    Row("V4.reading", "of it, reading"),
    Row("V4.traces", "an event of recorded tables, the same"),
    Row("V4.traces.reading", "of it, reading"),
    Row("S1", "a launch with a buffer under the sanitizer"),
    Row("S1.number", "one without a buffer"),
    Row("S1.copy", "a copy"),
    Row("Z1.host", "dask: 64 MiB from device to host", "ms"),
    Row("Z1.disk", "dask: 64 MiB from host to disk", "ms"),
    Row("Z1.disk.dask", "the same", "ms"),
    Row("Z2", "dask: a task of two workers", "us"),
    Row("Z3", "dask: a product of four times the memory", "s"),
)
