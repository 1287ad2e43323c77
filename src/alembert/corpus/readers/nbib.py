"""PubMed's text format (`.nbib`, "Save as PubMed"): citations as lines of a tag of four characters, ``- `` and a value.

Lines that begin with six spaces continue the value before them; a blank line ends a citation. Out: one document per
citation with the PMID as id, title and abstract as sections; headings inside an abstract (``METHODS:``) stay in its
text. Quirks handled: tags that occur often (authors, languages), citations of books (``BTI`` is their title), several
blank lines or none between citations. Abstracts in other languages (``OAB``) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from alembert.corpus.document import Document
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.mentions import Composer
from alembert.corpus.readers.source import SourceFile, SourceLine, split_paragraphs
from alembert.corpus.readers.xml_records import to_two_letter_code

_FIELD = re.compile(r"([A-Z][A-Z0-9]{1,3}) *- ?(.*)", re.DOTALL)


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the citations of a file in PubMed's text format."""
    for paragraph in split_paragraphs(source):
        if isinstance(paragraph, SetAside):
            yield paragraph
            continue
        for lines in _split(paragraph):
            yield _citation(lines, source)


def _split(lines: list[SourceLine]) -> Iterator[list[SourceLine]]:
    """Split a run of lines before each PMID, for files without blank lines."""
    starts = [index for index, line in enumerate(lines) if index and line.text.startswith("PMID-")]
    for start, end in pairwise([0, *starts, len(lines)]):
        yield lines[start:end]


def _citation(lines: list[SourceLine], source: SourceFile) -> Item:
    position = f"line {lines[0].number}"
    fields = _fields(lines)
    if fields is None:
        reason = "a line has neither a tag (PMID-, TI  -) nor the indent of a continued value"
        return source.set_aside(reason, None, position)
    pmid = next(iter(fields.get("PMID", ())), "")
    if not pmid.isdecimal():
        return source.set_aside("the citation has no PMID", None, position)
    composer = Composer()
    composer.add(" ".join(fields.get("TI") or fields.get("BTI") or ()), "title")
    composer.add(" ".join(fields.get("AB", ())), "abstract")
    if not composer.length:
        return source.set_aside("the citation has neither a title nor an abstract", pmid, position)
    return Document(pmid, composer.text, composer.sections, meta=_meta(fields), language=_language(fields))


def _fields(lines: list[SourceLine]) -> dict[str, list[str]] | None:
    """Collect the values of each tag; None if a line is neither a field nor its continuation.

    >>> _fields([SourceLine(1, "TI  - A long"), SourceLine(2, "      title"), SourceLine(3, "LA  - eng")])
    {'TI': ['A long title'], 'LA': ['eng']}
    """
    fields: dict[str, list[str]] = {}
    values: list[str] = []
    for line in lines:
        field = _FIELD.fullmatch(line.text)
        if field:
            values = fields.setdefault(field[1], [])
            values.append(field[2].strip())
        elif line.text.startswith("  ") and values:
            values[-1] += f" {line.text.strip()}"
        else:
            return None
    return fields


def _language(fields: dict[str, list[str]]) -> str | None:
    """Return the language of title and abstract.

    >>> _language({"TI": ["Fever."], "LA": ["ger"]}), _language({"TI": ["[Fever]."], "LA": ["ger"]})
    ('de', 'en')
    """
    # A title in brackets is NLM's English rendering; the abstract is then English too.
    if next(iter(fields.get("TI", ())), "").startswith("["):
        return "en"
    return to_two_letter_code(next(iter(fields.get("LA", ())), None))


def _meta(fields: dict[str, list[str]]) -> dict[str, Any]:
    meta = {
        "journal": next(iter(fields.get("JT", ())), ""),
        "year": next(iter(fields.get("DP", ())), "")[:4],
        "publication_types": fields.get("PT", []),
    }
    return {name: value for name, value in meta.items() if value}
