"""cuDNN: whether it is there, and its version.

It has no flags here: no kernel of ours would heed them.

>>> import accelrt
>>> accelrt.backends.cudnn.is_available() == (accelrt.backends.cudnn.version() is not None)
True
"""

from __future__ import annotations

from accelrt import _core

__all__ = ["is_available", "version"]


def is_available() -> bool:
    """Return True when a cuDNN is in the process or can be loaded, which this does."""
    return _core.cudnn_version() is not None


def version() -> int | None:
    """Return the version of cuDNN as it tells it, as 90100 for 9.1.0; None where there is none."""
    return _core.cudnn_version()
