"""Scores of the task `relate`: right relations against guesses, with and without the pairs that have none.

`micro_f1` and `macro_f1` are over the relations: a pair without one counts only where a relation was guessed for it.
With the negative class among the labels, and where there is no such class, every pair has one label, so that micro F1
over all labels is accuracy. A pair that the model was not asked about has no guess: it is missed, and nothing more. So is
a relation that could not be linked to two entities.
"""

# N answers, L labels
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alembert.data.windows import IntArray
from alembert.tasks.classify_decode import Answer
from alembert.tasks.classify_scores import over_examples
from alembert.tasks.example import Coverage
from alembert.tasks.metrics import classes
from alembert.tasks.metrics.tally import Tally, ratio
from alembert.tasks.relate_pairs import Candidate
from alembert.tasks.task import Measure, Scores

_UNASKED = ""
"""Stands for the guess where there is none."""


@dataclass(frozen=True)
class RelatePrediction:
    """The pairs of a text, and what each of them is."""

    pairs: tuple[Candidate, ...]
    answers: tuple[Answer, ...]
    """One a pair; without a label where the pair had no row and no label means that there is no relation."""
    coverage: Coverage


@dataclass(frozen=True)
class Compared:
    """Right relations and guesses, one after the other."""

    labels: tuple[str, ...]
    negative: str | None
    golds: tuple[str, ...]
    guesses: tuple[str, ...]
    counts_N: IntArray
    """Pairs of each example."""

    @classmethod
    def of(
        cls,
        labels: tuple[str, ...],
        negative: str | None,
        predictions: Sequence[RelatePrediction],
        unlinked: Sequence[Sequence[str]],
    ) -> Compared:
        """Compare; `unlinked` are the labels of each example's relations that are no pair."""
        known = [
            [(pair.label, answer.label or _UNASKED) for pair, answer in _together(each) if pair.label is not None]
            + [(label, negative or _UNASKED) for label in others]
            for each, others in zip(predictions, unlinked, strict=True)
        ]
        flat = [pair for pairs in known for pair in pairs]
        return cls(
            labels,
            negative,
            tuple(gold for gold, _ in flat),
            tuple(guess for _, guess in flat),
            np.array([len(pairs) for pairs in known], np.int64),
        )

    def always(self, label: str) -> Compared:
        """Give the guesses of a model that says this label to whatever it is asked."""
        return replace(self, guesses=tuple(guess and label for guess in self.guesses))

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels, and what stands for none."""
        return (*self.labels, _UNASKED)

    @property
    def relations(self) -> list[int]:
        """Places of the labels that are relations."""
        return [place for place, label in enumerate(self.labels) if label != self.negative]


def _together(prediction: RelatePrediction) -> zip[tuple[Candidate, Answer]]:
    return zip(prediction.pairs, prediction.answers, strict=True)


def scores_of(compared: Compared, main: str, coverage: Coverage) -> Scores:
    """Compute all measures, and those of each label; say so if they are no better than one label for all."""
    measures, tallies = _measures(compared)
    return Scores(
        main=main,
        measures=measures,
        by_label={label: _ratios(tally) for label, tally in tallies.items()},
        coverage=coverage,
        notes=tuple(_near_chance(compared, main, measures[main])),
    )


def _measures(compared: Compared) -> tuple[dict[str, float], dict[str, Tally]]:
    found = classes.scores(compared.golds, compared.guesses, compared.all_labels)
    tallies = {label: found.by_label[label] for label in compared.labels}
    relations = [tallies[compared.labels[place]] for place in compared.relations]
    measures = {"micro_f1": Tally.total(relations).f1, "macro_f1": _macro(relations)}
    if compared.negative is not None:
        everything = list(tallies.values())
        measures["micro_f1_with_negative"] = Tally.total(everything).f1
        measures["macro_f1_with_negative"] = _macro(everything)
    return {**measures, "accuracy": found.accuracy}, tallies


def _near_chance(compared: Compared, main: str, value: float) -> Iterator[str]:
    """Say that a model does no better than one that gives every pair the same label; nothing if it does."""
    if not compared.golds:
        return
    best, label = max((_measures(compared.always(label))[0][main], label) for label in compared.labels)
    if value <= best:
        yield (
            f"Near chance: always saying {label} gives {main} {best:.4f}, and this model has {value:.4f}, so the score "
            "does not show that it has learnt anything."
        )


def _macro(tallies: Sequence[Tally]) -> float:
    """Average the F1 of the labels that occur, as scikit-learn does."""
    return ratio(sum(tally.f1 for tally in tallies if tally.occurs), sum(tally.occurs for tally in tallies))


def _ratios(tally: Tally) -> Mapping[str, float]:
    return {"precision": tally.precision, "recall": tally.recall, "f1": tally.f1, "support": tally.support}


def measure_of(compared: Compared, main: str) -> Measure:
    """Prepare the main measure for samples of examples."""
    relations = compared.relations

    def f1(matrix: IntArray) -> float:
        hits, guessed, right = np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
        tallies = [
            Tally(tp=tp, fp=guess - tp, fn=gold - tp)
            for tp, guess, gold in np.stack((hits, guessed, right), axis=1)[relations].tolist()
        ]
        return Tally.total(tallies).f1 if main == "micro_f1" else _macro(tallies)

    of = classes.accuracy if main == "accuracy" else f1
    measure = classes.confusion_measure(compared.golds, compared.guesses, compared.all_labels, of)
    return over_examples(measure, compared.counts_N)
