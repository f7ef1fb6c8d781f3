"""Exceptions of tasks as a type, texts and notes: described, rebuilt, and odd ones."""

import gc
import weakref

import pytest

import accelrt
from accelrt._failures import add_note, describe, rebuild
from test_failures import failure_of


class CustomError(Exception):
    """An exception whose constructor takes other arguments."""

    def __init__(self, first: object, second: object) -> None:
        """Keep a text."""
        super().__init__(f"{first} and {second}")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("text"),
        KeyError("key"),
        OSError(2, "not there"),
        ValueError(),
        ValueError(1, b"2", 3.0, None, True),
        CustomError(1, 2),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "why"),
        FileNotFoundError(2, "No such file", "/no/such/file"),
        OSError(18, "Cross-device link", "a", None, "b"),
    ],
)
def test_rebuilt_exception_equals_the_described_one(error: Exception) -> None:
    error.add_note("a note")
    rebuilt = rebuild(*describe(error))
    assert [type(rebuilt), rebuilt.args, str(rebuilt)] == [type(error), error.args, str(error)]
    assert rebuilt.__notes__ == ["a note"]
    assert rebuilt is not error


def test_rebuilt_exception_of_unknown_type_is_a_runtime_error() -> None:
    class LocalError(Exception):
        """A type that no module has."""

    class Holder:
        """An argument that is not a plain value."""

        def __repr__(self) -> str:
            return "holder"

    holder = Holder()
    alive = weakref.ref(holder)
    description = describe(LocalError(holder))
    del holder
    gc.collect()
    assert alive() is None
    rebuilt = rebuild(*description)
    assert type(rebuilt) is RuntimeError
    assert str(rebuilt).endswith("LocalError: holder")


def test_description_of_a_text_without_encoding() -> None:
    assert str(rebuild(*describe(ValueError("\ud800" * 100_000)))).startswith("\\ud800")


def test_surrogates_keep_type_and_text() -> None:
    text = "cannot read caf\udce9.txt"

    def fails() -> None:
        raise ValueError(text)

    stream = accelrt.Stream(dedicated=True)
    stream.launch_host(fails)
    failure = failure_of(stream.synchronize)
    assert str(failure).endswith("ValueError: cannot read caf\\udce9.txt")
    cause = failure.__cause__
    assert [type(cause), str(cause)] == [ValueError, text]


class OddAttributeError(Exception):
    """An exception one of whose attributes, which a test sets, cannot be read."""

    odd = ""

    def __getattribute__(self, name: str) -> object:
        if name == OddAttributeError.odd:
            raise LookupError(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("name", ["__traceback__", "__cause__", "__context__", "args", "__class__"])
def test_odd_attribute_keeps_the_description(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised_with_traceback(OddAttributeError("text"))
    monkeypatch.setattr(OddAttributeError, "odd", name)
    description = describe(error)
    monkeypatch.undo()
    rebuilt = rebuild(*description)
    assert [type(rebuilt), str(rebuilt)] == [OddAttributeError, "text"]
    assert "in raised_with_traceback" in rebuilt.__notes__[-1]


class OddNotesError(Exception):
    """An exception whose notes are the class attribute that a test sets."""


class UnprintableError(Exception):
    """An exception whose methods raise what a test sets."""

    raised: BaseException = LookupError()

    def __str__(self) -> str:
        raise self.raised

    def __repr__(self) -> str:
        raise self.raised


class RaisingNotesError(Exception):
    """An exception whose notes cannot be read or replaced."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise LookupError


def raised_with_traceback(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301  the traceback is the purpose
    except BaseException as raised:  # noqa: BLE001  of any type
        return raised


@pytest.mark.parametrize(
    ("notes", "texts"),
    [
        (None, []),
        (1, ["1"]),
        ("text", ["'text'"]),
        (("a", "b"), ["a", "b"]),
        ([UnprintableError(), "b"], ["<note str() failed>", "b"]),
        (UnprintableError(), ["<__notes__ repr() failed>"]),
    ],
)
def test_odd_notes_keep_type_and_traceback(
    notes: object, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OddNotesError, "__notes__", notes, raising=False)
    rebuilt = rebuild(*describe(raised_with_traceback(OddNotesError("text"))))
    assert [type(rebuilt), str(rebuilt)] == [OddNotesError, "text"]
    assert rebuilt.__notes__[:-1] == texts
    assert "in raised_with_traceback" in rebuilt.__notes__[-1]


@pytest.mark.parametrize("raised", [LookupError(), SystemExit(), UnprintableError()])
def test_exception_without_text_keeps_type(
    raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UnprintableError, "raised", raised)
    error = UnprintableError(1)
    error.__cause__ = UnprintableError()
    rebuilt = rebuild(*describe(raised_with_traceback(error)))
    assert [type(rebuilt), rebuilt.args] == [UnprintableError, (1,)]
    assert rebuilt.__notes__[-1].count("<exception str() failed>") == 2


@pytest.mark.parametrize("notes", [None, "text", ("a", "b")])
def test_note_for_odd_notes_raises_nothing(notes: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OddNotesError, "__notes__", notes, raising=False)
    error = OddNotesError("text")
    add_note(error, "a note")
    assert error.__notes__ == notes


def test_notes_that_raise_keep_traceback() -> None:
    rebuilt = rebuild(*describe(raised_with_traceback(RaisingNotesError("text"))))
    assert [type(rebuilt), str(rebuilt)] == [RuntimeError, "RaisingNotesError: text"]
    assert rebuilt.__notes__[0] == "<__notes__ failed>"
    assert "in raised_with_traceback" in rebuilt.__notes__[-1]


@pytest.mark.parametrize("error", [ValueError(10**5000), UnprintableError(), OddNotesError("text")])
def test_stream_failure_of_odd_exception_has_cause(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OddNotesError, "__notes__", None, raising=False)

    def fails() -> None:
        raise error

    stream = accelrt.Stream(dedicated=True)
    stream.launch_host(fails)
    failure = failure_of(stream.synchronize)
    text = "text" if isinstance(error, OddNotesError) else "<exception str() failed>"
    assert str(failure).endswith(f"{type(error).__name__}: {text}")
    cause = failure.__cause__
    assert [type(cause), cause and cause.args] == [type(error), error.args]
    assert "in fails" in cause.__notes__[-1]  # type: ignore[union-attr]


def test_failure_keeps_the_begin_of_a_long_text() -> None:
    def fails() -> None:
        raise ValueError("x" * 1_000_000)

    stream = accelrt.Stream(dedicated=True)
    stream.launch_host(fails)
    error = failure_of(stream.synchronize)
    for text in (str(error), str(error.__cause__)):
        assert len(text) < 67_000
        assert text.endswith("xxx… (934464 more characters)")


def test_exception_raised_again_costs_no_more() -> None:
    error = LookupError("shared")

    def fails() -> None:
        raise error

    stream = accelrt.Stream(dedicated=True)
    for _ in range(500):
        assert stream.launch_host(fails).exception() is error
    description = describe(error)
    assert description[-1][-1].count("in fails") <= 32


def test_description_has_the_traceback_of_the_cause() -> None:
    def inner() -> None:
        raise KeyError

    try:
        try:
            inner()
        except KeyError as error:
            raise ValueError from error
    except ValueError as error:
        notes = rebuild(*describe(error)).__notes__
    assert "in inner" in notes[-1]
    assert "direct cause" in notes[-1]
