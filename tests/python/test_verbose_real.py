"""Verbose scopes on the real oneMKL and oneDNN, and the examples of `docs/verbose.md` on them.

Method: processes of their own, which call the libraries that `make peers` installs.
"""

import importlib.util
import os
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import output_of
from real_math import MATH, mkl, onednn_2, onednn_3

DOCUMENT = Path(__file__).parents[2] / "docs" / "verbose.md"
BOTH_ONEDNN = pytest.mark.parametrize("library", [onednn_2, onednn_3])
HEAD = """
import ctypes, os, sys
import accelrt
from accelrt.backends import mkl, mkldnn
from math_calls import OneDnn, gemm

def names(log):
    return " ".join(record.name for record in log.records)
"""


def prints(body: str, **settings: str) -> list[str]:
    return output_of(HEAD + textwrap.dedent(body), **settings).splitlines()


def test_a_gemm_of_onemkl_is_captured() -> None:
    body = f"""
        library = ctypes.CDLL({mkl()!r})
        gemm(library, 64)
        with mkl.verbose(mkl.VERBOSE_ON, capture=True) as log:
            print("inside")
            gemm(library, 256)
            gemm(library, 300)
        gemm(library, 64)
        record = log.records[1]
        print(names(log), record.fields["call"].split(",")[2], record.ms > 0, record.fields["NThr"])
        print(log.lines[0].startswith("MKL_VERBOSE oneMKL"), mkl.is_available(), mkl.version())
    """
    inside, record, facts = prints(body, MKL_NUM_THREADS="2")
    assert (inside, record) == ("inside", "DGEMM DGEMM 300 True 2")
    assert re.fullmatch(r"True True 20\d\d\.\d+\.\d+", facts)


def test_onemkl_prints_again_what_its_environment_asks_for() -> None:
    body = f"""
        library = ctypes.CDLL({mkl()!r})
        with mkl.verbose(mkl.VERBOSE_OFF):
            gemm(library, 64)
            with mkl.verbose(mkl.VERBOSE_ON, capture=True) as log:
                gemm(library, 65)
            gemm(library, 66)
        gemm(library, 67)
        print(len(log.records))
    """
    *printed, count = prints(body, MKL_VERBOSE="1")
    calls = [line for line in printed if "DGEMM" in line]
    assert (count, len(calls)) == ("1", 1)
    assert ",67,67,67," in calls[0]


def test_onemkl_is_loaded_from_the_folder_of_the_wheels_or_as_the_setting_says() -> None:
    folder = str(Path(mkl()).parent.parent)
    body = """
        with mkl.verbose(1, capture=True) as log:
            (path,) = {line.split()[-1] for line in open("/proc/self/maps") if "libmkl_rt" in line}
            gemm(ctypes.CDLL(path), 64)
        print(names(log))
    """
    assert prints(f"sys.prefix = {folder!r}\n" + textwrap.dedent(body)) == ["DGEMM"]
    assert prints(body, ACCELRT_MKL_LIBRARY=mkl()) == ["DGEMM"]


@BOTH_ONEDNN
def test_a_matmul_of_onednn_is_captured(library: Callable[[], str]) -> None:
    body = f"""
        onednn = OneDnn({library()!r})
        onednn.matmul(32)
        with mkldnn.verbose(mkldnn.VERBOSE_ON, capture=True) as log:
            print("inside")
            onednn.matmul(64)
            onednn.matmul(96)
        onednn.matmul(32)
        record = log.records[1]
        print(names(log), record.ms > 0, record.fields["problem_desc"][:5])
        print(record.fields["engine"], record.fields["operation"])
        print("onednn_verbose,info,oneDNN v" + mkldnn.version() in log.lines[0], len(log.table()))
    """
    inside, record, where, facts = prints(body, ACCELRT_DNNL_LIBRARY=library())
    assert (inside, record, where) == ("inside", "matmul matmul True 96x96", "cpu exec")
    assert facts.startswith("True ")


@BOTH_ONEDNN
def test_creations_and_timestamps_of_onednn_are_read(library: Callable[[], str]) -> None:
    body = f"""
        onednn = OneDnn({library()!r})
        with mkldnn.verbose(mkldnn.VERBOSE_ON_CREATION, capture=True) as log:
            onednn.matmul(64)
            onednn.matmul(64)
        print(*(record.name for record in log.records), sep=", ")
        print(all(float(record.fields["timestamp"]) > 1e12 for record in log.records))
    """
    setting = {"ONEDNN_VERBOSE_TIMESTAMP": "1", "ACCELRT_DNNL_LIBRARY": library()}
    assert prints(body, **setting) == [
        "matmul create:cache_miss, matmul, matmul create:cache_hit, matmul",
        "True",
    ]


@BOTH_ONEDNN
def test_onednn_prints_again_what_its_environment_asks_for(library: Callable[[], str]) -> None:
    body = f"""
        onednn = OneDnn({library()!r})
        with mkldnn.verbose(mkldnn.VERBOSE_OFF):
            onednn.matmul(64)
        onednn.matmul(65)
    """
    printed = prints(body, ONEDNN_VERBOSE="1", ACCELRT_DNNL_LIBRARY=library())
    calls = [line for line in printed if ",matmul," in line]
    assert len(calls) == 1
    assert "65x65" in calls[0]


def test_two_versions_of_onednn_in_one_process_are_both_watched() -> None:
    body = f"""
        old, new = OneDnn({onednn_2()!r}), OneDnn({onednn_3()!r})
        with mkldnn.verbose(1, capture=True) as log:
            old.matmul(64)
            new.matmul(96)
        print(*(record.fields["problem_desc"] for record in log.records))
    """
    assert prints(body) == ["64x64:64x64:64x64 96x96:96x96"]


def test_neither_library_takes_a_level_that_there_is_not() -> None:
    # They would refuse these too; what they answer is what the setter's answer is taken for.
    body = f"""
        onemkl, onednn = ctypes.CDLL({mkl()!r}), ctypes.CDLL({onednn_3()!r})
        print(onemkl.MKL_Verbose(-1), onednn.dnnl_set_verbose(3))
        print(onemkl.MKL_Verbose(0), onednn.dnnl_set_verbose(0))
    """
    first, second = prints(body)
    refused_mkl, refused_onednn = first.split()
    assert (refused_mkl, second) == ("-1", "0 0")
    assert refused_onednn != "0"


def blocks() -> list[str]:
    """Return the examples of the document."""
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)


def example(number: int, **settings: str) -> str:
    """Return what an example prints; `gemm` and `matmul` call the real libraries."""
    head = f"""
        import ctypes, sys
        import math_calls
        sys.path.append({str(next(MATH.glob("lib/python3*/site-packages"), MATH))!r})
        onemkl, onednn = ctypes.CDLL({mkl()!r}), math_calls.OneDnn({onednn_3()!r})

        def gemm(size):
            math_calls.gemm(onemkl, size)

        matmul = onednn.matmul
    """
    code = textwrap.dedent(head) + blocks()[number]
    return output_of(code, ACCELRT_DNNL_LIBRARY=onednn_3(), ACCELRT_MKL_LIBRARY=mkl(), **settings)


def shape(table: str) -> list[list[str]]:
    """Return the names and counts of a table, without its times."""
    rows = re.findall(r"^(oneMKL|oneDNN|accelrt) +(.+?) +(\d+) +\d+\.\d+ ", table, re.MULTILINE)
    return sorted(map(list, rows))


def documented(number: int) -> str:
    """Return what the document shows below an example."""
    text = DOCUMENT.read_text("utf-8")
    pairs = re.findall(r"```python\n.*?```\n+```text\n(.*?)```", text, re.DOTALL)
    return str(pairs[number])


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5])
def test_an_example_of_the_document_prints_what_the_document_shows(number: int) -> None:
    printed = example(number)
    assert shape(printed) == shape(documented(number)) != []
    assert printed.splitlines()[-1].endswith(" ms")


def test_a_model_of_torch_is_watched() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    code = blocks()[4]
    assert "torch" in code
    printed = output_of(code, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    rows = shape(printed)
    assert ["oneMKL", "SGEMM"] in [row[:2] for row in rows]
    assert ["oneDNN", "convolution"] in [row[:2] for row in rows]
