"""Rows of the task `classify`: what the model reads of a text, a pair or a document, whatever its length.

Texts and pairs are `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`, and have one answer for all their windows together. Of
a pair the longer side is read through windows and the shorter is repeated in each; if that is too long as well (more
than half a window), it has windows of its own, and both sides move on together, so the cost grows with the longer text
and not with the product of both. A document is `[CLS] s1 [SEP] s2 [SEP] ...`, each sentence answered for at the [SEP]
behind it (Cohan et al. 2019), in the one window that owns it. A sentence that is longer than a window is read in parts.

Examples that are not what the task takes are refused with file and line. When examples are rewritten, labels and
numbers, which are about whole texts, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.corpus.examples.labelled import LabelValue
from alembert.corpus.examples.records import parse_number
from alembert.data.windows import IntArray, Row, Window, compute_windows
from alembert.errors import BadInput
from alembert.tasks.classify.data import ClassifyExample, ClassifyKind, convert_label, describe_label, split_sides
from alembert.tasks.example import Coverage, Edits, EncodedExample, Rewriter
from alembert.tasks.metrics.classes import balanced_weights, encode_labels, indicator_matrix
from alembert.text.sentences import split_sentences
from alembert.text.tokenizer import Encoding, Tokenizer

TargetArray = npt.NDArray[Any]
_CACHED_TEXTS: Final = 16
"""Long texts that are remembered with their borders."""


@dataclass(frozen=True, eq=False)
class ClassifyLayout:
    """Which answer of the example each place of its rows belongs to."""

    owners: IntArray
    answers: int


@dataclass(frozen=True, eq=False)
class WindowSpec:
    """How long texts are cut."""

    tokenizer: Tokenizer
    limit: int
    """Tokens of a row at most."""
    overlap: int
    max_windows: int | None = None
    """Windows of one text that are kept at most."""

    def overlap_in(self, room: int) -> int:
        return min(self.overlap, room // 2)

    @cached_property
    def long_text(self) -> Callable[[str], _LongText]:
        """Return a text with its borders; the last few are kept, since the questions on a passage stand together."""
        return lru_cache(maxsize=_CACHED_TEXTS)(partial(_LongText.of, self.tokenizer))


@dataclass(frozen=True, eq=False)
class _LongText:
    """A text that does not fit into a row, and where it can be cut."""

    encoding: Encoding
    sentence_starts: list[int]
    solid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str) -> _LongText:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        starts = np.array([start for start, _ in encoding.offsets])
        words = np.array([-1 if word is None else word for word in encoding.word_ids])
        breaks = np.searchsorted(starts, [start for start, _ in split_sentences(text)])
        return cls(encoding, breaks.tolist(), np.append(False, words[1:] == words[:-1]))

    def cuts(self, room: int, overlap: int) -> list[tuple[int, int]]:
        """Cut it at sentences where one begins nearby, between words where not."""
        windows = compute_windows(len(self.solid), room, overlap, self.sentence_starts, self.solid)
        return [(window.start, window.end) for window in windows]


@dataclass(frozen=True, eq=False)
class _Side:
    """One text: its tokens, and the stretches of them that are read at once."""

    text: str
    ids: IntArray
    cuts: list[tuple[int, int]]
    encoding: Encoding | None = None

    def cut_at(self, row: int, rows: int) -> tuple[int, int]:
        return self.cuts[row * len(self.cuts) // rows]

    def lost(self, rows: Sequence[int], count: int) -> int:
        """Count the characters of the tokens that none of the kept rows reads."""
        if self.encoding is None:
            return 0
        is_read = np.zeros(len(self.ids), np.bool_)
        for row in rows:
            start, end = self.cut_at(row, count)
            is_read[start:end] = True
        offsets = self.encoding.offsets
        return sum(offsets[token][1] - offsets[token][0] for token in np.flatnonzero(~is_read).tolist())


# -- texts and pairs


def encode_token_ids(texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[IntArray]:
    """Return the tokens of each text; those that are the same go through the tokenizer once."""
    distinct = list(dict.fromkeys(texts))
    encodings = tokenizer.encode_batch(distinct, add_special_tokens=False, offsets=False)
    ids = {text: np.array(encoding.ids, np.int64) for text, encoding in zip(distinct, encodings, strict=True)}
    return (ids[text] for text in texts)


def encode_text(
    texts: Sequence[str], ids: Sequence[IntArray], cutting: WindowSpec, gold: TargetArray | None
) -> EncodedExample:
    """Encode a text or a pair; the right answer stands at its first row."""
    sides = _sides(texts, ids, cutting)
    count = max(len(side.cuts) for side in sides)
    kept = _choose_windows(count, cutting.max_windows)
    rows = []
    for row in kept:
        parts = [side.ids[slice(*side.cut_at(row, count))] for side in sides]
        rows.append(_row(parts, cutting.tokenizer, gold if row == kept[0] else None))
    lost = sum(side.lost(kept, count) for side in sides) if len(kept) < count else 0
    coverage = _coverage(texts, rows, cutting.tokenizer, gold, lost)
    return EncodedExample(tuple(rows), coverage, ClassifyLayout(np.zeros(len(rows), np.int64), answers=1))


def _sides(texts: Sequence[str], ids: Sequence[IntArray], cutting: WindowSpec) -> list[_Side]:
    room = cutting.limit - 1 - len(texts)
    if sum(map(len, ids)) <= room:
        return [_Side(text, own, [(0, len(own))]) for text, own in zip(texts, ids, strict=True)]
    if len(texts) == 1:
        return [_side(texts[0], ids[0], room, cutting)]
    shorter = min(len(ids[0]), len(ids[1]), room // 2)
    rooms = (shorter, room - shorter) if len(ids[0]) <= len(ids[1]) else (room - shorter, shorter)
    return [_side(*side, cutting) for side in zip(texts, ids, rooms, strict=True)]


def _side(text: str, ids: IntArray, room: int, cutting: WindowSpec) -> _Side:
    if len(ids) <= room:
        return _Side(text, ids, [(0, len(ids))])
    whole = cutting.long_text(text)
    return _Side(text, ids, whole.cuts(room, cutting.overlap_in(room)), whole.encoding)


def _choose_windows(count: int, most: int | None) -> list[int]:
    """Choose windows that are spread evenly from the first to the last."""
    if most is None or count <= most:
        return list(range(count))
    numbers: list[int] = np.linspace(0, count - 1, most).round().astype(int).tolist()
    return numbers


def _row(parts: Sequence[IntArray], tokenizer: Tokenizer, labels: TargetArray | None) -> Row:
    cls, sep = np.array([tokenizer.cls_id]), np.array([tokenizer.sep_id])
    ids = np.concatenate([cls, *(piece for part in parts for piece in (part, sep))])
    segments = None
    if len(parts) > 1:
        segments = np.repeat([0, 1], [len(parts[0]) + 2, len(parts[1]) + 1])
    return Row(ids=ids, positions=np.zeros(1, np.int64), labels=labels, segments=segments)


# -- documents


def encode_document(
    sentences: Sequence[str], ids: Sequence[IntArray], cutting: WindowSpec, gold: TargetArray | None
) -> EncodedExample:
    """Encode a document; each sentence has its right answer in the row that owns it."""
    flat, ends, owners = _join_sentences(ids, cutting)
    first = np.append(0, ends[:-1])
    solid = np.ones(len(flat), np.bool_)
    solid[first[: len(ends)]] = False
    rows, owned = [], []
    limit = cutting.limit - 1
    for window in compute_windows(len(flat), limit, cutting.overlap_in(limit), solid=solid):
        own = (ends > window.own_start) & (ends <= window.own_end)
        rows.append(
            Row(
                ids=np.append(cutting.tokenizer.cls_id, flat[window.start : window.end]),
                positions=ends[own] - window.start,
                labels=None if gold is None else gold[owners[own]],
            )
        )
        owned.append(owners[own])
    layout = ClassifyLayout(np.concatenate(owned) if owned else np.empty(0, np.int64), len(ids))
    return EncodedExample(tuple(rows), _coverage(sentences, rows, cutting.tokenizer, gold), layout)


def _join_sentences(ids: Sequence[IntArray], cutting: WindowSpec) -> tuple[IntArray, IntArray, IntArray]:
    """Join the sentences, [SEP] behind each part; return also where parts end and which sentence they are of."""
    room = cutting.limit - 2
    parts: list[IntArray] = []
    owners: list[int] = []
    for number, sentence in enumerate(ids):
        cuts = compute_windows(len(sentence), room, cutting.overlap_in(room)) or [Window(0, 0, 0, 0)]
        for window in cuts:
            part = sentence[window.start : window.end]
            parts.append(np.append(part, cutting.tokenizer.sep_id).astype(np.int64))
            owners.append(number)
    flat = np.concatenate(parts) if parts else np.empty(0, np.int64)
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return flat, ends, np.array(owners, np.int64)


def _coverage(
    texts: Sequence[str], rows: Sequence[Row], tokenizer: Tokenizer, gold: TargetArray | None, lost: int = 0
) -> Coverage:
    return Coverage(
        examples=1,
        characters=sum(map(len, texts)),
        tokens=sum(row.length for row in rows),
        windows=len(rows),
        split_examples=int(len(rows) > 1),
        unknown=sum(int(np.count_nonzero(row.ids == tokenizer.unk_id)) for row in rows),
        gold=0 if gold is None else len(gold),
        cut_characters=lost,
    )


def encode_targets(
    golds: Sequence[LabelValue], kind: ClassifyKind, labels: Sequence[str], mean: float, deviation: float
) -> TargetArray:
    """Return right answers in the form that the loss takes."""
    fitting: Any = [convert_label(gold, kind) for gold in golds]
    if kind == "number":
        return ((np.array(fitting, np.float64) - mean) / deviation).astype(np.float32)
    if kind == "multi":
        return indicator_matrix(fitting, labels).astype(np.float32)
    return encode_labels(fitting, labels)


def compute_class_weights(gold: TargetArray, kind: ClassifyKind, labels: int) -> tuple[float, ...]:
    """Weigh one label by the inverse of its frequency; of several, each by the ratio of no to yes."""
    if kind == "single":
        return balanced_weights(gold, labels)
    counts = gold.sum(0).clip(min=1)
    return tuple(((len(gold) - counts).clip(min=1) / counts).tolist())


def check_form(examples: Sequence[ClassifyExample], *, is_document: bool, pairs: bool | None) -> None:
    """Refuse pairs among texts, texts among pairs, and documents where there should be none.

    A text without an answer may stand for a document: its sentences are found.
    """
    for example in examples:
        if not is_document:
            split_sides(example, pairs)
        elif example.golds and not example.is_document:
            raise BadInput(
                f"{example.line_of(0)} is a text on its own; this task reads documents of sentences with a label each. "
                "Read the data with `context` document under [task]."
            )


def check_answers(examples: Sequence[ClassifyExample], kind: ClassifyKind, labels: Sequence[str]) -> None:
    """Refuse right answers of another kind, and labels that are not known."""
    names = set(labels)
    for line, gold in iter_gold_answers(examples, kind):
        strange = next((name for name in _names(gold) if name not in names), None)
        if strange is not None:
            raise BadInput(
                f"{line} has the label {strange!r}, which this task does not know; it knows {format_labels(labels)}. Use data "
                "with the same labels, or fine-tune on all of them."
            )


def iter_gold_answers(examples: Sequence[ClassifyExample], kind: ClassifyKind) -> Iterator[tuple[str, LabelValue]]:
    """Yield where each right answer stands and what it is, read as the kind; one of another kind is refused."""
    for example in examples:
        for number, gold in enumerate(example.golds):
            fitting = convert_label(gold, kind)
            if fitting is None:
                expected = {"single": "one label", "multi": "a list of labels", "number": "a number"}[kind]
                raise BadInput(
                    f"{example.line_of(number)} has {describe_label(gold)}, and this task expects {expected}. Use data of the "
                    "same kind, or name the kind with `kind` under [task] when you fine-tune."
                )
            yield example.line_of(number), fitting


def check_values_differ(values: Sequence[float]) -> None:
    """Refuse numbers that are all the same: nothing can be learnt from them, nor compared with them."""
    if min(values) == max(values):
        raise BadInput(
            f"All examples have the number {values[0]:g}, so there is nothing to learn. Give data with different ones."
        )


def collect_labels(golds: Sequence[LabelValue], kind: ClassifyKind) -> tuple[str, ...]:
    """List the labels, by value if they are numbers, else by name."""
    names = {name for gold in golds for name in _names(gold)}
    if len(names) < (1 if kind == "multi" else 2):
        problem = f"All examples have the label {min(names)!r}" if names else "No example has a label"
        raise BadInput(f"{problem}, so there is nothing to tell apart. Give data with at least two answers.")
    values = {name: parse_number(name) for name in names}
    return tuple(sorted(names, key=lambda name: (values[name] is None, values[name] or 0.0, name)))


def format_labels(labels: Sequence[str]) -> str:
    """Write out labels, the first twenty of many."""
    more = f" and {len(labels) - 20} more" if len(labels) > 20 else ""
    return ", ".join(labels[:20]) + more


def _names(gold: LabelValue) -> tuple[str, ...]:
    if isinstance(gold, float):
        return ()
    return gold if isinstance(gold, tuple) else (gold,)


GROUP_COLUMN: Final = "document_id"
"""Column of the document that a row is a part of."""


class ClassifyRewriter(Rewriter[ClassifyExample]):
    """Rewrites texts, pairs and sentences of documents."""

    def rewrite(self, example: ClassifyExample, edits: Edits, name: str) -> ClassifyExample | None:
        made = super().rewrite(example, edits, name)
        # The rows of a document are put together by its name.
        return replace(made, group=name) if made is not None and example.is_document else made

    def records(self, example: ClassifyExample) -> list[dict[str, Any]]:
        """Write a row, or one for each sentence of a document."""
        if example.is_document:
            return [
                _rewritten_row((text,), gold, example.group)
                for text, gold in zip(example.texts, example.golds, strict=True)
            ]
        return [{"id": example.id} | _rewritten_row(example.texts, example.golds[0], example.group)]


def _rewritten_row(texts: tuple[str, ...], gold: LabelValue, group: str | None) -> dict[str, Any]:
    names = ("text",) if len(texts) == 1 else ("sentence1", "sentence2")
    label = list(gold) if isinstance(gold, tuple) else gold
    return build_labelled_row(dict(zip(names, texts, strict=True)), label, group)


def build_labelled_row(texts: dict[str, str], label: Any, group: str | None) -> dict[str, Any]:
    """Put a row of labelled data together; a document is named where the row is a part of one."""
    return {**texts, "label": label} | ({} if group is None else {GROUP_COLUMN: group})
