"""Describes exceptions without their frames, which would keep all local variables alive."""

from __future__ import annotations

import marshal
import sys
import traceback
from logging import Formatter, LogRecord

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from collections.abc import Iterator

# The types of arguments that a description keeps as values. Others are kept as text.
_PLAIN = (str, bytes, int, float, bool, type(None))
# Longer arguments, texts and tracebacks are not kept whole.
_MAX_ARGUMENT_BYTES = 4096
_MAX_TEXT_CHARACTERS = 1 << 16
_MAX_FRAMES = 32
_MAX_NOTES = 16

_Description = tuple[str, str, "bytes | None", str, list[str]]


def causes(exception: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes and contexts, each once: they may form a cycle."""
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


def describe(exception: BaseException) -> _Description:
    """Return an exception's module, type name, plain arguments, text and notes.

    The last note contains the formatted traceback, with those of its causes.
    """
    kind = type(exception)
    args = exception.args
    if isinstance(exception, OSError) and exception.filename is not None and len(args) == 2:  # noqa: PLR2004
        args = (
            *args,
            exception.filename,
            None,
            exception.filename2,
        )  # as its constructor takes them
    arguments = None
    if all(type(argument) in _PLAIN for argument in args):
        marshalled = marshal.dumps(args)
        arguments = marshalled if len(marshalled) <= _MAX_ARGUMENT_BYTES else None
    notes = [str(note) for note in getattr(exception, "__notes__", ())][-_MAX_NOTES:]
    if exception.__traceback__ is not None:
        lines = "".join(_traceback_lines(exception)).rstrip()
        notes.append(f"Traceback of the task (most recent call last):\n{lines}")
    texts = [_printable(text) for text in (str(exception), *notes)]
    return kind.__module__, kind.__qualname__, arguments, texts[0], texts[1:]


def _printable(text: str) -> str:
    """Return a text that UTF-8 can encode, of a limited length, which says how much it lacks."""
    rest = len(text) - _MAX_TEXT_CHARACTERS
    end = f"… ({rest} more characters)" if rest > 0 else ""
    return text[:_MAX_TEXT_CHARACTERS].encode("utf-8", "backslashreplace").decode() + end


def _traceback_lines(exception: BaseException) -> list[str]:
    if exception.__cause__ is None and exception.__context__ is None:
        return traceback.format_tb(exception.__traceback__, -_MAX_FRAMES)
    return traceback.format_exception(exception, limit=-_MAX_FRAMES)


def rebuild(
    module: str, qualname: str, arguments: bytes | None, text: str, notes: list[str]
) -> BaseException:
    """Return an exception like the described one, without frames.

    Its type is a RuntimeError where the original type is not found or cannot be created.
    """
    args = (text,) if arguments is None else marshal.loads(arguments)  # noqa: S302  from `describe`
    try:
        rebuilt = _create(module, qualname, args, text)
    except Exception:  # noqa: BLE001  a program's type may raise anything
        rebuilt = None
    if rebuilt is None:
        rebuilt = RuntimeError(f"{qualname}: {text}")
    for note in notes:
        rebuilt.add_note(note)
    return rebuilt


def _create(
    module: str, qualname: str, args: tuple[object, ...], text: str
) -> BaseException | None:
    kind: object = sys.modules.get(module)
    for name in qualname.split("."):
        kind = getattr(kind, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return None
    # Without the `__init__` of a program's type, which may take other arguments.
    created = kind(*args) if module == "builtins" else kind.__new__(kind, *args)
    if not isinstance(created, OSError):  # whose constructor sets them
        created.args = args
    return created if str(created) == text else None


def fade_logged(record: LogRecord) -> bool:
    """Replace the exception of a log record by its text, as a filter of handlers that keep it."""
    if record.exc_info:
        record.exc_text = Formatter().formatException(record.exc_info)
        record.exc_info = None
    return True
