"""Views that are sliced, copied into and filled: ours and others', of every type.

Method: NumPy's arrays and `ml_dtypes` are the models; random programs print the seed that repeats
them.
"""

import ctypes
import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import accelrt as _accelrt
from gates import Gate, libc
from kinds import KIND, content, host_cores

accelrt: Any = _accelrt  # arguments of wrong types are tried

SMALL_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


def _seeded() -> random.Random:
    seed = random.randrange(1 << 32)  # noqa: S311  not a secret
    print(f"seed {seed}")  # noqa: T201  repeats the run
    return random.Random(seed)  # noqa: S311  as above


def _bytes(view: Any) -> bytes:
    target = accelrt.empty(view.nbytes).copy_(view)
    return content(target)


def test_a_slice_is_of_rows_and_shares_the_memory() -> None:
    buffer = accelrt.empty(48).copy_(bytes(range(48)))
    view = buffer.view("int16", (4, 3, 2))
    part = view[1:3]
    assert (part.dtype, part.shape, part.nbytes) == ("int16", (2, 3, 2), 24)
    assert part.data_ptr() == buffer.data_ptr() + 12
    assert part[1:].shape == (1, 3, 2)
    assert part[:0].shape == (0, 3, 2)
    part.fill_(-1)
    assert content(buffer) == bytes(range(12)) + b"\xff" * 24 + bytes(range(36, 48))
    assert (view[:].shape, view[-1:].data_ptr()) == (view.shape, buffer.data_ptr() + 36)


def test_slices_of_others_memory_share_it_and_keep_it() -> None:
    values = np.arange(12.0).reshape(4, 3)
    part = accelrt.from_dlpack(values)[1:3][1:]
    assert (part.shape, part.data_ptr()) == ((1, 3), values.ctypes.data + 48)
    part.fill_(9)
    accelrt.accelerator.synchronize()
    accelrt.cpu.synchronize()
    assert values.tolist() == [[0, 1, 2], [3, 4, 5], [9, 9, 9], [9, 10, 11]]
    count = len(part)
    del values
    assert (count, np.asarray(part).tolist()) == (1, [[9, 9, 9]])


def test_what_is_no_slice_of_rows_is_refused() -> None:
    view = accelrt.zeros(12).view("int32")
    for wrong, told in ((1, "int"), ((slice(0, 1),), "tuple"), (..., "ellipsis")):
        with pytest.raises(TypeError, match=f"a View's index must be a slice, not {told}"):
            view[wrong]
    with pytest.raises(ValueError, match="a View is sliced with step 1, not -1"):
        view[::-1]
    with pytest.raises(TypeError, match="without dimensions"):
        accelrt.zeros(4).view("int32", ())[:]


def test_random_slices_are_numpys() -> None:
    chance = _seeded()
    values = np.arange(240, dtype=np.int32).reshape(20, 3, 4)
    buffer = accelrt.empty(values.nbytes).copy_(values)
    for whole in (buffer.view("int32", values.shape), accelrt.as_buffer(values)):
        for _ in range(60):
            view, model = whole, values
            for _ in range(3):
                cut = slice(*(chance.choice((None, chance.randint(-25, 25))) for _ in range(2)))
                view, model = view[cut], model[cut]
                assert view.shape == model.shape
            assert _bytes(view) == model.tobytes()


@pytest.mark.parametrize("of_others", [False, True])
def test_a_view_takes_copies_from_everything(of_others: bool) -> None:  # noqa: FBT001
    held = np.zeros(6, np.float32)
    view: Any = accelrt.from_dlpack(held) if of_others else accelrt.zeros(24).view("float32")
    source = np.arange(6, dtype=np.float32)
    ours = accelrt.empty(24).copy_(source)
    sources = (source, ours, ours.view("float32", (2, 3)), source.tobytes(), bytearray(source))
    for given in (*sources, np.arange(12, dtype=np.float32)[::2] / 2):
        view.fill_(-1)
        assert view.copy_(given) is view
        assert _bytes(view) == source.tobytes()
    view[2:4].copy_(source[:2], non_blocking=True)
    accelrt.accelerator.synchronize()
    accelrt.cpu.synchronize()
    assert np.frombuffer(_bytes(view), np.float32).tolist() == [0, 1, 0, 1, 4, 5]


def test_a_copy_into_a_view_is_checked() -> None:
    view = accelrt.zeros(8).view("float32")
    with pytest.raises(ValueError, match="Cannot copy 12 bytes into 8"):
        view.copy_(np.zeros(3, np.float32))
    for wrong in (np.zeros(2, np.int32), accelrt.zeros(8).view("int32"), np.zeros(1)):
        with pytest.raises(TypeError, match=r"elements of float32, as this view, not (int|float)"):
            view.copy_(wrong)
    with pytest.raises(TypeError, match="source must be"):
        view.copy_(3)
    with pytest.raises(TypeError, match="non_blocking must be"):
        view.copy_(bytes(8), non_blocking="yes")
    frozen = np.zeros(2, np.float32)
    frozen.flags.writeable = False
    for change, given in (("copy_", bytes(8)), ("fill_", 1)):
        with pytest.raises(BufferError, match="the view's 8 bytes of cpu:0 are read-only"):
            getattr(accelrt.from_dlpack(frozen), change)(given)
    assert frozen.tolist() == [0, 0]


@pytest.mark.parametrize("of_others", [False, True])
def test_bytes_without_a_meaning_are_any_types(of_others: bool) -> None:  # noqa: FBT001
    held, source = np.zeros(8, np.uint8), np.array([1.5, -2], np.float32)
    view: Any = accelrt.as_buffer(held) if of_others else accelrt.zeros(8).view("uint8")
    for given in (
        source,
        accelrt.as_buffer(source),
        accelrt.empty(8).copy_(source).view("float32"),
    ):
        view.fill_(0)
        assert _bytes(view.copy_(given)) == source.tobytes()
    numbers = accelrt.zeros(8).view("float32")
    assert _bytes(numbers.copy_(view)) == source.tobytes()


def test_overlapping_memory_of_others_is_copied_as_it_was() -> None:
    values = np.arange(6)
    accelrt.from_dlpack(values)[1:].copy_(values[:-1])
    assert values.tolist() == [0, 0, 1, 2, 3, 4]


def test_writes_through_views_and_their_slices_are_counted() -> None:
    buffer = accelrt.zeros(16)
    view = buffer.view("int32")
    view.fill_(1)
    view[1:2].fill_(2)
    view[2:].copy_(bytes(8))
    assert buffer._version == 3
    with accelrt.inference_mode():
        made = accelrt.zeros(8).view("int32")
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        made.fill_(1)


def test_a_fill_is_a_task_of_the_current_stream() -> None:
    buffer, stream = accelrt.zeros(1 << 20), accelrt.Stream(dedicated=True)
    buffer.stream.synchronize()
    gate = Gate(stream)
    with stream:
        assert buffer.view("int32").fill_(0x01020304) is not None
    assert not stream.query()  # nobody waited
    gate.open()
    stream.synchronize()
    gate.close()
    assert content(buffer) == b"\4\3\2\1" * (1 << 18)


@pytest.mark.parametrize(
    "name",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "float32", "float64", "complex64", "complex128"],
)  # fmt: skip
def test_a_fill_writes_what_numpy_writes(name: str) -> None:
    dtype = np.dtype(name)
    numbers: list[Any] = [0, 1, np.ones(1, dtype)[0]]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        numbers += [info.min, info.max, np.int64(7)]
    if dtype.kind in "fc":
        numbers += [-0.1, 1e-7, math.inf, -math.inf, math.nan, np.float32(2.5), 3]
    if dtype.kind == "c":
        numbers += [1 - 2j, np.complex64(3j)]
    # Sizes around what a fill writes itself, and no multiple of it.
    for count in (0, 1, 7, 70_001):
        for number in numbers:
            view = accelrt.empty(count * dtype.itemsize).view(dtype).fill_(number)
            assert _bytes(view) == np.full(count, number, dtype).tobytes(), (number, count)


@pytest.mark.parametrize("name", ["float16", *SMALL_FLOATS])
def test_small_floats_are_the_nearest_to_every_number(name: str) -> None:
    # Goal: the numbers of a type, the middles between two of them, and what is beside those, go to
    # the nearest, of two that are as near to the one with even bits. Method: a table of all of its
    # numbers, and exact fractions; ml_dtypes itself rounds a double to a float first.
    types = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(types, name, name))
    half = np.arange(1 << (8 * dtype.itemsize - 1), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = half.view(dtype).astype(np.float64)
    table = [(value, bits) for bits, value in enumerate(values.tolist()) if math.isfinite(value)]
    chance = _seeded()
    pairs = [pair for pair in pairwise(table) if len(table) < 200 or chance.random() < 0.02]
    view = accelrt.empty(dtype.itemsize).view(dtype.name)
    for (low, low_bits), (high, high_bits) in [
        *pairs,
        (table[0], table[1]),
        (table[-2], table[-1]),
    ]:
        assert low < high
        middle = (low + high) / 2
        even = low_bits if low_bits % 2 == 0 else high_bits
        assert Fraction(middle) * 2 == Fraction(low) + Fraction(high)
        for number, bits in (
            (low, low_bits),
            (math.nextafter(middle, low), low_bits),
            (middle, even),
            (math.nextafter(middle, high), high_bits),
            (high, high_bits),
        ):
            assert _bytes(view.fill_(number)) == bits.to_bytes(dtype.itemsize, "little"), number
            has_sign = bits > 0 or not name.endswith("fnuz")
            signed = bits | (1 << (8 * dtype.itemsize - 1)) if has_sign else 0
            assert _bytes(view.fill_(-number)) == signed.to_bytes(dtype.itemsize, "little"), -number


@pytest.mark.parametrize(
    ("name", "largest", "has_infinity", "nan"),
    [
        ("float16", 65504, True, b"\x00\x7e"),
        ("bfloat16", float.fromhex("0x1.fep127"), True, b"\xc0\x7f"),
        ("float8_e4m3fn", 448, False, b"\x7f"),
        ("float8_e4m3fnuz", 240, False, b"\x80"),
        ("float8_e5m2", 57344, True, b"\x7e"),
        ("float8_e5m2fnuz", 57344, False, b"\x80"),
    ],
)
def test_the_ends_of_small_floats(
    name: str,
    largest: float,
    has_infinity: bool,  # noqa: FBT001
    nan: bytes,
) -> None:
    view = accelrt.zeros(len(nan)).view(name)
    assert _bytes(view.fill_(math.nan)) == nan
    negative = nan if name.endswith("fnuz") else nan[:-1] + bytes([nan[-1] | 0x80])
    assert _bytes(view.fill_(math.copysign(math.nan, -1))) == negative
    full = _bytes(view.fill_(largest))
    assert _bytes(view.fill_(largest * (1 + 2**-12))) == full
    before = _bytes(view)
    for beyond in (largest * 1.5, -largest * 2, 1e300) + (() if has_infinity else (math.inf,)):
        with pytest.raises(OverflowError, match=f"{name} has no number such as"):
            view.fill_(beyond)
    assert _bytes(view) == before
    if has_infinity:
        assert _bytes(view.fill_(math.inf)) != full
    zero = _bytes(view.fill_(-0.0))
    assert zero == (bytes(1) if name.endswith("fnuz") else b"\x80".rjust(len(nan), b"\0"))


def test_scales_are_powers_of_two() -> None:
    view = accelrt.zeros(1).view("float8_e8m0fnu")
    for exponent in (-127, -1, 0, 1, 127):
        assert _bytes(view.fill_(2.0**exponent)) == bytes([exponent + 127])
    assert _bytes(view.fill_(math.nan)) == b"\xff"
    for wrong in (0, 3, -1, 2.0**128, math.inf, 2.0**-128):
        with pytest.raises(OverflowError, match=r"powers of two from 2\*\*-127 to 2\*\*127, not"):
            view.fill_(wrong)


@pytest.mark.parametrize(
    ("name", "wrong", "error", "told"),
    [
        ("int8", 128, OverflowError, "value must be -128 to 127 for int8, not 128"),
        ("uint8", -1, OverflowError, "value must be 0 to 255 for uint8, not -1"),
        ("uint64", 1 << 64, OverflowError, "0 to 18446744073709551615 for uint64, not 1844674407"),
        ("int64", 1 << 200, OverflowError, "for int64, not 16069380442589902755"),
        ("int32", 1.5, TypeError, "value must be an integer for int32, not float"),
        ("int32", True, TypeError, "value must be an integer for int32, not bool"),
        ("float32", "1", TypeError, "value must be a number, not str"),
        ("float32", 1e39, OverflowError, "float32 has no number such as 1e39"),
        ("float32", 1j, TypeError, "value must be a number, not complex"),
        ("float64", 10**400, OverflowError, "too large"),
        ("complex64", "1j", TypeError, "value must be a number, not str"),
        ("complex64", 1e39j, OverflowError, "complex64 has no number such as 1e39"),
        ("bool", 2.0, TypeError, "value must be True or False, not float"),
    ],
)
def test_what_a_type_does_not_have_is_told(name: str, wrong: Any, error: Any, told: str) -> None:
    view = accelrt.zeros(16).view(name)
    with pytest.raises(error, match=told):
        view.fill_(wrong)
    assert _bytes(view) == bytes(16)


@host_cores
def test_a_released_view_is_neither_sliced_nor_written() -> None:
    buffer = accelrt.zeros(8)
    view = buffer.view("int32")
    buffer.release()
    for use, given in (("__getitem__", slice(1)), ("fill_", 1), ("copy_", bytes(8))):
        with pytest.raises(BufferError, match="was released"):
            getattr(view, use)(given)


def _would_wait(look: Callable[[], object]) -> bool:
    """Tell whether a look waits for work: inside of a callable that is refused."""
    asking = accelrt.Stream(None, dedicated=True)
    answers: list[bool] = []

    def ask() -> None:
        try:
            look()
        except RuntimeError:
            answers.append(True)
        else:
            answers.append(False)

    asking.launch_host(ask)
    asking.synchronize()
    (answer,) = answers
    return answer


@host_cores
def test_whoever_reads_others_memory_through_a_view_waits_for_what_we_write_there() -> None:
    # Goal: as of a buffer's. Method: each way to write it, behind a gate; each way to read it:
    # whether it waits is asked while the gate is closed, and it reads at once when that opens.
    stream = accelrt.Stream(None, dedicated=True)
    made: list[Callable[[], Any]] = [
        lambda: accelrt.from_dlpack(np.zeros(16, np.uint8)),
        lambda: accelrt.from_dlpack(np.zeros(16, np.uint8), copy=True),
        lambda: accelrt.as_buffer(bytearray(16)),
        lambda: accelrt.as_buffer(bytearray(32))[16:],
    ]
    written: list[Callable[[Any], object]] = [
        lambda view: view.fill_(1),
        lambda view: view.copy_(bytes([1] * 16), non_blocking=True),
        lambda view: accelrt.empty(16).fill_(1).copy_to(view, non_blocking=True),
        lambda view: stream.launch(libc.memset, view, 1, 16),
        lambda view: stream.launch(libc.memset, accelrt.writes(view), 1, 16),
    ]
    read: list[Callable[[Any], object]] = [np.asarray, np.from_dlpack, bytes]
    for make, write, look in itertools.product(made, written, read):
        view = make()
        gate = Gate(stream)
        with stream:
            write(view)
        waits = _would_wait(partial(look, view))
        gate.open()
        seen: Any = look(view)
        stream.synchronize()
        gate.close()
        assert waits
        assert bytes(seen) == bytes([1] * 16)


@host_cores
def test_others_memory_has_one_list_of_uses_with_all_of_its_slices() -> None:
    stream = accelrt.Stream(None, dedicated=True)
    whole = accelrt.as_buffer(bytearray(32))
    part = whole[8:16]
    for written, read in ((part, whole), (whole, part), (part[:4], whole[8:12])):
        gate = Gate(stream)
        with stream:
            written.fill_(1)
        waits = _would_wait(partial(np.asarray, read))
        gate.open()
        stream.synchronize()
        gate.close()
        assert waits
        assert not _would_wait(partial(np.asarray, read))


def test_an_empty_shape_may_have_extents_whose_product_no_word_holds() -> None:
    for shape in ((0, 1 << 62, 8), (1, 0, 1 << 62, 8)):
        view = accelrt.zeros(0).view("uint8", shape)
        assert view[0:0].shape == (0, *shape[1:])
        assert view.nbytes == 0
        if KIND == "cpu":
            assert memoryview(view).nbytes == 0


def _ask_for(exporter: Any, flags: int) -> None:
    """Ask by the C interface, as NumPy does; give back what was given."""
    structure = ctypes.create_string_buffer(256)
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(exporter), structure, flags)
    ctypes.pythonapi.PyBuffer_Release(structure)


@host_cores
def test_rows_are_not_given_in_the_order_of_fortran() -> None:
    in_order_of_c, in_order_of_fortran, in_any_order = 0x38, 0x58, 0x98
    table = accelrt.zeros(24).view("int32", (2, 3))
    for flags in (in_order_of_c, in_any_order):
        _ask_for(table, flags)
    with pytest.raises(BufferError, match=r"shape \[2, 3\] is in C order, not in Fortran's"):
        _ask_for(table, in_order_of_fortran)
    for alike in ((6,), (1, 6), (6, 1)):
        _ask_for(accelrt.zeros(24).view("int32", alike), in_order_of_fortran)
    _ask_for(accelrt.zeros(0).view("int32", (2, 0, 3)), in_order_of_fortran)


@host_cores
def test_whoever_may_write_others_memory_waits_for_what_we_read_there() -> None:
    # Method: an array over the memory is writable, so that who asks for it has to wait.
    stream, view = accelrt.Stream(None, dedicated=True), accelrt.as_buffer(bytearray(b"old!"))
    buffer = accelrt.empty(4)
    accelrt.accelerator.synchronize()
    gate = Gate(stream)
    with stream:
        buffer.copy_(view, non_blocking=True)
    waits = _would_wait(lambda: np.asarray(view))
    gate.open()
    np.asarray(view)[:] = list(b"new!")
    stream.synchronize()
    gate.close()
    assert waits
    assert content(buffer) == b"old!"


@host_cores  # there the view is written and read on one stream, elsewhere on two
def test_a_copy_of_others_memory_through_a_view_is_behind_what_the_stream_writes_there() -> None:
    stream = accelrt.Stream(None, dedicated=True)
    view, buffer = accelrt.from_dlpack(np.zeros(16, np.uint8)), accelrt.zeros(16)
    accelrt.accelerator.synchronize()
    gate = Gate(stream)
    with stream:
        view.fill_(1)
        buffer.copy_(view, non_blocking=True)
    assert not stream.query()
    gate.open()
    stream.synchronize()
    gate.close()
    assert content(buffer) == bytes([1] * 16)
