"""CoNLL in its dialects, against seqeval's reading of the tags and the real files."""

import io
from pathlib import Path

import pytest
from seqeval.scheme import IOB1, IOB2, IOBES, Entities

from alembert.corpus.document import Document
from alembert.corpus.readers import Item, ReadOptions, Remark, SetAside, read
from alembert.corpus.readers.conll import decode_tags, detect_tag_dialect

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
SCHEMES = {"IOB1": IOB1, "IOB2": IOB2, "BIOES": IOBES}
TAGGED = {
    "IOB1": ["O", "I-a", "I-a", "B-a", "O", "I-b", "I-a", "O", "I-b"],
    "IOB2": ["O", "B-a", "I-a", "B-a", "O", "B-b", "B-a", "O", "B-b"],
    "BIOES": ["O", "B-a", "E-a", "S-a", "O", "S-b", "S-a", "O", "S-b"],
}


def items_of(data: str, **options: object) -> list[Item]:
    return list(read(io.BytesIO(data.encode()), ReadOptions(**options), format="conll"))  # type: ignore[arg-type]


def found_in(data: str, **options: object) -> list[tuple[str, str]]:
    documents = [item for item in items_of(data, **options) if isinstance(item, Document)]
    return [(one.label, one.surface(document.text)) for document in documents for one in document.entities]


@pytest.mark.parametrize("name", sorted(TAGGED))
def test_entities_are_those_that_seqeval_sees(name: str) -> None:
    seen = Entities([TAGGED[name]], SCHEMES[name]).entities[0]
    assert decode_tags(TAGGED[name]) == [(one.start, one.end, one.tag) for one in seen]


@pytest.mark.parametrize("name", sorted(TAGGED))
def test_the_dialect_is_recognised(name: str) -> None:
    assert detect_tag_dialect(TAGGED[name]) == name


@pytest.mark.parametrize(
    "data",
    [
        "high\tB-x\nfever\tI-x\n.\tO\n",
        "high B-x\nfever I-x\n. O\n",
        "high JJ B-x\nfever NN I-x\n. . O\n",
        "high JJ B-NP B-x\nfever NN I-NP I-x\n. . O O\n",
        "high\tB_x\r\nfever\tI_x\r\n.\tO\r\n",
        "-DOCSTART- -X- O\n\nhigh JJ I-x\nfever NN I-x\n. . O\n",
        "# sentence 1\nhigh B-x\nfever E-x\n. O\n",
        "B-x 0 4 high\nI-x 5 10 fever\nO 11 12 .\n",
    ],
)
def test_columns_and_marks_of_many_kinds(data: str) -> None:
    assert found_in(data) == [("x", "high fever")]


def test_bare_tags_get_the_label_of_the_options() -> None:
    assert found_in("BRCA1 B\ngene I\nis O\n", entity_label="Gene") == [("Gene", "BRCA1 gene")]


def test_documents_are_divided_by_their_marks() -> None:
    data = "-DOCSTART- (a)\n\none O\n\ntwo B-x\n\n-DOCSTART- (b)\n\nthree O\n\n"
    found = [(item.id, item.text) for item in items_of(data) if isinstance(item, Document)]
    assert found == [("a", "one\ntwo"), ("b", "three")]


@pytest.mark.parametrize("token_labels", [False, True])
def test_the_start_of_a_document_is_no_token_even_with_a_tag(token_labels: bool) -> None:
    start = "-DOCSTART- -X- -X- O\n\n"
    data = f"{start}EU NNP B-NP B-ORG\n\nrejects VBZ B-VP O\n\n{start}Peter NNP B-NP B-PER\n"
    found = [item for item in items_of(data, token_labels=token_labels) if isinstance(item, Document)]
    assert [item.text for item in found] == ["EU\nrejects", "Peter"]
    assert [len(item.sections) for item in found] == [2, 1]


def test_a_word_that_begins_like_the_start_of_a_document_is_a_word() -> None:
    (document, _) = items_of("-DOCSTART-s O\nare B-x\n")
    assert isinstance(document, Document)
    assert document.text == "-DOCSTART-s are"


def test_chinese_characters_are_joined_without_spaces() -> None:
    assert found_in("头 B_symptom\n痛 I_symptom\n三 O\n天 O\n") == [("symptom", "头痛")]


def test_mixed_chinese_keeps_its_words_apart() -> None:
    (document, _) = items_of("服 O\n用 O\naspirin B-d\nplus I-d\n后 O\n")
    assert isinstance(document, Document)
    assert document.text == "服用aspirin plus后"


def test_a_sentence_with_a_broken_line_is_set_aside() -> None:
    good = "word\tO\n" * 100
    items = items_of(good + "\nbroken\n\nlast\tB-x\n")
    assert [item.position for item in items if isinstance(item, SetAside)] == ["line 102"]
    assert sum(isinstance(item, Document) for item in items) == 2


@pytest.mark.parametrize(
    ("name", "sentences", "mentions"),
    [
        ("ner/NCBI-disease/devel.tsv", 923, 787),
        ("zh/cMedQANER/dev.txt", 175, 1024),
        ("ner/BC5CDR/test.tsv", 4797, 9809),
    ],
)
def test_real_files_are_read_whole(name: str, sentences: int, mentions: int) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    items = list(read(path))
    documents = [item for item in items if isinstance(item, Document)]
    assert (len(documents), sum(len(document.entities) for document in documents)) == (sentences, mentions)
    assert any(isinstance(item, Remark) and "IOB2" in item.reason for item in items)


def test_chinese_text_equals_that_of_the_json_file() -> None:
    folder = SHARED / "zh" / "cMedQANER"
    if not folder.exists():
        pytest.skip("cMedQANER is not there")
    tagged, plain = (
        [item.text for item in read(folder / name) if isinstance(item, Document)] for name in ("dev.txt", "dev.json")
    )
    assert tagged == plain
