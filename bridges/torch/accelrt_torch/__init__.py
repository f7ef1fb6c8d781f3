"""PyTorch on accelrt: `torch.device("accelrt:1")`, asynchronously, on any machine.

`import torch` finds this package by its entry point and calls `register`; see docs/torch.md.
"""

_is_registered = False


def register() -> None:
    """Make `accelrt` a device of torch. A second call does nothing."""
    global _is_registered  # noqa: PLW0603 - a module is registered once
    if _is_registered:
        return
    _is_registered = True
    from accelrt_torch import _registration  # noqa: PLC0415 - it needs torch

    _registration.register()


# A program that imports this package first comes here twice: torch, while it is imported, calls
# `register` by the entry point.
import torch  # noqa: E402, F401

register()
