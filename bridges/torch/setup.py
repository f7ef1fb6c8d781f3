"""Compiles the extension against the headers of the environment's torch."""

import os
import sys
from pathlib import Path

import setuptools

# The first one that knows the licence as `pyproject.toml` has it.
LEAST_SETUPTOOLS = 77
if int(setuptools.__version__.split(".")[0]) < LEAST_SETUPTOOLS:
    sys.exit(
        f"accelrt-torch needs setuptools {LEAST_SETUPTOOLS} or newer in the environment, which has "
        f"{setuptools.__version__}: pip install 'setuptools>={LEAST_SETUPTOOLS}'"
    )
# A bridge of another torch, or half of one, must not keep this one from being built.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from torch.utils.cpp_extension import BuildExtension, CppExtension  # noqa: E402

HERE = Path(__file__).resolve().parent
# `accelrt.h`; the functions themselves come from the module accelrt.
INCLUDE = HERE.parents[1] / "include"

setuptools.setup(
    ext_modules=[
        CppExtension(
            "accelrt_torch._C",
            sorted(str(path.relative_to(HERE)) for path in HERE.glob("csrc/*.cpp")),
            include_dirs=[str(INCLUDE)],
            # Without what debuggers want, which takes longer to write than the code.
            extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
