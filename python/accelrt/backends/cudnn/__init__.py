"""cuDNN: its presence and version.

It has no flags here: no kernel of accelrt would read them.

>>> import accelrt
>>> accelrt.backends.cudnn.is_available() == (accelrt.backends.cudnn.version() is not None)
True
"""

from __future__ import annotations

from accelrt import _core

__all__ = ["is_available", "version"]


def is_available() -> bool:
    """Return True when cuDNN is in the process or can be loaded; loads it."""
    return _core.cudnn_version() is not None


def version() -> int | None:
    """Return cuDNN's own version number, as 90100 for 9.1.0, or None without cuDNN."""
    return _core.cudnn_version()
