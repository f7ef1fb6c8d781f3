"""Goal: what is written to a path stands there as a whole, and what the path leads to is kept.

Method: snapshots and traces are written over links, pipes, files with permissions and what is no
file; errors have the path that the program gave.
"""

import os
import pickle
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import accelrt
from accelrt import profiler


def dump(path: str | bytes | Path) -> None:
    accelrt.cpu.dump_snapshot(path)


def export(path: str | bytes | Path) -> None:
    with profiler.profile() as recorded:
        pass
    recorded.export_chrome_trace(path)


@pytest.mark.parametrize("write", [dump, export])
def test_a_link_stays_and_what_it_leads_to_is_written(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    for name in ("there", "not there yet"):
        target, link = tmp_path / name, tmp_path / f"link to {name}"
        link.symlink_to(target)
        if name == "there":
            target.write_bytes(b"before")
        write(link)
        assert link.is_symlink()
        assert target.stat().st_size > len(b"before")
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("write", [dump, export])
def test_a_pipe_stays_and_its_reader_gets_the_content(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join()
    assert len(read[0]) > 10
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("write", [dump, export])
def test_a_file_keeps_its_permissions(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    path.chmod(0o640)
    write(path)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("write", [dump, export])
def test_an_error_has_the_path_that_was_given(
    tmp_path: Path, write: Callable[[str | Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    for given, number in (
        ("", "Errno 2"),
        (".", "Errno 21"),
        (str(tmp_path), "Errno 21"),
        ("nowhere/file", "Errno 2"),
        ("file/below", "Errno 20"),
        ("loop", "Errno 40"),
    ):
        with pytest.raises(OSError, match=number) as raised:
            write(given)
        assert raised.value.filename == given
        assert raised.value.filename2 is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]
    with pytest.raises(ValueError, match="embedded null"):
        write("a\0b")
    with pytest.raises(TypeError, match=r"expected str, bytes or os\.PathLike object, not int"):
        write(5)  # type: ignore[arg-type]


def test_a_path_may_be_bytes_as_that_of_any_file(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    dump(os.fsencode(path))
    assert "segments" in pickle.loads(path.read_bytes())  # noqa: S301  our own
    export(os.fsencode(path))
    assert path.read_bytes().startswith(b"{")


def test_what_cannot_be_written_to_its_end_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    from accelrt._memory_history import dump as write  # noqa: PLC0415  not for programs

    path = tmp_path / "snapshot"
    path.write_bytes(b"before")
    with pytest.raises(TypeError, match="pickle"):
        write(path, {"no pickle has this": threading.Lock()})
    assert path.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot"]
