"""Goal: reports, statistics, errors and dumps at a shortage say what holds the memory.

Method: functions of one line take it, under tags; programs of their own end out of memory.
"""

import copy
import pickle
from pathlib import Path

import pytest

import accelrt
from accelrt import accelerator
from accelrt.cli.replay.snapshots import read
from accelrt.cli.view import snapshot
from histories import line_of, trace
from kinds import KIND
from processes import output_of, run

SETTINGS = {"ACCELRT_CPU_MEMORY": "256M"}

pytestmark = pytest.mark.usefixtures("no_history")


def test_a_report_has_the_bytes_in_use_by_line_tag_and_stream() -> None:
    def weights() -> accelrt.Buffer:
        return accelrt.empty(3 << 20)

    def cache() -> list[accelrt.Buffer]:
        return [accelrt.empty(1 << 20) for _ in range(4)]

    unknown = accelrt.empty(5 << 20)
    accelerator.record_memory_history()
    with accelrt.memory_tag("weights of a report"):
        kept: list[accelrt.Buffer] = [weights()]
    with accelrt.memory_tag("kv cache of a report"), accelrt.Stream():
        kept += cache()
    report = accelrt.memory_report()
    of_tag = {row.tag: row for row in report.rows if row.tag}
    assert (of_tag["weights of a report"].bytes, of_tag["weights of a report"].num_blocks) == (
        3 << 20,
        1,
    )
    assert (of_tag["kv cache of a report"].bytes, of_tag["kv cache of a report"].num_blocks) == (
        4 << 20,
        4,
    )
    # Their segments may be those of a stream that had the memory before.
    addresses = [buffer.data_ptr() for buffer in kept[1:]]
    streams = {entry["stream"] for entry in trace("alloc") if entry["addr"] in addresses}
    assert {of_tag["kv cache of a report"].stream} == streams
    assert of_tag["weights of a report"].stream not in streams
    file, line = line_of(weights)
    assert of_tag["weights of a report"].site == f"{file}:{line + 1} in weights"
    total = sum(accelerator.memory_allocated(index) for index in range(accelerator.device_count()))
    assert report.total_bytes == total >= unknown.nbytes + (7 << 20)
    assert [row.bytes for row in report.rows] == sorted(
        (row.bytes for row in report.rows), reverse=True
    )
    text = report.table(1)
    assert "(not recorded)" in str(report)
    assert f"{len(report.rows) - 1} more" in text
    assert "kv cache of a report" in str(report)
    assert repr(report) == f"<accelrt.MemoryReport of {total} bytes in {len(report.rows)} rows>"


@pytest.mark.accelrt_unordered
def test_a_call_site_is_a_line_of_the_program_not_of_a_library() -> None:
    source = accelrt.empty(1000)
    accelerator.record_memory_history()
    with accelrt.memory_tag("copies"):
        copied = copy.deepcopy(source)  # whose innermost frames are Python's
    assert "/copy.py" in trace("alloc")[0]["frames"][0]["filename"]
    (row,) = [row for row in accelrt.memory_report().rows if row.tag == "copies"]
    name = test_a_call_site_is_a_line_of_the_program_not_of_a_library.__name__
    assert row.site is not None
    assert row.site.startswith(f"{__file__}:")
    assert row.site.endswith(f" in {name}")
    assert copied.nbytes == 1000


def test_statistics_have_current_and_peak_bytes_of_each_tag() -> None:
    tag = "kv cache, v1.2"
    with accelrt.memory_tag(tag):
        kept = [accelrt.empty(1 << 20) for _ in range(3)]
    del kept[1:]
    stats = accelerator.memory_stats()
    assert [stats[f"tags.{tag}.{name}"] for name in ("current", "peak")] == [1 << 20, 3 << 20]
    nested = accelrt.get_device_module(KIND).memory_stats_as_nested_dict()
    assert nested["tags"][tag]["peak"] == 3 << 20
    assert "| 'kv cache, v1.2'     |   1024 KiB |   3072 KiB |" in accelerator.memory_summary()
    accelerator.reset_peak_memory_stats()
    assert accelerator.memory_stats()[f"tags.{tag}.peak"] == 1 << 20


def test_a_tag_of_any_characters_is_one_short_line_of_tables() -> None:
    tags = ["two\nlines", "\x1b[31mred", "nul\0", "x" * 100_000, "of a speaker: \u202e"]
    kept = list[accelrt.Buffer]()
    for number, tag in enumerate(tags, 1):
        with accelrt.memory_tag(tag):
            kept.append(accelrt.empty(number << 22))
    report, summary = str(accelrt.memory_report()), accelerator.memory_summary()
    for text in (report, summary):
        assert text.replace("\n", "").replace("…", "").isprintable()
        assert max(map(len, text.splitlines())) < 400
        assert r"two\nlines" in text
    assert r"\x1b[31mred" in report
    assert f"{'x' * 39}…" in report
    assert {row.tag for row in accelrt.memory_report().rows} >= set(tags), "as they are"


PROGRAM = """
    import sys
    import accelrt

    def cache(count):
        kept = []
        with accelrt.memory_tag("kv cache"):
            for _ in range(count):
                kept.append(accelrt.empty(48 << 20, device="cpu"))
        return kept

    def weights():
        with accelrt.memory_tag("weights"):
            return accelrt.empty(30 << 20, device="cpu")

    def main():
        kept = weights(), cache(4)
        return accelrt.empty(64 << 20, device="cpu")
"""


def test_an_error_names_the_tags_and_lines_that_hold_the_memory() -> None:
    body = f"""{PROGRAM}
    accelrt.cpu.record_memory_history()
    try:
        main()
    except accelrt.OutOfMemoryError as error:
        print(error)
    """
    told = output_of(body, **SETTINGS)
    assert "'kv cache' 192.00 MiB in 4 blocks, 'weights' 30.00 MiB in 1 block" in told
    assert "The request lacks 30.00 MiB, and 'kv cache' alone has that." in told
    assert " In use by call site: <string>:9 in cache 192.00 MiB in 4 blocks" in told
    assert "; <string>:14 in weights 30.00 MiB in 1 block." in told


def test_a_program_that_cannot_be_changed_leaves_its_history_when_it_runs_out(
    tmp_path: Path,
) -> None:
    path, page = tmp_path / "memory.pickle", tmp_path / "page.html"
    program = tmp_path / "program.py"
    program.write_text(f"if True:\n{PROGRAM}\n    main()\n")
    asked = f"dump-on-oom:{path}"
    ended = run(str(program), **SETTINGS, ACCELRT_MEMORY_HISTORY=asked)
    assert ended.returncode == 1
    assert f"accelrt: out of memory: the history is in {path} (" in ended.stderr
    assert "OutOfMemoryError" in ended.stderr
    loaded = pickle.loads(path.read_bytes())  # noqa: S301  our own
    (entry,) = [entry for entry in loaded["device_traces"][0] if entry["action"] == "oom"]
    assert (entry["size"], entry["frames"][0]["name"]) == (64 << 20, "main")
    viewed = run("-m", "accelrt", "view", str(path), "-o", str(page))
    assert viewed.returncode == 0
    head, _ = snapshot.view(read(path), read(path).devices[0])
    assert set(head["tags"]) == {"", "kv cache", "weights"}
    line = next(
        number
        for number, text in enumerate(program.read_text().splitlines(), 1)
        if "30 << 20" in text
    )
    assert ("weights", str(program), line) in [tuple(frame) for frame in head["frames"]]


def test_the_program_of_the_documentation_ends_as_it_says(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/memory.md").read_text()
    program, shown = (
        text.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "console")
    )
    (tmp_path / "serve.py").write_text(program)
    path = tmp_path / "memory.pickle"
    asked = f"dump-on-oom:{path}"
    ended = run(str(tmp_path / "serve.py"), **SETTINGS, ACCELRT_MEMORY_HISTORY=asked)
    shown = shown.replace("/app/", f"{tmp_path}/").replace("memory.pickle", str(path))
    for line in shown.splitlines()[1:]:
        for part in line.split("[…]"):
            assert part.strip() in ended.stderr
    (device,) = read(path).devices
    head, _ = snapshot.view(read(path), device)
    assert set(head["tags"]) == {"", "kv cache", "weights"}
    assert ("cache", str(tmp_path / "serve.py"), 14) in [tuple(frame) for frame in head["frames"]]


def test_a_history_that_cannot_be_written_is_told_and_the_error_raised_as_ever() -> None:
    body = f"{PROGRAM}\n    main()"
    asked = "dump-on-oom:/nowhere/memory.pickle"
    ended = run("-c", f"if True:\n{body}", **SETTINGS, ACCELRT_MEMORY_HISTORY=asked)
    told = "accelrt: the memory history could not be written to /nowhere/memory.pickle: "
    assert told in ended.stderr
    assert "OutOfMemoryError: CPU out of memory" in ended.stderr


def test_a_history_that_the_program_has_ended_is_no_content_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.pickle"
    settings = SETTINGS | {"ACCELRT_MEMORY_HISTORY": f"dump-on-oom:{path}"}
    body = "import accelrt; accelrt.cpu.record_memory_history(None); {}accelrt.empty(1 << 60)"
    ended = run("-c", body.format(""), **settings)
    told = (
        "accelrt: out of memory: the program has ended the history, and there is nothing to write"
    )
    assert told in ended.stderr.splitlines()
    assert not path.exists()
    ended = run("-c", body.format("kept = accelrt.empty(4096); "), **settings)
    told = (
        f"accelrt: out of memory: the program has ended the history; what is in use is in {path} ("
    )
    assert told in ended.stderr
    assert read(path).devices[0].segments


def test_a_folder_for_a_history_is_told_at_the_begin_and_by_its_own_name(tmp_path: Path) -> None:
    asked = f"dump-on-oom:{tmp_path}"
    body = "import accelrt, sys; kept = accelrt.empty(64); print('begun', file=sys.stderr)"
    ended = run("-c", f"{body}; accelrt.empty(1 << 60)", **SETTINGS, ACCELRT_MEMORY_HISTORY=asked)
    early, begun, late, *_ = ended.stderr.splitlines()
    assert early.startswith(f"accelrt: the memory history cannot be written to {tmp_path}: ")
    assert (begun, late) == (
        "begun",
        f"accelrt: the memory history could not be written to {tmp_path}: Is a directory",
    )
    assert "OutOfMemoryError" in ended.stderr


def test_a_wrong_wish_for_a_history_is_named() -> None:
    ended = run(
        "-c", "import accelrt; accelrt.empty(1)", ACCELRT_MEMORY_HISTORY="always:memory.pickle"
    )
    expected = 'ACCELRT_MEMORY_HISTORY="always:memory.pickle" is not valid: allowed is dump-on-oom'
    assert expected in ended.stderr
