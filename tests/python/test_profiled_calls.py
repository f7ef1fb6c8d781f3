"""Calls of oneMKL and oneDNN in a profile: rows, tracks, and what a capture costs a program.

Method: processes of their own, whose fakes of the libraries print lines as they are told, and the
real libraries where `make peers` has installed them. Times are those of the lines; where a call
stands is compared with other calls, never with a clock.
"""

import itertools
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from accelrt.cli.view import profile as profile_page
from fake_math import fake_mkl, fake_onednn, watched
from processes import output_of, run
from real_math import mkl, onednn_3

DOCUMENT = Path(__file__).parents[2] / "docs" / "profiling.md"
GEMM = "MKL_VERBOSE DGEMM(N,N,64,0x7f) {} CNR:OFF NThr:2\\n"
MATMUL = "onednn_verbose,exec,cpu,matmul,jit,undef,md,,,64x64,{}\\n"


def body(code: str) -> str:
    """Return code behind a head with both fakes, and functions that have them print a call."""
    head = f"""
        from accelrt import profiler

        onemkl, onednn = load({str(fake_mkl())!r}), load({str(fake_onednn())!r})

        def gemm(time="2ms", times=1):
            onemkl.print_line(b"{GEMM}".replace(b"{{}}", time.encode()) * times)

        def matmul(ms="0.5"):
            onednn.print_line(b"{MATMUL}".replace(b"{{}}", ms.encode()))

        def rows(run):
            return sorted((row.key, row.count, round(row.self_ms, 3)) for row in run.key_averages())
    """
    return textwrap.dedent(head) + textwrap.dedent(code)


def calls_of(path: Path) -> list[dict[str, Any]]:
    """Return the slices of library calls of a trace, by their beginnings, with their tracks."""
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    calls = [event for event in events if event.get("cat") == "library call"]
    for call in calls:
        call["track"] = tracks[call["pid"], call["tid"]]
    return sorted(calls, key=lambda call: call["ts"])


def test_a_verbose_profile_has_the_calls_between_its_begin_and_its_end() -> None:
    code = """
        gemm()
        with profiler.profile(verbose=True) as run:
            gemm("2ms")
            gemm("4ms")
            matmul("0.5")
        gemm()
        print(rows(run))
        row = run.key_averages()[0]
        print(row.key, row.is_range, row.mean_ms, row.total_ms, row.stream_ms, row.bytes)
        print(run.key_averages().table().splitlines()[3].split()[0])
    """
    assert watched(body(code)) == [
        "[('mkl::DGEMM', 2, 6.0), ('onednn::matmul', 1, 0.5)]",
        "mkl::DGEMM False 3.0 6.0 0.0 0",
        "mkl::DGEMM",
    ]


def test_what_is_no_call_is_printed_except_introductions() -> None:
    code = """
        with profiler.profile(verbose=True):
            onemkl.print_line(b"MKL_VERBOSE oneMKL 2024.0 Product build for Intel(R) 64\\n")
            onednn.print_line(b"onednn_verbose,info,oneDNN v3.2.1 (commit 1)\\n")
            onednn.print_line(b"onednn_verbose,v1,error,cannot allocate\\n")
            gemm()
            print("the program's own")
    """
    expected = ["onednn_verbose,v1,error,cannot allocate", "the program's own"]
    assert watched(body(code)) == expected


def test_a_capture_inside_of_a_profile_is_enough_and_keeps_its_lines() -> None:
    code = """
        with profiler.profile() as run:
            with mkl.verbose(1, capture=True) as log:
                gemm("2ms")
            with mkl.verbose(1):
                gemm("9ms")
        print(rows(run), [record.ms for record in log.records])
    """
    assert watched(body(code)) == [
        GEMM.format("9ms").removesuffix("\\n"),
        "[('mkl::DGEMM', 1, 2.0)] [2.0]",
    ]


def test_a_profile_inside_of_a_capture_has_what_was_called_while_it_was_on() -> None:
    code = """
        outer, inner = profiler.profile(), profiler.profile()
        with mkl.verbose(1, capture=True) as log:
            gemm("1ms")
            with outer:
                gemm("2ms")
                with inner:
                    gemm("4ms")
                gemm("8ms")
            gemm("16ms")
        print(rows(outer), rows(inner), len(log.records))
    """
    assert watched(body(code)) == ["[('mkl::DGEMM', 3, 14.0)] [('mkl::DGEMM', 1, 4.0)] 5"]


def test_calls_stand_on_tracks_of_their_libraries_and_overlap_on_none(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code = f"""
        with profiler.profile(verbose=True) as run:
            with mkl.verbose(1, capture=True) as log:
                gemm("9000s")
                assert log.lines  # reads the line, so that the next one is read by itself
                gemm("9000s")  # began long before the other one ended: on another thread
            matmul("0.25")
        run.export_chrome_trace({str(path)!r})
    """
    watched(body(code))
    first, second, third = calls_of(path)
    assert {first["track"], second["track"]} == {"oneMKL", "oneMKL 2"}
    assert (third["track"], third["name"], third["dur"]) == ("oneDNN", "onednn::matmul", 250.0)
    assert third["args"]["implementation"] == "jit"
    assert first["args"] == {"call": "DGEMM(N,N,64,0x7f)", "CNR": "OFF", "NThr": "2"}


def test_lines_that_are_read_at_once_are_calls_one_behind_the_other(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code = f"""
        with profiler.profile(verbose=True) as run:
            gemm("2ms", times=3)
        run.export_chrome_trace({str(path)!r})
    """
    watched(body(code))
    calls = calls_of(path)
    assert {call["track"] for call in calls} == {"oneMKL"}
    for call, following in itertools.pairwise(calls):
        assert call["ts"] + call["dur"] == pytest.approx(following["ts"], abs=0.002)


def test_a_page_of_the_trace_has_the_calls(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code = f"""
        with profiler.profile(verbose=True) as run:
            gemm()
        run.export_chrome_trace({str(path)!r})
    """
    watched(body(code))
    head, _ = profile_page.view(profile_page.read(path)[0])
    tracks = [(track["process"], track["thread"]) for track in head["tracks"]]
    assert ("library calls", "oneMKL") in tracks
    assert "mkl::DGEMM" in head["names"]
    assert any("DGEMM(N,N,64,0x7f)" in detail for detail in head["details"])


def test_calls_that_find_no_room_are_counted() -> None:
    code = """
        with profiler.profile(verbose=True, max_records=2) as run:
            gemm("1ms", times=5)
        print(rows(run), run.num_dropped_records)
    """
    told = watched(body(code))
    # The records about threads find no room either, where there are more than two.
    assert told[0].startswith("[('mkl::DGEMM', 2, 2.0)]")
    assert int(told[0].split()[-1]) >= 3


def test_a_profile_without_a_library_is_refused_and_leaves_the_output_as_it_was() -> None:
    code = """
        import os
        import accelrt
        from accelrt import profiler
        before = os.fstat(1).st_ino
        run = profiler.profile(verbose=True)
        for _ in range(2):
            try:
                run.start()
            except RuntimeError as error:
                print("ACCELRT_MKL_LIBRARY=/nowhere/mkl alone" in str(error))
        print(os.fstat(1).st_ino == before)
        with profiler.profile():
            pass
    """
    nowhere = {"ACCELRT_MKL_LIBRARY": "/nowhere/mkl", "ACCELRT_DNNL_LIBRARY": "/nowhere/dnnl"}
    # A refused profile may be started again, which is refused again.
    assert output_of(code, **nowhere).split() == ["True", "True", "True"]


def test_a_flag_of_another_type_is_refused_by_name() -> None:
    code = """
        try:
            profiler.profile(verbose="mkl")
        except TypeError as error:
            print("verbose" in str(error))
    """
    assert watched(body(code)) == ["True"]


def test_the_environment_makes_calls_a_part_of_a_programs_profile(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code = """
        onednn.print_later(b"of C, before the profile\\n")
        accelrt.zeros(64).stream.synchronize()
        matmul("0.5")
        gemm()
        print("printed")
    """
    settings = {"ACCELRT_PROFILE": str(path), "ONEDNN_VERBOSE": "1"}
    assert watched(body(code), **settings) == ["of C, before the profile", "printed"]
    # oneMKL is silent: nothing asks it for lines.
    assert [call["name"] for call in calls_of(path)] == ["onednn::matmul"]


def test_lines_are_printed_where_the_environment_asks_for_no_profile() -> None:
    code = """
        accelrt.zeros(64).stream.synchronize()
        matmul("0.5")
    """
    printed = watched(body(code), ONEDNN_VERBOSE="1")
    assert printed == [MATMUL.format("0.5").removesuffix("\\n")]


def test_a_forked_child_ends_its_parents_verbose_profile_and_has_no_calls() -> None:
    code = """
        warnings.simplefilter("ignore")
        with profiler.profile(verbose=True) as run:
            gemm("2ms")
            child = os.fork()
            if child == 0:
                run.stop()
                os._exit(len(run.key_averages()))
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            gemm("4ms")
        print(rows(run))
    """
    assert watched(body(code)) == ["0", "[('mkl::DGEMM', 2, 6.0)]"]


def test_the_real_libraries_are_profiled(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code = f"""
        import ctypes
        from accelrt import profiler
        from math_calls import OneDnn, gemm
        onemkl, onednn = ctypes.CDLL({mkl()!r}), OneDnn({onednn_3()!r})
        gemm(onemkl, 64)
        with profiler.profile(verbose=True) as run:
            gemm(onemkl, 300)
            gemm(onemkl, 300)
            onednn.matmul(96)
        for row in sorted(run.key_averages(), key=lambda row: row.key):
            print(row.key, row.count, row.self_ms > 0)
        run.export_chrome_trace({str(path)!r})
    """
    settings = {"ACCELRT_MKL_LIBRARY": mkl(), "ACCELRT_DNNL_LIBRARY": onednn_3()}
    expected = ["mkl::DGEMM 2 True", "onednn::matmul 1 True"]
    assert output_of(code, **settings).splitlines() == expected
    calls = calls_of(path)
    assert [call["args"].get("problem_desc", "")[:5] for call in calls if "on" in call["name"]]
    assert ",300,300,300," in calls[0]["args"]["call"]


def test_the_example_of_the_document_prints_the_rows_that_stand_there() -> None:
    example = r"```python\n([^`]*verbose=True.*?)```\n+```text\n(.*?)```"
    ((code, shown),) = re.findall(example, DOCUMENT.read_text("utf-8"), re.DOTALL)
    head = f"""
        import ctypes, math_calls
        onemkl, onednn = ctypes.CDLL({mkl()!r}), math_calls.OneDnn({onednn_3()!r})
        gemm, matmul = (lambda size: math_calls.gemm(onemkl, size)), onednn.matmul
    """
    settings = {"ACCELRT_MKL_LIBRARY": mkl(), "ACCELRT_DNNL_LIBRARY": onednn_3()}
    printed = output_of(textwrap.dedent(head) + code, **settings)
    row = re.compile(r"^ *(\S+::\S+) .* (\d+)$", re.MULTILINE)
    assert sorted(row.findall(printed)) == sorted(row.findall(shown)) != []


def test_onednn_tells_when_its_calls_began(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code = f"""
        from accelrt import profiler
        from math_calls import OneDnn
        onednn = OneDnn({onednn_3()!r})
        with profiler.profile(verbose=True) as run:
            with profiler.record_function("first"):
                onednn.matmul(256)
            with profiler.record_function("second"):
                onednn.matmul(256)
        run.export_chrome_trace({str(path)!r})
    """
    settings = {"ONEDNN_VERBOSE_TIMESTAMP": "1", "ACCELRT_DNNL_LIBRARY": onednn_3()}
    output_of(code, **settings)
    events = json.loads(path.read_text())["traceEvents"]
    ranges = [event for event in events if event.get("cat") == "range"]
    for range_, call in zip(ranges, calls_of(path), strict=True):
        # Between the readings of two clocks another thread may have had the processor.
        assert range_["ts"] - 10_000 < call["ts"]
        assert call["ts"] + call["dur"] < range_["ts"] + range_["dur"] + 10_000


def test_a_program_is_profiled_with_the_real_libraries_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code = f"""
        import accelrt, ctypes
        from math_calls import gemm
        accelrt.Stream().launch_host(gemm, ctypes.CDLL({mkl()!r}), 64).result()
        print("printed")
    """
    ended = run("-c", textwrap.dedent(code), ACCELRT_PROFILE=str(path), MKL_VERBOSE="1")
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "printed\n")
    (call,) = calls_of(path)
    assert call["name"] == "mkl::DGEMM"


def test_a_verbose_profile_without_a_library_names_both_that_would_do() -> None:
    code = """
        from accelrt import profiler
        try:
            profiler.profile(verbose=True).start()
        except RuntimeError as error:
            print(error)
    """
    settings = {"ACCELRT_MKL_LIBRARY": "/nowhere/mkl", "ACCELRT_DNNL_LIBRARY": "/nowhere/dnnl"}
    told = output_of(code, **settings)
    assert told.startswith("verbose=True needs oneMKL or oneDNN, and neither was found. No oneMKL")
    assert "No oneDNN" in told
