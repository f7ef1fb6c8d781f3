"""Goal: the check of a pickle refuses what makes the unpickler take much memory.

Method: pickles written by hand, with each opcode that has an argument, also those that Python's
pickler never writes.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from accelrt import _core

# An index of the memo that is refused, and the end of the pickle.
JUMP = b"r\xff\xff\xff\xff."
TRUNCATED = "pickle data was truncated"

FaultOf = Callable[[bytes], str | None]


@pytest.fixture
def fault_of(tmp_path: Path) -> FaultOf:
    def fault_of(content: bytes) -> str | None:
        file = tmp_path / "a.pickle"
        file.write_bytes(content)
        return _core.find_pickle_fault(file)

    return fault_of


@pytest.mark.parametrize(
    "opcodes",
    [
        b"\x80\x02}",
        b"K\x01M\x01\x02J\x01\x02\x03\x04Gr1234567",
        b"U\x02rrC\x01rT\x02\0\0\0rrB\x01\0\0\0rX\x01\0\0\0r\x8a\x01r\x8b\x01\0\0\0r",
        b"\x8c\x01r\x8d\x01\0\0\0\0\0\0\0r\x8e\x01\0\0\0\0\0\0\0r\x96\0\0\0\0\0\0\0\0",
        b"I12\nL3L\nS'r'\nVr\nF1.5\ncmodule\nname\ng0\nP7\nimodule\nname\n",
        b"(lp0\n(dp1\n)t]q\x02r\x03\0\0\0\x94\x94h\x01j\x01\0\0\0",
    ],
    ids=["protocol", "numbers", "short", "long", "lines", "memo"],
)
def test_arguments_of_opcodes_are_skipped(fault_of: FaultOf, opcodes: bytes) -> None:
    """The index behind the opcodes is only found by a scan that skips each argument exactly."""
    assert str(fault_of(opcodes + JUMP)).startswith("index 4294967295 in")
    assert fault_of(opcodes + b".") is None


def test_indices_in_frames_are_checked(fault_of: FaultOf) -> None:
    assert fault_of(b"\x95\6\0\0\0\0\0\0\0" + JUMP) is not None
    assert fault_of(b"." + JUMP) is None, "behind the end of the pickle"


def test_memo_indices_have_a_limit(fault_of: FaultOf) -> None:
    assert fault_of(b"}r\xff\xff\0\0.") is None
    assert fault_of(b"}p65536\n.") is None
    refused = "index 65537 in a memo of 0 objects"
    assert fault_of(b"}r\x01\0\x01\0.") == refused
    assert fault_of(b"}p65537\n.") == refused
    # Python reads this as a number.
    assert fault_of(b"}p1_0\n.") == '"1_0" is no index of the memo'


def test_announced_lengths_are_checked(fault_of: FaultOf) -> None:
    assert fault_of(b"B\xff\xff\xff\x7f1.") == TRUNCATED
    assert fault_of(b"\x8e" + b"\xff" * 8 + b".") == TRUNCATED
    assert fault_of(b"\x95\xff\0\0\0\0\0\0\0.") == TRUNCATED
    exhausted = "pickle exhausted before end of frame"
    assert fault_of(b"\x95\2\0\0\0\0\0\0\0p1\n.") == exhausted
    assert fault_of(b"\x95\2\0\0\0\0\0\0\0K\x01N.") is None
