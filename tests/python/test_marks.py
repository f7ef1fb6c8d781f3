"""`accelrt.reads` and `writes` on arguments of a launch, read-only memory, NumPy's numbers."""

import ctypes
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import accelrt as _accelrt
from gates import libc
from kinds import host_cores

accelrt: Any = _accelrt  # arguments of wrong types are tried
pytestmark = host_cores

SIZE = 20 << 20  # a segment of its own


@pytest.fixture
def work() -> Iterator[Any]:
    """Give a stream of the test's own."""
    stream = accelrt.Stream(dedicated=True)
    yield stream
    stream.synchronize()


def test_a_mark_says_what_it_marks() -> None:
    buffer = accelrt.zeros(8)
    accelrt.accelerator.synchronize()  # a repr says whether something is to come
    for mark, access in ((accelrt.reads(buffer), "reads"), (accelrt.writes(buffer), "writes")):
        assert (mark.access, mark.memory) == (access, buffer)
        assert repr(mark) == f"accelrt.{access}({buffer!r})"
    assert accelrt.reads(b"abc").memory.readonly
    assert accelrt.reads(np.zeros(3)).memory.shape == (3,)


class Holder:
    """Memory of another library's, which tells its address alone."""

    def __init__(self, text: bytes) -> None:
        self.text = ctypes.create_string_buffer(text, len(text))

    def data_ptr(self) -> int:
        return ctypes.addressof(self.text)


@pytest.mark.parametrize("typed", [False, True])
def test_marked_memory_that_tells_its_address_alone_is_given(work: Any, typed: bool) -> None:  # noqa: FBT001
    memcpy = ctypes.CDLL(None).memcpy
    if typed:
        memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    target, source = Holder(b"none"), Holder(b"mark")
    mark = accelrt.writes(target)
    assert (mark.access, mark.memory) == ("writes", target)
    work.launch(memcpy, mark, accelrt.reads(source), 4)
    work.synchronize()
    assert target.text.raw == b"mark"


@pytest.mark.parametrize("typed", [False, True])
def test_marked_memory_is_used_as_any_other(work: Any, typed: bool) -> None:  # noqa: FBT001
    memcpy = ctypes.CDLL(None).memcpy
    if typed:
        memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    sources: list[Any] = [b"mark", np.frombuffer(b"mark", np.uint8), accelrt.as_buffer(b"mark")]
    ours = accelrt.empty(4).copy_(b"mark")
    targets: list[Any] = [accelrt.empty(4), bytearray(4), np.zeros(1, "f4"), accelrt.empty(8)[4:]]
    for source in (*sources, ours, ours.view("int32")):
        for target in (*targets, accelrt.empty(4).view("int8"), accelrt.as_buffer(bytearray(4))):
            work.launch(memcpy, accelrt.writes(target), accelrt.reads(source), 4)
            work.synchronize()
            assert bytes(accelrt.empty(4).copy_(target)) == b"mark"


@pytest.mark.accelrt_unordered
def test_read_only_memory_is_refused_unless_it_is_marked_as_read(work: Any) -> None:
    frozen = np.zeros(4, np.uint8)
    frozen.flags.writeable = False
    memcmp = ctypes.CDLL(None).memcmp
    for view in (accelrt.as_buffer(b"abcd"), accelrt.from_dlpack(frozen)):
        told = re.escape(f"4 read-only bytes at {view.data_ptr():#x}: accelrt.reads() of it")
        with pytest.raises(BufferError, match=f"^argument 2 of memcmp reads and writes {told}"):
            work.launch(memcmp, accelrt.zeros(4), view, 4)
        with pytest.raises(BufferError, match=rf"^accelrt.writes\(\): the function writes {told}"):
            accelrt.writes(view)
        work.launch(memcmp, accelrt.zeros(4), accelrt.reads(view), 4)
    typed = ctypes.CDLL(None).memcmp
    typed.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    with pytest.raises(BufferError, match="argument 1 of memcmp reads and writes 4 read-only"):
        work.launch(typed, accelrt.as_buffer(b"abcd"), b"abcd", 4)
    # Nothing was enqueued by what was refused; a part is as read-only as the whole.
    with pytest.raises(BufferError, match="2 read-only bytes"):
        work.launch(memcmp, accelrt.as_buffer(b"abcd")[2:], b"cd", 2)
    # Bytes themselves are constants, as with ctypes.
    work.launch(memcmp, accelrt.zeros(4), b"abcd", 4)


def test_what_is_no_memory_is_not_marked(work: Any) -> None:
    mark = accelrt.reads(accelrt.zeros(4))
    for wrong, told in (
        (3, "x must be an accelrt.Buffer or View, .* not int"),
        (None, "not NoneType"),
        ("text", "not str"),
        (mark, r"x is marked already: accelrt.reads\(accelrt.Buffer\(nbytes=4"),
    ):
        with pytest.raises(TypeError, match=told):
            accelrt.writes(wrong)
    with pytest.raises(ValueError, match="contiguous"):
        accelrt.reads(np.zeros(4)[::2])
    with pytest.raises(TypeError, match="must not hold Python objects"):
        accelrt.reads(np.array([None]))
    typed = ctypes.CDLL(None).abs
    typed.argtypes = [ctypes.c_int]
    with pytest.raises(TypeError, match="argument 1 of abs must be an integer, not Marked"):
        work.launch(typed, mark)


@pytest.mark.parametrize("mark", [accelrt.reads, accelrt.writes, lambda it: it.view("uint8")])
@pytest.mark.accelrt_unordered
def test_a_marked_buffer_is_freed_behind_the_launch(mark: Any) -> None:
    device = "cpu:2"
    work = accelrt.Stream(device, dedicated=True)
    buffer = accelrt.empty(SIZE, device=device)
    address = buffer.data_ptr()
    read, write = os.pipe()
    work.launch(libc.read, read, mark(buffer), 1)
    del buffer
    other = accelrt.empty(SIZE, device=device)
    assert other.data_ptr() != address, "it was freed in front of the launch"
    os.write(write, b"x")
    work.synchronize()
    later = [accelrt.empty(SIZE, device=device) for _ in range(2)]
    assert address in [it.data_ptr() for it in later]
    os.close(read)
    os.close(write)


@pytest.mark.accelrt_unordered
def test_the_host_waits_for_a_launch_that_has_a_view(work: Any) -> None:
    buffer = accelrt.zeros(4)
    buffer.stream.synchronize()
    read, write = os.pipe()
    work.launch(libc.read, read, buffer.view("int32"), 1)
    state = repr(buffer)
    os.write(write, b"x")  # before anything may fail: the stream's end is waited for
    assert state.endswith(", pending)")
    assert bytes(memoryview(buffer)) == b"x\0\0\0"
    os.close(read)
    os.close(write)


def test_a_released_buffer_is_refused_behind_a_mark(work: Any) -> None:
    buffer = accelrt.zeros(4)
    mark, view = accelrt.reads(buffer), buffer.view("int32")
    buffer.release()
    for given in (mark, view, accelrt.reads(view)):
        with pytest.raises(BufferError, match="was released"):
            work.launch(libc.abs, given)


def test_others_memory_lives_until_the_launch_that_reads_it_is_done(work: Any) -> None:
    read, write = os.pipe()
    held = bytearray(b"x")
    work.launch(libc.read, read, accelrt.writes(held), 1)
    with pytest.raises(BufferError, match="re-sized"):
        held.append(1)
    os.write(write, b"!")
    work.synchronize()
    accelrt.zeros(1)  # any call gives back what was parked
    held.append(1)
    assert held == b"!\1"
    os.close(read)
    os.close(write)


def test_numpys_numbers_are_passed_by_their_values(work: Any) -> None:
    # Method: printf's relatives read each argument as its type.
    text = ctypes.create_string_buffer(64)
    work.launch(
        libc.snprintf, text, 64, b"%.2f %ld %ld", np.float64(2.5), np.int32(-3), np.uint8(7)
    )
    work.synchronize()
    assert text.value == b"2.50 -3 7"
    work.launch(libc.snprintf, text, 64, b"%ld", np.bool_(True))
    work.synchronize()
    assert text.value == b"1"


def test_a_float32_of_numpy_is_a_float(work: Any) -> None:
    frexp: Any = ctypes.CDLL("libm.so.6").frexpf
    place = accelrt.zeros(4)
    place.stream.synchronize()
    for declared in (None, [ctypes.c_float, ctypes.c_void_p]):
        frexp.argtypes = declared
        work.launch(frexp, np.float32(48), place)
        work.synchronize()
        assert np.frombuffer(bytes(place), np.int32)[0] == 6  # 48 is 0.75 * 2**6
        place.fill_(0)
        place.stream.synchronize()
    typed = ctypes.CDLL(None).abs
    typed.argtypes = [ctypes.c_int]
    with pytest.raises(TypeError, match=r"must be an integer, not float32: give int\(\) or float"):
        work.launch(typed, np.float32(3))


@pytest.mark.parametrize(
    "number", [np.float16(1), np.complex64(1), np.longdouble(1), np.datetime64(1, "s")]
)
def test_a_number_without_a_type_of_c_gets_right_advice(work: Any, number: Any) -> None:
    name = type(number).__name__
    if isinstance(number, float):
        pytest.skip("a long double is a double here")
    with pytest.raises(TypeError, match=rf"not {name}: give int\(\) or float\(\) of it$"):
        work.launch(ctypes.CDLL(None).abs, number)
    with pytest.raises(TypeError, match=r"not ndarray: give accelrt.as_buffer\(\) of it$"):
        work.launch(ctypes.CDLL(None).abs, np.zeros((), np.float32))
