"""The words that may stand in the place of the words of a text: a masked LM's proposals, and nearest neighbours.

In: texts with the words that may be replaced, and a model. Out: for each word its candidates: from the masked LM of the
model where the word is one piece (or a Chinese word of the data), otherwise its nearest neighbours in the model's own
embedding matrix. A model without a masked-LM head gives neighbours alone, and says so.

Neighbours are taken from `SubstituteWords`: the words of the vocabulary and of the data that carry meaning, Chinese
ones apart by their number of characters. They are compared by the cosine between the means of the words' rows. All rows
have a part in common that says nothing (their mean), which is taken away first. Nothing is downloaded: what TinyBERT
does with word vectors of its own, the model's first layer does here.

As in TinyBERT the masked LM reads the text with the word masked, [SEP], and the text as it is. Unlike there, a quarter
of the asked words are masked at a time, so that a text is read four times instead of once a word: each hidden word
still stands in the second half, and no more is hidden than in pre-training. A word that is one piece is filled by words
that are one piece. A Chinese word is masked whole, and the words of as many characters compete by the sum of their
characters' scores, so that only real words come out. Texts too long for the model are cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from alembert.files.checkpoint import Checkpoint
from alembert.nn.batch import Batch
from alembert.tasks.runtime.torch import map_batches
from alembert.text.replacement import is_chinese, is_replacement_word, match_case
from alembert.text.sentences import Span
from alembert.text.tokenizer import Encoding, Tokenizer
from alembert.text.vocabulary import CONTINUATION_PREFIX

# V vocabulary, E width, W words, Q words that are asked about


_WORDS_PER_BATCH: Final = 512
_MIN_LETTERS: Final = 3
"""Letters of a piece at least: shorter ones are fragments of words more often than words."""
NOT_CHINESE: Final = 0
"""Group of all words that are not Chinese; those of n Chinese characters are group n."""


def get_group(word: str) -> int:
    """Name the group whose words may replace a word."""
    return len(word) if is_chinese(word) else NOT_CHINESE


@dataclass(frozen=True)
class SubstituteWords:
    """All words that may replace others, in groups."""

    tokenizer: Tokenizer
    groups: Mapping[int, Mapping[str, tuple[int, ...]]]
    """Words that may replace each other, in the order of the alphabet, with their pieces; one spelling of each."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, words: Mapping[str, int]) -> SubstituteWords:
        """Take the words of the vocabulary, and those of the data in their most frequent spelling."""
        pieces = (piece for piece in tokenizer.vocabulary if is_replacement_word(piece) and len(piece) >= _MIN_LETTERS)
        counts = Counter(dict.fromkeys(pieces, 0))
        counts.update(words)
        spelt: dict[str, str] = {}
        for word in sorted(counts, key=lambda word: (-counts[word], word)):
            spelt.setdefault(fold_case(word, tokenizer), word)
        listed = sorted(spelt.values())
        groups: dict[int, dict[str, tuple[int, ...]]] = {}
        for word, ids in zip(listed, encode_words(listed, tokenizer), strict=True):
            if ids:
                groups.setdefault(get_group(word), {})[word] = ids
        return cls(tokenizer, groups)


def fold_case(word: str, tokenizer: Tokenizer) -> str:
    """Return what the tokenizer sees of a word."""
    return word.lower() if tokenizer.lowercase else word


def encode_words(words: Sequence[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Return the pieces of each word; none if one of them is unknown."""
    encodings = tokenizer.encode_batch(words, add_special_tokens=False, offsets=False)
    return [() if tokenizer.unk_id in encoding.ids else encoding.ids for encoding in encodings]


class NearestWords:
    """The nearest substitutes of words, each found once."""

    def __init__(self, substitutes: SubstituteWords, embedding_VE: Tensor, count: int) -> None:
        self._substitutes = substitutes
        self._tokenizer = substitutes.tokenizer
        self._embedding_VE = embedding_VE.detach().float()
        self._count = count
        self._found: dict[str, tuple[str, ...]] = {}
        pieces = self._tokenizer.vocabulary
        self._has_letters = torch.tensor([any(map(str.isalnum, piece)) for piece in pieces])
        self._mean_E = self._embedding_VE[: len(pieces)][self._has_letters].mean(0)
        self._vectors: dict[int, tuple[list[str], Tensor]] = {}

    def of(self, word: str) -> tuple[str, ...]:
        """Return the nearest words to one that `find` has seen, the nearest first; none if a piece of it is unknown."""
        return self._found[fold_case(word, self._tokenizer)]

    @torch.inference_mode()
    def find(self, words: Sequence[str]) -> None:
        """Look up the words that were not looked up before."""
        fresh = sorted({fold_case(word, self._tokenizer) for word in words} - self._found.keys())
        asked: dict[int, dict[str, tuple[int, ...]]] = {}
        for word, ids in zip(fresh, encode_words(fresh, self._tokenizer), strict=True):
            self._found[word] = ()
            if ids and get_group(word) in self._substitutes.groups:
                asked.setdefault(get_group(word), {})[word] = ids
        for group, ids_of_word in asked.items():
            names = list(ids_of_word)
            for start in range(0, len(names), _WORDS_PER_BATCH):
                part = names[start : start + _WORDS_PER_BATCH]
                self._find(group, {name: ids_of_word[name] for name in part})

    def _find(self, name: int, words: Mapping[str, tuple[int, ...]]) -> None:
        group = self._substitutes.groups[name]
        listed, vectors_WE = self._group(name)
        rows_QE = self._rows(list(words.values()))
        # A word is near to those that it begins with, as "missense" is to "mis": fragments, which are left out.
        most = min(self._count + max(map(len, words.values())), len(listed))
        best = (rows_QE @ vectors_WE.T).topk(most).indices.tolist()
        for (word, ids), numbers in zip(words.items(), best, strict=True):
            others = (listed[number] for number in numbers)
            kept = [other for other in others if group[other] != ids[: len(group[other])]]
            self._found[word] = tuple(kept[: self._count])

    def _group(self, name: int) -> tuple[list[str], Tensor]:
        if name not in self._vectors:
            group = self._substitutes.groups[name]
            self._vectors[name] = list(group), self._rows(list(group.values()))
        return self._vectors[name]

    def _rows(self, ids: Sequence[tuple[int, ...]]) -> Tensor:
        """Return the direction of each word; hyphens and the like have no part in it."""
        words = [[number for number in pieces if self._has_letters[number]] or pieces for pieces in ids]
        flat = torch.tensor([number for pieces in words for number in pieces])
        starts = torch.tensor([0, *map(len, words[:-1])]).cumsum(0)
        means_WE = functional.embedding_bag(flat, self._embedding_VE, starts, mode="mean")
        return functional.normalize(means_WE - self._mean_E)


# P masked positions, V vocabulary, Q words, W substitutes


_ROWS_PER_TEXT: Final = 4
"""Rows of a text: each hides a part of its words."""
_MAX_TOKENS: Final = 256
"""Tokens of a row at most: neighbours further away do not help to guess a word."""


@dataclass(frozen=True, slots=True)
class MaskedWord:
    """A word to be masked."""

    number: int
    """What the caller calls it."""
    start: int
    """Its first piece."""
    size: int
    """How many pieces it has."""
    group: int
    """What it may be filled with: see `SubstituteWords`."""


@dataclass(frozen=True, slots=True)
class _MaskedRow:
    """A row, and the words that are masked in it, by their places in the row."""

    ids: list[int]
    segments: list[int]
    gaps: tuple[MaskedWord, ...]


def find_masked_lm_head(checkpoint: Checkpoint) -> str | None:
    """Name the head that can fill masks; none: there is none, or the model reads from left to right."""
    if checkpoint.blueprint.config.attention != "bidirectional":
        return None
    heads = checkpoint.blueprint.heads.items()
    return next((name for name, spec in heads if spec.kind == "masked_lm"), None)


class MaskFiller:
    """A masked LM that is asked for substitutes."""

    def __init__(self, checkpoint: Checkpoint, head: str, substitutes: SubstituteWords, count: int) -> None:
        self._model = checkpoint.model.eval()
        self._head = head
        self._tokenizer = substitutes.tokenizer
        self._count = count
        config = checkpoint.blueprint.config
        self.longest = (min(_MAX_TOKENS, config.max_position_embeddings) - 3) // 2
        """Pieces of a text that are read at once."""
        self._second = min(1, config.type_vocab_size - 1)
        self._device = self._model.encoder.embeddings.token.weight.device
        self._words: dict[int, list[str]] = {}
        self._choices: dict[int, Tensor] = {}
        for name, group in substitutes.groups.items():
            fitting = {word: ids for word, ids in group.items() if len(ids) == (name or 1)}
            self._words[name] = list(fitting)
            self._choices[name] = torch.tensor(list(fitting.values()), device=self._device)

    def knows(self, group: int, size: int) -> bool:
        """Return whether a word of this group that is so many pieces can be filled."""
        return size == (group or 1) and len(self._words.get(group, ())) > 1

    def fill(
        self, texts: Sequence[Sequence[int]], gaps: Sequence[Sequence[MaskedWord]]
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of each gap with its likeliest fillings, in any order; a gap that a cut goes through has none.

        Whatever stands there now may be among them."""
        asked = [question for text, own in zip(texts, gaps, strict=True) for question in self._questions(text, own)]

        def compute(numbers: list[int]) -> list[tuple[int, list[str]]]:
            with torch.inference_mode():
                return list(self._answers([asked[number] for number in numbers]))

        for fillings in map_batches(compute, [len(question.ids) for question in asked], self._device):
            yield from fillings

    def _questions(self, ids: Sequence[int], gaps: Sequence[MaskedWord]) -> Iterator[_MaskedRow]:
        for start in range(0, len(ids), self.longest):
            part = list(ids[start : start + self.longest])
            inside = [gap for gap in gaps if start <= gap.start and gap.start + gap.size <= start + len(part)]
            for turn in range(min(_ROWS_PER_TEXT, len(inside))):
                yield self._question(part, start, inside[turn::_ROWS_PER_TEXT])

    def _question(self, part: list[int], begin: int, gaps: Sequence[MaskedWord]) -> _MaskedRow:
        tokenizer = self._tokenizer
        hidden = list(part)
        for gap in gaps:
            at = gap.start - begin
            hidden[at : at + gap.size] = [tokenizer.mask_id] * gap.size
        ids = [tokenizer.cls_id, *hidden, tokenizer.sep_id, *part, tokenizer.sep_id]
        segments = [0] * (len(part) + 2) + [self._second] * (len(part) + 1)
        placed = tuple(MaskedWord(gap.number, gap.start - begin + 1, gap.size, gap.group) for gap in gaps)
        return _MaskedRow(ids, segments, placed)

    def _answers(self, questions: Sequence[_MaskedRow]) -> Iterator[tuple[int, list[str]]]:
        batch = Batch.packed([question.ids for question in questions], [question.segments for question in questions])
        starts = batch.starts_B.tolist()
        gaps = [(begin, gap) for begin, question in zip(starts, questions, strict=True) for gap in question.gaps]
        places = [begin + gap.start + n for begin, gap in gaps for n in range(gap.size)]
        predicted_P = torch.tensor(places, device=self._device)
        outputs = self._model(batch.to(self._device), [self._head], predicted_P=predicted_P, only=True)
        firsts: dict[int, dict[int, int]] = {}
        at = 0
        for _, gap in gaps:
            firsts.setdefault(gap.group, {})[gap.number] = at
            at += gap.size
        yield from self._best(outputs[self._head].float(), firsts)

    def _best(self, logits_PV: Tensor, firsts: Mapping[int, Mapping[int, int]]) -> Iterator[tuple[int, list[str]]]:
        """Rank the words of each group at the gaps of the group, given by the line of their first piece."""
        for group, of_gaps in firsts.items():
            choices_WN, words = self._choices[group], self._words[group]
            lines_Q = torch.tensor(list(of_gaps.values()), device=self._device)
            scores_QW = torch.zeros(len(lines_Q), len(words), device=self._device)
            for piece in range(choices_WN.shape[1]):
                scores_QW += logits_PV[lines_Q + piece][:, choices_WN[:, piece]]
            best = scores_QW.topk(min(self._count + 1, len(words))).indices.tolist()
            for number, chosen in zip(of_gaps, best, strict=True):
                yield number, [words[index] for index in chosen]


@dataclass(frozen=True, slots=True)
class WordSlot:
    """A word of a text, and what may stand in its place."""

    start: int
    end: int
    candidates: tuple[str, ...]
    """In the order of the alphabet."""
    is_filled: bool = False
    """Whether the candidates come from a masked LM."""


class CandidateFinder:
    """A model that is asked for the candidates of words."""

    def __init__(self, checkpoint: Checkpoint, tokenizer: Tokenizer, words: Mapping[str, int], count: int) -> None:
        """Take a model, the words of the data with how often they occur, and how many candidates a word has."""
        self._tokenizer = tokenizer
        self._count = count
        substitutes = SubstituteWords.of(tokenizer, words)
        self._neighbours = NearestWords(substitutes, checkpoint.model.encoder.embeddings.token.weight.cpu(), count)
        head = find_masked_lm_head(checkpoint)
        self._filler = None if head is None else MaskFiller(checkpoint, head, substitutes, count)
        self._goes_on = [piece.startswith(CONTINUATION_PREFIX) for piece in tokenizer.vocabulary]

    @property
    def note(self) -> str:
        """Describe where candidates come from."""
        if self._filler is not None:
            return "candidates are those of the masked LM, and nearest neighbours where a word is several pieces"
        return (
            "the model has no masked-LM head, so that all candidates are nearest neighbours in its embedding matrix; "
            "name a model that has one with --set run.words=FOLDER (from Python: give its Checkpoint)"
        )

    def slots(self, texts: Sequence[str], words: Sequence[Sequence[Span]]) -> list[list[WordSlot]]:
        """Find the candidates of the words of each text; words that have none are left out."""
        filled = self._filled(texts, words)
        listed = [(text, span) for text, spans in zip(texts, words, strict=True) for span in spans]
        rest = [text[slice(*span)] for number, (text, span) in enumerate(listed) if number not in filled]
        self._neighbours.find(rest)
        numbers = iter(range(len(listed)))
        slots = [
            [self._slot(text, span, filled.get(next(numbers))) for span in spans]
            for text, spans in zip(texts, words, strict=True)
        ]
        return [[slot for slot in of_text if slot.candidates] for of_text in slots]

    def _slot(self, text: str, span: Span, filled: Sequence[str] | None) -> WordSlot:
        word = text[slice(*span)]
        neighbours = self._neighbours.of(word) if filled is None else filled
        own = fold_case(word, self._tokenizer)
        others = [candidate for candidate in neighbours if fold_case(candidate, self._tokenizer) != own][: self._count]
        if self._tokenizer.lowercase:
            others = [match_case(word, candidate) for candidate in others]
        # Which are the best hardly depends on how texts were put into batches, their order may: it must not matter.
        return WordSlot(*span, tuple(sorted(others)), filled is not None)

    def _filled(self, texts: Sequence[str], words: Sequence[Sequence[Span]]) -> dict[int, list[str]]:
        """Ask the masked LM; words have the numbers in which they come."""
        if self._filler is None:
            return {}
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        gaps: list[list[MaskedWord]] = []
        first = 0
        for text, encoding, spans in zip(texts, encodings, words, strict=True):
            gaps.append(list(self._gaps(text, encoding, spans, first)))
            first += len(spans)
        return dict(self._filler.fill([encoding.ids for encoding in encodings], gaps))

    def _gaps(self, text: str, encoding: Encoding, spans: Sequence[Span], first: int) -> Iterator[MaskedWord]:
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
            size, group = last - begin + 1, get_group(text[start:end])
            if self._filler.knows(group, size):
                yield MaskedWord(number, begin, size, group)
