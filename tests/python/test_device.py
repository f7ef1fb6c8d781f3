"""`accelrt.device`: names, their errors, comparison, pickling.

Method: each row of the reference's table of inputs, and random strings against a model.
"""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import accelrt
from kinds import KIND, module

KINDS = ("cpu", "cuda", "xpu")
NAME = re.compile(r"(cpu|cuda|xpu)(?::(0|[1-9][0-9]*))?")


@given(st.sampled_from(KINDS), st.none() | st.integers(0, 127))
def test_names_survive_a_round_trip(kind: str, index: int | None) -> None:
    text = kind if index is None else f"{kind}:{index}"
    device = accelrt.device(text)
    assert (str(device), device.type, device.index) == (text, kind, index)
    assert accelrt.device(kind, index) == device
    assert accelrt.device(device) == device
    assert pickle.loads(pickle.dumps(device)) == device  # noqa: S301  our own bytes
    assert hash(copy.copy(device)) == hash(device)
    assert eval(repr(device), {"device": accelrt.device}) == device  # noqa: S307  our own text


@given(st.text() | st.from_regex(r"(cpu|CPU|cuda|null)(:.{0,5})?") | st.from_regex(r"cpu:[0-9]+"))
@example("cpu:0\n")
@example("cpu:٣")
@example("\udc80")
@example("cpu:\x00")
def test_any_text_is_a_name_or_a_runtime_error(text: str) -> None:
    matched = NAME.fullmatch(text)
    if matched and int(matched[2] or 0) <= 127:
        assert str(accelrt.device(text)) == text
    else:
        with pytest.raises(RuntimeError):
            accelrt.device(text)


@pytest.mark.parametrize("text", ["cuda:-1", "cuda:", "cuda:01", "cuda:1:2", "cpu: 1", "cpu:+1"])
def test_an_index_that_is_no_plain_number_is_an_invalid_string(text: str) -> None:
    expected = re.escape(f"Invalid device string: '{text}'")
    with pytest.raises(RuntimeError, match=f"^{expected}$"):
        accelrt.device(text)


@pytest.mark.parametrize("text", ["foo", "CUDA", "null", "null:0", "cpu0", " cpu"])
def test_an_unknown_kind_is_told_what_kinds_there_are(text: str) -> None:
    name = text.partition(":")[0]
    expected = f"Expected one of cpu, cuda, xpu device type at start of device string: {name}"
    with pytest.raises(RuntimeError, match=f"^{expected}$"):
        accelrt.device(text)


def test_an_empty_string_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"^Device string must not be empty$"):
        accelrt.device("")


def test_an_index_over_every_integer_cannot_be_parsed() -> None:
    expected = (
        "Could not parse device index '99999999999999999999' in device string "
        "'cuda:99999999999999999999'"
    )
    with pytest.raises(RuntimeError, match=f"^{expected}$"):
        accelrt.device("cuda:99999999999999999999")


@pytest.mark.parametrize("index", [128, 255, 256, 99999999999999])
def test_an_index_over_127_is_out_of_range_and_never_wraps_around(index: int) -> None:
    makes: tuple[Callable[[], object], ...] = (
        lambda: accelrt.device(f"cuda:{index}"),
        lambda: accelrt.device("cuda", index),
        lambda: accelrt.device(index),
    )
    for make in makes:
        with pytest.raises(RuntimeError, match=f"index {index}.* an index is at most 127"):
            make()


def test_an_index_that_no_machine_word_holds_is_out_of_range_and_named() -> None:
    makes: tuple[Callable[[], object], ...] = (
        lambda: accelrt.device("cpu", 2**70),
        lambda: accelrt.device(2**70),
    )
    for make in makes:
        with pytest.raises(RuntimeError, match=f"{2**70} is out of range: an index is at most 127"):
            make()


@pytest.mark.parametrize("index", [-1, -128, -(2**70)])
def test_a_negative_index_is_refused(index: int) -> None:
    makes: tuple[Callable[[], object], ...] = (
        lambda: accelrt.device(index),
        lambda: accelrt.device("cpu", index),
    )
    for make in makes:
        with pytest.raises(RuntimeError, match=r"^Device index must not be negative$"):
            make()


@pytest.mark.parametrize("named", ["cuda:0", accelrt.device("cuda:0")])
def test_an_index_is_given_once(named: str | accelrt.device) -> None:
    expected = "type (string) must not include an index because index was passed explicitly: cuda:0"
    with pytest.raises(RuntimeError, match=f"^{re.escape(expected)}$"):
        accelrt.device(named, 1)


def test_an_index_alone_is_one_of_the_accelerator() -> None:
    assert accelrt.device(2) == accelrt.device(f"{KIND}:2")


@pytest.mark.parametrize("wrong", [None, True, 1.5, b"cpu", ["cpu"]])
def test_another_type_is_told_what_a_device_may_be(wrong: Any) -> None:
    given_type = type(wrong).__name__
    expected = f"device must be an accelrt.device, a string .* or an index, not {given_type}"
    with pytest.raises(TypeError, match=expected):
        accelrt.device(wrong)


@pytest.mark.parametrize("wrong", [True, 1.5, "1"])
def test_an_index_of_another_type_is_refused(wrong: Any) -> None:
    expected = f"^index must be an integer, not {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=expected):
        accelrt.device("cpu", wrong)


def test_existence_is_not_asked_of_a_name() -> None:
    assert accelrt.device("cuda:127").index == 127
    assert accelrt.device("cpu:127").index == 127


def test_a_kind_is_not_its_device_0() -> None:
    assert accelrt.device("cuda") != accelrt.device("cuda:0")


def test_equal_devices_have_equal_hashes() -> None:
    assert len({accelrt.device("cpu:1"), accelrt.device("cpu", 1), accelrt.device("cpu")}) == 2


def test_comparisons_follow_pythons_rules() -> None:
    device = accelrt.device("cpu:1")
    assert device != "cpu:1"
    assert device != None  # noqa: E711  the comparison itself is tested
    assert device.__eq__(3) is NotImplemented
    with pytest.raises(TypeError):
        _ = device < accelrt.device("cpu:2")  # type: ignore[operator]


def test_a_device_shows_itself() -> None:
    assert repr(accelrt.device("cpu:1")) == "device(type='cpu', index=1)"
    assert repr(accelrt.device("xpu")) == "device(type='xpu')"


def test_a_device_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        accelrt.device("cpu").index = 1  # type: ignore[misc]


def test_the_module_of_a_kind_is_found_by_name_and_by_default() -> None:
    assert accelrt.get_device_module() is module
    for named in ("cpu", "cpu:1", accelrt.device("cpu")):
        assert accelrt.get_device_module(named) is accelrt.cpu


def test_the_module_of_a_kind_that_is_not_there_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"No cuda device is available: .*cuda"):
        accelrt.get_device_module("cuda")
