"""OpenMP: reports whether an OpenMP runtime is available.

>>> import accelrt
>>> accelrt.backends.openmp.is_available() in {True, False}
True
"""

from accelrt import _core

__all__ = ["is_available"]


def is_available() -> bool:
    """Return True when the process has an OpenMP runtime or can load one; loads the runtime."""
    return _core.openmp_library() is not None
