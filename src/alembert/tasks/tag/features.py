"""Lexicons of a tagger: the terms that it knows by name, whose matches it reads as features.

In: files of terms by label. Out: a gazetteer, and files in the model's folder from which the same is made again, so that a
folder is complete without the files that it was trained with. More terms may be added to a label at any time: what the
model learnt is what a match of the label means, not the terms.
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
from itertools import islice
from pathlib import Path
from typing import Any, Final

from alembert.errors import BadFile, BadSetting
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import Lexicon, parse_lexicon_option, pause_garbage_collection, read_lexicon

FOLDER: Final = "lexicons"
MAX_LEXICON_LABELS: Final = 64
_SUFFIX: Final = ".tsv.gz"


@dataclass(frozen=True, eq=False)
class TagLexicons:
    """Terms by label, in the order of the features."""

    terms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Each term once, in order."""
    added: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
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
        terms = {label: _unique_terms(lexicon for lexicon in lexicons if lexicon.label == label) for label in labels}
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
        return Gazetteer.from_lexicons(
            [_to_lexicon(label, (*terms, *self.added.get(label, ()))) for label, terms in self.terms.items()]
        )

    def add(self, other: TagLexicons) -> TagLexicons:
        """Return the terms of both; the other one may have known labels alone, since the model can read no new one."""
        if unknown := other.terms.keys() - self.terms.keys():
            known = ", ".join(self.terms) or "none"
            raise BadSetting(
                f"The model was not trained with a lexicon {sorted(unknown)[0]!r}; its lexicons are: {known}. Add the terms "
                "to one of these, or fine-tune with the new one."
            )
        added = {
            label: tuple(dict.fromkeys((*self.added.get(label, ()), *_without(terms, self.terms[label]))))
            for label, terms in other.terms.items()
        }
        return replace(self, added={**self.added, **added}, warnings=(*self.warnings, *other.warnings))

    def notes(self) -> list[str]:
        """Describe the terms that were added, and those that are not looked for."""
        if not self.added:
            return []
        counts = [
            f"lexicon {label}: {len(self.terms[label]):,} terms of training + {len(terms):,} added"
            for label, terms in self.added.items()
        ]
        new = Gazetteer.from_lexicons([_to_lexicon(label, terms) for label, terms in self.added.items()])
        return [*counts, *self.warnings, *new.counts.warnings()]

    def describe(self, types: Collection[str]) -> list[str]:
        """Describe the lexicons that a tagger of entities of these types learns with."""
        if self.gazetteer is None:
            return []
        lines = [
            f"matches of the lexicon {label} are read beside the pieces: {len(terms):,} terms"
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
        return [
            {"label": label, "terms": len(terms), "sha256": hash_terms(terms)} for label, terms in self.terms.items()
        ]

    def files(self) -> dict[str, bytes]:
        """Return the terms as files of the model's folder."""
        return {_file_name(hash_terms(terms)): _write_terms(terms) for terms in self.terms.values()}


def hash_terms(terms: Iterable[str]) -> str:
    """Return a hash of terms in their order."""
    return hashlib.sha256("\n".join(terms).encode()).hexdigest()


def _unique_terms(lexicons: Iterable[Lexicon]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(term for lexicon in lexicons for term, _ in lexicon.terms))


def _to_lexicon(label: str, terms: Iterable[str]) -> Lexicon:
    return Lexicon(label, [(term, "") for term in terms])


def _without(terms: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    old = frozenset(known)
    return (term for term in terms if term not in old)


def _write_terms(terms: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, "excel-tab", lineterminator="\n").writerows([["term"], *([term] for term in terms)])
    return gzip.compress(text.getvalue().encode(), mtime=0)


def _read_terms(folder: Path, label: str, expected: str) -> tuple[str, ...]:
    path = folder / _file_name(expected)
    if not path.is_file():
        raise BadFile(f"The lexicon {label} that the model was trained with is missing ({path}). Restore the folder.")
    try:
        with gzip.open(path, "rt", encoding="utf8", newline="") as file:
            terms = tuple(row[0] for row in islice(csv.reader(file, "excel-tab"), 1, None))
    except (OSError, EOFError, zlib.error, ValueError, IndexError, csv.Error):
        raise BadFile(f"{path}, which has the lexicon {label} of the model, is damaged. Restore the file.") from None
    if hash_terms(terms) != expected:
        raise BadFile(
            f"{path} has other terms than the lexicon {label} that the model was trained with. Restore the file, and give "
            "further terms with --lexicon."
        )
    return terms


def _file_name(digest: str) -> str:
    return f"{FOLDER}/{digest[:16]}{_SUFFIX}"
