"""Numbers that repeat a run of random tests: those of the variable TEST_SEED, or new ones."""

import os
import random

# Processes of one run inherit it, so that they agree on the names of tests.
SEED = int(os.environ.setdefault("TEST_SEED", str(random.SystemRandom().randrange(1, 1 << 32))))


def seeds(count: int) -> list[int]:
    """Return different seeds that follow from the seed of the run."""
    return random.Random(SEED).sample(range(1 << 32), count)  # noqa: S311  not for secrets
