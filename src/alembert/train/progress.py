"""How far a run is, by steps, by tokens or by the wall clock; its losses and speed; and all that it needs to go on.

The speed is the share of the machine's measured matmul peak that a run reaches. Matrix products alone are counted: they
are nearly all the work, and what the peak is measured with. What the last block leaves out, because no head reads it,
is not counted. Padding, work that is done twice to save memory, and the halves of causal attention that a kernel may
skip do not change the count, so the share says what the run gets out of the machine, not how busy it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from alembert.data.feed import Cursor
from alembert.errors import BadFile, BadSetting
from alembert.nn.config import EncoderConfig, count_multiplications
from alembert.train.objective import MicroBatch

MAX_SKIPPED_STEPS: Final = 20
"""Steps in a row without finite gradients after which a run gives up."""
EVALUATION_SHARE: Final = 0.2
"""Share that an evaluation may have of the time from its beginning to that of the next, in a run by the clock."""
RESERVE_FACTOR: Final = 1.5
"""How much longer than the longest so far the last evaluation and its save may take."""


@dataclass(frozen=True, kw_only=True)
class RunTotals:
    """What a run has done so far."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Return the length of a run as a manifest has it."""
        return {"steps": self.step, "tokens": self.tokens, "seconds": round(self.seconds)}


def check_trained(done: RunTotals) -> None:
    """Refuse to hand over a model that hours too few have left as it was."""
    if not done.step:
        raise BadSetting(
            f"The time was over before the first step: {done.seconds:.0f} s went by with a look at "
            "held-out text. Give more hours, or lower `tokens` of [evaluation]; begin anew in another folder."
        )


def check_skipped(step: int, skipped: int) -> None:
    """Refuse to go on after too many steps in a row without finite gradients."""
    if skipped >= MAX_SKIPPED_STEPS:
        raise BadSetting(
            f"The gradients of {skipped} steps in a row, the last of them step {step}, were not finite, and the run "
            "has stopped; its last saved state is sound. Begin anew in another folder with a lower rate, a longer "
            'warmup, or precision = "float32".'
        )


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

    def progress(self, done: RunTotals) -> float:
        """Return the share of the run that is done, from 0 to 1."""
        if self.hours is not None:
            seconds = max(self.hours * 3600 - self.reserve, 1e-9)
            return min(1.0, done.seconds / seconds)
        if self.tokens is not None:
            return min(1.0, done.tokens / self.tokens)
        assert self.steps is not None
        return min(1.0, done.step / self.steps)

    def is_over(self, done: RunTotals) -> bool:
        if self.hours is None:
            return self.progress(done) >= 1
        mean = (done.seconds - self.overhead) / done.step if done.step else 0.0
        return done.seconds + mean > self.hours * 3600 - self.reserve

    def next_evaluation(self, done: RunTotals, spent: float, times: int) -> int:
        """Choose which of `times` evaluations over the run comes after one that has just taken so many seconds.

        By the clock, evaluations that would leave training less than its share of the time are skipped. Steps and
        tokens do not know how long anything takes, so that runs measured by them stay the same everywhere.
        """
        wait = spent * (1 / EVALUATION_SHARE - 1)
        return 1 + int(self.progress(replace(done, seconds=done.seconds + wait)) * times)

    def seconds_left(self, done: RunTotals, since: RunTotals | None = None) -> float:
        """Estimate the time to the end by the speed since a point of the run (none: since its beginning)."""
        begun = since or RunTotals()
        progress = self.progress(done)
        fresh = progress - self.progress(begun)
        return (done.seconds - begun.seconds) * (1 - progress) / fresh if fresh > 0 else float("inf")


@dataclass
class TrainerState:
    """Where a run is: all that a state must hold beside tensors."""

    done: RunTotals = field(default_factory=RunTotals)
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
    freed: RunTotals | None = None
    """When all parts of the model were freed; none: not yet, or all train from the beginning."""
    plateaued: bool = False
    """Whether they were freed because the first parts had learnt what they could."""
    first_losses: list[float] = field(default_factory=list)
    """Losses of the last steps in which the first parts were trained alone."""
    sums: dict[str, float] = field(default_factory=dict)
    """Losses, counts and work since the last line of the log."""

    @property
    def reserve(self) -> float:
        """Seconds that the last evaluation and its save may take."""
        return RESERVE_FACTOR * (self.longest_evaluation + self.longest_save)

    def as_facts(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> TrainerState:
        try:
            plain = {
                item.name: facts[item.name] for item in fields(cls) if item.name not in ("done", "cursor", "freed")
            }
            freed = facts["freed"] and RunTotals(**facts["freed"])
            return cls(done=RunTotals(**facts["done"]), cursor=Cursor(**facts["cursor"]), freed=freed, **plain)
        except (KeyError, TypeError):
            raise BadFile(
                "The unfinished run was begun by another version of alembert, whose saved state this one cannot read. "
                "Finish it with that version, or choose another folder."
            ) from None


@dataclass(frozen=True)
class StepTotals:
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

    def add(self, totals: StepTotals, seconds: float) -> None:
        """Count one more step."""
        losses = {f"loss {name}": value for name, value in totals.losses.items()}
        counts = {f"count {name}": value for name, value in totals.counts.items()}
        rest = {"tokens": totals.tokens, "seconds": seconds, "work": totals.work}
        for name, value in {**losses, **counts, **rest}.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def losses(self) -> dict[str, float]:
        """Return the mean loss by objective; what has a count alone is none."""
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


def count_targets(micros: Iterable[MicroBatch]) -> dict[str, float]:
    """Count the answers of micro-batches by objective."""
    return sum_by_name({name: target.count for name, target in micro.targets.items()} for micro in micros)


def sum_by_name(tallies: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Add up the values of the same name."""
    total: dict[str, float] = {}
    for tally in tallies:
        for name, value in tally.items():
            total[name] = total.get(name, 0.0) + value
    return total


def count_multiply_adds(
    config: EncoderConfig, lengths: Sequence[int], predictions: int, tokens_read: int | None = None
) -> int:
    """Count multiply-adds of a forward pass: documents of these lengths, masked-LM logits at `predictions` tokens.

    `tokens_read` is the number of tokens that the last block computes; none: all.

    >>> from alembert.nn.config import preset
    >>> count_multiply_adds(preset("base", vocab_size=30522), [512], 77) // 10**9
    50
    >>> count_multiply_adds(preset("base", vocab_size=30522), [512], 77, tokens_read=77) // 10**9
    47
    """
    narrow = config.embedding_width
    head = predictions * (config.hidden_size * narrow + narrow * config.vocab_size)
    return count_multiplications(config, lengths, tokens_read) + head


def count_training_flops(
    config: EncoderConfig, lengths: Sequence[int], predictions: int, tokens_read: int | None = None
) -> int:
    """Count floating-point operations of forward and backward pass.

    The backward pass has two products for each of the forward pass; a multiply-add is two operations.
    """
    return 6 * count_multiply_adds(config, lengths, predictions, tokens_read)


def count_micro_batch_flops(config: EncoderConfig, micro: MicroBatch) -> int:
    """Count floating-point operations of a micro-batch in training."""
    asked = [name for name in ("masked_lm", "causal", "prefix") if name in micro.targets]
    predictions = sum(micro.targets[name].count for name in asked)
    return count_training_flops(config, micro.batch.lengths, predictions, micro.tokens_read)
