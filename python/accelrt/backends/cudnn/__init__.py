"""cuDNN: its presence and version.

torch's flags are absent, because accelrt has no kernels that use cuDNN.

>>> import accelrt
>>> accelrt.backends.cudnn.is_available() == (accelrt.backends.cudnn.version() is not None)
True
"""

from __future__ import annotations

from accelrt import _core

__all__ = ["is_available", "version"]


def is_available() -> bool:
    """Return True when the process has cuDNN or can load it; loads cuDNN."""
    return _core.cudnn_version() is not None


def version() -> int | None:
    """Return cuDNN's version as one number, as 90100 for 9.1.0; None without cuDNN."""
    return _core.cudnn_version()
