"""The settings that `replay --recommend` tries."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from accelrt import _core
from accelrt.cli.replay.policies import pairs_of, policy_of

# Smaller blocks always are split: `max_split_size_mb` has to be as large as a segment of 20 MiB.
_LEAST_SPLIT_MIB = 20
# At which parts of the bytes requested in large pieces a limit of splitting is tried.
_PARTS = (0.25, 0.5, 0.75, 1.0)
# Keys that PyTorch does not know.
_OWN_KEYS = frozenset(("policy", "strict", "exact_statistics", "deterministic"))
_COLLECT = "garbage_collection_threshold:{},per_process_memory_fraction:1.0"


@dataclass(frozen=True)
class Candidate:
    """Settings of one policy of this command."""

    policy: str
    settings: str
    """As `ACCELRT_ALLOC_CONF` takes them."""

    @property
    def of_pytorch(self) -> str | None:
        """The same for `PYTORCH_ALLOC_CONF`; empty for its defaults, None for what it lacks."""
        if self.policy == "native":
            return None
        pairs = pairs_of(self.settings)
        return ",".join(pair for pair in pairs if pair.partition(":")[0] not in _OWN_KEYS)


def candidates(
    survey: _core.ReplaySurvey, policies: list[str], recorded: str | None
) -> list[Candidate]:
    """Return what is tried, in a fixed order; `recorded` are the settings of a snapshot."""
    every = [*_of_recording(recorded), *_native(), *_torch(survey), *_expandable()]
    return [it for it in dict.fromkeys(every) if it.policy in policies]


def _native() -> Iterator[Candidate]:
    yield Candidate("native", "policy:native")
    yield Candidate("native", "policy:native,exact_statistics:True")


def _torch(survey: _core.ReplaySurvey) -> Iterator[Candidate]:
    limits = [f"max_split_size_mb:{mib}" for mib in split_limits(survey.requests_by_mib)]
    for settings in (
        "",
        *limits,
        *(_COLLECT.format(threshold) for threshold in (0.6, 0.8)),
        *(f"{limit},{_COLLECT.format(0.8)}" for limit in limits),
        *(f"roundup_power2_divisions:{divisions}" for divisions in (4, 8)),
    ):
        yield Candidate("torch", ",".join(filter(None, ("policy:torch", settings))))


def _expandable() -> Iterator[Candidate]:
    for settings in ("", _COLLECT.format(0.8), "roundup_power2_divisions:8"):
        parts = "policy:torch", "expandable_segments:True", settings
        yield Candidate("torch+expandable", ",".join(filter(None, parts)))


def _of_recording(recorded: str | None) -> Iterator[Candidate]:
    """Yield the settings of a snapshot, where it has any that an allocator here can have.

    Snapshots of accelrt may name the policy; those of PyTorch do not.
    """
    try:
        settings = _core.Recording.settings(recorded or "")[0]
    except ValueError:  # cudaMallocAsync, or a malformed text
        return
    policy = policy_of(settings) or "torch"
    pairs = [pair for pair in pairs_of(settings) if not pair.startswith("policy:")]
    if pairs:
        is_expandable = policy == "torch" and "expandable_segments:True" in pairs
        name = "torch+expandable" if is_expandable else policy
        yield Candidate(name, ",".join((f"policy:{policy}", *pairs)))


def split_limits(requests_by_mib: list[tuple[int, int]]) -> list[int]:
    """Return sizes in MiB up to which a quarter, half and more of the large bytes are requested.

    >>> split_limits([(2, 100), (24, 3), (64, 2), (512, 1)])
    [64, 512]
    >>> split_limits([(2, 100)])
    []
    """
    large = [(mib, mib * count) for mib, count in requests_by_mib if mib >= _LEAST_SPLIT_MIB]
    sums = list(accumulate(total for _, total in large))
    limits = {
        next(mib for (mib, _), so_far in zip(large, sums, strict=True) if so_far >= part * sums[-1])
        for part in _PARTS
        if sums
    }
    return sorted(limits)
