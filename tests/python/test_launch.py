"""Goal: native functions run in stream order, with the arguments that were given, without the GIL.

Method: functions of the C library write to memory that the test looks at after a synchronise.
Nothing is decided by time: what must still run waits for a pipe or a semaphore that the test holds.
"""

import ctypes
import ctypes.util
import gc
import inspect
import os
import signal
import textwrap
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import accelrt
from gates import Gate, libc
from kinds import host_cores
from processes import run

pytestmark = host_cores

Function = Any  # of ctypes, whose type is private

libm = ctypes.CDLL(ctypes.util.find_library("m"))
MEMSET = ctypes.cast(libc.memset, ctypes.c_void_p).value or 0


def stream() -> accelrt.Stream:
    return accelrt.Stream(dedicated=True)


@pytest.fixture
def typed_memset() -> Function:
    function = ctypes.CDLL(None).memset
    function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    function.restype = ctypes.c_void_p
    return function


def test_an_address_a_ctypes_function_and_a_typed_one_are_called(typed_memset: Function) -> None:
    work = stream()
    for function in (MEMSET, libc.memset, typed_memset):
        text = ctypes.create_string_buffer(8)
        work.launch(function, text, ord("a"), 7)
        work.synchronize()
        assert text.value == b"a" * 7


def test_floats_go_where_the_convention_has_them() -> None:
    work = stream()
    declared = libm.frexp
    declared.argtypes = [ctypes.c_double, ctypes.POINTER(ctypes.c_int)]
    exponent = ctypes.c_int()
    work.launch(declared, 12.0, ctypes.byref(exponent))
    work.synchronize()
    assert exponent.value == 4
    declared.argtypes = None  # type: ignore[assignment]  # read at each launch
    work.launch(declared, 3.0, ctypes.byref(exponent))
    work.synchronize()
    assert exponent.value == 2
    whole = ctypes.c_float()
    work.launch(libm.modff, ctypes.c_float(2.5), ctypes.byref(whole))
    work.synchronize()
    assert whole.value == 2.0


def test_a_declared_double_takes_an_int() -> None:
    modf = ctypes.CDLL(libm._name).modf
    modf.argtypes = [ctypes.c_double, ctypes.c_void_p]
    whole, work = ctypes.c_double(), stream()
    work.launch(modf, 7, ctypes.byref(whole))
    work.synchronize()
    assert whole.value == 7.0


def test_more_arguments_than_registers_arrive() -> None:
    text, work = ctypes.create_string_buffer(64), stream()
    work.launch(
        libc.snprintf, text, 64, b"%d %d %d %d %d %d %d", 1, 2, 3, 4, 5, 6, ctypes.c_int16(-7)
    )
    work.synchronize()
    assert text.value == b"1 2 3 4 5 6 -7"
    with pytest.raises(TypeError, match="at most 32 arguments: 33"):
        work.launch(libc.abs, *range(33))


def test_integers_are_64_bits_of_either_sign() -> None:
    text, work = ctypes.create_string_buffer(128), stream()
    work.launch(libc.snprintf, text, 128, b"%ld %lu %d", -(2**63), 2**64 - 1, True)
    work.synchronize()
    assert text.value == b"-9223372036854775808 18446744073709551615 1"
    for value in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError, match="argument 1 of abs"):
            work.launch(libc.abs, value)


def test_declared_types_check_count_range_and_type(typed_memset: Function) -> None:
    work = stream()
    text = ctypes.create_string_buffer(4)
    with pytest.raises(TypeError, match="memset takes 3 arguments by its declared types, 2 were"):
        work.launch(typed_memset, text, 1)
    with pytest.raises(OverflowError, match="argument 2 of memset does not fit into 32 bits"):
        work.launch(typed_memset, text, 2**31, 1)
    with pytest.raises(OverflowError, match=r"argument 3 .* 64 bits without a sign"):
        work.launch(typed_memset, text, 1, -1)
    with pytest.raises(TypeError, match="argument 2 of memset must be an integer, not str"):
        work.launch(typed_memset, text, "1", 1)
    with pytest.raises(TypeError, match="argument 1 of memset"):
        work.launch(typed_memset, 1.5, 1, 1)
    work.launch(typed_memset, text, ctypes.c_int(0x41), ctypes.c_size_t(3))
    work.synchronize()
    assert text.value == b"AAA"


def test_argtypes_that_are_set_again_count() -> None:
    function, work = ctypes.CDLL(None).abs, stream()
    types = [ctypes.c_int]
    function.argtypes = types
    work.launch(function, 1)
    types.append(ctypes.c_int)
    function.argtypes = types
    work.launch(function, 1, 2)
    with pytest.raises(TypeError, match="takes 2 arguments"):
        work.launch(function, 1)
    work.synchronize()


def test_argtypes_that_are_changed_in_place_count() -> None:
    function, work = ctypes.CDLL(None).abs, stream()
    types: list[type] = [ctypes.c_int]
    function.argtypes = types
    work.launch(function, 1)
    types[0] = ctypes.c_uint8
    with pytest.raises(OverflowError, match="8 bits without a sign"):
        work.launch(function, 256)
    function.argtypes = None  # type: ignore[assignment]  # read at each launch
    work.launch(function, 256, 2)
    work.synchronize()


INTEGERS = (
    *(ctypes.c_byte, ctypes.c_short, ctypes.c_int, ctypes.c_long),
    *(ctypes.c_ubyte, ctypes.c_ushort, ctypes.c_uint, ctypes.c_ulong),
)


@pytest.mark.parametrize("kind", INTEGERS)
def test_declared_integers_have_the_bounds_of_their_type(kind: Function) -> None:
    bits, is_signed = 8 * ctypes.sizeof(kind), kind(-1).value < 0
    least, greatest = (-1 << bits - 1, (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    work, function = stream(), ctypes.CDLL(None).abs
    function.argtypes = (kind,)
    for value in (least, greatest):
        work.launch(function, value)
    for value in (least - 1, greatest + 1):
        with pytest.raises(OverflowError):
            work.launch(function, value)
    work.synchronize()


def test_a_class_may_have_argtypes_of_its_own() -> None:
    class Function(ctypes._CFuncPtr):  # type: ignore[name-defined,misc]
        _flags_ = 1  # the convention of C
        _restype_ = ctypes.c_int
        declared: tuple[type, ...] = ()
        argtypes = property(lambda self: self.declared)

    function, work = Function(("abs", ctypes.CDLL(None))), stream()
    work.launch(function)
    function.declared = (ctypes.c_int,)
    work.launch(function, 1)
    with pytest.raises(TypeError, match="takes 1 arguments"):
        work.launch(function)
    work.synchronize()


def test_a_known_function_takes_and_refuses_what_an_unknown_one_does(
    typed_memset: Function,
) -> None:
    work, declared = stream(), ctypes.CDLL(None).abs
    declared.argtypes = (ctypes.c_int,)
    for _ in range(2):
        for taken in (-1, True, np.int8(3), ctypes.c_int(4)):
            work.launch(declared, taken)
        for wrong in (2**31, 2**64, -(2**31) - 1):
            with pytest.raises(OverflowError, match="argument 1 of abs does not fit into 32 bits"):
                work.launch(declared, wrong)
        for other in (1.0, "1", None):
            with pytest.raises(TypeError, match="argument 1 of abs must be an integer"):
                work.launch(declared, other)
        with pytest.raises(TypeError, match="takes 1 arguments by its declared types, 0 were"):
            work.launch(declared)
        with pytest.raises(TypeError, match="argument 1 of memset"):
            work.launch(typed_memset, 1.5, 1, 1)
    work.synchronize()


def test_numbers_of_a_known_function_arrive() -> None:
    work, text = stream(), ctypes.create_string_buffer(64)
    at = ctypes.addressof(text)
    form = ctypes.create_string_buffer(b"%d")
    frexp = ctypes.CDLL(libm._name).frexp
    for number in (-5, 2**31 - 1):
        work.launch(libc.sprintf, at, ctypes.addressof(form), number)
        work.synchronize()
        assert text.value == b"%d" % number
    exponent = ctypes.c_int()
    for value, expected in ((12.0, 4), (3.0, 2)):
        work.launch(frexp, value, ctypes.addressof(exponent))
        work.synchronize()
        assert exponent.value == expected


def test_the_function_may_be_given_by_its_name() -> None:
    work = stream()
    work.launch(function=libc.rand, check=False)
    work.synchronize()
    signature = inspect.signature(work.launch)
    assert (
        str(signature)
        == "(function, *args, check=False, blocking=False, global_size=None, local_size=None)"
    )


class Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_int))


def test_structures_go_by_pointer_only() -> None:
    work, pair = stream(), Pair(0, 0)
    work.launch(libc.memset, ctypes.byref(pair, 4), 1, 4)
    work.synchronize()
    assert (pair.first, pair.second) == (0, 0x01010101)
    with pytest.raises(TypeError, match="byref"):
        work.launch(libc.memset, pair, 1, 4)


class WithPointer:
    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(8)

    def data_ptr(self) -> int:
        return ctypes.addressof(self.memory)


class AsParameter:
    def __init__(self, value: object) -> None:
        self._as_parameter_ = value


def test_objects_with_a_pointer_are_pointers(typed_memset: Function) -> None:
    work, owner = stream(), WithPointer()
    for function in (libc.memset, typed_memset):
        work.launch(function, owner, AsParameter(ord("z")), 7)
        work.synchronize()
        assert owner.memory.value == b"z" * 7
        owner.memory.value = b""
    pointer = ctypes.cast(owner.memory, ctypes.POINTER(ctypes.c_char))
    work.launch(libc.memset, pointer, ord("y"), 7)
    work.synchronize()
    assert owner.memory.value == b"y" * 7


def test_what_is_pointed_to_lives_until_the_task_is_done() -> None:
    work = stream()
    gate, owner = Gate(work), WithPointer()
    alive = weakref.ref(owner)
    work.launch(libc.memset, owner, 1, 8)
    del owner
    gc.collect()
    assert alive() is not None
    gate.open()
    work.synchronize()
    work.launch(libc.abs, 1)  # a binding call collects what workers dropped
    work.synchronize()
    assert alive() is None


def test_what_is_pointed_to_goes_when_the_stream_failed() -> None:
    work, owner = stream(), WithPointer()
    alive = weakref.ref(owner)
    gate = Gate(work)
    work.launch(libc.abs, 1, check=True)
    work.launch(libc.memset, owner, 1, 8)
    gate.open()
    with pytest.raises(accelrt.StreamError):
        work.synchronize()
    assert bytes(owner.memory) == bytes(8)
    del owner
    work.launch(libc.abs, 1)
    assert alive() is None


def test_a_checked_status_fails_the_stream() -> None:
    work = stream()
    work.launch(libc.abs, 0, check=True)
    work.synchronize()
    work.launch(libc.abs, -3, check=True)
    with pytest.raises(accelrt.StreamError, match="returned status 3"):
        work.synchronize()
    work.synchronize()
    work.launch(libc.abs, -3)
    work.synchronize()
    function = ctypes.CDLL(None).abs
    function.restype = None
    with pytest.raises(TypeError, match="restype is None"):
        work.launch(function, 1, check=True)


def test_a_native_task_runs_while_a_python_thread_holds_the_gil() -> None:
    # A function of PyDLL waits, with the GIL held, for a byte that only the worker writes.
    work = stream()
    read, write = os.pipe()
    with_gil = ctypes.PyDLL(None).read
    byte = ctypes.create_string_buffer(1)
    gate = Gate(work)
    work.launch(libc.write, write, b"!", 1)
    os.write(gate.write, b"x")
    assert with_gil(read, byte, 1) == 1
    assert byte.raw == b"!"
    work.synchronize()


def test_a_native_task_does_not_hold_the_gil() -> None:
    work = stream()
    gate = Gate(work)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(1))
    thread.start()
    thread.join()
    assert seen
    assert not work.query()
    gate.open()
    work.synchronize()


def test_events_order_native_tasks_of_two_streams() -> None:
    first, second = stream(), stream()
    text = ctypes.create_string_buffer(4)
    gate = Gate(first)
    first.launch(libc.memset, text, ord("a"), 3)
    second.wait_event(first.record_event())
    second.launch(libc.memset, text, ord("b"), 2)
    assert text.value == b""
    gate.open()
    second.synchronize()
    assert text.value == b"bba"


def test_a_native_function_that_crashes_says_so() -> None:
    # Goal: who prints where a program fell hears of a fault on a worker. Method: a process of its
    # own that writes to an address where nothing is.
    code = """
        import ctypes, faulthandler
        import accelrt

        faulthandler.enable()
        stream = accelrt.Stream()
        stream.launch(ctypes.CDLL(None).memset, ctypes.c_void_p(8), 0, ctypes.c_size_t(1))
        stream.synchronize()
    """
    ended = run("-c", textwrap.dedent(code))
    assert ended.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in ended.stderr


def test_functions_that_need_the_gil_are_refused() -> None:
    work = stream()
    with pytest.raises(TypeError, match=r"PyDLL.*launch_host"):
        work.launch(ctypes.pythonapi.Py_IncRef, 0)
    callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)
    with pytest.raises(TypeError, match=r"callback.*launch_host"):
        work.launch(callback)
    with pytest.raises(TypeError, match="argument 4 of qsort: a ctypes callback"):
        work.launch(libc.qsort, None, 0, 0, callback)
    with pytest.raises(TypeError, match="launch_host"):
        work.launch(len, [])
    for wrong in ("abs", None, 1.5, True):
        with pytest.raises(TypeError, match="function must be the address"):
            work.launch(wrong)
    with pytest.raises(ValueError, match="null"):
        work.launch(0)
    with pytest.raises(OverflowError):
        work.launch(-1)


def test_arguments_that_c_does_not_have_are_refused() -> None:
    work = stream()
    for wrong in ("text", object(), [1], {}, ctypes.py_object(1)):
        with pytest.raises(TypeError, match="argument 1 of abs"):
            work.launch(libc.abs, wrong)


def test_a_plain_prototype_of_an_address_is_called() -> None:
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    text, work = ctypes.create_string_buffer(4), stream()
    work.launch(prototype(MEMSET), text, 0x42, 3)
    work.synchronize()
    assert text.value == b"BBB"


def test_functions_of_cffi_are_called_with_their_types() -> None:
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    ffi.cdef("void *memset(void *, int, size_t); double modf(double, double *); int atoi(char *);")
    ffi.cdef("int printf(const char *, ...);")
    library, maths = ffi.dlopen(None), ffi.dlopen(libm._name)
    work, text, whole = stream(), ffi.new("char[4]"), ffi.new("double *")
    work.launch(library.memset, text, ord("c"), 3)
    work.launch(maths.modf, 5, whole)  # an int for a declared double
    work.synchronize()
    assert ffi.string(text) == b"ccc"
    assert whole[0] == 5.0
    work.launch(library.atoi, b"5", check=True)
    with pytest.raises(accelrt.StreamError, match="status 5"):
        work.synchronize()
    with pytest.raises(TypeError, match="takes 3 arguments"):
        work.launch(library.memset, text)
    with pytest.raises(TypeError, match="variable number"):
        work.launch(library.printf, b"")
    with pytest.raises(TypeError, match="cffi callback"):
        work.launch(ffi.callback("int(int)", lambda number: number), 1)
    with pytest.raises(TypeError, match="not cffi's char"):
        work.launch(text)
    kept = ffi.new("char[]", 4)
    gate = Gate(work)
    work.launch(libc.memset, kept, ffi.cast("int", 0x44), 3)
    gate.open()
    work.synchronize()
    assert ffi.string(kept) == b"DDD"


def test_a_bool_of_cffi_is_0_or_1() -> None:
    # Method: the C library's function writes what it is given.
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    ffi.cdef("void *memset(void *, _Bool, size_t);")
    work, text = stream(), ffi.new("char[4]")
    for given, byte in ((2, b"\1"), (0, b"\0"), (256, b"\1"), ("", b"\0"), ([0], b"\1")):
        work.launch(ffi.dlopen(None).memset, text, given, 4)
        work.synchronize()
        assert ffi.buffer(text)[:] == byte * 4, given


def test_numba_cfuncs_are_called() -> None:
    numba = pytest.importorskip("numba")

    @numba.cfunc("void(CPointer(float64), int64, float64)")  # type: ignore[untyped-decorator]
    def scale(values: Any, count: int, factor: float) -> None:
        for index in range(count):
            values[index] *= factor

    values, work = (ctypes.c_double * 3)(1, 2, 3), stream()
    work.launch(scale, values, 3, 2)
    work.synchronize()
    assert list(values) == [2.0, 4.0, 6.0]
    with pytest.raises(TypeError, match="takes 3 arguments"):
        work.launch(scale, values)


def test_arrays_of_numpy_go_by_their_ctypes() -> None:
    numpy = pytest.importorskip("numpy")
    values, work = numpy.zeros(4, dtype=numpy.uint8), stream()
    work.launch(libc.memset, values.ctypes, numpy.int64(7), 4)
    work.synchronize()
    assert values.tolist() == [7] * 4


def test_many_threads_launch_on_one_stream() -> None:
    work, counter = stream(), ctypes.c_int()
    add = ctypes.CDLL(None).memset

    def produce() -> None:
        for _ in range(2000):
            work.launch(add, ctypes.byref(counter), 1, 4)

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work.synchronize()
    assert counter.value == 0x01010101
