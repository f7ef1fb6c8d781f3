"""Names the program that measures PyTorch's own allocator, where a release was brought before.

Nothing is downloaded: `make oracle` brings releases. Of several the newest counts; its program is
built again where it is not this checkout's. Usage: python tests/oracle/installed.py CACHE
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import built
import wheels


def timing(root: Path) -> Path | None:
    """Return the program; None without a release, or where it cannot be built."""
    for version in reversed(wheels.known(root)):
        try:
            return built.build_driver(root / version).with_name("timing")
        except (OSError, ValueError, subprocess.CalledProcessError) as reason:
            sys.stderr.write(f"oracle: torch {version} cannot be measured: {reason}\n")
    return None


if __name__ == "__main__":
    found = timing(Path(sys.argv[1]))
    if found:
        sys.stdout.write(f"{found}\n")
