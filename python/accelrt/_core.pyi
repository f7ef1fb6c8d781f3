# Types of the native part of accelrt, written by hand and checked against it. The docstrings are the
# module's: `make stubs` brings them.

import builtins
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import (
    Any,
    Final,
    Never,
    Protocol,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

from typing_extensions import Buffer as _BytesLike
from typing_extensions import CapsuleType, disjoint_base

__all__ = [
    "__VERSION__",
    "Agreement",
    "Buffer",
    "DeviceLost",
    "DeviceProperties",
    "Event",
    "Generator",
    "Kernel",
    "Marked",
    "OutOfMemoryError",
    "Pool",
    "Program",
    "Recording",
    "ReplayFigures",
    "Stream",
    "StreamError",
    "VerboseCapture",
    "VerboseScope",
    "View",
    "accelerator_index",
    "add_oom_observer",
    "allocated_bytes",
    "as_buffer",
    "can_access_peer",
    "counters",
    "cpu_capability",
    "cudnn_version",
    "current_accelerator",
    "current_device",
    "current_stream",
    "default_generator",
    "default_stream",
    "device",
    "device_count",
    "empty",
    "empty_cache",
    "empty_host_cache",
    "empty_pinned",
    "empty_shared",
    "enter_index",
    "exchange_device",
    "exchange_inference_mode",
    "exchange_numpy_handler",
    "exit_index",
    "flag",
    "from_dlpack",
    "get_allocator_settings",
    "get_device_properties",
    "get_memory_fraction",
    "get_memory_info",
    "has_verbose_library",
    "host_memory_stats",
    "initialize",
    "is_inference_mode_enabled",
    "is_initialized",
    "kernel_address",
    "kind_index",
    "kind_names",
    "left_out_devices",
    "manual_seed",
    "manual_seed_all",
    "manual_seed_device",
    "memory_snapshot",
    "memory_stats",
    "mkl_allocator",
    "openmp_library",
    "parse_bytes",
    "reads",
    "remove_oom_observer",
    "reserved_bytes",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_allocator_settings",
    "set_memory_fraction",
    "set_stream",
    "settings",
    "shared_memory_stats",
    "shut_down",
    "synchronize",
    "unavailable_reason",
    "use_mkl_allocator",
    "verbose_level",
    "verbose_library_version",
    "writes",
    "zeros",
]

__VERSION__: Final[str]

# Inside classes that have a `device` themselves.
_Device: TypeAlias = device
_DeviceArgument: TypeAlias = device | str | int | None
_Filled = TypeVar("_Filled", Buffer, View)

class _HasAddress(Protocol):
    def data_ptr(self) -> int: ...

class _HasDlpack(Protocol):
    # Methods of any signature: makers differ in it.
    @property
    def __dlpack__(self) -> Callable[..., object]: ...
    @property
    def __dlpack_device__(self) -> Callable[..., tuple[Any, int]]: ...

class DeviceLost(RuntimeError):
    """The device is gone for good; only a new process can use it again."""

class OutOfMemoryError(RuntimeError):
    """The device, or the limit set on it, has no room for the request.

    `requested_bytes` were asked for; `allocated_bytes` were handed out, `reserved_bytes` taken from the
    device, `limit_bytes` may be taken, and a request like it could have had `largest_bytes` in one
    piece: all of one moment. None is what is not known.
    """

    requested_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    limit_bytes: int | None
    largest_bytes: int | None

class StreamError(RuntimeError):
    """Work on a stream failed; the cause is in `__cause__`, the failure of each stream in `errors`.

    `device` and `stream_id` name the stream, `stream` is it while it exists. `ticket` is the number of
    the task that failed there, `skipped` how many tasks behind it did not run. When several streams
    failed these are the first one's.
    """

    errors: list[StreamError]
    device: _Device | None
    stream_id: int | None
    ticket: int | None
    skipped: int | None
    @property
    def stream(self) -> Stream | None:
        """The stream that failed, while it exists; None in another process."""

@final
class device:
    """A device by name: a kind and, optionally, an index from 0 to 127.

    Whether it exists is checked where it is used. As a context manager it is the current device of
    its kind, and its kind the one that `accelrt.Stream`, `empty` and their like use in this thread.
    The innermost `with` of a device, an index or a stream decides.

    >>> import accelrt
    >>> accelrt.device("cpu:0").index
    0
    >>> accelrt.device("cpu") == accelrt.device("cpu:0")
    False
    """

    def __new__(cls, type: _Device | str | int, index: int | None = None) -> Self: ...
    @property
    def type(self) -> str:
        """The kind: `"cpu"`, `"cuda"`, `"xpu"` or that of a kind from outside."""
    @property
    def index(self) -> int | None:
        """The index, or None when the name has none."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: builtins.type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...

@final
class DeviceProperties:
    """What a device is."""

    @property
    def name(self) -> str:
        """The maker's name."""
    @property
    def total_memory(self) -> int:
        """Capacity in bytes."""
    @property
    def core_count(self) -> int:
        """Cores that this process may use; multiprocessors on a GPU."""
    @property
    def cache_bytes(self) -> list[int]:
        """Data caches in bytes from level 1 up, per instance."""
    @property
    def page_bytes(self) -> int:
        """Size of a page in bytes."""
    @property
    def huge_page_bytes(self) -> int | None:
        """Size of a huge page in bytes, or None."""
    @property
    def is_gpu(self) -> bool:
        """True for GPUs."""
    @property
    def has_shared_memory(self) -> bool:
        """True when there is memory that the device and the host both reach."""
    @property
    def has_bfloat16_conversions(self) -> bool:
        """True when the device converts numbers from and to bfloat16 by instructions of its own."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@disjoint_base
class Stream:
    """In-order work on one device.

    `Stream(device=None, priority=0, *, dedicated=False)` takes the next stream of the device's pool
    of 32, or one of its own. `Stream(stream_id, device_index, device_type)` finds an
    existing one again. As a context manager it is the current stream, and its device the current
    device, of this thread.

    Who takes more streams of a pool than it has gets some again, or those of others: they share the
    order of their tasks and its errors, which the first of them to synchronize ends.

    >>> import accelrt
    >>> stream = accelrt.Stream()
    >>> with stream:
    ...     accelrt.accelerator.current_stream() == stream
    True
    """

    @overload
    def __new__(
        cls, device: _DeviceArgument = None, priority: int = 0, *, dedicated: bool = False
    ) -> Self: ...
    @overload
    def __new__(cls, stream_id: int, device_index: int, device_type: int) -> Self: ...
    @property
    def stream_id(self) -> int:
        """Unique on its device, never reused; 0 is the default stream."""
    @property
    def device_index(self) -> int:
        """Index of the stream's device."""
    @property
    def device_type(self) -> int:
        """torch's code of the device's type: cpu 0, cuda 1, xpu 12."""
    @property
    def device(self) -> _Device:
        """The stream's device."""
    @property
    def priority(self) -> int:
        """The priority; a smaller number goes first."""
    @property
    def native_handle(self) -> int:
        """The driver's handle as an integer; `RuntimeError` on kinds without one."""
    @staticmethod
    def priority_range(device: _DeviceArgument = None) -> tuple[int, int]:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument.
        To declare a static method, use this idiom:

             class C:
                 @staticmethod
                 def f(arg1, arg2, argN):
                     ...

        It can be called either on the class (e.g. C.f()) or on an instance
        (e.g. C().f()). Both the class and the instance are ignored, and
        neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++.
        For a more advanced concept, see the classmethod builtin.
        """
    def query(self) -> bool:
        """True when everything enqueued is done. Does not block."""
    def is_capturing(self) -> bool:
        """False: streams are not captured into graphs."""
    def synchronize(self) -> None:
        """Blocks, without the GIL, until everything enqueued so far is done; raises and ends the
        stream's error.
        """
    def wait_event(self, event: Event) -> None:
        """What is enqueued from now on runs after everything before the event's latest record. Does
        not block.
        """
    def wait_stream(self, stream: Stream) -> None:
        """What is enqueued from now on runs after everything enqueued on `stream` so far. Does not
        block.
        """
    def record_event(self, event: Event | None = None) -> Event:
        """Records an event, by default a new one without timing, and returns it. Does not block."""
    def launch(
        self,
        function: object,
        *args: object,
        check: bool = False,
        global_size: int | Sequence[int] | None = None,
        local_size: int | Sequence[int] | None = None,
    ) -> None:
        """Enqueues a call of a native function, which a worker makes without the GIL, or a kernel of a
        `Program`, which the device runs. Does not block.

        `function` is a function of ctypes or cffi, a `numba.cfunc`, or an address. Declared types
        (ctypes: `argtypes`, read at each launch) check and convert the arguments; without them an
        int is an `int64_t` (from 2**63 on a `uint64_t`), a bool 0 or 1, a float a `double`, None a
        null pointer; NumPy's numbers go by their values, `float32` as a `float`; objects of ctypes and
        cffi go by their types, bytes and what has `data_ptr()` or `_as_parameter_` as pointers, kept
        alive until the task is done. Memory counts as read and written unless `accelrt.reads` or
        `accelrt.writes` mark it; what is read-only is refused unless it is marked with `reads`. The
        result is ignored; with `check=True` it is a 32-bit status, and one other than 0 fails the
        stream. As with ctypes, a wrong signature or address is undefined behaviour.

        A kernel runs `global_size` times, an int or up to three; in groups of `local_size`, or as
        the driver chooses. Pointers are buffers, their views, None, `ctypes.c_void_p` and what has
        `__sycl_usm_array_interface__`; numbers are checked against the declared types, and where a
        binary declares none go as values of ctypes; local memory is a size in bytes.

        >>> import accelrt, ctypes
        >>> libc, stream = ctypes.CDLL(None), accelrt.Stream()
        >>> text = ctypes.create_string_buffer(4)
        >>> stream.launch(libc.memset, text, ord("x"), ctypes.c_size_t(3))
        >>> stream.synchronize()
        >>> text.value
        b'xxx'
        """
    def launch_host(self, callable: Callable[..., object], *args: object) -> None:
        """Enqueues a call of a Python callable. Does not block.

        One helper thread of the process calls it, in stream order, with this stream and its device
        as the current ones; its result is ignored. What it raises fails the stream, as `__cause__`
        of the `StreamError`. It may enqueue, and read what is done; a wait for unfinished work
        raises.

        >>> import accelrt
        >>> stream, seen = accelrt.Stream(), []
        >>> stream.launch_host(seen.append, 1)
        >>> stream.synchronize()
        >>> seen
        [1]
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: builtins.type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...

@disjoint_base
class Event:
    """A mark that streams record, wait for and query.

    `Event(device=None, *, enable_timing=False, blocking=False, interprocess=False)`, or the flags
    by their places: `Event(True)` is timed. One that was never recorded counts as done. A wait
    binds to the record that is the latest at that moment. Of `device` only the kind counts: the
    first record gives the index. `blocking` and `interprocess` are accepted and change nothing.

    >>> import accelrt
    >>> start, end = accelrt.Event(enable_timing=True), accelrt.Event(enable_timing=True)
    >>> start.record(); end.record(); end.synchronize()
    >>> start.elapsed_time(end) >= 0
    True
    """

    @overload
    def __new__(
        cls,
        device: _DeviceArgument = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> Self: ...
    @overload
    def __new__(
        cls, enable_timing: bool, blocking: bool = False, interprocess: bool = False
    ) -> Self: ...
    @property
    def device(self) -> _Device:
        """The device of the latest record; without an index before the first."""
    @property
    def event_id(self) -> int:
        """Names this event while it lives; 0 before the first record."""
    def record(self, stream: Stream | None = None) -> None:
        """Records behind everything enqueued on `stream`, by default the current one. Does not block."""
    def wait(self, stream: Stream | None = None) -> None:
        """Makes `stream`, by default the current one, wait for the latest record. Does not block."""
    def query(self) -> bool:
        """True when everything before the latest record is done, also when it failed."""
    def synchronize(self) -> None:
        """Blocks, without the GIL, until everything before the latest record is done; raises the error
        it is failed with.
        """
    def elapsed_time(self, other: Event) -> float:
        """Milliseconds from this event's record to the other's."""
    def ipc_handle(self) -> Never:
        """Not supported, as in torch."""
    @classmethod
    def from_ipc_handle(cls, device: _Device | str | int, handle: bytes) -> Never:
        """Not supported, as in torch."""

@final
class Generator:
    """A generator of random numbers: Philox 4x32-10, the same bits on every kind of device.

    It fills buffers of its device's kind on their current streams. Any thread may use it at any
    time: each call gets numbers that no other one gets. Copies and pickles keep the state.

    >>> import accelrt
    >>> generator = accelrt.Generator("cpu").manual_seed(0)
    >>> hex(generator.random_raw(1)[0])
    '0xe169c58d6627e8d5'
    >>> buffer = generator.fill_uniform_(accelrt.empty(16, device="cpu"), "float32")
    >>> all(0 <= number < 1 for number in memoryview(buffer).cast("f"))
    True
    """

    def __new__(cls, device: _DeviceArgument = None) -> Self: ...
    @property
    def device(self) -> _Device:
        """The device that it was made for."""
    def manual_seed(self, seed: int) -> Self:
        """Goes to the beginning of a seed's sequence; returns this generator. A seed is -2^63 to
        2^64 - 1, and a negative one stands for itself plus 2^64.
        """
    def seed(self) -> int:
        """Seeds with an unpredictable number, and returns that number."""
    def initial_seed(self) -> int:
        """The seed in force."""
    def get_state(self) -> bytes:
        """Seed and offset as 16 bytes, for `set_state`."""
    def set_state(self, state: _BytesLike) -> Self:
        """Goes to where `get_state` was called; returns this generator. Takes any object with the
        buffer protocol.
        """
    def clone_state(self) -> Generator:
        """Another generator in the same state, which goes its own way from here on."""
    def get_offset(self) -> int:
        """How many words of 32 bits were used, in multiples of 4."""
    def set_offset(self, offset: int) -> Self:
        """Goes to another place of the same sequence: a multiple of 4 up to 2^64 - 4. Returns this
        generator.
        """
    def random_raw(self, n: int) -> list[int]:
        """The next `n` numbers of 64 bits, as a list: those that `fill_raw_` with "uint64" would
        write.
        """
    def fill_raw_(self, buffer: _Filled, dtype: object) -> _Filled:
        """Fills a buffer, or a view of one, with raw numbers of the type "uint32" or "uint64", which a
        view has to be of: integers as wide, or bytes. Returns it. Does not block; the first fill on
        a device other than the cpu compiles a program.
        """
    def fill_uniform_(self, buffer: _Filled, dtype: object) -> _Filled:
        """As `fill_raw_`, with uniform numbers from 0, inclusive, to 1, exclusive, of the type
        "float32" or "float64".
        """
    def fill_normal_(self, buffer: _Filled, dtype: object) -> _Filled:
        """As `fill_raw_`, with normal numbers of mean 0 and variance 1, of the type "float32" or
        "float64".
        """
    def __reduce__(self) -> tuple[builtins.type[Self], tuple[_Device], tuple[int, int, bytes]]: ...
    def __setstate__(self, state: tuple[int, int, bytes]) -> None: ...

@final
class Program:
    """Kernels compiled for a device, by default the current xpu device.

    `source` is OpenCL C, or SPIR-V as bytes; `options` are the compiler's. Blocks, without the GIL;
    a `RuntimeError` has the compiler's words.

    >>> import accelrt
    >>> text = "kernel void add(global int* numbers, int number)"
    >>> text += "{ numbers[get_global_id(0)] += number; }"
    >>> if accelrt.xpu.is_available():
    ...     add = accelrt.xpu.Program(text).kernel("add")
    ...     numbers, stream = accelrt.zeros(8, device="xpu"), accelrt.xpu.current_stream()
    ...     stream.launch(add, numbers, 3, global_size=2)
    ...     result = bytearray(8)
    ...     numbers.copy_to(result)
    ...     assert memoryview(result).cast("i").tolist() == [3, 3]
    """

    def __new__(
        cls, source: str | bytes, options: str = "", *, device: _DeviceArgument = None
    ) -> Self: ...
    @property
    def device(self) -> _Device:
        """The device that it was compiled for."""
    @property
    def kernel_names(self) -> list[str]:
        """The names of its kernels."""
    def kernel(self, name: str) -> Kernel:
        """One of its kernels; `ValueError` when there is none of this name."""

@final
class Kernel:
    """One function of a program, for `Stream.launch`."""

    @property
    def name(self) -> str:
        """Its name in the program."""
    @property
    def __name__(self) -> str:
        """As `name`."""
    @property
    def device(self) -> _Device:
        """The device that it was compiled for."""
    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Type and name of each parameter; empty where the program does not tell."""

@final
class Buffer:
    r"""Memory on a device, freed in stream order.

    Slices share the memory and keep it alive; it goes back behind everything that uses it when the
    last of them is gone, or with `release()`. On the cpu it has the buffer protocol: asking for the
    bytes waits for the work that uses them.

    >>> import accelrt
    >>> buffer = accelrt.zeros(8)
    >>> buffer[2:4].copy_(b"ab").nbytes
    2
    >>> bytes(buffer)
    b'\x00\x00ab\x00\x00\x00\x00'
    """

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
    @property
    def device(self) -> _Device:
        """The device of the memory; of pinned host memory the one that it was made for."""
    @property
    def stream(self) -> Stream:
        """The stream that was current when the memory was made."""
    def data_ptr(self) -> int:
        """Address of the first byte, 0 without memory. Does not wait: tasks may be writing there."""
    @property
    def _version(self) -> int:
        """How often the memory was written by `copy_`, `fill_` and `copy_to`, through this buffer and
        those that share its version: slices, views and `detach()`. What kernels, native functions
        and holders of the bytes write is not seen. `RuntimeError` for what inference mode made.

        >>> import accelrt
        >>> buffer = accelrt.zeros(8)
        >>> buffer[:4].fill_(1)._version, buffer._version, buffer.data._version
        (1, 1, 0)
        """
    @property
    def data(self) -> Buffer:
        """The same memory with a version of its own, which begins with 0. A buffer that is assigned
        lends its memory to this one, whose version stays.
        """
    @data.setter
    def data(self, other: Buffer, /) -> None: ...
    def detach(self) -> Buffer:
        """The same memory, with the same version from now on."""
    def is_inference(self) -> bool:
        """True for memory that was made in inference mode."""
    def copy_(self, source: _BytesLike | _HasDlpack, non_blocking: bool = False) -> Self:
        """Copies another buffer or view, or the bytes of an object with the buffer protocol or DLPack,
        of the same size into this one; returns this one. Runs on the current stream of this
        buffer's device; blocks, without the GIL, for this copy alone.
        """
    def copy_to(self, target: _BytesLike | _HasDlpack, non_blocking: bool = False) -> None:
        """Copies this buffer into another one or a view, or into a writable object with the buffer
        protocol or DLPack, of the same size. Runs on the current stream of the target's device, or
        of this buffer's where the target is the host; blocks, without the GIL, for this copy alone.
        """
    def fill_(self, byte: int) -> Self:
        """Sets every byte, on the current stream of this buffer's device; returns this buffer. Does
        not block.
        """
    def clone(self) -> Buffer:
        r"""A buffer of its own with the same bytes, in memory of the same kind on the same device. The
        copy is a task of that device's current stream; does not block.

        >>> import accelrt
        >>> bytes(accelrt.empty(2).fill_(7).clone())
        b'\x07\x07'
        """
    def __deepcopy__(self, memo: object, /) -> Buffer:
        """As `clone`: what shares memory before does not afterwards."""
    def __enter__(self) -> Self:
        """`with` frees the memory at its end as `release` does, behind the work that uses it.

        >>> import accelrt
        >>> with accelrt.zeros(8) as buffer:
        ...     _ = buffer.fill_(1)
        >>> buffer
        accelrt.Buffer(nbytes=8, device='cpu:0', released)
        """
    def __exit__(
        self,
        kind: builtins.type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def release(self) -> None:
        """Frees the memory now, behind the work that uses it: all of it, also from a slice, which
        shares it. `BufferError` while others have the bytes.
        """
    def record_stream(self, stream: Stream) -> None:
        """Tells that everything enqueued on `stream` so far may use the memory. Does not block."""
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """What NumPy asks for when `memoryview` failed, whose error it drops: raises that error."""
    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """As that of a view, of the bytes; only on xpu. A release is not refused for it."""
    def view(self, dtype: object, shape: int | Sequence[int] | None = None) -> View:
        """A typed view of the memory that keeps it alive; `dtype` is NumPy's dtype or its name.
        Without a shape it has one dimension; an extent of -1 follows from the others. Copies take
        views as they take buffers.
        """
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A DLPack capsule over the bytes; see `View.__dlpack__`."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """Type and index of the device as DLPack has them."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> Buffer: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...
        def __release_buffer__(self, buffer: memoryview, /) -> None: ...

@final
class View:
    """Memory with a type and a shape, contiguous in C's order: of a buffer, or of another library's
    object. It keeps its owner alive.

    It speaks DLPack and, on the cpu, the buffer protocol and NumPy's array interface; each of them
    waits for the work that uses the memory. `Buffer.copy_` and `copy_to` take it as they take the
    buffer.

    >>> import accelrt
    >>> view = accelrt.zeros(24).view("float32", (2, 3))
    >>> memoryview(view).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    @property
    def dtype(self) -> str:
        """The name of the elements' type: NumPy's, or that of bfloat16 and of the floats of 8 bits,
        whose bytes are what NumPy and the buffer protocol see.
        """
    @property
    def shape(self) -> tuple[int, ...]:
        """How many elements there are in each dimension."""
    @property
    def nbytes(self) -> int:
        """Size in bytes."""
    @property
    def device(self) -> _Device:
        """The device of the memory."""
    @property
    def readonly(self) -> bool:
        """True when the memory may not be written."""
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """What NumPy asks for. While this view lives its buffer cannot be released from here on."""
    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """What libraries over SYCL ask for; only on xpu. It waits for the work that uses the memory,
        and while this view lives its buffer cannot be released from here on.
        """
    def data_ptr(self) -> int:
        """Address of the first byte. Does not wait: tasks may be writing there."""
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A DLPack capsule over the memory. Versioned when `max_version` is (1, 0) or later; read-only
        memory needs that. `stream` is None or -1 on the cpu.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """Type and index of the device as DLPack has them."""
    def copy_(self, source: _BytesLike | _HasDlpack, non_blocking: bool = False) -> Self:
        """Copies a buffer or view, or the bytes of an object with the buffer protocol or DLPack, of
        the same size into this view; returns it. Bytes are copied as they are: a source that names
        another type of elements is refused. Runs on the current stream of the device; blocks,
        without the GIL, for this copy alone.
        """
    def fill_(self, value: complex | SupportsIndex) -> Self:
        """Sets every element to a number, rounded to the nearest that its type has, on the current
        stream of the device; returns this view. Does not block. `OverflowError` for what the type
        does not have.

        >>> import accelrt
        >>> memoryview(accelrt.empty(8).view("float32").fill_(1.5)).tolist()
        [1.5, 1.5]
        """
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> View: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...
        def __release_buffer__(self, buffer: memoryview, /) -> None: ...

@final
class Marked:
    """An argument of `Stream.launch` with the use of its memory, as `accelrt.reads` and
    `accelrt.writes` return it.

    >>> import accelrt
    >>> mark = accelrt.reads(accelrt.zeros(8))
    >>> mark.access, mark.memory.nbytes
    ('reads', 8)
    """

    @property
    def memory(self) -> object:
        """What was marked."""
    @property
    def access(self) -> str:
        """ "reads" or "writes"."""

def reads(x: _BytesLike | _HasAddress) -> Marked:
    """Marks an argument of `Stream.launch`: the function only reads its memory. Takes a buffer, a
    view, an object with the buffer protocol, or one with `data_ptr()`. What is not marked counts as
    read and written, and read-only memory is given to a function by this mark alone.

    >>> import accelrt, ctypes
    >>> libc, buffer = ctypes.CDLL(None), accelrt.empty(4)
    >>> stream = accelrt.Stream()
    >>> stream.launch(libc.memcpy, accelrt.writes(buffer), accelrt.reads(b"text"), 4)
    >>> stream.synchronize()
    >>> bytes(buffer)
    b'text'
    """

def writes(x: _BytesLike | _HasAddress) -> Marked:
    """Marks an argument of `Stream.launch`: the function writes its memory, and reads nothing of what
    was there. Takes what `reads` takes; `BufferError` for read-only memory.
    """

def as_buffer(obj: object) -> View:
    """A typed view of the bytes of an object with the buffer protocol, without a copy. Elements of
    types that no view has are bytes; the exporter's error for memory that is not contiguous.

    >>> import accelrt, array
    >>> view = accelrt.as_buffer(array.array("d", [1, 2, 3]))
    >>> view.dtype, view.shape
    ('float64', (3,))
    """

def from_dlpack(
    x: _HasDlpack | CapsuleType, *, readonly: bool | None = None, copy: bool | None = None
) -> View:
    """A typed view of the memory of an object with DLPack, or of its capsule. `BufferError` for memory
    of devices other than cpu and xpu, and for types of elements that no view has; a capsule that
    was refused may be used elsewhere.

    `copy=None` copies only memory that is not contiguous, True always, False never. What comes
    without a version is read-only, because it may be a constant: `readonly=False` asks to
    write, which is refused where the lender says that it is read-only.

    >>> import accelrt
    >>> accelrt.from_dlpack(accelrt.zeros(8).view("int32")).shape
    (2,)
    """

def empty(nbytes: int, *, device: _DeviceArgument = None, alignment: int | None = None) -> Buffer:
    """Memory with unspecified contents, on a device: by default that of the innermost
    `with device(…)`, else the current one. Aligned to 512 bytes, or to `alignment`, a power of two
    up to 2 MiB. Waits for memory that is being freed when
    there is too little and that would be enough; `OutOfMemoryError` otherwise.

    >>> import accelrt
    >>> accelrt.empty(1024, device="cpu:0")
    accelrt.Buffer(nbytes=1024, device='cpu:0', done)
    >>> accelrt.empty(1024, alignment=1 << 20).data_ptr() % (1 << 20)
    0
    """

def zeros(nbytes: int, *, device: _DeviceArgument = None, alignment: int | None = None) -> Buffer:
    r"""As `empty`, filled with zeros by a task of the current stream.

    >>> import accelrt
    >>> bytes(accelrt.zeros(3))
    b'\x00\x00\x00'
    """

def empty_pinned(nbytes: int) -> Buffer:
    """Host memory that the accelerator's devices reach directly.

    >>> import accelrt
    >>> accelrt.empty_pinned(4096).nbytes
    4096
    """

def empty_shared(nbytes: int, *, device: _DeviceArgument = None) -> Buffer:
    r"""As `empty`, of memory that the device and the host both reach: the buffer protocol, NumPy and
    `__array_interface__` have it on every kind, after the work that uses it. It counts against the
    device's memory, and `shared_memory_stats` counts it. `TypeError` where the device has none.

    >>> import accelrt
    >>> bytes(accelrt.empty_shared(2).fill_(7))
    b'\x07\x07'
    """

def parse_bytes(text: str) -> int | None:
    """What a size with or without a unit means, as `256M`; None when it means nothing."""

def kernel_address(name: str) -> int:
    """Address of a native kernel of ours, for `Stream.launch`."""

def current_accelerator() -> device:
    """The kind of the current accelerator, as a device without index."""

def default_generator(kind: str, index: int) -> Generator:
    """The default generator of a device. Initialises nothing."""

def kind_names() -> list[str]:
    """The names of the registered kinds."""

def device_count(kind: str) -> int:
    """How many devices of a kind there are."""

def unavailable_reason(kind: str) -> str | None:
    """Why a kind has no device here; None when it has."""

def left_out_devices(kind: str) -> list[tuple[str, str]]:
    """Name and reason of each device of a kind that is there and cannot be used."""

def is_initialized() -> bool:
    """True when something was used that needed a device."""

def initialize(kind: str) -> None:
    """Makes the current device of a kind ready, which its first use would do."""

def current_device(kind: str) -> int:
    """Index of the current device of a kind in this thread."""

def exchange_device(kind: str, index: int) -> int:
    """Makes a device current in this thread; the index that was. A negative index changes nothing."""

def flag(name: str, value: bool) -> bool:
    """The flag that an argument of the facade is."""

def enter_index(kind: str, index: int) -> None:
    """Begins a `with` of a device's index; a negative one changes nothing."""

def exit_index(kind: str, index: int) -> None:
    """Ends the innermost `with` of a device's index."""

def can_access_peer(kind: str, index: int, peer: int) -> bool:
    """True when a device reaches the memory of another, `peer`, which may be itself: the cpu devices
    share the machine's, and OpenCL tells of no other that they do.
    """

def current_stream(kind: str, index: int) -> Stream:
    """The current stream of a device in this thread."""

def default_stream(kind: str, index: int) -> Stream:
    """The stream of a device that is current where none was made so."""

def set_stream(stream: Stream) -> None:
    """Makes a stream current, and its device, in this thread."""

def synchronize(kind: str, index: int) -> None:
    """Blocks, without the GIL, until all streams of a device are done; raises and ends their errors."""

def get_memory_info(kind: str, index: int) -> tuple[int, int]:
    """Free and total bytes of a device."""

def get_device_properties(kind: str, index: int) -> DeviceProperties:
    """What a device is."""

def accelerator_index(device: _DeviceArgument, optional: bool) -> int:
    """The index meant by an argument of `accelrt.accelerator`; `None` means the current device where
    `optional`.
    """

def kind_index(kind: str, device: _DeviceArgument, optional: bool) -> int:
    """The index meant by an argument of the module of a kind."""

def memory_stats(kind: str, index: int) -> dict[str, int]:
    """What the allocator of a device counts, by flat keys in sorted order."""

def allocated_bytes(kind: str, index: int) -> tuple[int, int]:
    """The bytes of blocks that were handed out, now and at the peak. Leaves threads what they keep."""

def reserved_bytes(kind: str, index: int) -> tuple[int, int]:
    """The bytes that were taken from the device, now and at the peak. Leaves threads what they keep."""

def shared_memory_stats(kind: str, index: int) -> dict[str, int]:
    """The same of memory that the device shares with the host."""

def host_memory_stats(kind: str) -> dict[str, int | float | list[int]]:
    """What the cache of pinned memory of a kind counts, by flat keys in sorted order."""

def reset_peak_memory_stats(kind: str, index: int) -> None:
    """Makes every peak of a device the current value, also those of memory that it shares."""

def reset_accumulated_memory_stats(kind: str, index: int) -> None:
    """Makes every sum and every count of a device zero, also those of memory that it shares."""

def manual_seed(seed: int) -> None:
    """Seeds the default generators of every device. Initialises nothing."""

def manual_seed_all(kind: str, seed: int) -> None:
    """Seeds the default generators of every device of a kind. Initialises nothing."""

def manual_seed_device(kind: str, index: int, seed: int) -> None:
    """Seeds the default generator of one device, which need not exist. Initialises nothing."""

def memory_snapshot(kind: str) -> list[dict[str, Any]]:
    """The segments of a kind's devices, as torch's snapshots have them."""

def empty_cache(kind: str) -> None:
    """Waits, without the GIL, until no stream uses free memory of a kind's devices, and gives it back."""

def empty_host_cache(kind: str) -> None:
    """The same for pinned memory."""

def get_memory_fraction(kind: str, index: int) -> float:
    """The part of a device's memory that may be reserved."""

def set_memory_fraction(kind: str, index: int, fraction: float) -> None:
    """Limits what may be reserved of a device's memory."""

def get_allocator_settings() -> str:
    """The settings of all allocators, as they were given."""

def set_allocator_settings(settings: str) -> list[tuple[str, str]]:
    """Serves the next requests by other settings; the keys that have no effect, with the reasons."""

def add_oom_observer(observer: Callable[[str, int, int, int, int], object]) -> int:
    """Calls `observer(kind, index, requested_bytes, limit_bytes, free_bytes)` when a request fails for
    want of memory; the number ends it. What it raises goes to `sys.unraisablehook`, and of requests
    that fail inside of an observer none is told.
    """

def remove_oom_observer(id: int) -> None:
    """Ends an observer."""

def counters() -> dict[str, int]:
    """How often something happened since the start."""

def settings() -> dict[str, str | int | None]:
    """The settings in force."""

def shut_down() -> None:
    """Ends the runtime at interpreter exit; what was lost is printed."""

@final
class Recording:
    """What one device was asked for, and its snapshot where there is one."""

    @staticmethod
    def of_operations(operations: Sequence[tuple[bool, int, int, int]]) -> Recording:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument.
        To declare a static method, use this idiom:

             class C:
                 @staticmethod
                 def f(arg1, arg2, argN):
                     ...

        It can be called either on the class (e.g. C.f()) or on an instance
        (e.g. C().f()). Both the class and the instance are ignored, and
        neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++.
        For a more advanced concept, see the classmethod builtin.
        """
    @staticmethod
    def of_snapshot(segments: list[dict[str, Any]], trace: list[dict[str, Any]]) -> Recording:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument.
        To declare a static method, use this idiom:

             class C:
                 @staticmethod
                 def f(arg1, arg2, argN):
                     ...

        It can be called either on the class (e.g. C.f()) or on an instance
        (e.g. C().f()). Both the class and the instance are ignored, and
        neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++.
        For a more advanced concept, see the classmethod builtin.
        """
    @staticmethod
    def settings(text: str) -> str:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument.
        To declare a static method, use this idiom:

             class C:
                 @staticmethod
                 def f(arg1, arg2, argN):
                     ...

        It can be called either on the class (e.g. C.f()) or on an instance
        (e.g. C().f()). Both the class and the instance are ignored, and
        neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++.
        For a more advanced concept, see the classmethod builtin.
        """
    def operations(self) -> list[tuple[bool, int, int, int]]:
        """The events, as `of_operations` takes them; a free has no size and no stream."""
    def replay(
        self, settings: str, capacity_bytes: int, granularity_bytes: int, rounds: int = 1
    ) -> ReplayFigures:
        """Replays the events against an empty allocator that has numbers instead of memory; the
        figures of the last of several `rounds`.
        """
    def replay_on_device(self, settings: str) -> ReplayFigures:
        """Replays the events against an empty allocator on this thread's current device, with memory
        that buffers do not have meanwhile.
        """
    def check(self, settings: str) -> Agreement:
        """Replays the trace of a snapshot from the layout that it began with, and compares."""

@final
class ReplayFigures:
    """What a replay showed."""

    @property
    def events(self) -> int: ...
    @property
    def peak_live_bytes(self) -> int: ...
    @property
    def peak_reserved_bytes(self) -> int: ...
    @property
    def page_operations(self) -> int: ...
    @property
    def ns_per_event(self) -> float: ...
    @property
    def failed_at(self) -> int | None: ...
    @property
    def granularity_bytes(self) -> int: ...

@final
class Agreement:
    """How far a replay agrees with what was recorded: what agrees, of how many."""

    @property
    def addresses(self) -> tuple[int, int]: ...
    @property
    def layouts(self) -> tuple[int, int]: ...
    @property
    def first_difference(self) -> str | None: ...

@final
class Pool:
    """A private pool of a device."""

    def __new__(cls, kind: str, index: int, use_on_oom: bool, no_split: bool) -> Self: ...
    @property
    def id(self) -> tuple[int, int]:
        """Its name in snapshots."""
    def snapshot(self) -> list[dict[str, Any]]:
        """Its segments, as torch's snapshots have them."""
    def enter(self) -> None:
        """Serves this thread's requests until `exit`."""
    def exit(self) -> None:
        """Ends `enter`."""

@final
class VerboseCapture:
    """Keeps what a library prints until `end`."""

    def __new__(cls, library: str) -> Self: ...
    def lines(self) -> list[str]:
        """The lines so far."""
    def end(self) -> list[str]:
        """Keeps no more; the lines, at the first call."""

@final
class VerboseScope:
    """A verbose level that is in force until `leave`."""

    def __new__(cls, library: str, level: int) -> Self: ...
    def leave(self) -> None:
        """Brings the level below back."""
    @staticmethod
    def lost_by_restoring(library: str) -> str | None:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument.
        To declare a static method, use this idiom:

             class C:
                 @staticmethod
                 def f(arg1, arg2, argN):
                     ...

        It can be called either on the class (e.g. C.f()) or on an instance
        (e.g. C().f()). Both the class and the instance are ignored, and
        neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++.
        For a more advanced concept, see the classmethod builtin.
        """

def exchange_inference_mode(is_enabled: bool) -> bool:
    """Has new buffers of this thread have a version, or none; what was so before."""

def is_inference_mode_enabled() -> bool:
    """True where new buffers have no version."""

def exchange_numpy_handler(handler: object = None) -> object:
    """Makes `handler` the one that new arrays of this context get their memory from, by default
    accelrt's; the one that was.
    """

def verbose_level(library: str, name: str, level: int) -> int:
    """The verbose level that an argument is."""

def has_verbose_library(library: str) -> bool:
    """True when a library is in the process or can be loaded."""

def verbose_library_version(library: str) -> str:
    """The version of a library, which is searched for; fails where there is none."""

def mkl_allocator() -> str:
    """The name of the allocator that oneMKL gets its memory from."""

def use_mkl_allocator(name: str) -> str:
    """Makes an allocator the one that oneMKL gets its memory from; the name of the one that was."""

def cudnn_version() -> int | None:
    """The version of cuDNN as one number; None where there is none."""

def openmp_library() -> str | None:
    """The file of an OpenMP runtime; None where there is none."""

def cpu_capability() -> str:
    """The widest vector instructions, in torch's words."""
