"""Learn a WordPiece vocabulary from the words of a corpus, or remove the pieces that a corpus never uses.

`learn` takes a `WordCounts` and the size, and gives a `Vocabulary` with BERT's special tokens first ([PAD] is 0), then
the characters, then the words that must be whole, then pieces in the order in which they were learnt. Pieces are learnt
by joining the most frequent pair repeatedly (byte-pair encoding on characters), as the trainer of the library
`tokenizers` does under the name WordPiece, and are applied longest match first. This implementation works on counted
words instead of the text, and its result is the same on every run: equally frequent pairs are joined in the order of
their pieces, where the library's order changes with its hash seed. Pieces that were only steps towards longer ones
("syndrom") and that longest match never uses are replaced by more useful ones.

`prune` takes a tokenizer and a `WordCounts`, and gives a `Pruning`: the smaller tokenizer, the remaining ids, and the
proof that every word of the corpus is segmented as before. A piece that longest match never uses can be removed without
changing any segmentation. Special tokens, added tokens and single characters stay, so that words of other texts have
more pieces but are seldom unknown.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from alembert.errors import BadInput, BadSetting
from alembert.text.segmentation import (
    Int64Array,
    SegmentationComparison,
    Segmentations,
    compare_segmentations,
    segment_words,
)
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import MAX_WORD_CHARACTERS, TokenizerParts
from alembert.text.vocabulary import CONTINUATION_PREFIX, SpecialTokens, Vocabulary
from alembert.text.word_counts import WordCounts

PiecePair = tuple[int, int]

MAX_UNCOVERED_SHARE = 1e-6
"""The rarest characters, together this share of the text, get no piece; words with them are unknown."""
_ROUNDS = 4


def learn(
    word_counts: WordCounts, size: int, *, whole: Iterable[str] = (), min_count: int = 2, grow: bool = False
) -> Vocabulary:
    """Learn `size` pieces, or fewer if pairs that occur `min_count` times run out.

    With `grow`, the vocabulary is larger if the characters of the corpus need it; without, that is an error.

    >>> learn(WordCounts({"abab": 5, "abc": 3}), 13).pieces[5:]
    ('a', 'b', 'c', '##a', '##b', '##c', 'ab', '##ab')
    """
    if not word_counts.words:
        raise BadInput("The corpus has no words, so there is nothing to learn a vocabulary from.")
    alphabet = collect_alphabet(word_counts.words)
    start = [*SpecialTokens().roles().values(), *alphabet, *_continued(alphabet, word_counts.words)]
    words = sorted({word for word in whole if len(word) > 1 and set(word) <= set(alphabet)})
    if grow:
        size = max(size, len(start) + len(words))
    elif len(start) + len(words) > size:
        raise BadSetting(
            f"A vocabulary of {size:,} pieces is too small: the special tokens and the characters of this corpus take "
            f"{len(start):,}, and the words that must be whole {len(words):,}. Ask for more."
        )
    table = _PieceTable([*start, *words])
    fitting = {w: n for w, n in word_counts.words.items() if n >= min_count and 1 < len(w) <= MAX_WORD_CHARACTERS}
    pairs = _PairCounts(table, {w: n for w, n in fitting.items() if set(w) <= set(alphabet)})
    return Vocabulary(tuple(_learn_used_pieces(pairs, list(fitting), len(start) + len(words), size, min_count)))


def collect_alphabet(words: Mapping[str, int]) -> list[str]:
    """Return the characters that the vocabulary needs, in order; the very rarest are left out."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    allowed = MAX_UNCOVERED_SHARE * counts.total()
    dropped = set()
    for character, count in sorted(counts.items(), key=lambda entry: (entry[1], entry[0])):
        allowed -= count
        if allowed < 0:
            break
        dropped.add(character)
    return sorted(counts.keys() - dropped)


class _PieceTable:
    """Pieces and their numbers; joining two may give an existing piece."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces
        self.ids = {piece: number for number, piece in enumerate(pieces)}

    def join(self, pair: PiecePair) -> int:
        text = self.pieces[pair[0]] + self.pieces[pair[1]].removeprefix(CONTINUATION_PREFIX)
        if text not in self.ids:
            self.ids[text] = len(self.pieces)
            self.pieces.append(text)
        return self.ids[text]

    def spell(self, word: str) -> list[int]:
        return [self.ids[word[0]], *(self.ids[CONTINUATION_PREFIX + character] for character in word[1:])]


def _continued(characters: Iterable[str], words: Iterable[str]) -> list[str]:
    """Return the continuing form of each character that may occur inside a word, seen there or not."""
    seen = {character for word in words for character in word[1:]}
    # Punctuation and Chinese characters are words of their own.
    return [CONTINUATION_PREFIX + c for c in characters if c in seen or (c.isalnum() and not _is_ideograph(c))]


def _is_ideograph(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"


def _learn_used_pieces(pairs: _PairCounts, words: list[str], fixed: int, size: int, min_count: int) -> list[str]:
    """Learn more than `size` pieces, until that many of them are used."""
    target = size
    for _ in range(_ROUNDS):
        pairs.join_until(target, min_count)
        pieces = pairs.table.pieces
        useful = _find_used_pieces(pieces, words, fixed)
        if len(useful) >= size or len(pieces) < target:
            break
        target += size - len(useful)
    spare = sorted(set(range(len(pieces))) - set(useful))
    numbers = sorted([*useful, *spare][:size])
    return [pieces[number] for number in numbers]


def _find_used_pieces(pieces: list[str], words: list[str], fixed: int) -> list[int]:
    tokenizer = Tokenizer.from_vocabulary(Vocabulary(tuple(pieces)), lowercase=False)
    used = set(segment_words(tokenizer, words).ids.tolist())
    return [number for number in range(len(pieces)) if number < fixed or number in used]


class _PairCounts:
    """The pairs of neighbours in all words: how often each occurs, and in which words."""

    def __init__(self, table: _PieceTable, counts: Mapping[str, int]) -> None:
        self.table = table
        self._spellings = [table.spell(word) for word in counts]
        self._weights = list(counts.values())
        self._totals: defaultdict[PiecePair, int] = defaultdict(int)
        self._positions: defaultdict[PiecePair, set[int]] = defaultdict(set)
        for position, pieces in enumerate(self._spellings):
            self._add(position, pieces)
        self._heap = [(-total, pair) for pair, total in self._totals.items()]
        heapq.heapify(self._heap)

    def join_until(self, size: int, min_count: int) -> None:
        """Join the most frequent pair until there are so many pieces, or no frequent pair is left."""
        while self._heap and len(self.table.pieces) < size:
            total, pair = heapq.heappop(self._heap)
            current = self._totals.get(pair, 0)
            if current < min_count:
                continue
            if -total != current:
                heapq.heappush(self._heap, (-current, pair))
                continue
            for grown_pair in self._join(pair, self.table.join(pair)):
                heapq.heappush(self._heap, (-self._totals[grown_pair], grown_pair))

    def _join(self, pair: PiecePair, piece: int) -> set[PiecePair]:
        """Join all occurrences of a pair and return the pairs that became more frequent."""
        grown: set[PiecePair] = set()
        for position in self._positions.pop(pair):
            before = self._spellings[position]
            after = _join_pieces(before, pair, piece)
            if len(after) == len(before):
                continue  # an earlier join has used one of the pair
            for neighbours in pairwise(before):
                self._totals[neighbours] -= self._weights[position]
            self._add(position, after)
            self._spellings[position] = after
            grown.update(neighbours for neighbours in pairwise(after) if piece in neighbours)
        self._totals.pop(pair, None)
        return grown

    def _add(self, position: int, pieces: list[int]) -> None:
        for pair in pairwise(pieces):
            self._totals[pair] += self._weights[position]
            self._positions[pair].add(position)


def _join_pieces(pieces: list[int], pair: PiecePair, piece: int) -> list[int]:
    result: list[int] = []
    for number in pieces:
        if result and result[-1] == pair[0] and number == pair[1]:
            result[-1] = piece
        else:
            result.append(number)
    return result


@dataclass(frozen=True)
class Pruning:
    """A tokenizer without unused pieces."""

    tokenizer: Tokenizer
    kept_ids: tuple[int, ...]
    """Old ids of the pieces that stay, in the order of their new ids."""
    dropped: int
    proof: SegmentationComparison


def prune(tokenizer: Tokenizer, word_counts: WordCounts, max_pieces: int | None = None) -> Pruning:
    """Remove the pieces that the corpus does not use; with `max_pieces`, all but the most frequent ones too.

    Words of rare pieces are then segmented into smaller ones, which the comparison counts.
    """
    if not word_counts.words:
        raise BadInput("The corpus has no words, so every piece would be dropped. Give a corpus with text.")
    words = list(word_counts.words)
    before = segment_words(tokenizer, words)
    if max_pieces is None:
        kept = {*_protected_ids(tokenizer), *before.ids.tolist(), *_first_pieces_of_unknown(tokenizer, before)}
    else:
        kept = _most_frequent_ids(tokenizer, before, list(word_counts.words.values()), max_pieces)
    kept_ids = sorted(kept)
    smaller = _keep_only(tokenizer, kept_ids)
    new_ids: Int64Array = np.full(tokenizer.vocab_size, -1, dtype=np.int64)
    new_ids[kept_ids] = np.arange(len(kept_ids))
    after = (smaller, segment_words(smaller, words))
    proof = compare_segmentations((tokenizer, before), after, word_counts.words, new_ids=new_ids)
    return Pruning(smaller, tuple(kept_ids), tokenizer.vocab_size - len(kept_ids), proof)


def _protected_ids(tokenizer: Tokenizer, characters: Container[str] | None = None) -> Iterator[int]:
    """Yield the ids of special pieces and of single characters (none: of all that the vocabulary has)."""
    named = {token.content for token in tokenizer.parts.added} | set(tokenizer.vocabulary.special.roles().values())
    for number, piece in enumerate(tokenizer.vocabulary):
        bare = piece.removeprefix(CONTINUATION_PREFIX)
        if piece in named or (len(bare) == 1 and (characters is None or bare.isascii() or bare in characters)):
            yield number


def _most_frequent_ids(
    tokenizer: Tokenizer, segmentations: Segmentations, counts: Sequence[int], max_pieces: int
) -> set[int]:
    """Choose the most frequent pieces beside those without which words of the corpus would become unknown."""
    kept = set(_protected_ids(tokenizer, set().union(*segmentations.words)))
    if len(kept) > max_pieces:
        raise BadSetting(
            f"The special pieces and the characters of the corpus are {len(kept):,} pieces, and {max_pieces:,} are to be "
            "kept. Keep more pieces."
        )
    weights = np.repeat(counts, segmentations.sizes)
    frequency = np.bincount(segmentations.ids, weights, minlength=tokenizer.vocab_size)
    ranked = (number for number in np.argsort(-frequency, kind="stable").tolist() if frequency[number])
    others = islice((number for number in ranked if number not in kept), max_pieces - len(kept))
    return kept.union(others)


def _first_pieces_of_unknown(tokenizer: Tokenizer, segmentations: Segmentations) -> Iterator[int]:
    """Yield the first pieces of unknown words: without them, such a word might become known."""
    ids = tokenizer.vocabulary.ids
    for position in np.flatnonzero(segmentations.unknown).tolist():
        word = segmentations.words[position]
        start = 0
        while start < len(word) <= MAX_WORD_CHARACTERS:
            mark = CONTINUATION_PREFIX if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in ids), None)
            if end is None:
                break
            yield ids[mark + word[start:end]]
            start = end


def _keep_only(tokenizer: Tokenizer, ids: list[int]) -> Tokenizer:
    parts = tokenizer.parts
    size = parts.model_size
    vocabulary = Vocabulary(tuple(parts.vocabulary.pieces[number] for number in ids), parts.vocabulary.special)
    inside = None if size is None else sum(number < size for number in ids)
    return Tokenizer(TokenizerParts(vocabulary, parts.settings, parts.added, inside))
