"""Goal: tables show each value in its column, zero and missing values included.

Method: whole texts of fixed figures.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelrt import _memory_summary, _verbose_table, sanitizer
from accelrt._memory_history import MemoryReport, MemoryUse
from accelrt._verbose_records import Record as Call
from accelrt.cli.replay import minimum, recommend, table
from accelrt.cli.replay.checks import Tally
from accelrt.cli.terminal import Style

MIB = 1 << 20


def figures(**changes: object) -> Any:
    known = {
        "granularity_bytes": 2 * MIB,
        "events": 1000,
        "peak_live_bytes": 3 * MIB,
        "peak_reserved_bytes": 4 * MIB,
        "page_operations": 12,
        "ns_per_event": 99.96,
        "failed_at": None,
    }
    return SimpleNamespace(**(known | changes))


REPLAYS = """\
trace       policy  events  peak live MiB  peak reserved MiB  reserved/live  page ops  ns/event\
  failed at
a.csv       torch     1000           3.00               4.00         1.3333        12       100\
          -
b           native       0           0.00               0.00              -         0         0\
    event 0
long.csv:1  torch        -              -                  -              -         -         -\
    no room
"""


def test_replays_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {
        "events": 0,
        "peak_live_bytes": 0,
        "peak_reserved_bytes": 0,
        "page_operations": 0,
        "ns_per_event": 0.04,
        "failed_at": 0,
    }
    records = [
        table.record("a.csv", "torch", "x:1", figures()),
        table.record("b", "native", "", figures(**nothing)),
        table.failure("long.csv:1", "torch", "x:1", 4096, "no room"),
    ]
    assert table.text(records) == REPLAYS
    monkeypatch.setattr(Style, "_marked", lambda _, code, text: f"{code}:{text}")
    marked = table.text(records, Style(is_colored=True)).splitlines()
    # The head is bold, and replays that failed are red.
    assert [line.partition(":")[0] for line in marked] == ["1", REPLAYS.splitlines()[1], "31", "31"]
    assert records[0] == {
        "trace": "a.csv", "policy": "torch", "config": "x:1", "granularity": 2 * MIB,
        "events": 1000, "peak_live_bytes": 3 * MIB, "peak_reserved_bytes": 4 * MIB,
        "ratio": 1.3333, "page_operations": 12, "ns_per_event": 100.0, "failed_at": None,
        "error": None,
    }  # fmt: skip
    assert (records[1]["ratio"], records[1]["ns_per_event"]) == (None, 0.0)


MINIMA = """\
trace  policy            events  peak live MiB  bound MiB  minimum MiB  minimum/bound  replays
t      native                 5           3.00       4.00         4.00         1.0000        7
t      torch                  5           3.00       4.00         6.00         1.5000        7
t      torch+expandable       5           3.00       4.00            -              -        7
u      torch                  5           3.00       4.00            -              -        7
t, torch: not monotonic: it completes on 6291456 bytes, and fails again on 8388608 bytes
t, torch+expandable: does not complete on 16777216 bytes: event 0 fails
u, torch: does not complete on 16777216 bytes
"""


class Trace:
    """Stands in for a trace, whose recording has these minima and figures by settings."""

    def __init__(self, name: str, found: dict[str, Any], failed: Any = None) -> None:
        self.name = name
        self.settings = None
        self.found = found
        self.failed = failed

    def with_failed_request(self) -> "Trace":
        return self

    def failed_request(self) -> Any:
        return self.failed

    def survey(self) -> Any:
        return SimpleNamespace(events=5, peak_live_bytes=3 * MIB, requests_by_mib=[])

    def minimum(self, settings: str, capacity: int, page: int) -> Any:
        assert (capacity, page) == (16 * MIB, 2 * MIB)
        least, again, failed_at, *_ = self.found[settings]
        return SimpleNamespace(
            bound_bytes=4 * MIB,
            bytes=least,
            fails_again_bytes=again,
            replays=7,
            figures=figures(events=5, failed_at=failed_at),
        )

    def replay(self, settings: str, capacity: int, page: int) -> Any:
        _, _, failed_at, reserved = self.found[settings]
        self.asked = capacity, page
        return figures(failed_at=failed_at, peak_reserved_bytes=reserved, page_operations=9)


def test_minima_whole_text() -> None:
    plain, expandable = (f"policy:torch,expandable_segments:{it}" for it in (False, True))
    known: dict[str, Any] = {
        "policy:native": (4 * MIB, None, None),
        plain: (6 * MIB, 8 * MIB, None),
        expandable: (None, None, 0),
    }
    traces = [
        (Trace("t", known), "native"),
        (Trace("t", known), "torch"),
        (Trace("t", known), "torch+expandable"),
        (Trace("u", {plain: (None, None, None)}), "torch"),
    ]
    records = [
        minimum.search(cast("Any", trace), policy, "", capacity_bytes=16 * MIB, page_bytes=2 * MIB)
        for trace, policy in traces
    ]
    assert minimum.text(records) == MINIMA
    assert [minimum.is_complete(records[:count]) for count in (1, 2, 3)] == [True, True, False]
    assert records[1] == {
        "trace": "t", "policy": "torch", "config": "", "granularity": 2 * MIB,
        "capacity": 16 * MIB, "events": 5, "peak_live_bytes": 3 * MIB, "bound_bytes": 4 * MIB,
        "minimum_bytes": 6 * MIB, "ratio": 1.5, "fails_below_bytes": 4 * MIB,
        "fails_again_bytes": 8 * MIB, "replays": 7, "failed_at": None,
    }  # fmt: skip
    assert (records[2]["ratio"], records[2]["fails_below_bytes"]) == (None, None)


AMPLE = """\
t: 5 events, 3.00 MiB live at most
settings  fits  peak reserved MiB  minimum MiB  page ops
b          yes               4.00         4.00         9
a          yes               4.00         6.00         9
c          yes               8.00         4.00         9

3 of 3 settings fit.
The least memory: ACCELRT_ALLOC_CONF=b
With PyTorch's allocator: PYTORCH_ALLOC_CONF=x:a (4.00 MiB reserved)
"""
SMALL = """\
t: 5 events, 3.00 MiB live at most
The recording ended out of memory: 77 bytes were requested, and the allocator could have 5 bytes.
settings         fits  peak reserved MiB  minimum MiB  page ops
b         no: event 9               4.00         4.00         9
c         no: event 3               2.00            -         9
a         no: event 3               4.00            -         9
d         no: event 0               1.00            -         9

0 of 4 settings fit on 5 bytes.
No allocator can: 3145728 bytes are live at once.
b comes furthest, and needs 4194304 bytes.
"""


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Try settings of one letter, of which PyTorch has `a`, and `n` for its defaults."""
    tried = list[str]()
    of_pytorch = {"a": "x:a", "n": ""}

    def every(_survey: object, _policies: object, _recorded: object) -> list[Any]:
        return [
            SimpleNamespace(policy="torch", settings=it, of_pytorch=of_pytorch.get(it))
            for it in tried
        ]

    monkeypatch.setattr(recommend, "candidates", every)
    return tried


def recommended(trace: Trace, capacity: int | None) -> recommend.Recommendation:
    return recommend.recommend(cast("Any", trace), ["torch"], capacity, 16 * MIB, 2 * MIB)


def test_recommendation_whole_text(candidates: list[str]) -> None:
    candidates[:] = "abc"
    known = {
        "a": (6 * MIB, None, None, 4 * MIB),
        "b": (4 * MIB, None, None, 4 * MIB),
        "c": (4 * MIB, None, None, 8 * MIB),
    }
    trace = Trace("t", known)
    found = recommended(trace, None)
    assert found.text == AMPLE
    assert found.fits
    assert trace.asked == (16 * MIB, 2 * MIB)
    assert [it["rank"] for it in found.records] == [1, 2, 3]
    assert found.records[0] == {
        "trace": "t", "rank": 1, "policy": "torch", "accelrt_alloc_conf": "b",
        "pytorch_alloc_conf": None, "granularity": 2 * MIB, "capacity": None, "fits": True,
        "failed_at": None, "peak_live_bytes": 3 * MIB, "bound_bytes": 4 * MIB,
        "peak_reserved_bytes": 4 * MIB, "minimum_bytes": 4 * MIB, "page_operations": 9,
    }  # fmt: skip


def test_recommendation_none_fits(candidates: list[str]) -> None:
    candidates[:] = "dabc"
    known = {
        "a": (6 * MIB, None, 3, 4 * MIB),
        "b": (4 * MIB, None, 9, 4 * MIB),
        "c": (None, None, 3, 2 * MIB),
        "d": (None, None, 0, MIB),
    }
    found = recommended(Trace("t", known, (77, 5)), None)
    assert found.text == SMALL
    assert not found.fits
    # As many bytes as are live may be enough.
    text = recommended(Trace("t", known), 3 * MIB).text
    assert "0 of 4 settings fit on 3145728 bytes.\nb comes furthest" in text


@pytest.mark.parametrize(
    ("settings", "last"),
    [
        ("n", "With PyTorch's allocator: its defaults (2.00 MiB reserved)"),
        ("nb", "With PyTorch's allocator: its defaults (2.00 MiB reserved)"),
        ("bf", "With PyTorch's allocator: none of its settings fit."),
        ("b", "The least memory: ACCELRT_ALLOC_CONF=b"),
    ],
)
def test_recommendation_for_pytorch(candidates: list[str], settings: str, last: str) -> None:
    candidates[:] = settings.replace("f", "a")
    known = {
        "a": (None, None, 4, 2 * MIB),
        "b": (2 * MIB, None, None, MIB),
        "n": (2 * MIB, None, None, 2 * MIB),
    }
    trace = Trace("t", known)
    found = recommended(trace, 8 * MIB)
    assert found.text.splitlines()[-1] == last
    assert trace.asked == (8 * MIB, 2 * MIB)
    assert {it["minimum_bytes"] for it in found.records} == {None}


def agreement(addresses: tuple[int, int], layouts: tuple[int, int], first: str | None) -> Any:
    return SimpleNamespace(addresses=addresses, layouts=layouts, first_difference=first)


def test_tally_whole_text() -> None:
    tally = Tally()
    tally.add("a", agreement((3, 4), (5, 7), None))
    assert tally.agrees
    tally.add("b", agreement((10, 20), (0, 0), "event 2"))
    assert not tally.agrees
    tally.add_failure("c", "cannot check")
    assert tally.text() == (
        "a: addresses 3/4 layouts 5/7\n"
        "b: addresses 10/20 layouts 0/0\n"
        "  first difference: event 2\n"
        "c: cannot check\n"
        "addresses 13/24 layouts 5/7\n"
    )
    failed = Tally()
    failed.add_failure("c", "cannot check")
    assert not failed.agrees


SUMMARY = """\
|===========================================================================|
|                                  title                                    |
|---------------------------------------------------------------------------|
|              OOMs: 1               |       allocation retries: 2          |
|===========================================================================|
|       Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed   |
|---------------------------------------------------------------------------|
| Allocated memory     |      0 B   |  97656 KiB | 195312 KiB | 292968 KiB  |
|---------------------------------------------------------------------------|
| Active memory        |   2929 KiB | 100585 KiB | 198242 KiB | 295898 KiB  |
|---------------------------------------------------------------------------|
| Requested memory     |   5859 KiB | 103515 KiB | 201171 KiB | 298828 KiB  |
|---------------------------------------------------------------------------|
| Reserved memory      |   8789 KiB | 106445 KiB | 204101 KiB | 301757 KiB  |
|---------------------------------------------------------------------------|
| Non-releasable memory|  11718 KiB | 109375 KiB | 207031 KiB | 304687 KiB  |
|---------------------------------------------------------------------------|
| Allocations          |    15000 K |   115000 K |   215000 K |   315000 K  |
|---------------------------------------------------------------------------|
| Active allocs        |    18000 K |   118000 K |   218000 K |   318000 K  |
|---------------------------------------------------------------------------|
| Reserved segments    |    21000 K |   121000 K |   221000 K |   321000 K  |
|---------------------------------------------------------------------------|
| Non-releasable allocs|    24000 K |   124000 K |   224000 K |   324000 K  |
|---------------------------------------------------------------------------|
| Oversize allocations |    27000 K |   127000 K |   227000 K |   327000 K  |
|---------------------------------------------------------------------------|
| Oversize segments    |    28000 K |   128000 K |   228000 K |   328000 K  |
|---------------------------------------------------------------------------|
| 'kv'                 |  28320 KiB | 125976 KiB | 223632 KiB | 321289 KiB  |
| 'xxxxxxxxxxxxxxxxxx…'|  29296 KiB | 126953 KiB | 224609 KiB | 322265 KiB  |
|===========================================================================|
"""
POOLS = """\
| Allocated memory     |      0 B   |  97656 KiB | 195312 KiB | 292968 KiB  |
|   from large pool    |    976 KiB |  98632 KiB | 196289 KiB | 293945 KiB  |
|   from small pool    |   1953 KiB |  99609 KiB | 197265 KiB | 294921 KiB  |
"""


def test_memory_summary_whole_text() -> None:
    keys = [key for _, key, _ in _memory_summary._ROWS]
    pools = ("all", "large_pool", "small_pool")
    names = [f"{key}.{pool}" for key in keys for pool in pools]
    names += ["oversize_allocations", "oversize_segments", "tags.kv", f"tags.{'x' * 30}"]
    values = ("current", "peak", "allocated", "freed")
    stats = {
        f"{name}.{value}": 1_000_000 * row + 100_000_000 * place
        for row, name in enumerate(names)
        for place, value in enumerate(values)
    }
    stats |= {"num_ooms": 1, "num_alloc_retries": 2}
    text = _memory_summary.summary("title", stats, abbreviated=False)
    short = _memory_summary.summary("title", stats, abbreviated=True)
    assert short == SUMMARY
    assert text.splitlines()[7:10] == POOLS.splitlines()
    assert len(text.splitlines()) == len(short.splitlines()) + 2 * len(keys)


REPORT = """\
   Bytes  Blocks  Device  Stream  Tag       Call site
--------  ------  ------  ------  --------  --------------
1024 KiB      12  cpu:0   0       kv cache  a.py:3 in make
     0 B       1  cpu:10                    (not recorded)
  1000 B       7                            2 more
--------  ------  ------  ------  --------  --------------
1024 KiB in use
"""


def test_memory_report_whole_text() -> None:
    uses = [
        MemoryUse("cpu:0", "a.py:3 in make", "kv cache", 0, 1 << 20, 12),
        MemoryUse("cpu:10", None, "", None, 0, 1),
        MemoryUse("cpu:0", "b.py:4 in f", "x", 3, 900, 3),
        MemoryUse("cpu:0", None, "y", 3, 100, 4),
    ]
    report = MemoryReport(uses)
    assert report.table(2) == REPORT
    assert report.table(-1) == report.table(4) == report.table() == str(report)
    assert "more" not in str(report)
    assert report.table(0).splitlines()[2].split() == ["1024", "KiB", "20", "4", "more"]
    many = MemoryReport(uses * 6)
    assert str(many).splitlines()[22].endswith("  4 more")
    assert repr(many) == f"<accelrt.MemoryReport of {6 * report.total_bytes} bytes in 24 rows>"


CALLS = """\
-------  ----  -----  --------  -----  -------  ------
library  name  calls  total ms  share  mean ms  max ms
-------  ----  -----  --------  -----  -------  ------
mkl      a         1     6.000  60.0%    6.000   6.000
onednn   b         2     3.000  30.0%    1.500   2.000
mkl      c         3     1.000  10.0%    0.333   1.000
-------  ----  -----  --------  -----  -------  ------
6 calls, 10.000 ms
"""


def call(library: str, name: str, ms: float) -> Call:
    return cast("Call", SimpleNamespace(library=library, name=name, ms=ms))


def test_verbose_table_whole_text() -> None:
    calls = [
        *(call("mkl", "c", 0), call("onednn", "b", 1), call("mkl", "c", 1)),
        *(call("mkl", "a", 6), call("onednn", "b", 2), call("mkl", "c", 0)),
    ]
    assert _verbose_table.text(calls, "total") == CALLS
    orders = {"calls": "cba", "mean": "abc", "max": "abc", "name": "abc", "total": "abc"}
    for order, names in orders.items():
        lines = _verbose_table.text(calls, order).splitlines()[3:6]
        assert "".join(line.split()[1] for line in lines) == names, order
    nothing = _verbose_table.text([call("mkl", "a", 0)], "total")
    assert nothing.splitlines()[3:] == [
        "mkl      a         1     0.000   0.0%    0.000   0.000",
        "-------  ----  -----  --------  -----  -------  ------",
        "1 call, 0.000 ms",
    ]
    assert _verbose_table.text([], "total").splitlines()[-1] == "0 calls, 0.000 ms"


CELLS = st.text("ab1 ", max_size=6).map(str.strip)
ROWS = st.integers(1, 4).flatmap(lambda count: st.lists(st.tuples(*[CELLS] * count), min_size=1))


@given(ROWS, st.integers(0, 4))
def test_words_left_numbers_right(rows: list[tuple[str, ...]], names: int) -> None:
    lines = table.aligned(rows, names=names).splitlines()
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert line == line.rstrip()
        start = 0
        for place, cell in enumerate(row):
            width = max(len(it[place]) for it in rows)
            shown = line[start : start + width].ljust(width)
            assert shown == (cell.ljust(width) if place < names else cell.rjust(width))
            start += width + 2
        assert line[start:] == ""


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            sanitizer.Use("cpu:0 stream 3", "fill", "write", (0, 8), "a.py", 7, "main"),
            "fill writes bytes 0 to 8 on cpu:0 stream 3 at a.py:7, thread main",
        ),
        (
            sanitizer.Use(None, "copy", "read or write", (4, 8), None, 0, ""),
            "copy reads or writes bytes 4 to 8 on the host at an unknown place, thread ?",
        ),
        (
            sanitizer.Use("cpu:1 stream 0", "free", "", (0, 0), "b.py", 0, "w"),
            "free on cpu:1 stream 0 at b.py:0, thread w",
        ),
    ],
)
def test_sanitizer_use_text(use: sanitizer.Use, text: str) -> None:
    assert str(use) == text
