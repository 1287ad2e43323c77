"""Rows of the task `answer`: `[CLS] question [SEP] window of the passage [SEP]`, whatever the passage's length.

A passage that does not fit is read through windows that overlap, with the question before each (Devlin et al. 2019).
The head is asked at [CLS], which stands for "no answer", and at every token of the window, so place 0 of a row is none
and place 1 + i is token i of the window. A row that does not hold the whole answer has none: its right place is 0. Each
token is the start of answers in one window alone, the one in which it has most context on both sides.
"""

# T tokens of the passage
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from alembert.corpus.examples.questions import GoldAnswer
from alembert.data.windows import IntArray, Row, Window, compute_windows
from alembert.tasks.answer.data import AnswerExample, AnswerSettings
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.metrics.answers import AnswerScorer
from alembert.text.sentences import split_sentences
from alembert.text.tokenizer import Encoding, Tokenizer

_LETTER: Final = "[0-9A-Za-zªµºÀ-ÖØ-öø-ԯḀ-῿]"
_INSIDE_WORD: Final = re.compile(f"(?<={_LETTER})(?={_LETTER})")
"""The inside of a word, in the scripts that part words with spaces and add no endings that answers leave out: digits,
Latin, Greek and Cyrillic. In Korean, Japanese or Thai right answers end anywhere."""


@dataclass(frozen=True, eq=False)
class EncodedPassage:
    """A passage as tokens."""

    text: str
    ids_T: IntArray
    starts_T: IntArray
    ends_T: IntArray
    continues_word_T: IntArray
    """1 for tokens that go on with the word before them."""
    may_begin_T: npt.NDArray[np.bool_]
    may_end_T: npt.NDArray[np.bool_]
    """Whether an answer may begin, and end, with the token: not inside a word."""

    @classmethod
    def of(cls, text: str, encoding: Encoding) -> EncodedPassage:
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        words = np.array(encoding.word_ids, np.int64)
        solid = np.append(0, words[1:] == words[:-1])[: len(words)].astype(np.int64)
        inside = [match.start() for match in _INSIDE_WORD.finditer(text)]
        may_begin_T, may_end_T = ~np.isin(offsets, inside).T
        return cls(
            text,
            np.array(encoding.ids, np.int64),
            offsets[:, 0],
            offsets[:, 1],
            solid,
            may_begin_T,
            may_end_T,
        )

    def __len__(self) -> int:
        return len(self.ids_T)

    def find_tokens(self, span: tuple[int, int]) -> tuple[int, int] | None:
        """Find the first and the last token of a stretch of characters; none: it has no token."""
        first = int(np.searchsorted(self.ends_T, span[0], side="right"))
        last = int(np.searchsorted(self.starts_T, span[1], side="left")) - 1
        return (first, last) if first <= last else None

    def text_of(self, first: int, last: int) -> str:
        return self.text[self.starts_T[first] : self.ends_T[last]]

    def cut(self, room: int, overlap: int) -> list[Window]:
        """Cut it into windows, at sentences where one begins nearby, between words where not."""
        if len(self) <= room:
            return compute_windows(len(self), room, overlap) or [Window(0, 0, 0, 0)]
        return compute_windows(len(self), room, overlap, self._sentence_starts, self.continues_word_T.astype(np.bool_))

    @cached_property
    def _sentence_starts(self) -> list[int]:
        starts = [start for start, _ in split_sentences(self.text)]
        return [int(token) for token in np.searchsorted(self.starts_T, starts)]


@dataclass(frozen=True, eq=False)
class AnswerLayout:
    """Where the places of the rows stand in the passage."""

    passage: EncodedPassage
    windows: tuple[Window, ...]


@dataclass(frozen=True, eq=False)
class AnswerRowBuilder:
    """How questions and passages become rows."""

    tokenizer: Tokenizer
    max_tokens: int
    """Tokens of a row at most."""
    settings: AnswerSettings
    script: AnswerScorer
    is_training: bool = False
    """Whether questions whose answer cannot be pointed at are left out."""

    def encode(self, examples: Sequence[AnswerExample]) -> list[EncodedExample]:
        """Encode examples; passages that several questions share are tokenized once."""
        texts = list(dict.fromkeys(example.passage for example in examples))
        encoded = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        passages = {text: EncodedPassage.of(text, encoding) for text, encoding in zip(texts, encoded, strict=True)}
        questions = self.tokenizer.encode_batch([example.question for example in examples], add_special_tokens=False)
        return [
            self._encoded(example, question, passages[example.passage])
            for example, question in zip(examples, questions, strict=True)
        ]

    def _encoded(self, example: AnswerExample, question: Encoding, passage: EncodedPassage) -> EncodedExample:
        most = min(self.settings.max_question_length, (self.max_tokens - 3) // 2)
        ids = np.array(question.ids[:most], np.int64)
        room = self.max_tokens - 3 - len(ids)
        cuts = passage.cut(room, min(self.settings.overlap, room // 2))
        taught = example.training_answer()
        is_known = example.answers is not None and (taught is not None or not example.answers)
        rows = [
            self._row(ids, passage, window, _answer_positions(taught, passage, window) if is_known else None)
            for window in cuts
            if is_known or not self.is_training
        ]
        coverage = Coverage(
            examples=1,
            characters=len(example.question) + len(example.passage),
            tokens=sum(row.length for row in rows),
            windows=len(rows),
            split_examples=int(len(cuts) > 1),
            unknown=sum(int(np.count_nonzero(part == self.tokenizer.unk_id)) for part in (ids, passage.ids_T)),
            gold=int(example.answers is not None),
            unreachable=int(bool(example.answers) and not self._reachable(example, passage, cuts)),
            cut_characters=sum(end - start for start, end in question.offsets[most:]),
        )
        return EncodedExample(tuple(rows), coverage, AnswerLayout(passage, tuple(cuts)))

    def _row(self, question: IntArray, passage: EncodedPassage, window: Window, gold: IntArray | None) -> Row:
        inside = passage.ids_T[window.start : window.end]
        first = len(question) + 2
        sep = self.tokenizer.sep_id
        return Row(
            ids=np.concatenate([[self.tokenizer.cls_id], question, [sep], inside, [sep]]),
            positions=np.append(0, np.arange(first, first + len(inside))),
            labels=gold,
            segments=np.repeat([0, 1], [first, len(inside) + 1]),
        )

    def _reachable(self, example: AnswerExample, passage: EncodedPassage, cuts: Sequence[Window]) -> bool:
        """Whether any right answer can be given word for word."""
        for answer in example.answers or ():
            for span in answer.spans:
                tokens = passage.find_tokens(span)
                if (
                    tokens
                    and passage.may_begin_T[tokens[0]]
                    and passage.may_end_T[tokens[1]]
                    and self._can_give(*tokens, cuts)
                    and self.script.exact(answer.text, passage.text_of(*tokens))
                ):
                    return True
        return False

    def _can_give(self, first: int, last: int, cuts: Sequence[Window]) -> bool:
        is_short = last - first < self.settings.max_answer_length
        return is_short and any(cut.own_start <= first < cut.own_end and last < cut.end for cut in cuts)


def count_answer_tokens(example: AnswerExample, layout: AnswerLayout) -> int | None:
    """Count the tokens of the shortest right answer; none: there is none, or it does not stand in the passage."""
    spans = [layout.passage.find_tokens(span) for answer in example.answers or () for span in answer.spans]
    return min((tokens[1] - tokens[0] + 1 for tokens in spans if tokens), default=None)


def _answer_positions(answer: GoldAnswer | None, passage: EncodedPassage, window: Window) -> IntArray:
    """Find start and end of the answer in a window, as places of its row; of several places the first that is whole."""
    for span in answer.spans if answer else ():
        tokens = passage.find_tokens(span)
        if tokens and window.start <= tokens[0] and tokens[1] < window.end:
            return np.array([[token - window.start + 1 for token in tokens]], np.int64)
    return np.zeros((1, 2), np.int64)
