"""MEDLINE: whole titles, structured abstracts, languages, deletions, and which citation wins."""

import io
import re
from pathlib import Path

import pytest

from alembert.corpus.document import Document
from alembert.corpus.readers import DeletedRecord, Item, SetAside, read

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "corpus" / "pubmed21n1298.xml.gz"
needs_real_file = pytest.mark.skipif(not REAL.exists(), reason="the MEDLINE file is not there")


def citation(pmid: int, article: str, after: str = "", version: int = 1) -> str:
    return (
        f'<PubmedArticle><MedlineCitation><PMID Version="{version}">{pmid}</PMID><Article>{article}</Article>{after}'
        f"</MedlineCitation><PubmedData><ArticleTitle>of a reference</ArticleTitle></PubmedData></PubmedArticle>"
    )


def items_of(*records: str) -> list[Item]:
    data = f'<?xml version="1.0" encoding="utf-8"?><PubmedArticleSet>{"".join(records)}</PubmedArticleSet>'
    return list(read(io.BytesIO(data.encode())))


def document_of(*records: str) -> Document:
    item = items_of(*records)[0]
    assert isinstance(item, Document)
    return item


def test_inline_tags_and_formulas_are_kept_as_text() -> None:
    title = (
        "H<sub>2</sub>O in <i>E. <b>coli</b></i>: <mml:math xmlns:mml='http://www.w3.org/1998/Math/MathML'>"
        "<mml:mi>x</mml:mi></mml:math> &lt; 5 &#945; end."
    )
    assert document_of(citation(1, f"<ArticleTitle>{title}</ArticleTitle>")).text == "H2O in E. coli: x < 5 α end."


def test_prefixes_that_only_the_dtd_declares_are_read() -> None:
    article = "<ArticleTitle>At <mml:math><mml:mi q:size='1'>x</mml:mi></mml:math>: here</ArticleTitle>"
    assert document_of(citation(1, article)).text == "At x: here"


def test_line_breaks_of_the_file_are_spaces() -> None:
    article = "<ArticleTitle>Two\n        lines</ArticleTitle>"
    assert document_of(citation(1, article)).text == "Two lines"


def test_a_structured_abstract_becomes_sections() -> None:
    article = (
        "<ArticleTitle>T.</ArticleTitle><Abstract><AbstractText Label='AIM'>First.</AbstractText>"
        "<AbstractText Label='RESULTS'>Second.</AbstractText><CopyrightInformation>(c)</CopyrightInformation></Abstract>"
    )
    document = document_of(citation(1, article))
    found = [(part.kind, part.heading, document.text[part.start : part.end]) for part in document.sections]
    assert found == [("title", "", "T."), ("abstract", "AIM", "First."), ("abstract", "RESULTS", "Second.")]


def test_authors_are_left_out_and_what_follows_them_is_not() -> None:
    article = (
        "<Journal><JournalIssue><PubDate><MedlineDate>1999 Nov-Dec</MedlineDate></PubDate></JournalIssue>"
        "<Title>J Test</Title></Journal><ArticleTitle>T.</ArticleTitle><AuthorList><Author/></AuthorList>"
        "<Language>ger</Language><PublicationTypeList><PublicationType>Review</PublicationType></PublicationTypeList>"
    )
    document = document_of(citation(1, article))
    assert document.language == "de"
    expected = {"version": "1", "journal": "J Test", "year": "1999", "publication_types": ["Review"]}
    assert document.meta == expected


def test_other_languages_become_documents_of_their_own() -> None:
    article = "<ArticleTitle>[Cough.]</ArticleTitle><Language>chi</Language><VernacularTitle>咳嗽。</VernacularTitle>"
    other = "<OtherAbstract Type='Publisher' Language='chi'><AbstractText>正文。</AbstractText></OtherAbstract>"
    first, second = items_of(citation(1, article, other))
    assert isinstance(first, Document)
    assert isinstance(second, Document)
    assert (first.id, first.language, first.text) == ("1", "en", "[Cough.]")
    assert (second.id, second.language, second.text) == ("1/zh", "zh", "咳嗽。\n正文。")


def test_a_plain_language_summary_stays_in_its_document() -> None:
    article = "<ArticleTitle>T.</ArticleTitle><Language>eng</Language>"
    other = (
        "<OtherAbstract Type='plain-language-summary' Language='eng'><AbstractText>S.</AbstractText></OtherAbstract>"
    )
    document = document_of(citation(1, article, other))
    assert document.sections[1].kind == "plain-language-summary"


def test_a_citation_without_text_is_set_aside() -> None:
    (item,) = items_of(citation(5, "<ArticleTitle/><Abstract><AbstractText/></Abstract>"))
    assert item == SetAside("<stream>", "record 1", "5", "the citation has neither a title nor an abstract")


def test_deletions_are_given() -> None:
    items = items_of("<DeleteCitation><PMID Version='1'>7</PMID><PMID Version='1'>8</PMID></DeleteCitation>")
    assert items == [DeletedRecord("<stream>", "record 1", "7"), DeletedRecord("<stream>", "record 1", "8")]


def test_a_book_is_read_too() -> None:
    book = (
        "<PubmedBookArticle><BookDocument><PMID>9</PMID><Book><BookTitle>Book</BookTitle></Book>"
        "<ArticleTitle>Chapter</ArticleTitle><Abstract><AbstractText>A.</AbstractText></Abstract></BookDocument>"
        "</PubmedBookArticle>"
    )
    assert document_of(book).text == "Chapter\nA."


@pytest.fixture(scope="module")
def real() -> list[Item]:
    return list(read(REAL))


@needs_real_file
def test_the_real_file_adds_up(real: list[Item]) -> None:
    main = [item for item in real if isinstance(item, Document) and "translation_of" not in item.meta]
    asides = [item for item in real if isinstance(item, SetAside)]
    assert len(main) + len(asides) == 20_788
    assert sum(isinstance(item, DeletedRecord) for item in real) == 20
    with_abstract = [item for item in main if any(part.kind == "abstract" for part in item.sections)]
    assert len(with_abstract) == 18_445


@needs_real_file
def test_real_titles_with_inline_tags_are_whole(real: list[Item]) -> None:
    import gzip

    raw = gzip.decompress(REAL.read_bytes()).decode()
    stated = re.findall(
        r"<PMID[^>]*>(\d+)</PMID>(?:(?!</?PubmedArticle>).)*?<ArticleTitle>(.*?)</ArticleTitle>", raw, re.S
    )
    tagged = {pmid: title for pmid, title in stated if "<" in title and "mml" not in title}
    documents = {item.id: item for item in real if isinstance(item, Document)}
    assert len(tagged) > 1000
    for pmid, title in tagged.items():
        expected = re.sub(r"</?(?:i|b|sub|sup|u)/?>", "", title).replace("&lt;", "<").replace("&gt;", ">")
        assert documents[pmid].text.startswith(expected.replace("&amp;", "&").strip())
