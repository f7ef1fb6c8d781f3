"""Goal: the demo checks what it did, and the command line says in one line what it cannot do.

Method: the command runs in processes of its own, with files, pipes and limits that a user may give.
"""

import os
import pty
import shlex
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import accelrt
from accelrt import _core, cli
from accelrt.cli import demo as demo_command
from accelrt.cli.bench import gate
from accelrt.cli.demo import kernels, verdict
from accelrt.cli.demo.job import FileChangedError, Job, Outcome, Span
from accelrt.cli.demo.lane import Chunk, Lane, WrongResultError
from kinds import host_cores
from processes import LIMIT_SECONDS, run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of some chunks and a rest."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1000 + b"rest")
    return path


def demo(*arguments: object, **settings: str) -> "subprocess.CompletedProcess[str]":
    return run("-m", "accelrt", "demo", *map(str, arguments), **settings)


@pytest.mark.parametrize(
    "arguments", [(), ("--in-flight", 4, "--chunk", 5000), ("--chunk", 1 << 30), ("--in-flight", 1)]
)
def test_the_demo_says_that_it_checked(file: Path, arguments: tuple[object, ...]) -> None:
    ended = demo(file, *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert "checked     every byte and checksum of both runs, with Python's and zlib's" in lines
    has_one_chunk = any(line.endswith(" in 1 chunk") for line in lines)
    begins = "Nothing overlaps with one chunk" if has_one_chunk else "Overlap made it "
    assert any(line.startswith(begins) for line in lines)


def test_the_picture_has_a_line_for_each_stream_and_what_it_did(file: Path) -> None:
    lines = demo(file, "--in-flight", 2, "--chunk", 30_000).stdout.splitlines()
    rows = {line[2:14].strip(): line[15:-1] for line in lines if line.endswith("|")}
    streams = [f"{lane} {stage}" for lane in (1, 2) for stage in ("copy in", "compute", "copy out")]
    assert list(rows) == ["this thread", *streams]
    # Nine chunks: 0 to 7 are shown, and chunks alternate between the lanes.
    assert set(rows["this thread"]) - {" "} <= set("01234567")
    assert set(rows["1 compute"]) - {" "} <= set("0246")
    assert set(rows["2 compute"]) - {" "} <= set("1357")
    assert set(rows["2 compute"]) - {" "}


def test_on_a_terminal_progress_is_shown_and_wiped(file: Path) -> None:
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "accelrt", "demo", str(file), "--chunk", "128K"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ACCELRT_")}
    subprocess.run(  # noqa: S603  the interpreter of this test
        command,
        env=plain,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    os.close(terminal)
    shown = os.read(master, 4096).decode()
    os.close(master)
    serial, overlapped, rest = shown.split("\r\x1b[K")
    for name, text in (("one by one", serial), ("overlapped", overlapped)):
        assert text.startswith(f"\r{name} [####")
        assert text.endswith(f"\r{name} [{40 * '#'}] 100 % checked")
    assert rest == ""


def test_more_chunks_in_flight_than_there_are_take_no_memory(file: Path) -> None:
    ended = demo(file, "--in-flight", 10**12, "--chunk", 100_000)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "256004 bytes in 3 chunks" in ended.stdout
    assert "in 1.2 MB for a file" in ended.stdout


def test_memory_is_bounded_by_the_chunks_whatever_the_size_of_the_file(tmp_path: Path) -> None:
    code = """
        import resource, sys
        from accelrt import cli
        assert cli.main(["demo", sys.argv[1], "--chunk", "65536"]) == 0
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    peaks_kib = []
    for megabytes in (1, 33):
        path = tmp_path / str(megabytes)
        with path.open("wb") as hole:
            hole.truncate(megabytes << 20)
        ended = run("-c", "\n".join(line[8:] for line in code.splitlines()), str(path))
        assert (ended.returncode, ended.stderr) == (0, "")
        peaks_kib.append(int(ended.stdout.split()[-1]))
    assert peaks_kib[1] - peaks_kib[0] < 8 << 10, peaks_kib


def test_wrong_bytes_and_wrong_checksums_are_found() -> None:
    computing = kernels.for_accelerator()
    for wrong in ("checksums", "look_up"):
        broken = _without(computing, wrong)
        lane = Lane(1, 8192, broken)
        chunk = Chunk(5, 0, 8192)
        lane.content[:] = bytes(range(256)) * 32
        lane.enqueue(chunk)
        lane.wait()
        with pytest.raises(WrongResultError, match="chunk 5 came back with"):
            lane.check(chunk)


@host_cores
@pytest.mark.parametrize(("stage", "done"), [("_copy_in", 0), ("_compute", 2), ("_copy_out", 3)])
def test_stages_wait_for_each_other_not_enqueue(stage: str, done: int) -> None:
    lane = Lane(1, 4096, kernels.for_accelerator())
    worker = threading.Thread(target=lane.enqueue, args=(Chunk(0, 0, 4096),))
    with gate.held(getattr(lane, stage)):
        worker.start()
        worker.join(10)
        assert not worker.is_alive()
        for mark in lane._marks[:done]:
            mark.synchronize()
        time.sleep(0.01)  # a stage that does not wait would end
        assert [mark.query() for mark in lane._marks[done:]] == [False] * (4 - done)
    lane.wait()
    lane.check(Chunk(0, 0, 4096))


@host_cores
def test_table_is_on_the_device_when_returned() -> None:
    found = list[accelrt.Buffer]()
    stream = accelrt.Stream()

    def copy() -> None:
        with stream:
            found.append(kernels._on_device(b"table"))

    worker = threading.Thread(target=copy)
    with gate.held(stream):
        worker.start()
        worker.join(0.05)
        assert found == []
    worker.join()
    assert bytes(found[0]) == b"table"


@pytest.mark.parametrize("wrong", range(5))
@pytest.mark.accelrt_unordered
def test_each_chunk_of_a_run_is_checked(file: Path, wrong: int) -> None:
    computing = kernels.for_accelerator()
    calls = iter(range(5))

    def look_up(*arguments: Any) -> None:
        if next(calls) != wrong:
            computing.look_up(*arguments)

    broken = SimpleNamespace(checksums=computing.checksums, look_up=look_up)
    lanes = [Lane(number, 60_000, broken) for number in (1, 2)]
    job = Job(file, file.stat().st_size, 60_000, lambda _done: None)
    with pytest.raises(WrongResultError, match=f"chunk {wrong} came back with wrong bytes"):
        job.run(lanes)
    accelrt.accelerator.synchronize()  # the lanes' memory is theirs until then


def test_what_is_wrong_is_told_and_is_the_status(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = _without(kernels.for_accelerator(), "look_up")
    monkeypatch.setattr(kernels, "for_accelerator", lambda: broken)
    assert cli.main(["demo", str(file)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("accelrt demo: WRONG: chunk 0 came back with wrong bytes")


@pytest.mark.parametrize(
    ("error", "told"),
    [(MemoryError(), "out of memory"), (RuntimeError("it is gone"), "it is gone")],
)
def test_what_a_command_runs_into_is_one_line(
    error: Exception,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_arguments: object, **_names: object) -> None:
        raise error

    monkeypatch.setattr(cli.demo, "run", fail)
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == f"accelrt demo: {told}\n"


def _without(computing: kernels.Kernels, left_out: str) -> kernels.Kernels:
    """Return kernels of which one does nothing."""
    broken = SimpleNamespace(checksums=computing.checksums, look_up=computing.look_up)
    setattr(broken, left_out, lambda *_arguments: None)
    return broken


def test_a_file_that_ends_early_is_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"short")
    lane = Lane(1, 4096, kernels.for_accelerator())
    with pytest.raises(FileChangedError, match="ended at 5 of 4096 bytes"):
        Job(path, 4096, 4096, lambda _done: None).run([lane])


def test_it_says_why_overlap_did_not_win() -> None:
    serial, overlapped = Outcome(seconds=0.1, host_ms=97.0), Outcome(seconds=0.099)
    job = Job(Path("file"), 1 << 20, 1 << 16, lambda _done: None)
    (line,) = verdict.lines(job, 3, serial, overlapped)
    assert line.endswith("reading and checking on this thread took 97.0 of 100.0 ms one by one.")
    short = Job(Path("file"), 1 << 20, 1 << 19, lambda _done: None)
    assert "has 2 chunks only" in verdict.lines(short, 2, serial, overlapped)[0]
    assert "one chunk was in flight" in verdict.lines(short, 1, serial, overlapped)[0]
    assert not verdict.lines(job, 3, serial, Outcome(seconds=0.06))


@pytest.mark.parametrize(
    ("counts", "seconds", "stages", "reasons"),
    [
        ((2, 4, 2), 1.15, {}, []),
        ((2, 4, 2), 1.0, {}, ["something else used the cores meanwhile (2.5 threads wanted"]),
        ((2, 3, 2), 1.0, {}, ["the file has 3 chunks only; smaller ones overlap more"]),
        ((2, 1, 1), 1.0, {}, ["(the file has 1 chunk)"]),
        ((2, 9, 1), 1.0, {}, ["(the file has 9 chunks)"]),
        ((1, 4, 2), 1.0, {}, ["this process may use one core only"]),
        ((2, 4, 2), 1.0, {"copy in": 850.0}, ["something else"]),
        ((2, 4, 2), 1.0, {"copy in": 851.0}, ["copy in took 851.0 of 1000.0 ms one by one"]),
        (
            (1, 3, 2),
            1.0,
            {"copy in": 900.0},
            ["one core only", "the file has 3 chunks only", "copy in took 900.0"],
        ),
    ],
)
def test_reasons_at_their_limits(
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int, int, int],
    seconds: float,
    stages: dict[str, float],
    reasons: list[str],
) -> None:
    cores, chunks, lanes = counts
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(os, "getloadavg", lambda: (2.5, 0, 0))
    job = Job(Path("file"), chunks, 1, lambda _done: None)
    serial, overlapped = Outcome(seconds=seconds, stages_ms=stages), Outcome(seconds=1.0)
    found = verdict.lines(job, lanes, serial, overlapped)
    assert len(found) == len(reasons)
    assert all(reason in line for reason, line in zip(reasons, found, strict=True)), found


REPORT = """\
device      tpu:0 (Big)
file        file: 3000001 bytes in 4 chunks
each chunk  copied in; a checksum of each page, each byte looked up; copied out; checked

what ran when, for some chunks of the overlapped run (a digit is a chunk's last one):
  this thread |2222222222222222                                                |
  1 copy in   |                22222222222222222222222222222222                |
  2 compute   |                                                3333333333333333|

one by one    2000.0 ms        2 MB/s
overlapped    1000.0 ms        3 MB/s
checked     every byte and checksum of both runs, with Python's and zlib's

Overlap made it 2.00 times as fast, in 4.0 MB for a file of any size.
"""


def test_report_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    device = type("Device", (), {"__str__": lambda _: "tpu:0"})()
    module = SimpleNamespace(get_device_name={device: "Big"}.__getitem__)
    monkeypatch.setattr(
        accelrt.accelerator, "current_stream", lambda: SimpleNamespace(device=device)
    )
    monkeypatch.setattr(accelrt, "get_device_module", lambda _: module)
    monkeypatch.setattr(Lane, "nbytes", lambda _: (1_500_000, 500_000))
    serial = Outcome(seconds=2.0)
    spans = [
        *(Span("2 compute", 13, 18, 22), Span("this thread", 12, 6, 10)),
        Span("1 copy in", 12, 10, 18),
    ]
    job = Job(Path("file"), 3_000_001, 1_000_000, lambda _done: None)
    text = demo_command._report(job, 2, serial, Outcome(seconds=1.0, spans=spans))
    assert text == REPORT
    # One chunk has nothing to overlap with.
    job = Job(Path("file"), 1, 1, lambda _done: None)
    *_, checked, _, last = demo_command._report(
        job, 1, serial, Outcome(1.0, spans=spans)
    ).splitlines()
    assert checked.startswith("checked ")
    assert last.startswith("Nothing overlaps with one chunk: ")


def test_checksums_are_those_of_zlib() -> None:
    for value in range(256):
        remainder = kernels._remainder(255 ^ value)
        assert remainder ^ 0x00FFFFFF == zlib.crc32(bytes([value])) ^ 0xFFFFFFFF
    counts = [kernels.page_count(count) for count in (0, 1, 4096, 4097)]
    assert counts == [0, 1, 1, 2]


def test_compiled_kernels_take_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, launched = list[str](), list[tuple[Any, ...]]()

    def program(text: str) -> Any:
        texts.append(text)
        return SimpleNamespace(kernel=lambda name: name)

    stream: Any = SimpleNamespace(launch=lambda *args, **sizes: launched.append((*args, sizes)))
    monkeypatch.setattr(accelrt.xpu, "Program", program)
    device = SimpleNamespace(type="xpu")
    monkeypatch.setattr(_core, "current_accelerator", lambda: device)
    compiled = kernels.for_accelerator()
    source, sums, found = (accelrt.empty(8) for _ in range(3))
    compiled.checksums(stream, source, 4097, sums)
    compiled.look_up(stream, source, 7, found)
    table = launched[1][2]
    assert launched == [
        ("crc32_pages", source, 4097, sums, {"global_size": 2}),
        ("look_up_bytes", source, table, found, {"global_size": 7}),
    ]
    host = bytearray(256)
    table.copy_to(host)
    assert host == kernels.TABLE
    assert "{0x0,0x77073096,0xee0e612c," in texts[0]
    assert "get_global_id(0) * 4096UL, end = min(start + 4096UL, count)" in texts[0]


@pytest.mark.parametrize(
    ("folder", "name", "expected"),
    [
        ("{}", "libpython3.so", "{}/libpython3.so"),
        ("{}", "libpython3.a", sys.executable),
        ("{}", "missing.so", sys.executable),
        (None, None, sys.executable),
    ],
)
def test_interpreter_is_a_file(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    folder: str | None,
    name: str | None,
    expected: str,
) -> None:
    for library in ("libpython3.so", "libpython3.a"):
        (tmp_path / library).touch()
    variables = {"LIBDIR": folder and folder.format(tmp_path), "LDLIBRARY": name}
    monkeypatch.setattr(sysconfig, "get_config_var", variables.get)
    assert demo_command._interpreter() == Path(expected.format(tmp_path))


@pytest.mark.parametrize("chunk", [1, 4095, (1 << 30) + 1, 1 << 62])
def test_chunks_that_make_no_sense_are_refused(file: Path, chunk: int) -> None:
    one_line(demo(file, "--chunk", chunk), f"a chunk of {chunk} bytes makes no sense here")


def one_line(ended: "subprocess.CompletedProcess[str]", expected: str) -> None:
    """Expect wrong use, told in one line."""
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    (line,) = ended.stderr.splitlines()
    assert line.startswith("accelrt demo: ")
    assert expected in line


def test_what_is_no_file_with_content_is_refused(tmp_path: Path) -> None:
    empty, fifo = tmp_path / "empty", tmp_path / "fifo"
    empty.touch()
    os.mkfifo(fifo)
    for path in ("/dev/zero", "/dev/null", fifo, tmp_path):
        one_line(demo(path), f"cannot stream {path}: it is not a regular file")
    one_line(demo(empty), f"cannot stream {empty}: it is empty")
    one_line(demo(tmp_path / "none"), "none: No such file or directory")


def test_what_does_not_fit_is_refused_before_it_is_taken(file: Path, tmp_path: Path) -> None:
    one_line(demo(file, ACCELRT_CPU_MEMORY="1000"), "1000 are free")
    huge = tmp_path / "huge"
    with huge.open("wb") as hole:
        hole.truncate(1 << 43)
    # Two buffers of a chunk and one of its checksums, on the device and on the host.
    needed_bytes = 1_000_000 * 2 * (2 * 262_144 + 4 * 64)
    taken = f"1000000 chunks of 262144 bytes in flight need {needed_bytes} bytes"
    one_line(demo(huge, "--in-flight", 1_000_000), taken)


@host_cores
def test_chunks_in_flight_may_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    needed_bytes = 3 * sum(Lane.nbytes(4096))
    free = iter([needed_bytes, needed_bytes - 1])
    monkeypatch.setattr(accelrt.accelerator, "get_memory_info", lambda _: (next(free), 0))
    demo_command._check_memory(3, 4096)
    with pytest.raises(demo_command._UnusableError) as raised:
        demo_command._check_memory(3, 4096)
    sizes = "3 chunks of 4096 bytes in flight"
    assert str(raised.value) == f"{sizes} need {needed_bytes} bytes; {needed_bytes - 1} are free"


def test_an_empty_name_is_wrong_use() -> None:
    ended = demo("")
    assert ended.returncode == 2
    assert "the name of a file must not be empty" in ended.stderr


def shell(script: str) -> "subprocess.CompletedProcess[str]":
    """Run a script in which `accelrt` is the command."""
    return subprocess.run(  # noqa: S603  our own words
        ["/bin/bash", "-c", f'accelrt() {{ "$PYTHON" -m accelrt "$@"; }}; {script}'],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_a_reader_that_went_away_is_no_error(file: Path) -> None:
    for command in ("info", f"demo {shlex.quote(str(file))}"):
        ended = shell(f"accelrt {command} | true; echo ${{PIPESTATUS[0]}}")
        # Whether the reader is gone by then is a matter of time.
        assert (ended.stdout in {"141\n", "0\n"}, ended.stderr) == (True, ""), ended
    ended = shell("exec 3> >(true); wait $!; accelrt info >&3; echo $?")
    assert (ended.stdout, ended.stderr) == ("141\n", "")


def test_an_output_that_takes_nothing_is_told() -> None:
    ended = shell("accelrt info >/dev/full")
    expected = "accelrt info: cannot write: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (2, expected)
    ended = shell("accelrt info >&-")
    expected = "accelrt info: the standard output is closed\n"
    assert (ended.returncode, ended.stderr) == (2, expected)


def test_an_interrupt_ends_with_its_status() -> None:
    code = """
        import signal, sys
        from accelrt import cli
        def run(*_arguments, **_names):
            signal.raise_signal(signal.SIGINT)
        cli.demo.run = run
        sys.exit(cli.main(["demo"]))
    """
    ended = run("-c", "\n".join(line[8:] for line in code.splitlines()))
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGINT, "")
