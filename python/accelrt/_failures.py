"""Drops the tracebacks of failures, for their text: frames live with them, with all variables."""

import traceback
from collections.abc import Iterator
from logging import Formatter, LogRecord


def causes(exception: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and all that it comes of, each once: they may be in a circle."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [exception]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def fade(exception: BaseException) -> None:
    """Replace the tracebacks of an exception that no synchronise has raised, and of its causes."""
    for current in causes(exception):
        if current.__traceback__ is not None:
            lines = "".join(traceback.format_tb(current.__traceback__)).rstrip()
            current.add_note(f"Traceback of the task (most recent call last):\n{lines}")
            current.__traceback__ = None


def fade_logged(record: LogRecord) -> bool:
    """Replace the exception of a log's record by its text, as a filter of handlers that keep it."""
    if record.exc_info:
        record.exc_text = Formatter().formatException(record.exc_info)
        record.exc_info = None
    return True
