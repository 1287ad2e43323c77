"""The inputs of a decision: the words of the windows that decide about it, and the features that are read beside them.

An input is a set of cells: tokens of rows, and for a feature its columns. To leave a word out, its pieces become [MASK] and
its features say nothing; a feature can be left out alone. So all rows keep their length, and a margin can be computed
without any of the inputs. Windows whose outputs the margin does not depend on are not computed again.
"""

# T tokens, F features
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

from alembert.data.windows import Row, TokenFeatures
from alembert.infer.task_model import ModelTask, TaskEngine
from alembert.tasks.example import EncodedExample, Example
from alembert.tasks.margin import Margin, MarginQuestion, TaskMargins, TextPlace, trace_pieces
from alembert.tasks.runtime import Outputs
from alembert.text.surface import MATCH_TAGS

BATCH_TOKENS: Final = 8192
"""Tokens that are computed together, and before another thread has its turn."""
_CASE: Final = "case of "
_LEXICON: Final = "lexicon "
_FIRST_OF_MATCH: Final = (1 + MATCH_TAGS.index("begin"), 1 + MATCH_TAGS.index("single"))


@dataclass(frozen=True, eq=False)
class InputUnit:
    """A word, or a feature of one or several words."""

    kind: Literal["word", "feature"]
    name: str
    """The text of the word, or what the feature says."""
    text: int
    start: int
    end: int
    cells: Mapping[int, tuple[int, ...]]
    """Tokens of each row."""
    columns: tuple[int, ...] = ()
    """Columns of the features."""


@dataclass(frozen=True, eq=False)
class DecisionInputs:
    """A decision about an example, with what it depends on."""

    part: ModelTask
    engine: TaskEngine
    example: Example
    encoded: EncodedExample
    outputs: Sequence[Outputs]
    """Those of all rows, with all inputs."""
    question: MarginQuestion

    @cached_property
    def margins(self) -> TaskMargins[Any]:
        """What computes the margin."""
        return self.part.task.margins()

    @cached_property
    def places(self) -> list[list[TextPlace | None]]:
        """Where the tokens of the rows stand in the texts."""
        traced = trace_pieces(self.part.task, self.example, self.engine.tokenizer, self.engine.max_tokens)
        return [self.margins.locate(self.example, self.encoded, row, pieces) for row, pieces in enumerate(traced)]

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """What each column of the features is."""
        return tuple(self.part.task.token_features)[1:]  # the first row of the table stands for nothing

    @cached_property
    def base(self) -> Margin:
        """The margin with all inputs."""
        return self._margin(self.outputs)

    @cached_property
    def deciding_rows(self) -> list[int]:
        """The rows whose outputs the margin depends on."""
        return [number for number, gradient in enumerate(self.base.gradient) if gradient.any()]

    @property
    def tokens(self) -> int:
        """What one evaluation computes."""
        return sum(self.encoded.rows[row].length for row in self.deciding_rows)

    # -- units

    @cached_property
    def words(self) -> list[InputUnit]:
        """The words of the rows that decide, in the order of the texts."""
        cells: dict[Any, dict[int, list[int]]] = {}
        spans: dict[Any, list[TextPlace]] = {}
        for row, token, place in self._tokens():
            cells.setdefault(place.word, {}).setdefault(row, []).append(token)
            spans.setdefault(place.word, []).append(place)
        units = [
            self._unit("word", places, {row: tuple(own) for row, own in cells[word].items()})
            for word, places in spans.items()
        ]
        return sorted(units, key=lambda unit: (unit.text, unit.start))

    def _tokens(self) -> Iterator[tuple[int, int, TextPlace]]:
        for row in self.deciding_rows:
            for token, place in enumerate(self.places[row]):
                if place is not None:
                    yield row, token, place

    def _unit(
        self, kind: Literal["word", "feature"], places: Sequence[TextPlace], cells: Mapping[int, tuple[int, ...]]
    ) -> InputUnit:
        start, end = min(place.start for place in places), max(place.end for place in places)
        return InputUnit(kind, self.example.texts[places[0].text][start:end], places[0].text, start, end, cells)

    @cached_property
    def features(self) -> list[InputUnit]:
        """The letter case of each word that has letters with a case, and each match of a lexicon."""
        case = tuple(number for number, name in enumerate(self.feature_names) if name.startswith(_CASE))
        cased = [
            replace(word, kind="feature", name=f"letter case of {word.name}", columns=case)
            for word in self.words
            if word.name.lower() != word.name.upper()
        ]
        return [*(cased if case else ()), *self._matches()]

    def _matches(self) -> Iterator[InputUnit]:
        for column, name in enumerate(self.feature_names):
            if not name.startswith(_LEXICON):
                continue
            for row in self.deciding_rows:
                for tokens in _split_matches(self.encoded.rows[row].features, column):
                    places = [place for token in tokens if (place := self.places[row][token]) is not None]
                    unit = self._unit("feature", places, {row: tuple(tokens)})
                    yield replace(unit, name=f"{name}: {unit.name}", columns=(column,))

    # -- margins without some of the inputs

    @property
    def baseline(self) -> list[Row]:
        """The deciding rows without any input."""
        return [self._without(row, self.words) for row in self.deciding_rows]

    def margins_without(self, left_out: Iterable[Sequence[InputUnit]]) -> Iterator[float]:
        """Yield the margin without each set of inputs."""
        size = max(1, BATCH_TOKENS // max(1, self.tokens))
        sets = list(left_out)
        for begin in range(0, len(sets), size):
            chunk = sets[begin : begin + size]
            rows = [tuple(self._without(row, units) for row in self.deciding_rows) for units in chunk]
            with self.engine.lock:
                found = self.part.runner.outputs([EncodedExample(each, self.encoded.coverage) for each in rows])
            for outputs in found:
                yield self.margin_of(outputs).value

    def margin_of(self, outputs: Sequence[Outputs]) -> Margin:
        """Compute the margin with other outputs of the deciding rows."""
        changed = list(self.outputs)
        for row, own in zip(self.deciding_rows, outputs, strict=True):
            changed[row] = own
        return self._margin(changed)

    def _margin(self, outputs: Sequence[Outputs]) -> Margin:
        """Compute by how much the model's answer beats the best other one; what it does not answer is the other one."""
        margin = self.margins.margin(self.encoded, outputs, self.question)
        return margin if self.question.is_given else -margin

    def _without(self, number: int, units: Sequence[InputUnit]) -> Row:
        row = self.encoded.rows[number]
        words = [token for unit in units if unit.kind == "word" for token in unit.cells.get(number, ())]
        ids = row.ids.copy()
        ids[words] = self.engine.tokenizer.mask_id
        if row.features is None:
            return replace(row, ids=ids)
        rows_TF, nothing_F = row.features.rows_TF.copy(), row.features.nothing_F
        rows_TF[words] = nothing_F
        for unit in units:
            for column in unit.columns:
                rows_TF[list(unit.cells.get(number, ())), column] = nothing_F[column]
        return replace(row, ids=ids, features=TokenFeatures(rows_TF, nothing_F))


def _split_matches(features: TokenFeatures | None, column: int) -> Iterator[list[int]]:
    """Yield the tokens of each match of a lexicon in a row."""
    if features is None:
        return
    tags = (features.rows_TF[:, column] - features.nothing_F[column]).tolist()
    match: list[int] = []
    for token, tag in enumerate([*tags, 0]):
        begins = tag in _FIRST_OF_MATCH and (not match or tags[token - 1] != tag)
        if match and (not tag or begins):
            yield match
            match = []
        if tag:
            match.append(token)
