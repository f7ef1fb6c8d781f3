"""OpenMP: the presence of a runtime.

>>> import accelrt
>>> accelrt.backends.openmp.is_available() in {True, False}
True
"""

from accelrt import _core

__all__ = ["is_available"]


def is_available() -> bool:
    """Return True when an OpenMP runtime is in the process or can be loaded; loads it."""
    return _core.openmp_library() is not None
