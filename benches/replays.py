"""Writes the table of replays in docs/allocator.md, or says that it is out of date.

Usage: python benches/replays.py RECORDS DOCUMENT [--stale], with the records that `replay --json`
wrote. With `--stale` nothing is written, and a table that differs is an error.
"""

import json
import math
import sys
from pathlib import Path

_BEGIN, _END = "<!-- the replays -->\n", "<!-- the end of the replays -->\n"
_POLICIES = ("native", "torch", "torch+expandable")
# The traces that the goals are about, which others can have too; they are first in the table.
_PUBLIC = ("resnet50", "pangu_2.6B", "G_1", "df_index_resolver", "bcrafton", "wedsonlin")


def main(records: Path, document: Path, *, is_check: bool) -> int:
    """Put the table between its marks; return the exit status."""
    before, _, rest = document.read_text().partition(_BEGIN)
    _, mark, after = rest.partition(_END)
    if not mark:
        sys.stderr.write(f"{document}: {_BEGIN.strip()} and {_END.strip()} mark the table\n")
        return 2
    text = f"{before}{_BEGIN}\n{_table(_ratios(records))}\n{_END}{after}"
    if not is_check:
        document.write_text(text)
    elif text != document.read_text():
        sys.stderr.write(f"{document}: the table of replays is not what they came to\n")
        return 1
    return 0


def _ratios(records: Path) -> dict[str, list[float]]:
    """Return what each trace came to under each policy, the public traces first."""
    ratios: dict[str, dict[str, float]] = {}
    for record in json.loads(records.read_text()):
        ratios.setdefault(record["trace"], {})[record["policy"]] = record["ratio"]
    names = sorted(ratios, key=lambda name: (_place(name), name))
    return {name: [ratios[name][policy] for policy in _POLICIES] for name in names}


def _place(trace: str) -> int:
    return next((i for i, name in enumerate(_PUBLIC) if trace.startswith(name)), len(_PUBLIC))


def _table(ratios: dict[str, list[float]]) -> str:
    public = [row for name, row in ratios.items() if _place(name) < len(_PUBLIC)]
    means = [math.prod(column) ** (1 / len(public)) for column in zip(*public, strict=True)]
    rows = [(name, *(f"{ratio:.4f}" for ratio in row)) for name, row in ratios.items()]
    best, *others = (f"{mean:.4f}" for mean in means)
    rows.append((f"**the {len(public)} public ones, geometric mean**", f"**{best}**", *others))
    heads = (f"| trace | {' | '.join(_POLICIES)} |", "|---|---:|---:|---:|")
    return "\n".join((*heads, *(f"| {' | '.join(row)} |" for row in rows), ""))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), is_check=sys.argv[3:] == ["--stale"]))
