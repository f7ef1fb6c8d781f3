"""Names what memory is for."""

from accelrt import _core
from accelrt._decorators import Function, inside


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
        if not name.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in name):
            message = f"a memory tag must be Unicode, and {name!r} has half of a surrogate pair"
            raise ValueError(message)
        self._name = name

    def __enter__(self) -> None:
        _core.enter_memory_tag(self._name)

    def __exit__(self, *_raised: object) -> None:
        _core.exit_memory_tag(self._name)

    def __call__(self, function: Function) -> Function:
        """Wrap a function to run inside the tag; a coroutine or generator at each of its steps."""
        return inside(lambda: self, function, "a memory tag")

    def __repr__(self) -> str:
        return f"accelrt.memory_tag({self._name!r})"
