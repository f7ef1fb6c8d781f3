"""What fills look like to a statistician, with fixed seeds: the numbers are what they are called.

Goal: distribution, independence of neighbours and of seeds, tails. Method: about half a million
numbers of each kind against what theory expects, with bounds that one in some thousands of good
seeds would break: these seeds do not. Philox itself passes far longer batteries (see its paper);
this is about what is made of its words.
"""

import math
from statistics import NormalDist

import numpy as np
import pytest

import accelrt
from kinds import KIND, content, needs_a_compiler

pytestmark = needs_a_compiler

COUNT = 1 << 19
DTYPES = ["float32", "float64"]
# Standard errors; one in 15,000 good samples is farther out.
FAR = 4.0
# Kolmogorov's limit for the greatest distance, in units of 1/sqrt(n): one in 3,000 is above.
KOLMOGOROV = 2.1


def sample(
    method: str, dtype: str, seed: int = 2026
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return numbers of one fill, as doubles."""
    buffer = accelrt.empty(COUNT * np.dtype(dtype).itemsize)
    getattr(accelrt.Generator(KIND).manual_seed(seed), method)(buffer, dtype)
    return np.frombuffer(content(buffer), dtype).astype(np.float64)


def distance(cumulated: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the greatest distance of a sample's steps from what it should be cumulated."""
    steps = np.arange(len(cumulated) + 1) / len(cumulated)
    return float(max((steps[1:] - cumulated).max(), (cumulated - steps[:-1]).max()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_uniform_numbers_are_uniform(dtype: str) -> None:
    """Range, mean, variance, Kolmogorov and Smirnov's distance, chi squared of 1024 cells."""
    numbers = sample("fill_uniform_", dtype)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < FAR * math.sqrt(1 / 12 / COUNT)
    assert abs(numbers.var() - 1 / 12) < FAR * math.sqrt(1 / 180 / COUNT)
    assert distance(np.sort(numbers)) < KOLMOGOROV / math.sqrt(COUNT)
    expected = COUNT / 1024
    cells = np.bincount((numbers * 1024).astype(np.int64), minlength=1024)
    assert abs(((cells - expected) ** 2 / expected).sum() - 1023) < FAR * math.sqrt(2 * 1023)


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_numbers_are_normal(dtype: str) -> None:
    """The first four moments, Kolmogorov and Smirnov's distance, chi squared of equal cells."""
    numbers = sample("fill_normal_", dtype)
    for power, (mean, variance) in enumerate([(0, 1), (1, 2), (0, 15), (3, 96)], 1):
        error = abs((numbers**power).mean() - mean)
        assert error < FAR * math.sqrt(variance / COUNT), power
    normal = NormalDist()
    cumulated = np.array([normal.cdf(number) for number in np.sort(numbers)[::8]])
    # Every eighth: the distance of the rest is at most seven steps more.
    assert distance(cumulated) < KOLMOGOROV / math.sqrt(COUNT) + 8 / COUNT
    limits = [normal.inv_cdf(cell / 256) for cell in range(1, 256)]
    cells = np.bincount(np.searchsorted(limits, numbers), minlength=256)
    expected = COUNT / 256
    assert abs(((cells - expected) ** 2 / expected).sum() - 255) < FAR * math.sqrt(2 * 255)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tails_of_normal_numbers_are_there_and_no_fatter(dtype: str) -> None:
    """Counts beyond 3, 3.5 and 4, on both sides together."""
    numbers = abs(sample("fill_normal_", dtype, seed=7))
    for limit in (3, 3.5, 4):
        expected = COUNT * math.erfc(limit / math.sqrt(2))
        assert abs((numbers > limit).sum() - expected) < FAR * math.sqrt(expected), limit
    assert 4.4 < numbers.max() < {"float32": 6.67, "float64": 8.58}[dtype]


@pytest.mark.parametrize("method", ["fill_uniform_", "fill_normal_"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_and_neighbouring_seeds_are_independent(method: str, dtype: str) -> None:
    """Correlations of numbers and of their squares, at distances inside of a block and above."""
    numbers, others = sample(method, dtype), sample(method, dtype, seed=2027)
    numbers, others = (it - it.mean() for it in (numbers, others))
    squares = numbers**2 - (numbers**2).mean()
    limit = FAR / math.sqrt(COUNT)
    for lag in (1, 2, 3, 4, 5, 8, 32, 64, 1024):
        for values in (numbers, squares):
            correlation = (values[lag:] * values[:-lag]).mean() / values.var()
            assert abs(correlation) < limit, lag
    assert abs((numbers * others).mean() / numbers.std() / others.std()) < limit


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_every_bit_of_raw_words_is_set_half_of_the_time(seed: int) -> None:
    """Also for seeds that are nearly all zeros or ones."""
    buffer = accelrt.empty(COUNT * 4)
    accelrt.Generator(KIND).manual_seed(seed).fill_raw_(buffer, "uint32")
    words = np.frombuffer(content(buffer), np.uint32)
    for bit in range(32):
        count = int((words >> bit & 1).sum())
        assert abs(count - COUNT / 2) < 4.5 * math.sqrt(COUNT / 4), bit
