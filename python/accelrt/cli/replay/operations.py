"""Tables of events, `t,op,id,size,stream`: `op` a allocates `size` bytes, f frees `id`."""

from pathlib import Path

from accelrt.cli.replay.errors import TraceError

_HEADER = "t,op,id,size,stream"

Operation = tuple[bool, int, int, int]
"""Whether it allocates, the id, the size in bytes and the stream."""


def read(path: Path) -> list[Operation]:
    """Return the events of a table in their order; a free names what is live."""
    try:
        header, *lines = path.read_text("ascii").splitlines() or [""]
    except UnicodeDecodeError as error:
        message = f"it is no table: byte {error.start} is no ASCII"
        raise TraceError(message) from error
    if header != _HEADER:
        message = f"line 1 is {header[:80]!r}, not {_HEADER!r}"
        raise TraceError(message)
    events: list[Operation] = []
    live: set[int] = set()
    for number, line in enumerate(lines, 2):
        event = _event(number, line)
        is_allocation, identity = event[:2]
        if is_allocation == (identity in live):
            what = "allocates" if is_allocation else "frees"
            state = "live already" if is_allocation else "not live"
            message = f"line {number} {what} id {identity}, which is {state}"
            raise TraceError(message)
        live ^= {identity}
        events.append(event)
    return events


def _event(number: int, line: str) -> Operation:
    fields = line.split(",")
    is_complete = len(fields) == len(_HEADER.split(","))
    if not is_complete or fields[1] not in {"a", "f"}:
        message = f"line {number} is {line[:80]!r}, not five values as {_HEADER}, with op a or f"
        raise TraceError(message)
    for value in (fields[0], *fields[2:]):
        if not (value.isdecimal() and int(value) < 1 << 63):
            message = f"line {number} has {value!r} for a whole number of at least 0"
            raise TraceError(message)
    _, op, identity, size, stream = fields
    return op == "a", int(identity), int(size), int(stream)
