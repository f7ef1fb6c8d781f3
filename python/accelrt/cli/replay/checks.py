"""The agreement of replays with their recordings."""

from dataclasses import dataclass, field

from accelrt import _core


@dataclass
class Tally:
    """The agreements of some traces, and their sum."""

    lines: list[str] = field(default_factory=list)
    addresses: list[int] = field(default_factory=lambda: [0, 0])
    layouts: list[int] = field(default_factory=lambda: [0, 0])
    agrees: bool = True
    """True while everything does."""

    def add(self, name: str, agreement: _core.Agreement) -> None:
        """Count one trace: its matches, and their possible number."""
        pairs = (self.addresses, agreement.addresses), (self.layouts, agreement.layouts)
        for total, counts in pairs:
            total[:] = [so_far + count for so_far, count in zip(total, counts, strict=True)]
        self.lines.append(f"{name}: {_counts(agreement.addresses, agreement.layouts)}")
        if agreement.first_difference is not None:
            self.agrees = False
            self.lines.append(f"  first difference: {agreement.first_difference}")

    def add_failure(self, name: str, reason: str) -> None:
        """Add a trace that could not be replayed, with the reason."""
        self.agrees = False
        self.lines.append(f"{name}: {reason}")

    def text(self) -> str:
        """Return a line for each trace, and one for all."""
        total = _counts(tuple(self.addresses), tuple(self.layouts))
        return "".join(f"{line}\n" for line in (*self.lines, total))


def _counts(addresses: tuple[int, ...], layouts: tuple[int, ...]) -> str:
    return "addresses {}/{} layouts {}/{}".format(*addresses, *layouts)
