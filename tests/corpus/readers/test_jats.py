"""JATS: titles, abstracts and body in order, floats and references out."""

import io

from alembert.corpus.document import Document
from alembert.corpus.readers import ReadOptions, SetAside, read

FRONT = (
    "<front><article-meta><article-id pub-id-type='doi'>10.1/x</article-id><article-id pub-id-type='pmid'>42</article-id>"
    "<title-group><article-title>On <italic>E. coli</italic></article-title></title-group>"
    "<abstract><sec><title>Aim</title><p>To see.</p></sec></abstract>"
    "<trans-abstract xml:lang='fr'><p>Pour voir.</p></trans-abstract></article-meta></front>"
)
BODY = """<body><p>Lead.</p><sec><title>Methods</title><p>We used
    <inline-formula><alternatives><tex-math>\\documentclass{x}</tex-math>
    <mml:math xmlns:mml="m"><mml:mi>y</mml:mi></mml:math></alternatives></inline-formula> and &alpha;.<fig><label>1</label>
    <caption><p>A figure.</p></caption></fig> Then<xref>1</xref>.</p>
    <sec><title>Mice</title><p>Some mice:<list><list-item><p>one</p></list-item><list-item><p>two</p></list-item></list></p>
    </sec></sec></body>"""
ARTICLE = f"<article xml:lang='en'>{FRONT}{BODY}<back><ref-list><ref>Reference.</ref></ref-list></back></article>"


def documents(data: str, options: ReadOptions | None = None) -> list[Document]:
    return [item for item in read(io.BytesIO(data.encode()), options) if isinstance(item, Document)]


def test_text_is_put_together_in_order() -> None:
    document = documents(ARTICLE)[0]
    lines = ["On E. coli", "Aim", "To see.", "Lead.", "Methods", "We used y and α. Then1.", "Mice"]
    assert document.text.split("\n") == [*lines, "Some mice: one two"]


def test_sections_know_their_kind_and_heading() -> None:
    found = [(section.kind, section.heading) for section in documents(ARTICLE)[0].sections]
    expected = [("title", ""), ("heading", ""), ("abstract", "Aim"), ("body", ""), ("heading", "")]
    assert found == [*expected, ("body", "Methods"), ("heading", ""), ("body", "Mice")]


def test_captions_come_when_asked_for() -> None:
    document = documents(ARTICLE, ReadOptions(captions=True))[0]
    captions = [part for part in document.sections if part.kind == "caption"]
    assert [document.text[part.start : part.end] for part in captions] == ["A figure."]


def test_ids_and_languages() -> None:
    found = [(document.id, document.language) for document in documents(ARTICLE)]
    assert found == [("42", "en"), ("42/fr", "fr")]


def test_a_default_namespace_and_a_set_of_articles_change_nothing() -> None:
    wrapped = "<pmc-articleset xmlns:xlink='x'>" + ARTICLE.replace("<article ", "<article xmlns='urn:jats' ", 1)
    assert documents(wrapped + "</pmc-articleset>") == documents(ARTICLE)


def test_an_article_without_text_is_set_aside() -> None:
    (item,) = read(io.BytesIO(b"<article><front/></article>"))
    assert isinstance(item, SetAside)
    assert "no title" in item.reason
