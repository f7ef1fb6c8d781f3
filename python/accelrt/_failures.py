"""Replaces the tracebacks of failures that no synchronise has raised by their text."""

import traceback


def fade(exception: BaseException) -> None:
    """Replace the tracebacks of an exception and its causes by their text.

    A traceback keeps its frames alive, with all their variables.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [exception]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        if current.__traceback__ is not None:
            lines = "".join(traceback.format_tb(current.__traceback__)).rstrip()
            current.add_note(f"Traceback of the task (most recent call last):\n{lines}")
            current.__traceback__ = None
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
