"""Lexicons of a tagger: the terms that it knows by name, whose matches it reads as features.

In: files of terms by label. Out: a gazetteer for each label, and files in the model's folder from which the same is made
again, so that a folder is complete without the files that it was trained with. More terms may be added to a label at any
time: what the model learnt is what a match of the label means, not the terms.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

from alembert.errors import BadFile, BadSetting
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import Lexicon, parse_lexicon_option, read_lexicon

FOLDER: Final = "lexicons"
MAX_LEXICON_LABELS: Final = 64
_SUFFIX: Final = ".tsv.gz"


@dataclass(frozen=True, eq=False)
class TagLexicons:
    """Terms by label, in the order of the features."""

    terms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Each term once, in order."""
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, options: Iterable[str]) -> TagLexicons:
        """Read files given as LABEL=PATH; several files of a label are put together."""
        lexicons = [read_lexicon(path, label) for label, path in map(parse_lexicon_option, options)]
        labels = dict.fromkeys(lexicon.label for lexicon in lexicons)
        if len(labels) > MAX_LEXICON_LABELS:
            raise BadSetting(f"There are {len(labels)} lexicons; expected at most {MAX_LEXICON_LABELS}.")
        terms = {label: _unique_terms(lexicon for lexicon in lexicons if lexicon.label == label) for label in labels}
        return cls(terms, tuple(warning for lexicon in lexicons for warning in lexicon.warnings()))

    @classmethod
    def load(cls, folder: Path, table: Sequence[Mapping[str, Any]]) -> TagLexicons:
        """Read the terms that the folder of a model holds, and compare them with what its table says."""
        return cls({str(line["label"]): _read_terms(folder, str(line["label"]), str(line["sha256"])) for line in table})

    @cached_property
    def gazetteers(self) -> dict[str, Gazetteer]:
        """What finds the terms of each label."""
        return {
            label: Gazetteer.from_lexicons([Lexicon(label, [(term, "") for term in terms])])
            for label, terms in self.terms.items()
        }

    def add(self, other: TagLexicons) -> TagLexicons:
        """Return the terms of both; the other one may have known labels alone, since the model can read no new one."""
        if unknown := other.terms.keys() - self.terms.keys():
            known = ", ".join(self.terms) or "none"
            raise BadSetting(
                f"The model was not trained with a lexicon {sorted(unknown)[0]!r}; its lexicons are: {known}. Add the terms "
                "to one of these, or fine-tune with the new one."
            )
        both = {
            label: tuple(dict.fromkeys((*terms, *other.terms.get(label, ())))) for label, terms in self.terms.items()
        }
        return TagLexicons(both, (*self.warnings, *other.warnings))

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


def _write_terms(terms: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, "excel-tab", lineterminator="\n").writerows([["term"], *([term] for term in terms)])
    return gzip.compress(text.getvalue().encode(), mtime=0)


def _read_terms(folder: Path, label: str, expected: str) -> tuple[str, ...]:
    path = folder / _file_name(expected)
    if not path.is_file():
        raise BadFile(f"The lexicon {label} that the model was trained with is missing ({path}). Restore the folder.")
    with gzip.open(path, "rt", encoding="utf8", newline="") as file:
        terms = tuple(row[0] for row in islice(csv.reader(file, "excel-tab"), 1, None))
    if hash_terms(terms) != expected:
        raise BadFile(
            f"{path} has other terms than the lexicon {label} that the model was trained with. Restore the file, and give "
            "further terms with --lexicon."
        )
    return terms


def _file_name(digest: str) -> str:
    return f"{FOLDER}/{digest[:16]}{_SUFFIX}"
