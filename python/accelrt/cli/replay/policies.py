"""The policies of the command, and the settings that agree with them."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from accelrt.cli.replay.errors import TraceError

# More than any device has, so that a limit is what the user sets.
CAPACITY_BYTES: Final = 1 << 40
GRANULARITY_BYTES: Final = 2 << 20
POLICIES: Final = {
    "native": {"policy": "native"},
    "torch": {"policy": "torch", "expandable_segments": "False"},
    "torch+expandable": {"policy": "torch", "expandable_segments": "True"},
}
_OF_POLICIES = re.compile(r"(?:^|,)\s*(policy|expandable_segments)\s*:\s*([^,]*[^,\s])")
_OF_TORCH = re.compile(
    r"(?:^|,)\s*(?:large_segment|max_split|max_non_split|roundup|garbage_collection)"
)
_COMMAS = re.compile(r",(?![^\[]*\])")  # outside of brackets
_OF_NATIVE = re.compile(r"(?:^|,)\s*(?:exact_statistics|deterministic)")


@dataclass(frozen=True)
class Replays:
    """Replays of one recording: the policies, and what is the same under each."""

    policies: Sequence[str]
    config: str = ""
    capacity_bytes: int = CAPACITY_BYTES
    granularity_bytes: int = GRANULARITY_BYTES


def chosen(config: str, asked_for: list[str] | None) -> list[str]:
    """Return the policies that do not contradict the settings, or those asked for."""
    named = _named(config)
    fitting = [name for name, own in POLICIES.items() if {**own, **named} == own]
    for name in asked_for or ():
        if name not in fitting:
            message = f"--config {config} contradicts --policy {name}"
            raise TraceError(message)
    return asked_for or fitting or ["torch"]  # the value is refused when it is read


def settings_of(policy: str, config: str) -> str:
    """Return the settings of a policy with those of the user."""
    named = _named(config)
    own = [f"{key}:{value}" for key, value in POLICIES[policy].items() if key not in named]
    return ",".join(filter(None, (*own, config)))


def policy_of(config: str) -> str | None:
    """Return the policy that the settings name or need; None if every policy can have them.

    >>> policy_of("policy:native"), policy_of("max_split_size_mb:64"), policy_of("")
    ('native', 'torch', None)
    """
    named = _named(config)
    is_torch = "policy" not in named and "expandable_segments" in named
    return "torch" if is_torch else named.get("policy")


def pairs_of(config: str) -> list[str]:
    """Return the settings one by one, as `Recording.settings` writes them.

    >>> pairs_of("policy:torch,roundup_power2_divisions:[256:1,>:4]")
    ['policy:torch', 'roundup_power2_divisions:[256:1,>:4]']
    """
    return [pair for pair in _COMMAS.split(config) if pair]


def _named(config: str) -> dict[str, str]:
    """Return those settings that a policy of this command has as well, or that are of one alone."""
    named = {} if _OF_TORCH.search(config) is None else {"policy": "torch"}
    if _OF_NATIVE.search(config):
        named["policy"] = "native"
    return named | dict(_OF_POLICIES.findall(config))


def policies_argument(text: str) -> list[str]:
    """Return the names of a list of policies."""
    names = text.split(",")
    for name in names:
        if name not in POLICIES or names.count(name) > 1:
            message = f"{name!r} is not one of {', '.join(POLICIES)}, each at most once"
            raise argparse.ArgumentTypeError(message)
    return names
