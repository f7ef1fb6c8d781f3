"""Builds the stub, the driver and the peer."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
C = ("-O2", "-g", "-Wall", "-Wextra")


def _call(*command: str | Path, environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, env={**os.environ, **(environment or {})})


def _runtime_name(wheel: Path) -> str:
    """Return the file name of the CUDA runtime that a wheel's library asks for."""
    library = (wheel / "torch/lib/libc10_cuda.so").read_bytes()
    found = re.search(rb"libcudart\.so\.[0-9]+", library)
    if not found:
        message = f"no CUDA runtime is named in {wheel}"
        raise ValueError(message)
    return found[0].decode()


def _digest() -> str:
    """Of all that the driver is made of."""
    sources = sorted(
        path for folder in ("stub", "driver", "include") for path in (HERE / folder).iterdir()
    )
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def build_driver(wheel: Path) -> Path:
    """Build the driver for the parts of a wheel, with the stub beside its libraries."""
    out = wheel / "built"
    driver, digest = out / "driver", _digest()
    name = _runtime_name(wheel)
    # Beside the wheel's libraries, which look there before LD_LIBRARY_PATH; with their version.
    runtime, versions = wheel / "torch/lib" / name, out / "versions"
    # Where the wheel's parts came anew, the stub beside them is gone.
    if driver.exists() and runtime.exists() and (out / "digest").read_text() == digest:
        return driver
    out.mkdir(exist_ok=True)
    versions.write_text(f"{name} {{ global: cuda*; stub_*; local: *; }};\n")
    stub = sorted((HERE / "stub").glob("*.c"))
    linked = (f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}", "-lpthread")
    _call("gcc", *C, "-shared", "-fPIC", "-o", runtime, *stub, *linked)
    libraries = wheel / "torch/lib"
    for program in ("timing", "driver"):
        _call(
            *("g++", *C, "-std=c++20", f"-I{HERE / 'include'}"),
            *("-isystem", wheel / "torch/include", "-o", out / program),
            *(HERE / "driver" / f"{program}.cpp", f"-L{libraries}", "-lc10_cuda", "-lc10"),
            *(f"-l:{name}", f"-Wl,-rpath,{libraries}", "-Wl,--allow-shlib-undefined", "-pthread"),
        )
    (out / "digest").write_text(digest)
    return driver


def build_peer(target: Path) -> Path:
    """Build the peer, with this checkout's accelrt."""
    cargo = os.environ.get("CARGO", "cargo")
    manifest = HERE / "peer/Cargo.toml"
    command = (cargo, "build", "--quiet", "--release", "--locked", "--manifest-path", manifest)
    _call(*command, environment={"CARGO_TARGET_DIR": str(target)})
    return target / "release/peer"
