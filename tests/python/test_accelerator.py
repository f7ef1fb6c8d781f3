"""`accelrt.accelerator`: functions that take no device type, and the deprecated names."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import accelrt
from accelrt import accelerator
from kinds import KIND, module, several_devices

TAKES_A_DEVICE = [
    accelerator.current_stream,
    accelerator.synchronize,
    accelerator.get_device_capability,
]


def test_every_public_name_is_there() -> None:
    assert sorted(accelerator.__all__) == list(accelerator.__all__)
    assert all(hasattr(accelerator, name) for name in accelerator.__all__)


def test_the_kind_is_the_accelerator() -> None:
    assert accelerator.is_available()
    assert accelerator.device_count() == module.device_count() > 0
    assert accelerator.current_accelerator() == accelrt.device(KIND)
    assert accelerator.current_accelerator(check_available=True) == accelrt.device(KIND)
    assert accelerator.current_accelerator(True) == accelrt.device(KIND)


@several_devices
@pytest.mark.parametrize("device", [1, f"{KIND}:1", accelrt.device(f"{KIND}:1")])
def test_a_device_is_an_index_a_name_or_a_device(device: str | int | accelrt.device | None) -> None:
    accelerator.set_device_index(device)
    assert accelerator.current_device_index() == 1
    assert accelerator.current_stream(device).device == accelrt.device(f"{KIND}:1")
    accelerator.synchronize(device)


@several_devices
def test_none_and_a_kind_mean_the_current_device() -> None:
    accelerator.set_device_index(2)
    for device in (None, KIND, accelrt.device(KIND)):
        assert accelerator.current_stream(device).device_index == 2
        accelerator.synchronize(device)
        accelerator.get_memory_info(device)


@several_devices
@pytest.mark.parametrize("index", [-1, -128, -(2**70)])
def test_a_negative_index_changes_nothing(index: int) -> None:
    accelerator.set_device_index(1)
    accelerator.set_device_index(index)
    assert accelerator.current_device_index() == 1
    with accelerator.device_index(index):
        assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 1


@pytest.mark.parametrize("device", [None, KIND, accelrt.device(KIND)])
def test_set_device_index_needs_an_index(device: str | int | accelrt.device | None) -> None:
    expected = "Expected an accelrt.device with a specified index or an integer, but got:"
    with pytest.raises(ValueError, match=f"^{expected}{device}$"):
        accelerator.set_device_index(device)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", accelrt.device("cuda:0")])
@pytest.mark.parametrize("function", [*TAKES_A_DEVICE, accelerator.set_device_index])
def test_another_kind_is_not_the_accelerator(
    function: Callable[..., object], device: str | int | accelrt.device | None
) -> None:
    expected = rf"^cuda doesn't match the current accelerator {KIND}\.$"
    with pytest.raises(ValueError, match=expected):
        function(device)


@pytest.mark.parametrize("function", [*TAKES_A_DEVICE, accelerator.set_device_index])
def test_a_malformed_name_has_the_text_of_a_device(function: Callable[..., object]) -> None:
    with pytest.raises(RuntimeError, match=r"^Invalid device string: 'cpu:'$"):
        function("cpu:")
    with pytest.raises(
        RuntimeError, match=r"^Expected one of cpu, cuda, xpu.* device type .*: foo$"
    ):
        function("foo")
    with pytest.raises(RuntimeError, match=r"^Device string must not be empty$"):
        function("")


@several_devices
@pytest.mark.parametrize("function", [*TAKES_A_DEVICE, accelerator.set_device_index])
def test_a_device_that_does_not_exist_says_which_do(function: Callable[..., object]) -> None:
    expected = f"^Device {KIND}:3 does not exist: there are 3 {KIND} devices, indices 0 to 2$"
    for device in (3, f"{KIND}:3"):
        with pytest.raises(RuntimeError, match=expected):
            function(device)


@pytest.mark.parametrize("function", [*TAKES_A_DEVICE, accelerator.set_device_index])
@pytest.mark.parametrize("index", [128, 300, 2**70])
def test_an_index_over_127_is_out_of_range(function: Callable[..., object], index: int) -> None:
    with pytest.raises(
        RuntimeError, match=f"{index} of {KIND} is out of range: an index is at most 127"
    ):
        function(index)


@pytest.mark.parametrize("function", TAKES_A_DEVICE)
def test_a_negative_index_is_refused_where_a_device_is_used(
    function: Callable[..., object],
) -> None:
    with pytest.raises(RuntimeError, match=f"index -1 of {KIND} is negative: an index is 0 to 127"):
        function(-1)


@pytest.mark.parametrize("function", [*TAKES_A_DEVICE, accelerator.set_device_index])
@pytest.mark.parametrize("wrong", [1.5, True, b"cpu", [0]])
def test_another_type_is_told_what_a_device_may_be(
    function: Callable[..., object], wrong: Any
) -> None:
    expected = (
        r"^device must be an accelrt\.device, a string, an integer or None, "
        f"not {type(wrong).__name__}$"
    )
    with pytest.raises(TypeError, match=expected):
        function(wrong)


@several_devices
def test_a_failed_switch_changes_nothing() -> None:
    accelerator.set_device_index(1)
    with pytest.raises(RuntimeError):
        accelerator.set_device_index(9)
    assert accelerator.current_device_index() == 1


@pytest.mark.parametrize("function", [*TAKES_A_DEVICE, accelerator.set_device_index])
def test_devices_that_are_not_of_memory_are_positional(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError):
        function(device=0)


@pytest.mark.parametrize("wrong", [None, 3, "cpu", accelrt.Event()])
def test_set_stream_refuses_what_is_no_stream(wrong: Any) -> None:
    expected = rf"^stream must be an accelrt\.Stream, not {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=expected):
        accelerator.set_stream(wrong)


def test_capability_names_dtypes_and_is_the_callers_own() -> None:
    capability = accelerator.get_device_capability()
    assert set(capability) == {"supported_dtypes"}
    dtypes = capability["supported_dtypes"]
    assert isinstance(dtypes, set)
    assert {"float32", "int64", "bool"} <= dtypes
    dtypes.clear()
    assert accelerator.get_device_capability()["supported_dtypes"]


@several_devices
def test_memory_is_free_and_total_bytes() -> None:
    free_bytes, total_bytes = accelerator.get_memory_info(f"{KIND}:1")
    assert 0 <= free_bytes <= total_bytes
    assert total_bytes > 0


@several_devices
def test_synchronize_waits_for_every_stream_of_its_device() -> None:
    accelerator.set_device_index(1)
    events = [accelrt.Stream(f"{KIND}:1").record_event() for _ in range(8)]
    accelerator.synchronize()
    assert all(event.query() for event in events)


# The deprecated names.


@several_devices
@pytest.mark.parametrize(
    ("old", "arguments", "new"),
    [
        (accelerator.current_device_idx, (), "current_device_index"),
        (accelerator.set_device_idx, (1,), "set_device_index"),
    ],
)
def test_a_deprecated_name_warns_where_it_is_called(
    old: Callable[..., object], arguments: tuple[int, ...], new: str
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = inspect.currentframe()
        assert frame is not None
        line = frame.f_lineno + 1
        old(*arguments)
    assert [(warning.category, str(warning.message)) for warning in caught] == [
        (FutureWarning, f"Use `{new}` instead.")
    ]
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


@several_devices
def test_a_deprecated_name_warns_at_each_call_and_not_at_the_import() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _ = accelerator.set_device_idx
        for index in (1, 2):
            accelerator.set_device_idx(index)
            assert accelerator.current_device_idx() == index
    assert len(caught) == 4


@several_devices
def test_a_deprecated_name_does_what_the_new_one_does() -> None:
    with pytest.warns(FutureWarning):
        accelerator.set_device_idx(f"{KIND}:2")
    assert accelerator.current_device_index() == 2
    with pytest.warns(FutureWarning):
        assert accelerator.current_device_idx() == 2
    with (
        pytest.warns(FutureWarning),
        pytest.raises(ValueError, match=r"but got:None$"),
    ):
        accelerator.set_device_idx(None)


@pytest.mark.parametrize("verb", ["current", "set"])
def test_deprecation_is_marked_on_the_old_names_alone(verb: str) -> None:
    old = getattr(accelerator, f"{verb}_device_idx")
    new = getattr(accelerator, f"{verb}_device_index")
    assert old.__deprecated__ == f"Use `{verb}_device_index` instead."
    assert old.__name__ == f"{verb}_device_idx"
    assert not hasattr(old, "__wrapped__")
    assert not hasattr(new, "__deprecated__")
    assert old is not new


def test_the_new_names_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accelerator.set_device_index(accelerator.current_device_index())
