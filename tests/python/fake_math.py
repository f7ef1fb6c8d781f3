"""Fakes of oneMKL and oneDNN, built by the C compiler; and processes that watch them."""

import functools
import subprocess
import tempfile
from pathlib import Path

from processes import output_of

SOURCE = Path(__file__).parents[1] / "fake_math" / "fake.c"

# What the code of a process begins with: a fake in the process, and what it is asked.
HEAD = """
import ctypes, os, sys, threading, warnings
import accelrt
from accelrt.backends import mkl, mkldnn
from children import outcome

def load(path):
    library = ctypes.CDLL(path)
    for name in ("print_line", "print_later"):
        getattr(library, name).argtypes = [ctypes.c_char_p]
    return library
"""

# Otherwise neither Python nor C keeps anything: what a flush is for would not be seen.
BUFFERED = {"PYTHONUNBUFFERED": ""}


@functools.cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="fake_math_")


@functools.cache
def build(name: str, *options: str) -> Path:
    """Return a fake under this file name, compiled with these options."""
    target = Path(_folder().name, "_".join(("with", *options)).replace("/", "_"), name)
    target.parent.mkdir(exist_ok=True)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
    command = ["cc", *flags, *options, "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True)  # noqa: S603  the house's compiler
    return target


def fake_mkl(name: str = "libmkl_rt.so.2", *options: str) -> Path:
    """Return a fake of oneMKL."""
    return build(name, "-DMKL", *options)


def fake_onednn(name: str = "libdnnl.so.3", *options: str) -> Path:
    """Return a fake of oneDNN."""
    return build(name, "-DDNNL", *options)


def watched(code: str, **settings: str) -> list[str]:
    """Return the lines that code prints after the head, in a process of its own."""
    return output_of(f"{HEAD}\n{code}", **BUFFERED, **settings).splitlines()
