"""Verbose lines as records, tables and JSON: lines as printed, and lines that nobody printed.

Method: lines of the versions at hand, each with its call; random damage to them, after which the
parser neither raises nor invents calls; and random logs of writers that cut each other's lines.
"""

import gzip
import io
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelrt import cli
from accelrt._verbose import VerboseLog
from accelrt._verbose_records import Record, parse, parts_of, read_log
from processes import LIMIT_SECONDS, run

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


GRAPH = (
    "convolution_post_ops,CONV_0;BINARY_1,data:NCX; filter:OIX;;,in0_f32:0:strided:undef:1x64:64s1 "
    "out0_f32:9:strided:undef:1x64:64s1"
)
MKLDNN = "reorder,jit:uni,undef,in:f32_oihw out:f32_Ohwi16o,num:1,64x3x11x11"
# Each line with the name of its call and one of its fields.
VERSIONS = [
    (f"mkldnn_verbose,exec,{MKLDNN},0.25", "reorder", ("problem_desc", "64x3x11x11")),
    (f"mkldnn_verbose,create,{MKLDNN},0.25", "reorder create", ("auxiliary", "num:1")),
    (f"mkldnn_verbose,exec,{MATMUL},0.25", "matmul", ("engine", "cpu")),
    (f"dnnl_verbose,exec,{MATMUL},0.25", "matmul", ("problem_desc", "64x64:64x64")),
    (
        f"onednn_graph_verbose,exec,cpu,100006,{GRAPH},fpm:strict,dnnl_backend,0.25",
        *("convolution_post_ops", ("backend", "dnnl_backend")),
    ),
    (
        f"onednn_graph_verbose,compile:cache_miss,cpu,100006,{GRAPH},fpm:strict,dnnl_backend,0.25",
        *("convolution_post_ops compile:cache_miss", ("fpmath_mode", "fpm:strict")),
    ),
    (
        f"onednn_verbose,v1,graph,compile:cache_hit,cpu,7,{GRAPH},fpm:strict,k,dnnl_backend,0.25",
        *("convolution_post_ops compile:cache_hit", ("implementation", "k")),
    ),
    (
        f"onednn_verbose,v1,graph,exec,cpu,7,{GRAPH},fpm:strict,scratchpad:64,k,dnnl_backend,0.25",
        *("convolution_post_ops", ("scratchpad", "64")),
    ),
    (
        "onednn_verbose,v1,graph,exec,gpu,_gen_index(a),7,attrs:{axis:2},inputs:{},outputs:{},0.25",
        *("_gen_index", ("engine", "gpu")),
    ),
    (
        f"onednn_verbose,v1,ukernel,exec,cpu,brgemm,,undef,{MATMUL.split(',')[-4]},,,64x64,0.25",
        *("brgemm", ("prop_kind", "undef")),
    ),
    (
        "MKL_VERBOSE oneapi::mkl::blas::dgemm(0x7ff,ColumnMajor,2400,0,0) 250us GPU0",
        *(
            "oneapi::mkl::blas::dgemm",
            ("call", "oneapi::mkl::blas::dgemm(0x7ff,ColumnMajor,2400,0,0)"),
        ),
    ),
    ("accelrt_verbose,cpu,0,1,fill,4096,0.25", "fill", ("bytes", "4096")),
]


@pytest.mark.parametrize(("line", "name", "field"), VERSIONS)
def test_lines_every_version_read(line: str, name: str, field: tuple[str, str]) -> None:
    record = one(line)
    assert (record.name, record.ms) == (name, 0.25)
    assert field in record.fields.items()


COLOURS = ["\x1b[32m", "\x1b[0m", "\x1b[1;38;5;9m", "\x1b(B\x1b[m"]
WHOLE = [*SAMPLES, *(line for line, _, _ in VERSIONS)]
TEXTS = ["loading", "12:00:01 INFO, ", "[ 3 of 4] ", "50%", '{"log":"']


@st.composite
def printed(draw: st.DrawFn, depth: int = 2) -> tuple[str, list[str], list[str]]:
    """Draw what several writers print, and the lines that were begun and those that are whole.

    A writer may be interrupted inside a line by others. A terminal may wrap a line, though not
    inside its time: the beginning of a number is a number. Wrapped lines therefore do not begin
    with the line break either, because they may interrupt a writer inside its time.
    """
    text, begun, whole = "", [], []
    for _ in range(draw(st.integers(0, 3))):
        line = draw(st.sampled_from(WHOLE))
        before = "".join(draw(st.lists(st.sampled_from([*TEXTS, *COLOURS]), max_size=2)))
        after = "".join(draw(st.lists(st.sampled_from([" ", "\t", "\r", *COLOURS]), max_size=2)))
        shown = before + line + after
        begun.append(line)
        kind = draw(st.sampled_from(["whole", "cut", "wrapped"]))
        if kind == "cut" and depth:
            place = draw(st.integers(0, len(shown)))
            inner, more_begun, more_whole = draw(printed(depth - 1))
            shown = shown[:place] + inner + shown[place:]
            begun += more_begun
            whole += more_whole
        elif kind == "wrapped":
            end = len(before) + line.rindex(") " if line.startswith("MKL") else ",")
            place = draw(st.integers(len(before) + 1, end))
            shown = shown[:place] + "\n" + shown[place:]
        else:
            whole.append(line)
        text += shown + draw(st.sampled_from(["\n", "\r\n"]))
    return text, begun, whole


def calls_of(lines: list[str]) -> Counter[tuple[str, str, float]]:
    return Counter((it.library, it.name, it.ms) for it in parse(lines))


@given(printed())
def test_lines_cut_and_mixed_invent_no_call(log: tuple[str, list[str], list[str]]) -> None:
    text, begun, whole = log
    found = calls_of(text.split("\n"))
    assert found <= calls_of(begun)
    assert calls_of(whole) <= found


@pytest.mark.parametrize("line", SAMPLES)
def test_line_cut_by_another_is_no_call(line: str) -> None:
    for place in range(len(line)):
        found = list(parse([line[:place] + SAMPLES[0]]))
        assert found[-1].line == SAMPLES[0]
        assert all(record.ms == one(line).ms for record in found[:-1])


@pytest.mark.parametrize("text", ["[ OK ] a test,5", "10:00:01,345", " INFO,7", ",5"])
def test_text_behind_time_is_no_time(text: str) -> None:
    assert list(parse([SAMPLES[0] + text])) == []


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"]


@given(printed(), st.sampled_from(ENCODINGS), st.sampled_from([bytes, gzip.compress]))
def test_logs_same_in_every_encoding(
    log: tuple[str, list[str], list[str]], encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    text = f"output of a program é \f\n{log[0]}"
    assert "".join(parts_of(io.BytesIO(pack(text.encode(encoding))))) == text


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


@given(printed())
def test_rows_sum_up_calls_of_library_and_name(log: tuple[str, list[str], list[str]]) -> None:
    lines = [*log[1], "onednn_verbose,exec,cpu,fill,jit,undef,src,,,64,0.5"]
    expected: dict[tuple[str, str], list[float]] = {}
    for record in parse(lines):
        expected.setdefault((record.library, record.name), []).append(record.ms)
    whole = sum(map(sum, expected.values()))
    rows = [
        (
            *(key[0], *key[1].split(), f"{len(times)}", f"{sum(times):.3f}"),
            *(f"{sum(times) / whole:.1%}", f"{sum(times) / len(times):.3f}", f"{max(times):.3f}"),
        )
        for key, times in expected.items()
    ]
    shown = VerboseLog(lines).table().splitlines()[3:-2]
    assert sorted(tuple(row.split()) for row in shown) == sorted(rows)


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


class Slow(io.RawIOBase):
    """A pipe, each read of which returns a byte."""

    def __init__(self, content: bytes) -> None:
        self.content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        byte = self.content.read(1)
        buffer[: len(byte)] = byte
        return len(byte)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_first_bytes_that_come_one_by_one(pack: Callable[[bytes], bytes], encoding: str) -> None:
    text = "\n".join(LOG.lines)
    file = io.BufferedReader(Slow(pack(text.encode(encoding))))
    assert "".join(parts_of(file)) == text
    assert not file.closed


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_command_reads_standard_input(pack: Callable[[bytes], bytes]) -> None:
    command = [sys.executable, "-m", "accelrt", "verbose", "-"]
    for lines, status in ((LOG.lines, 0), (["text"], 1)):
        ended = subprocess.run(  # noqa: S603  the interpreter of this test
            command,
            input=pack("\n".join(lines).encode("utf-16")),
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        shown = LOG.table() if status == 0 else ""
        assert (ended.returncode, ended.stdout.decode()) == (status, shown)
    assert (
        ended.stderr
        == b"accelrt verbose: the standard input has no verbose line that tells of a call\n"
    )


@pytest.mark.parametrize(
    ("name", "content", "status", "message"),
    [
        (
            "cut.gz",
            gzip.compress(b"text\n" * 99, mtime=0)[:-9],
            2,
            "cannot read {}: it is damaged: Comp",
        ),
        ("bad.gz", b"\x1f\x8b text", 2, "cannot read {}: it is damaged: "),
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
    expected = f"accelrt verbose: {message.format(tmp_path / name)}"
    assert (ended.returncode, ended.stdout) == (status, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(expected) if "damaged" in expected else line == expected


def test_a_wrong_order_on_the_command_line_is_told_what_is_right() -> None:
    ended = run("-m", "accelrt", "verbose", "file", "--sort-by", "time")
    assert ended.returncode == 2
    assert "argument --sort-by: invalid choice: 'time'" in ended.stderr


@given(printed(), st.sampled_from(ENCODINGS))
def test_log_has_calls_of_its_lines(log: tuple[str, list[str], list[str]], encoding: str) -> None:
    assert list(read_log(io.BytesIO(log[0].encode(encoding)))) == list(parse(log[0].split("\n")))


CAPTURE = """
import os, sys
import accelrt
line = sys.stdin.buffer.read()
with accelrt.verbose(1, capture=True) as log:
    while line:
        line = line[os.write(1, line):]
print(len(log.records), file=sys.stderr)
"""


@pytest.mark.parametrize(("more", "count"), [(0, 1), (1, 0)])
def test_line_above_limit_is_text(more: int, count: int, tmp_path: Path) -> None:
    head, tail = "accelrt_verbose,", ",0,1,fill,64,0.5"
    line = f"{head}{'c' * ((1 << 20) + more - len(head + tail))}{tail}\n"
    assert len(list(parse([line]))) == count
    assert len(list(read_log(io.BytesIO(line.encode())))) == count
    command = [sys.executable, "-c", CAPTURE]
    ended = subprocess.run(  # noqa: S603  the interpreter of this test
        command, input=line.encode(), capture_output=True, check=True, timeout=LIMIT_SECONDS
    )
    assert ended.stderr.decode() == f"{count}\n"
    file = tmp_path / "long.log"
    file.write_text(line)
    assert run("-m", "accelrt", "verbose", str(file)).returncode == 1 - count


ENDLESS = """
import io, resource, sys
from accelrt._verbose_records import read_log

class Endless(io.RawIOBase):
    left = 16 << 20
    head = sys.argv[1].encode()
    def readable(self):
        return True
    def readinto(self, target):
        begin, self.head = self.head, b""
        target[:] = begin + b"c" * (len(target) - len(begin))
        self.left -= len(target)
        return len(target) if self.left > 0 else 0

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak_kib()
assert list(read_log(io.BufferedReader(Endless(), 1 << 16))) == []
print(peak_kib() - before)
"""


@pytest.mark.parametrize("head", ["", "accelrt_verbose,"])
def test_endless_line_is_not_held(head: str) -> None:
    ended = run("-c", ENDLESS, head)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < 8 << 10
