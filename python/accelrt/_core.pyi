# Types of the native part of accelrt, written by hand and checked against it. The docstrings are the
# module's: `make stubs` brings them.

import builtins
import os
from asyncio import Future as _Future
from collections.abc import Callable, Sequence
from collections.abc import Generator as _Generator
from os import PathLike
from types import GenericAlias, TracebackType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    Never,
    Protocol,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    Unpack,
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
    "DeviceUse",
    "Event",
    "Generator",
    "HostCall",
    "Kernel",
    "KeyAverage",
    "LongWait",
    "Marked",
    "OpenAccess",
    "OpenRange",
    "OrderWatch",
    "OutOfMemoryError",
    "Pool",
    "Profile",
    "Program",
    "Recording",
    "ReplayFigures",
    "ReplayMinimum",
    "ReplaySurvey",
    "ReplayTimeline",
    "Stream",
    "StreamError",
    "StreamUse",
    "TableError",
    "Trace",
    "VerboseCapture",
    "VerboseLogReader",
    "VerboseParser",
    "VerboseScope",
    "View",
    "accelerator_index",
    "add_oom_observer",
    "add_reclaimer",
    "allocated_bytes",
    "allocated_bytes_of_all",
    "as_buffer",
    "begin_host_access",
    "begin_profiled_range",
    "can_access_peer",
    "counters",
    "cpu_capability",
    "cudnn_version",
    "current_accelerator",
    "current_device",
    "current_memory_tag",
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
    "end_faults",
    "end_schedule",
    "enter_index",
    "enter_memory_tag",
    "exchange_device",
    "exchange_inference_mode",
    "exchange_numpy_handler",
    "exit_index",
    "exit_memory_tag",
    "find_pickle_fault",
    "findings_flag",
    "finish_streams",
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
    "is_only_holder",
    "kernel_address",
    "keys_of_shared_memory",
    "kind_index",
    "kind_names",
    "left_out_devices",
    "load_kind",
    "manual_seed",
    "manual_seed_all",
    "manual_seed_device",
    "memory_kind",
    "memory_snapshot",
    "memory_stats",
    "memory_uses",
    "mkl_allocator",
    "must_not_wait",
    "openmp_library",
    "ordered",
    "parse_bytes",
    "prepare_faults",
    "process_order_watch",
    "reads",
    "remove_oom_observer",
    "remove_reclaimer",
    "reserved_bytes",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_allocator_settings",
    "set_memory_fraction",
    "set_stream",
    "settings",
    "shared_memory_stats",
    "shut_down",
    "start_faults",
    "start_memory_history",
    "start_schedule",
    "stop_memory_history",
    "synchronize",
    "take_memory_snapshot",
    "tell_findings",
    "unavailable_reason",
    "use_mkl_allocator",
    "verbose_level",
    "verbose_library_version",
    "work_state",
    "writes",
    "zeros",
]

__VERSION__: Final[str]
_C_API: Final[CapsuleType]

# Inside classes that have a `device` themselves.
_Device: TypeAlias = device
_DeviceArgument: TypeAlias = device | str | int | None
_Filled = TypeVar("_Filled", Buffer, View)

_Key = TypeVar("_Key")
_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")

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

    `requested_bytes` is the size of the request, `allocated_bytes` the size of all allocated blocks,
    `reserved_bytes` the memory taken from the device, `limit_bytes` the most that may be taken, and
    `largest_bytes` the largest free block for such a request. An unknown size is None.
    """

    requested_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    limit_bytes: int | None
    largest_bytes: int | None

class StreamError(RuntimeError):
    """Work on a stream failed; the cause is in `__cause__`, the failure of each stream in `errors`.

    `device` and `stream_id` name the failed stream; `stream` is the stream while it exists. `ticket` is
    the number of the failed task, `skipped` the number of later tasks that did not run. When several
    streams failed, these attributes describe the first one.
    """

    device: _Device | None
    stream_id: int | None
    ticket: int | None
    skipped: int | None
    @property
    def errors(self) -> list[StreamError]:
        """The failure of each stream; the error itself if one stream failed."""
    @property
    def stream(self) -> Stream | None:
        """The failed stream while it exists; None in another process."""

@final
class device:
    """A device by name: a kind and, optionally, an index from 0 to 127.

    Each use checks that the device exists; the constructor does not. Inside a `with`, the device is
    this thread's current device of its kind, and the default device of `accelrt.Stream`, `empty`
    and similar functions. The innermost `with` of a device, an index or a stream applies.

    >>> import accelrt
    >>> accelrt.device("cpu:0").index
    0
    >>> accelrt.device("cpu") == accelrt.device("cpu:0")
    False
    """

    def __new__(cls, type: _Device | str | int, index: int | None = None) -> Self: ...
    @property
    def type(self) -> str:
        """The kind: `"cpu"`, `"cuda"`, `"xpu"` or the name of a registered kind."""
    @property
    def index(self) -> int | None:
        """The index, or None for a kind only."""
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
    """The name, capacity and features of a device."""

    @property
    def name(self) -> str:
        """The vendor's name."""
    @property
    def total_memory(self) -> int:
        """Capacity in bytes."""
    @property
    def core_count(self) -> int:
        """The number of cores that this process may use; on a GPU, of multiprocessors."""
    @property
    def cache_bytes(self) -> list[int]:
        """The size in bytes of one data cache of each level, from level 1 up."""
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
        """True when the device and the host can share memory."""
    @property
    def has_bfloat16_conversions(self) -> bool:
        """True when the device has instructions for conversions from and to bfloat16."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@disjoint_base
class Stream:
    """In-order work on one device.

    `Stream(device=None, priority=0, *, dedicated=False)` takes the next of the 32 pooled streams of
    the device and the priority, or creates a dedicated one.
    `Stream(stream_id, device_index, device_type)` finds an existing stream. Inside a `with`, the
    stream is this thread's current stream, and its device is the current device.

    `await stream` waits in asyncio, as `synchronize` does. In asyncio a `with` belongs to the task.

    A smaller `priority` runs first; one outside of `priority_range` becomes the nearest one in it.

    A process that takes more than 32 streams of a device and a priority gets earlier ones again.
    Users of the same stream share its task order and its errors; the first `synchronize` raises and
    clears the errors.

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
        """The id, unique on its device and never reused; 0 is the default stream."""
    @property
    def device_index(self) -> int:
        """Index of the stream's device."""
    @property
    def device_type(self) -> int:
        """torch's code of the device type: cpu 0, cuda 1, xpu 12."""
    @property
    def device(self) -> _Device:
        """The device that executes the stream's work."""
    @property
    def priority(self) -> int:
        """The priority; a smaller number runs first."""
    @property
    def native_handle(self) -> int:
        """The driver's handle as an integer; `RuntimeError` on kinds without one."""
    @staticmethod
    def priority_range(device: _DeviceArgument = None) -> tuple[int, int]:
        """`(least, greatest)` priorities of a device's streams."""
    def query(self) -> bool:
        """True when all enqueued work is done. Does not block."""
    def is_capturing(self) -> bool:
        """False: streams are not captured into graphs."""
    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks, without the GIL, until all work enqueued before this call is done; raises and clears
        the stream's error.

        After `timeout` seconds raises `TimeoutError`: the work goes on, and the stream keeps its
        error. None waits without a limit.
        """
    def __await__(self) -> _Generator[_Future[None]]: ...
    def wait_event(self, event: Event) -> None:
        """Makes later work on this stream wait for the work before the event's latest record. Does not
        block.
        """
    def wait_stream(self, stream: Stream) -> None:
        """Makes later work on this stream wait for all work enqueued on `stream` before this call.
        Blocks only while more than `ACCELRT_STREAM_TASKS` tasks are queued on one of the streams.
        """
    def record_event(self, event: Event | None = None) -> Event:
        """Records an event, by default a new one without timing, and returns it. Blocks only
        while more than `ACCELRT_STREAM_TASKS` tasks are queued.
        """
    def launch(
        self,
        function: object,
        *args: object,
        check: bool = False,
        blocking: bool = False,
        global_size: int | Sequence[int] | None = None,
        local_size: int | Sequence[int] | None = None,
    ) -> None:
        """Enqueues a call of a native function or a launch of a `Program`'s kernel. Blocks only while more
        than `ACCELRT_STREAM_TASKS` tasks are queued. The stream calls the function without the GIL.

        `function` is a function of ctypes or cffi, a `numba.cfunc`, or an address. Declared types
        (ctypes: `argtypes`, read at each launch) check and convert the arguments. Without declared
        types, an int is passed as `int64_t` (from 2**63 on as `uint64_t`), a bool as 0 or 1, a float
        as `double`, None as a null pointer, a NumPy number as its own type, and an object of ctypes
        or cffi as its own type. Buffers, bytes and objects with `data_ptr()` or `_as_parameter_` are
        passed as pointers and kept alive until the task is done. Memory counts as read and written
        unless `accelrt.reads` or `accelrt.writes` marks it; read-only memory requires `reads`. The
        result is ignored. With `check=True` the result is a 32-bit status, and a status other than 0
        fails the stream. As with ctypes, a wrong signature or address is undefined behaviour.

        `blocking=True` is for a function that sleeps, or waits for a file or a lock: a thread more serves
        the device's other streams meanwhile.

        For a kernel, `global_size` is the number of work-items: an int, or a sequence of one to three
        ints. `local_size` is the number of work-items in a work-group; the driver chooses the default.
        A pointer argument is a buffer, a view, None, a `ctypes.c_void_p` or an object with
        `__sycl_usm_array_interface__`. Numbers must fit the kernel's declared types; a binary that
        declares no types requires values of ctypes. Local memory is passed as a size in bytes.

        >>> import accelrt, ctypes
        >>> libc, stream = ctypes.CDLL(None), accelrt.Stream()
        >>> text = ctypes.create_string_buffer(4)
        >>> stream.launch(libc.memset, text, ord("x"), ctypes.c_size_t(3))
        >>> stream.synchronize()
        >>> text.value
        b'xxx'
        """
    def launch_host(
        self, callable: Callable[[Unpack[_Arguments]], _Result], *args: *_Arguments
    ) -> HostCall[_Result]:
        """Enqueues a call of a Python callable. Blocks only while more than `ACCELRT_STREAM_TASKS`
        tasks are queued.

        A thread of a pool calls `callable` in stream order, with this stream and its device as the
        current ones; the returned handle has its result. A callable that sleeps holds back its own
        stream only, as long as the pool has threads (`ACCELRT_HOST_THREADS`). An exception fails
        the stream and becomes `__cause__` of the `StreamError`. The callable may enqueue work and
        read results; a wait for unfinished work raises `RuntimeError` there.

        For the sanitizer, buffers and views among `args` count as read, in `accelrt.writes` as
        written. The callable gets them without the mark; the order of execution is unchanged.

        >>> import accelrt
        >>> stream, seen = accelrt.Stream(), []
        >>> call = stream.launch_host(seen.append, 1)
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

@final
class HostCall(Generic[_Result]):
    """The handle of a callable that `Stream.launch_host` enqueued: done when the callable has returned
    or raised, or will not be called.

    `await call` waits in asyncio, as `result` does. Dropping the handle changes nothing. An
    exception fails the stream too, whose `synchronize` raises it again.

    >>> import accelrt
    >>> stream = accelrt.Stream()
    >>> stream.launch_host(max, 3, 4).result()
    4
    """

    def done(self) -> bool:
        """True when the callable has returned or raised, or will not be called. Does not block.
        Under a schedule, runs one task unless it is done.
        """
    def result(self, timeout: float | None = None) -> _Result:
        """Blocks, without the GIL, until the callable is done; returns what it returned, or raises
        what it raised. A callable that was skipped because its stream had failed raises that
        failure.

        After `timeout` seconds raises `TimeoutError`, and the work goes on. None waits without a
        limit.
        """
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`, but returns the exception; None when the callable returned."""
    def __await__(self) -> _Generator[_Future[None], None, _Result]: ...
    def __class_getitem__(cls, item: object) -> GenericAlias:
        """For annotations, as in `HostCall[int]`."""

@disjoint_base
class Event:
    """A point in a stream that can be recorded, waited for and queried.

    `Event(device=None, *, enable_timing=False, blocking=False, interprocess=False)`, or the flags
    by position: `Event(True)` is timed. An event without a record counts as done. A wait ignores
    records made after its call. `device` sets only the kind; the first record sets the index.
    `await event` waits in asyncio, as `synchronize` does.
    `blocking` and `interprocess` are accepted without an effect.

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
        """The device of the latest record. Before the first record it has no index."""
    @property
    def event_id(self) -> int:
        """The id of this event, unique while it lives; 0 before the first record."""
    def record(self, stream: Stream | None = None) -> None:
        """Records the work enqueued on `stream`, by default the current stream. Blocks only while
        more than `ACCELRT_STREAM_TASKS` tasks are queued.
        """
    def wait(self, stream: Stream | None = None) -> None:
        """Makes later work on `stream`, by default the current one, wait for the latest record.
        Blocks only while more than `ACCELRT_STREAM_TASKS` tasks are queued.
        """
    def query(self) -> bool:
        """True when all work before the latest record is done or has failed."""
    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks, without the GIL, until all work before the latest record is done. Raises the error
        that the stream was in at the record, if any.

        After `timeout` seconds raises `TimeoutError`, and the work goes on. None waits without a
        limit.
        """
    def __await__(self) -> _Generator[_Future[None]]: ...
    def add_done_callback(self, callback: Callable[[Event], object]) -> None:
        """Calls `callback(event)` once all work before the latest record is done or has failed.
        Records after this call do not delay the callback. Does not block.

        A thread of the pool of `launch_host` calls the callback. There, the default streams are
        current, and a wait for unfinished work raises `RuntimeError`. An exception of the callback
        is passed to `sys.unraisablehook`. Callbacks of one event are called in any order.

        >>> import accelrt, threading
        >>> event, called = accelrt.Stream().record_event(), threading.Event()
        >>> event.add_done_callback(lambda event: called.set())
        >>> called.wait()
        True
        """
    def elapsed_time(self, other: Event) -> float:
        """The milliseconds from this event's record to the record of `other`."""
    def ipc_handle(self) -> Never:
        """Not supported, as in torch."""
    @classmethod
    def from_ipc_handle(cls, device: _Device | str | int, handle: bytes) -> Never:
        """Not supported, as in torch."""

@final
class Generator:
    """A generator of random numbers: Philox 4x32-10, with the same bits on every kind of device.

    A generator fills buffers of its device's kind, on the current streams of their devices. Several
    threads may use one generator: each call takes its own part of the sequence. Copies and pickles
    of a generator have its state.

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
        """The device that the generator was created for."""
    def manual_seed(self, seed: int) -> Self:
        """Sets the seed and an offset of 0; returns this generator. A seed is -2^63 to 2^64 - 1; 2^64
        is added to a negative seed.
        """
    def seed(self) -> int:
        """Seeds the generator with an unpredictable number, and returns that number."""
    def initial_seed(self) -> int:
        """The current seed."""
    def get_state(self) -> bytes:
        """Seed and offset as 16 bytes, for `set_state`."""
    def set_state(self, state: _BytesLike) -> Self:
        """Restores a state from `get_state`; returns this generator. Takes any object with the buffer
        protocol.
        """
    def clone_state(self) -> Generator:
        """A separate generator with the same state."""
    def get_offset(self) -> int:
        """The position in the seed's sequence in 32-bit words, a multiple of 4."""
    def set_offset(self, offset: int) -> Self:
        """Sets the position in the seed's sequence in 32-bit words, a multiple of 4 up to 2^64 - 4;
        returns this generator.
        """
    def random_raw(self, n: int) -> list[int]:
        """The next `n` 64-bit numbers as a list: those that `fill_raw_` with "uint64" would write."""
    def fill_raw_(self, buffer: _Filled, dtype: object) -> _Filled:
        """Fills a buffer or view with raw numbers of type "uint32" or "uint64", and returns it; a view
        must have integers of that width, or bytes. Blocks only while more than
        `ACCELRT_STREAM_TASKS` tasks are queued. The first fill on a device other than the cpu
        compiles a program.
        """
    def fill_uniform_(self, buffer: _Filled, dtype: object) -> _Filled:
        """As `fill_raw_`, with uniform numbers from 0, inclusive, to 1, exclusive, of type "float32"
        or "float64".
        """
    def fill_normal_(self, buffer: _Filled, dtype: object) -> _Filled:
        """As `fill_raw_`, with normal numbers of mean 0 and variance 1, of type "float32" or
        "float64".
        """
    def __reduce__(self) -> tuple[builtins.type[Self], tuple[_Device], tuple[int, int, bytes]]: ...
    def __setstate__(self, state: tuple[int, int, bytes]) -> None: ...

@final
class Program:
    """Kernels compiled for a device, by default the current xpu device.

    `source` is OpenCL C as text, or SPIR-V as bytes; `options` go to the compiler. Blocks, without
    the GIL. When the compiler refuses the source, `RuntimeError` has the compiler's output.

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
        """The device that the program was compiled for."""
    @property
    def kernel_names(self) -> list[str]:
        """The names of the program's kernels."""
    def kernel(self, name: str) -> Kernel:
        """The kernel with this name; `ValueError` when there is none."""

@final
class Kernel:
    """A kernel of a program, for `Stream.launch`."""

    @property
    def name(self) -> str:
        """The kernel's name in the program."""
    @property
    def __name__(self) -> str:
        """The same as `name`."""
    @property
    def device(self) -> _Device:
        """The device that the kernel was compiled for."""
    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Type and name of each parameter; empty when the program does not provide them."""

@final
class Buffer:
    r"""Memory on a device, freed in stream order.

    Slices share the memory and keep it alive. `release()`, or the drop of the last buffer or slice,
    frees the memory after all work that is known to use it. On the cpu, and for pinned or shared
    memory of another device, a buffer supports the buffer protocol, which waits for that work.

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
        """The device of the memory; for pinned host memory the device named in the request."""
    @property
    def stream(self) -> Stream:
        """The stream that was current when the buffer was created."""
    def data_ptr(self) -> int:
        """The device address of the first byte; 0 for an empty allocation. Fails after a release. Does
        not block: tasks may still be writing to the memory.
        """
    @property
    def _version(self) -> int:
        """The number of writes by `copy_`, `fill_` and `copy_to`, through this buffer and those that
        share its version: slices, views and `detach()`. Writes by kernels, native functions and
        users of the exported bytes are not counted. `RuntimeError` for a buffer created in
        inference mode.

        >>> import accelrt
        >>> buffer = accelrt.zeros(8)
        >>> buffer[:4].fill_(1)._version, buffer._version, buffer.data._version
        (1, 1, 0)
        """
    @property
    def data(self) -> Buffer:
        """Another buffer of the same memory, with its own version, which starts at 0. Assigning a
        buffer replaces this buffer's memory by the memory of the assigned one, and leaves the
        version unchanged.
        """
    @data.setter
    def data(self, other: Buffer, /) -> None: ...
    def detach(self) -> Buffer:
        """Another buffer of the same memory, which shares its version."""
    def is_inference(self) -> bool:
        """True for a buffer created in inference mode."""
    def copy_(self, source: _BytesLike | _HasDlpack, non_blocking: bool = False) -> Self:
        """Copies a buffer or view, or the bytes of an object with the buffer protocol or DLPack, of
        the same size into this buffer; returns this buffer. Runs on the current stream of this
        buffer's device, or of the source's device for a copy from it to the cpu. Blocks, without
        the GIL, until the copy is done, unless `non_blocking`.
        """
    def copy_to(self, target: _BytesLike | _HasDlpack, non_blocking: bool = False) -> None:
        """Copies this buffer into a buffer or view, or into a writable object with the buffer protocol
        or DLPack, of the same size. Runs on the current stream of the target's device, or of this
        buffer's device for a host target. Blocks, without the GIL, until the copy is done, unless
        `non_blocking`.
        """
    def fill_(self, byte: int) -> Self:
        """Sets every byte, on the current stream of this buffer's device; returns this buffer. Does
        not wait for the fill.
        """
    def clone(self) -> Buffer:
        r"""A copy in new memory of the same kind on the same device. The copy is a task of that
        device's current stream; does not block.

        >>> import accelrt
        >>> bytes(accelrt.empty(2).fill_(7).clone())
        b'\x07\x07'
        """
    def __copy__(self) -> Buffer:
        """Another object for the same memory, as `buffer[:]`."""
    def __deepcopy__(self, memo: object, /) -> Buffer:
        """As `clone`: the copies of buffers that share memory do not share it."""
    def __enter__(self) -> Self:
        """The end of the `with` frees the memory, as `release` does.

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
        """Frees the memory after all work that is known to use it; a slice frees the memory of the
        whole buffer. `BufferError` while other code uses the bytes.
        """
    def record_stream(self, stream: Stream) -> None:
        """Records that work enqueued on `stream` before this call may use the memory. Does not block."""
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy reads this attribute after a failed `memoryview`, whose error NumPy drops. The
        attribute raises that error again.
        """
    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """As `View.__sycl_usm_array_interface__`, for the bytes; only on xpu. Reading it does not
        prevent `release()`.
        """
    def view(self, dtype: object, shape: int | Sequence[int] | None = None) -> View:
        """A typed view, which keeps the memory alive. `dtype` is read as `numpy.dtype` reads it: a
        dtype, a scalar type, or a text such as "float32" or "<f4". Without `shape` the view has one
        dimension; an extent of -1 is computed from the other extents.
        """
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A DLPack capsule of the bytes; see `View.__dlpack__`."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """The device's type and index in DLPack."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> Buffer: ...
    # As in typeshed: the protocol has methods from 3.12 on, and types of bytes have them always.
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...

@final
class View:
    """Memory of a buffer or of another library's object, with an element type and a shape, contiguous
    in C order. A view keeps the buffer or object alive.

    Views support DLPack and, where the host reaches the memory as on the cpu, the buffer protocol
    and NumPy's array interface; each export waits for the work that uses the memory. `Buffer.copy_`
    and `copy_to` take views as well as buffers.

    >>> import accelrt
    >>> view = accelrt.zeros(24).view("float32", (2, 3))
    >>> memoryview(view).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    @property
    def dtype(self) -> str:
        """The name of the element type, by NumPy's names. NumPy has no bfloat16 and no 8-bit floats;
        NumPy and the buffer protocol show elements of these types as bytes.
        """
    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements in each dimension."""
    @property
    def nbytes(self) -> int:
        """Size in bytes."""
    @property
    def device(self) -> _Device:
        """The device of the memory; cpu:0 for host memory of other libraries."""
    @property
    def readonly(self) -> bool:
        """True for memory that must not be written."""
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface. After the first read, the buffer cannot be released while this view
        lives.
        """
    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """The array interface of SYCL libraries; only on xpu. Reading it waits for the work that uses
        the memory. After the first read, the buffer cannot be released while this view lives.
        """
    def data_ptr(self) -> int:
        """The device address of the first byte. Does not block: tasks may still be writing there."""
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A DLPack capsule of the memory. The capsule is versioned when `max_version` is (1, 0) or
        later; `BufferError` for read-only memory otherwise. `stream` must be None or -1.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """The device's type and index in DLPack."""
    def copy_(self, source: _BytesLike | _HasDlpack, non_blocking: bool = False) -> Self:
        """Copies a buffer or view, or the bytes of an object with the buffer protocol or DLPack, of
        the same size into this view; returns this view. Bytes are copied unchanged: a source with
        another element type is refused, unless one of the two types is uint8. Runs on the current
        stream of the device. Blocks, without the GIL, until the copy is done, unless
        `non_blocking`.
        """
    def fill_(self, value: complex | SupportsIndex) -> Self:
        """Sets every element to a number, rounded to the nearest one of the element type, on the
        current stream of the device; returns this view. Does not wait for the fill. `OverflowError`
        for a number outside the type's range.

        >>> import accelrt
        >>> memoryview(accelrt.empty(8).view("float32").fill_(1.5)).tolist()
        [1.5, 1.5]
        """
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> View: ...
    def __copy__(self) -> View:
        """Another view of the same memory."""
    def __deepcopy__(self, memo: object, /) -> View:
        """A view of a copy in new memory: that of `Buffer.clone` for a buffer's memory. Memory of
        another library is copied to its device, which waits for the copy.
        """
    # As in typeshed: the protocol has methods from 3.12 on, and types of bytes have them always.
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...

@final
class Marked:
    """An argument of `Stream.launch` with its declared access; `accelrt.reads` and `accelrt.writes`
    create it.

    >>> import accelrt
    >>> mark = accelrt.reads(accelrt.zeros(8))
    >>> mark.access, mark.memory.nbytes
    ('reads', 8)
    """

    @property
    def memory(self) -> object:
        """The marked buffer, view or other object."""
    @property
    def access(self) -> str:
        """ "reads" or "writes"."""

def reads(x: _BytesLike | _HasAddress) -> Marked:
    """Declares that the launched function only reads the memory of this argument of `Stream.launch`.
    Takes a buffer, a view, an object with the buffer protocol, or one with `data_ptr()`. An
    argument without a mark counts as read and written; read-only memory requires this mark.

    >>> import accelrt, ctypes
    >>> libc, buffer = ctypes.CDLL(None), accelrt.empty(4)
    >>> stream = accelrt.Stream()
    >>> stream.launch(libc.memcpy, accelrt.writes(buffer), accelrt.reads(b"text"), 4)
    >>> stream.synchronize()
    >>> bytes(buffer)
    b'text'
    """

def writes(x: _BytesLike | _HasAddress) -> Marked:
    """Declares that the launched function overwrites the memory of this argument of `Stream.launch`
    and does not read the previous contents. Takes the same objects as `reads`; `BufferError` for
    read-only memory.
    """

def as_buffer(obj: object) -> View:
    """A typed view of the bytes of an object with the buffer protocol, without a copy. The view has
    bytes as elements when it cannot have the object's element type. Raises the object's own error
    for memory that is not contiguous, and `BufferError` for memory that is not aligned for its
    element type.

    >>> import accelrt, array
    >>> view = accelrt.as_buffer(array.array("d", [1, 2, 3]))
    >>> view.dtype, view.shape
    ('float64', (3,))
    """

def from_dlpack(
    x: _HasDlpack | CapsuleType, *, readonly: bool | None = None, copy: bool | None = None
) -> View:
    """A typed view of the memory of an object with DLPack, or of a DLPack capsule. `BufferError` for
    memory of devices other than cpu and xpu, for element types that views do not support, and for
    memory that is not aligned for its element type, unless it is copied; a refused capsule remains
    usable.

    `copy=None` copies only memory that is not contiguous, which fails on xpu; True copies always,
    False never. With `readonly=None`, a copy is writable, and other views follow the producer's
    flag; an unversioned structure has none, and its view is read-only. `readonly=False` fails for
    memory that the producer marks read-only, unless it is copied.

    >>> import accelrt
    >>> accelrt.from_dlpack(accelrt.zeros(8).view("int32")).shape
    (2,)
    """

def empty(nbytes: int, *, device: _DeviceArgument = None, alignment: int | None = None) -> Buffer:
    """Allocates memory with unspecified contents. The default device is that of the innermost
    `with device(…)`, else the current one. The address is a multiple of 512 bytes, or of
    `alignment`, a power of two up to 2 MiB. When memory is short, waits for pending frees if they
    suffice; else raises `OutOfMemoryError`.

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
    """As `empty`, in host memory that the accelerator's devices access directly. The address is a
    multiple of 64 bytes.

    >>> import accelrt
    >>> accelrt.empty_pinned(4096).nbytes
    4096
    """

def empty_shared(nbytes: int, *, device: _DeviceArgument = None) -> Buffer:
    r"""As `empty`, in memory that the device shares with the host. On every kind, the buffer protocol,
    NumPy and `__array_interface__` can access the bytes; each access waits for the work that uses
    them. The bytes count against the device's memory and in `shared_memory_stats`. `TypeError` on a
    device that shares no memory with the host.

    >>> import accelrt
    >>> bytes(accelrt.empty_shared(2).fill_(7))
    b'\x07\x07'
    """

def parse_bytes(text: str) -> int | None:
    """Converts a size to bytes, with or without a unit of powers of 1024, as `256M` or `8GiB`. None
    for other text, as `256KB`, and for a size beyond 64 bits.
    """

def kernel_address(name: str) -> int:
    """The address of one of accelrt's native functions, for `Stream.launch`."""

def current_accelerator() -> device:
    """The kind of the current accelerator, as a device without index."""

def default_generator(kind: str, index: int) -> Generator:
    """The default generator of a device. Initialises no device."""

def kind_names() -> list[str]:
    """The names of all kinds that `accelrt.device` accepts."""

def device_count(kind: str) -> int:
    """The number of devices of a kind; 0 for a kind that this build or machine lacks."""

def unavailable_reason(kind: str) -> str | None:
    """The reason that this process finds no device of a kind; None when the kind has a device."""

def left_out_devices(kind: str) -> list[tuple[str, str]]:
    """The name of each existing device of a kind that cannot be used, with the reason."""

def load_kind(library: str | os.PathLike[str]) -> str:
    """Load a library of a kind of device and return the kind's name; see docs/devices.md.

    The library exports `accelrt_backend_table`. Call this before the first use of a device: the
    runtime has the kinds that were there when it began. A library is never closed.
    """

def is_initialized() -> bool:
    """True after this process has initialised a device."""

def initialize(kind: str) -> None:
    """Initialises the current device of a kind, as its first use would."""

def current_device(kind: str) -> int:
    """Index of this thread's current device of a kind."""

def exchange_device(kind: str, index: int) -> int:
    """Makes a device current for this thread; returns the previous index. A negative index has no
    effect.
    """

def flag(name: str, value: bool) -> bool:
    """Converts an argument to a bool; the `TypeError` for other types names the parameter."""

def enter_index(kind: str, index: int) -> None:
    """Enters the context that makes device `index` current. A negative index changes nothing."""

def exit_index(kind: str, index: int) -> None:
    """Leaves the innermost `with` of a device's index."""

def can_access_peer(kind: str, index: int, peer: int) -> bool:
    """True when a device can access the memory of `peer`, which may be the same device. The cpu
    devices share the machine's memory; OpenCL reports no peer access.
    """

def current_stream(kind: str, index: int) -> Stream:
    """This thread's current stream on a device."""

def default_stream(kind: str, index: int) -> Stream:
    """The default stream of a device, current in threads that have set no other."""

def set_stream(stream: Stream) -> None:
    """Makes a stream and its device current for this thread."""

def synchronize(kind: str, index: int, timeout: float | None = None) -> None:
    """Blocks, without the GIL, until all streams of a device are done; raises and clears their errors.
    After `timeout` seconds raises `TimeoutError`: the work goes on, and the streams keep their
    errors. None waits without a limit.
    """

def get_memory_info(kind: str, index: int) -> tuple[int, int]:
    """The free and total bytes of a device's memory at this moment."""

def get_device_properties(kind: str, index: int) -> DeviceProperties:
    """The name, capacity and features of a device. Initialises no device."""

def accelerator_index(device: _DeviceArgument, optional: bool) -> int:
    """The device index of an argument of `accelrt.accelerator`. With `optional`, `None` is the current
    device.
    """

def kind_index(kind: str, device: _DeviceArgument, optional: bool) -> int:
    """The device index of an argument of a kind's module. With `optional`, `None` is the current
    device.
    """

def memory_stats(kind: str, index: int) -> dict[str, int]:
    """The statistics of a device's allocator, by flat keys in sorted order."""

def allocated_bytes(kind: str, index: int) -> tuple[int, int]:
    """The current and peak bytes of allocated blocks. Does not flush the threads' caches."""

def allocated_bytes_of_all(kind: str, index: int) -> int:
    """The bytes of allocated blocks, also of memory that the device shares with the host."""

def reserved_bytes(kind: str, index: int) -> tuple[int, int]:
    """The current and peak bytes reserved from the device. Does not flush the threads' caches."""

def shared_memory_stats(kind: str, index: int) -> dict[str, int]:
    """The statistics of memory that the device shares with the host, by flat keys in sorted order."""

def host_memory_stats(kind: str) -> dict[str, int | float | list[int]]:
    """The statistics of a kind's pinned memory, by flat keys in sorted order."""

def reset_peak_memory_stats(kind: str, index: int) -> None:
    """Resets every peak of a device to the current value, also for memory shared with the host."""

def reset_accumulated_memory_stats(kind: str, index: int) -> None:
    """Resets every sum and count of a device to zero, also for memory shared with the host."""

def manual_seed(seed: int) -> Generator | None:
    """Seeds the default generators of all devices. Initialises no device. A forked child skips them,
    because threads that it lacks may hold their locks, and returns a new generator with the seed.
    """

def manual_seed_all(kind: str, seed: int) -> None:
    """Seeds the default generators of all devices of a kind. Initialises no device."""

def manual_seed_device(kind: str, index: int, seed: int) -> None:
    """Seeds the default generator of one device, without checking that the device exists."""

def start_memory_history(
    context: str | None,
    max_entries: int,
    clears: bool,
    has_annotations: bool,
    skipped: list[str],
    max_frames: int,
) -> None:
    """Starts the history, or goes on with another choice of what it shows. `context` is "state",
    "alloc", "all" or None, as in torch; stacks have at most `max_frames` frames. With another
    `max_entries`, or `clears`, the entries so far are forgotten.
    """

def stop_memory_history() -> None:
    """Ends the history and forgets its entries. Blocks in use keep their stacks."""

def take_memory_snapshot(kind: str) -> dict[str, Any]:
    """The whole snapshot of a kind's devices, as torch's dictionary. The trace of each device ends at
    the moment of its segments.
    """

def find_pickle_fault(path: PathLike[str]) -> str | None:
    """Returns the reason why the pickle in a regular file must not be loaded, or None. Finds only
    faults by which the unpickler could take too much memory. The unpickler reports other faults.
    """

def memory_uses() -> list[tuple[str, str | None, str, int | None, int, int]]:
    """The bytes of blocks in use on the devices of these kinds, the most first."""

def work_state(memory: Buffer | View) -> Literal["done", "pending", "failed", "released"]:
    """The state of the recorded uses of a buffer or view: "done", "pending", "failed" or "released".
    Does not block. Neither raises nor ends a failure of the stream.
    """

def memory_kind(memory: Buffer | View) -> Literal["device", "pinned", "shared", "foreign"]:
    """The kind of memory of a buffer or view: "device", "pinned", "shared" or "foreign". Shared memory
    counts against its device, pinned memory does not.
    """

def is_only_holder(memory: Buffer | View) -> bool:
    """True when no slice, view, `detach()` or export other than `memory` itself holds the memory of a
    buffer or view. False for memory of other libraries. References to `memory` do not count.
    """

def keys_of_shared_memory(values: dict[_Key, Any]) -> list[_Key]:
    """The keys of the buffers and views whose memory is also held outside of `values`, and of views of
    other libraries' memory. Values that share memory only with each other are not among them.
    """

def must_not_wait() -> bool:
    """True on threads that call the callables of `launch_host`. Waits for unfinished work fail there."""

def memory_snapshot(kind: str) -> list[dict[str, Any]]:
    """The segments of a kind's devices, in the format of torch's snapshots."""

def empty_cache(kind: str) -> None:
    """Waits, without the GIL, until no stream uses the cached memory of a kind's devices, and returns
    that memory to the devices.
    """

def empty_host_cache(kind: str) -> None:
    """Waits, without the GIL, until no stream uses a kind's cached pinned memory, and frees that
    memory.
    """

def get_memory_fraction(kind: str, index: int) -> float:
    """The fraction of a device's memory that the allocator may reserve."""

def set_memory_fraction(kind: str, index: int, fraction: float) -> None:
    """Limits the fraction of a device's memory that the allocator may reserve."""

def get_allocator_settings() -> str:
    """The settings text of all allocators, as last set."""

def set_allocator_settings(settings: str) -> list[tuple[str, str]]:
    """Applies settings to later requests. Returns each key that has no effect, with the reason."""

def add_oom_observer(observer: Callable[[str, int, int, int, int], object]) -> int:
    """Calls `observer(kind, index, requested_bytes, limit_bytes, free_bytes)` at each out-of-memory
    error of buffers; returns the id for `remove_oom_observer`. Exceptions of an observer go to
    `sys.unraisablehook`; errors of requests inside an observer are not reported.
    """

def remove_oom_observer(id: int) -> None:
    """Removes an observer. An unknown id has no effect."""

def add_reclaimer(reclaimer: Callable[[str, int, int, int, int], object]) -> int:
    """Calls `reclaimer(kind, index, requested_bytes, lacking_bytes, allocated_bytes)` before such an
    error, with the `allocated_bytes_of_all` before it waits for the GIL; if it returns something
    true, the request is tried again. Returns the id for `remove_reclaimer`. Exceptions of a
    reclaimer go to `sys.unraisablehook`, and count as false.
    """

def remove_reclaimer(id: int) -> None:
    """Removes a reclaimer. An unknown id has no effect."""

def counters() -> dict[str, int]:
    """Counters of tasks and workers since the runtime's start."""

def settings() -> dict[str, str | int | None]:
    """The settings in effect, by the names of their environment variables."""

def shut_down() -> None:
    """Shuts the runtime down at interpreter exit; prints unfinished tasks and unraised errors."""

@final
class Recording:
    """The recorded requests of one device, with the snapshot that they were read from, if any."""

    @staticmethod
    def of_operations(operations: Sequence[tuple[bool, int, int, int]]) -> Recording:
        """A recording from one tuple per event: whether it allocates, id, size in bytes, stream."""
    @staticmethod
    def of_table(path: str | os.PathLike[str]) -> Recording:
        """A recording from a table of events. Only its first line is read now; each replay reads the
        file, a piece at a time, and raises a `TableError` at the first line that is wrong.
        """
    @staticmethod
    def of_snapshot(segments: list[dict[str, Any]], trace: list[dict[str, Any]]) -> Recording:
        """A recording from the segments and the trace of one device in one of torch's snapshots."""
    @staticmethod
    def settings(text: str) -> tuple[str, list[str]]:
        """The settings text of a recording, without PyTorch's keys that have no effect here and
        without unknown keys; and these unknown keys.
        """
    def operations(self) -> list[tuple[bool, int, int, int]]:
        """The events, as `of_operations` takes them. Size and stream of a free are 0."""
    def replay(
        self, settings: str, capacity_bytes: int, granularity_bytes: int, rounds: int = 1
    ) -> ReplayFigures:
        """Replays the events `rounds` times against an empty allocator without memory, and returns the
        results of the last round.
        """
    def replay_on_device(self, settings: str) -> ReplayFigures:
        """Replays the events against an empty allocator on this thread's current device. Buffers
        cannot use that allocator's memory until the call returns.
        """
    def minimum(self, settings: str, capacity_bytes: int, granularity_bytes: int) -> ReplayMinimum:
        """Searches the smallest capacity up to `capacity_bytes`, in whole pages, that completes the
        recording.
        """
    def survey(self) -> ReplaySurvey:
        """The number of events, the peak of the live bytes and the sizes of the requests, without an
        allocator.
        """
    def timeline(
        self, settings: str, capacity_bytes: int, granularity_bytes: int, points: int
    ) -> ReplayTimeline:
        """Replays the events against an empty allocator without memory, and returns live and reserved
        bytes over them in at most `points` points, which keep the peaks.
        """
    def failed_request(self) -> tuple[int, int, Recording] | None:
        """For a snapshot behind whose last out-of-memory error no request was served: the size of the
        failed request, the capacity that the device had for the allocator, and the recording with
        the request as if it had been served. None for others.
        """
    def check(self, settings: str) -> Agreement:
        """Replays the snapshot's trace from the layout before its first entry, and compares the
        addresses and the final layout.
        """

@final
class ReplayFigures:
    """The measurements of a replay: peak bytes, page operations, and time per event."""

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

class TableError(ValueError):
    """A table of events cannot be read; the text names the file and the line."""

@final
class ReplayMinimum:
    """The smallest capacity that completes a recording, and how it was found."""

    @property
    def bytes(self) -> int | None:
        """In bytes; None when the recording completes on no capacity up to the largest."""
    @property
    def bound_bytes(self) -> int:
        """The peak of the live bytes in whole pages: less suffices for no allocator."""
    @property
    def fails_again_bytes(self) -> int | None:
        """The largest capacity above it on which the recording fails again, of those that were tried."""
    @property
    def replays(self) -> int:
        """The number of replays."""
    @property
    def figures(self) -> ReplayFigures:
        """The replay on the largest capacity."""

@final
class ReplaySurvey:
    """What the events of a recording need, whatever serves them."""

    @property
    def events(self) -> int: ...
    @property
    def requests(self) -> int: ...
    @property
    def peak_live_bytes(self) -> int: ...
    @property
    def largest_bytes(self) -> int: ...
    @property
    def requests_by_mib(self) -> list[tuple[int, int]]:
        """Pairs of a size in MiB, rounded up, and the number of requests, for sizes above 1 MiB."""

@final
class ReplayTimeline:
    """Live and reserved bytes over a replay, as columns of points, each the peaks of a run of events."""

    @property
    def events(self) -> list[int]:
        """The index of the first event of each run."""
    @property
    def live_bytes(self) -> list[int]:
        """The peak of the live bytes in each run."""
    @property
    def reserved_bytes(self) -> list[int]:
        """The peak of the reserved bytes in each run."""
    @property
    def figures(self) -> ReplayFigures:
        """The replay's figures."""

@final
class Agreement:
    """A comparison of a replay with its recording. Each tuple has the number of matches and of
    comparisons.
    """

    @property
    def addresses(self) -> tuple[int, int]: ...
    @property
    def layouts(self) -> tuple[int, int]: ...
    @property
    def first_difference(self) -> str | None: ...

@final
class Pool:
    """A private pool of a device's memory, for the requests of threads inside the pool."""

    def __new__(cls, kind: str, index: int, use_on_oom: bool, no_split: bool) -> Self: ...
    @property
    def id(self) -> tuple[int, int]:
        """The pool's id in snapshots."""
    def snapshot(self) -> list[dict[str, Any]]:
        """The pool's segments, in the format of torch's snapshots."""
    def enter(self) -> None:
        """Serves this thread's requests of device memory from the pool until `exit`; inside a running
        asyncio loop those of the asyncio task.
        """
    def exit(self) -> None:
        """Leaves the pool."""

@final
class VerboseCapture:
    """Captures the output of a library until `end`."""

    def __new__(cls, library: str, *, keeps_lines: bool = True) -> Self: ...
    def lines(self) -> list[str]:
        """The lines captured before this call."""
    def end(self) -> list[str]:
        """Ends the capture. The first call returns all captured lines, later calls none."""

@final
class VerboseLogReader:
    """Reads the calls of a log that was written earlier. Holds at most one line."""

    def __new__(cls) -> Self: ...
    def feed(self, part: str) -> list[tuple[str, str, float, dict[str, str], str]]:
        """The calls of the lines that end in the next part of the log."""
    def finish(self) -> list[tuple[str, str, float, dict[str, str], str]]:
        """The call of a last line without an end."""

@final
class VerboseParser:
    """Reads verbose lines, in the order in which they were printed."""

    def __new__(cls) -> Self: ...
    def read(self, line: str) -> list[tuple[str, str, float, dict[str, str], str]]:
        """The calls of a line: several if lines ran together, and none for other text."""

@final
class VerboseScope:
    """A scope in which a library has a verbose level, until `leave`."""

    def __new__(cls, library: str, level: int) -> Self: ...
    def leave(self) -> None:
        """Restores the level of the newest scope that is still open, else the environment's level."""
    @staticmethod
    def lost_by_restoring(library: str) -> str | None:
        """A sentence about the part of the environment's level that the end of a scope cannot restore;
        None without such a part.
        """

@final
class KeyAverage:
    """All tasks, all ranges, or all calls of a library, of one name."""

    @property
    def key(self) -> str:
        """The name of the function, kernel, callable or range, else the operation: `copy`, `fill`. Of
        a call that a library tells of: `mkl::DGEMM`, `onednn::matmul`.
        """
    @property
    def is_range(self) -> bool:
        """True for a range of `record_function`, false for tasks and calls."""
    @property
    def count(self) -> int:
        """The number of tasks, of ranges, or of calls."""
    @property
    def self_ms(self) -> float:
        """The time of the tasks; of a range its time on its thread while no range was there that had
        begun later, as those inside of it; of calls what the library says. It is also part of the
        task or range that a call was made in.
        """
    @property
    def total_ms(self) -> float:
        """The time of the tasks; of a range its whole time on its thread; of calls as `self_ms`."""
    @property
    def mean_ms(self) -> float:
        """The total time by the count."""
    @property
    def stream_ms(self) -> float:
        """The time of the tasks; of a range the time of the tasks that were enqueued inside of it; of
        calls 0.
        """
    @property
    def bytes(self) -> int:
        """The bytes that the tasks copied and filled."""

@final
class StreamUse:
    """How busy a stream was in a profile."""

    @property
    def device(self) -> device:
        """The stream's device."""
    @property
    def stream_id(self) -> int:
        """The stream's id on its device."""
    @property
    def num_tasks(self) -> int:
        """The number of tasks that ran; waits for other streams are not among them."""
    @property
    def busy_ms(self) -> float:
        """How long the stream executed tasks."""
    @property
    def waited_ms(self) -> float:
        """How long the stream waited for other streams."""

@final
class DeviceUse:
    """How busy a device was in a profile."""

    @property
    def device(self) -> device:
        """The device."""
    @property
    def busy_ms(self) -> float:
        """How long at least one of its streams executed a task."""
    @property
    def stream_ms(self) -> float:
        """How long its streams executed tasks, all added."""
    @property
    def overlap_percent(self) -> float:
        """The part of `busy_ms` in percent in which at least two of its streams executed tasks."""

@final
class LongWait:
    """One wait of a stream or of a thread, and what it waited for."""

    @property
    def waiter(self) -> str:
        """What waited: a stream as `cpu:0 stream 3`, or a thread by its name."""
    @property
    def ms(self) -> float:
        """How long."""
    @property
    def device(self) -> device:
        """The device of the stream that was waited for."""
    @property
    def stream_id(self) -> int:
        """The id of the stream that was waited for."""
    @property
    def awaited(self) -> str | None:
        """The last task before the place that was waited for, by its name or operation; None when the
        profile does not have it.
        """

@final
class Profile:
    """A profile of the process's runtime, until `stop`."""

    def __new__(cls, max_records: int | None, profile_memory: bool) -> Self: ...
    def stop(self) -> Trace | None:
        """Ends the profile; None when it has ended before."""

@final
class Trace:
    """What a profile recorded."""

    def key_averages(self) -> list[KeyAverage]:
        """The rows of the table, the largest own time first."""
    def table(self, sort_by: str | None, row_limit: int) -> str:
        """The rows as a text."""
    def streams(self) -> list[StreamUse]:
        """How busy each stream was."""
    def devices(self) -> list[DeviceUse]:
        """How busy each device was, and how much its streams overlapped."""
    def longest_waits(self, count: int) -> list[LongWait]:
        """The longest waits of streams and threads."""
    @property
    def num_skipped_tasks(self) -> int:
        """The number of tasks that failed streams skipped."""
    @property
    def num_dropped_records(self) -> int:
        """The number of records that found no room."""
    def export_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Writes the trace to a file."""

_FoundUse: TypeAlias = tuple[tuple[str, int] | None, str, str, int, int, str | None, int, str]
_Found: TypeAlias = tuple[
    str, _FoundUse | None, _FoundUse, tuple[int, int, str | None, int] | None, str, int
]

@final
class OrderWatch:
    """A watch of the process's runtime."""

    def __new__(cls, callback: Callable[[list[_Found]], object]) -> Self: ...
    def findings(self) -> list[_Found]:
        """What was found."""
    def num_forgotten(self) -> int:
        """How much was forgotten for want of room."""
    def stop(self) -> None:
        """Ends the watch. Has no effect in a forked child."""

@final
class OpenAccess:
    """An access of the host that has begun."""

    def end(self) -> None:
        """Ends the access."""

def process_order_watch(callback: Callable[[list[_Found]], object]) -> OrderWatch | None:
    """The watch that `ACCELRT_SANITIZER` asks for. Sets what its new findings are told. None in a
    forked child: the findings are the parent's.
    """

def begin_host_access(buffer: Buffer, writes: bool) -> OpenAccess | None:
    """Begins an access of the host to a buffer; None while nothing watches."""

def tell_findings() -> None:
    """Tells what has been found since the last call: extensions that enqueue through C call it where
    the byte at `findings_flag()` is not 0. What a watch raises is raised.
    """

def findings_flag() -> int:
    """The address of a byte that is not 0 while there is something to tell."""

def ordered(first: Stream, second: Stream) -> None:
    """Declares that what is enqueued on `second` from here on runs behind what `first` has so far, by
    an order that accelrt cannot see, as that of another library. Only a watch of the sanitizer
    takes notice; nothing waits.

    >>> import accelrt
    >>> ours, theirs = accelrt.Stream(), accelrt.Stream()
    >>> with accelrt.sanitizer.watch() as report:
    ...     buffer = accelrt.zeros(8)  # on the default stream
    ...     accelrt.ordered(buffer.stream, ours)
    ...     with ours:
    ...         _ = buffer.fill_(1)
    ...     accelrt.accelerator.synchronize()
    >>> report.findings
    []
    """

@final
class OpenRange:
    """A range that has begun."""

    def end(self) -> None:
        """Ends the range, on the thread that began it."""

def begin_profiled_range(name: str) -> OpenRange | None:
    """Begins a range of this thread; None while no profile is on. What of the name is no Unicode, as
    in names of files, is replaced.
    """

def start_schedule(text: str) -> None:
    """Lets cpu devices follow the schedule of this text. Waits, without the GIL, for all work."""

def end_schedule() -> int:
    """Runs, without the GIL, what is runnable, and ends the schedule. Returns its number of steps."""

def prepare_faults() -> bool:
    """Prepares the process's runtime for faults. False when it was made before."""

def start_faults(text: str) -> None:
    """Puts the plan of this text in force."""

def end_faults() -> int:
    """Ends the plan. Returns how many calls failed."""

def finish_streams() -> None:
    """Waits, without the GIL, for all streams and drops their errors. Asks devices for nothing else."""

def enter_memory_tag(name: str) -> None:
    """Gives the requests of this thread a tag until `exit_memory_tag`; inside a running asyncio loop
    those of the asyncio task.
    """

def exit_memory_tag(name: str) -> None:
    """Leaves the innermost `with` of a tag."""

def current_memory_tag() -> str:
    """The tag of what runs; empty for none."""

def exchange_inference_mode(is_enabled: bool) -> bool:
    """Enables or disables inference mode on this thread; returns whether it was enabled."""

def is_inference_mode_enabled() -> bool:
    """True while this thread is in inference mode, in which new buffers have no version."""

def exchange_numpy_handler(handler: object = None) -> object:
    """Sets the handler that allocates the memory of new NumPy arrays in the current context of
    `contextvars`, by default accelrt's handler. Returns the previous handler.
    """

def verbose_level(library: str, name: str, level: int) -> int:
    """Converts `level`, the argument `name`, to an int; `ValueError` if the library lacks the level."""

def has_verbose_library(library: str) -> bool:
    """True when the process has a library or can load it; loads the library."""

def verbose_library_version(library: str) -> str:
    """The version of a library. Loads the library; `RuntimeError` when it is missing."""

def mkl_allocator() -> str:
    """The name of the allocator that oneMKL uses: "accelrt", "mimalloc" or "system"."""

def use_mkl_allocator(name: str) -> str:
    """Makes oneMKL use an allocator; returns the name of the previous one."""

def cudnn_version() -> int | None:
    """The version of cuDNN as one number, as 90100 for 9.1.0; None without cuDNN."""

def openmp_library() -> str | None:
    """The file name of an OpenMP runtime that the process has or can load, or None."""

def cpu_capability() -> str:
    """The widest vector instructions of this machine that torch distinguishes, by torch's name."""
