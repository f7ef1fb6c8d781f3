"""The example kind in C as a library, for tests of kinds from outside."""

import functools
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2]


@functools.cache
def library(*defines: str) -> str:
    """Compile `examples/device/c/npu.c`, with these definitions, and return the library."""
    folder = tempfile.mkdtemp(prefix="accelrt-npu-")
    made = Path(folder) / "libnpu.so"
    options = [*(f"-D{define}" for define in defines), "-DNPU_DEVICES=3"]
    subprocess.run(  # noqa: S603  the house's compiler
        [  # noqa: S607  wherever it is
            "cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread",
            *options, f"-I{FOLDER / 'include'}", str(FOLDER / "examples/device/c/npu.c"),
            "-o", str(made),
        ],
        check=True,
    )  # fmt: skip
    return str(made)
