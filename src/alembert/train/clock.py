"""How far a run is: by steps, by tokens or by the wall clock; and all that must be known to go on from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from alembert.data.feed import Cursor
from alembert.errors import BadFile

EVALUATION_SHARE: Final = 0.2
"""Share that an evaluation may have of the time from its beginning to that of the next, in a run by the clock."""
SAFETY: Final = 1.5
"""How much longer than the longest so far the last evaluation and its save may take."""


@dataclass(frozen=True, kw_only=True)
class Mileage:
    """What a run has done so far."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Give the length of a run as a manifest has it."""
        return {"steps": self.step, "tokens": self.tokens, "seconds": round(self.seconds)}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The length of a run in one of three measures."""

    hours: float | None = None
    tokens: int | None = None
    steps: int | None = None
    reserve: float = 0.0
    """Seconds at the end of the hours that are kept for the last evaluation and for writing."""
    overhead: float = 0.0
    """Seconds of the run so far in which no step was done: evaluations and saves."""

    def progress(self, done: Mileage) -> float:
        """Give the share of the run that is done, from 0 to 1."""
        if self.hours is not None:
            seconds = max(self.hours * 3600 - self.reserve, 1e-9)
            return min(1.0, done.seconds / seconds)
        if self.tokens is not None:
            return min(1.0, done.tokens / self.tokens)
        assert self.steps is not None
        return min(1.0, done.step / self.steps)

    def is_over(self, done: Mileage) -> bool:
        """Say whether no further step fits."""
        if self.hours is None:
            return self.progress(done) >= 1
        mean = (done.seconds - self.overhead) / done.step if done.step else 0.0
        return done.seconds + mean > self.hours * 3600 - self.reserve

    def next_evaluation(self, done: Mileage, spent: float, times: int) -> int:
        """Say which of `times` evaluations over the run comes after one that has just taken so many seconds.

        By the clock, evaluations that would leave training less than its share of the time are skipped. Steps and
        tokens do not know how long anything takes, so that runs measured by them stay the same everywhere.
        """
        wait = spent * (1 / EVALUATION_SHARE - 1)
        return 1 + int(self.progress(replace(done, seconds=done.seconds + wait)) * times)

    def seconds_left(self, done: Mileage, since: Mileage | None = None) -> float:
        """Estimate the time to the end by the speed since a point of the run (none: since its beginning)."""
        begun = since or Mileage()
        progress = self.progress(done)
        fresh = progress - self.progress(begun)
        return (done.seconds - begun.seconds) * (1 - progress) / fresh if fresh > 0 else float("inf")


@dataclass
class Position:
    """Where a run is: all that a state must hold beside tensors."""

    done: Mileage = field(default_factory=Mileage)
    cursor: Cursor = field(default_factory=Cursor)
    evaluations: int = 0
    """Number of the next evaluation among those of the whole run."""
    judged: int | None = None
    """The last step whose verdict is in the log."""
    best: float | None = None
    since_best: int = 0
    """Looks at held-out data that found nothing better."""
    longest_evaluation: float = 0.0
    longest_save: float = 0.0
    overhead: float = 0.0
    """Seconds that went into evaluations and saves."""
    skipped: int = 0
    """Steps in a row that changed nothing, because their gradients were not finite."""
    sums: dict[str, float] = field(default_factory=dict)
    """Losses, counts and work since the last line of the log."""

    @property
    def reserve(self) -> float:
        """Seconds that the last evaluation and its save may take."""
        return SAFETY * (self.longest_evaluation + self.longest_save)

    def as_facts(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Position:
        try:
            plain = {item.name: facts[item.name] for item in fields(cls) if item.name not in ("done", "cursor")}
            return cls(done=Mileage(**facts["done"]), cursor=Cursor(**facts["cursor"]), **plain)
        except (KeyError, TypeError):
            raise BadFile(
                "The unfinished run was begun by another version of alembert, whose saved state this one cannot read. "
                "Finish it with that version, or choose another folder."
            ) from None
