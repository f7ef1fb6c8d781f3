"""Types that NumPy lacks, elements that stand apart, and what may be written of others' memory.

Method: what is exported comes back by DLPack, and its bytes are looked at; NumPy is the model of
elements that stand apart, of random shapes, orders and steps.
"""

import ctypes
import random
import weakref
from typing import Any

import numpy as np
import pytest

import accelrt as _accelrt
import capsules
from capsules import READ_ONLY, NewMajor, OldStyle, Tensor, Versioned, versioned
from kinds import content, host_cores

accelrt: Any = _accelrt  # arguments of wrong types are tried

# Name, DLPack's code, bytes of an element.
UNNAMED = (
    ("bfloat16", 4, 2),
    ("float8_e4m3fn", 10, 1),
    ("float8_e4m3fnuz", 11, 1),
    ("float8_e5m2", 12, 1),
    ("float8_e5m2fnuz", 13, 1),
    ("float8_e8m0fnu", 14, 1),
)


def _seeded() -> random.Random:
    seed = random.randrange(1 << 32)  # noqa: S311  not a secret
    print(f"seed {seed}")  # noqa: T201  repeats the run
    return random.Random(seed)  # noqa: S311  as above


@host_cores
@pytest.mark.parametrize(("name", "code", "item_bytes"), UNNAMED)
def test_types_that_numpy_lacks_go_out_and_in_by_dlpack(
    name: str, code: int, item_bytes: int
) -> None:
    buffer = accelrt.empty(6 * item_bytes).copy_(bytes(range(6 * item_bytes)))
    view = buffer.view(name, (2, 3))
    assert (view.dtype, view.shape, view.nbytes) == (name, (2, 3), 6 * item_bytes)
    capsule = view.__dlpack__(max_version=(1, 1))
    managed = versioned(capsule)
    assert (managed.code, managed.bits, managed.lanes) == (code, 8 * item_bytes, 1)
    # The float8 types are DLPack's since 1.1.
    assert (managed.major, managed.minor) == (1, 0 if name == "bfloat16" else 1)
    for back in (accelrt.from_dlpack(capsule), accelrt.from_dlpack(view)):
        assert (back.dtype, back.shape) == (name, (2, 3))
        assert back.data_ptr() == buffer.data_ptr()


@host_cores
@pytest.mark.parametrize(("name", "item_bytes"), [(name, size) for name, _, size in UNNAMED])
def test_types_that_numpy_lacks_are_their_bytes_there(name: str, item_bytes: int) -> None:
    given = bytes(range(6 * item_bytes))
    view = accelrt.empty(6 * item_bytes).copy_(given).view(name, (2, 3))
    shape = (2, 3) if item_bytes == 1 else (2, 3, item_bytes)
    interface = view.__array_interface__
    assert (interface["typestr"], interface["shape"]) == ("|u1", shape)
    values = np.asarray(view)
    assert values.dtype == np.uint8
    assert (values.shape, values.tobytes()) == (shape, given)
    assert memoryview(view).format == "B"
    assert len(view) == 2


@host_cores
@pytest.mark.parametrize("name", [name for name, *_ in UNNAMED])
def test_arrays_of_types_that_others_added_to_numpy_are_taken(name: str) -> None:
    types = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(types, name))
    values = np.array([[0.5, 1, 2], [4, 8, 16]], dtype)
    view = accelrt.as_buffer(values)
    assert (view.dtype, view.shape, view.data_ptr()) == (name, (2, 3), values.ctypes.data)
    buffer = accelrt.empty(values.nbytes).copy_(values)
    assert buffer.view(dtype).dtype == buffer.view(dtype.type).dtype == name
    assert np.asarray(buffer.view(dtype)).view(dtype).ravel().tolist() == [0.5, 1, 2, 4, 8, 16]
    assert content(accelrt.empty(4 * dtype.itemsize).copy_(values[:, ::2])) == b"".join(
        value.tobytes() for value in values[:, ::2].ravel()
    )


def test_jax_takes_and_gives_bfloat16() -> None:
    jax = pytest.importorskip("jax")
    view = accelrt.from_dlpack(jax.numpy.array([1, 2, 3], "bfloat16"), copy=True)
    assert (view.dtype, view.shape) == ("bfloat16", (3,))
    assert jax.dlpack.from_dlpack(view).tolist() == [1, 2, 3]


def test_a_type_that_no_view_has_is_told_by_its_numbers() -> None:
    values, extents = np.zeros(4, np.uint8), (ctypes.c_int64 * 1)(4)
    for code, bits, lanes in ((17, 4, 1), (8, 8, 1), (2, 32, 2)):
        tensor = Tensor(values.ctypes.data, 1, 0, 1, code, bits, lanes, extents)
        capsule = capsules.capsule(tensor)
        told = f"DLPack's type {code} with {bits} bits and {lanes} lanes are none of bool, .*fnu$"
        with pytest.raises(BufferError, match=told):
            accelrt.from_dlpack(capsule)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_was_refused_is_not_consumed(version: Any) -> None:
    # Method: memory that lies apart is refused without a copy, and taken with one.
    values = np.arange(12.0).reshape(3, 4)
    wrong: tuple[dict[str, Any], ...] = ({"copy": False}, {"copy": 3}, {"readonly": "no"})
    capsule = values[:, ::2].__dlpack__(max_version=version)
    name = capsules.name(capsule)
    for keywords in wrong:
        with pytest.raises((BufferError, TypeError), match=r"contiguous|True or False"):
            accelrt.from_dlpack(capsule, **keywords)
        assert capsules.name(capsule) == name
    view = accelrt.from_dlpack(capsule)
    assert capsules.name(capsule) == b"used_" + name
    assert np.asarray(view).tolist() == values[:, ::2].tolist()
    with pytest.raises(BufferError, match="taken before"):
        accelrt.from_dlpack(capsule)


def test_a_capsule_without_a_version_is_read_only_unless_asked_otherwise() -> None:
    values = np.zeros(4)
    for unversioned in (OldStyle(values), values.__dlpack__()):
        view = accelrt.from_dlpack(unversioned)
        assert view.readonly
        assert not np.asarray(view).flags.writeable
    for unversioned in (OldStyle(values), values.__dlpack__()):
        view = accelrt.from_dlpack(unversioned, readonly=False)
        assert not view.readonly
        np.asarray(view)[:] += 1
    assert values.tolist() == [2] * 4
    assert not accelrt.from_dlpack(values).readonly
    assert accelrt.from_dlpack(values, readonly=True).readonly
    # Who names a target asks to write it.
    accelrt.zeros(32).copy_to(OldStyle(values))
    assert values.tolist() == [0] * 4


def test_memory_that_its_lender_calls_read_only_is_never_written() -> None:
    values = np.arange(4)
    values.flags.writeable = False
    capsule = values.__dlpack__(max_version=(1, 0))
    assert versioned(capsule).flags == READ_ONLY
    with pytest.raises(BufferError, match="readonly=False asks to write"):
        accelrt.from_dlpack(capsule, readonly=False)
    assert accelrt.from_dlpack(capsule).readonly
    # A copy is the caller's own.
    own = accelrt.from_dlpack(values, copy=True)
    assert not own.readonly
    np.asarray(own)[:] = 7
    assert values.tolist() == [0, 1, 2, 3]
    assert accelrt.from_dlpack(values, copy=True, readonly=True).readonly
    for copied in (values[::2], values):
        own = accelrt.from_dlpack(copied, copy=True, readonly=False)
        np.asarray(own)[:] = 7
    assert values.tolist() == [0, 1, 2, 3]


def test_a_copy_is_made_where_it_must_be_or_was_asked_for() -> None:
    values = np.arange(12, dtype=np.int16).reshape(3, 4)
    deep = np.arange(24, dtype=np.int16).reshape(2, 3, 4)[:, :2, ::3]
    for apart in (values[:, ::2], values.T, values[::-1], values[:, :3], deep):
        view = accelrt.from_dlpack(apart)
        assert (view.dtype, view.shape) == ("int16", apart.shape)
        assert np.asarray(view).tolist() == apart.tolist()
        assert not view.readonly
    assert accelrt.from_dlpack(values).data_ptr() == values.ctypes.data
    copy = accelrt.from_dlpack(values, copy=True)
    assert copy.data_ptr() != values.ctypes.data
    assert np.asarray(copy).tolist() == values.tolist()


def test_what_was_copied_is_given_back_at_once() -> None:
    part = np.zeros((4, 4))[:, 1]
    gone = weakref.ref(part)
    view = accelrt.from_dlpack(part)
    del part
    assert gone() is None
    assert view.shape == (4,)


@pytest.mark.parametrize(("stride", "copy"), [(1, None), (1, True), (2, None)])
def test_a_structure_is_freed_once_and_when_it_is_no_longer_needed(stride: int, copy: Any) -> None:
    # Method: a deleter in Python that counts.
    freed: list[int] = []
    values, deleter = np.arange(8.0), NewMajor._fields_[3][1](freed.append)
    extents, strides = (ctypes.c_int64 * 1)(4), (ctypes.c_int64 * 1)(stride)
    structure = Versioned(
        1, 0, None, deleter, 0, values.ctypes.data, 1, 0, 1, 2, 64, 1, extents, strides
    )
    capsule = capsules.capsule(structure)
    with pytest.raises(TypeError, match="copy must be"):
        accelrt.from_dlpack(capsule, copy="yes")
    assert not freed
    view = accelrt.from_dlpack(capsule, copy=copy)
    is_lent = stride == 1 and copy is None
    assert len(freed) == (0 if is_lent else 1)
    assert np.asarray(view).tolist() == values[::stride][:4].tolist()
    del view, capsule
    accelrt.zeros(1)  # any call gives back what was parked
    assert freed == [ctypes.addressof(structure)]


@pytest.mark.parametrize(("stride", "copy"), [(1, None), (1, True), (2, None)])
def test_a_tensor_begins_where_its_offset_says(stride: int, copy: Any) -> None:
    values = np.arange(8.0)
    extents, strides = (ctypes.c_int64 * 1)(3), (ctypes.c_int64 * 1)(stride)
    tensor = Tensor(values.ctypes.data, 1, 0, 1, 2, 64, 1, extents, strides, 16)
    view = accelrt.from_dlpack(capsules.capsule(tensor), copy=copy)
    assert np.asarray(view).tolist() == values[2::stride][:3].tolist()
    del view
    accelrt.zeros(1)  # any call gives back what was parked, which reads the tensor


def test_elements_that_stand_apart_are_copied_in_order() -> None:
    # Goal: NumPy's own order for any shape, order of axes, step and item size.
    chance = _seeded()
    types = ("u1", "i2", "f4", "f8", "c16", "S3", "M8[s]")
    for _ in range(300):
        dimensions = chance.randint(0, 4)
        whole = [chance.randint(0, 4) for _ in range(dimensions)]
        dtype = np.dtype(chance.choice(types))
        count = int(np.prod(whole)) * dtype.itemsize
        values = np.frombuffer(chance.randbytes(count), dtype).reshape(whole)
        values = values.transpose(chance.sample(range(dimensions), dimensions))
        steps = [slice(None, None, chance.choice((-2, -1, 1, 2))) for _ in range(dimensions)]
        where: Any = (*steps, ...)
        apart = values[where]
        if chance.random() < 0.2:
            apart = np.broadcast_to(apart, (2, *apart.shape))
        buffer = accelrt.empty(apart.nbytes).copy_(apart)
        assert content(buffer) == apart.tobytes(), (whole, dtype, apart.strides)
        if dtype.kind in "uifc":
            view = accelrt.from_dlpack(apart)
            assert np.asarray(view).tobytes() == apart.tobytes(), (whole, dtype, apart.strides)


def test_a_source_that_was_gathered_may_change_at_once() -> None:
    values = np.arange(1 << 16, dtype=np.int32)
    buffer = accelrt.empty(values.nbytes // 2)
    buffer.copy_(values[::2], non_blocking=True)
    values[:] = -1
    expected = np.arange(0, 1 << 16, 2, dtype=np.int32)
    assert content(buffer) == expected.tobytes()


def test_objects_that_stand_apart_and_targets_that_do_are_refused() -> None:
    with pytest.raises(TypeError, match="must not hold Python objects"):
        accelrt.zeros(16).copy_(np.array([None] * 4)[::2])
    with pytest.raises(ValueError, match=r"target \(ndarray\).*contiguous"):
        accelrt.zeros(16).copy_to(np.zeros(4)[::2])
    with pytest.raises(BufferError, match="not contiguous"):
        accelrt.zeros(16).copy_to(OldStyle(np.zeros(4)[::2]))


@pytest.mark.parametrize("count", [1 << 40, 1 << 62])
def test_elements_that_no_memory_holds_side_by_side_are_an_error(count: int) -> None:
    # One element that stands for any number.
    apart = np.broadcast_to(np.uint8(1), (count,))
    buffer = accelrt.zeros(64)
    for use in (buffer.copy_, accelrt.from_dlpack):
        with pytest.raises(MemoryError, match=f"no memory for {count} bytes"):
            use(apart)
    assert content(buffer) == bytes(64)
