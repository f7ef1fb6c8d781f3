"""A lock that knows whether the running thread has it."""

import threading


class OwnedLock:
    """A lock for `with`, which its own thread can ask for."""

    def __init__(self) -> None:
        """Make it free."""
        self._lock, self._owner = threading.Lock(), 0

    def __enter__(self) -> None:
        """Wait for it."""
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_raised: object) -> None:
        """Let others have it."""
        self._owner = 0
        self._lock.release()

    def is_mine(self) -> bool:
        """Return whether the running thread has it."""
        return self._owner == threading.get_ident()
