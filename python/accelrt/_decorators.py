"""Functions that run inside of a `with` at each call; coroutines and generators at their steps."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from contextlib import AbstractContextManager

    _Context = Callable[[], AbstractContextManager[object]]
    _Generator = Generator[Any, Any, Any]

Function = TypeVar("Function", bound="Callable[..., object]")


def inside(context: _Context, function: Function, name: str) -> Function:
    """Wrap a function; `context` makes what is entered, and `name` says what it is in errors.

    A coroutine is inside from its begin to its end, a generator at each of its steps: the caller
    of a generator is outside between them.
    """
    if inspect.isasyncgenfunction(function):
        message = f"{name} decorates no asynchronous generator: use `with` inside of it"
        raise TypeError(message)
    if inspect.iscoroutinefunction(function):
        wrapper = _coroutines_of(context, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generators_of(context, function)
    else:
        wrapper = _calls_of(context, function)
    return cast("Function", functools.update_wrapper(wrapper, function))


def _calls_of(context: _Context, function: Callable[..., object]) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> object:
        with context():
            return function(*args, **kwargs)

    return call


def _coroutines_of(
    context: _Context, function: Callable[..., Awaitable[object]]
) -> Callable[..., object]:
    async def call(*args: object, **kwargs: object) -> object:
        with context():
            return await function(*args, **kwargs)

    return call


def _generators_of(context: _Context, function: Callable[..., _Generator]) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> _Generator:
        return _steps(context, function(*args, **kwargs))

    return call


def _steps(context: _Context, generator: _Generator) -> _Generator:
    try:
        with context():
            value = next(generator)
        while True:
            try:
                sent = yield value
            except GeneratorExit:
                with context():
                    generator.close()
                raise
            except BaseException as error:  # noqa: BLE001  the generator's, as with `yield from`
                with context():
                    value = generator.throw(error)
            else:
                with context():
                    value = generator.send(sent)
    except StopIteration as end:
        return end.value
