"""Goal: settings of the allocator mean here what they mean in PyTorch.

Method: generated texts for both parsers. Those of the grammar are accepted or refused by both, with
the same divisions. All others are refused here: PyTorch reads some of them as another text than
their writer meant (docs/settings.md). A process of its own changes the settings.
"""

import ctypes
import random
import re
import subprocess
import sys
from pathlib import Path

import torch
from torch._C import _accelerator_setAllocatorSettings as set_settings

COUNT = 10_000
INTERVALS = 16
MIB = 1 << 20
# Of `max_split_size_mb`: sizes whose bytes are no word.
MOST_MIB = (1 << 44) - 1

NUMBERS = ("0", "1", "2", "3", "4", "8", "16", "19", "20", "21", "64", "256", "65536", "131072")
WORDS = ("abc", ">", "True", "False", "true", "native", "nan", "inf")
MISTAKES = ("20abc", "20.7", "-1", "+20", "2 0", "0.5x", "True:2", "[64,8]", "[64:8]]", "[64:8:2]")
SIGNS = ",:[]> .0123456789-+abT"
KEYS = ("max_split_size_mb", "max_non_split_rounding_mb", "garbage_collection_threshold")
KEYS += ("roundup_power2_divisions", "expandable_segments")

_BLANKS = r"[ \t]*"
_NUMBER = rf"{_BLANKS}[0-9]+{_BLANKS}"
_WORD = rf"{_BLANKS}[^\s,:\[\]0-9.+-][^\s,:\[\]]*{_BLANKS}"
_ITEM = rf"(?:{_NUMBER}|{_BLANKS}>{_BLANKS}):{_NUMBER}"
_LIST = rf"{_BLANKS}\[(?:{_ITEM}(?:,{_ITEM})*,?|{_BLANKS}){_BLANKS}\]{_BLANKS}"
_DECIMAL = rf"{_BLANKS}(?:[0-9]+\.?[0-9]*|\.[0-9]+){_BLANKS}"
_VALUES = {
    "garbage_collection_threshold": rf"{_DECIMAL}|{_WORD}",
    "roundup_power2_divisions": rf"{_NUMBER}|{_WORD}|{_LIST}",
    "expandable_segments": rf"{_NUMBER}|{_WORD}",
}
_PAIR = "|".join(
    rf"{_BLANKS}{key}{_BLANKS}:(?:{_VALUES.get(key, rf'{_NUMBER}|{_WORD}')})" for key in KEYS
)
GRAMMAR = re.compile(rf"(?:(?:{_PAIR})(?:,(?:{_PAIR}))*,?)?[ \t]*")


def _value(numbers: random.Random, key: str) -> str:
    if numbers.random() < 0.1:
        return numbers.choice(MISTAKES)
    if numbers.random() < 0.1:
        return numbers.choice(WORDS)
    if key == "expandable_segments":
        return numbers.choice(("True", "False"))
    if key == "garbage_collection_threshold":
        return numbers.choice(("0", "1", "0.5", ".5", "0.999", "1.0", "0.0", "00.25"))
    if key == "roundup_power2_divisions" and numbers.random() < 0.8:
        count = numbers.randint(0, 4)
        items = ",".join(
            f"{numbers.choice((*NUMBERS, '>'))}:{numbers.choice(NUMBERS)}" for _ in range(count)
        )
        return f"[{items}{',' if count and numbers.random() < 0.1 else ''}]"
    return numbers.choice(NUMBERS)


def generated(numbers: random.Random) -> str:
    """Return a text of some keys, of which a third has changed signs."""
    keys = (numbers.choice(KEYS) for _ in range(numbers.randint(0, 3)))
    blank = numbers.choice(("", "", " "))
    text = f",{blank}".join(f"{key}{blank}:{blank}{_value(numbers, key)}" for key in keys)
    if numbers.random() < 0.3:
        for _ in range(numbers.randint(1, 2)):
            place = numbers.randint(0, len(text))
            end = place + numbers.randint(0, 1)
            text = text[:place] + numbers.choice(("", *SIGNS)) + text[end:]
    return text


def _divisions_of_torch() -> list[int]:
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    name = "roundup_power2_divisions"
    function = library[f"_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig{len(name)}{name}Em"]
    function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    return [function(MIB << interval) for interval in range(INTERVALS)]


def _by_torch(text: str) -> list[int] | None:
    """Return the divisions after a text; None for one that PyTorch refuses."""
    set_settings("")
    try:
        set_settings(text)
    except (RuntimeError, ValueError, IndexError):
        return None
    return _divisions_of_torch()


def _by_us(text: str) -> list[int] | None:
    import accelrt  # noqa: PLC0415 - of the process that compares

    accelrt.accelerator.set_allocator_settings("policy:torch")
    try:
        accelrt.accelerator.set_allocator_settings(f"policy:torch,{text}")
    except ValueError:
        return None
    found = accelrt.accelerator.take_memory_snapshot()["allocator_settings"]
    return list(found["roundup_power2_divisions"].values())


def _compare(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311  texts that are to repeat
    accepted = refused = 0
    for _ in range(COUNT):
        text = generated(numbers)
        ours, theirs = _by_us(text), _by_torch(text)
        is_of_grammar = GRAMMAR.fullmatch(text) is not None
        assert ours == (theirs if is_of_grammar else None), (seed, text, ours, theirs)
        accepted += ours is not None
        refused += is_of_grammar and ours is None
    assert min(accepted, refused) > COUNT // 20, (accepted, refused)


def test_generated_settings_mean_the_same(seed: int) -> None:
    command = [sys.executable, str(Path(__file__)), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    _compare(int(sys.argv[1]))
