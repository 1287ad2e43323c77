"""Find the terms of lexicons in text.

In: lexicons (`lexicon`), then texts. Out: `TermMatch(start, end, label, concepts)` with offsets of the original text.
The leftmost match wins, then the longest; where two lexicons have the same term, the first lexicon, unless the lexicons are
looked up apart. Terms are matched between word borders, except Chinese and Japanese ones, which have none.

The trade-off: a trie over hashed words (`term_tables`, `wordhash`) instead of an automaton over characters. It needs no
further dependency, handles word borders and hyphen, plural and Greek spellings by construction, and is several times
faster (docs/lab/lexicons.md has the figures); in return a term is found only as whole words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from alembert.errors import BadSetting
from alembert.text.lexicon import CASE_FREE, MAX_TERM_LENGTH, Lexicon, case_agrees, pause_garbage_collection
from alembert.text.lexicon_compiler import STOP_WORDS, GazetteerCounts, StopFilter, compile_lexicons
from alembert.text.term_tables import EntryReader, GazetteerTables, UnmatchedTerms
from alembert.text.wordhash import WINDOW, find_split_point, hash_words

_OVERLAP = 4 * MAX_TERM_LENGTH
_TEXT_SEPARATOR = "\n\n"  # wider than the one space or hyphen that a term may span
_MAX_LABELS = 255


class TermMatch(NamedTuple):
    """A term in a text."""

    start: int
    end: int
    label: str
    concepts: tuple[str, ...]


@dataclass(frozen=True)
class Gazetteer:
    """Lexicons compiled for matching. It can be pickled; workers share its memory (`lexicon_cache`)."""

    labels: tuple[str, ...]
    tables: GazetteerTables
    counts: GazetteerCounts

    @classmethod
    def from_lexicons(
        cls,
        lexicons: Sequence[Lexicon],
        *,
        stop: Iterable[str] = STOP_WORDS,
        keep: Iterable[str] = (),
        ordinary: Iterable[str] = (),
    ) -> Gazetteer:
        """Compile lexicons in order of precedence.

        Terms in `stop` are left out, whatever their case and hyphens, unless `keep` holds them. Symbols (terms whose
        case matters) are left out also if they are spelt like a word in `ordinary` (`stop_words.find_ordinary_words`).
        """
        if len(lexicons) > _MAX_LABELS:
            raise BadSetting(f"{len(lexicons)} lexicons were given; at most {_MAX_LABELS} can be matched at once.")
        with pause_garbage_collection():
            tables, counts = compile_lexicons(lexicons, StopFilter.from_lists(stop, keep, ordinary))
        return cls(tuple(lexicon.label for lexicon in lexicons), tables, counts)

    @cached_property
    def _entries(self) -> EntryReader:
        return EntryReader(self.tables.entries)

    def find(self, text: str, seen: set[int] | None = None) -> list[TermMatch]:
        """Find the terms of a text, in order, none overlapping another; `seen` gets the numbers of their entries."""
        return [self._match(*found) for found in self._find_entries(text, seen)]

    def _find_entries(self, text: str, seen: set[int] | None) -> Iterator[tuple[int, int, int]]:
        """Yield start, end and entry of each match of `find`."""
        free_from = 0
        for start, stop, entries in self._candidates(text):
            if free_from <= start and (entry := self._choose_entry(entries, text, start, stop)) is not None:
                free_from = stop
                if seen is not None:
                    seen.add(entry)
                yield start, stop, entry

    def find_apart(self, text: str) -> list[TermMatch]:
        """Find the terms of each lexicon as if it were alone: matches of one do not overlap, those of several may."""
        return [self._match(*found) for found in self._find_entries_apart(text)]

    def _find_entries_apart(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yield start, end and entry of each match of `find_apart`."""
        free_from = [0] * len(self.labels)
        labels = self._entries.labels
        for start, stop, entries in self._candidates(text):
            surface = text[start:stop]
            for entry in entries:
                label = labels[entry]
                if free_from[label] <= start and self._agrees(entry, surface):
                    free_from[label] = stop
                    yield start, stop, entry

    def find_all(
        self, texts: Sequence[str], seen: set[int] | None = None, *, apart: bool = False
    ) -> list[list[TermMatch]]:
        """Find the terms of many texts, which is several times faster than one call for each short text."""
        borders = np.cumsum([len(text) + len(_TEXT_SEPARATOR) for text in texts])
        joined = _TEXT_SEPARATOR.join(texts)
        found = list(self._find_entries_apart(joined) if apart else self._find_entries(joined, seen))
        owners = np.searchsorted(borders, [start for start, _, _ in found], side="right")
        matches_per_text: list[list[TermMatch]] = [[] for _ in texts]
        shifts = [0, *borders.tolist()]
        for owner, (start, stop, entry) in zip(owners.tolist(), found, strict=True):
            shift = shifts[owner]
            matches_per_text[owner].append(self._match(start - shift, stop - shift, entry))
        return matches_per_text

    def list_unmatched(self, matched: Collection[int], most: int) -> dict[str, UnmatchedTerms]:
        """Find the terms of each lexicon that are not among the entries that `find_all` has `seen`; name so many."""
        return {
            label: self.tables.terms.list_unmatched(number, matched, most) for number, label in enumerate(self.labels)
        }

    def _candidates(self, text: str) -> Iterator[tuple[int, int, range]]:
        """Yield start, end and entries of all terms, whatever their case, from left to right and the longest first."""
        first, trie = self.tables.entries.first, self.tables.trie
        begin = 0
        while begin < len(text):
            end = begin + WINDOW
            cut = len(text) if end >= len(text) else find_split_point(text, end - _OVERLAP)
            words = hash_words(text[begin:end])
            positions, depths, nodes = trie.walk(words)
            order = np.lexsort((-depths, positions))
            order = order[words.starts[positions[order]] < cut - begin]
            starts = words.starts[positions[order]] + begin
            ends = words.ends[positions[order] + depths[order] - 1] + begin
            entries = map(range, first[nodes[order]].tolist(), first[nodes[order] + 1].tolist())
            yield from zip(starts.tolist(), ends.tolist(), entries, strict=True)
            begin = cut

    def _match(self, start: int, stop: int, entry: int) -> TermMatch:
        return TermMatch(start, stop, self.labels[self._entries.labels[entry]], self._entries.list_concepts(entry))

    def _choose_entry(self, entries: range, text: str, start: int, stop: int) -> int | None:
        """Choose the first entry whose case rule allows the surface."""
        cases = self._entries.cases
        for entry in entries:  # several times faster than a generator, which counts: this runs for each candidate
            if cases[entry] == CASE_FREE or self._agrees(entry, text[start:stop]):
                return entry
        return None

    def _agrees(self, entry: int, surface: str) -> bool:
        """Return whether the case rule of an entry allows the surface."""
        rule = self._entries.cases[entry]
        return rule == CASE_FREE or case_agrees(rule, self._entries.get_surface(entry), surface)
