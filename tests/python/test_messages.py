"""Goal: the message of a wrong input names what was given and what is allowed, word for word.

Method: whole messages are compared, so that nobody changes one by accident. What is about devices
is in `test_device`, what about settings in `test_errors`.
"""

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import accelrt
from kinds import KIND
from processes import output_of

untyped: Any = accelrt
libc = ctypes.CDLL(None)
UNDECLARED = (
    "an int, bool, float, None, bytes, Buffer or View, an object of ctypes or cffi, or have "
    "data_ptr() or _as_parameter_"
)
LEGAL_STREAMS = "ids are given out by this runtime and never reused"
FORMS = (
    "it is Stream(device=None, priority=0, *, dedicated=False) or "
    "Stream(stream_id, device_index, device_type)"
)
EXPORTER = "must be an accelrt.Buffer or have the buffer protocol or DLPack, not"
OVERLAP = "Cannot copy 4 bytes from offset {} to offset {} of one allocation: the ranges overlap"
DTYPES = (
    "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, "
    "complex64, complex128, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, "
    "float8_e5m2fnuz, float8_e8m0fnu"
)


def buffer(nbytes: int = 8) -> Any:
    """Return a buffer whose arguments may have wrong types."""
    return accelrt.zeros(nbytes)


def overlapping(target: int, source: int) -> None:
    """Copy between two places of one buffer."""
    whole = buffer()
    whole[target : target + 4].copy_(whole[source : source + 4])


def launch(*arguments: Any, **named: Any) -> None:
    """Launch on a stream of its own."""
    untyped.Stream().launch(*arguments, **named)


def declared_memset() -> Any:
    """Return a function that declares its types."""
    memset = ctypes.CDLL(None).memset
    memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    return memset


MESSAGES: list[tuple[Callable[[], object], type[Exception], str]] = [
    # Copies that are unequal or overlap.
    (
        lambda: buffer().copy_(bytes(9)),
        ValueError,
        "Cannot copy 9 bytes into 8: the sizes must be equal",
    ),
    (
        lambda: buffer().copy_to(bytearray(7), non_blocking=True),
        ValueError,
        "Cannot copy 8 bytes into 7: the sizes must be equal",
    ),
    (
        lambda: buffer().copy_(buffer(5)[1:]),
        ValueError,
        "Cannot copy 4 bytes into 8: the sizes must be equal",
    ),
    (lambda: overlapping(0, 2), ValueError, OVERLAP.format(2, 0)),
    (lambda: overlapping(3, 0), ValueError, OVERLAP.format(0, 3)),
    (lambda: overlapping(1, 1), ValueError, OVERLAP.format(1, 1)),
    (
        lambda: (whole := untyped.zeros(8, device="cpu")).copy_(np.asarray(whole)),
        ValueError,
        "Cannot copy between a buffer and memory that it overlaps",
    ),
    (
        lambda: buffer().copy_to(bytes(8)),
        BufferError,
        "target (bytes): Object is not writable.",
    ),
    (
        lambda: buffer().copy_to(np.zeros(16, "u1")[::2]),
        ValueError,
        "target (ndarray): ndarray is not C-contiguous",
    ),
    (
        lambda: untyped.as_buffer(np.zeros(16, "u1")[::2]),
        ValueError,
        "obj (ndarray): ndarray is not C-contiguous",
    ),
    (lambda: buffer().copy_(3), TypeError, f"source {EXPORTER} int"),
    (lambda: buffer().copy_to(None), TypeError, f"target {EXPORTER} NoneType"),
    # Parts, sizes and bytes out of range.
    (lambda: buffer()[::-1], ValueError, "a Buffer is sliced with step 1, not -1"),
    (lambda: buffer()[9], TypeError, "a Buffer's index must be a slice, not int"),
    (lambda: buffer().fill_(-1), ValueError, "byte must be 0 to 255, not -1"),
    (lambda: buffer().fill_(b"a"), TypeError, "byte must be an integer, not bytes"),
    (
        lambda: untyped.empty(-1),
        ValueError,
        "nbytes must be 0 or more and fit an address, not -1",
    ),
    (lambda: untyped.zeros(4.5), TypeError, "nbytes must be an integer, not float"),
    (lambda: untyped.empty_pinned("x"), TypeError, "nbytes must be an integer, not str"),
    # Types and shapes.
    (
        lambda: buffer().view("float99"),
        TypeError,
        f"dtype must be one of {DTYPES}, not float99",
    ),
    (
        lambda: buffer().view(None),
        TypeError,
        "dtype must be a NumPy dtype or its name, not NoneType",
    ),
    (
        lambda: buffer().view("int32", (3,)),
        ValueError,
        "shape [3] of int32 has 12 bytes, not 8",
    ),
    (
        lambda: buffer().view("int8", (3, -1)),
        ValueError,
        "shape [3, -1] of int8 has a multiple of 3 bytes, not 8",
    ),
    (
        lambda: buffer()[:7].view("int16"),
        ValueError,
        "7 bytes are no whole number of int16 elements",
    ),
    (
        lambda: buffer()[1:].view("uint8").__dlpack__(stream=1),
        AssertionError,
        f"stream should be None on {KIND}.",
    ),
    (
        lambda: untyped.from_dlpack(3),
        TypeError,
        "x must have DLPack or be its capsule, not int",
    ),
    (
        lambda: untyped.as_buffer(3),
        TypeError,
        "obj must have the buffer protocol, not int",
    ),
    # Streams and devices that are not there.
    (
        lambda: untyped.Stream(10**6, 1, 0),
        RuntimeError,
        f"Device cpu:1 has no stream with id 1000000: {LEGAL_STREAMS}",
    ),
    (
        lambda: untyped.Stream(-3, 1, 0),
        RuntimeError,
        "Device cpu:1 has no stream with id -3: ids are not negative",
    ),
    (
        lambda: untyped.Stream(priority=None),
        TypeError,
        "priority must be an integer, not NoneType",
    ),
    (lambda: untyped.Stream(stream_id=0), TypeError, f"device_index is missing: {FORMS}"),
    (lambda: untyped.Stream(1, 2, 3, 4), TypeError, f"too many arguments: {FORMS}"),
    (
        lambda: untyped.empty(4, device="cpu:9"),
        RuntimeError,
        "Device cpu:9 does not exist: there are 3 cpu devices, indices 0 to 2",
    ),
    (
        lambda: untyped.accelerator.get_memory_info("cuda:0"),
        ValueError,
        f"cuda doesn't match the current accelerator {KIND}.",
    ),
    (
        lambda: untyped.cpu.synchronize("xpu"),
        ValueError,
        "Expected a cpu device, but got: xpu",
    ),
    (
        lambda: buffer().record_stream("cpu"),
        TypeError,
        "stream must be an accelrt.Stream, not str",
    ),
    (
        lambda: untyped.Stream(1, -1, 0),
        RuntimeError,
        "Device index must not be negative: -1",
    ),
    (
        lambda: untyped.Event("cpu:5"),
        RuntimeError,
        "Device cpu:5 does not exist: there are 3 cpu devices, indices 0 to 2",
    ),
    # Arguments of native functions.
    (
        lambda: launch(libc.memset, np.zeros(8, "u1"), 1, 8),
        TypeError,
        f"argument 1 of memset must be {UNDECLARED}, not ndarray: give accelrt.as_buffer() of it",
    ),
    (
        lambda: launch(libc.abs, np.float16(1)),
        TypeError,
        f"argument 1 of abs must be {UNDECLARED}, not float16: give int() or float() of it",
    ),
    (
        lambda: launch(libc.abs, "x"),
        TypeError,
        f"argument 1 of abs must be {UNDECLARED}, not str",
    ),
    (
        lambda: launch(libc.abs, 2**64),
        OverflowError,
        f"argument 1 of abs does not fit into 64 bits: {2**64}",
    ),
    (
        lambda: launch(declared_memset(), bytearray(8), 1, 8),
        TypeError,
        "argument 1 of memset must be c_void_p, not bytearray: give accelrt.as_buffer() of it",
    ),
    (
        lambda: launch(declared_memset(), 1.5, 1, 8),
        TypeError,
        "argument 1 of memset must be c_void_p, not float",
    ),
    # Parameters of a launch.
    (
        launch,
        TypeError,
        "Stream.launch() missing 1 required positional argument: 'function'",
    ),
    (
        lambda: launch(libc.abs, 1, chek=True),
        TypeError,
        "Stream.launch() got an unexpected keyword argument 'chek'",
    ),
    (
        lambda: launch(libc.abs, function=libc.abs),
        TypeError,
        "Stream.launch() got multiple values for argument 'function'",
    ),
    (
        lambda: untyped.Stream().launch_host(None),
        TypeError,
        "callable must be callable, not NoneType",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), MESSAGES)
def test_a_message_says_what_was_given_and_what_is_allowed(
    call: Callable[[], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$") as raised:
        call()
    assert type(raised.value) is kind


def test_a_view_that_would_be_askew_is_told_where_it_begins() -> None:
    whole = buffer()
    expected = f"the buffer begins at {whole.data_ptr() + 2:#x}, and int32 is aligned to 4 bytes"
    with pytest.raises(ValueError, match=f"^{expected}$"):
        whole[2:6].view("int32")


NOTE_ON_STATUS = "check=True takes what the function returns for a status: 0 is success"


def test_a_status_is_told_with_the_name_of_the_function() -> None:
    stream = accelrt.Stream("cpu", dedicated=True)
    stream.launch(libc.abs, -3, check=True)
    expected = (
        r"^Stream \d+ on cpu:0 failed: the native function abs at 0x[0-9a-f]+ returned status 3$"
    )
    with pytest.raises(accelrt.StreamError) as raised:
        stream.synchronize()
    assert re.match(expected, str(raised.value))
    assert raised.value.__notes__ == [NOTE_ON_STATUS]


def test_each_of_several_statuses_has_the_note() -> None:
    for stream in (accelrt.Stream("cpu", dedicated=True), accelrt.Stream("cpu", dedicated=True)):
        stream.launch(libc.abs, -3, check=True)
    with pytest.raises(accelrt.StreamError) as raised:
        accelrt.cpu.synchronize()
    assert [each.__notes__ for each in raised.value.errors] == [[NOTE_ON_STATUS]] * 2


def test_one_device_is_told_in_the_singular() -> None:
    code = """
        import accelrt
        try:
            accelrt.empty(1, device="cpu:1")
        except RuntimeError as error:
            print(error)
    """
    expected = "Device cpu:1 does not exist: there is 1 cpu device, index 0\n"
    assert output_of(code) == expected


USES: dict[str, Callable[[Any], object]] = {
    "data_ptr": lambda gone: gone.data_ptr(),
    "fill_": lambda gone: gone.fill_(1),
    "copy_": lambda gone: gone.copy_(bytes(8)),
    "copy_ from it": lambda gone: buffer().copy_(gone),
    "copy_to": lambda gone: gone.copy_to(bytearray(8)),
    "copy_to it": lambda gone: buffer().copy_to(gone),
    "memoryview": memoryview,
    "slice": lambda gone: gone[:2],
    "view": lambda gone: gone.view("int8"),
    "__dlpack__": lambda gone: gone.__dlpack__(),
    "__array_interface__": lambda gone: gone.__array_interface__,
    "numpy": np.asarray,
    "record_stream": lambda gone: gone.record_stream(accelrt.Stream()),
    "launch": lambda gone: accelrt.Stream().launch(1, gone),
}


@pytest.mark.parametrize("name", USES)
def test_a_use_after_the_release_names_the_buffer(name: str) -> None:
    gone = accelrt.empty(8, device="cpu:1")
    address = gone.data_ptr()
    gone.release()
    expected = f"Buffer of 8 B at {address:#x} on cpu:1 was released"
    with pytest.raises(BufferError, match=f"^{re.escape(expected)}$"):
        USES[name](gone)


def test_a_refused_release_counts_the_exports() -> None:
    lent = accelrt.empty(8, device="cpu")
    views = [memoryview(lent), memoryview(lent[2:])]
    expected = (
        f"Buffer of 8 B at {lent.data_ptr():#x} on cpu:0 cannot be released: "
        f"{len(views)} exports of its memory exist"
    )
    with pytest.raises(BufferError, match=f"^{re.escape(expected)}$"):
        lent.release()


@pytest.mark.accelrt_unordered
def test_a_request_that_is_too_big_says_what_there_is() -> None:
    expected = (
        rf"{KIND.upper()} out of memory\. Tried to allocate .* GiB\. "
        rf"{KIND}:0 has a total capacity of .* of which .* is free\. "
        r"The allocator has reserved .* are free, "
        r"(with what is left to take )?at most .* in one piece for such a request\."
    )
    with pytest.raises(accelrt.OutOfMemoryError, match=f"^{expected}$"):
        accelrt.empty((1 << 60) - 1)


def test_each_of_several_statuses_is_told_with_the_name_of_its_function() -> None:
    for stream in (accelrt.Stream("cpu", dedicated=True), accelrt.Stream("cpu", dedicated=True)):
        stream.launch(libc.abs, -3, check=True)
    told = "the native function abs at 0x"
    with pytest.raises(accelrt.StreamError, match=told) as raised:
        accelrt.cpu.synchronize()
    assert [told in str(each) for each in raised.value.errors] == [True, True]
