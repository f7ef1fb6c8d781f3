"""Random numbers: seeded by the program, whichever thread runs the task, and whenever.

Goal: a seed and an offset decide an operator's numbers at its enqueue. Method: equal calls behind
the same seed, with the stream held back; states kept and set again.
"""

import torch
from torch.nn import functional

from gates import Gate


def _draw() -> list[torch.Tensor]:
    ones = torch.ones(50, device="accelrt")
    return [
        torch.randn(50, device="accelrt"),
        torch.rand(50, device="accelrt", dtype=torch.float64),
        torch.randint(0, 1000, (50,), device="accelrt"),
        torch.randperm(50, device="accelrt"),
        torch.bernoulli(ones / 2),
        torch.multinomial(ones, 20),
        torch.empty(50, device="accelrt").exponential_(),
        functional.dropout(ones, 0.5),
        torch.normal(ones, ones),
    ]


def test_a_seed_repeats_all_numbers(seed: int) -> None:
    torch.manual_seed(seed)
    first = _draw()
    torch.manual_seed(seed)
    again = _draw()
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.cpu(), other.cpu())
    assert not torch.equal(first[0].cpu(), torch.randn(50, device="accelrt").cpu())


def test_a_later_seed_does_not_reach_what_was_enqueued(seed: int) -> None:
    torch.manual_seed(seed)
    expected = torch.randn(50, device="accelrt").cpu()
    torch.manual_seed(seed)
    with Gate():
        held = torch.randn(50, device="accelrt")
        torch.manual_seed(seed + 1)
    assert torch.equal(held.cpu(), expected)


def test_a_state_is_16_bytes_and_brings_the_numbers_back(seed: int) -> None:
    torch.manual_seed(seed)
    state = torch.accelrt.get_rng_state()
    assert state.shape == (16,)
    first = torch.randn(50, device="accelrt")
    torch.accelrt.set_rng_state(state)
    assert torch.equal(first.cpu(), torch.randn(50, device="accelrt").cpu())
    states = torch.accelrt.get_rng_state_all()
    assert len(states) == torch.accelrt.device_count()
    torch.accelrt.set_rng_state_all(states)


def test_the_cpus_generator_is_left_alone(seed: int) -> None:
    torch.manual_seed(seed)
    state = torch.get_rng_state()
    for dtype in (torch.float32, torch.float64, torch.bfloat16):  # of which each is the first
        ones = torch.ones(17, device="accelrt", dtype=dtype)
        ones.log_normal_()
        ones.geometric_(0.5)
        torch.bernoulli(ones.clamp(0, 1))
        torch.randn_like(ones)
    torch.accelerator.synchronize()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_generator_of_the_program_goes_on_for_itself(seed: int) -> None:
    generator = torch.Generator("accelrt:1").manual_seed(seed)
    other = torch.Generator("accelrt:1").manual_seed(seed)
    draws = [
        torch.randn(20, device="accelrt:1", generator=each).cpu() for each in (generator, other)
    ]
    assert torch.equal(*draws)
    clone = generator.clone_state()
    assert torch.equal(
        torch.rand(9, device="accelrt:1", generator=clone).cpu(),
        torch.rand(9, device="accelrt:1", generator=generator).cpu(),
    )


def test_devices_have_generators_of_their_own(seed: int) -> None:
    torch.manual_seed(seed)
    assert torch.accelrt.initial_seed() == seed
    here = torch.randn(50, device="accelrt:0").cpu()
    assert torch.equal(here, torch.randn(50, device="accelrt:1").cpu())


def test_numbers_have_their_distribution(seed: int) -> None:
    torch.manual_seed(seed)
    normal = torch.randn(200_000, device="accelrt").cpu()
    assert abs(normal.mean().item()) < 0.02
    assert abs(normal.std().item() - 1) < 0.02
    kept = functional.dropout(torch.ones(200_000, device="accelrt"), 0.25).cpu()
    assert abs((kept > 0).float().mean().item() - 0.75) < 0.01
    assert abs(kept.mean().item() - 1) < 0.02


def test_a_state_brings_back_what_comes_behind_the_numbers_that_were_drawn(seed: int) -> None:
    torch.manual_seed(seed)
    drawn = torch.randn(50, device="accelrt")
    state = torch.accelrt.get_rng_state()
    expected = torch.randn(50, device="accelrt")
    torch.accelrt.set_rng_state(state)
    assert torch.equal(torch.accelrt.get_rng_state(), state)
    again = torch.randn(50, device="accelrt")
    assert torch.equal(again.cpu(), expected.cpu())
    assert not torch.equal(again.cpu(), drawn.cpu())


def test_states_of_all_devices_are_those_of_each(seed: int) -> None:
    torch.manual_seed(seed)
    for index in range(torch.accelrt.device_count()):
        for _ in range(index):
            torch.randn(5, device=f"accelrt:{index}")
    states = torch.accelrt.get_rng_state_all()
    assert len({tuple(state.tolist()) for state in states}) == torch.accelrt.device_count()
    torch.manual_seed(seed + 1)
    torch.accelrt.set_rng_state_all(states)
    for index, state in enumerate(states):
        assert torch.equal(torch.accelrt.get_rng_state(index), state)
    torch.accelerator.set_device_index(2)
    for asked in (None, "accelrt", "accelrt:2"):
        assert torch.equal(torch.accelrt.get_rng_state(asked), states[2])


def test_all_devices_are_seeded_by_chance(seed: int) -> None:
    torch.manual_seed(seed)
    torch.accelrt.seed()
    one = [tuple(state.tolist()) for state in torch.accelrt.get_rng_state_all()]
    assert len({*one}) == 2  # the current device's, and that of the others
    torch.accelrt.seed_all()
    all_of_them = [tuple(state.tolist()) for state in torch.accelrt.get_rng_state_all()]
    assert len({*all_of_them, *one}) == torch.accelrt.device_count() + 2


def test_neighbouring_seeds_have_no_numbers_in_common(seed: int) -> None:
    seen = set[float]()
    count = 0
    for neighbour in range(seed, seed + 12):
        torch.manual_seed(neighbour)
        for _ in range(6):
            seen.add(torch.rand((), device="accelrt", dtype=torch.float64).item())
            count += 1
    assert len(seen) == count


def test_a_generator_without_a_number_is_of_the_current_device() -> None:
    torch.accelerator.set_device_index(1)
    generator = torch.Generator("accelrt")
    assert generator.device == torch.device("accelrt:1")
    assert torch.rand(3, device="accelrt", generator=generator).device.index == 1
