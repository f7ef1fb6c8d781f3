"""DLPack's structures by ctypes, and capsules over them that say when they are freed."""

import ctypes
from typing import Any

READ_ONLY, IS_COPIED = 1, 2


class NewMajor(ctypes.Structure):
    """The fields that every version of DLPack has."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


class Versioned(ctypes.Structure):
    """The fields of version 1."""

    _fields_ = (
        *NewMajor._fields_,
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Tensor(ctypes.Structure):
    """A tensor that nobody has to be told of when it is given back; from before the versions."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


# Capsules point to them.
NAME = ctypes.create_string_buffer(b"dltensor")
VERSIONED_NAME = ctypes.create_string_buffer(b"dltensor_versioned")


def capsule(structure: Tensor | NewMajor | Versioned) -> Any:
    """Return a capsule over a structure, which the caller keeps."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    chosen = NAME if isinstance(structure, Tensor) else VERSIONED_NAME
    return new(ctypes.addressof(structure), chosen, None)


def versioned(of: Any) -> Versioned:
    """Return what a capsule carries."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Versioned.from_address(get(of, b"dltensor_versioned"))


def name(of: Any) -> Any:
    """Return the name of a capsule, which tells whether it was taken."""
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(of)


class Lent:
    """An exporter of one tensor, without a version."""

    def __init__(self, tensor: Tensor) -> None:
        """Export a tensor, which the caller keeps."""
        self._tensor = tensor

    def __dlpack__(self) -> Any:
        """Return a capsule over the tensor."""
        return capsule(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device of the tensor."""
        return (self._tensor.device_type, self._tensor.device_id)


class OldStyle:
    """An exporter from before the versions."""

    def __init__(self, values: Any) -> None:
        """Export `values`."""
        self._values = values

    def __dlpack__(self) -> Any:
        """Return a capsule without a version."""
        return self._values.__dlpack__()

    def __dlpack_device__(self) -> Any:
        """Return the device of the values."""
        return self._values.__dlpack_device__()
