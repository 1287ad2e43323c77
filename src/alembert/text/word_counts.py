"""Count the words of a corpus, and the words of its entities.

In: samples (a text and the entities in it), read once as a stream. Out: a `WordCounts`, which `learn`, `extend`,
`prune` and `tokenizer_report` use without reading the corpus again. Words are the input of WordPiece: after the
tokenizer's own normalisation, split at white space and punctuation, so "IL-6" is the three words "il", "-" and "6".

Runs between white space are counted first and normalised once each instead of at every occurrence, which is many times
faster. Memory is bounded: beyond a limit the rarest words are forgotten, and their occurrences counted.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import TypeVar

from tokenizers import normalizers, pre_tokenizers

from alembert.text.tokenizer_files import TokenizerSettings

WordSequence = tuple[str, ...]
_Key = TypeVar("_Key", str, WordSequence)

MAX_WORDS = 8_000_000
"""Distinct words kept: about a gigabyte. The 18 billion words of PubMed and PMC have more, nearly all seen once."""
_CHUNK_CHARACTERS = 1 << 24
_BATCH = 4096
# BERT drops these, while Python splits at them; surrogates are half characters, which it drops as well.
_DROPPED = re.compile("[\x0b\x0c\x1c-\x1f\x85\ud800-\udfff]")


@dataclass(frozen=True)
class TextSample:
    """A text and the entities in it, each with its label and its surface."""

    text: str
    mentions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class WordCounts:
    """The words and entities of a corpus, after one tokenizer's normalisation."""

    words: Mapping[str, int]
    """Word -> occurrences, in alphabetical order."""
    mentions: Mapping[str, Mapping[WordSequence, int]] = field(default_factory=dict)
    """Label -> the words of an entity -> occurrences."""
    documents: int = 0
    characters: int = 0
    forgotten: int = 0
    """Occurrences of words too rare to be kept in memory."""

    @property
    def total(self) -> int:
        """Occurrences of all words, without forgotten ones."""
        return sum(self.words.values())

    def mention_words(self) -> Counter[str]:
        """Count the words inside entities."""
        counts: Counter[str] = Counter()
        for mentions in self.mentions.values():
            for words, count in mentions.items():
                for word in words:
                    counts[word] += count
        return counts

    def several_words(self) -> int:
        """Count the entities of more than one word, which WordPiece cannot hold as one piece."""
        return sum(n for mentions in self.mentions.values() for words, n in mentions.items() if len(words) > 1)

    def merge(self, other: WordCounts) -> WordCounts:
        """Add the counts of another part of the corpus."""
        labels = sorted({*self.mentions, *other.mentions})
        return WordCounts(
            words=_sorted(Counter(self.words) + Counter(other.words)),
            mentions={
                label: _sorted(Counter(self.mentions.get(label)) + Counter(other.mentions.get(label)))
                for label in labels
            },
            documents=self.documents + other.documents,
            characters=self.characters + other.characters,
            forgotten=self.forgotten + other.forgotten,
        )


class WordSplitter:
    """Normalises a text as a BERT tokenizer does and splits it into the words that WordPiece segments.

    >>> WordSplitter(TokenizerSettings(do_lower_case=True)).split("IL-6 (Naïve)")
    ['il', '-', '6', '(', 'naive', ')']
    """

    def __init__(self, settings: TokenizerSettings) -> None:
        self._normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=settings.tokenize_chinese_chars,
            strip_accents=settings.strip_accents,
            lowercase=settings.do_lower_case,
        )

    def split(self, text: str) -> list[str]:
        """Return the words in their order."""
        return _word_pattern().findall(self._normalizer.normalize_str(_DROPPED.sub("", text)))


class WordCounter:
    """Counts the words of samples one after another."""

    def __init__(self, splitter: WordSplitter, *, most_words: int = MAX_WORDS) -> None:
        self._splitter = splitter
        self._most = most_words
        self._chunks: Counter[str] = Counter()
        self._held = 0
        self._words: Counter[str] = Counter()
        self._surfaces: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._mentions: defaultdict[str, Counter[WordSequence]] = defaultdict(Counter)
        self._documents = self._characters = self._forgotten = 0

    def add(self, sample: TextSample) -> None:
        self._documents += 1
        self._characters += len(sample.text)
        self._chunks.update(_DROPPED.sub("", sample.text).split())
        for label, surface in sample.mentions:
            self._surfaces[label][surface] += 1
        self._held += len(sample.text)
        if self._held > _CHUNK_CHARACTERS:
            self._settle()

    def get_counts(self) -> WordCounts:
        self._settle()
        mentions = {label: _sorted(self._mentions[label]) for label in sorted(self._mentions)}
        return WordCounts(_sorted(self._words), mentions, self._documents, self._characters, self._forgotten)

    def _settle(self) -> None:
        """Split the collected runs and surfaces into words."""
        for count, chunks in _by_count(self._chunks):
            for text in _join_batches(chunks):
                for word, times in Counter(self._splitter.split(text)).items():
                    self._words[word] += times * count
        for label, surfaces in self._surfaces.items():
            for surface, count in surfaces.items():
                self._mentions[label][tuple(self._splitter.split(surface))] += count
        self._chunks.clear()
        self._surfaces.clear()
        self._held = 0
        self._forget()

    def _forget(self) -> None:
        rare = 0
        while len(self._words) > self._most:
            rare += 1
            gone = [word for word, count in self._words.items() if count <= rare]
            self._forgotten += sum(self._words.pop(word) for word in gone)


def count_corpus_words(
    samples: Iterable[TextSample], splitter: WordSplitter, *, most_words: int = MAX_WORDS
) -> WordCounts:
    """Count the words of a stream of samples."""
    counter = WordCounter(splitter, most_words=most_words)
    for sample in samples:
        counter.add(sample)
    return counter.get_counts()


def count_corpus_words_split(
    samples: Iterable[TextSample], splitter: WordSplitter, every: int
) -> tuple[WordCounts, WordCounts]:
    """Count a corpus in two parts: every n-th document is held out and counted separately."""
    main, held_out = WordCounter(splitter), WordCounter(splitter)
    for number, sample in enumerate(samples, start=1):
        (held_out if number % every == 0 else main).add(sample)
    return main.get_counts(), held_out.get_counts()


def _by_count(chunks: Counter[str]) -> Iterator[tuple[int, list[str]]]:
    """Group the runs that occur equally often: one count then serves every word of a group."""
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for chunk, count in chunks.items():
        groups[count].append(chunk)
    return iter(groups.items())


def _join_batches(chunks: Iterable[str]) -> Iterator[str]:
    source = iter(chunks)
    while batch := list(islice(source, _BATCH)):
        yield " ".join(batch)


def _sorted(counts: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: counts[key] for key in sorted(counts)}


@cache
def _word_pattern() -> re.Pattern[str]:
    marks = re.escape("".join(sorted(_punctuation())))
    return re.compile(rf"[{marks}]|[^ {marks}]+")


def _punctuation() -> set[str]:
    """Collect the characters at which the Rust library splits: its Unicode table is not that of Python."""
    doubtful = [chr(code) for code in range(0x20000) if _may_be_mark(chr(code))]
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(" ".join(f"a{mark}a" for mark in doubtful))
    return {word for word, _ in cut if len(word) == 1 and word != "a"}


def _may_be_mark(character: str) -> bool:
    return not character.isspace() and unicodedata.category(character)[0] in "PSMN"
