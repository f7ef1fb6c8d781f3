"""Goal: programs are compiled, kernels launched with what they declare, and the rest is refused.

Method: the tests of the first part need no device. Those of the second compare with NumPy what an
xpu device computed; they run where `ACCELRT_TEST_KIND` names it.
"""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import accelrt
import spirv
from gates import libc
from kinds import needs_xpu, only_without_xpu
from processes import output_of

TEXT = """
kernel void axpy(float a, global const float* x, global float* y) {
    size_t i = get_global_id(0);
    y[i] += a * x[i];
}
kernel void total(global const float* x, ulong count, local float* scratch, global float* sums) {
    float own = 0;
    for (size_t i = get_global_id(0); i < count; i += get_global_size(0)) own += x[i];
    size_t here = get_local_id(0);
    scratch[here] = own;
    for (size_t left = get_local_size(0) / 2; left > 0; left /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (here < left) scratch[here] += scratch[here + left];
    }
    if (here == 0) sums[get_group_id(0)] = scratch[0];
}
kernel void numbers(char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h, double i,
                    global double* out) {
    double all[] = {a, b, c, d, e, f, (double)g, (double)h, i};
    for (int n = 0; n < 9; n++) out[n] = all[n];
}
kernel void vector(float4 v, global float* out) { vstore4(v, 0, out); }
kernel void place(global int* out) {
    size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x;
    out[at] = (int)(x + 10 * y + 100 * z + 1000 * get_local_size(0));
}
"""


@pytest.mark.parametrize(
    ("source", "options", "text"),
    [
        (3, "", "source must be a str of OpenCL C or the bytes of SPIR-V, not int"),
        (bytearray(4), "", "source must be a str of OpenCL C or the bytes of SPIR-V"),
        ("", 3, "options must be a str, not int"),
        ("", b"-w", "options must be a str, not bytes"),
    ],
)
def test_a_program_says_what_it_is_made_from(source: str, options: str, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        accelrt.xpu.Program(source, options)


def test_a_kind_without_a_compiler_says_so() -> None:
    with pytest.raises(TypeError, match="cpu devices do not support programs of kernels"):
        accelrt.xpu.Program("", device="cpu")


@only_without_xpu
def test_a_program_without_a_device_says_why_there_is_none() -> None:
    with pytest.raises(RuntimeError, match="No xpu device is available"):
        accelrt.xpu.Program(TEXT)


def test_a_kind_whose_library_is_missing_has_no_devices() -> None:
    code = "import accelrt; print(accelrt.xpu.is_available(), accelrt.xpu.device_count())"
    assert output_of(code, ACCELRT_OPENCL_LIBRARY="libnothing.so") == "False 0\n"


@pytest.mark.parametrize("sizes", [{"global_size": 1}, {"local_size": 1}])
def test_a_native_function_takes_no_sizes(sizes: dict[str, int]) -> None:
    text = "global_size and local_size are for kernels of a Program, not for int"
    with pytest.raises(TypeError, match=text):
        accelrt.Stream().launch(1, **sizes)  # type: ignore[arg-type]


def test_what_is_no_function_is_told_what_would_be() -> None:
    with pytest.raises(TypeError, match="or a kernel of a Program, not str"):
        accelrt.Stream(device="cpu").launch("memset")


def on_device(values: np.ndarray) -> accelrt.Buffer:
    """Return a buffer of the xpu device with these numbers."""
    buffer = accelrt.empty(values.nbytes, device="xpu")
    buffer.copy_(values)
    return buffer


def from_device(buffer: accelrt.Buffer, dtype: str) -> np.ndarray:
    found = np.empty(buffer.nbytes // np.dtype(dtype).itemsize, dtype)
    buffer.copy_to(found)
    return found


@pytest.fixture(scope="module")
def program() -> accelrt.xpu.Program:
    return accelrt.xpu.Program(TEXT)


@needs_xpu
def test_axpy_and_a_reduction_agree_with_numpy(program: accelrt.xpu.Program) -> None:
    random = np.random.default_rng(7)
    x, y = (random.standard_normal(100_000, np.float32) for _ in range(2))
    on_x, on_y = on_device(x), on_device(y)
    sums = accelrt.zeros(64 * 4, device="xpu")
    stream = accelrt.xpu.current_stream()
    stream.launch(program.kernel("axpy"), 0.5, on_x, on_y, global_size=x.size)
    total = program.kernel("total")
    stream.launch(total, on_y, x.size, 128 * 4, sums, global_size=64 * 128, local_size=128)
    expected = y + np.float32(0.5) * x
    np.testing.assert_allclose(from_device(on_y, "float32"), expected, rtol=1e-6, atol=1e-6)
    found = from_device(sums, "float32").sum(dtype=np.float64)
    np.testing.assert_allclose(found, expected.sum(dtype=np.float64), rtol=1e-4)


@needs_xpu
def test_numbers_of_every_type_arrive_and_their_limits_do(program: accelrt.xpu.Program) -> None:
    bits = ((8, True), (8, False), (16, True), (16, False), (32, True), (32, False))
    low = [-(2 ** (n - 1)) if signed else 0 for n, signed in bits]
    high = [2 ** (n - 1) - 1 if signed else 2**n - 1 for n, signed in bits]
    kernel, out = program.kernel("numbers"), accelrt.zeros(72, device="xpu")
    stream = accelrt.xpu.current_stream()
    for values in ([*low, -(2**62), 0, 0.1], [*high, 2**62, 2**63, -0.1]):
        stream.launch(kernel, *values, out, global_size=1)
        assert from_device(out, "float64").tolist() == values
    typed = [ctypes.c_byte(-1), True, np.int16(-3), np.uint16(4), 5, 6, 7, 8, np.float32(9)]
    stream.launch(kernel, *typed, out, global_size=1)
    assert from_device(out, "float64").tolist() == [-1, 1, -3, 4, 5, 6, 7, 8, 9]


@needs_xpu
def test_numbers_out_of_range_and_of_other_types_are_refused(program: accelrt.xpu.Program) -> None:
    kernel, out = program.kernel("numbers"), accelrt.zeros(72, device="xpu")
    right: list[object] = [0, 0, 0, 0, 0, 0, 0, 0, 0.0, out]
    stream = accelrt.xpu.current_stream()
    for index, wrong in [
        (0, 128),
        (1, -1),
        (2, 2**15),
        (4, 2**31),
        (5, -1),
        (6, 2**63),
        (7, 2**64),
    ]:
        with pytest.raises(OverflowError, match=f"argument {index + 1} of numbers does not fit"):
            stream.launch(kernel, *right[:index], wrong, *right[index + 1 :], global_size=1)
    for index, wrong_type in [(0, 1.5), (4, "5"), (8, "0"), (8, None), (9, 3), (9, b"abc")]:
        with pytest.raises(TypeError, match=f"argument {index + 1} of numbers must be"):
            stream.launch(kernel, *right[:index], wrong_type, *right[index + 1 :], global_size=1)
    axpy = program.kernel("axpy")
    with pytest.raises(OverflowError, match="does not fit into a float of 32 bits"):
        stream.launch(axpy, 1e300, out, out, global_size=1)
    for given in (right[:-1], [*right, 1]):
        text = f"Kernel numbers takes 10 arguments: {len(given)} were given"
        with pytest.raises(TypeError, match=text):
            stream.launch(kernel, *given, global_size=1)


@needs_xpu
def test_a_vector_goes_by_its_bytes(program: accelrt.xpu.Program) -> None:
    out, kernel = accelrt.zeros(16, device="xpu"), program.kernel("vector")
    stream = accelrt.xpu.current_stream()
    for four in (np.array([1, 2, 3, 4], np.float32), (ctypes.c_float * 4)(1, 2, 3, 4)):
        stream.launch(kernel, four, out, global_size=1)
        assert from_device(out, "float32").tolist() == [1, 2, 3, 4]
    for wrong in (1.0, 1, "1234"):
        with pytest.raises(TypeError, match="argument 1 of vector must be memory, or a value"):
            stream.launch(kernel, wrong, out, global_size=1)
    with pytest.raises(TypeError, match="not 20 bytes of a value"):
        stream.launch(kernel, bytes(20), out, global_size=1)


@needs_xpu
def test_sizes_have_up_to_three_dimensions(program: accelrt.xpu.Program) -> None:
    kernel, stream = program.kernel("place"), accelrt.xpu.current_stream()
    out = accelrt.zeros(24 * 4, device="xpu")
    stream.launch(kernel, out, global_size=(4, 3, 2), local_size=(2, 1, 1))
    z, y, x = np.indices((2, 3, 4))
    assert from_device(out, "int32").tolist() == (x + 10 * y + 100 * z + 2000).ravel().tolist()
    for wrong in ("4", 1.5, [1, "2"], None):
        with pytest.raises(TypeError, match="global_size"):
            stream.launch(kernel, out, global_size=wrong, local_size=1)  # type: ignore[arg-type]
    for sizes in ((0,), (-1,), (1, 1, 1, 1), ()):
        with pytest.raises(ValueError, match=r"1 to 3 positive numbers|must be positive numbers"):
            stream.launch(kernel, out, global_size=sizes)
    with pytest.raises(ValueError, match="must divide the global size"):
        stream.launch(kernel, out, global_size=4, local_size=3)


@needs_xpu
def test_a_view_its_buffer_and_a_part_of_it_are_pointers(program: accelrt.xpu.Program) -> None:
    x, y = on_device(np.ones(8, np.float32)), on_device(np.zeros(8, np.float32))
    axpy, stream = program.kernel("axpy"), accelrt.xpu.current_stream()
    stream.launch(axpy, 2, x.view("float32"), y[16:], global_size=4)
    address = ctypes.c_void_p(y.data_ptr())
    stream.launch(axpy, 1, x, address, global_size=1)
    assert from_device(y, "float32").tolist() == [1, 0, 0, 0, 2, 2, 2, 2]


@needs_xpu
def test_launches_of_two_streams_are_ordered_by_an_event(program: accelrt.xpu.Program) -> None:
    x, y = on_device(np.ones(1 << 16, np.float32)), accelrt.zeros(1 << 18, device="xpu")
    axpy = program.kernel("axpy")
    first, second = accelrt.Stream("xpu"), accelrt.Stream("xpu")
    first.wait_stream(y.stream)
    for _ in range(20):
        first.launch(axpy, 1, x, y, global_size=1 << 16)
        second.wait_event(first.record_event())
        second.launch(axpy, 1, x, y, global_size=1 << 16)
        first.wait_event(second.record_event())
    with first:
        assert (from_device(y, "float32") == 40).all()


@needs_xpu
def test_foreign_usm_memory_is_a_pointer_and_is_kept_until_the_launch_is_done(
    program: accelrt.xpu.Program,
) -> None:
    class Foreign:
        def __init__(self, buffer: accelrt.Buffer) -> None:
            self.__sycl_usm_array_interface__ = {
                "version": 1,
                "shape": (4,),
                "typestr": "<f4",
                "data": (buffer.data_ptr(), False),
                "syclobj": None,
            }

    x, y = on_device(np.ones(4, np.float32)), on_device(np.zeros(4, np.float32))
    foreign, stream = Foreign(y), accelrt.xpu.current_stream()
    watched = weakref.ref(foreign)
    stream.launch(program.kernel("axpy"), 3, x, foreign, global_size=4)
    del foreign
    assert from_device(y, "float32").tolist() == [3, 3, 3, 3]
    stream.synchronize()
    stream.query()  # drops what was kept for the launch
    gc.collect()
    assert watched() is None


@needs_xpu
def test_kernels_and_native_functions_stay_on_their_kinds(program: accelrt.xpu.Program) -> None:
    axpy, cpu = program.kernel("axpy"), accelrt.Stream("cpu")
    text = r"a stream of cpu:0 cannot run it \(it runs native functions, by launch"
    with pytest.raises(TypeError, match=text):
        cpu.launch(axpy, 1, None, None, global_size=1)
    with pytest.raises(TypeError, match="use launch_host, or a kernel of a Program"):
        accelrt.Stream("xpu").launch(libc.memset, 0, 0, 0)
    with pytest.raises(TypeError, match="a kernel needs global_size"):
        accelrt.Stream("xpu").launch(axpy, 1, None, None)
    with pytest.raises(TypeError, match="blocking=True is for native functions: a kernel"):
        accelrt.Stream("xpu").launch(axpy, 1, None, None, global_size=1, blocking=True)
    with pytest.raises(TypeError, match="check=True is for native functions"):
        accelrt.Stream("xpu").launch(axpy, 1, None, None, global_size=1, check=True)
    here = accelrt.zeros(16, device="cpu")
    with pytest.raises(RuntimeError, match="cannot work on a buffer of cpu:0"):
        accelrt.Stream("xpu").launch(axpy, 1, here, here, global_size=1)
    released = accelrt.zeros(16, device="xpu")
    released.release()
    with pytest.raises(BufferError, match="was released"):
        accelrt.Stream("xpu").launch(axpy, 1, released, released, global_size=1)


@needs_xpu
def test_the_compilers_words_are_in_the_error() -> None:
    text = "kernel void broken(global int* x) { x[0] = nothing_of_this_name; }"
    with pytest.raises(
        RuntimeError, match=r"(?s)Building the program for xpu:0 failed: .*nothing_of"
    ):
        accelrt.xpu.Program(text)
    with pytest.raises(RuntimeError, match="Building the program for xpu:0 failed"):
        accelrt.xpu.Program(TEXT, "-no-such-option")
    with pytest.raises(RuntimeError, match="the options contain a zero byte"):
        accelrt.xpu.Program(TEXT, "-w\0")
    with pytest.raises(RuntimeError, match="the binary is no SPIR-V"):
        accelrt.xpu.Program(b"no program")


@needs_xpu
def test_options_reach_the_compiler() -> None:
    text = "kernel void put(global int* x) { x[get_global_id(0)] = NUMBER; }"
    out = accelrt.zeros(8, device="xpu")
    put = accelrt.xpu.Program(text, "-DNUMBER=41").kernel("put")
    accelrt.xpu.current_stream().launch(put, out, global_size=2)
    assert from_device(out, "int32").tolist() == [41, 41]


@needs_xpu
def test_programs_and_kernels_say_what_they_are(program: accelrt.xpu.Program) -> None:
    assert sorted(program.kernel_names) == ["axpy", "numbers", "place", "total", "vector"]
    axpy = program.kernel("axpy")
    assert (axpy.name, axpy.__name__, axpy.device) == ("axpy", "axpy", accelrt.device("xpu:0"))
    assert axpy.parameters == [("float", "a"), ("float*", "x"), ("float*", "y")]
    assert repr(axpy) == "accelrt.xpu.Kernel(axpy(float a, float* x, float* y), device='xpu:0')"
    assert repr(program) == "accelrt.xpu.Program(device='xpu:0')"
    with pytest.raises(ValueError, match='has no kernel "axpby": it has "'):
        program.kernel("axpby")
    with pytest.raises(TypeError, match="name must be a str, not int"):
        program.kernel(3)  # type: ignore[arg-type]


@needs_xpu
def test_a_binary_in_spir_v_is_a_program_that_takes_typed_values() -> None:
    kernel = accelrt.xpu.Program(spirv.add()).kernel("add")
    stream, buffer = accelrt.Stream("xpu"), accelrt.zeros(16, device="xpu")
    buffer.stream.synchronize()
    for value in (5, -2):
        stream.launch(kernel, buffer, ctypes.c_int32(value), global_size=4)
    stream.synchronize()
    assert from_device(buffer, "int32").tolist() == [3, 3, 3, 3]
    # It does not tell what its parameters are, so a number alone has no size.
    with pytest.raises(TypeError, match="ctypes"):
        stream.launch(kernel, buffer, 5, global_size=4)
