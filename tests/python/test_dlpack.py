"""Typed views: DLPack both ways, the array interface, the buffer protocol, foreign memory."""

import array
import contextlib
import ctypes
import gc
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import accelrt as _accelrt
import capsules
from capsules import IS_COPIED, READ_ONLY, NewMajor, OldStyle, Tensor, versioned
from gates import Gate
from kinds import KIND, bytes_of, content, host_cores

accelrt: Any = _accelrt  # arguments of wrong types are tried

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


class _Interface:
    """Shows NumPy nothing but the array interface."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self.__array_interface__ = view.__array_interface__


@host_cores
@pytest.mark.parametrize("name", DTYPES)
def test_numpy_sees_every_type(name: Any) -> None:
    dtype = np.dtype(name)
    buffer = accelrt.zeros(6 * dtype.itemsize)
    view = buffer.view(dtype, (2, 3))
    assert (view.dtype, view.shape, view.nbytes, len(view)) == (name, (2, 3), buffer.nbytes, 2)
    for values in (np.asarray(view), np.from_dlpack(view), np.asarray(_Interface(view))):
        assert (values.dtype, values.shape) == (dtype, (2, 3))
        assert values.ctypes.data == buffer.data_ptr()
    np.asarray(view)[1, 2] = 1
    assert np.from_dlpack(view)[1, 2] == 1
    back = accelrt.from_dlpack(np.asarray(view))
    assert (back.dtype, back.shape) == (name, (2, 3))
    assert accelrt.as_buffer(np.asarray(view)).dtype == name


def test_shapes_and_types_are_checked() -> None:
    buffer = accelrt.zeros(24)
    assert buffer.view(np.float64).shape == (3,)
    assert buffer.view("int16", 12).shape == (12,)
    assert accelrt.zeros(8).view("int64", ()).shape == ()
    for dtype, shape in (("float32", (5,)), ("float32", (-1, 4)), ("complex128", None)):
        with pytest.raises(ValueError, match=r"shape|whole"):
            buffer.view(dtype, shape)
    with pytest.raises(ValueError, match="is aligned to"):
        buffer[1:9].view("int64")
    for wrong in ("float8", ">f4", np.dtype(">f4"), 3):
        with pytest.raises(TypeError, match="dtype"):
            buffer.view(wrong)
    with pytest.raises(TypeError, match="shape"):
        buffer.view("int8", "24")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (-1, (6,)),
        ((-1,), (6,)),
        ((2, -1), (2, 3)),
        ((-1, 3), (2, 3)),
        ([1, -1, 6], (1, 1, 6)),
    ],
)
def test_one_extent_of_a_shape_is_inferred(shape: Any, expected: tuple[int, ...]) -> None:
    buffer = accelrt.zeros(24)
    assert buffer.view("float32", shape).shape == expected
    assert np.zeros(6, np.float32).reshape(shape).shape == expected
    assert accelrt.zeros(0).view("float32", (3, -1)).shape == (3, 0)


@pytest.mark.parametrize(
    ("nbytes", "shape", "expected"),
    [
        (24, (-1, -1), "can only specify one unknown dimension: shape [-1, -1] has 2 of them"),
        (24, (4, -1), "shape [4, -1] of float32 has a multiple of 16 bytes, not 24"),
        (24, (0, -1), "shape [0, -1] of float32 has a multiple of 0 bytes, not 24"),
        (0, (0, -1), "shape [0, -1] of float32 has a multiple of 0 bytes, not 0"),
        (24, (1 << 62, 1 << 62, -1), "of float32 has too many bytes, not 24"),
        (24, (5,), "shape [5] of float32 has 20 bytes, not 24"),
        (24, -2, "an extent of a shape must be 0 or more, or -1 once, not -2"),
        (24, (1,) * 65, "a shape has at most 64 dimensions, not 65"),
        (24, 1 << 63, "an extent of a shape must fit an address, not 9223372036854775808"),
        (24, (2, 1 << 70), "an extent of a shape must fit an address, not 1180591620717411303424"),
        (24, -(1 << 70), "must be 0 or more, or -1 once, not -1180591620717411303424"),
    ],
)
def test_a_shape_that_does_not_fit_is_told_with_numbers(
    nbytes: int, shape: Any, expected: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        accelrt.zeros(nbytes).view("float32", shape)


@host_cores
def test_views_keep_the_memory_and_exports_forbid_the_release() -> None:
    view = accelrt.zeros(8).view("uint8")
    gc.collect()
    assert bytes(memoryview(view)) == b"\0" * 8
    buffer = accelrt.zeros(8)
    exports = (np.from_dlpack(buffer), memoryview(buffer.view("int8")), buffer.__dlpack__())
    with pytest.raises(BufferError, match="3 exports"):
        buffer.release()
    del exports
    view = buffer.view("int8")
    values = np.asarray(_Interface(view))
    with pytest.raises(BufferError, match="1 exports"):
        buffer.release()
    del view, values
    buffer.release()
    with pytest.raises(BufferError, match="released"):
        buffer.__dlpack__()


@host_cores
def test_names_of_capsules() -> None:
    buffer = accelrt.zeros(8)
    assert capsules.name(buffer.__dlpack__()) == b"dltensor"
    assert capsules.name(buffer.__dlpack__(max_version=(0, 8))) == b"dltensor"
    capsule = buffer.__dlpack__(max_version=(1, 1))
    assert capsules.name(capsule) == b"dltensor_versioned"
    view = accelrt.from_dlpack(capsule)
    assert capsules.name(capsule) == b"used_dltensor_versioned"
    with pytest.raises(BufferError, match="taken"):
        accelrt.from_dlpack(capsule)
    old = buffer.__dlpack__()
    accelrt.from_dlpack(old)
    assert capsules.name(old) == b"used_dltensor"
    assert view.data_ptr() == buffer.data_ptr()
    assert buffer.__dlpack_device__() == (1, 0)


def test_flags_say_what_is_read_only_and_what_is_a_copy() -> None:
    buffer = accelrt.zeros(8)
    for version in ((1, 0), (1, 3), (2, 0)):
        own = buffer.__dlpack__(max_version=version)
        managed = versioned(own)
        assert (managed.major, managed.flags, managed.data) == (1, 0, buffer.data_ptr())
    copied = buffer.__dlpack__(max_version=(1, 0), copy=True)
    assert versioned(copied).flags == IS_COPIED
    assert versioned(copied).data != buffer.data_ptr()
    lent = accelrt.as_buffer(b"bytes")
    assert versioned(lent.__dlpack__(max_version=(1, 0))).flags == READ_ONLY
    # A copy is the consumer's own.
    copied = lent.__dlpack__(max_version=(1, 0), copy=True)
    assert versioned(copied).flags == IS_COPIED


@host_cores
def test_arguments_of_dlpack() -> None:
    buffer = accelrt.zeros(8).copy_(b"12345678")
    buffer.__dlpack__(stream=-1, dl_device=(1, 0), copy=False)
    for stream in (-2, 0, 1, 1 << 70):
        with pytest.raises(AssertionError, match="stream should be None on cpu"):
            buffer.__dlpack__(stream=stream)
    with pytest.raises(TypeError, match="stream must be"):
        buffer.__dlpack__(stream="1")
    with pytest.raises(BufferError, match="no other device"):
        buffer.__dlpack__(dl_device=(2, 0))
    copy = np.from_dlpack(buffer, copy=True)
    assert copy.tobytes() == b"12345678"
    assert copy.ctypes.data != buffer.data_ptr()


def test_read_only_is_respected() -> None:
    values = np.arange(4)
    values.flags.writeable = False
    for view in (accelrt.from_dlpack(values), accelrt.as_buffer(values), accelrt.as_buffer(b"ab")):
        assert view.readonly
        assert memoryview(view).readonly
        assert not np.asarray(_Interface(view)).flags.writeable
        assert not np.from_dlpack(view).flags.writeable
        with pytest.raises(BufferError, match="read-only"):
            view.__dlpack__()
        with pytest.raises(BufferError, match="read-only"):
            accelrt.zeros(view.nbytes).copy_to(view)


def test_foreign_memory_lives_as_long_as_its_views() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    gone = weakref.ref(values)
    views = [accelrt.from_dlpack(values), accelrt.from_dlpack(OldStyle(values))]
    views.append(accelrt.as_buffer(values))
    again = np.from_dlpack(views[0])
    del values
    assert gone() is not None
    assert all(np.asarray(view).tolist() == [[0, 1, 2], [3, 4, 5]] for view in views)
    del views
    assert again[1, 2] == 5
    del again
    accelrt.zeros(1)  # any call gives back what was parked
    assert gone() is None


def test_what_cannot_be_taken() -> None:
    with pytest.raises(BufferError, match=r"shape \[4, 2\] is not contiguous"):
        accelrt.from_dlpack(np.zeros((4, 4))[:, ::2], copy=False)
    with pytest.raises(ValueError, match="contiguous"):
        accelrt.as_buffer(np.zeros((4, 4))[:, ::2])
    with pytest.raises(TypeError, match="DLPack"):
        accelrt.from_dlpack(b"bytes")
    with pytest.raises(TypeError, match="buffer protocol"):
        accelrt.as_buffer(3)
    assert accelrt.as_buffer(array.array("l", [1, 2])).dtype == "int64"
    assert accelrt.as_buffer(np.zeros(2, "i4,f8")).shape == (24,)


def test_memory_without_elements_has_the_strides_that_torch_gives_it() -> None:
    capsule = accelrt.zeros(0).view("int32", (2, 0, 3)).__dlpack__(max_version=(1, 0))
    managed = versioned(capsule)
    assert (managed.shape[:3], managed.strides[:3]) == ([2, 0, 3], [3, 3, 1])


class Asked:
    """An exporter that notes how it is asked for a capsule, and has none."""

    def __init__(self, device_type: int) -> None:
        self.device_type = device_type
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device_type, 0)

    def __dlpack__(self, **keywords: Any) -> Any:
        self.asked.append(keywords)
        message = "it is busy"
        raise BufferError(message)


def test_memory_of_a_device_that_is_not_taken_is_not_asked_for() -> None:
    # A capsule may cost its maker a wait, and is made for nobody.
    exporter = Asked(2)
    with pytest.raises(BufferError, match="DLPack's device type 2 is neither cpu's nor xpu's"):
        accelrt.from_dlpack(exporter)
    assert exporter.asked == []


def test_who_refuses_a_versioned_capsule_is_not_asked_for_another() -> None:
    exporter = Asked(1)
    with pytest.raises(BufferError, match="it is busy"):
        accelrt.from_dlpack(exporter)
    assert exporter.asked == [{"max_version": (1, 1)}]


def test_a_stride_that_no_element_is_reached_by_may_be_anything() -> None:
    # Goal: rows and columns of others are taken. Method: torch keeps the strides that such views
    # had; NumPy does not tell of them.
    values = np.arange(4.0)
    extents, strides = (ctypes.c_int64 * 3)(1, 4, 1), (ctypes.c_int64 * 3)(999, 1, -7)
    tensor = Tensor(values.ctypes.data, 1, 0, 3, 2, 64, 1, extents, strides)
    view = accelrt.from_dlpack(capsules.capsule(tensor), copy=False)
    assert np.asarray(view).tolist() == [[[0], [1], [2], [3]]]
    extents[0] = 2
    with pytest.raises(BufferError, match=r"shape \[2, 4, 1\] is not contiguous"):
        accelrt.from_dlpack(capsules.capsule(tensor), copy=False)
    accelrt.zeros(1)  # any call gives back what was parked, which reads the tensor


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"byte_offset": 2**64 - 8}, "leads out of the address space"),
        ({"byte_offset": 2**64 - 1}, "leads out of the address space"),
        ({"data": 2**64 - 16}, "leads out of the address space"),
        ({"data": 8, "strides": (-4, 1)}, "leads out of the address space"),
        ({"data": 2**64 - 64, "strides": (2**40, 1)}, "leads out of the address space"),
        ({"strides": (2**60, 1)}, "strides out of range"),
        ({"strides": (2**62, 1)}, "strides out of range"),
        ({"data": None}, "the address is null"),
        ({"data": None, "byte_offset": 64}, "the address is null"),
        ({"shape": (2, -3)}, "a negative extent"),
        ({"shape": (2**40, 2**40)}, "is too large"),
        ({"shape": None}, "the shape is missing"),
        ({"dimensions": -1}, "negative dimensions"),
        ({"dimensions": 65}, "at most 64 dimensions, not 65"),
        ({"dimensions": 2**31 - 1}, "at most 64 dimensions"),
        ({"lanes": 4}, "4 lanes"),
    ],
)
def test_capsule_out_of_range_is_refused(changed: dict[str, Any], told: str) -> None:
    values = np.arange(6, dtype="int64")
    tensor = Tensor(values.ctypes.data, 1, 0, 2, 0, 64, 1, (ctypes.c_int64 * 2)(2, 3))
    for field, value in changed.items():
        is_extents = field in {"shape", "strides"} and value is not None
        setattr(tensor, field, (ctypes.c_int64 * 2)(*value) if is_extents else value)
    capsule = capsules.capsule(tensor)
    for copied in None, True, False:
        with pytest.raises(BufferError, match=told):
            accelrt.from_dlpack(capsule, copy=copied)
    assert capsules.name(capsule) == b"dltensor"  # its maker frees it


@pytest.mark.parametrize(
    ("code", "bits", "align"), [(0, 64, 8), (2, 32, 4), (5, 64, 4), (5, 128, 8)]
)
def test_misaligned_memory_is_refused(code: int, bits: int, align: int) -> None:
    values = np.arange(64, dtype="uint8")
    item_bytes = bits // 8
    extents = (ctypes.c_int64 * 1)(2)
    for offset in range(17):
        tensor = Tensor(values.ctypes.data, 1, 0, 1, code, bits, 1, extents, None, offset)
        capsule = capsules.capsule(tensor)
        expected = values[offset : offset + 2 * item_bytes].tobytes()
        if offset % align:
            with pytest.raises(BufferError, match=f"is aligned to {align} bytes: copy=True copies"):
                accelrt.from_dlpack(capsule)
            copied = accelrt.from_dlpack(capsule, copy=True)
            assert bytes_of(copied) == expected
        else:
            assert bytes_of(accelrt.from_dlpack(capsule)) == expected
    # A copy uses the bytes only.
    tensor = Tensor(values.ctypes.data, 1, 0, 1, code, bits, 1, extents, None, 1)
    buffer = accelrt.empty(2 * item_bytes).copy_(capsules.Lent(tensor))
    assert content(buffer) == values[1 : 1 + 2 * item_bytes].tobytes()
    accelrt.zeros(1)  # any call gives back what was parked, which reads the tensor


def test_misaligned_array_is_refused() -> None:
    values = np.frombuffer(bytes(32), "int32", count=4, offset=1)
    with pytest.raises(BufferError, match="int32 is aligned to 4 bytes"):
        accelrt.as_buffer(values)
    assert content(accelrt.empty(16).copy_(values)) == bytes(16)
    assert accelrt.as_buffer(values.view("uint8")).shape == (16,)


@pytest.mark.parametrize("order", ["", "<", ">", "=", "|"])
def test_dtype_spellings_are_numpys(order: str) -> None:
    sizes = [f"{kind}{size}" for kind in "biufcmSUVO" for size in ("", 0, 1, 2, 3, 4, 8, 16, 32)]
    names = [*np.sctypeDict, *np.typecodes["All"], *DTYPES, *sizes]
    names += ["int", "float", "complex", "F4", "", "4", "int128", "bfloat", "x4"]
    for name in sorted({f"{order}{name}" for name in names if isinstance(name, str)}):
        dtype: Any = None
        with contextlib.suppress(TypeError, DeprecationWarning):
            dtype = np.dtype(name)
        spelled = [name] if dtype is None else [name, dtype, dtype.type]
        for spelling in spelled:
            is_known = dtype is not None and dtype.name in DTYPES
            if is_known and (dtype.isnative or spelling is dtype.type):
                assert accelrt.zeros(32).view(spelling).dtype == dtype.name, spelling
            else:
                told = "have this machine's byte order" if is_known else "be one of|byte order"
                with pytest.raises(TypeError, match=told):
                    accelrt.zeros(32).view(spelling)


def test_dtypes_may_be_pythons_classes() -> None:
    named = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
    for given, name in named.items():
        assert accelrt.zeros(16).view(given).dtype == name
    for wrong in (str, bytes, object, list):
        with pytest.raises(TypeError, match="dtype must be one of"):
            accelrt.zeros(16).view(wrong)


@host_cores
def test_generators_take_numpys_spellings() -> None:
    buffer = accelrt.zeros(16)
    accelrt.Generator().manual_seed(1).fill_uniform_(buffer, "<f4")
    assert bytes(buffer) != bytes(16)


@pytest.mark.parametrize("major", [0, 2])
def test_an_unknown_major_version_is_refused_and_left_to_its_maker(major: int) -> None:
    freed: list[int] = []
    structure = NewMajor(major, 5, None, NewMajor._fields_[3][1](freed.append))
    capsule = capsules.capsule(structure)
    with pytest.raises(BufferError, match=rf"DLPack {major}\.5"):
        accelrt.from_dlpack(capsule)
    # Its maker's destructor frees it: it sees by the name that nobody took it.
    assert not freed
    assert capsules.name(capsule) == b"dltensor_versioned"


@host_cores
def test_copies_take_views() -> None:
    buffer, other = accelrt.zeros(4), accelrt.empty(4).fill_(2)
    buffer.copy_(other.view("int32"))
    assert bytes(buffer) == b"\2" * 4
    target = bytearray(4)
    buffer.copy_to(accelrt.as_buffer(target))
    assert target == b"\2" * 4
    buffer.copy_(OldStyle(np.arange(4, dtype=np.uint8)))
    buffer.copy_to(other.view("uint8"))
    assert bytes(other) == bytes(range(4))


@host_cores
def test_jax_takes_our_memory() -> None:
    jax = pytest.importorskip("jax")
    view = accelrt.zeros(64).view("float32")
    np.asarray(view)[:] = 1.5
    assert view.data_ptr() % 64 == 0
    values = jax.dlpack.from_dlpack(view)
    assert float(values.sum()) == 24.0
    assert accelrt.from_dlpack(jax.numpy.ones(3)).shape == (3,)


@host_cores
def test_a_copied_export_has_what_every_stream_has_written() -> None:
    # Method: the writing stream is behind a gate, which another thread opens once this one waits.
    buffer, stream = accelrt.zeros(8), accelrt.Stream(dedicated=True)
    buffer.stream.synchronize()
    gate = Gate(stream)
    with stream:
        buffer.fill_(7)
    opener = threading.Timer(0.05, gate.open)  # idle: a copy that does not wait is done by then
    opener.start()
    copied = np.from_dlpack(buffer.view("uint8"), copy=True)
    opener.join()
    stream.synchronize()
    gate.close()
    assert copied.tolist() == [7] * 8


def _huge() -> Any:
    """Return an array whose contiguous copy does not fit into the address space."""
    return np.lib.stride_tricks.as_strided(np.zeros(4, "u1"), (1 << 47, 2), (0, 2))


# Arrays that a copy into 8 bytes refuses.
REFUSED_SOURCES: dict[str, Callable[[], Any]] = {
    "objects": lambda: np.array([None, None]),
    "strided objects": lambda: np.array([None] * 4)[::2],
    "too many bytes": lambda: np.zeros(9, "u1"),
    "too many strided bytes": lambda: np.zeros(18, "u1")[::2],
    "no memory for a contiguous copy": _huge,
}


@pytest.mark.parametrize("name", REFUSED_SOURCES)
def test_refused_sources_are_released(name: str) -> None:
    source = REFUSED_SOURCES[name]()
    alive = weakref.ref(source)
    target = accelrt.zeros(8)
    with pytest.raises((TypeError, ValueError, MemoryError)):
        target.copy_(source)
    del source
    accelrt.zeros(1)  # any call releases exporters that were parked
    gc.collect()
    assert alive() is None


# What reads memory on the host.
HOST_READS: dict[str, Callable[[Any], object]] = {
    "memoryview": memoryview,
    "bytes": bytes,
    "numpy": np.asarray,
    "__array_interface__": lambda memory: memory.__array_interface__,
    "__dlpack__ of the host": lambda memory: memory.__dlpack__(dl_device=(1, 0), copy=False),
}


@pytest.mark.skipif(KIND == "cpu", reason="the host is the device")
@pytest.mark.parametrize("name", HOST_READS)
def test_host_reads_of_device_memory_are_refused(name: str) -> None:
    buffer = accelrt.zeros(8)
    for memory in (buffer, buffer.view("int32"), accelrt.from_dlpack(buffer.view("int32"))):
        with pytest.raises((BufferError, TypeError, AttributeError)):
            HOST_READS[name](memory)
