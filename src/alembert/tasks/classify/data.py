"""Settings and examples of the task `classify`: read from files, and what their right answers are.

A right answer is a label, a tuple of labels or a number. Which of them it is, is detected when files are read,
together, and settled over all training data by `detect_kind`; `convert_label` then reads an answer as the task's kind,
or finds that it is none. A cell of a table such as `a|b` is several labels if cells are put together from the same
parts in different ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, cast, get_args

from alembert.corpus.examples.labelled import BLANK_LABEL_REASON, LabelledRow, LabelValue, read_labelled
from alembert.corpus.examples.records import parse_number
from alembert.corpus.readers.contract import Item, ReadOptions, Remark, SetAside
from alembert.errors import BadInput, BadSetting
from alembert.tasks.example import Example, ReadResult, collect
from alembert.tasks.settings import check_choices, check_windows
from alembert.text.sentences import split_sentences

ClassifyKind = Literal["single", "multi", "number"]
"""One label, any number of labels, or a number for each text."""
ClassifyMetric = Literal["auto", "accuracy", "macro_f1", "micro_f1", "mcc", "subset_accuracy", "spearman", "pearson"]
DEFAULT_LENGTH: Final = 256
DEFAULT_DOCUMENT_LENGTH: Final = 512
CLASSIFY_METRICS: Final[dict[str, tuple[str, ...]]] = {
    "single": ("accuracy", "macro_f1", "micro_f1", "mcc"),
    "multi": ("micro_f1", "macro_f1", "subset_accuracy"),
    "number": ("spearman", "pearson"),
}
"""Kind -> the measures that models can be chosen by, the usual one first."""
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "kind": ("auto", *get_args(ClassifyKind)),
    "context": ("none", "document"),
    "main": get_args(ClassifyMetric),
    "pool": ("mean", "max"),
    "pooling": ("first", "mean", "layers"),
}


@dataclass(frozen=True, kw_only=True)
class ClassifySettings:
    """Settings of classification."""

    kind: Literal["auto", "single", "multi", "number"] = "auto"
    """single (one label), multi (any number of labels) or number (regression); auto: detected from the training data."""
    context: Literal["none", "document"] = "none"
    """document: read the sentences of a document together and classify each in context; none: one by one."""
    main: ClassifyMetric = "auto"
    """Metric for model selection; auto: accuracy for one label, micro_f1 for several, spearman for numbers."""
    separator: str = "|"
    """Separator of several labels in a cell of a table, for kind multi; JSON lines have lists."""
    max_length: int | None = None
    """Maximum tokens of a window, special tokens included; none: 256, or 512 with context. Longer texts need several."""
    overlap: int = 32
    """Tokens that neighbouring windows share."""
    pool: Literal["mean", "max"] = "mean"
    """Pooling over the windows of a text."""
    pooling: Literal["first", "mean", "layers"] = "first"
    """Pooling over tokens: the first token, the mean of all tokens, or their mean over all layers."""
    train_windows: int | None = None
    """Maximum windows per text in training, evenly spaced; truncated text is reported. none: all."""

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        self._check_sizes()
        self._check_together()

    def _check_sizes(self) -> None:
        check_windows(self.window, self.overlap)
        if self.train_windows is not None and self.train_windows < 1:
            raise BadSetting(
                f"`train_windows` of the task is {self.train_windows}; expected 1 or more, or none for all."
            )
        if not self.separator.strip():
            raise BadSetting("`separator` of the task is blank; expected a sign such as | or ;.")

    def _check_together(self) -> None:
        if self.kind != "auto" and self.main not in ("auto", *CLASSIFY_METRICS[self.kind]):
            raise BadSetting(describe_wrong_metric(self.main, self.kind))
        if self.context == "document" and (self.pooling != "first" or self.train_windows):
            raise BadSetting(
                "With `context` document each sentence is classified at the token after it, so there is no `pooling` and "
                "no `train_windows` to choose. Leave them out."
            )

    @property
    def window(self) -> int:
        """Tokens of a window at most."""
        usual = DEFAULT_DOCUMENT_LENGTH if self.context == "document" else DEFAULT_LENGTH
        return usual if self.max_length is None else self.max_length


def describe_wrong_metric(main: str, kind: str) -> str:
    return f"`main` of the task is {main}, and its kind is {kind}; expected one of {', '.join(CLASSIFY_METRICS[kind])}."


_MIN_MULTI_SHARE: Final = 0.01
"""Share of the rows that have several labels at least, where the kind is detected."""
_SIDES: Final[dict[bool | None, tuple[int, ...]]] = {True: (2,), False: (1,), None: (1, 2)}
"""Whether pairs are classified -> how many texts an example has."""


@dataclass(frozen=True, kw_only=True)
class ClassifyExample(Example):
    """A text, a pair of texts, or the sentences of a document."""

    golds: tuple[LabelValue, ...] = ()
    """The right answer, or one for each sentence of a document; empty: not known."""
    is_document: bool = False
    group: str | None = None
    """The document that the text is a part of, or that it is."""
    lines: tuple[str, ...] = ()
    """File and line of each sentence of a document."""

    @property
    def group_id(self) -> int | str:
        return self.key if self.group is None else self.group

    @property
    def gold(self) -> LabelValue | None:
        """The right answer, where there is one."""
        return self.golds[0] if len(self.golds) == 1 else None

    def line_of(self, answer: int) -> str:
        """Return where the right answer of a sentence stands."""
        return self.lines[answer] if self.lines else self.where or f"example {self.id}"


def read_examples(
    files: Sequence[Path], settings: ClassifySettings, options: ReadOptions
) -> ReadResult[ClassifyExample]:
    """Read labelled files; rows that do not fit the kind that was asked for are set aside."""
    parts = [read_labelled(path, options, labels="some") for path in files]
    reader = _LabelReader.of([row.label for part in parts for row in part.rows], settings)
    unread: ReadResult[ClassifyExample] = collect(parts, lambda part: (*part.set_aside, *part.remarks))
    return ReadResult.concatenate([unread, collect(parts, lambda part: _fit_rows(part.rows, reader, settings))])


def advise_on_context(examples: Sequence[ClassifyExample]) -> Iterator[str]:
    """Advise to read sentences with their neighbours, if most examples follow others of their document."""
    runs = [
        len(list(members))
        for group, members in groupby(examples, key=lambda example: example.group)
        if group is not None
    ]
    together = [count for count in runs if count > 1]
    if 2 * sum(together) > len(examples):
        yield (
            f"{sum(together):,} of the texts to train on stand in order in {len(together):,} documents, and each is read "
            'alone; with context = "document" under [task] it is read with its neighbours in view'
        )


def read_unlabelled(path: Path, settings: ClassifySettings, options: ReadOptions) -> Iterator[ClassifyExample | Item]:
    """Read texts, pairs or documents to be classified; labels that the file has are not looked at."""
    file = read_labelled(path, options, labels="none")
    in_documents = settings.context == "document" and all(row.group is not None for row in file.rows)
    examples = _group_documents(file.rows) if in_documents else map(_example, file.rows)
    yield from (replace(example, golds=()) for example in examples)
    yield from file.set_aside
    yield from file.remarks


def detect_kind(golds: Iterable[LabelValue], asked: str) -> ClassifyKind:
    """Detect what the answers are: several labels if some have several, numbers if some have fractions."""
    if asked != "auto":
        return cast(ClassifyKind, asked)
    types = {type(gold) for gold in golds}
    return "multi" if tuple in types else "number" if float in types else "single"


def convert_label(gold: LabelValue, kind: ClassifyKind) -> LabelValue | None:
    """Read an answer as one of a kind; none: it is of another."""
    if kind == "number":
        return parse_number(gold) if isinstance(gold, str) else gold if isinstance(gold, float) else None
    if kind == "multi" and isinstance(gold, str):
        return (gold,)
    return gold if isinstance(gold, tuple if kind == "multi" else str) else None


def describe_label(gold: LabelValue) -> str:
    if isinstance(gold, tuple):
        return f"{len(gold)} labels"
    return f"the number {gold:g}" if isinstance(gold, float) else f"the label {gold!r}"


def split_sides(example: ClassifyExample, pairs: bool | None) -> tuple[str, ...]:
    """Return the text, or the two of a pair, which a tab may separate; `pairs` is none if either may be."""
    sides = example.texts
    if pairs is not False and len(sides) == 1 and (pairs or sides[0].count("\t") == 1):
        sides = tuple(sides[0].split("\t"))
    if example.is_document or len(sides) not in _SIDES[pairs]:
        expected = {True: "two texts, parted by one tab", False: "one text", None: "one text or two"}[pairs]
        present = "a document of sentences" if example.is_document else f"{len(sides)} texts"
        raise BadInput(f"{example.line_of(0)} is {present}; this task classifies {expected}.")
    return sides


def find_sentence_spans(example: ClassifyExample) -> list[tuple[int, int]] | None:
    """Find the sentences of a plain text; none: the example is made of sentences."""
    return None if example.is_document else split_sentences("\n\n".join(example.texts))


def get_sentences(example: ClassifyExample) -> tuple[str, ...]:
    """Return the sentences of a document, or of a text that is read as one."""
    spans = find_sentence_spans(example)
    if spans is None:
        return example.texts
    text = "\n\n".join(example.texts)
    return tuple(text[start:end] for start, end in spans)


def _example(row: LabelledRow) -> ClassifyExample:
    return ClassifyExample(id=row.id, texts=row.texts, where=row.where, golds=(row.label,), group=row.group)


def _group_documents(rows: Sequence[LabelledRow]) -> Iterator[ClassifyExample]:
    """Put the rows of one document, which follow each other, together."""
    for group, members in groupby(rows, key=lambda row: row.group):
        sentences = list(members)
        if group is None:
            raise BadInput(
                f"{sentences[0].where} does not say which document it belongs to, which `context` document needs. Use a "
                "file of sections (###ID, then LABEL<TAB>sentence), or name the column of the document with `id` under "
                "[read]."
            )
        pair = next((row for row in sentences if len(row.texts) > 1), None)
        if pair:
            raise BadInput(f"{pair.where} is a pair of texts; `context` document takes single sentences.")
        yield ClassifyExample(
            id=group,
            texts=tuple(row.texts[0] for row in sentences),
            where=sentences[0].where,
            golds=tuple(row.label for row in sentences),
            is_document=True,
            group=group,
            lines=tuple(row.where for row in sentences),
        )


def _fit_rows(
    rows: Sequence[LabelledRow], reader: _LabelReader, settings: ClassifySettings
) -> Iterator[ClassifyExample | Item]:
    """Read labels as the kind that was asked for or detected."""
    yield from reader.remarks(rows)
    kept = []
    for row in rows:
        label = reader.read(row.label)
        if label is None:
            unfit = f"the row has {describe_label(row.label)}, which is not of kind {reader.kind}"
            reason = BLANK_LABEL_REASON if row.label == "" else unfit
            yield SetAside(row.source, row.position, row.id, reason)
        else:
            kept.append(replace(row, label=label))
    yield from _group_documents(kept) if settings.context == "document" else map(_example, kept)


@dataclass(frozen=True)
class _LabelReader:
    """How the labels of all files are read."""

    kind: str
    """The kind that was asked for, or auto."""
    separator: str
    is_split: bool
    """Whether cells hold any number of labels."""

    @classmethod
    def of(cls, labels: Sequence[LabelValue], settings: ClassifySettings) -> _LabelReader:
        kind, separator = settings.kind, settings.separator
        cells = [label for label in labels if isinstance(label, str) and label]
        has_lists = any(isinstance(label, tuple) for label in labels)
        is_split = kind == "multi" or (kind == "auto" and (has_lists or _are_joined(cells, separator)))
        return cls(kind, separator, is_split)

    def read(self, label: LabelValue) -> LabelValue | None:
        """Read a label; none: it is not of the kind."""
        if self.is_split and isinstance(label, str):
            return _parts(label, self.separator)
        if label == "":
            return None
        if self.kind == "single":
            return _to_single_label(label)
        return convert_label(label, "number") if self.kind == "number" else label

    def remarks(self, rows: Sequence[LabelledRow]) -> Iterator[Remark]:
        """Remark how the cells of a file were read, where they leave a choice."""
        joined = sum(isinstance(row.label, str) and self.separator in row.label for row in rows)
        blank = sum(row.label == "" for row in rows)
        if self.kind == "auto" and joined:
            reason = (
                f"{self.separator} separates the labels of a text, which may have any number; if it is a part of "
                'their names, set kind = "single" under [task]'
                if self.is_split
                else f"labels have {self.separator} in their names; if it separates several labels of a text, set "
                'kind = "multi" under [task]'
            )
            yield Remark(rows[0].source, reason, joined)
        if self.is_split and blank:
            yield Remark(rows[0].source, "rows have no label, which is right where there may be any number", blank)


def _parts(cell: str, separator: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in cell.split(separator) if part.strip()))


def _are_joined(cells: Sequence[str], separator: str) -> bool:
    """Whether cells are put together from labels: most of their parts are in other cells too, in other numbers.

    >>> _are_joined(["a", "b", "a|b", "b|a"], "|"), _are_joined(["a|x", "a|y", "b|x", "b|y"], "|")
    (True, False)
    """
    parts = {cell: _parts(cell, separator) for cell in cells}
    joined = {cell: own for cell, own in parts.items() if len(own) > 1}
    if sum(cell in joined for cell in cells) < max(2, _MIN_MULTI_SHARE * len(cells)):
        return False
    members = {part for own in joined.values() for part in own}
    sizes = {len(own) for own in parts.values() if members & set(own)}
    uses = Counter(part for own in parts.values() for part in own)
    reused = sum(all(uses[part] > 1 for part in own) for own in joined.values())
    return len(sizes) > 1 and 2 * reused >= len(joined)


def _to_single_label(label: LabelValue) -> str | None:
    if isinstance(label, tuple):
        return label[0] if len(label) == 1 else None
    return str(label)
