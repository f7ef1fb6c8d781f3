"""Verbose lines as records, tables and JSON: lines as printed, and lines that nobody printed.

Method: lines of the versions at hand, each with what it says; and random damage to them, behind
which a parser must neither raise nor invent.
"""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelrt import cli
from accelrt._verbose import VerboseLog
from accelrt._verbose_records import Record, parse
from processes import run

MATMUL = (
    "cpu,matmul,gemm:jit:f32,undef,src_f32::blocked:ab::f0 dst_f32::blocked:ab::f0,,,64x64:64x64"
)
CONVOLUTION = (
    "cpu,convolution,jit:avx2,forward_training,src:f32:a:blocked:aBcd8b::f0,attr-scratchpad:user,"
    "alg:convolution_direct,mb8_ic16oc32_ih64oh60kh5sh1dh0ph0_iw64ow60kw5sw1dw0pw0"
)
PARTS = "operation,engine,primitive,implementation,prop_kind,memory_descriptors"
TEMPLATE = f"template:{PARTS},attributes,auxiliary,problem_desc,exec_time"
GEMM = "DGEMM(N,N,256,256,256,0x7ffcc71fade0,0x7f3b45f7f010,256)"
FFT = "FFT(drfo4096,input_strides:{0,1},bScale:0.000244141,desc:0x55866667e700)"
REST = "CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2"
SAMPLES = [
    f"onednn_verbose,exec,{MATMUL},0.0209961",
    f"onednn_verbose,1795290250653.610107,exec,{MATMUL},17.6589",
    f"onednn_verbose,v1,primitive,create:cache_miss,{CONVOLUTION},16.5508",
    f"onednn_verbose,v1,1795290516624.013916,primitive,exec,{CONVOLUTION},26.4121",
    f"MKL_VERBOSE {GEMM} 1.98ms {REST}",
    f"MKL_VERBOSE {FFT} 19.52us {REST}",
]


def one(*lines: str) -> Record:
    (record,) = parse(lines)
    return record


def test_a_line_of_onednn_2_and_3_2_is_read() -> None:
    record = one(SAMPLES[0])
    assert (record.library, record.name, record.ms) == ("oneDNN", "matmul", 0.0209961)
    assert record.line == SAMPLES[0]
    assert record.fields == {
        "operation": "exec",
        "engine": "cpu",
        "primitive": "matmul",
        "implementation": "gemm:jit:f32",
        "prop_kind": "undef",
        "memory_descriptors": "src_f32::blocked:ab::f0 dst_f32::blocked:ab::f0",
        "attributes": "",
        "auxiliary": "",
        "problem_desc": "64x64:64x64",
        "exec_time": "0.0209961",
    }


def test_timestamps_are_told_apart_with_and_without_a_version() -> None:
    old, new = one(SAMPLES[1]), one(SAMPLES[3])
    assert (old.name, old.ms, old.fields["timestamp"]) == (
        "matmul",
        17.6589,
        "1795290250653.610107",
    )
    assert (new.name, new.ms, new.fields["timestamp"]) == (
        *("convolution", 26.4121, "1795290516624.013916"),
    )


def test_creations_have_names_of_their_own() -> None:
    record = one(SAMPLES[2])
    assert (record.name, record.ms) == ("convolution create:cache_miss", 16.5508)
    assert record.fields["auxiliary"] == "alg:convolution_direct"


@pytest.mark.parametrize(
    "head", ["info,prim_", "v1,primitive,info,", "primitive,info,", "info,prim_template:timestamp,"]
)
def test_the_template_that_the_library_prints_says_what_the_parts_are(head: str) -> None:
    parts = "operation,engine,primitive,novelty,problem_desc,exec_time"
    start = "" if head.endswith(",") and "template" in head else "template:"
    line = "onednn_verbose,exec,cpu,matmul,new,64x64,2"
    record = one(f"onednn_verbose,{head}{start}{parts}", line)
    assert (record.name, record.ms) == ("matmul", 2.0)
    assert record.fields["novelty"] == "new"
    assert list(parse([line])) == []  # as the usual template it would be too short


def test_a_comma_inside_of_a_part_does_not_move_the_time() -> None:
    line = SAMPLES[0].replace("64x64:64x64", "64x64,with,commas")
    assert (one(line).ms, one(line).fields["problem_desc"]) == (0.0209961, "64x64,with,commas")


def test_partitions_of_graphs_are_calls() -> None:
    line = "onednn_verbose,v1,graph,exec,cpu,100002,matmul_post_ops,matmul,fmt,in,strict,k,dnnl,0.5"
    record = one(line)
    assert (record.name, record.ms, record.fields["backend"]) == ("matmul_post_ops", 0.5, "dnnl")


@pytest.mark.parametrize(
    ("time", "ms"), [("1.5ns", 1.5e-6), ("19.52us", 0.01952), ("7ms", 7.0), ("1.25s", 1250.0)]
)
def test_units_of_mkl_become_milliseconds(time: str, ms: float) -> None:
    record = one(f"MKL_VERBOSE {GEMM} {time} {REST}")
    assert (record.library, record.name) == ("oneMKL", "DGEMM")
    assert math.isclose(record.ms, ms)
    assert record.fields == {
        "call": GEMM,
        "CNR": "OFF",
        "Dyn": "1",
        "FastMM": "1",
        "TID": "0",
        "NThr": "2",
    }


def test_calls_of_mkl_with_brackets_and_colons_are_read() -> None:
    assert one(SAMPLES[5]).fields["call"] == FFT


@pytest.mark.parametrize(
    "line",
    [
        "",
        "text",
        "onednn_verbose",
        "onednn_verbose,",
        "onednn_verbose,v1",
        "onednn_verbose,v1,primitive",
        "onednn_verbose,info,oneDNN v3.2.0 (commit 40112196287e8866a7259df35f817229454d0c96)",
        "onednn_verbose,info,cpu,runtime:OpenMP,nthr:2",
        f"onednn_verbose,info,prim_{TEMPLATE}",
        "onednn_verbose,error,cannot open file 12",
        "onednn_verbose,info,prim_template:operation",
        f"onednn_verbose,exec,{MATMUL}",
        f"onednn_verbose,exec,{MATMUL},soon",
        f"onednn_verbose,exec,{MATMUL},nan",
        f"onednn_verbose,exec,{MATMUL},-1",
        f"onednn_verbose,exec,{MATMUL},1e999",
        f"onednn_verbose,execute,{MATMUL},1",
        "MKL_VERBOSE ",
        "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605 for Intel(R) 64",
        "MKL_VERBOSE DGEMM(N,N) 1.5 CNR:OFF",
        "MKL_VERBOSE DGEMM(N,N) 1.5min CNR:OFF",
        "MKL_VERBOSE DGEMM(N,N 1.5ms CNR:OFF",
        "MKL_VERBOSE (N,N) 1.5ms CNR:OFF",
        "MKL_VERBOSE=1",
    ],
)
def test_what_tells_of_no_call_is_no_record(line: str) -> None:
    assert list(parse([line])) == []


def test_a_library_may_print_behind_other_text() -> None:
    record = one(f"12:00:01 INFO  {SAMPLES[4]}\r\n")
    assert (record.name, record.line) == ("DGEMM", SAMPLES[4])


@given(st.sampled_from(SAMPLES), st.data())
def test_damaged_lines_neither_raise_nor_invent(sample: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(sample)))
    end = data.draw(st.integers(start, len(sample)))
    patch = data.draw(st.text(alphabet=st.sampled_from(",:. ()0123456789emnsuv\n\0é"), max_size=8))
    damaged = sample[:start] + patch + sample[end:]
    for record in parse([damaged]):
        assert record.name
        assert math.isfinite(record.ms)
        assert record.ms >= 0
        assert record.line in damaged
        assert all(value in damaged for value in record.fields.values())


@given(st.lists(st.one_of(st.sampled_from([*SAMPLES, TEMPLATE]), st.text(max_size=60)), max_size=8))
def test_any_text_makes_a_table_and_json(lines: list[str]) -> None:
    log = VerboseLog(lines)
    assert len(json.loads(log.to_json())) == len(log.records)
    for order in ("total", "calls", "mean", "max", "name"):
        assert f"{len(log.records)} call" in log.table(order)


@given(
    st.text(alphabet=st.sampled_from("onednn_verbose,v1infoprim_template:x,timestamp"), max_size=60)
)
def test_any_template_is_lived_with(template: str) -> None:
    list(parse([f"onednn_verbose,info,{template}", *SAMPLES]))


LOG = VerboseLog(
    [
        "MKL_VERBOSE DGEMM(1) 3ms CNR:OFF",
        "MKL_VERBOSE SGEMM(1) 4ms CNR:OFF",
        "MKL_VERBOSE DGEMM(1) 2ms CNR:OFF",
        f"onednn_verbose,exec,{MATMUL},1",
    ]
)


def test_a_table_has_a_line_for_each_name_and_the_sum() -> None:
    assert LOG.table() == (
        "-------  ------  -----  --------  -----  -------  ------\n"
        "library  name    calls  total ms  share  mean ms  max ms\n"
        "-------  ------  -----  --------  -----  -------  ------\n"
        "oneMKL   DGEMM       2     5.000  50.0%    2.500   3.000\n"
        "oneMKL   SGEMM       1     4.000  40.0%    4.000   4.000\n"
        "oneDNN   matmul      1     1.000  10.0%    1.000   1.000\n"
        "-------  ------  -----  --------  -----  -------  ------\n"
        "4 calls, 10.000 ms\n"
    )


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("total", "DGEMM SGEMM matmul"),
        ("calls", "DGEMM SGEMM matmul"),
        ("mean", "SGEMM DGEMM matmul"),
        ("max", "SGEMM DGEMM matmul"),
        ("name", "DGEMM SGEMM matmul"),
    ],
)
def test_a_table_is_in_the_order_that_is_asked(order: str, names: str) -> None:
    rows = LOG.table(sort_by=order).splitlines()[3:-2]
    assert " ".join(row.split()[1] for row in rows) == names


def test_an_order_that_there_is_not_is_told_with_those_that_there_are() -> None:
    message = "sort_by must be one of total, calls, mean, max, name, not 'time'"
    with pytest.raises(ValueError, match=message):
        LOG.table("time")


def test_json_has_the_records() -> None:
    (record,) = json.loads(VerboseLog([SAMPLES[4]]).to_json())
    assert (record["library"], record["name"], record["ms"]) == ("oneMKL", "DGEMM", 1.98)
    assert record["fields"]["NThr"] == "2"


def test_the_command_makes_the_table_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "log", tmp_path / "out.json"
    text = "\n".join(("text \f", *LOG.lines, "more\xff"))
    log.write_bytes(text.encode("latin-1"))
    command = ["verbose", str(log), "--sort-by", "mean", "--json", str(out)]
    assert cli.main(command) == 0
    assert capsys.readouterr().out == LOG.table("mean")
    assert out.read_text("utf-8") == LOG.to_json()


@pytest.mark.parametrize(
    ("name", "content", "status", "message"),
    [
        ("missing", None, 2, "cannot read {}: No such file or directory"),
        ("", None, 2, "cannot read {}: Is a directory"),
        ("empty", b"", 1, "{} has no verbose line that tells of a call"),
        ("other", b"\x80\0abc\n" * 9, 1, "{} has no verbose line that tells of a call"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(
    tmp_path: Path, name: str, content: bytes | None, status: int, message: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    ended = run("-m", "accelrt", "verbose", str(file))
    expected = f"accelrt verbose: {message.format(tmp_path / name)}\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", expected)


def test_a_wrong_order_on_the_command_line_is_told_what_is_right() -> None:
    ended = run("-m", "accelrt", "verbose", "file", "--sort-by", "time")
    assert ended.returncode == 2
    assert "argument --sort-by: invalid choice: 'time'" in ended.stderr
