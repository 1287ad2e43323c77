"""The verb `corpus label`: sentences with entities found by dictionaries, without those that other files have.

A sentence that is in one of the excluded files, or holds a sentence of theirs, is left out. Letters and digits in lower
case are compared alone: white space, punctuation and the spaces between the tokens of CoNLL files make no difference. A
sentence of up to 60 such characters must be the same as a whole one of the files; a longer one may begin and end
anywhere, since files divide text into sentences in different ways.

In: a Corpus folder or raw files, lexicons by label, files whose sentences must not be used, settings. Out: a file of
JSON lines, one sentence each, as `finetune --task tag` reads them; where the dictionaries are unsure the sentence lists
unknown stretches (`text.dictionary_labels`), in which a tagger learns nothing. Which sentences are drawn depends on
their text and the seed alone, not on the order or the names of the files.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from alembert import artifact
from alembert.corpus.document import FROM_LEXICON, Document, Entity
from alembert.corpus.excerpt import TextSampleReader
from alembert.corpus.inputs import expand_inputs, list_input_files
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import read
from alembert.corpus.writers import write
from alembert.errors import BadFile, BadSetting
from alembert.text.dictionary_labels import UNKNOWN_RULES, DictionaryLabeller, DictionaryLabels
from alembert.text.lexicon_cache import LexiconFile
from alembert.text.sentences import split_sentences

_BLOCK: Final = 30
"""Characters of an aligned piece; any run of twice as many holds one whole."""
_NO_LETTER: Final = re.compile(r"[\W_]+")


def normalise_sentence(text: str) -> str:
    """Keep letters and digits, in lower case.

    >>> normalise_sentence("IL-2 ( 5 mg )") == normalise_sentence("IL-2 (5 mg)") == "il25mg"
    True
    """
    return _NO_LETTER.sub("", text.lower())


@dataclass(eq=False)
class ExcludedText:
    """Texts of which no sentence may be used."""

    texts: list[str] = field(default_factory=list)
    """Normalised, one for each document."""
    sentences: set[str] = field(default_factory=set)
    _blocks: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Aligned pieces of the texts -> which text, and where in it."""
    _starts: dict[str, list[str]] = field(default_factory=dict)
    """First characters of long sentences -> these sentences."""

    @classmethod
    def read(cls, paths: Iterable[Path]) -> ExcludedText:
        """Read files; one without any text is an error, since nothing would be excluded."""
        excluded = cls()
        for path in paths:
            before = len(excluded.texts)
            for file in list_input_files([path]).paths:
                for item in read(file):
                    if isinstance(item, Document):
                        excluded.add(item.text)
            if len(excluded.texts) == before:
                raise BadFile(f"{path} has no text that could be excluded. Check the file and its format.")
        return excluded

    def add(self, text: str) -> None:
        """Exclude a text and its sentences."""
        whole = normalise_sentence(text)
        self.texts.append(whole)
        for start in range(0, len(whole) - _BLOCK + 1, _BLOCK):
            self._blocks.setdefault(whole[start : start + _BLOCK], []).append((len(self.texts) - 1, start))
        for sentence in (whole, *(normalise_sentence(text[start:end]) for start, end in split_sentences(text))):
            if sentence not in self.sentences:
                self.sentences.add(sentence)
                if len(sentence) > 2 * _BLOCK:
                    self._starts.setdefault(sentence[:_BLOCK], []).append(sentence)

    def has(self, sentence: str) -> bool:
        """Return whether a normalised sentence is among the texts, or holds a long sentence of theirs."""
        if sentence in self.sentences:
            return True
        if len(sentence) < 2 * _BLOCK:
            return False
        return self._is_part(sentence) or self._holds_one(sentence)

    def _is_part(self, sentence: str) -> bool:
        for shift in range(_BLOCK):
            for number, start in self._blocks.get(sentence[shift : shift + _BLOCK], ()):
                if start >= shift and self.texts[number].startswith(sentence, start - shift):
                    return True
        return False

    def _holds_one(self, sentence: str) -> bool:
        return any(
            sentence.startswith(other, start)
            for start in range(len(sentence) - 2 * _BLOCK)
            for other in self._starts.get(sentence[start : start + _BLOCK], ())
        )


_BATCH: Final = 32
_ENDINGS: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """How sentences are chosen and labelled."""

    sentences: int | None = None
    """Maximum number of sentences; none: all."""
    seed: int = 1
    """Decides which sentences are drawn."""
    match_share: float = 0.8
    """Share of the drawn sentences in which the dictionaries find an entity."""
    min_words: int = 5
    """Shorter sentences are left out."""
    unknown: tuple[str, ...] = UNKNOWN_RULES
    """Rules that mark stretches as unknown: short, ambiguous, ordinary, capitals, endings, neighbours; empty: none."""

    def __post_init__(self) -> None:
        if self.sentences is not None and self.sentences < 1:
            raise BadSetting(f"`sentences` is {self.sentences}; expected 1 or more, or leave it out for all.")
        if not 0 <= self.match_share <= 1:
            raise BadSetting(f"`match_share` is {self.match_share}; expected a share from 0 to 1.")
        if self.min_words < 1:
            raise BadSetting(f"`min_words` is {self.min_words}; expected 1 or more.")
        if strange := [rule for rule in self.unknown if rule not in UNKNOWN_RULES]:
            raise BadSetting(f"`unknown` has {strange[0]!r}; the rules are {', '.join(UNKNOWN_RULES)}.")


@dataclass(frozen=True)
class LabelResult:
    """What was written, and what was left out."""

    path: Path
    counts: Mapping[str, int]
    """Sentences that were read, excluded, repeated and written, entities by label, and unknown stretches."""
    notes: tuple[str, ...] = ()
    """What could not be read."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"path": str(self.path), "counts": dict(self.counts), "notes": list(self.notes)}


def label_corpus(
    inputs: Sequence[str | Path],
    out: Path,
    *,
    lexicons: Sequence[tuple[str, Path]],
    exclude: Sequence[Path] = (),
    settings: LabelSettings | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> LabelResult:
    """Label the sentences of inputs with lexicons, each given as label and file, and write them as JSON lines."""
    if not out.name.endswith(_ENDINGS):
        raise BadSetting(f"The output {out} has another ending than {', '.join(_ENDINGS)}. Name a file of JSON lines.")
    if not lexicons:
        raise BadSetting("No lexicon was given. Give at least one (--lexicon LABEL=FILE).")
    settings = settings or LabelSettings()
    labeller = DictionaryLabeller.from_lexicons((LexiconFile(*pair) for pair in lexicons), settings.unknown)
    job = _LabelJob(
        labeller,
        ExcludedText.read(exclude),
        settings,
        tuple(sorted({label for label, _ in lexicons})),
    )
    texts = replace(TextSampleReader.open(_list_files(inputs)), on_progress=on_progress)
    _write(job.run(sample.text for sample in texts), out, job.counts)
    notes = [*labeller.warnings]
    if texts.set_aside:
        notes.append(f"{texts.set_aside:,} items could not be read; the first: {texts.first_reason}")
    return LabelResult(out, dict(job.counts), tuple(notes))


def _list_files(inputs: Sequence[str | Path]) -> list[Path]:
    """List Corpus folders as they are, and the files of other folders and patterns."""
    paths = expand_inputs(inputs)
    return [file for path in paths for file in ([path] if _is_artifact(path) else list_input_files([path]).paths)]


def _is_artifact(path: Path) -> bool:
    return (path / artifact.MANIFEST).is_file()


def _write(documents: Iterable[Document], out: Path, counts: Counter[str]) -> None:
    """Write a file that appears when it is complete."""
    hidden = out.with_name(f".{out.name}")  # with the same ending, by which writers tell compression
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(_count(documents, counts), hidden, "jsonl")
        if not counts["written"]:
            raise BadFile(f"None of the {counts['read']:,} sentences of the input can be used. Check the files.")
        hidden.replace(out)
    finally:
        hidden.unlink(missing_ok=True)


def _count(documents: Iterable[Document], counts: Counter[str]) -> Iterator[Document]:
    for document in documents:
        counts["written"] += 1
        counts["with a match"] += bool(document.entities)
        counts["unknown stretches"] += len(document.meta.get("unknown", ()))
        counts.update(f"entities: {entity.label}" for entity in document.entities)
        yield document


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A sentence that may be drawn."""

    text: str
    key: int
    """64 bits of its letters and digits."""
    rank: int
    """The same with the seed: the lowest are drawn."""
    place: int


@dataclass
class _LowestRanks:
    """The sentences of the lowest ranks so far."""

    most: int
    entries: list[tuple[int, _Candidate, DictionaryLabels]] = field(default_factory=list)
    """A heap whose first entry has the highest rank."""

    @property
    def bound(self) -> float:
        """The rank that a sentence must be below to be added."""
        if len(self.entries) < self.most:
            return math.inf
        return -self.entries[0][0] if self.entries else 0

    def add(self, candidate: _Candidate, labels: DictionaryLabels) -> None:
        if candidate.rank < self.bound:
            entry = (-candidate.rank, candidate, labels)
            is_full = len(self.entries) == self.most
            (heapq.heappushpop if is_full else heapq.heappush)(self.entries, entry)


@dataclass
class _LabelJob:
    """Sentences on their way from texts to documents."""

    labeller: DictionaryLabeller
    excluded: ExcludedText
    settings: LabelSettings
    types: tuple[str, ...]
    counts: Counter[str] = field(default_factory=lambda: Counter({"read": 0, "excluded": 0, "written": 0}))
    _seen: set[int] = field(default_factory=set)
    _bound: float = math.inf
    """A rank above which no sentence is drawn any more, whether it has a match or not."""

    def run(self, texts: Iterable[str]) -> Iterator[Document]:
        labelled = self._label(texts)
        if self.settings.sentences is None:
            return (self._document(*pair) for pair in labelled)
        return self._sample(labelled, self.settings.sentences)

    def _label(self, texts: Iterable[str]) -> Iterator[tuple[_Candidate, DictionaryLabels]]:
        rest = iter(texts)
        while batch := list(islice(rest, _BATCH)):
            documents = [[_flatten(text[start:end]) for start, end in split_sentences(text)] for text in batch]
            chosen = [[self._candidate(sentence) for sentence in document] for document in documents]
            wanted = [[candidate is not None for candidate in own] for own in chosen]
            for own, labels in zip(chosen, self.labeller.label(documents, wanted), strict=True):
                yield from (
                    (c, found) for c, found in zip(own, labels, strict=True) if c is not None and found is not None
                )

    def _candidate(self, sentence: str) -> _Candidate | None:
        self.counts["read"] += 1
        if len(sentence.split()) < self.settings.min_words:
            self.counts["too short"] += 1
            return None
        letters = normalise_sentence(sentence)
        key = _hash(letters)
        if key in self._seen:
            self.counts["repeated"] += 1
            return None
        self._seen.add(key)
        if self.excluded.has(letters):
            self.counts["excluded"] += 1
            return None
        rank = _hash(f"{self.settings.seed}/{letters}")
        return _Candidate(sentence, key, rank, len(self._seen)) if rank < self._bound else None

    def _sample(self, labelled: Iterable[tuple[_Candidate, DictionaryLabels]], most: int) -> Iterator[Document]:
        """Draw the sentences of the lowest ranks, with and without a match apart, and return them in the order of the text."""
        matched = math.ceil(most * self.settings.match_share)
        heaps = {True: _LowestRanks(matched), False: _LowestRanks(most - matched)}
        for candidate, labels in labelled:
            heaps[bool(labels.entities)].add(candidate, labels)
            self._bound = max(heap.bound for heap in heaps.values())
        drawn = sorted((entry for heap in heaps.values() for entry in heap.entries), key=lambda entry: entry[1].place)
        return (self._document(candidate, labels) for _, candidate, labels in drawn)

    def _document(self, candidate: _Candidate, labels: DictionaryLabels) -> Document:
        meta: dict[str, Any] = {"annotated_types": list(self.types)}
        if labels.unknown:
            meta["unknown"] = [list(span) for span in labels.unknown]
        entities = tuple(
            Entity(f"T{number}", label, ((start, end),), attributes=FROM_LEXICON)
            for number, (start, end, label) in enumerate(labels.entities, start=1)
        )
        return Document(f"{candidate.key:016x}", candidate.text, entities=entities, meta=meta)


def _flatten(sentence: str) -> str:
    return " ".join(sentence.split())


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
