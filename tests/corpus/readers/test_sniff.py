"""Formats are told by what is in a file, then by its name."""

import gzip
from pathlib import Path

import pytest

from alembert.corpus.document import Document
from alembert.corpus.readers import ReadOptions, SetAside, detect_file_format, read
from alembert.errors import BadFile, BadSetting

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "Just some words.", "text"),
        ("a.txt", '{"text": "a"}\n{"text": "b"}\n', "jsonl"),
        ("a.json", '[{"text": "a"}]', "jsonl"),
        ("a.json", '{"documents": [{"passages": []}]}', "bioc-json"),
        ("a.txt", "1|t|Title\n1|a|Abstract\n", "pubtator"),
        ("a.tsv", "word\tO\nother\tB-x\n\n", "conll"),
        ("a.tsv", "sentence\tlabel\nwords here\t1\n", "table"),
        ("a.csv", "id,text\n1,a\n", "table"),
        ("a.nxml", "<!DOCTYPE article PUBLIC '-//NLM//DTD'><article><front/></article>", "jats"),
        ("a.xml", "<?xml version='1.0'?>\n<collection><document/></collection>", "bioc-xml"),
        ("a", "<PubmedArticleSet><PubmedArticle/></PubmedArticleSet>", "medline"),
        ("a.txt", "<p>not XML that we know", "text"),
        ("a.txt", "[1] A reference in brackets.", "text"),
        ("a.txt", "", "text"),
    ],
)
def test_formats_are_told(name: str, content: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert detect_file_format(path) == expected
    packed = tmp_path / (name + ".gz")
    packed.write_bytes(gzip.compress(content.encode()))
    assert detect_file_format(packed) == expected


def test_unknown_xml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text("<?xml version='1.0'?><html/>")
    with pytest.raises(BadFile, match="no format that alembert reads"):
        detect_file_format(path)
    (item,) = read(path)
    assert isinstance(item, SetAside)


def test_an_unknown_format_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="word"):
        read(tmp_path, format="word")


def test_xml_is_read_in_the_encoding_it_declares(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    record = "<document><id>1</id><passage><offset>0</offset><text>Größe</text></passage></document>"
    for encoding in ("iso-8859-1", "utf-8", "utf-16", "gb18030"):
        text = f"<?xml version='1.0' encoding='{encoding}'?><collection>{record}</collection>"
        path.write_bytes(text.encode(encoding))
        assert [item.text for item in read(path) if isinstance(item, Document)] == ["Größe"]


def test_blank_lines_separate_documents_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"one\r\nmore\n\n \n\ntwo\n")
    found = list(read(path, ReadOptions(documents="blank")))
    assert found == [Document("notes-1", "one\nmore"), Document("notes-2", "two")]


def test_a_whole_text_file_is_kept_to_the_character(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes("one\r\n\u2028 two \t\n\nthree\n".encode())
    assert list(read(path)) == [Document("notes", "one\r\n\u2028 two \t\n\nthree")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("corpus/pubmed21n1298.xml.gz", "medline"),
        ("corpus/elife-00.jsonl.gz", "jsonl"),
        ("ner/BC2GM/train.tsv", "conll"),
        ("ner/NCBI-disease-pubtator/NCBItestset_corpus.txt", "pubtator"),
        ("zh/cMedQANER/train.txt", "conll"),
        ("relation/chemprot/train.txt", "jsonl"),
        ("relation/GAD/train.tsv", "table"),
        ("classify/SST-2/train.tsv", "table"),
        ("zh/THUOCL_medical.txt", "text"),
    ],
)
def test_real_files_are_told(name: str, expected: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not there")
    assert detect_file_format(SHARED / name) == expected


@pytest.mark.parametrize("names", [[], ["a.txt"], ["a.jsonl", "b.xml"]])
def test_a_folder_without_annotations_is_set_aside(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("words")
    reason = "a folder without .ann files; name its files instead"
    assert list(read(tmp_path)) == [SetAside(str(tmp_path), "file", None, reason, "file")]


def test_an_empty_folder_is_no_brat_folder_even_if_named_so(tmp_path: Path) -> None:
    assert [type(item) for item in read(tmp_path, format="brat")] == [SetAside]


@pytest.mark.parametrize("size", [0, -1])
def test_a_record_limit_below_one_is_a_wrong_setting(size: int) -> None:
    with pytest.raises(BadSetting, match="max_record"):
        ReadOptions(max_record=size)
