"""Compiles the extension against the headers of the environment's torch."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = Path(__file__).parent
# `accelrt.h`; the functions themselves come from the module accelrt.
INCLUDE = HERE.parents[1] / "include"

setup(
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
