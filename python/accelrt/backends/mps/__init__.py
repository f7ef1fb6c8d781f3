"""Metal Performance Shaders, which this runtime does not use.

>>> import accelrt
>>> accelrt.backends.mps.is_available()
False
"""

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """Return False: there is no Metal without macOS."""
    return False


def is_built() -> bool:
    """Return False: no such kind is implemented."""
    return False
