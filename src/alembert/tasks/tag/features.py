"""Lexicons of a tagger: the terms that it knows by name, whose matches it reads as features.

In: files of terms by label. Out: a gazetteer, and files in the model's folder from which the same is made again, so
that a folder is complete without the files that it was trained with. More terms may be added to a label at any time:
what the model learnt is what a match of the label means, not the terms.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from alembert.errors import BadFile, BadSetting
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import Lexicon, parse_lexicon_option, pause_garbage_collection, read_lexicon
from alembert.text.lexicon_cache import open_lexicons

FOLDER: Final = "lexicons"
MAX_LEXICON_LABELS: Final = 64
_SUFFIX: Final = ".tsv.gz"
_HEADER: Final = "term\n"
_COMPRESSION: Final = 6  # 9 takes half as long again, and saves one byte in two hundred


@dataclass(frozen=True)
class TermList:
    """Terms, each once, in order: packed as in the file of a model's folder, since most runs never look at them."""

    sha256: str
    """The hash of the terms in their order."""
    content: bytes = field(repr=False, compare=False)
    count: int = field(compare=False)

    @classmethod
    def from_terms(cls, terms: Iterable[str]) -> TermList:
        kept = tuple(dict.fromkeys(terms))
        text = _HEADER + "".join(map(_write_line, kept))
        return cls(hash_terms(kept), gzip.compress(text.encode(), _COMPRESSION, mtime=0), len(kept))

    @classmethod
    def from_content(cls, content: bytes) -> TermList:
        """Check that a file can be read."""
        terms = _read_lines(content)
        return cls(hash_terms(terms), content, len(terms))

    def read(self) -> tuple[str, ...]:
        return _read_lines(self.content)


@dataclass(frozen=True)
class _LabelTerms:
    """The terms of a label as the source of a gazetteer."""

    label: str
    lists: tuple[TermList, ...]
    path: Path | None = None

    def identify(self) -> str:
        return " ".join(["terms", *(terms.sha256 for terms in self.lists)])

    def read(self) -> Lexicon:
        return Lexicon(self.label, [(term, "") for terms in self.lists for term in terms.read()])


@dataclass(frozen=True, eq=False)
class TagLexicons:
    """Terms by label, in the order of the features."""

    terms: Mapping[str, TermList] = field(default_factory=dict)
    added: Mapping[str, TermList] = field(default_factory=dict)
    """Further terms, which the model was not trained with."""
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, options: Iterable[str]) -> TagLexicons:
        """Read files given as LABEL=PATH; several files of a label are put together."""
        with pause_garbage_collection():
            lexicons = [read_lexicon(path, label) for label, path in map(parse_lexicon_option, options)]
        labels = dict.fromkeys(lexicon.label for lexicon in lexicons)
        if len(labels) > MAX_LEXICON_LABELS:
            raise BadSetting(f"There are {len(labels)} lexicons; expected at most {MAX_LEXICON_LABELS}.")
        terms = {
            label: TermList.from_terms(term for own in lexicons if own.label == label for term, _ in own.terms)
            for label in labels
        }
        return cls(terms, warnings=tuple(warning for lexicon in lexicons for warning in lexicon.warnings()))

    @classmethod
    def load(cls, folder: Path, table: Sequence[Mapping[str, Any]]) -> TagLexicons:
        """Read the terms that the folder of a model holds, and compare them with what its table says."""
        return cls({str(line["label"]): _read_terms(folder, str(line["label"]), str(line["sha256"])) for line in table})

    @cached_property
    def gazetteer(self) -> Gazetteer | None:
        """What finds the terms; none: there are no lexicons."""
        if not self.terms:
            return None
        sources = (
            _LabelTerms(label, (terms, *([self.added[label]] if label in self.added else [])))
            for label, terms in self.terms.items()
        )
        return open_lexicons(sources).gazetteer

    def add(self, other: TagLexicons) -> TagLexicons:
        """Return the terms of both; the other one may have known labels alone, since the model can read no new one."""
        if unknown := other.terms.keys() - self.terms.keys():
            known = ", ".join(self.terms) or "none"
            raise BadSetting(
                f"The model was not trained with a lexicon {sorted(unknown)[0]!r}; its lexicons are: {known}. Add the terms "
                "to one of these, or fine-tune with the new one."
            )
        added = {
            label: TermList.from_terms((*before, *_without(terms.read(), self.terms[label].read())))
            for label, terms in other.terms.items()
            for before in [self.added[label].read() if label in self.added else ()]
        }
        return replace(self, added={**self.added, **added}, warnings=(*self.warnings, *other.warnings))

    def notes(self) -> list[str]:
        """Describe the terms that were added, and those that are not looked for."""
        if not self.added:
            return []
        counts = [
            f"lexicon {label}: {self.terms[label].count:,} terms of training + {terms.count:,} added"
            for label, terms in self.added.items()
        ]
        new = open_lexicons(_LabelTerms(label, (terms,)) for label, terms in self.added.items())
        return [*counts, *self.warnings, *new.gazetteer.counts.warnings()]

    def describe(self, types: Collection[str]) -> list[str]:
        """Describe the lexicons that a tagger of entities of these types learns with."""
        if self.gazetteer is None:
            return []
        lines = [
            f"matches of the lexicon {label} are read beside the pieces: {terms.count:,} terms"
            for label, terms in self.terms.items()
        ]
        strange = [
            f"{label}: read as evidence; the tagger has no type of this name"
            for label in self.terms
            if label not in types
        ]
        return [*lines, *strange, *self.warnings, *self.gazetteer.counts.warnings()]

    def to_table(self) -> list[dict[str, Any]]:
        """Describe the lexicons, without their terms."""
        return [{"label": label, "terms": terms.count, "sha256": terms.sha256} for label, terms in self.terms.items()]

    def files(self) -> dict[str, bytes]:
        """Return the terms as files of the model's folder."""
        return {_file_name(terms.sha256): terms.content for terms in self.terms.values()}


def hash_terms(terms: Iterable[str]) -> str:
    """Return a hash of terms in their order."""
    return hashlib.sha256("\n".join(terms).encode()).hexdigest()


def _without(terms: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    old = frozenset(known)
    return (term for term in terms if term not in old)


def _write_line(term: str) -> str:
    """Write a row of a table with tabs; most terms need no quotes."""
    if '"' not in term and "\t" not in term:
        return f"{term}\n"
    row = io.StringIO()
    csv.writer(row, "excel-tab", lineterminator="\n").writerow([term])
    return row.getvalue()


def _read_lines(content: bytes) -> tuple[str, ...]:
    header, *lines = gzip.decompress(content).decode().removesuffix("\n").split("\n")
    if header != _HEADER.strip():
        raise ValueError("the table has another header")
    return tuple(next(csv.reader([line], "excel-tab"))[0] if '"' in line else line for line in lines)


def _read_terms(folder: Path, label: str, expected: str) -> TermList:
    path = folder / _file_name(expected)
    if not path.is_file():
        raise BadFile(f"The lexicon {label} that the model was trained with is missing ({path}). Restore the folder.")
    try:
        terms = TermList.from_content(path.read_bytes())
    except (OSError, EOFError, zlib.error, ValueError, IndexError, csv.Error):
        raise BadFile(f"{path}, which has the lexicon {label} of the model, is damaged. Restore the file.") from None
    if terms.sha256 != expected:
        raise BadFile(
            f"{path} has other terms than the lexicon {label} that the model was trained with. Restore the file, and give "
            "further terms with --lexicon."
        )
    return terms


def _file_name(digest: str) -> str:
    return f"{FOLDER}/{digest[:16]}{_SUFFIX}"
