"""Which words may stand in the place of the words of a text.

In: texts with the words that may be replaced, and a model. Out: for each word its candidates: from the masked LM of the
model where the word is one piece (or a Chinese word of the data), otherwise its nearest neighbours in the model's own
embedding matrix. A model without a masked-LM head gives neighbours alone, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from alembert.files.checkpoint import Checkpoint
from alembert.text.replacement import match_case
from alembert.text.sentences import Span
from alembert.text.tokenizer import Encoding, Tokenizer
from alembert.text.vocabulary import CONTINUATION_PREFIX
from alembert.train.fill import Filler, Gap, masked_lm_of
from alembert.train.substitutes import Neighbours, Substitutes, folded, group_of


@dataclass(frozen=True, slots=True)
class Slot:
    """A word of a text, and what may stand in its place."""

    start: int
    end: int
    candidates: tuple[str, ...]
    """In the order of the alphabet."""
    is_filled: bool = False
    """Whether the candidates come from a masked LM."""


class Candidates:
    """A model that is asked for the candidates of words."""

    def __init__(self, checkpoint: Checkpoint, tokenizer: Tokenizer, words: Mapping[str, int], count: int) -> None:
        """Take a model, the words of the data with how often they occur, and how many candidates a word has."""
        self._tokenizer = tokenizer
        self._count = count
        substitutes = Substitutes.of(tokenizer, words)
        self._neighbours = Neighbours(substitutes, checkpoint.model.encoder.embeddings.token.weight.cpu(), count)
        head = masked_lm_of(checkpoint)
        self._filler = None if head is None else Filler(checkpoint, head, substitutes, count)
        self._goes_on = [piece.startswith(CONTINUATION_PREFIX) for piece in tokenizer.vocabulary]

    @property
    def note(self) -> str:
        """Say where candidates come from."""
        if self._filler is not None:
            return "candidates are those of the masked LM, and nearest neighbours where a word is several pieces"
        return (
            "the model has no masked-LM head, so that all candidates are nearest neighbours in its embedding matrix; "
            "name a model that has one with --words (from Python: give its Checkpoint)"
        )

    def slots(self, texts: Sequence[str], words: Sequence[Sequence[Span]]) -> list[list[Slot]]:
        """Find the candidates of the words of each text; words that have none are left out."""
        filled = self._filled(texts, words)
        listed = [(text, span) for text, spans in zip(texts, words, strict=True) for span in spans]
        rest = [text[slice(*span)] for number, (text, span) in enumerate(listed) if number not in filled]
        self._neighbours.find(rest)
        numbers = iter(range(len(listed)))
        found = [
            [self._slot(text, span, filled.get(next(numbers))) for span in spans]
            for text, spans in zip(texts, words, strict=True)
        ]
        return [[slot for slot in each if slot.candidates] for each in found]

    def _slot(self, text: str, span: Span, filled: Sequence[str] | None) -> Slot:
        word = text[slice(*span)]
        known = self._neighbours.of(word) if filled is None else filled
        own = folded(word, self._tokenizer)
        others = [each for each in known if folded(each, self._tokenizer) != own][: self._count]
        if self._tokenizer.lowercase:
            others = [match_case(word, each) for each in others]
        # Which are the best hardly depends on how texts were put into batches, their order may: it must not matter.
        return Slot(*span, tuple(sorted(others)), filled is not None)

    def _filled(self, texts: Sequence[str], words: Sequence[Sequence[Span]]) -> dict[int, list[str]]:
        """Ask the masked LM; words have the numbers in which they come."""
        if self._filler is None:
            return {}
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        gaps: list[list[Gap]] = []
        first = 0
        for text, encoding, spans in zip(texts, encodings, words, strict=True):
            gaps.append(list(self._gaps(text, encoding, spans, first)))
            first += len(spans)
        return dict(self._filler.fill([each.ids for each in encodings], gaps))

    def _gaps(self, text: str, encoding: Encoding, spans: Sequence[Span], first: int) -> Iterator[Gap]:
        """Find the words whose pieces the masked LM can fill."""
        assert self._filler is not None
        # Several pieces of one character share its place: a word begins with the first and ends with the last.
        starts = {start: number for number, (start, _) in reversed([*enumerate(encoding.offsets)])}
        ends = {end: number for number, (_, end) in enumerate(encoding.offsets)}
        goes_on = [self._goes_on[number] for number in encoding.ids] + [False]
        for number, (start, end) in enumerate(spans, start=first):
            begin, last = starts.get(start), ends.get(end)
            if begin is None or last is None or goes_on[last + 1]:
                continue
            size, group = last - begin + 1, group_of(text[start:end])
            if self._filler.knows(group, size):
                yield Gap(number, begin, size, group)
