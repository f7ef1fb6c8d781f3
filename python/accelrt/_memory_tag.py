"""Names what memory is for."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar, cast

from accelrt import _core

_Function = TypeVar("_Function", bound=Callable[..., object])
_Generator = Generator[Any, Any, Any]


class memory_tag:  # noqa: N801  as torch's context managers
    """Names what the memory is for that is requested inside a `with`; also a decorator.

    The tag is this thread's, inside a running asyncio loop the asyncio task's; the innermost one
    applies. Statistics, snapshots, `accelrt.memory_report()` and out-of-memory errors have the
    bytes of each tag. A process has room for 65535 names; memory of later ones has no tag.

    >>> import accelrt
    >>> with accelrt.memory_tag("kv cache"):
    ...     buffer = accelrt.empty(1000)
    """

    def __init__(self, name: str) -> None:
        """Store the tag for the `with`."""
        if not isinstance(name, str):
            message = f"a memory tag must be a str, not {type(name).__name__}"
            raise TypeError(message)
        if not name:
            message = "a memory tag must not be empty"
            raise ValueError(message)
        self._name = name

    def __enter__(self) -> None:
        _core.enter_memory_tag(self._name)

    def __exit__(self, *_raised: object) -> None:
        _core.exit_memory_tag(self._name)

    def __call__(self, function: _Function) -> _Function:
        """Wrap a function to run inside the tag; a coroutine or generator at each of its steps."""
        if inspect.isasyncgenfunction(function):
            message = "a memory tag decorates no asynchronous generator: use `with` inside of it"
            raise TypeError(message)
        if inspect.iscoroutinefunction(function):
            wrapper = self._coroutines_of(function)
        elif inspect.isgeneratorfunction(function):
            wrapper = self._generators_of(function)
        else:
            wrapper = self._calls_of(function)
        return cast("_Function", functools.update_wrapper(wrapper, function))

    def _calls_of(self, function: Callable[..., object]) -> Callable[..., object]:
        def inside(*args: object, **kwargs: object) -> object:
            with self:
                return function(*args, **kwargs)

        return inside

    def _coroutines_of(self, function: Callable[..., Awaitable[object]]) -> Callable[..., object]:
        async def inside(*args: object, **kwargs: object) -> object:
            with self:
                return await function(*args, **kwargs)

        return inside

    def _generators_of(self, function: Callable[..., _Generator]) -> Callable[..., object]:
        def inside(*args: object, **kwargs: object) -> _Generator:
            return self._steps(function(*args, **kwargs))

        return inside

    def _steps(self, generator: _Generator) -> _Generator:
        # The caller has its own tag between the steps.
        try:
            with self:
                value = next(generator)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    with self:
                        generator.close()
                    raise
                except BaseException as error:  # noqa: BLE001  the generator's, as with `yield from`
                    with self:
                        value = generator.throw(error)
                else:
                    with self:
                        value = generator.send(sent)
        except StopIteration as end:
            return end.value

    def __repr__(self) -> str:
        return f"accelrt.memory_tag({self._name!r})"
