"""The processor's vector instructions.

>>> import accelrt
>>> isinstance(accelrt.backends.cpu.get_cpu_capability(), str)
True
"""

from accelrt import _core

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """Return the widest vector instructions by torch's names: AVX512, AVX2, SVE or DEFAULT."""
    return _core.cpu_capability()
