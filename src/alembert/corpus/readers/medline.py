"""Citations of PubMed: MEDLINE XML, with deleted citations, and PubMed's text format.

MEDLINE/PubMed XML. In: the files that NLM publishes (``PubmedArticleSet``, also book articles). Out: one document
per citation with the PMID as its id: the title, then the parts of the abstract, each a section with its label as
heading. Quirks handled:

- Inline tags (``<i>``, ``<sub>``, ``<sup>``, ``<b>``) and MathML are replaced by the text inside them.
- ``<AbstractText/>`` may be empty, and titles too; a citation with neither title nor abstract is set aside.
- A plain-language summary in the document's own language is one more section. The vernacular title and abstracts in
  other languages make a document of their own per language, id ``PMID/language`` (switch: `translations`).
- ``DeleteCitation`` gives `DeletedRecord` items. A PMID may occur again, with a higher version or in a later file: every
  occurrence is read here, and `corpus build` keeps the last one.

Only the used part of a record is parsed: authors, references and headings, three quarters of the bytes, are removed
before.

PubMed's text format (`.nbib`, "Save as PubMed"): citations as lines of a tag of four characters, ``- `` and a value.

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
from alembert.corpus.readers.contract import DeletedRecord, Item, ReadOptions, SetAside
from alembert.corpus.readers.mentions import Composer, unwrap
from alembert.corpus.readers.source import SourceFile, SourceLine, split_paragraphs
from alembert.corpus.readers.xml_records import XmlRecordReader, to_two_letter_code
from alembert.errors import BadInput

RECORD_TAGS = ("PubmedArticle", "PubmedBookArticle", "DeleteCitation", "DeleteDocument")
_OTHER_ABSTRACT = re.compile(rb"<OtherAbstract.*?</OtherAbstract>", re.DOTALL)


def read_xml(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the citations and deletions of a MEDLINE file."""
    records = XmlRecordReader(source, *RECORD_TAGS)
    for cut in records.iter_records():
        if isinstance(cut, SetAside):
            yield cut
            continue
        try:
            content = _used_part(cut.content) if cut.tag == "PubmedArticle" else cut.content
            element = records.element(content)
        except BadInput as wrong:
            yield source.set_aside(str(wrong), _pmid_in(cut.content))
            continue
        if cut.tag.startswith("Delete"):
            yield from (DeletedRecord(source.name, source.position, pmid.text or "") for pmid in element.iter("PMID"))
        else:
            yield from _citation(element, source, options)


def _used_part(content: bytes) -> bytes:
    """Cut a citation down to its PMID, its article without the authors, and abstracts in other languages."""
    start, end = content.find(b"<MedlineCitation"), content.find(b"</Article>")
    last = content.find(b"</MedlineCitation>", end)
    if not 0 <= start < end < last:
        return content
    authors = content.find(b"<AuthorList", start, end)
    after = content.find(b"</AuthorList>", authors, end) + len(b"</AuthorList>")
    part = content[start:authors] + content[after:end] if start < authors < after else content[start:end]
    others = b"".join(_OTHER_ABSTRACT.findall(content, end, last))
    return b"%b</Article>%b</MedlineCitation>" % (part, others)


def _pmid_in(content: bytes) -> str | None:
    match = re.search(rb"<PMID[^>]*>(\d+)</PMID>", content)
    return match[1].decode() if match else None


def _citation(element: Any, source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    inner = element.find("BookDocument" if element.tag == "PubmedBookArticle" else "MedlineCitation")
    citation = element if element.tag == "MedlineCitation" else inner
    pmid = None if citation is None else citation.find("PMID")
    if pmid is None or not pmid.text:
        yield source.set_aside("the citation has no PMID")
        return
    article = citation.find("Article")
    parts = _Parts(citation if article is None else article)
    composer = Composer()
    title = parts.text("ArticleTitle") or parts.text("Book", "BookTitle")
    composer.add(title, "title")
    _add_abstract(composer, parts.get("Abstract"), "abstract")
    # A title in brackets, or with a vernacular form, is NLM's English rendering; the abstract is then English too.
    language = "en" if title.startswith("[") or "VernacularTitle" in parts else parts.languages[0]
    others = _collect_other_abstracts(citation, composer, language)
    if composer.length:
        meta = _meta(parts, pmid.get("Version"))
        yield Document(pmid.text, composer.text, composer.sections, meta=meta, language=language)
    else:
        yield source.set_aside("the citation has neither a title nor an abstract", pmid.text)
    if options.translations:
        yield from _translations(pmid.text, others, parts)


class _Parts(dict[str, Any]):
    """The children of an article by tag, collected in one pass."""

    def __init__(self, article: Any) -> None:
        super().__init__([(child.tag, child) for child in article])
        languages = [to_two_letter_code(language.text) for language in article.iterchildren("Language")]
        self.languages: list[str | None] = languages or [None]

    def text(self, tag: str, path: str | None = None) -> str:
        element = self.get(tag)
        return _text(element.find(path) if path and element is not None else element)


def _text(element: Any) -> str:
    if element is None:
        return ""
    return unwrap("".join(element.itertext()) if len(element) else element.text or "")


def _add_abstract(composer: Composer, abstract: Any, kind: str) -> None:
    if abstract is not None:
        for part in abstract.iterchildren("AbstractText"):
            composer.add(_text(part), kind, part.get("Label") or "")


def _collect_other_abstracts(citation: Any, composer: Composer, language: str | None) -> dict[str, Composer]:
    """Collect further abstracts by language; those in the article's own language are added to its document."""
    others: dict[str, Composer] = {}
    for abstract in citation.iterchildren("OtherAbstract"):
        code = to_two_letter_code(abstract.get("Language")) or "und"
        if code == language:
            _add_abstract(composer, abstract, abstract.get("Type") or "abstract")
        else:
            _add_abstract(others.setdefault(code, Composer()), abstract, "abstract")
    return {code: abstracts for code, abstracts in others.items() if abstracts.length}


def _translations(pmid: str, others: dict[str, Composer], parts: _Parts) -> Iterator[Document]:
    title = parts.text("VernacularTitle")
    if title.strip():
        codes = [code for code in (*parts.languages, *others) if code not in (None, "en")]
        code = codes[0] or "und" if codes else "und"
        others[code] = _put_title_before(title, others.get(code))
    for code, translation in others.items():
        meta = {"translation_of": pmid}
        yield Document(
            f"{pmid}/{code}", translation.text, translation.sections, meta=meta, language=to_two_letter_code(code)
        )


def _put_title_before(title: str, abstract: Composer | None) -> Composer:
    composer = Composer()
    composer.add(title, "title")
    for section in abstract.sections if abstract else ():
        composer.add(abstract.text[section.start : section.end] if abstract else "", section.kind, section.heading)
    return composer


def _meta(parts: _Parts, version: str | None) -> dict[str, Any]:
    meta: dict[str, Any] = {"version": version or "1"}
    for child in parts.get("Journal", ()):
        if child.tag == "Title":
            meta["journal"] = child.text
        elif child.tag == "JournalIssue":
            meta["year"] = _year(next(child.iterchildren("PubDate"), ()))
    meta["publication_types"] = [kind.text for kind in parts.get("PublicationTypeList", ())]
    return {name: value for name, value in meta.items() if value}


def _year(date: Any) -> str | None:
    """Return the year of a date, which may be free text: `2019 Nov-Dec`."""
    return next(((part.text or "")[:4] for part in date if part.tag in ("Year", "MedlineDate")), None)


_FIELD = re.compile(r"([A-Z][A-Z0-9]{1,3}) *- ?(.*)", re.DOTALL)


def read_nbib(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the citations of a file in PubMed's text format."""
    for paragraph in split_paragraphs(source):
        if isinstance(paragraph, SetAside):
            yield paragraph
            continue
        for lines in _split(paragraph):
            yield _citation_of_lines(lines, source)


def _split(lines: list[SourceLine]) -> Iterator[list[SourceLine]]:
    """Split a run of lines before each PMID, for files without blank lines."""
    starts = [index for index, line in enumerate(lines) if index and line.text.startswith("PMID-")]
    for start, end in pairwise([0, *starts, len(lines)]):
        yield lines[start:end]


def _citation_of_lines(lines: list[SourceLine], source: SourceFile) -> Item:
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
    return Document(
        pmid, composer.text, composer.sections, meta=_meta_of_fields(fields), language=_language_of_fields(fields)
    )


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


def _language_of_fields(fields: dict[str, list[str]]) -> str | None:
    """Return the language of title and abstract.

    >>> _language_of_fields({"TI": ["Fever."], "LA": ["ger"]}), _language_of_fields({"TI": ["[Fever]."], "LA": ["ger"]})
    ('de', 'en')
    """
    # A title in brackets is NLM's English rendering; the abstract is then English too.
    if next(iter(fields.get("TI", ())), "").startswith("["):
        return "en"
    return to_two_letter_code(next(iter(fields.get("LA", ())), None))


def _meta_of_fields(fields: dict[str, list[str]]) -> dict[str, Any]:
    meta = {
        "journal": next(iter(fields.get("JT", ())), ""),
        "year": next(iter(fields.get("DP", ())), "")[:4],
        "publication_types": fields.get("PT", []),
    }
    return {name: value for name, value in meta.items() if value}
