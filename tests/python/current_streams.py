"""What tests of `with` in asyncio make current: streams, and the default one beside them."""

import accelrt
from kinds import KIND

STREAMS = [accelrt.Stream(f"{KIND}:0", dedicated=True) for _ in range(4)]
DEFAULT = accelrt.accelerator.current_stream()


def current() -> accelrt.Stream:
    """Return what is current where this is called."""
    return accelrt.accelerator.current_stream()


def leave(context: accelrt.Stream | accelrt.device) -> None:
    """End a `with`."""
    context.__exit__(None, None, None)
