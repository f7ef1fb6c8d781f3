"""What is brought for a call of dask before the call reads it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from accelrt._failures import causes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dask.typing import Key

    from accelrt.dask.values import StoredValue


class Failure:
    """The error of a value that could not be brought: the call that reads it raises the error."""

    def __init__(self, error: Exception) -> None:
        """Keep an error without its frames."""
        self.error = error
        drop_frames(error)


class Found(NamedTuple):
    """A value that was read, and what its key named then."""

    stored: StoredValue
    value: Any


class Call(NamedTuple):
    """What was brought for the running coroutine, and whether it sends what it reads."""

    brought: Mapping[Key, Found]
    is_sent: bool


CALL: ContextVar[Call | None] = ContextVar("call", default=None)


def drop_frames(error: Exception) -> None:
    """Drop the frames of an error and its causes, which have values."""
    for it in causes(error):
        it.__traceback__ = None


def bring(
    known: Iterable[tuple[Key, StoredValue]],
    find: Callable[[Key], Found],
    brought: dict[Key, Found],
) -> None:
    """Find values, until one cannot be brought."""
    for key, stored in known:
        try:
            brought[key] = find(key)
        except KeyError:  # deleted meanwhile
            continue
        except Exception as error:  # noqa: BLE001  the call that reads the value raises it
            brought[key] = Found(stored, Failure(error))
            return
