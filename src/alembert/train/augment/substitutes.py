"""The words that may replace others, and which of them are nearest to a word.

In: a tokenizer, and the words of the data with how often they occur. Out: `SubstituteWords`, the words of the vocabulary and
of the data that carry meaning, Chinese ones apart by their number of characters; and, with an embedding matrix, the
nearest of them to any word: the cosine between the means of the words' rows. All rows have a part in common that says
nothing (their mean), which is taken away first. Nothing is downloaded: what TinyBERT does with word vectors of its own,
the model's first layer does here.
"""

# V vocabulary, E width, W words, Q words that are asked about
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from alembert.text.replacement import is_chinese, is_replacement_word
from alembert.text.tokenizer import Tokenizer

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
