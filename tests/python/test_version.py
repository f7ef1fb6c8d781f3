"""Versions of buffers, `.data`, `detach` and inference mode.

Goal: the table of torch's in specification 1.11. Method: each of its rows; every way to write, also
those that are refused or fail; random programs beside a model in which versions are plain lists.
"""

import gc
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelrt
from accelrt import Buffer
from kinds import content, needs_a_compiler

OUTSIDE = (
    r"^Inplace update to inference tensor outside InferenceMode is not allowed\."
    r"You can make a clone to get a normal tensor before doing inplace update\.$"
)
WITHOUT = r"^Inference tensors do not track version counter\.$"


def inference(nbytes: int = 8) -> Buffer:
    with accelrt.inference_mode():
        return accelrt.zeros(nbytes)


def test_each_write_through_the_api_counts_once() -> None:
    buffer, other = accelrt.zeros(8), accelrt.zeros(8)
    writes: list[Callable[[], object]] = [
        lambda: buffer.fill_(1),
        lambda: buffer.copy_(other),
        lambda: buffer.copy_(b"12345678", non_blocking=True),
        lambda: buffer.copy_(accelrt.as_buffer(bytearray(8))),
        lambda: other.copy_to(buffer),
        lambda: other.copy_to(buffer.view("int32")),
        lambda: buffer[2:4].fill_(3),
    ]
    assert buffer._version == 0
    for count, write in enumerate(writes, 1):
        write()
        assert buffer._version == count
    assert other._version == 0, "reading counts nothing"
    buffer.copy_to(bytearray(8))
    if buffer.device.type == "cpu":
        memoryview(buffer)[0] = 1
    assert buffer._version == len(writes), "who has the bytes is not seen"


@needs_a_compiler
def test_a_fill_with_random_numbers_counts_once() -> None:
    buffer = accelrt.zeros(8)
    generator = accelrt.Generator(buffer.device)
    generator.fill_raw_(buffer, "uint32")
    generator.fill_uniform_(buffer.view("float32"), "float32")
    assert buffer._version == 2


@pytest.mark.parametrize(
    "write",
    [
        lambda buffer: buffer.fill_(256),
        lambda buffer: buffer.copy_(b"short"),
        lambda buffer: buffer.copy_(3),
        lambda buffer: accelrt.zeros(4).copy_to(buffer),
        lambda buffer: accelrt.Generator(buffer.device).fill_raw_(buffer, "int8"),
    ],
)
def test_a_write_that_is_refused_counts_nothing(write: Callable[[Buffer], object]) -> None:
    buffer = accelrt.zeros(8)
    with pytest.raises((ValueError, TypeError)):
        write(buffer)
    assert buffer._version == 0


def test_views_share_a_version_and_data_has_one_of_its_own() -> None:
    x = accelrt.zeros(8).fill_(1)
    part, detached, data = x[2:][1:], x.detach(), x.data
    assert (part._version, detached._version, data._version) == (1, 1, 0)
    assert data.data_ptr() == x.data_ptr()
    data.fill_(2)
    assert (x._version, data._version) == (1, 1)
    detached.fill_(3)
    part.fill_(4)
    assert (x._version, detached._version, part._version, data._version) == (3, 3, 3, 1)
    assert content(x) == content(data) == b"\3\3\3\4\4\4\4\4"


def test_assigned_data_leaves_the_version_and_gives_the_old_memory_back() -> None:
    x, new = accelrt.zeros(1 << 20).fill_(1), accelrt.zeros(4).fill_(5).fill_(6)
    detached, view = x.detach()[:4], x.view("uint8")
    x.data = new
    assert (x._version, new._version, x.nbytes) == (1, 2, 4)
    assert x.data_ptr() == new.data_ptr()
    new.fill_(7)
    assert (x._version, content(x)) == (1, b"\7" * 4)
    x.fill_(8)
    assert (x._version, new._version, detached._version) == (2, 3, 2)
    accelrt.zeros(1 << 20).copy_to(view)
    assert x._version == 3, "a view is of the old memory, and has the version of its owner"
    del detached, view
    accelrt.accelerator.synchronize()
    gc.collect()
    before = accelrt.accelerator.memory_allocated()
    y = accelrt.zeros(1 << 20)
    y.data = new
    accelrt.accelerator.synchronize()
    assert accelrt.accelerator.memory_allocated() == before
    y.data = y
    assert content(y) == b"\x08" * 4


def test_data_takes_buffers_alone() -> None:
    x = accelrt.zeros(8)
    for other, name in ((3, "int"), (b"12", "bytes"), (x.view("int8"), "View")):
        with pytest.raises(TypeError, match=f"^Variable data has to be a tensor, but got {name}$"):
            x.data = other  # type: ignore[assignment]
    with pytest.raises((AttributeError, TypeError)):
        del x.data


def test_memory_that_is_replaced_meanwhile_is_used_to_the_end() -> None:
    x, small = accelrt.zeros(1 << 20), accelrt.zeros(8)

    class Replacing:
        def __index__(self) -> int:
            x.data = small
            return 9

    old = x.detach()
    x.fill_(Replacing())  # type: ignore[arg-type]  # an index is one
    assert content(small) == b"\x09" * 8
    assert not any(content(old))


def test_inference_mode_makes_buffers_without_a_version() -> None:
    normal = accelrt.zeros(8)
    for scope in (accelrt.inference_mode(), accelrt.inference_mode(mode=True)):
        with scope:
            made = [
                accelrt.empty(8),
                accelrt.zeros(8),
                accelrt.empty_pinned(8),
                accelrt.empty(8, alignment=4096),
                accelrt.empty(8, device=accelrt.accelerator.current_accelerator()),
            ]
            made += [accelrt.empty(8) for _ in range(3)]  # the place is at hand by now
            for buffer in made:
                buffer.fill_(1)
            normal.fill_(1)
            assert not normal[:2].is_inference()
        for buffer in made:
            for one in (buffer, buffer[:2], buffer.detach(), buffer.data):
                assert one.is_inference()
                with pytest.raises(RuntimeError, match=WITHOUT):
                    one._version  # noqa: B018  it raises
                with pytest.raises(RuntimeError, match=OUTSIDE):
                    one.fill_(2)
                with pytest.raises(RuntimeError, match=OUTSIDE):
                    one.copy_(one)
                with pytest.raises(RuntimeError, match=OUTSIDE):
                    normal[: len(one)].copy_to(one.view("uint8"))
            assert content(buffer) == b"\1" * 8
    assert normal._version == 2, "its writes inside of the mode count"
    assert not accelrt.empty(8).is_inference()
    assert accelrt.zeros(8).copy_(inference())._version == 1, "to read one is free"


def test_assigned_data_of_inference_mode_makes_a_buffer_one_of_it() -> None:
    x = accelrt.zeros(8).fill_(1)
    x.data = inference()
    assert x.is_inference()
    with pytest.raises(RuntimeError, match=WITHOUT):
        x._version  # noqa: B018  it raises
    with pytest.raises(RuntimeError, match=OUTSIDE):
        x.fill_(2)
    x.data = accelrt.zeros(4)
    assert (x.is_inference(), x._version) == (False, 1)


def test_modes_nest_are_of_a_thread_and_decorate() -> None:
    enabled = accelrt.is_inference_mode_enabled
    seen = list[bool]()

    @accelrt.inference_mode()
    def inside(depth: int) -> bool:
        return enabled() and (depth == 0 or inside(depth - 1))

    @accelrt.inference_mode
    def plain() -> bool:
        return enabled()

    @accelrt.inference_mode(mode=False)
    def off() -> bool:
        return enabled()

    with accelrt.inference_mode():
        with accelrt.inference_mode(mode=False):
            seen += [enabled(), accelrt.empty(8).is_inference()]
        thread = threading.Thread(target=lambda: seen.append(enabled()))
        thread.start()
        thread.join()
        assert (enabled(), off()) == (True, False)
    assert seen == [False] * 3
    assert (enabled(), inside(2), plain(), off(), enabled()) == (False, True, True, False, False)
    assert inside.__name__ == "inside"
    error = ValueError("of the body")
    with pytest.raises(ValueError, match="of the body"), accelrt.inference_mode():
        raise error
    assert not enabled()
    with pytest.raises(TypeError, match="mode"):
        accelrt.inference_mode(3)  # type: ignore[call-overload]


def test_threads_that_are_in_one_decorated_function_have_each_their_mode_behind_it() -> None:
    # Method: the thread that entered it first leaves it first.
    enabled = accelrt.is_inference_mode_enabled
    is_inside, may_leave = threading.Event(), threading.Event()
    seen = list[bool]()

    @accelrt.inference_mode()
    def both(body: Callable[[], object]) -> None:
        body()

    def stay() -> None:
        is_inside.set()
        may_leave.wait()

    def in_the_mode() -> None:
        with accelrt.inference_mode():
            both(stay)
            seen.append(enabled())

    def begin() -> None:
        thread.start()
        is_inside.wait()

    thread = threading.Thread(target=in_the_mode)
    both(begin)
    seen.append(enabled())
    may_leave.set()
    thread.join()
    assert seen == [False, True]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["make", "slice", "detach", "data", "assign", "write", "drop"]),
        st.integers(0, 1 << 10),
        st.integers(0, 1 << 10),
    ),
    max_size=60,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_random_programs_agree_with_a_model(steps: list[tuple[str, int, int]]) -> None:
    # A version is a list that everybody who shares it has; its length is the count.
    made: list[tuple[Buffer, list[None]]] = [(accelrt.zeros(8), [])]
    for what, first, second in steps:
        place = first % len(made)
        buffer, version = made[place]
        if what == "make":
            made.append((accelrt.zeros(8), []))
        elif what == "slice":
            made.append((buffer[: len(buffer)], version))
        elif what == "detach":
            made.append((buffer.detach(), version))
        elif what == "data":
            made.append((buffer.data, []))
        elif what == "assign":
            buffer.data = made[second % len(made)][0]
        elif what == "write":
            buffer.fill_(second % 256)
            version.append(None)
        elif len(made) > 1:
            del made[place]
        assert [one._version for one, _ in made] == [len(count) for _, count in made]
