"""Creates buffers without a version inside a `with`."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

from accelrt import _core
from accelrt._entries import Entries

_P = ParamSpec("_P")
_R = TypeVar("_R")


class InferenceMode:
    """The context manager and decorator that `inference_mode` returns."""

    def __init__(self, mode: bool) -> None:  # noqa: FBT001  torch's
        """Store the mode for the `with`."""
        self.mode = mode
        self._outside: Entries[bool] = Entries()

    def __enter__(self) -> None:
        """Set the mode in this thread."""
        self._outside.push(_core.exchange_inference_mode(self.mode))

    def __exit__(self, *_: object) -> None:
        """Restore the previous mode."""
        outside = self._outside.pop("inference_mode was left that had not been entered")
        _core.exchange_inference_mode(outside)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Wrap a function to be called in this mode."""

        @functools.wraps(function)
        def inside(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with InferenceMode(self.mode):
                return function(*args, **kwargs)

        return inside


@overload
def inference_mode(mode: bool = True) -> InferenceMode: ...  # noqa: FBT001, FBT002  torch's
@overload
def inference_mode(mode: Callable[_P, _R]) -> Callable[_P, _R]: ...
def inference_mode(mode: bool | Callable[_P, _R] = True) -> object:  # noqa: FBT001, FBT002
    """Create buffers without a version, in this thread, inside a `with`; also a decorator.

    Outside the `with`, `copy_`, `fill_` and `copy_to` into a buffer without a version raise
    RuntimeError. Buffers created before the `with` keep their version. Slices, `detach()` and
    `data` of a buffer have a version if the buffer has. With `mode=False` new buffers have a
    version.

    >>> import accelrt
    >>> with accelrt.inference_mode():
    ...     buffer = accelrt.zeros(8).fill_(1)
    >>> buffer.is_inference(), accelrt.is_inference_mode_enabled()
    (True, False)
    >>> buffer.fill_(2)
    Traceback (most recent call last):
        ...
    RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed...
    """
    if callable(mode):
        return InferenceMode(mode=True)(mode)
    return InferenceMode(_core.flag("mode", mode))
