"""Learn a WordPiece vocabulary from the words of a corpus.

In: a `WordCounts` and the wanted size. Out: a `Vocabulary` with BERT's special tokens first ([PAD] is 0), then the
characters, then the words that must be whole, then pieces in the order in which they were learnt.

Pieces are learnt by joining the most frequent pair again and again (byte-pair encoding on characters), as the trainer
of the library `tokenizers` does under the name WordPiece, and are applied longest match first. It is written anew here
because it works on counted words instead of the text, and because its result is the same on every run: equally
frequent pairs are joined in the order of their pieces, where the library's order changes with its hash seed. Pieces that
were only steps towards longer ones ("syndrom") and that longest match never takes give their places to more useful ones.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from alembert.errors import BadInput, BadSetting
from alembert.text.segmentation import segment_words
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import MAX_WORD_CHARACTERS
from alembert.text.vocabulary import CONTINUATION_PREFIX, SpecialTokens, Vocabulary
from alembert.text.word_counts import WordCounts

PiecePair = tuple[int, int]

MAX_UNCOVERED_SHARE = 1e-6
"""The rarest characters, together this share of the text, get no piece; words with them are unknown."""
_ROUNDS = 4


def learn(
    census: WordCounts, size: int, *, whole: Iterable[str] = (), min_count: int = 2, grow: bool = False
) -> Vocabulary:
    """Learn `size` pieces, or fewer if pairs that occur `min_count` times run out.

    With `grow`, a corpus whose characters alone take more has them all; without it, it is refused.

    >>> learn(WordCounts({"abab": 5, "abc": 3}), 13).pieces[5:]
    ('a', 'b', 'c', '##a', '##b', '##c', 'ab', '##ab')
    """
    if not census.words:
        raise BadInput("The corpus has no words, so there is nothing to learn a vocabulary from.")
    known = collect_alphabet(census.words)
    start = [*SpecialTokens().roles().values(), *known, *_continued(known, census.words)]
    words = sorted({word for word in whole if len(word) > 1 and set(word) <= set(known)})
    if grow:
        size = max(size, len(start) + len(words))
    elif len(start) + len(words) > size:
        raise BadSetting(
            f"A vocabulary of {size:,} pieces is too small: the special tokens and the characters of this corpus take "
            f"{len(start):,}, and the words that must be whole {len(words):,}. Ask for more."
        )
    table = _PieceTable([*start, *words])
    fitting = {w: n for w, n in census.words.items() if n >= min_count and 1 < len(w) <= MAX_WORD_CHARACTERS}
    pairs = _PairCounts(table, {w: n for w, n in fitting.items() if set(w) <= set(known)})
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
    """Pieces and their numbers; joining two may give a piece that is there already."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces
        self.ids = {piece: number for number, piece in enumerate(pieces)}

    def joined(self, pair: PiecePair) -> int:
        text = self.pieces[pair[0]] + self.pieces[pair[1]].removeprefix(CONTINUATION_PREFIX)
        if text not in self.ids:
            self.ids[text] = len(self.pieces)
            self.pieces.append(text)
        return self.ids[text]

    def spelt(self, word: str) -> list[int]:
        return [self.ids[word[0]], *(self.ids[CONTINUATION_PREFIX + character] for character in word[1:])]


def _continued(characters: Iterable[str], words: Iterable[str]) -> list[str]:
    """Give a continuing form to each character that may stand inside a word, seen there or not."""
    seen = {character for word in words for character in word[1:]}
    # Punctuation and Chinese characters are words of their own.
    return [CONTINUATION_PREFIX + c for c in characters if c in seen or (c.isalnum() and not _is_ideograph(c))]


def _is_ideograph(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"


def _learn_used_pieces(pairs: _PairCounts, words: list[str], fixed: int, size: int, min_count: int) -> list[str]:
    """Learn more pieces than wanted, until those that are of use are as many as wanted."""
    target = size
    for _ in range(_ROUNDS):
        pairs.join_until(target, min_count)
        pieces = pairs.table.pieces
        useful = _in_use(pieces, words, fixed)
        if len(useful) >= size or len(pieces) < target:
            break
        target += size - len(useful)
    spare = sorted(set(range(len(pieces))) - set(useful))
    kept = sorted([*useful, *spare][:size])
    return [pieces[number] for number in kept]


def _in_use(pieces: list[str], words: list[str], fixed: int) -> list[int]:
    tokenizer = Tokenizer.from_vocabulary(Vocabulary(tuple(pieces)), lowercase=False)
    used = set(segment_words(tokenizer, words).ids.tolist())
    return [number for number in range(len(pieces)) if number < fixed or number in used]


class _PairCounts:
    """The neighbours in all words: how often each pair occurs, and in which words."""

    def __init__(self, table: _PieceTable, counts: Mapping[str, int]) -> None:
        self.table = table
        self._spelt = [table.spelt(word) for word in counts]
        self._weights = list(counts.values())
        self._totals: defaultdict[PiecePair, int] = defaultdict(int)
        self._places: defaultdict[PiecePair, set[int]] = defaultdict(set)
        for position, pieces in enumerate(self._spelt):
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
            for other in self._join(pair, self.table.joined(pair)):
                heapq.heappush(self._heap, (-self._totals[other], other))

    def _join(self, pair: PiecePair, piece: int) -> set[PiecePair]:
        """Join a pair wherever it stands and return the pairs that became more frequent."""
        grown: set[PiecePair] = set()
        for position in self._places.pop(pair):
            before = self._spelt[position]
            after = _with_joined(before, pair, piece)
            if len(after) == len(before):
                continue  # the pair was here once, and another join has taken it
            for other in pairwise(before):
                self._totals[other] -= self._weights[position]
            self._add(position, after)
            self._spelt[position] = after
            grown.update(other for other in pairwise(after) if piece in other)
        self._totals.pop(pair, None)
        return grown

    def _add(self, position: int, pieces: list[int]) -> None:
        for pair in pairwise(pieces):
            self._totals[pair] += self._weights[position]
            self._places[pair].add(position)


def _with_joined(pieces: list[int], pair: PiecePair, piece: int) -> list[int]:
    result: list[int] = []
    for number in pieces:
        if result and result[-1] == pair[0] and number == pair[1]:
            result[-1] = piece
        else:
            result.append(number)
    return result
