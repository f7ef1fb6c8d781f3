"""oneMKL's memory: `backends.mkl.use_allocator`, on the real library and on fakes.

Goal: oneMKL takes its memory from the allocator that is named, or nothing has changed; every piece
goes back to who gave it; ours is counted. Method: processes of their own, because oneMKL reads its
functions once; the real library computes, and fakes refuse.
"""

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from fake_math import fake_mkl
from processes import output_of
from real_math import mkl, of_system

HEAD = """
import ctypes, os, sys, threading
import accelrt
from accelrt.backends import mkl
from children import outcome
from math_calls import gemm, product

def counted(what="requests.current"):
    return accelrt.accelerator.host_memory_stats()[f"active_{what}"]

def moves(call):
    before = counted("requests.allocated")
    call()
    return counted("requests.allocated") > before
"""


def prints(body: str, library: str | Path, **settings: str) -> list[str]:
    head = f"{HEAD}\nlibrary = ctypes.CDLL({str(library)!r})\n"
    return output_of(head + textwrap.dedent(body), **settings).splitlines()


def test_onemkl_takes_its_memory_from_the_host_cache_and_gives_it_back() -> None:
    body = """
        print(mkl.use_allocator("accelrt"), mkl.allocator(), counted() > 0)
        library.MKL_Free_Buffers()
        print(counted(), moves(lambda: gemm(library, 500)), counted("bytes.current") > 1_000_000)
        library.MKL_Free_Buffers()
        print(counted(), counted("bytes.current"))
    """
    assert prints(body, mkl()) == ["system accelrt True", "0 True True", "0 0"]


def test_onemkl_that_has_computed_refuses_and_nothing_has_changed() -> None:
    body = """
        gemm(library, 300)
        core = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps")
                                if "libmkl_core" in line))
        pointers = [ctypes.c_void_p.in_dll(one, name).value for one in (core, library)
                    for name in ("i_malloc", "i_calloc", "i_realloc", "i_free")]
        print(outcome(lambda: mkl.use_allocator("accelrt")))
        print(mkl.allocator(), counted("requests.allocated"), mkl.use_allocator("system"))
        print(pointers == [ctypes.c_void_p.in_dll(one, name).value for one in (core, library)
                           for name in ("i_malloc", "i_calloc", "i_realloc", "i_free")])
        print(product(library, 300))
    """
    refusal, *rest = prints(body, mkl())
    text = "RuntimeError: oneMKL does not get its memory from accelrt: "
    assert refusal.startswith(text)
    assert refusal.endswith(" made a GEMM and did not ask it for memory")
    assert rest == ["system 0 system", "True", "True"]


def test_memory_goes_back_to_who_gave_it_whichever_is_in_force() -> None:
    of_system("libmimalloc.so.2")
    body = """
        library.MKL_malloc.restype = ctypes.c_void_p
        library.MKL_malloc.argtypes = [ctypes.c_size_t, ctypes.c_int]
        library.MKL_realloc.restype = ctypes.c_void_p
        library.MKL_realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        library.MKL_free.argtypes = [ctypes.c_void_p]
        names, held = ["accelrt", "mimalloc", "system"], []
        for number in range(12):
            mkl.use_allocator(names[number % 3])
            memory = library.MKL_malloc(100_000, 64)
            ctypes.memset(memory, number, 100_000)
            held.append((number, memory))
            if number % 2:
                number, memory = held.pop(0)
                memory = library.MKL_realloc(memory, 300_000)
                print(ctypes.string_at(memory, 100_000) == bytes([number]) * 100_000)
                library.MKL_free(memory)
        for number, memory in held:
            print(ctypes.string_at(memory, 100_000) == bytes([number]) * 100_000)
            library.MKL_free(memory)
        library.MKL_Free_Buffers()
        print(counted(), counted("bytes.current"))
    """
    assert prints(body, mkl()) == ["True"] * 12 + ["0 0"]


def test_each_allocator_in_turn_serves_threads_that_compute_meanwhile() -> None:
    body = """
        is_over, wrong, rounds = threading.Event(), [], []
        mkl.use_allocator("accelrt")

        def compute(size):
            while not is_over.is_set():
                if not product(library, size):
                    wrong.append(size)
                rounds.append(size)

        threads = [threading.Thread(target=compute, args=(size,)) for size in (150, 310)]
        for thread in threads:
            thread.start()
        previous = [mkl.use_allocator(name) for name in ["system", "accelrt"] * 10]
        is_over.set()
        for thread in threads:
            thread.join()
        mkl.use_allocator("system")
        library.MKL_Free_Buffers()
        print(previous == ["accelrt", "system"] * 10, wrong, len(rounds) > 0)
    """
    assert prints(body, mkl(), MKL_NUM_THREADS="1") == ["True [] True"]


def test_a_library_in_the_global_scope_is_served_as_well() -> None:
    body = f"""
        library = ctypes.CDLL({mkl()!r}, mode=ctypes.RTLD_GLOBAL)
        print(mkl.use_allocator("accelrt"), moves(lambda: gemm(library, 700)))
    """
    assert output_of(HEAD + textwrap.dedent(body)).splitlines() == ["system True"]


def test_without_a_library_in_the_process_one_is_loaded() -> None:
    body = """
        print(mkl.use_allocator("accelrt"), mkl.allocator())
    """
    code = HEAD + textwrap.dedent(body)
    assert output_of(code, ACCELRT_MKL_LIBRARY=mkl()).splitlines() == ["system accelrt"]


def test_a_forked_child_computes_and_an_exit_with_buffers_is_silent() -> None:
    body = """
        mkl.use_allocator("accelrt")
        print(product(library, 200), flush=True)
        child = os.fork()
        if child == 0:
            library.MKL_Free_Buffers()
            print(product(library, 400), outcome(lambda: mkl.use_allocator("system"))[:12])
            sys.exit()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(product(library, 500), counted() > 0)
    """
    threads = {"MKL_THREADING_LAYER": "SEQUENTIAL"}
    printed = prints(body, mkl(), **threads)
    assert printed == ["True", "True RuntimeError", "0", "True True"]


def test_a_short_heap_is_an_error_of_onemkl_and_not_a_crash() -> None:
    body = """
        take = library.take_buffer
        take.restype, take.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        mkl.use_allocator("accelrt")
        before = take(1000)
        print(take(1 << 62), take(990) == before, counted())
    """
    library = fake_mkl("libmkl_rt.so.2", "-DPOINTERS")
    assert prints(body, library) == ["None True 1"]


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ([], "does not show its pointer i_malloc"),
        (["-DPOINTERS", "-DNO_GEMM"], "has no cblas_dgemm"),
        (["-DPOINTERS"], "made a GEMM and did not ask it for memory"),
    ],
    ids=["hidden", "without_gemm", "frugal"],
)
def test_what_cannot_be_served_is_refused_and_nothing_has_changed(
    options: list[str], refusal: str
) -> None:
    library = fake_mkl("libmkl_rt.so.2", *options)
    body = """
        def pointer():
            return ctypes.c_void_p.in_dll(library, "i_malloc").value

        before = outcome(pointer)
        print(outcome(lambda: mkl.use_allocator("accelrt")))
        print(mkl.allocator(), outcome(pointer) == before, counted("requests.allocated"))
    """
    text = f"RuntimeError: oneMKL does not get its memory from accelrt: {library} {refusal}"
    assert prints(body, library, FAKE_FRUGAL="1") == [text, "system True 0"]


def test_what_a_program_had_registered_is_the_system_and_frees_its_own() -> None:
    body = """
        take = library.take_buffer
        take.restype, take.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc, seen = ctypes.CDLL(None), []
        for name in ("malloc", "realloc"):
            getattr(libc, name).restype = ctypes.c_void_p
        libc.malloc.argtypes = libc.free.argtypes = [ctypes.c_void_p]
        libc.realloc.argtypes = [ctypes.c_void_p] * 2
        types = {"malloc": [ctypes.c_void_p] * 2, "realloc": [ctypes.c_void_p] * 3,
                 "free": [None, ctypes.c_void_p]}

        def registered(name):
            def call(*arguments):
                seen.append(name)
                return getattr(libc, name)(*[argument or 0 for argument in arguments])
            made = ctypes.CFUNCTYPE(*types[name])(call)
            ctypes.c_void_p.in_dll(library, f"i_{name}").value = ctypes.cast(
                made, ctypes.c_void_p).value
            return made

        kept = [registered(name) for name in types]
        mkl.use_allocator("accelrt")
        mkl.use_allocator("system")
        print(seen, counted())
        mkl.use_allocator("accelrt")
        print(seen, counted())
        mkl.use_allocator("system")
        take(5)
        library.MKL_Free_Buffers()
        print(seen[2:], counted())
    """
    library = fake_mkl("libmkl_rt.so.2", "-DPOINTERS")
    assert prints(body, library) == [
        "['malloc'] 0",
        "['malloc', 'free'] 1",
        "['malloc', 'realloc', 'free'] 0",
    ]


def test_mimalloc_that_lacks_something_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "empty.c"
    source.write_text("int mi_malloc(void) { return 0; }\n")
    for name in ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"):
        flags = ["-shared", "-fPIC", "-o", str(tmp_path / name)]
        subprocess.run(["cc", *flags, str(source)], check=True)  # noqa: S603, S607  as fake_math
    body = """
        print(outcome(lambda: mkl.use_allocator("mimalloc")), mkl.allocator())
    """
    folders = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("LD_LIBRARY_PATH")]))
    library = fake_mkl("libmkl_rt.so.2", "-DPOINTERS")
    text = "RuntimeError: oneMKL does not get its memory from mimalloc: it has no mi_calloc system"
    assert prints(body, library, LD_LIBRARY_PATH=folders) == [text]


def test_the_example_of_the_document_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "host_memory.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = f"{example}\nprint(previous, mkl.allocator())"
    assert output_of(code, ACCELRT_MKL_LIBRARY=mkl()).splitlines() == ["8388608", "system accelrt"]


def test_another_name_and_a_missing_library_are_named() -> None:
    code = """
        for name in ("jemalloc", "", 3):
            print(outcome(lambda: mkl.use_allocator(name)))
        print(outcome(lambda: mkl.use_allocator("accelrt"))[:70], mkl.use_allocator("system"))
    """
    setting = {"ACCELRT_MKL_LIBRARY": "/no/such/libmkl_rt.so"}
    *names, missing = output_of(HEAD + textwrap.dedent(code), **setting).splitlines()
    allowed = "name must be one of 'accelrt', 'mimalloc', 'system'"
    assert names[:2] == [f"ValueError: {allowed}, not '{name}'" for name in ("jemalloc", "")]
    assert names[2] == "TypeError: name must be a string, not int"
    text = "RuntimeError: oneMKL does not get its memory from accelrt: none was fo"
    assert missing == f"{text} system"
