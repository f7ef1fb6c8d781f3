"""Prints an allocator's statistics as a table, in PyTorch's layout."""

from __future__ import annotations

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_WIDTH = 75
_LABEL = 21
_VALUES = ("current", "peak", "allocated", "freed")
_POOLS = (("large_pool", "from large pool"), ("small_pool", "from small pool"))


def size(count: int) -> str:
    """Return bytes as text, in the largest unit in which the number is at least 768.

    >>> size(0), size(768 * 1024 - 1), size(768 * 1024), size(5 << 40)
    ('0 B  ', '786431 B  ', '768 KiB', '5120 GiB')
    """
    return _in_units(count, ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"), 1024, 768 * 1024)


def number(count: int) -> str:
    """Return a count as text, in millions or thousands if the number is at least 750.

    >>> number(749_999), number(750_000)
    ('749999  ', '750 K')
    """
    return _in_units(count, (" ", "K", "M"), 1000, 750 * 1000)


def _in_units(count: int, units: tuple[str, ...], step: int, limit: int) -> str:
    unit, *larger = units
    while larger and abs(count) >= limit:
        unit, *larger = larger
        count //= step
    return f"{count} {unit}"


_ROWS: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("Allocated memory", "allocated_bytes", size),
    ("Active memory", "active_bytes", size),
    ("Requested memory", "requested_bytes", size),
    ("Reserved memory", "reserved_bytes", size),
    ("Non-releasable memory", "inactive_split_bytes", size),
    ("Allocations", "allocation", number),
    ("Active allocs", "active", number),
    ("Reserved segments", "segment", number),
    ("Non-releasable allocs", "inactive_split", number),
)
_OVERSIZE = (
    ("Oversize allocations", "oversize_allocations"),
    ("Oversize segments", "oversize_segments"),
)


def summary(title: str, stats: Mapping[str, int], *, abbreviated: bool) -> str:
    """Return the table of one device's statistics."""
    ooms = f"OOMs: {stats['num_ooms']}"
    retries = f"allocation retries: {stats['num_alloc_retries']}"
    head = ("Metric", "Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")
    lines = [
        "=" * _WIDTH,
        title.center(_WIDTH - 2),
        "-" * _WIDTH,
        f"{ooms:^36}|{retries:^36}",
        "=" * _WIDTH,
        "|".join((f"{head[0]:^{_LABEL}} ", *(f" {name:^10} " for name in head[1:]))).rstrip(),
    ]
    for rows in _groups(stats, abbreviated=abbreviated):
        lines += ["-" * _WIDTH, *rows]
    lines.append("=" * _WIDTH)
    return "".join(f"|{line.ljust(_WIDTH)}|\n" for line in lines)


def _groups(stats: Mapping[str, int], *, abbreviated: bool) -> Iterator[list[str]]:
    for name, key, text in _ROWS:
        pools = () if abbreviated else _POOLS
        parts = ((name, f"{key}.all"), *((f"  {label}", f"{key}.{pool}") for pool, label in pools))
        yield [_row(label, part, stats, text) for label, part in parts]
    for name, key in _OVERSIZE:
        yield [_row(name, key, stats, number)]
    current = ".current"
    of_tags = (key for key in stats if key.startswith("tags.") and key.endswith(current))
    if tags := [key.removesuffix(current) for key in of_tags]:
        yield [_row(_fitting(key.removeprefix("tags.")), key, stats, size) for key in tags]


def shown(tag: str, most: int) -> str:
    r"""Return a tag as text of one line and at most so many characters.

    >>> shown("kv cache", 10), shown("of two\nlines", 40), shown("a long name", 6)
    ('kv cache', 'of two\\nlines', 'a lon…')
    """
    start = tag[: most + 1]  # the rest would be cut off
    text = "".join(it if it.isprintable() else ascii(it)[1:-1] for it in start)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _fitting(tag: str) -> str:
    return f"'{shown(tag, _LABEL - 2)}'"


def _row(label: str, key: str, stats: Mapping[str, int], text: Callable[[int], str]) -> str:
    values = (text(stats[f"{key}.{value}"]) for value in _VALUES)
    return "|".join((f" {label:<{_LABEL}}", *(f" {value:>10} " for value in values))).rstrip()
