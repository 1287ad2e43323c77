"""The kind `extract` of the task `generate`: the sentences of a source that say most of its target.

In: pairs of source and target. Out: sentences of the source with their offsets, in the order of the text. Targets
say which sentences to choose: one after the other, that which adds most to ROUGE-1 and ROUGE-2, as long as one does
(Nallapati et al. 2017). Whether a sentence is chosen is learnt by `classify` with the whole document in view, whose
rows, windows, loss and probabilities are used as they are; the most probable sentences are the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final

from alembert.tasks.classify.data import ClassifyExample, ClassifySettings
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.example import EncodedExample
from alembert.tasks.generate.data import (
    MAIN_METRIC,
    BaseGenerateTask,
    GenerateExample,
    GenerateSettings,
    TextPrediction,
)
from alembert.tasks.metrics.answers import overlap_f1, rouge_words
from alembert.tasks.runtime import Outputs
from alembert.tasks.task import DelegatingTask
from alembert.text.sentences import split_sentences
from alembert.text.tokenizer import Tokenizer

EXTRACT_LABELS: Final = ("left out", "chosen")
_CLASSIFY: Final = ClassifyTask(ClassifySettings(kind="single", context="document"), "single", EXTRACT_LABELS)


@dataclass(frozen=True)
class ScoredSentence:
    """A sentence of a source."""

    start: int
    end: int
    score: float
    """How probable it is that it is chosen."""


@dataclass(frozen=True)
class ExtractPrediction(TextPrediction):
    """The sentences that were chosen."""

    source: str
    sentences: tuple[ScoredSentence, ...]
    """In the order of the text."""

    @property
    def text(self) -> str | None:
        return "\n".join(map(self._text_of, self.sentences))

    def to_record(self, example: GenerateExample) -> dict[str, Any]:
        sentences = [{"text": self._text_of(sentence), **asdict(sentence)} for sentence in self.sentences]
        return {"id": example.id, "text": self.text, "sentences": sentences, "coverage": self.coverage.brief()}

    def to_lines(self, example: GenerateExample) -> list[str]:
        return [f"{sentence.score:.2f}  {' '.join(self._text_of(sentence).split())}" for sentence in self.sentences]

    def _text_of(self, sentence: ScoredSentence) -> str:
        return self.source[sentence.start : sentence.end]


@dataclass(frozen=True, eq=False)
class _ExtractLayout:
    """What `classify` needs, and where the sentences are."""

    source: str
    spans: tuple[tuple[int, int], ...]
    of_classify: Any


@dataclass(frozen=True, eq=False)
class ExtractTask(DelegatingTask[GenerateExample, TextPrediction], BaseGenerateTask):
    """Choose sentences of texts."""

    settings: GenerateSettings
    inner: ClassifyTask = _CLASSIFY

    @classmethod
    def learn(cls, examples: Sequence[GenerateExample], settings: GenerateSettings) -> ExtractTask:
        return cls(settings)

    def describe(self) -> list[str]:
        return [
            f"Of each source the {self.settings.sentences} sentences that are most probably chosen are given; at most "
            "so many, those that share most words and pairs of words with the target, are learnt as chosen.",
            f"Models are chosen by {MAIN_METRIC}.",
        ]

    def gold_answers(self, example: GenerateExample) -> list[str]:
        """List how the sentences are labelled, of which the balance tells something, unlike of the targets."""
        sentences = [example.source[start:end] for start, end in split_sentences(example.source)]
        return list(self._golds(example, sentences))

    # -- encoding

    def encode(self, examples: Sequence[GenerateExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        spans = [tuple(split_sentences(example.source)) for example in examples]
        documents = [self._document(example, own) for example, own in zip(examples, spans, strict=True)]
        encoded = self.inner.encode(documents, tokenizer, longest)
        return [
            replace(rows, layout=_ExtractLayout(example.source, own, rows.layout))
            for rows, example, own in zip(encoded, examples, spans, strict=True)
        ]

    def _document(self, example: GenerateExample, spans: Sequence[tuple[int, int]]) -> ClassifyExample:
        sentences = tuple(example.source[start:end] for start, end in spans)
        golds = self._golds(example, sentences)
        return ClassifyExample(id=example.id, texts=sentences, golds=golds, is_document=True)

    def _golds(self, example: GenerateExample, sentences: Sequence[str]) -> tuple[str, ...]:
        if example.target is None:
            return ()
        chosen = select_oracle_sentences(sentences, example.target, self.settings.sentences)
        return tuple(EXTRACT_LABELS[number in chosen] for number in range(len(sentences)))

    # -- decoding

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> ExtractPrediction:
        layout: _ExtractLayout = encoded.layout
        classified = self.inner.decode(replace(encoded, layout=layout.of_classify), outputs)
        scores = [answer.probabilities[EXTRACT_LABELS[1]] for answer in classified.answers]
        best = sorted(range(len(scores)), key=lambda number: -scores[number])[: self.settings.sentences]
        sentences = tuple(ScoredSentence(*layout.spans[number], scores[number]) for number in sorted(best))
        return ExtractPrediction(encoded.coverage, layout.source, sentences)

    def comparison_key(self) -> dict[str, Any]:
        return {"kind": "extract", **super().comparison_key()}

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {"labels": list(self.labels), "settings": asdict(self.settings)}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ExtractTask:
        return cls(GenerateSettings.of(table["settings"]))


def select_oracle_sentences(sentences: Sequence[str], target: str, most: int) -> set[int]:
    """Choose the sentences that together say most of a target, at most so many.

    >>> select_oracle_sentences(["It rained.", "Aspirin cured the pain.", "Pain is bad."], "Aspirin cured pain", most=2)
    {1}
    """
    goal = _ngram_counts(rouge_words(target))
    parts = [_merge_unmatched(_ngram_counts(rouge_words(sentence)), goal) for sentence in sentences]
    chosen: set[int] = set()
    covered, best = _ngram_counts([]), 0.0
    while len(chosen) < min(most, len(parts)):
        worth = {n: _rouge_sum(covered, part, goal) for n, part in enumerate(parts) if n not in chosen}
        number = max(worth, key=lambda n: worth[n])
        if worth[number] <= best:
            break
        best = worth[number]
        chosen.add(number)
        covered = covered[0] + parts[number][0], covered[1] + parts[number][1]
    return chosen


_Counts = tuple[Counter[Any], Counter[Any]]
"""Of words, and of pairs of words."""


def _ngram_counts(words: Sequence[str]) -> _Counts:
    return Counter(words), Counter(pairwise(words))


def _merge_unmatched(counts: _Counts, goal: _Counts) -> _Counts:
    """Count what the goal does not have as one and the same: only its number matters, and small counts add up fast."""
    words, pairs = (
        Counter(ngram if ngram in known else None for ngram in own.elements())
        for own, known in zip(counts, goal, strict=True)
    )
    return words, pairs


def _rouge_sum(covered: _Counts, part: _Counts, goal: _Counts) -> float:
    """Add up ROUGE-1 and ROUGE-2 (F) of what is covered and a part more."""
    return overlap_f1(covered[0] + part[0], goal[0]) + overlap_f1(covered[1] + part[1], goal[1])
