"""What the steps since the last line of the log add up to: losses, counts, tokens, time and work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from alembert.train.lesson import Micro


@dataclass(frozen=True)
class Found:
    """What one step found, summed over all micro-batches and processes."""

    losses: Mapping[str, float]
    """Sum of the loss by objective."""
    counts: Mapping[str, float]
    """Answers by objective."""
    tokens: int
    work: float
    """Floating-point operations of the matrix products."""

    @property
    def loss(self) -> float:
        """The sum of the objectives' means."""
        return sum(loss / self.counts[name] for name, loss in self.losses.items() if self.counts.get(name))


@dataclass(frozen=True)
class Meter:
    """A view of sums that are part of a run's position, so that a continued run's next line is the same."""

    sums: dict[str, float]
    peak: float | None
    """Matrix products a second that all processes together could do, in GFLOP; none: not measured."""

    def add(self, found: Found, seconds: float) -> None:
        """Count one more step."""
        losses = {f"loss {name}": value for name, value in found.losses.items()}
        counts = {f"count {name}": value for name, value in found.counts.items()}
        rest = {"tokens": found.tokens, "seconds": seconds, "work": found.work}
        for name, value in {**losses, **counts, **rest}.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def losses(self) -> dict[str, float]:
        """Give the mean loss by objective; what has a count alone is none."""
        counts = {name.removeprefix("count "): n for name, n in self.sums.items() if name.startswith("count ")}
        return {
            name: self.sums[f"loss {name}"] / count
            for name, count in counts.items()
            if count and f"loss {name}" in self.sums
        }

    @property
    def tokens_per_second(self) -> float:
        return self._per_second("tokens")

    @property
    def peak_share(self) -> float | None:
        """Share of the peak that the matrix products reached."""
        return None if self.peak is None else self._per_second("work") / 1e9 / self.peak

    def _per_second(self, name: str) -> float:
        return self.sums[name] / max(self.sums["seconds"], 1e-9)  # a coarse clock may not have moved


def counts_of(micros: Iterable[Micro]) -> dict[str, float]:
    """Count the answers of micro-batches by objective."""
    return sums_by_name({name: each.count for name, each in micro.targets.items()} for micro in micros)


def sums_by_name(tallies: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Add up the values of the same name."""
    total: dict[str, float] = {}
    for tally in tallies:
        for name, value in tally.items():
            total[name] = total.get(name, 0.0) + value
    return total
