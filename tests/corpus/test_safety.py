"""Hostile and broken files: refused or set aside with a reason, in bounded memory, and the rest goes on."""

import gzip
import io
import json
import os
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from alembert.corpus.document import Document
from alembert.corpus.readers import Item, ReadOptions, Remark, SetAside, read
from alembert.corpus.readers.contract import DamagedFile
from alembert.corpus.readers.source import decompress_blocks

BOMB = '<!DOCTYPE r [<!ENTITY a "lol">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
)
OUTSIDE = '<!DOCTYPE r [<!ENTITY j SYSTEM "file:///etc/passwd">'


def asides(items: list[Item]) -> list[SetAside]:
    return [item for item in items if isinstance(item, SetAside)]


@pytest.mark.parametrize("prolog", [BOMB, OUTSIDE])
@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("medline", "<PubmedArticle><MedlineCitation><PMID>1</PMID><Article><ArticleTitle>{}</ArticleTitle>"
                    "</Article></MedlineCitation></PubmedArticle>"),
        ("jats", "<article><front><article-meta><title-group><article-title>{}</article-title></title-group>"
                 "</article-meta></front></article>"),
        ("bioc-xml", "<document><id>1</id><passage><offset>0</offset><text>{}</text></passage></document>"),
    ],
)  # fmt: skip
def test_declared_entities_are_never_expanded(prolog: str, name: str, record: str) -> None:
    data = prolog + "]><r>" + record.format("&j;") + record.format("Good.") + "</r>"
    items = list(read(io.BytesIO(data.encode()), format=name))
    assert [item.text for item in items if isinstance(item, Document)] == ["Good."]
    assert ["entit" in item.reason for item in asides(items)] == [True]


def gzip_of_zeros(megabytes: int) -> Iterator[bytes]:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    for _ in range(megabytes):
        yield packer.compress(b"\0" * (1 << 20))
    yield packer.flush()


def test_a_gzip_bomb_is_stopped() -> None:
    data = b"".join(gzip_of_zeros(200))
    with pytest.raises(DamagedFile, match="bomb"):
        for _ in decompress_blocks(io.BytesIO(data)):
            pass


def test_a_gzip_bomb_takes_no_memory() -> None:
    data = b"".join(gzip_of_zeros(150))
    tracemalloc.start()
    items = list(read(io.BytesIO(data), ReadOptions(max_record=1 << 20, encoding="utf-8"), format="jsonl"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(asides(items)) == 1
    assert peak < 20 << 20


def test_highly_repetitive_text_is_no_bomb() -> None:
    data = gzip.compress(b'{"text": "the same line again"}\n' * 1000)
    assert sum(isinstance(item, Document) for item in read(io.BytesIO(data), format="jsonl")) == 1000


def test_several_gzip_members_and_padding_are_one_file() -> None:
    data = gzip.compress(b"first ") + gzip.compress(b"second") + b"\0" * 512
    assert b"".join(decompress_blocks(io.BytesIO(data))) == b"first second"


def test_rubbish_after_gzip_is_noticed_after_the_content() -> None:
    found = decompress_blocks(io.BytesIO(gzip.compress(b"content") + b"rubbish"))
    assert next(found) == b"content"
    with pytest.raises(DamagedFile, match="not gzip"):
        next(found)


def test_a_broken_gzip_checksum_is_noticed() -> None:
    data = bytearray(gzip.compress(b"content"))
    data[-6] ^= 0xFF
    items = list(read(io.BytesIO(bytes(data)), format="text"))
    assert "damaged" in asides(items)[0].reason


def test_a_million_characters_on_a_line_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"id": "1", "text": "word " * 200_000}))
    (document,) = read(path)
    assert isinstance(document, Document)
    assert len(document.text) == 1_000_000


def test_lone_surrogates_are_replaced_and_counted() -> None:
    data = rb'{"id": "1", "text": "a \ud800 b \udc00 c \ud83d\ude00"}'
    document, remark = read(io.BytesIO(data))
    assert isinstance(document, Document)
    assert document.text == "a � b � c 😀"
    assert remark == Remark("<stream>", "lone surrogates were replaced by U+FFFD", 2)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b'{"text": 1' + b"0" * 10_000 + b"}"])
def test_deep_nesting_and_giant_numbers_are_set_aside(data: bytes) -> None:
    items = list(read(io.BytesIO(data), format="jsonl"))
    assert len(asides(items)) == 1


def test_a_bioc_offset_beyond_reason_takes_no_memory() -> None:
    passage = {"offset": 10**15, "text": "Far away.", "annotations": []}
    data = json.dumps({"documents": [{"id": "1", "passages": [passage]}]}).encode()
    document, remark = read(io.BytesIO(data))
    assert isinstance(document, Document)
    assert document.text == "Far away."
    assert isinstance(remark, Remark)


def test_an_endless_xml_record_is_skipped_and_the_next_one_read() -> None:
    record = b"<document><id>%d</id><passage><offset>0</offset><text>%b</text></passage></document>"
    data = b"<collection>" + record % (1, b"x" * 3_000_000) + record % (2, b"fine") + b"</collection>"
    items = list(read(io.BytesIO(data), ReadOptions(max_record=100_000), format="bioc-xml"))
    assert [item.id for item in items if isinstance(item, Document)] == ["2"]
    assert [item.position for item in asides(items)] == ["record 1"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("jsonl", b'{"text": "secret diagnosis"\n{"id": "1", "words": "diagnosis"}\n'),
        ("bioc-xml", b"<document><id>1</id><passage><text>of <diagnosis></text></passage></document>"),
        ("pubtator", b"1|t|A diagnosis\n1|a|\n1\t0\t3\tother diagnosis\tx\ty\n"),
        ("table", b'text,label\ndiagnosis,1,2\n"diagnosis'),
    ],
)
def test_no_reason_quotes_the_text(name: str, data: bytes) -> None:
    found = asides(list(read(io.BytesIO(data), format=name)))
    assert found
    assert not any("diagnosis" in item.reason for item in found)


def test_a_file_name_that_is_not_unicode_makes_ids_that_are(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt"))
    file.write_text("Aspirin reduces fever.")
    [document] = [item for item in read(file, ReadOptions()) if isinstance(item, Document)]
    assert document.id == r"caf\udce9"
