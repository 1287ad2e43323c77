"""Margins of entities: the best path of tags with an entity against the best one without it.

A path without the entity has another tag at one of its words, or goes on with it after its end; the best of them is
found by excluding each tag in turn. A span head scores spans one by one, so there the margin is the score of the span,
which would be left out at 0.
"""

# W words of a sequence of tags, C tags, K width of queries and keys
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from alembert.errors import BadInput
from alembert.tasks.example import EncodedExample
from alembert.tasks.margin import Margin, MarginQuestion, TaskMargins, find_class, quote, without_changes
from alembert.tasks.runtime import Outputs
from alembert.tasks.tag.crf import FORBIDDEN_SCORE, TagIds, find_best_path
from alembert.tasks.tag.data import TagExample
from alembert.text.sentences import Span

if TYPE_CHECKING:
    from alembert.tasks.tag.rows import TagLayout
    from alembert.tasks.tag.task import TagTask

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TagMargins(TaskMargins[TagExample]):
    """Margins of a tagger's entities; an answer is first word, end and type."""

    task: TagTask

    def questions(
        self,
        example: TagExample,
        encoded: EncodedExample,
        outputs: Sequence[Outputs],
        span: Span | None,
        label: str | None,
    ) -> list[MarginQuestion]:
        find_class(label, self.task.types or tuple(dict.fromkeys(tag[2:] for tag in self.task.tags if tag != "O")))
        found = self._predicted(example, encoded, outputs)
        fits = [each for each in found if label in (None, each.label)]
        if span is None:
            return fits or self._refuse(label)
        words = self._find_words(encoded.layout, span)
        return [each for each in fits if each.answer[:2] == words] or self._absent(
            example, encoded, outputs, words, label
        )

    def _predicted(
        self, example: TagExample, encoded: EncodedExample, outputs: Sequence[Outputs]
    ) -> list[MarginQuestion]:
        """List the entities that are found, the least certain first."""
        entities = sorted(self.task.decode(encoded, outputs).entities, key=lambda entity: entity.score)
        return [
            MarginQuestion(
                f"why {quote(example.text, (entity.start, entity.end))} is {entity.label}",
                entity.label,
                (*self._find_words(encoded.layout, (entity.start, entity.end)), entity.label),
                (entity.start, entity.end),
                entity.score,
            )
            for entity in entities
        ]

    def _absent(
        self,
        example: TagExample,
        encoded: EncodedExample,
        outputs: Sequence[Outputs],
        words: tuple[int, int],
        label: str | None,
    ) -> list[MarginQuestion]:
        """Ask about an entity that the model does not find; without a type about the one that fits best."""
        offsets = encoded.layout.words
        span = int(offsets.starts_W[words[0]]), int(offsets.ends_W[words[1] - 1])
        types = [label] if label else dict.fromkeys(tag[2:] for tag in self.task.tags if tag != "O")
        asked = [
            MarginQuestion(f"why {quote(example.text, span)} is not {each}", each, (*words, each), span, is_given=False)
            for each in types
        ]
        return sorted(asked, key=lambda question: -self.margin(encoded, outputs, question).value)

    def _refuse(self, label: str | None) -> list[MarginQuestion]:
        what = f"entity with the label {label}" if label else "entity"
        raise BadInput(
            f"The model finds no {what} in the text, so there is none to explain. To ask why "
            "not, give a span of characters."
        )

    def _find_words(self, layout: TagLayout, span: Span) -> tuple[int, int]:
        """Find the words that a span of characters touches."""
        first = int(np.searchsorted(layout.words.ends_W, span[0], side="right"))
        end = int(np.searchsorted(layout.words.starts_W, span[1], side="left"))
        if first >= end:
            raise BadInput(f"The span {span[0]}:{span[1]} has no word of the text. Give the characters of an entity.")
        return first, end

    def margin(self, encoded: EncodedExample, outputs: Sequence[Outputs], question: MarginQuestion) -> Margin:
        first, end, label = question.answer
        if self.task.settings.head == "span":
            return self._span_margin(encoded.layout, outputs, first, end, label)
        return self._path_margin(encoded.layout, outputs, first, end, label)

    # -- paths

    def _path_margin(self, layout: TagLayout, outputs: Sequence[Outputs], first: int, end: int, label: str) -> Margin:
        number = int(np.searchsorted(layout.first_words_of_sequences, first, side="right")) - 1
        begin = layout.first_words_of_sequences[number]
        emissions_WC = layout.split_sequences(outputs)[number].astype(np.float64)
        if end - begin > len(emissions_WC):
            raise BadInput("The span goes over the end of a sentence, and the model reads sentences one by one.")
        chosen_WC = self._allowed_with(len(emissions_WC), first - begin, end - begin, label)
        best, path_W = self._best_path(emissions_WC, chosen_WC)
        others = [self._best_path(emissions_WC, other) for other in _exclusions(chosen_WC)]
        rival, rival_W = max(others, key=lambda scored: scored[0])
        words_W = np.arange(len(path_W))
        gradient_WC = np.zeros(emissions_WC.shape, np.float32)
        gradient_WC[words_W, path_W] += 1
        gradient_WC[words_W, rival_W] -= 1
        return Margin(best - rival, tuple(_to_rows(gradient_WC, layout, outputs, number)))

    def _allowed_with(self, count: int, begin: int, end: int, label: str) -> _Mask:
        """Mark the tags (W, C) of paths that have an entity; of a head that was trained elsewhere, all of its type."""
        allowed_WC = np.ones((count, len(self.task.tags)), np.bool_)
        size = end - begin
        for word, prefixes in enumerate(_prefixes(size, self._has_ends), begin):
            allowed_WC[word] = [
                tag[2:] == label and (bool(self.task.output_names) or tag[0] in prefixes) for tag in self.task.tags
            ]
        if not self._has_ends and not self.task.output_names and end < count:
            allowed_WC[end] = [tag != f"I-{label}" for tag in self.task.tags]
        if not allowed_WC.any(1).all():
            raise BadInput(
                "The model tags words one by one, so a span of several words is no answer of it. Give one word."
            )
        return allowed_WC

    @property
    def _has_ends(self) -> bool:
        return self.task.settings.scheme == "bioes"

    def _best_path(self, emissions_WC: npt.NDArray[np.float64], allowed_WC: _Mask) -> tuple[float, TagIds]:
        """Return the best path of allowed tags and its score."""
        masked_WC = np.where(allowed_WC, emissions_WC, FORBIDDEN_SCORE)
        crf = self.task.crf_decoder
        if self.task.output_names:
            path_W: TagIds = masked_WC.argmax(1)
        elif crf is None:
            path_W = find_best_path(masked_WC, self.task.allowed_transitions)
        else:
            path_W = crf.decode(masked_WC, self.task.allowed_transitions)
        score = float(masked_WC[np.arange(len(path_W)), path_W].sum())
        if crf is not None:
            score += float(crf.transitions_CC[path_W[:-1], path_W[1:]].sum())
            score += float(crf.start_C[path_W[0]] + crf.end_C[path_W[-1]])
        return score, path_W

    # -- spans

    def _span_margin(self, layout: TagLayout, outputs: Sequence[Outputs], first: int, end: int, label: str) -> Margin:
        row = next(number for number, own in enumerate(layout.owned_words) if own[0] <= first < own[1])
        vectors_WC = outputs[row].astype(np.float64)
        i, j = first - layout.first_words[row], end - 1 - layout.first_words[row]
        if j >= len(vectors_WC):
            raise BadInput("The span goes over the end of the window in which the model reads it. Give a shorter one.")
        types, kind = len(self.task.types), self.task.types.index(label)
        width = (vectors_WC.shape[1] - 2 * types) // 2
        query_K, key_K = vectors_WC[i, :width], vectors_WC[j, width : 2 * width]
        gradient = without_changes(outputs)
        gradient[row][i, :width] = key_K / np.sqrt(width)
        gradient[row][j, width : 2 * width] = query_K / np.sqrt(width)
        starts_at, ends_at = 2 * width + kind, 2 * width + types + kind
        gradient[row][i, starts_at] = gradient[row][j, ends_at] = 1
        value = query_K @ key_K / np.sqrt(width) + vectors_WC[i, starts_at] + vectors_WC[j, ends_at]
        return Margin(float(value), tuple(gradient))


def _prefixes(size: int, has_ends: bool) -> list[str]:
    """List the prefixes of the tags of an entity of so many words."""
    if not has_ends:
        return ["B", *["I"] * (size - 1)]
    return ["S"] if size == 1 else ["B", *["I"] * (size - 2), "E"]


def _exclusions(chosen_WC: _Mask) -> list[_Mask]:
    """List what other paths may have: at one of the words that are decided, what is not chosen there; elsewhere anything."""
    masks = []
    for word in np.flatnonzero(~chosen_WC.all(1)).tolist():
        mask_WC = np.ones_like(chosen_WC)
        mask_WC[word] = ~chosen_WC[word]
        masks.append(mask_WC)
    return masks


def _to_rows(gradient_WC: Outputs, layout: TagLayout, outputs: Sequence[Outputs], number: int) -> list[Outputs]:
    """Share the gradient of a sequence of tags out to its rows."""
    begin, end = [*layout.first_rows, len(outputs)][number : number + 2]
    gradient = without_changes(outputs)
    borders = list(accumulate(len(each) for each in outputs[begin:end]))
    gradient[begin:end] = np.split(gradient_WC, borders[:-1])
    return gradient
