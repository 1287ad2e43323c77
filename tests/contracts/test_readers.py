"""The contract of the readers: each of them passes every check in here."""

import gzip
import io
import itertools
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert.corpus.document import Document, Entity, Section, find_problems
from alembert.corpus.readers import (
    FORMATS,
    Item,
    ReadOptions,
    Remark,
    SetAside,
    detect_file_format,
    read,
)
from alembert.corpus.readers.contract import MEGABYTE
from alembert.corpus.writers import write

TITLE, BODY = "Aspirin and fever", "Aspirin lowers fever in mice."
TEXT = f"{TITLE}\n{BODY}"


def sample_documents(count: int) -> list[Document]:
    sections = (Section(0, len(TITLE), "title"), Section(len(TITLE) + 1, len(TEXT), "abstract"))
    start = len(TITLE) + 1
    entities = (
        Entity("T1", "Chemical", ((0, 7),), ("D001241",)),
        Entity("T2", "Disease", ((start + 15, start + 20),), ("D005334",)),
    )
    return [Document(str(1000 + number), TEXT, sections, entities) for number in range(count)]


def medline(count: int) -> bytes:
    article = (
        "<PubmedArticle><MedlineCitation><PMID Version='1'>{}</PMID><Article><ArticleTitle>{}</ArticleTitle>"
        "<Abstract><AbstractText>{}</AbstractText></Abstract></Article></MedlineCitation></PubmedArticle>\n"
    )
    records = "".join(article.format(1000 + number, TITLE, BODY) for number in range(count))
    return f"<?xml version='1.0'?><PubmedArticleSet>{records}</PubmedArticleSet>".encode()


def jats(count: int) -> bytes:
    article = (
        "<article><front><article-meta><article-id pub-id-type='pmid'>{}</article-id><title-group>"
        "<article-title>{}</article-title></title-group></article-meta></front><body><p>{}</p></body></article>\n"
    )
    records = "".join(article.format(1000 + number, TITLE, BODY) for number in range(count))
    return f"<pmc-articleset>{records}</pmc-articleset>".encode()


def nbib(count: int) -> bytes:
    record = "PMID- {}\nOWN - NLM\nTI  - {}\nAB  - {}\nLA  - eng\nPT  - Journal Article\n"
    words = BODY.replace(" in ", "\n      in ")  # long values go on in lines with an indent
    return "\n".join(record.format(1000 + number, TITLE, words) for number in range(count)).encode()


def table(count: int) -> bytes:
    rows = [f"{1000 + number}\t{TITLE}\t{BODY}" for number in range(count)]
    return "\n".join(["id\ttitle\ttext", *rows, ""]).encode()


def plain(count: int) -> bytes:
    return "\n\n".join([TEXT] * count).encode()


MADE = {"medline": medline, "jats": jats, "nbib": nbib, "table": table, "text": plain}
NAMES = {"table": "sample.tsv", "text": "1000.txt", "conll": "sample.conll"}
OPTIONS = {"text": ReadOptions(documents="blank")}
ONE_STREAM = sorted(set(FORMATS) - {"brat"})
STREAMED = sorted(set(ONE_STREAM) - {"parquet"})


def content(name: str, count: int) -> bytes:
    if name in MADE:
        return MADE[name](count)
    buffer = io.BytesIO()
    write(sample_documents(count), buffer, name)
    return buffer.getvalue()


SMALL = cache(lambda name: content(name, 2))
SNIPPETS = [
    b"<",
    b">",
    b"&x;",
    b'"',
    b"null",
    b"[]",
    b"{}",
    b"\t",
    b"\n",
    b"-1",
    b"99",
    b"\\ud800",
    b"|",
    b"1e999",
]


def sample(name: str, folder: Path, count: int = 3, ending: str = "") -> Path:
    """Write a sample file of a format and give its path."""
    if name == "brat":
        write(sample_documents(count), folder / "pairs", name)
        return folder / "pairs"
    path = folder / (NAMES.get(name, "sample") + ending)
    data = content(name, count)
    path.write_bytes(gzip.compress(data) if ending == ".gz" else data)
    return path


def read_all(name: str, path: Path) -> list[Item]:
    return list(read(path, OPTIONS.get(name), format=name))


def documents(items: list[Item]) -> list[Document]:
    return [item for item in items if isinstance(item, Document)]


def asides(items: list[Item]) -> list[SetAside]:
    return [item for item in items if isinstance(item, SetAside)]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_gives_every_document_with_its_id(name: str, tmp_path: Path) -> None:
    found = documents(read_all(name, sample(name, tmp_path)))
    expected = ["1000-1", "1000-2", "1000-3"] if name == "text" else ["1000", "1001", "1002"]
    assert [document.id for document in found] == expected


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_keeps_the_text(name: str, tmp_path: Path) -> None:
    found = documents(read_all(name, sample(name, tmp_path)))
    expected = TEXT.replace(".", " .") if name == "conll" else TEXT
    assert {document.text for document in found} == {expected}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_gives_sound_documents_and_nothing_aside(name: str, tmp_path: Path) -> None:
    items = read_all(name, sample(name, tmp_path))
    assert asides(items) == []
    assert [list(find_problems(document)) for document in documents(items)] == [[], [], []]


@pytest.mark.parametrize("name", ["bioc-json", "bioc-xml", "brat", "conll", "jsonl", "parquet", "pubtator"])
def test_offsets_cut_out_the_mentions(name: str, tmp_path: Path) -> None:
    for document in documents(read_all(name, sample(name, tmp_path))):
        assert [entity.surface(document.text) for entity in document.entities] == ["Aspirin", "fever"]
        assert [entity.label for entity in document.entities] == ["Chemical", "Disease"]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_is_recognised(name: str, tmp_path: Path) -> None:
    assert detect_file_format(sample(name, tmp_path)) == name


@pytest.mark.parametrize("name", ONE_STREAM)
def test_reads_gzip_the_same(name: str, tmp_path: Path) -> None:
    plain_items = documents(read_all(name, sample(name, tmp_path)))
    assert documents(read_all(name, sample(name, tmp_path, ending=".gz"))) == plain_items


@pytest.mark.parametrize("name", ONE_STREAM)
def test_reads_zstd_the_same(name: str, tmp_path: Path) -> None:
    path = sample(name, tmp_path)
    packed = tmp_path / (path.name + ".zst")
    with pa.CompressedOutputStream(str(packed), "zstd") as file:
        file.write(path.read_bytes())
    assert documents(read_all(name, packed)) == documents(read_all(name, path))


@pytest.mark.parametrize("name", ONE_STREAM)
def test_reads_a_stream_the_same(name: str, tmp_path: Path) -> None:
    path = sample(name, tmp_path)
    with path.open("rb") as stream:
        found = documents(list(read(stream, OPTIONS.get(name), format=name)))
    assert found == documents(read_all(name, path))


@pytest.mark.parametrize("name", ONE_STREAM)
def test_sets_an_empty_file_aside(name: str, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    assert read_all(name, path) == [SetAside(str(path), "file", None, "the file is empty", "file")]


@pytest.mark.parametrize("name", ONE_STREAM)
def test_sets_a_missing_file_aside(name: str, tmp_path: Path) -> None:
    (item,) = read_all(name, tmp_path / "absent")
    assert isinstance(item, SetAside)
    assert "cannot be read" in item.reason
    assert item.kind == "file"


@pytest.mark.parametrize("name", STREAMED)
def test_keeps_what_comes_before_a_cut_in_gzip(name: str, tmp_path: Path) -> None:
    path = sample(name, tmp_path, count=2000, ending=".gz")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    items = read_all(name, path)
    assert 200 < len(documents(items)) < 2000
    assert "truncated" in asides(items)[-1].reason
    assert asides(items)[-1].kind == "file"


@pytest.mark.parametrize("name", STREAMED)
def test_keeps_what_comes_before_a_cut_in_zstd(name: str, tmp_path: Path) -> None:
    packed = tmp_path / (NAMES.get(name, "sample") + ".zst")
    count = 6000 if name in MADE else 2000  # several blocks of zstd, of which the last is cut
    data = content(name, count)
    with pa.CompressedOutputStream(str(packed), "zstd") as file:
        for start in range(0, len(data), 1 << 16):
            file.write(data[start : start + (1 << 16)])
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size * 3 // 4])
    items = read_all(name, packed)
    assert 100 < len(documents(items)) < count
    assert "truncated" in asides(items)[-1].reason


@pytest.mark.parametrize("name", STREAMED)
def test_gives_documents_before_the_end_is_read(name: str, tmp_path: Path) -> None:
    data = content(name, 3 * MEGABYTE // len(content(name, 1)))  # a megabyte is read at a time
    stream = io.BytesIO(data)
    items = read(stream, OPTIONS.get(name), format=name)
    assert isinstance(next(items), Document)
    assert stream.tell() < len(data)


@pytest.mark.parametrize("name", ONE_STREAM)
@pytest.mark.parametrize("data", [b"\x00\x01\x02" * 50, b"\x1f\x8b garbage", b"}{", b"<a><b></a>", b"\xff\xfe\xfd"])
def test_never_raises_on_rubbish(name: str, data: bytes) -> None:
    for item in read(io.BytesIO(data), format=name):
        assert isinstance(item, SetAside | Remark | Document)


@pytest.mark.parametrize("name", ONE_STREAM)
@given(data=st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_never_raises_on_a_damaged_file(name: str, data: st.DataObject) -> None:
    damaged = bytearray(SMALL(name))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        width = data.draw(st.integers(0, 12))
        damaged[place : place + width] = data.draw(st.binary(max_size=6) | st.sampled_from(SNIPPETS))
    for item in read(io.BytesIO(bytes(damaged)), format=name):
        assert not isinstance(item, Document) or list(find_problems(item)) == []


@pytest.mark.parametrize("name", sorted({*STREAMED} - {"text", "conll"}))
def test_goes_on_after_a_bad_record(name: str) -> None:
    good = content(name, 3)
    places = {
        "medline": (b"<ArticleTitle>", b"<ArticleTitle><unclosed>"),
        "jats": (b"<article-title>", b"<article-title><unclosed>"),
        "bioc-xml": (b"<passage>", b"<passage><unclosed>"),
        "bioc-json": (b'"offset":0', b'"offset":"zero"'),
        "jsonl": (b'"text":', b'"text":,'),
        "nbib": (b"OWN - NLM", b"OWN = NLM"),
        "pubtator": (b"1000|t|", b"1000|q|"),
        "table": (b"1000\t", b"1000\t\t\t"),
    }
    bad = good.replace(*places[name], 1)
    items = list(read(io.BytesIO(bad), format=name))
    assert [document.id for document in documents(items)] == ["1001", "1002"]
    assert len(asides(items)) == 1


@pytest.mark.parametrize("name", STREAMED)
def test_a_record_over_the_limit_is_set_aside(name: str) -> None:
    data = content(name, 2).replace(b"mice", b"mice " * 2000)
    options = ReadOptions(max_record=5000, documents="blank")
    items = list(read(io.BytesIO(data), options, format=name))
    assert not any("mice" in document.text for document in documents(items))
    assert "max_record" in asides(items)[0].reason


def test_memory_stays_bounded_on_an_endless_line() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            self.given += size
            return b"x" * size if self.given < 300 << 20 else b""

    options = ReadOptions(max_record=1 << 20)
    items = list(itertools.islice(read(Endless(), options, format="jsonl"), 10))  # type: ignore[arg-type]
    assert [item.reason for item in asides(items)] == ["the line is longer than max_record (1048576 bytes)"]
