"""Generators: states, seeds, errors, default generators, pickles; the same fills on every kind.

Goal: what Python promises of them, on the kind of this run and beside the cpu. Method: NumPy and
plain integers as references; hypothesis for states; processes of their own for what is about the
first use.
"""

import copy
import pickle
import threading
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelrt
from kinds import KIND, content, module, needs_a_compiler, several_devices
from processes import output_of

DEFAULT_SEED = 67280421310721
FILLS = [
    ("fill_raw_", "uint32"),
    ("fill_raw_", "uint64"),
    ("fill_uniform_", "float32"),
    ("fill_uniform_", "float64"),
    ("fill_normal_", "float32"),
    ("fill_normal_", "float64"),
]


def filled(
    method: str, dtype: str, nbytes: int, *, device: str = KIND, seed: int = 1, offset: int = 0
) -> bytes:
    """Return the bytes of a fill."""
    generator = accelrt.Generator(device).manual_seed(seed).set_offset(offset)
    buffer = accelrt.empty(nbytes, device=device)
    assert getattr(generator, method)(buffer, dtype) is buffer
    return content(buffer)


@pytest.fixture(autouse=True)
def same_seeds_afterwards() -> Iterator[None]:
    """Leave the default generators as they were."""
    with accelrt.fork_rng():
        yield


def test_a_new_generator_has_torchs_default_seed_and_no_offset() -> None:
    """As `torch.Generator()` on a GPU."""
    generator = accelrt.Generator()
    assert (generator.initial_seed(), generator.get_offset()) == (DEFAULT_SEED, 0)
    assert generator.device == accelrt.device(KIND, 0)
    assert generator.get_state() == DEFAULT_SEED.to_bytes(8, "little") + bytes(8)


@pytest.mark.parametrize(
    ("given", "seed"),
    [(0, 0), (2**64 - 1, 2**64 - 1), (-1, 2**64 - 1), (-(2**63), 2**63), (np.int32(7), 7)],
)
def test_seeds_are_numbers_of_64_bits_and_negative_ones_wrap(given: int, seed: int) -> None:
    """The range of torch's seeds."""
    generator = accelrt.Generator().set_offset(8)
    assert generator.manual_seed(given) is generator
    assert (generator.initial_seed(), generator.get_offset()) == (seed, 0)


@pytest.mark.parametrize("seeding", [accelrt.Generator("cpu").manual_seed, accelrt.manual_seed,
                                     module.manual_seed, module.manual_seed_all])  # fmt: skip
def test_what_is_no_seed_is_refused_in_torchs_words(seeding: object) -> None:
    """The types and texts of torch's errors."""
    assert callable(seeding)
    for outside in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match=r"^Overflow when unpacking long long$"):
            seeding(outside)
    for wrong, name in [(1.5, "float"), ("1", "str"), (None, "NoneType"), (True, "bool")]:
        with pytest.raises(RuntimeError, match=rf"manual_seed expected a long, but got {name}$"):
            seeding(wrong)


# The last two draws take 9 and 3 blocks, and the sequence has 2**62 - 1.
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**62 - 1 - 12), st.integers(0, 9))
def test_states_carry_seed_and_offset_through_bytes_copies_and_pickles(
    seed: int, block: int, used: int
) -> None:
    """Random states, each way."""
    generator = accelrt.Generator().manual_seed(seed).set_offset(4 * block)
    generator.random_raw(2 * used)
    offset = 4 * (block + used)
    assert (generator.initial_seed(), generator.get_offset()) == (seed, offset)
    state = generator.get_state()
    assert state == seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    twins = [
        accelrt.Generator().set_state(memoryview(state)),
        generator.clone_state(),
        copy.deepcopy(generator),
        copy.copy(generator),
        pickle.loads(pickle.dumps(generator)),  # noqa: S301
    ]
    expected = generator.random_raw(5)
    for twin in twins:
        assert twin.device == generator.device
        assert (twin.get_state(), twin.random_raw(5)) == (state, expected)
    assert generator.__reduce__()[2][:2] == (seed, generator.get_offset())


def test_a_wrong_state_is_refused_and_changes_nothing() -> None:
    """Sizes with their numbers, types by their names."""
    generator = accelrt.Generator().manual_seed(3).set_offset(4)
    text = r"size 16 but found the input RNG state size to be 3$"
    with pytest.raises(RuntimeError, match=text):
        generator.set_state(b"abc")
    with pytest.raises(RuntimeError, match=r"to be 0$"):
        generator.set_state(b"")
    with pytest.raises(TypeError, match=r"state must be 16 bytes .*, not int"):
        generator.set_state(16)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"multiple of 4: 1 is not"):
        generator.set_state(bytes(8) + (1).to_bytes(8, "little"))
    assert generator.set_state(np.array([3, 8], "<u8")).get_offset() == 8


def test_an_offset_is_a_multiple_of_4_in_range() -> None:
    """And nothing else changes it."""
    generator = accelrt.Generator().set_offset(8)
    for wrong in (1, 2, 3, 2**64 - 1):
        with pytest.raises(ValueError, match=rf"multiple of 4: {wrong} is not"):
            generator.set_offset(wrong)
    for outside in (-4, 2**64):
        with pytest.raises(ValueError, match=rf"0 to 18446744073709551612, not {outside}"):
            generator.set_offset(outside)
    with pytest.raises(TypeError, match=r"offset must be an integer, not float"):
        generator.set_offset(4.0)  # type: ignore[arg-type]
    assert generator.get_offset() == 8
    last = 2**64 - 4
    assert generator.set_offset(last) is generator
    with pytest.raises(ValueError, match=rf"Cannot take 4 words .* at offset {last}:"):
        generator.random_raw(2)
    assert generator.get_offset() == last


def test_random_raw_counts_and_refuses() -> None:
    """Nothing for nothing, and too many are no crash."""
    generator = accelrt.Generator("cpu").manual_seed(0)
    assert generator.random_raw(0) == []
    assert generator.random_raw(2) == [0xE169C58D6627E8D5, 0x9B00DBD8BC57AC4C]
    for wrong in (-1, 2**63):
        with pytest.raises(ValueError, match=r"n must be 0 or more"):
            generator.random_raw(wrong)
    with pytest.raises(MemoryError):
        generator.random_raw(2**62)
    assert generator.get_offset() == 4


def test_seed_is_random_and_is_told() -> None:
    """The next draw differs from the last."""
    generator = accelrt.Generator()
    seeds = {generator.seed() for _ in range(4)}
    assert len(seeds) == 4
    assert generator.initial_seed() in seeds


def test_threads_get_numbers_of_their_own() -> None:
    """No two of them the same, none left out."""
    generator, taken = accelrt.Generator("cpu"), []

    def take() -> None:
        for _ in range(100):
            taken.extend(generator.random_raw(2))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(accelrt.Generator("cpu").random_raw(800))


# --- Fills. ---


@needs_a_compiler
@pytest.mark.parametrize(("method", "dtype"), FILLS)
def test_every_kind_makes_the_same_bits(method: str, dtype: str) -> None:
    """Beside the cpu: whole blocks and rests, both ends of the sequence."""
    last = 2**64 - 4 - 16_388  # so that the words of 65,544 bytes end the sequence
    for nbytes, offset in [(0, 0), (8, 0), (4096, 16), (65_544, last)]:
        made = filled(method, dtype, nbytes, offset=offset)
        assert made == filled(method, dtype, nbytes, device="cpu", offset=offset)


@needs_a_compiler
def test_numpy_reads_the_words_as_documented() -> None:
    """Raw numbers are random_raw's, uniform ones their upper bits."""
    words = np.frombuffer(filled("fill_raw_", "uint32", 4096), np.uint32)
    wide = np.frombuffer(filled("fill_raw_", "uint64", 4096), np.uint64)
    assert wide.tolist() == accelrt.Generator().manual_seed(1).random_raw(512)
    assert (wide == words[::2].astype(np.uint64) + (words[1::2].astype(np.uint64) << 32)).all()
    single = np.frombuffer(filled("fill_uniform_", "float32", 4096), np.float32)
    assert (single == (words >> 8).astype(np.float32) / np.float32(2**24)).all()
    double = np.frombuffer(filled("fill_uniform_", "float64", 4096), np.float64)
    assert (double == (wide >> 11).astype(np.float64) / 2**53).all()


@needs_a_compiler
def test_normal_numbers_are_box_and_mullers() -> None:
    """Beside NumPy's functions, to the last places."""
    words = np.frombuffer(filled("fill_raw_", "uint32", 1 << 16), np.uint32)
    upper = (words[::2] // 2).astype(np.float32).astype(np.float64)
    uniform = ((upper + 0.5) / 2**31).astype(np.float32).astype(np.float64)
    turn = words[1::2].astype(np.float64) / 2**32
    expected = np.sqrt(-2 * np.log(uniform)) * np.exp(2j * np.pi * turn)
    single = np.frombuffer(filled("fill_normal_", "float32", 1 << 16), np.complex64)
    assert abs(single - expected).max() < 2e-6
    wide = np.frombuffer(filled("fill_raw_", "uint64", 1 << 16), np.uint64)
    uniform = ((wide[::2] >> 12).astype(np.float64) + 0.5) / 2**52
    turn = wide[1::2].astype(np.float64) / 2**64
    expected = np.sqrt(-2 * np.log(uniform)) * np.exp(2j * np.pi * turn)
    double = np.frombuffer(filled("fill_normal_", "float64", 1 << 16), np.complex128)
    assert abs(double - expected).max() < 1e-14


@needs_a_compiler
def test_fills_run_on_the_current_stream_into_buffers_and_views() -> None:
    """In order with what else is enqueued there."""
    generator, stream = accelrt.Generator().manual_seed(5), accelrt.Stream()
    with stream:
        buffer = accelrt.zeros(64)
        view = buffer[16:48].view("float32")
        assert generator.fill_uniform_(view, view.dtype) is view
        copied = accelrt.empty(64).copy_(buffer, non_blocking=True)
        buffer.fill_(0)
    stream.synchronize()
    expected = bytes(16) + filled("fill_uniform_", "float32", 32, seed=5) + bytes(16)
    assert (content(copied), content(buffer)) == (expected, bytes(64))


@pytest.mark.parametrize(
    ("method", "dtype", "held"),
    [
        ("fill_raw_", "uint32", {"uint8", "int32", "uint32"}),
        ("fill_raw_", "uint64", {"uint8", "int64", "uint64"}),
        ("fill_uniform_", "float32", {"uint8", "float32", "complex64"}),
        ("fill_normal_", "float64", {"uint8", "float64", "complex128"}),
    ],
)
@needs_a_compiler
def test_a_view_is_filled_with_what_it_is_of(method: str, dtype: str, held: set[str]) -> None:
    generator, buffer = accelrt.Generator(), accelrt.empty(64)
    fill = getattr(generator, method)
    for name in held:
        fill(buffer.view(name), dtype)
    offset = generator.get_offset()
    for name in {"bool", "int8", "float16", "int32", "float32", "float64", "complex128"} - held:
        with pytest.raises(TypeError, match=f"what a view of {name} holds, not {dtype}"):
            fill(buffer.view(name), dtype)
    assert generator.get_offset() == offset


@needs_a_compiler
def test_a_fill_is_one_task_and_no_copy() -> None:
    """Counted in the runtime's own lines; a kind without a compiler has one copy of the host's."""
    generator, buffer = accelrt.Generator(), accelrt.empty(4096)
    generator.fill_raw_(buffer, "uint32")
    module.synchronize()
    with accelrt.verbose(1, capture=True) as log:
        for method, dtype in FILLS:
            getattr(generator, method)(buffer, dtype)
        module.synchronize()
    names = [
        record.name for record in log.records if record.name in ("copy", "fill", "kernel", "random")
    ]
    assert names == [{"cpu": "random", "xpu": "kernel"}.get(KIND, "copy")] * 6


def test_wrong_fills_are_refused_with_names_and_numbers() -> None:
    """Types, sizes, addresses, kinds."""
    generator, buffer = accelrt.Generator().set_offset(4), accelrt.empty(64)
    with pytest.raises(TypeError, match=r"dtype must be uint32 or uint64, not float32"):
        generator.fill_raw_(buffer, "float32")
    with pytest.raises(TypeError, match=r"dtype must be float32 or float64, not uint32"):
        generator.fill_normal_(buffer, np.uint32)
    with pytest.raises(
        TypeError, match=r"buffer must be an accelrt.Buffer or a view of one, not b"
    ):
        generator.fill_raw_(bytearray(64), "uint32")  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"Cannot fill 30 bytes at 0x.* with numbers of 4 bytes"):
        generator.fill_uniform_(buffer[:30], "float32")
    with pytest.raises(ValueError, match=r"Cannot fill 16 bytes at 0x.* with numbers of 8 bytes"):
        generator.fill_uniform_(buffer[4:20], "float64")
    if KIND != "cpu":
        text = f"Expected a '{KIND}' device type for generator but found 'cpu'"
        with pytest.raises(RuntimeError, match=text):
            accelrt.Generator("cpu").fill_raw_(buffer, "uint32")
    buffer.release()
    with pytest.raises(BufferError, match=r"released"):
        generator.fill_raw_(buffer, "uint32")
    assert generator.get_offset() == 4


# --- Default generators. ---


def test_the_module_seeds_the_current_devices_generator() -> None:
    """And reads and restores its state."""
    module.manual_seed(-2)
    generator = module.default_generator()
    assert module.initial_seed() == generator.initial_seed() == 2**64 - 2
    generator.random_raw(3)
    state = module.get_rng_state()
    assert state == generator.get_state()
    assert generator.get_offset() == 8
    module.seed()
    assert module.initial_seed() != 2**64 - 2
    module.set_rng_state(bytearray(state))
    assert module.get_rng_state(module.current_device()) == state
    with pytest.raises(RuntimeError, match=r"state size to be 1$"):
        module.set_rng_state(b"1")


@several_devices
def test_seeds_for_all_devices_and_for_one_the_later_wins() -> None:
    """Three devices, by index and as the current one."""
    module.manual_seed_all(1)
    module.set_device(1)
    module.manual_seed(2)
    seeds = [module.default_generator(index).initial_seed() for index in range(3)]
    assert seeds == [1, 2, 1]
    states = module.get_rng_state_all()
    assert [state[0] for state in states] == [1, 2, 1]
    module.seed_all()
    assert len({state[:8] for state in module.get_rng_state_all()}) == 1
    module.set_rng_state_all(states)
    assert module.get_rng_state_all() == states
    assert accelrt.manual_seed(9) is not None
    assert [state[0] for state in module.get_rng_state_all()] == [9, 9, 9]
    assert module.get_rng_state("cpu" if KIND == "cpu" else KIND)[0] == 9


def test_fork_rng_restores_what_it_was_told_to() -> None:
    """All, one device, none; also when the body raises."""
    module.manual_seed_all(1)
    accelrt.cpu.manual_seed_all(1)
    with suppress(KeyError), accelrt.fork_rng():
        accelrt.manual_seed(2)
        raise KeyError
    assert (accelrt.cpu.initial_seed(), module.initial_seed()) == (1, 1)
    with accelrt.fork_rng(devices=[f"{KIND}:0"], device_type=KIND):
        accelrt.manual_seed(2)
    assert (accelrt.cpu.initial_seed(), module.initial_seed()) == (1, 1)
    with accelrt.fork_rng(devices=[]):
        accelrt.manual_seed(2)
    assert accelrt.cpu.initial_seed() == 1
    assert module.initial_seed() == (1 if KIND == "cpu" else 2)
    with accelrt.fork_rng(enabled=False):
        accelrt.manual_seed(3)
    assert module.initial_seed() == 3
    with (
        pytest.raises(TypeError, match=r"enabled must be True or False"),
        accelrt.fork_rng(
            enabled=1  # type: ignore[arg-type]
        ),
    ):
        pass


def test_seeding_initialises_nothing_and_asks_no_driver() -> None:
    """In a process of its own, where nobody would find a driver."""
    code = """
        import accelrt
        accelrt.xpu.manual_seed(1)
        accelrt.xpu.manual_seed_all(2)
        accelrt.xpu.seed()
        accelrt.cpu.manual_seed(3)
        accelrt.cpu.manual_seed_all(4)
        accelrt.cpu.manual_seed(5)
        print(accelrt.cpu.initial_seed())
        accelrt.manual_seed(6)
        print(accelrt.cpu.initial_seed(), accelrt.cpu.is_initialized())
        print("opencl" in open("/proc/self/maps").read().lower())
    """
    assert output_of(code).split() == ["5", "6", "False", "False"]


def test_unseeded_default_generators_differ_between_processes() -> None:
    """As torch's."""
    text = "import accelrt; print(accelrt.cpu.initial_seed())"
    assert output_of(text) != output_of(text)


def test_a_forked_child_has_generators_where_it_may_have_the_runtime() -> None:
    """Before the first use the state is the child's own; after it, a child is refused."""
    code = """
        import os, warnings, accelrt
        warnings.simplefilter("ignore")  # of a fork beside threads
        generator = accelrt.Generator("cpu").manual_seed(0)

        def tell_in_child():
            if child := os.fork():
                return os.waitpid(child, 0)
            try:
                print(generator.random_raw(1), flush=True)
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)

        tell_in_child()
        tell_in_child()
        accelrt.zeros(8, device="cpu")
        tell_in_child()
        print(generator.get_offset())
    """
    first, second, refused, offset = output_of(code).splitlines()
    assert first == second == f"[{0xE169C58D6627E8D5}]"
    assert refused.startswith("Cannot re-initialize accelrt in forked subprocess.")
    assert offset == "0"
