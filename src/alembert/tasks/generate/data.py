"""Pairs of source and target texts: examples of `generate`, how they are read, and the scores of what is written.

In: JSON lines, Parquet, or a table. Out: unchanged pairs of source and target, each with file and line; a remark on the
columns; and what cannot be used, set aside with its line. Columns are those of the options, or have a usual name, or
are the only two of a table. Unlike a label, a target is never read as a number or a list of classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.corpus.examples.labelled import collect_records
from alembert.corpus.examples.records import (
    ROW_ID_COLUMNS,
    FieldRecord,
    check_text,
    find_column,
    format_location,
    join_names,
)
from alembert.corpus.readers.contract import DamagedFile, Item, ReadOptions, Remark, SetAside, describe_option
from alembert.corpus.readers.records import get_field
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput, BadSetting
from alembert.tasks.example import Coverage, Example, ReadResult, TaskPrediction, collect
from alembert.tasks.generate.decoding import DecodeSettings
from alembert.tasks.metrics.answers import ROUGE_METRICS, rouge, rouge_words
from alembert.tasks.settings import load_settings
from alembert.tasks.task import SampleMetric, Task, TaskScores

SOURCE_FIELDS: Final = ("source", "src", "document", "article", "abstract", "text", "content", "input", "question")
TARGET_FIELDS: Final = ("target", "tgt", "summary", "highlights", "title", "headline", "output", "answer")
"""The first one in a file is used."""


@dataclass(frozen=True, slots=True)
class SourceTargetPair:
    """A source text and its target."""

    id: str
    source: str
    target: str
    where: str
    """File and line."""


@dataclass(frozen=True)
class SourceTargetFile:
    """The pairs of a file, and what was set aside."""

    pairs: tuple[SourceTargetPair, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True)
class _Columns:
    sources: tuple[str, ...]
    target: str
    id: str | None

    def sentence(self) -> str:
        return f"the source is in column {' and '.join(self.sources)}, the target in column {self.target}"


def read_source_target_pairs(path: str | Path, options: ReadOptions | None = None) -> SourceTargetFile:
    """Read the pairs of a file; a damaged file is set aside after the pairs before the damage."""
    options = options or ReadOptions()
    source = SourceFile(Path(path), options)
    records: list[FieldRecord] = []
    aside: list[SetAside] = []
    pairs: list[SourceTargetPair] = []
    remarks: list[Remark] = []
    try:
        collect_records(source, options, records, aside)
        if records:
            columns = _columns([record.fields for record in records], options)
            remarks.append(Remark(source.name, columns.sentence(), 1))
            pairs = list(_pairs(records, columns, source, aside))
    except DamagedFile as reason:
        aside.append(source.set_aside(str(reason), position="file", kind="file"))
    finally:
        source.close()
    return SourceTargetFile(tuple(pairs), tuple(aside), (*remarks, *source.remarks()))


def _columns(records: Sequence[Mapping[str, Any]], options: ReadOptions) -> _Columns:
    names = list(dict.fromkeys(name for record in records for name in record))
    lower = {name.lower(): name for name in reversed(names)}
    both = names if len(names) == 2 else [None, None]
    target = options.label or find_column(lower, TARGET_FIELDS) or both[1]
    titles = (options.title,) if options.title else ()
    source = find_column(lower, SOURCE_FIELDS, without=target) or both[0]
    sources = titles + options.text or ((source,) if source else ())
    for column, what, option in ((sources, "source", "text"), (target, "target", "label")):
        if not column:
            raise DamagedFile(
                f"no column is known to hold the {what}; the file has {join_names(names)}; {describe_option(option)}"
            )
    assert target is not None
    return _Columns(sources, target, options.id or find_column(lower, ROW_ID_COLUMNS))


def _pairs(
    records: Sequence[FieldRecord], columns: _Columns, source: SourceFile, aside: list[SetAside]
) -> Iterator[SourceTargetPair]:
    for number, record in enumerate(records, start=1):
        stated_id = get_field(record.fields, columns.id) if columns.id else None
        name = str(stated_id).strip() if isinstance(stated_id, str | int) else ""
        name = name or f"{source.stem}-{number}"
        try:
            text = "\n".join(check_text(get_field(record.fields, column), column) for column in columns.sources)
            target = check_text(get_field(record.fields, columns.target), columns.target)
        except BadInput as wrong:
            aside.append(source.set_aside(str(wrong), name, record.position))
        else:
            yield SourceTargetPair(name, text, target, format_location(source.name, record.position))


_MIN_TOKENS = 4


def _default_decoding() -> DecodeSettings:
    return DecodeSettings(method="beam", max_new_tokens=64, no_repeat_ngram=3)


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """Settings of text generation."""

    kind: Literal["write", "extract"] = "write"
    """write: generate new text (abstractive). extract: select sentences of the source (extractive)."""
    max_source_length: int | None = None
    """Maximum tokens of a source; none: what the model's maximum leaves beside a target. The rest is truncated."""
    max_target_length: int = 64
    """Maximum tokens of a target in training; truncated text is reported."""
    copy: bool = False
    """write: copy words of the source with a gate (pointer-generator), so that rare words need not be invented."""
    eval_examples: int | None = 200
    """Development examples to generate for in each evaluation during training; none: all."""
    sentences: int = 3
    """extract: number of sentences to select."""
    decoding: DecodeSettings = field(default_factory=_default_decoding)
    """Decoding."""

    def __post_init__(self) -> None:
        if self.kind not in ("write", "extract"):
            raise BadSetting(f"`kind` of the task is {self.kind!r}; expected write or extract.")
        least = {"max_source_length": _MIN_TOKENS, "max_target_length": _MIN_TOKENS, "eval_examples": 1, "sentences": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise BadSetting(f"`{name}` of the task is {value}; expected {lowest} or more.")
        if self.kind == "extract" and self.max_source_length is not None:
            raise BadSetting(
                "`max_source_length` is a setting of the kind write; extract reads sources of any length, in windows. Leave it out."
            )

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> GenerateSettings:
        """Make settings of plain values again; raise ValueError for what are none."""
        return load_settings(cls, table)


@dataclass(frozen=True, kw_only=True)
class GenerateExample(Example):
    """A source, and perhaps its target."""

    target: str | None = None
    """What is to be written; none: not known."""

    @property
    def source(self) -> str:
        return self.texts[0]


def read_file(path: Path, options: ReadOptions) -> Iterator[GenerateExample | Item]:
    """Read a file of pairs."""
    file = read_source_target_pairs(path, options)
    for pair in file.pairs:
        yield GenerateExample(id=pair.id, texts=(pair.source,), where=pair.where, target=pair.target)
    yield from file.set_aside
    yield from file.remarks


def check_learnable(examples: Sequence[GenerateExample]) -> None:
    """Refuse training data that say nothing about what to write."""
    if all(example.target is None for example in examples):
        raise BadInput("There are no examples with a target to learn from. Check what was set aside, and why.")


# N examples


MAIN_METRIC: Final = "rougeL"


@dataclass(frozen=True)
class TextPrediction(TaskPrediction[GenerateExample]):
    """What was written for a source."""

    coverage: Coverage

    @property
    @abstractmethod
    def text(self) -> str | None:
        """The best text; none: nothing was asked for."""


class BaseGenerateTask(Task[GenerateExample, TextPrediction]):
    """A task whose examples are sources with targets, and whose answers are texts."""

    name: ClassVar[str] = "generate"
    settings_class: ClassVar[type[Any]] = GenerateSettings
    example_class: ClassVar[type[Example]] = GenerateExample
    answer_name: ClassVar[str] = "texts"
    settings: GenerateSettings

    @classmethod
    def read(
        cls, files: Sequence[Path], settings: GenerateSettings, options: ReadOptions
    ) -> ReadResult[GenerateExample]:
        return collect(files, lambda path: read_file(path, options))

    def check(self, examples: Sequence[GenerateExample]) -> None:
        """Refuse sources without a word."""
        for example in examples:
            if not example.source.strip():
                raise BadInput(f"{example.where or f'example {example.id}'} has no text to write for.")

    def gold_answers(self, example: GenerateExample) -> list[str]:
        return [] if example.target is None else [example.target]

    def score(self, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> TaskScores:
        compared = _RougeScores.of(examples, predictions)
        return TaskScores(
            main=MAIN_METRIC,
            measures={
                **compared.means(),
                "length_ratio": compared.length_ratio,
                "scored": float(len(compared.numbers)),
            },
            coverage=Coverage.total(prediction.coverage for prediction in predictions),
        )

    def sample_metric(self, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> SampleMetric:
        compared = _RougeScores.of(examples, predictions)
        values_N, is_scored_N = np.zeros(len(examples)), np.zeros(len(examples), np.bool_)
        values_N[compared.numbers] = compared.values[MAIN_METRIC]
        is_scored_N[compared.numbers] = True
        return lambda indices: float(values_N[indices].sum() / max(is_scored_N[indices].sum(), 1))

    def comparison_key(self) -> dict[str, Any]:
        return {"measure": MAIN_METRIC}


@dataclass(frozen=True, eq=False)
class _RougeScores:
    """Written texts against right ones, where both are there."""

    numbers: list[int]
    """Which examples they are."""
    values: dict[str, npt.NDArray[np.float64]]
    """ROUGE of each."""
    length_ratio: float

    @classmethod
    def of(cls, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> _RougeScores:
        pairs = [
            (number, prediction.text, example.target)
            for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True))
            if prediction.text is not None and example.target is not None
        ]
        scores = [rouge(written, right) for _, written, right in pairs]
        values = {name: np.array([score[name] for score in scores], np.float64) for name in ROUGE_METRICS}
        lengths = sum(len(rouge_words(text)) for _, text, _ in pairs), sum(len(rouge_words(text)) for *_, text in pairs)
        return cls([number for number, _, _ in pairs], values, lengths[0] / max(lengths[1], 1))

    def means(self) -> dict[str, float]:
        return {name: float(values.mean()) if len(values) else 0.0 for name, values in self.values.items()}
