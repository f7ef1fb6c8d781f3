"""The open entries of a context manager that may be entered repeatedly, by several threads."""

from contextvars import ContextVar
from typing import Any, Generic, TypeVar
from weakref import ref

_Entry = TypeVar("_Entry")


class _Open(Generic[_Entry]):
    """An entry that has not ended. Its `Entries` keeps it alive."""

    __slots__ = ("__weakref__", "entry")

    def __init__(self, entry: _Entry) -> None:
        self.entry = entry


# The entries of all objects that were made in this context, the last one last. An asyncio task
# inherits those of the context that created it, and does not keep them alive.
_entered: ContextVar[tuple[ref[_Open[Any]], ...]] = ContextVar("_entered", default=())


class Entries(Generic[_Entry]):
    """The entries of one object, from each `__enter__` to an `__exit__`.

    An exit ends the last entry of its context (`contextvars`), so threads and asyncio tasks whose
    entries overlap do not end each other's.
    """

    def __init__(self) -> None:
        """Begin without entries."""
        self._entries: dict[_Open[_Entry], None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, entry: _Entry) -> None:
        """Add an entry of this context."""
        opened, entered = _Open(entry), _entered.get()
        self._entries[opened] = None
        if entered and entered[-1]() is None:  # some have ended in another context
            entered = tuple(it for it in entered if it() is not None)
        _entered.set((*entered, ref(opened)))

    def pop(self, message: str) -> _Entry:
        """Remove the last entry of this context, or the last one of all if it has none.

        `RuntimeError` with the message without an entry.
        """
        entered = _entered.get()
        for place in range(len(entered) - 1, -1, -1):
            if (opened := entered[place]()) in self._entries:
                _entered.set(entered[:place] + entered[place + 1 :])
                break
        else:
            if not self._entries:
                raise RuntimeError(message)
            opened = next(reversed(self._entries))
        del self._entries[opened]
        return opened.entry
