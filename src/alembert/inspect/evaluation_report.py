"""An evaluation for people: tables and sentences, which the command prints and the page shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from alembert.infer.evaluate import Evaluation
from alembert.inspect.tables import Cell, Table
from alembert.tasks.example import Coverage
from alembert.tasks.files import NO_HASHES_REASON
from alembert.tasks.metrics.bootstrap import Interval

_COUNTS = ("support", "guessed")
_FEW: Final = 10
"""Documents below which an interval comes with a warning: percentiles of so few draws are too narrow."""


def headline(found: Evaluation) -> str:
    """Give the main score with its interval."""
    return (
        f"{found.scores.main} {found.scores.value:.4f}, 95 % interval {between(found.interval)} "
        f"({found.rounds:,} samples of {found.examples:,} examples)"
    )


def tables(found: Evaluation) -> Iterator[Table]:
    """Give all measures, those of each label, and what is left when unsure answers are withheld."""
    mine = found.scores.measures
    yield Table(name="measures", title="Scores", header=("measure", "value"), rows=tuple(mine.items()))
    if found.scores.by_label:
        yield _by_label(found.scores.by_label)
    if found.against:
        theirs = found.against.scores.measures
        rows = tuple((name, value, theirs[name], value - theirs[name]) for name, value in mine.items())
        header = ("measure", "this", "other", "difference")
        yield Table(name="against", title=f"Against {found.against.model}", header=header, rows=rows)
    if found.trust:
        wanted = (0.8, 0.9, 0.95, 0.98)
        points = [(share, found.trust.kept_at(share)) for share in wanted]
        kept = tuple((f"{share:.0%}", at.threshold, at.coverage, at.accuracy) for share, at in points if at)
        if kept:
            header = ("wanted", "threshold", "share kept", "right among them")
            title = f"If {found.trust.what} below a threshold are withheld"
            yield Table(name="abstaining", title=title, header=header, rows=kept)


def _by_label(by_label: Mapping[str, Mapping[str, float]]) -> Table:
    columns = tuple(next(iter(by_label.values())))
    rows: list[tuple[Cell, ...]] = [
        (label, *(int(scores[name]) if name in _COUNTS else scores[name] for name in columns))
        for label, scores in by_label.items()
    ]
    return Table(name="by_label", title="By label", header=("label", *columns), rows=tuple(rows))


def sentences(found: Evaluation) -> Iterator[str]:
    """Say what stands behind the scores."""
    yield from few_documents(found.documents)
    yield from found.scores.notes
    yield coverage_sentence(found.scores.coverage)
    if found.spread:
        each = ", ".join(f"{seed.name}: {seed.value:.4f}" for seed in found.spread.seeds)
        yield (
            f"Over {len(found.spread.seeds)} seeds {found.scores.main} is {found.spread.mean:.4f} on average, standard "
            f"deviation {found.spread.deviation:.4f} ({each})."
        )
    yield _seen_sentence(found)
    if found.trust:
        yield (
            f"Confidence differs from the share of right {found.trust.what} by {found.trust.ece:.4f} on average "
            f"(expected calibration error, {found.trust.answers:,} {found.trust.what})."
        )
    if found.against:
        yield _against_sentence(found)
    if lost := sum(item.kind != "annotation" for item in found.set_aside):
        yield f"{lost:,} items of the files were set aside and are not in the scores."
    if unused := len(found.set_aside) - lost:
        yield f"{unused:,} annotations of examples that are scored could not be used; the notes say why."


def coverage_sentence(coverage: Coverage) -> str:
    """Say what became of the text and of the right answers."""
    parts = [
        f"{coverage.characters:,} characters read as {coverage.tokens:,} tokens in {coverage.windows:,} windows",
        f"{coverage.split_examples:,} of {coverage.examples:,} examples needed several windows",
        f"{coverage.unknown:,} unknown tokens",
        f"{coverage.cut_characters:,} characters cut",
    ]
    lost = f", of which {coverage.unreachable:,} cannot be matched and count as missed" * bool(coverage.unreachable)
    return f"Coverage: {'; '.join(parts)}; {coverage.gold:,} right answers{lost}."


def overlap_warning(found: Evaluation) -> str | None:
    """Warn if the model has seen some of the examples in training."""
    if not found.seen or not found.seen.count:
        return None
    left = found.seen.value_without
    without = "there is no other" if left is None else f"without them {found.scores.main} is {left:.4f}"
    return (
        f"{found.seen.count:,} of the {found.examples:,} examples have a text that the model was trained on; {without}."
    )


def few_documents(documents: int) -> Iterator[str]:
    """Warn of intervals from samples of so few documents that they say little about others."""
    if documents == 1:
        yield "All examples are from one document, so the interval says nothing about other documents."
    elif documents < _FEW:
        yield (
            f"The interval is from samples of {documents} documents and says little about others: with fewer than {_FEW} "
            "it is often too narrow."
        )


def _seen_sentence(found: Evaluation) -> str:
    if found.seen is None:
        return f"Overlap with the training data is not known: {NO_HASHES_REASON}."
    return overlap_warning(found) or "No example has a text that the model was trained on."


def _against_sentence(found: Evaluation) -> str:
    other = found.against
    assert other is not None
    return (
        f"Against {other.model}: {found.scores.main} differs by {other.difference:+.4f}, 95 % interval "
        f"{between(other.difference_interval)}, p = {other.p_value:.3g} (paired bootstrap on the same examples)."
    )


def between(interval: Interval) -> str:
    """Write an interval."""
    return f"{interval.low:.4f} to {interval.high:.4f}"
