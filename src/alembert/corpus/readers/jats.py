"""JATS XML, the format of PubMed Central and most publishers: full-text articles.

In: a file with one ``<article>``, or a set of them. Out: one document per article: title, abstracts, then the body,
with a section of kind "heading" for each heading and one of kind "body" for each paragraph. Quirks handled:

- Floats (figures, tables, boxed text's media, supplements) stand inside paragraphs: they are removed, and their
  captions are read only with `captions`. Lists and quotations inside a paragraph stay.
- Formulas often come twice, as MathML and as a TeX document with its preamble: the TeX is left out.
- References, footnotes, acknowledgements and everything else of the back matter are skipped.
- Line breaks and indents of the file are layout, not text. Sections may nest; paragraphs may be outside of sections.
- Abstracts in other languages (``trans-abstract``) become documents of their own, as in MEDLINE.
- Ids: pmid, else pmcid, doi or publisher id. Article names with a default namespace are read the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from alembert.corpus.document import Document
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.mentions import Composer
from alembert.corpus.readers.source import SourceFile
from alembert.corpus.readers.xml_records import XmlRecordReader, to_two_letter_code
from alembert.errors import BadInput

_FLOATS = {"fig", "fig-group", "table-wrap", "table-wrap-group", "supplementary-material", "media", "graphic"}
_LEFT_OUT = _FLOATS | {"tex-math", "fn", "alt-text", "long-desc", "object-id", "inline-graphic", "table"}
_BLOCKS = {"p", "list-item", "disp-quote", "disp-formula", "def-item", "title", "verse-line", "label"}
_SPACE = re.compile(r"[ \t\r\n]+")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_ID_TYPES = ("pmid", "pmc", "pmcid", "pmc-uid", "doi", "publisher-id")


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the articles of a JATS file."""
    records = XmlRecordReader(source, "article")
    for number, cut in enumerate(records.iter_records(), start=1):
        if isinstance(cut, SetAside):
            yield cut
            continue
        try:
            article = records.element(cut.content)
        except BadInput as wrong:
            yield source.set_aside(str(wrong))
            continue
        yield from _article(article, number, source, options)


def _article(article: Any, number: int, source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    meta = _child(article, "front/article-meta")
    ids = _ids(meta)
    name = next((ids[kind] for kind in _ID_TYPES if kind in ids), f"{source.stem}-{number}")
    language = to_two_letter_code(article.get(_LANGUAGE))
    composer = Composer()
    if meta is not None:
        composer.add(_text(_child(meta, "title-group/article-title")), "title")
        for abstract in meta.iterfind("{*}abstract"):
            _add_blocks(composer, abstract, "abstract", "", options)
    body = _child(article, "body")
    if body is not None:
        _add_blocks(composer, body, "body", "", options)
    if composer.length == 0:
        yield source.set_aside("the article has no title, abstract or body text", name)
    else:
        yield Document(name, composer.text, composer.sections, meta=ids, language=language)
    if options.translations and meta is not None:
        yield from _translations(meta, name)


def _translations(meta: Any, name: str) -> Iterator[Document]:
    titles = {group.get(_LANGUAGE): group for group in meta.iterfind("{*}title-group/{*}trans-title-group")}
    for number, abstract in enumerate(meta.iterfind("{*}trans-abstract"), start=1):
        composer = Composer()
        code = abstract.get(_LANGUAGE)
        if code in titles:
            composer.add(_text(_child(titles[code], "trans-title")), "title")
        _add_blocks(composer, abstract, "abstract", "", ReadOptions())
        language = to_two_letter_code(code)
        if composer.length:
            yield Document(
                f"{name}/{language or number}",
                composer.text,
                composer.sections,
                meta={"translation_of": name},
                language=language,
            )


def _child(element: Any, path: str) -> Any:
    return element.find("/".join("{*}" + name for name in path.split("/")))


def _ids(meta: Any) -> dict[str, str]:
    elements = meta.iterfind("{*}article-id") if meta is not None else ()
    return {element.get("pub-id-type") or "id": element.text.strip() for element in elements if element.text}


def _name(element: Any) -> str:
    return element.tag.rsplit("}", 1)[-1] if isinstance(element.tag, str) else ""


def _add_blocks(composer: Composer, parent: Any, kind: str, heading: str, options: ReadOptions) -> None:
    """Add the titles, paragraphs and sections below an element in their order."""
    for child in parent:
        name = _name(child)
        if name == "title":
            heading = _text(child)
            composer.add(heading, "heading")
        elif name in ("sec", "boxed-text"):
            _add_blocks(composer, child, kind, heading, options)
        elif name in _FLOATS:
            _add_captions(composer, child, options)
        elif name and name not in ("label", "sec-meta"):
            composer.add(_text(child), kind, heading)
            for float_ in (below for below in child.iter() if _name(below) in _FLOATS):
                _add_captions(composer, float_, options)


def _add_captions(composer: Composer, element: Any, options: ReadOptions) -> None:
    if options.captions:
        for caption in element.iterfind("{*}caption"):
            composer.add(_text(caption), "caption")


def _text(element: Any) -> str:
    return _SPACE.sub(" ", "".join(_pieces(element))).strip() if element is not None else ""


def _pieces(element: Any) -> Iterator[str]:
    """Yield the text below an element without what is left out, with spaces around blocks."""
    yield element.text or ""
    for child in element:
        name = _name(child)
        if name and name not in _LEFT_OUT:
            edge = " " if name in _BLOCKS else ""
            yield edge
            yield from _pieces(child)
            yield edge
        yield child.tail or ""
