"""CUDA: this build has no CUDA kind.

>>> import accelrt
>>> accelrt.backends.cuda.is_built()
False
"""

__all__ = ["is_built"]


def is_built() -> bool:
    """Return False: no CUDA kind is implemented, on any machine."""
    return False
