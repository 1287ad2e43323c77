"""The data doctor: what one should know about examples before a model is trained on them.

In go what was read and encoded of each part (training first), the task and its tokenizer; out comes a `DataReport`,
which `data_screen` shows and `to_table` gives as JSON. It knows a task by its contract alone: two examples contradict
each other when their texts are the same and the names of their answers are not. Texts are tokenized once more, whole,
because the rows of a task have overlaps and special tokens; that takes seconds where training takes minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.corpus.examples.tag_check import TagProblem
from alembert.corpus.readers.contract import Remark
from alembert.tasks.example import Coverage, EncodedExample, Example, ReadResult
from alembert.tasks.task import AnyTask
from alembert.text.tokenizer import Tokenizer

TRUNCATION_LENGTHS: Final = (128, 256, 512)
"""Lengths at which other programs cut texts."""
UNKNOWN_WARNING_SHARE: Final = 0.1
"""Share of unknown tokens from which on there is a warning."""
MAX_ISSUES: Final = 10
"""How many problems of a kind are kept with their places; all are counted."""
_TEXTS_PER_BATCH = 1000

AnswerNames = tuple[str, ...]


@dataclass(frozen=True)
class EncodedSplit:
    """Examples with one purpose: training, development or test."""

    name: str
    reading: ReadResult[Any]
    encoded: Sequence[EncodedExample]


@dataclass(frozen=True, kw_only=True)
class LengthStatistics:
    """Tokens of whole examples, special ones included."""

    median: int
    ninetieth: int
    """Nine examples out of ten have no more tokens."""
    longest: int


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """What would be lost if texts were cut instead of read in windows."""

    limit: int
    examples: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """One part in numbers."""

    name: str
    examples: int
    characters: int
    tokens: int
    """Of whole texts, without special tokens."""
    words: int
    pieces_per_word: float
    unknown: int
    """Tokens that the vocabulary does not know."""
    lengths: LengthStatistics
    windowed: int
    """Examples that need more than one window."""
    cuts: tuple[Truncation, ...]
    answers: Mapping[str, int]
    """How often each answer occurs, the most frequent first."""
    without_answers: int
    gold: int
    unreachable: int
    """Right answers that no prediction can match."""
    repeated: int
    """Examples whose text came before."""
    contradictions: int
    """Texts that come with different answers."""


@dataclass(frozen=True, kw_only=True)
class OverlapReport:
    """Examples of a second part whose text the first one has too."""

    first: str
    second: str
    examples: int
    contradictions: int
    """Those whose answers the first part does not give for the text."""


@dataclass(frozen=True)
class DataIssue:
    """Something wrong, and where."""

    where: str
    reason: str


@dataclass(frozen=True)
class DataIssues:
    """How many things are wrong, and the first of them."""

    count: int = 0
    first: tuple[DataIssue, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[DataIssue]) -> DataIssues:
        """Count findings, which may be many, and keep a few."""
        count = 0
        kept: list[DataIssue] = []
        for finding in findings:
            count += 1
            if len(kept) < MAX_ISSUES:
                kept.append(finding)
        return cls(count, tuple(kept))


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """All parts, what they share, what is wrong with them and what follows."""

    task: str
    longest: int
    """Tokens that the model reads at once."""
    parts: tuple[SplitReport, ...]
    shared: tuple[OverlapReport, ...]
    single: tuple[str, ...]
    """Answers that occur once in training."""
    unseen: Mapping[str, tuple[str, ...]]
    """Part -> answers that never occur in training."""
    tag_problems: DataIssues
    set_aside: DataIssues
    remarks: tuple[str, ...]
    decided: tuple[str, ...]

    def to_table(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def build_data_report(
    task: AnyTask,
    parts: Sequence[EncodedSplit],
    tokenizer: Tokenizer,
    *,
    longest: int,
    tag_problems: Iterable[TagProblem] = (),
    decided: Sequence[str] = (),
) -> DataReport:
    """Examine the data of a run; the first part is training, `decided` is what was decided outside of the task."""
    named = [_answers_by_text(task, part.reading.examples) for part in parts]
    reports = tuple(_report_split(part, task, tokenizer, texts) for part, texts in zip(parts, named, strict=True))
    readings = [part.reading for part in parts]
    return DataReport(
        task=task.name,
        longest=longest,
        parts=reports,
        shared=tuple(_find_overlaps(parts, named)),
        single=tuple(name for name, count in reports[0].answers.items() if count == 1),
        unseen={report.name: _unseen_answers(report, reports[0]) for report in reports[1:]},
        tag_problems=DataIssues.of(DataIssue(f"{one.source}:{one.line}", one.reason) for one in tag_problems),
        set_aside=DataIssues.of(
            DataIssue(f"{one.source}, {one.position}", one.reason) for reading in readings for one in reading.set_aside
        ),
        remarks=tuple(f"{one.source}: {one.reason} ({one.count})" for reading in readings for one in reading.remarks),
        decided=(
            *_cut_sentence(parts),  # first: a screen shows as many as it has room for
            *task.advice(parts[0].reading.examples, parts[0].encoded),
            *_unknown_sentence(reports[0]),
            *task.describe(),
            *decided,
            *_window_sentence(parts),
            *_summarize_remarks(readings),
        ),
    )


def _report_split(
    part: EncodedSplit, task: AnyTask, tokenizer: Tokenizer, texts: Sequence[tuple[int, AnswerNames]]
) -> SplitReport:
    coverage = Coverage.total(each.coverage for each in part.encoded)
    measured = _measure_tokens(part.reading.examples, tokenizer)
    counts = Counter(name for _, answers in texts for name in answers) if task.labels else Counter[str]()
    by_text: dict[int, set[AnswerNames]] = {}
    for key, answers in texts:
        by_text.setdefault(key, set()).add(answers)
    return SplitReport(
        name=part.name,
        examples=len(texts),
        characters=sum(len(text) for example in part.reading.examples for text in example.texts),
        tokens=measured.tokens,
        words=measured.words,
        pieces_per_word=measured.tokens / max(measured.words, 1),
        unknown=measured.unknown,
        lengths=_length_statistics(measured.lengths),
        windowed=coverage.split_examples,
        cuts=tuple(_truncation_at(measured.lengths, limit) for limit in TRUNCATION_LENGTHS),
        answers=dict(counts.most_common()),
        without_answers=sum(not answers for _, answers in texts) if task.labels else 0,
        gold=coverage.gold,
        unreachable=coverage.unreachable,
        repeated=len(texts) - len(by_text),
        contradictions=sum(len(answers) > 1 for answers in by_text.values()),
    )


def _answers_by_text(task: AnyTask, examples: Sequence[Example]) -> list[tuple[int, AnswerNames]]:
    return [(example.key, tuple(sorted(task.gold_answers(example)))) for example in examples]


@dataclass(frozen=True, eq=False)
class _TokenStatistics:
    tokens: int
    words: int
    unknown: int
    lengths: npt.NDArray[np.int64]
    """Of each example, with special tokens."""


def _measure_tokens(examples: Sequence[Example], tokenizer: Tokenizer) -> _TokenStatistics:
    """Tokenize whole texts, those that examples share once; a thousand encodings are held at a time."""
    plain = [example.plain_texts for example in examples]
    number = {text: n for n, text in enumerate(dict.fromkeys(text for each in plain for text in each))}
    distinct = np.array(list(_token_counts(list(number), tokenizer)), np.int64).reshape(-1, 3)
    counts = distinct[[number[text] for each in plain for text in each]]
    owner = np.repeat(np.arange(len(examples)), [len(each) for each in plain])
    lengths = np.bincount(owner, counts[:, 0] + 1, minlength=len(examples)).astype(np.int64) + 1
    tokens, words, unknown = counts.sum(axis=0).tolist()
    return _TokenStatistics(tokens, words, unknown, lengths)


def _token_counts(texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[tuple[int, int, int]]:
    """Yield tokens, words and unknown tokens of each text."""
    for start in range(0, len(texts), _TEXTS_PER_BATCH):
        for encoding in tokenizer.encode_batch(texts[start : start + _TEXTS_PER_BATCH], add_special_tokens=False):
            words = (encoding.word_ids[-1] or 0) + 1 if len(encoding) else 0
            yield len(encoding), words, encoding.ids.count(tokenizer.unk_id)


def _length_statistics(lengths: npt.NDArray[np.int64]) -> LengthStatistics:
    if not len(lengths):
        return LengthStatistics(median=0, ninetieth=0, longest=0)
    median, ninetieth, longest = np.percentile(lengths, [50, 90, 100], method="inverted_cdf").tolist()
    return LengthStatistics(median=median, ninetieth=ninetieth, longest=longest)


def _truncation_at(lengths: npt.NDArray[np.int64], limit: int) -> Truncation:
    over = np.maximum(lengths - limit, 0)
    return Truncation(limit=limit, examples=int(np.count_nonzero(over)), tokens=int(over.sum()))


def _find_overlaps(
    parts: Sequence[EncodedSplit], named: Sequence[Sequence[tuple[int, AnswerNames]]]
) -> Iterator[OverlapReport]:
    for (first, known), (second, others) in combinations(zip(parts, named, strict=True), 2):
        keys = {key for key, _ in known}
        pairs = set(known)
        both = [text for text in others if text[0] in keys]
        yield OverlapReport(
            first=first.name,
            second=second.name,
            examples=len(both),
            contradictions=sum(text not in pairs for text in both),
        )


def _unseen_answers(part: SplitReport, train: SplitReport) -> tuple[str, ...]:
    return tuple(name for name in part.answers if name not in train.answers)


def _window_sentence(parts: Sequence[EncodedSplit]) -> Iterator[str]:
    cut = {
        part.name: [each.rows for each in part.encoded if each.rows and each.coverage.split_examples] for part in parts
    }
    if any(cut.values()):
        widest = max(row.length for examples in cut.values() for rows in examples for row in rows)
        counts = ", ".join(f"{len(examples):,} in {name}" for name, examples in cut.items() if examples)
        yield f"longer texts are read in overlapping windows of up to {widest} tokens: {counts}"


def _cut_sentence(parts: Sequence[EncodedSplit]) -> Iterator[str]:
    cut = {part.name: [lost for each in part.encoded if (lost := each.coverage.cut_characters)] for part in parts}
    if any(cut.values()):
        counts = ", ".join(f"{sum(lost):,} in {len(lost):,} of {name}" for name, lost in cut.items() if lost)
        yield f"characters that the model does not see, as the settings ask: {counts}"


def _unknown_sentence(train: SplitReport) -> Iterator[str]:
    """Warn of a model that cannot read the texts: one of another language, most often."""
    share = train.unknown / max(train.tokens, 1)
    if share > UNKNOWN_WARNING_SHARE:
        yield (
            f"the vocabulary of the model does not know {100 * share:.0f} % of the tokens to train on, and tells none of them "
            "from the others: is it a model for this language?"
        )


def _summarize_remarks(readings: Sequence[ReadResult[Any]]) -> Iterator[str]:
    """List what was detected in the files or mended in them, what several have in common once."""
    alike: dict[str, list[Remark]] = {}
    for remark in (remark for reading in readings for remark in reading.remarks):
        alike.setdefault(remark.reason, []).append(remark)
    for reason, remarks in alike.items():
        more = f" and {len(remarks) - 1} more" if len(remarks) > 1 else ""
        count = sum(remark.count for remark in remarks)
        times = f" ({count:,} times)" if count > len(remarks) else ""
        yield f"{remarks[0].source}{more}: {reason}{times}"
