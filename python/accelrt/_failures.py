"""Describes exceptions without their frames, which would keep all local variables alive."""

from __future__ import annotations

import marshal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from logging import Formatter, LogRecord

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

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


def text_of(value: object, name: str = "exception") -> str:
    """Return the text of an object, or module traceback's substitute where `str` fails."""
    return _converted(value, name, str)


def _converted(value: object, name: str, convert: Callable[[object], str]) -> str:
    try:
        return "".join((convert(value),))  # a `str`, not an instance of a subclass
    except BaseException:  # noqa: BLE001  a program's type may raise anything
        return f"<{name} {convert.__name__}() failed>"


def add_note(exception: BaseException, note: str) -> None:
    """Add a note, unless the program has replaced the notes by an object that takes none."""
    with suppress(Exception):
        exception.add_note(note)


def describe(exception: BaseException) -> _Description:
    """Return an exception's module, type name, plain arguments, text and notes.

    The last note contains the formatted traceback, with those of its causes. Does not raise: where
    the program's type fails to return a text, the description contains a substitute.
    """
    kind = type(exception)
    notes = _notes(exception)
    if (trace := _traceback_of(exception)) is not None:
        lines = "".join(_traceback_lines(exception, trace)).rstrip()
        notes.append(f"Traceback of the task (most recent call last):\n{lines}")
    module = kind.__module__ if isinstance(kind.__module__, str) else "<unknown>"
    texts = [module, kind.__qualname__, text_of(exception), *notes]
    module, qualname, text, *notes = map(_printable, texts)
    return module, qualname, _arguments(exception), text, notes


def _arguments(exception: BaseException) -> bytes | None:
    """Return the marshalled arguments, or None where they are long or not all plain values."""
    try:
        args = exception.args
        if isinstance(exception, OSError) and exception.filename is not None and len(args) == 2:  # noqa: PLR2004
            # As its constructor takes them.
            args = (*args, exception.filename, None, exception.filename2)
        if not all(type(argument) in _PLAIN for argument in args):
            return None
        marshalled = marshal.dumps(args)
    except Exception:  # noqa: BLE001  a program's type may replace the attributes
        return None
    return marshalled if len(marshalled) <= _MAX_ARGUMENT_BYTES else None


def _notes(exception: BaseException) -> list[str]:
    """Return the last notes as texts, or the text of an object that is no sequence of notes."""
    try:
        notes = getattr(exception, "__notes__", None)
        if isinstance(notes, Sequence) and not isinstance(notes, str | bytes):
            return [text_of(note, "note") for note in notes[-_MAX_NOTES:]]
    except Exception:  # noqa: BLE001  a program's type may raise anything
        return ["<__notes__ failed>"]
    return [] if notes is None else [_converted(notes, "__notes__", repr)]


def _printable(text: str) -> str:
    """Return a text that UTF-8 can encode, of a limited length, which says how much it lacks."""
    rest = len(text) - _MAX_TEXT_CHARACTERS
    end = f"… ({rest} more characters)" if rest > 0 else ""
    return text[:_MAX_TEXT_CHARACTERS].encode("utf-8", "backslashreplace").decode() + end


def _traceback_of(exception: BaseException) -> TracebackType | None:
    """Return the traceback, also where the program's type has an attribute of this name."""
    trace: TracebackType | None = vars(BaseException)["__traceback__"].__get__(exception)
    return trace


def _traceback_lines(exception: BaseException, trace: TracebackType) -> list[str]:
    with suppress(Exception):  # of an attribute of a program's type
        if exception.__cause__ is not None or exception.__context__ is not None:
            return traceback.format_exception(exception, limit=-_MAX_FRAMES)
    return traceback.format_tb(trace, -_MAX_FRAMES)


def rebuild(
    module: str, qualname: str, arguments: bytes | None, text: str, notes: list[str]
) -> BaseException:
    """Return an exception like the described one, without frames.

    Its type is a RuntimeError where the original type is not found or cannot be created.
    """
    args = (text,) if arguments is None else marshal.loads(arguments)  # noqa: S302  from `describe`
    with suppress(Exception):  # a program's type may raise anything
        rebuilt = _create(module, qualname, args, text)
        if rebuilt is not None:
            return _with_notes(rebuilt, notes)
    return _with_notes(RuntimeError(f"{qualname}: {text}"), notes)


def _with_notes(exception: BaseException, notes: list[str]) -> BaseException:
    if notes:  # `add_note` fails where the type has a `__notes__` that is no list
        exception.__notes__ = notes
    return exception


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
    found = text_of(created)
    return created if text in (found, _printable(found)) else None


def fade_logged(record: LogRecord) -> bool:
    """Replace the exception of a log record by its text, as a filter of handlers that keep it."""
    if record.exc_info:
        record.exc_text = Formatter().formatException(record.exc_info)
        record.exc_info = None
    return True
