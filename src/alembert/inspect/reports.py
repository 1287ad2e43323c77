"""Evaluations and comparisons as tables and sentences, which commands print and pages show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from alembert.data.windows import REFERENCE_TOKENS
from alembert.infer.evaluate import Evaluation
from alembert.inspect.comparison import ComparisonReport, ModelSummary
from alembert.inspect.tables import Cell, Table
from alembert.tasks.example import Coverage
from alembert.tasks.files import NO_HASHES_REASON
from alembert.tasks.metrics import Interval

_COUNTS = ("support", "guessed")
_SCORE_COUNTS: Final = {"recall": "support", "precision": "guessed"}
_MIN_DOCUMENTS: Final = 10
"""Documents below which an interval comes with a warning: percentiles of so few draws are too narrow."""


def evaluation_headline(evaluation: Evaluation) -> str:
    """Return the main score with its interval."""
    return (
        f"{evaluation.scores.main} {evaluation.scores.value:.4f}, 95 % interval {format_interval(evaluation.interval)} "
        f"({evaluation.rounds:,} samples of {evaluation.examples:,} examples)"
    )


def evaluation_tables(evaluation: Evaluation) -> Iterator[Table]:
    """Yield all measures, those of each label, and what is left when unsure answers are withheld."""
    mine = evaluation.scores.measures
    yield Table(name="measures", title="Scores", header=("measure", "value"), rows=tuple(mine.items()))
    if evaluation.scores.by_label:
        yield _by_label(evaluation.scores.by_label)
    if evaluation.against:
        theirs = evaluation.against.scores.measures
        rows = tuple((name, value, theirs[name], value - theirs[name]) for name, value in mine.items())
        header = ("measure", "this", "other", "difference")
        yield Table(name="against", title=f"Against {evaluation.against.model}", header=header, rows=rows)
    if evaluation.trust:
        points = [(share, evaluation.trust.find_operating_point(share)) for share in (0.8, 0.9, 0.95, 0.98)]
        kept = tuple((f"{share:.0%}", at.threshold, at.coverage, at.accuracy) for share, at in points if at)
        if kept:
            header = ("wanted", "threshold", "share kept", "right among them")
            title = f"If {evaluation.trust.what} below a threshold are withheld"
            yield Table(name="abstaining", title=title, header=header, rows=kept)


def _by_label(by_label: Mapping[str, Mapping[str, float]]) -> Table:
    columns = tuple(next(iter(by_label.values())))
    rows: list[tuple[Cell, ...]] = [
        (label, *(int(scores[name]) if name in _COUNTS else scores[name] for name in columns))
        for label, scores in by_label.items()
    ]
    shares = {name: of for name, of in _SCORE_COUNTS.items() if name in columns and of in columns}
    return Table(name="by_label", title="By label", header=("label", *columns), rows=tuple(rows), shares=shares)


def evaluation_sentences(evaluation: Evaluation) -> Iterator[str]:
    """Yield what stands behind the scores."""
    yield from warn_few_documents(evaluation.documents)
    yield from evaluation.scores.notes
    yield coverage_sentence(evaluation.scores.coverage)
    if evaluation.spread:
        scores = ", ".join(f"{seed.name}: {seed.value:.4f}" for seed in evaluation.spread.seeds)
        yield (
            f"Over {len(evaluation.spread.seeds)} seeds {evaluation.scores.main} is {evaluation.spread.mean:.4f} on average, standard "
            f"deviation {evaluation.spread.deviation:.4f} ({scores})."
        )
    yield _overlap_sentence(evaluation)
    if evaluation.trust:
        yield (
            f"Confidence differs from the share of right {evaluation.trust.what} by {evaluation.trust.ece:.4f} on average "
            f"(expected calibration error, {evaluation.trust.answers:,} {evaluation.trust.what})."
        )
    if evaluation.against:
        yield _baseline_sentence(evaluation)
    if lost := sum(item.kind != "annotation" for item in evaluation.set_aside):
        yield f"{lost:,} items of the files were set aside and are not in the scores."
    if unused := len(evaluation.set_aside) - lost:
        yield f"{unused:,} annotations of examples that are scored could not be used; the notes say why."


def coverage_sentence(coverage: Coverage) -> str:
    """Return a sentence on what became of the text and of the right answers."""
    parts = [
        f"{coverage.characters:,} characters read as {coverage.tokens:,} tokens in {coverage.windows:,} windows",
        f"{coverage.split_examples:,} of {coverage.examples:,} examples needed several windows",
        f"{coverage.unknown:,} unknown tokens",
        f"{coverage.cut_characters:,} characters cut",
    ]
    lost = f", of which {coverage.unreachable:,} cannot be matched and count as missed" * bool(coverage.unreachable)
    return f"Coverage: {'; '.join(parts)}; {coverage.gold:,} right answers{lost}."


def warn_overlap(evaluation: Evaluation) -> str | None:
    """Warn if the model has seen some of the examples in training."""
    if not evaluation.seen or not evaluation.seen.count:
        return None
    left = evaluation.seen.value_without
    without = "there is no other" if left is None else f"without them {evaluation.scores.main} is {left:.4f}"
    return f"{evaluation.seen.count:,} of the {evaluation.examples:,} examples have a text that the model was trained on; {without}."


def warn_few_documents(documents: int) -> Iterator[str]:
    """Warn of intervals from samples of so few documents that they say little about others."""
    if documents == 1:
        yield "All examples are from one document, so the interval says nothing about other documents."
    elif documents < _MIN_DOCUMENTS:
        yield (
            f"The interval is from samples of {documents} documents and says little about others: with fewer than {_MIN_DOCUMENTS} "
            "it is often too narrow."
        )


def _overlap_sentence(evaluation: Evaluation) -> str:
    if evaluation.seen is None:
        return f"Overlap with the training data is not known: {NO_HASHES_REASON}."
    return warn_overlap(evaluation) or "No example has a text that the model was trained on."


def _baseline_sentence(evaluation: Evaluation) -> str:
    other = evaluation.against
    assert other is not None
    return (
        f"Against {other.model}: {evaluation.scores.main} differs by {other.difference:+.4f}, 95 % interval "
        f"{format_interval(other.difference_interval)}, p = {other.p_value:.3g} (paired bootstrap on the same examples)."
    )


def format_interval(interval: Interval) -> str:
    """Write an interval."""
    return f"{interval.low:.4f} to {interval.high:.4f}"


def comparison_table(comparison: ComparisonReport) -> Table:
    """Put the models side by side."""
    columns = [dict(_facts(comparison, model)) for model in comparison.models]
    rows = tuple((what, *(column[what] for column in columns)) for what in columns[0])
    header = ("", *(model.name for model in comparison.models))
    return Table(name="comparison", title="Score, size and speed", header=header, rows=rows)


def model_table(comparison: ComparisonReport) -> Table:
    """Put the models one below the other, with what matters most of each."""
    speeds = () if comparison.machine is None else ("texts a second", "tokens a second", "speed-up")
    header = ("model", comparison.measure, "95 % interval", "layers x width", "weights", *speeds)
    rows = tuple((*_brief(model), *_rates(comparison, model)) for model in comparison.models)
    return Table(name="models", title="Score, size and speed", header=header, rows=rows)


def _brief(model: ModelSummary) -> tuple[Cell, ...]:
    size = model.size
    shape, weights = f"{size.layers} x {size.width}", f"{size.bytes / 1e6:,.1f} MB"
    return model.name, model.score, format_interval(model.interval), shape, weights


def _rates(comparison: ComparisonReport, model: ModelSummary) -> tuple[Cell, ...]:
    speed, times = model.speed, comparison.speed_up(model)
    if speed is None or times is None:
        return ()
    return round(speed.texts_per_second), round(speed.tokens_per_second), f"{times:.2f}x"


def comparison_lines(comparison: ComparisonReport) -> list[str]:
    """Write the comparison for a terminal."""
    table = comparison_table(comparison)
    return [table.title, *table.lines(), "", *comparison_sentences(comparison)]


def comparison_sentences(comparison: ComparisonReport, *, brief: bool = False) -> Iterator[str]:
    """Yield what the numbers of `comparison_table` mean, or those of `model_table` (`brief`)."""
    compared = "speed-up is" if brief else "difference, share and factors are"
    paired = "" if brief else ", p by paired bootstrap"
    yield (
        f"Score: {comparison.measure} on {comparison.examples:,} examples, 95 % interval from {comparison.rounds:,} samples; {compared} "
        f"against {comparison.reference.name}{paired}."
    )
    yield from warn_few_documents(comparison.documents)
    if not brief:
        yield f"Multiplications: of the encoder, for a token of a text of {REFERENCE_TOKENS} tokens."
    if comparison.machine is None:
        yield "Speed was not measured."
    else:
        yield _speed_sentence(comparison)
    if comparison.set_aside:
        yield f"{comparison.set_aside:,} items of the files were set aside and are not in the scores."


def _speed_sentence(comparison: ComparisonReport) -> str:
    measured = [model.speed for model in comparison.models if model.speed is not None]
    rounds, texts = len(measured[0].seconds), measured[0].texts
    spread = max(speed.relative_range for speed in measured)
    return (
        f"Speed: measured on this machine ({comparison.machine}), from text to answer, {texts:,} of the examples, the models in "
        f"turn, middle of {rounds} rounds, which differ by up to {spread:.0%}."
    )


def _facts(comparison: ComparisonReport, model: ModelSummary) -> Iterator[tuple[str, str]]:
    yield comparison.measure, f"{model.score:.4f}"
    yield "95 % interval", format_interval(model.interval)
    if len(comparison.models) > 1:
        kept = comparison.score_ratio(model)
        yield "share kept", "-" if kept is None else f"{kept:.1%}"
        yield "difference", _difference(model)
    yield "parameters", format_count(model.size.parameters)
    yield "weights", f"{model.size.bytes / 1e6:,.1f} MB"
    yield "layers x width", f"{model.size.layers} x {model.size.width}"
    yield "multiplications", _multiplications(comparison, model)
    if model.speed is not None:
        yield "texts a second", _format_rate(model.speed.texts_per_second)
        yield "tokens a second", _format_rate(model.speed.tokens_per_second)
    speed_up = comparison.speed_up(model)
    if speed_up is not None and len(comparison.models) > 1:
        yield "speed-up", f"{speed_up:.2f}x"


def _difference(model: ModelSummary) -> str:
    if model.against is None:
        return "-"
    return f"{model.against.difference:+.4f} (p = {model.against.p_value:.2g})"


def _multiplications(comparison: ComparisonReport, model: ModelSummary) -> str:
    times, count = comparison.multiplication_ratio(model), format_count(model.size.multiplications)
    if times == 1:
        return count
    return f"{count} ({times:.1f}x fewer)" if times > 1 else f"{count} ({1 / times:.1f}x more)"


def _format_rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_count(number: int) -> str:
    """Write a large count with three digits.

    >>> format_count(950), format_count(14_350_248), format_count(999_999), format_count(110_000_000)
    ('950', '14.4 M', '1.00 M', '110 M')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # What would be written as 1,000 of a unit is one of the next.
        if number >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + f" {unit}"
    return str(number)
