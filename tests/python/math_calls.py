"""What the tests have oneMKL and oneDNN do: a GEMM, and a matmul of either version of oneDNN."""

import ctypes
from ctypes import POINTER, byref, c_double, c_int, c_int64, c_void_p

# Of `dnnl_types.h`: the same in versions 2 and 3.
_CPU, _DEFAULT_STREAM, _F32, _AB = 1, 1, 3, 3
_SOURCE, _TARGET, _WEIGHTS = 1, 17, 33
# More than any description of version 2 takes.
_DESCRIPTION_BYTES = 16384


def gemm(library: ctypes.CDLL, size: int) -> None:
    """Multiply two square matrices of doubles by oneMKL."""
    product(library, size)


def product(library: ctypes.CDLL, size: int) -> bool:
    """Multiply a matrix of ones by one of twos by oneMKL; return whether the result is right."""
    matrix = c_double * (size * size)
    a, b, c = matrix(*[1.0] * size * size), matrix(*[2.0] * size * size), matrix()
    scale = [c_double]
    function = library.cblas_dgemm
    row_major, plain = 101, 111
    function.argtypes = [
        *[c_int] * 6, *scale, c_void_p, c_int, c_void_p, c_int, *scale, c_void_p, c_int,
    ]  # fmt: skip
    function(row_major, plain, plain, size, size, size, 1.0, a, size, b, size, 0.0, c, size)
    return bytes(c) == bytes(matrix(*[2.0 * size] * size * size))


class Argument(ctypes.Structure):
    """`dnnl_exec_arg_t`."""

    _fields_ = [("index", c_int), ("memory", c_void_p)]


class OneDnn:
    """A matmul of square matrices, made anew at each call."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.dnnl_version.restype = POINTER(c_int)
        self.is_version_3 = self.library.dnnl_version()[0] >= 3
        self.engine, self.stream = c_void_p(), c_void_p()
        self._call("engine_create", byref(self.engine), _CPU, ctypes.c_size_t(0))
        self._call("stream_create", byref(self.stream), self.engine, _DEFAULT_STREAM)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self.library, f"dnnl_{name}")(*arguments)
        assert status == 0, f"dnnl_{name} says {status}"

    def _description(self, size: int) -> object:
        dimensions = (c_int64 * 12)(size, size)
        if self.is_version_3:
            made = c_void_p()
            create = "memory_desc_create_with_tag"
            self._call(create, byref(made), 2, dimensions, _F32, _AB)
            return made
        filled = ctypes.create_string_buffer(_DESCRIPTION_BYTES)
        self._call("memory_desc_init_by_tag", filled, 2, dimensions, _F32, _AB)
        return filled

    def matmul(self, size: int) -> None:
        """Create and execute a matmul of floats."""
        shape, kind, primitive = self._description(size), c_void_p(), c_void_p()
        if self.is_version_3:
            create = "matmul_primitive_desc_create"
            self._call(create, byref(kind), self.engine, shape, shape, None, shape, None)
        else:
            operation = ctypes.create_string_buffer(_DESCRIPTION_BYTES)
            self._call("matmul_desc_init", operation, shape, shape, None, shape)
            self._call("primitive_desc_create", byref(kind), operation, None, self.engine, None)
        self._call("primitive_create", byref(primitive), kind)
        data = [(ctypes.c_float * (size * size))() for _ in range(3)]
        arguments = (Argument * 3)()
        for place, index, values in zip(arguments, (_SOURCE, _WEIGHTS, _TARGET), data, strict=True):
            memory = c_void_p()
            self._call("memory_create", byref(memory), shape, self.engine, values)
            place.index, place.memory = index, memory
        self._call("primitive_execute", primitive, self.stream, 3, arguments)
        self._call("stream_wait", self.stream)
