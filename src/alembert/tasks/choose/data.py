"""The data of the task `choose`: settings, examples, predictions, and scores beside what guessing would give.

Examples are read from files, or made of texts with tabs or JSON objects. When they are rewritten, passage and question
change; the choices are the answers, and stay as they are.

Of guessing two numbers are known: what it would score, and how often it would be as right as a model was. Examples may
have different numbers of choices, so the number of lucky guesses is a sum of binomials, one for each number of choices;
its distribution is computed exactly.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from alembert.corpus.examples.choices import ChoiceQuestion, parse_choice_question, read_choice_questions
from alembert.corpus.readers.contract import Item, ReadOptions
from alembert.data.order import stable_hash
from alembert.errors import BadInput, BadSetting
from alembert.tasks.example import Coverage, Example, Rewriter, TaskPrediction
from alembert.tasks.metrics import Floats, ratio
from alembert.tasks.metrics.calibration import MAX_TEMPERATURE, fit_temperature, softmax
from alembert.tasks.settings import check_choices, check_windows
from alembert.tasks.task import SampleMetric, TaskScores
from alembert.text.sentences import Span


@dataclass(frozen=True, kw_only=True)
class ChooseSettings:
    """Settings of multiple choice."""

    max_length: int = 256
    """Maximum tokens of a window, special tokens included; longer passages need several windows."""
    overlap: int = 32
    """Tokens that neighbouring windows share."""
    pool: Literal["max", "mean"] = "max"
    """Pooling over the windows of a choice."""
    train_windows: int | None = None
    """Maximum windows per choice in training, evenly spaced; truncated text is reported. none: all."""

    def __post_init__(self) -> None:
        check_choices(self, {"pool": ("max", "mean")})
        check_windows(self.max_length, self.overlap)
        if self.train_windows is not None and self.train_windows < 1:
            raise BadSetting(
                f"`train_windows` of the task is {self.train_windows}; expected 1 or more, or none for all."
            )


@dataclass(frozen=True, kw_only=True)
class ChooseExample(Example):
    """A passage, if there is one, a question and its choices, in this order in `texts`."""

    has_passage: bool = False
    gold: int | None = None
    """Which choice is right, from 0; none: not known."""

    @property
    def passage(self) -> str | None:
        return self.texts[0] if self.has_passage else None

    @property
    def question(self) -> str:
        return self.texts[self.has_passage]

    @property
    def choices(self) -> tuple[str, ...]:
        return self.texts[1 + self.has_passage :]

    @property
    def group_id(self) -> int | str:
        """Questions about one passage stay together."""
        if self.passage is None:
            return self.key
        return stable_hash("passage", " ".join(self.passage.split()).casefold())

    @property
    def sides(self) -> tuple[str, tuple[str, ...]]:
        """What is read first, the same for all choices, and what is read after it, one text for each choice.

        The question goes with the choice if there is a passage, so that each window of a long passage has both.
        """
        if self.passage is None:
            return self.question, self.choices
        return self.passage, tuple(f"{self.question} {choice}" for choice in self.choices)

    def check(self) -> None:
        """Refuse what cannot be chosen from."""
        place, count = self.where or f"example {self.id}", len(self.choices)
        if count < 2:
            raise BadInput(f"{place} has {_describe_choice_count(count)}; expected two or more.")
        if self.gold is not None and not 0 <= self.gold < count:
            raise BadInput(f"{place} has the answer {self.gold}, out of range: its {count} choices are counted from 0.")


def _describe_choice_count(count: int) -> str:
    return "one choice" if count else "no choices"


def read_file(path: Path, options: ReadOptions) -> Iterator[ChooseExample | Item]:
    """Read a file of questions with choices."""
    file = read_choice_questions(path, options)
    yield from map(_example, file.questions)
    yield from file.set_aside
    yield from file.remarks


def example_from_text(text: str, name: str) -> ChooseExample:
    """Make an example of `question<TAB>choice<TAB>choice...`, or of a JSON object, which may have a passage."""
    if text.lstrip().startswith("{"):
        return example_from_record(_parse_json(text), name)
    question, *choices = (part.strip() for part in text.split("\t"))
    if not question or len(choices) < 2 or not all(choices):
        problem = _describe_choice_count(len(choices)) if len(choices) < 2 else "an empty part"
        raise BadInput(
            f"{name} has {problem}; expected a question and two or more choices, parted by tabs, or a JSON object with "
            "`question`, `choices` and perhaps `passage`."
        )
    return ChooseExample(id=name, texts=(question, *choices))


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput("The text begins as a JSON object and is none; check its quotes and brackets.") from None


def example_from_record(record: Mapping[str, Any], name: str) -> ChooseExample:
    """Make an example without an answer of a dict with `question`, `choices` and perhaps `passage`."""
    try:
        return replace(_example(parse_choice_question(record), name), gold=None)
    except BadInput as wrong:
        raise BadInput(f"The JSON object cannot be used: {wrong}.") from None


def _example(question: ChoiceQuestion, name: str = "") -> ChooseExample:
    passage = () if question.passage is None else (question.passage,)
    return ChooseExample(
        id=question.id or name,
        texts=(*passage, question.question, *question.choices),
        where=question.where if question.source else "",
        has_passage=bool(passage),
        gold=question.answer_index,
    )


class ChooseRewriter(Rewriter[ChooseExample]):
    """Rewrites what is asked, not what it is answered with."""

    def editable_spans(self, example: ChooseExample) -> list[list[Span]]:
        asked = len(example.texts) - len(example.choices)
        return [[(0, len(text))] if number < asked else [] for number, text in enumerate(example.texts)]

    def records(self, example: ChooseExample) -> list[dict[str, Any]]:
        passage = {} if example.passage is None else {"passage": example.passage}
        asked = {"id": example.id, **passage, "question": example.question}
        return [asked | {"choices": list(example.choices), "answer": example.gold}]


# N examples, K right guesses


SIGNIFICANCE_LEVEL: Final = 0.05
"""Guessing that does as well as a model no more often than this does not explain its score."""


def chance_level(choices_N: Sequence[int]) -> float:
    """Compute the accuracy that guessing has on average: the mean of 1 / choices; 0 without examples.

    >>> chance_level([4, 4, 2, 2])
    0.375
    """
    return sum(1 / count for count in choices_N) / len(choices_N) if choices_N else 0.0


def chance_p_value(right: int, choices_N: Sequence[int]) -> float:
    """Compute how likely guessing is right at least so often.

    >>> chance_p_value(2, [2, 2]), chance_p_value(1, [4])
    (0.25, 0.25)
    """
    parts = [_binomial(count, 1 / choices) for choices, count in sorted(Counter(choices_N).items())]
    distribution_K = reduce(np.convolve, parts, np.ones(1))
    return float(min(1.0, distribution_K[right:].sum()))


def _binomial(count: int, share: float) -> Floats:
    """Compute the probability of each number of successes, 0 to `count`; in logarithms, since they are tiny."""
    if share == 1:
        return np.append(np.zeros(count), 1.0)
    logs = np.append(0.0, np.cumsum(np.log(np.arange(1, count + 1))))
    right = np.arange(count + 1)
    ways = logs[-1] - logs - logs[::-1]
    probabilities: Floats = np.exp(ways + right * np.log(share) + (count - right) * np.log1p(-share))
    return probabilities


# N examples, C choices


_PADDING_GAP: Final = 1000 * MAX_TEMPERATURE
"""So far below the other scores a choice has probability 0 at every temperature."""


@dataclass(frozen=True)
class ChoosePrediction(TaskPrediction[ChooseExample]):
    """How likely each choice is to be the right one."""

    probabilities: tuple[float, ...]
    coverage: Coverage
    choice: int
    """The best one, from 0."""

    @classmethod
    def of(cls, scores_C: Floats, temperature: float, coverage: Coverage) -> ChoosePrediction:
        """Compare the scores of the choices; the temperature changes no choice."""
        probabilities = softmax(scores_C / temperature)
        return cls(tuple(probabilities.tolist()), coverage, int(scores_C.argmax()))

    @property
    def score(self) -> float:
        """How sure it is."""
        return self.probabilities[self.choice]

    def to_record(self, example: ChooseExample) -> dict[str, Any]:
        """Return a JSON object; choices are numbered from 1."""
        passage = {} if example.passage is None else {"passage": example.passage}
        return {
            "id": example.id,
            **passage,
            "question": example.question,
            "choice": self.choice + 1,
            "text": example.choices[self.choice],
            "score": self.score,
            "choices": [
                {"choice": number, "text": text, "probability": probability}
                for number, text, probability in self._numbered(example)
            ],
            "coverage": self.coverage.brief(),
        }

    def to_lines(self, example: ChooseExample) -> list[str]:
        """List all choices, the most likely first: number, probability, text."""
        ranked = sorted(self._numbered(example), key=lambda choice: -choice[2])
        return [f"{number}  {probability:.2f}  {' '.join(text.split())}" for number, text, probability in ranked]

    def _numbered(self, example: ChooseExample) -> zip[tuple[int, str, float]]:
        return zip(count(1), example.choices, self.probabilities, strict=False)


def fit_choice_temperature(scores: Sequence[Floats], golds: Sequence[int]) -> float:
    """Find the temperature at which the right choices are most likely."""
    widest = max(map(len, scores), default=0)
    padded_NC = np.array(
        [np.append(scores_C, np.full(widest - len(scores_C), scores_C.min() - _PADDING_GAP)) for scores_C in scores]
    )
    return fit_temperature(padded_NC, golds)


def compute_scores(examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> TaskScores:
    """Compute accuracy, also by number of choices, and compare it with guessing."""
    graded = _graded_choices(examples, predictions)
    right = [is_right for _, is_right in graded]
    counts = [choices for choices, _ in graded]
    level, explained = chance_level(counts), chance_p_value(sum(right), counts)
    accuracy = ratio(sum(right), len(right))
    return TaskScores(
        main="accuracy",
        measures={"accuracy": accuracy, "chance": level, "p_of_chance": explained},
        by_label={f"{choices} choices": _scores_of_count(graded, choices) for choices in sorted(set(counts))},
        coverage=Coverage.total(prediction.coverage for prediction in predictions),
        notes=(_note_near_chance(accuracy, level, explained),) if graded and explained > SIGNIFICANCE_LEVEL else (),
    )


def build_sample_metric(examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> SampleMetric:
    """Prepare accuracy for resampling; examples without an answer have no part in it."""
    right = np.array(
        [
            np.nan if example.gold is None else example.gold == prediction.choice
            for example, prediction in zip(examples, predictions, strict=True)
        ]
    )

    def sampled(indices: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
        drawn = right[indices]
        drawn = drawn[~np.isnan(drawn)]
        return ratio(float(drawn.sum()), len(drawn))

    return sampled


def _graded_choices(
    examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]
) -> list[tuple[int, bool]]:
    """List the number of choices and whether the guess is right, where the answer is known."""
    return [
        (len(example.choices), example.gold == prediction.choice)
        for example, prediction in zip(examples, predictions, strict=True)
        if example.gold is not None
    ]


def _scores_of_count(graded: Sequence[tuple[int, bool]], count: int) -> dict[str, float]:
    right = [is_right for choices, is_right in graded if choices == count]
    return {"accuracy": ratio(sum(right), len(right)), "chance": 1 / count, "support": len(right)}


def _note_near_chance(accuracy: float, level: float, explained: float) -> str:
    return (
        f"Near chance: guessing has an accuracy of {level:.4f} on average, and {accuracy:.4f} or more in {explained:.1%} of "
        "all tries, so this score does not show that the model has learnt anything."
    )
