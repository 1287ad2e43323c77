"""Compare: what is read from files of every kind, and what is set aside."""

import gzip
import json
from pathlib import Path

import pytest

from alembert.corpus.readers.contract import ReadOptions
from alembert.tasks.compare.columns import CompareSettings
from alembert.tasks.compare.data import CompareExample
from alembert.tasks.compare.task import CompareTask
from alembert.tasks.example import ReadResult

SHARED = Path(__file__).resolve().parents[4] / "shared"


def read(path: Path, text: str, options: ReadOptions | None = None, **settings: object) -> ReadResult[CompareExample]:
    path.write_text(text, encoding="utf8")
    return CompareTask.read([path], CompareSettings(**settings), options or ReadOptions())


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_each_line_of_plain_text_is_an_example(tmp_path: Path) -> None:
    found = read(tmp_path / "a.txt", "First, with a comma.\n\n  Second.  \n")
    assert [each.texts for each in found.examples] == [("First, with a comma.",), ("Second.",)]
    assert found.examples[1].where.endswith("a.txt:3")
    assert {each.kind for each in found.examples} == {"unsupervised"}


def test_a_text_can_be_split_into_its_sentences_which_stay_together(tmp_path: Path) -> None:
    text = lines({"id": "d", "text": "It hurts. Statins help."}, {"id": "e", "text": "No fever."})
    found = read(tmp_path / "a.jsonl", text, unit="sentence")
    assert [each.texts[0] for each in found.examples] == ["It hurts.", "Statins help.", "No fever."]
    assert found.examples[0].group_id == found.examples[1].group_id != found.examples[2].group_id


def test_documents_of_any_format_are_texts(tmp_path: Path) -> None:
    found = read(tmp_path / "a.txt", "1|t|Title.\n1|a|It hurts.\n\n", unit="sentence")
    assert [each.texts[0] for each in found.examples] == ["Title.", "It hurts."]


def test_json_without_texts_to_compare_is_read_as_documents(tmp_path: Path) -> None:
    article = {
        "title": "Pain.",
        "abstract": ["It hurts."],
        "sections": [{"heading": "H", "paragraphs": ["Much."]}],
    }
    found = read(tmp_path / "a.jsonl", lines(article), unit="sentence")
    assert [each.texts[0] for each in found.examples] == ["Pain.", "It hurts.", "H", "Much."]


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"One.\nTwo.\n"))
    assert len(CompareTask.read([path], CompareSettings(), ReadOptions()).examples) == 2


@pytest.mark.parametrize(
    ("name", "text", "kind", "texts"),
    [
        ("a.csv", 'a b,"c, d",4.5\ne f,g h,0\n', "scores", ("a b", "c, d")),
        ("a.tsv", "sentence1\tsentence2\nx y\tz\n", "pairs", ("x y", "z")),
        ("a.txt", "x y\tz\nu\tv\n", "pairs", ("x y", "z")),
        ("a.csv", "sent0,sent1,hard_neg\na,b,c\n", "triples", ("a", "b", "c")),
        ("a.tsv", "a\tb\tc\nd\te\tf\n", "triples", ("a", "b", "c")),
        (
            "a.jsonl",
            lines({"premise": "a", "entailment": "b", "contradiction": "c"}),
            "triples",
            ("a", "b", "c"),
        ),
        ("a.jsonl", lines({"anchor": "a", "positive": "b"}), "pairs", ("a", "b")),
        ("a.csv", "sentence1,sentence2,negative\na,b,c\n", "triples", ("a", "b", "c")),
        ("a.csv", "query,passage,Hard_Negative\na,b,c\n", "triples", ("a", "b", "c")),
        ("a.csv", "anchor,hard_negative,positive\na,c,b\n", "triples", ("a", "b", "c")),
        ("a.csv", "premise,hypothesis,contradiction\na,b,c\n", "triples", ("a", "b", "c")),
        ("a.csv", "sentence1,sentence2,score,negative\na,b,1,c\nd,e,2,f\n", "scores", ("a", "b")),
        ("a.csv", "sentence1,sentence2,negative\na,b,0.5\nd,e,0.2\n", "pairs", ("a", "b")),
        ("a.csv", "sentence1,sentence2,negative\na,b,\nd,e,\n", "pairs", ("a", "b")),
        ("a.jsonl", lines({"id": 7, "text": "a", "label": "x"}), "unsupervised", ("a",)),
        ("a.csv", "n,sentence1,sentence2,score\n1,a,b,2\n2,c,d,3\n3,e,f,1\n", "scores", ("a", "b")),
        ("a.csv", "1,a,b,2\n2,c,d,3\n3,e,f,2\n", "scores", ("a", "b")),
    ],
)
def test_the_kind_is_told_from_the_columns(
    name: str, text: str, kind: str, texts: tuple[str, ...], tmp_path: Path
) -> None:
    found = read(tmp_path / name, text)
    assert not found.set_aside
    assert (found.examples[0].kind, found.examples[0].texts) == (kind, texts)


def test_columns_can_be_named(tmp_path: Path) -> None:
    rows = lines({"x": "a", "y": "b", "z": "c", "how": 3})
    for text, label, kind in (
        (("x",), None, "unsupervised"),
        (("x", "z"), "how", "scores"),
        (("z", "y", "x"), None, "triples"),
    ):
        found = read(tmp_path / "a.jsonl", rows, ReadOptions(text=text, label=label))
        assert found.examples[0].kind == kind
        assert len(found.examples[0].texts) == len(text)


def test_bad_rows_are_set_aside_with_their_line(tmp_path: Path) -> None:
    found = read(tmp_path / "a.csv", "a,b,1.5\nc,,2\nd,e,much\nf,g,3\n" + "h,i,4\n" * 20)
    assert [(each.position, each.reason) for each in found.set_aside] == [
        ("line 2", "there is no text in 2"),
        ("line 3", "the score in 3 is not a number"),
    ]
    assert len(found.examples) == 22


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.txt", "", "the file is empty"),
        (
            "a.jsonl",
            lines({"premise": "a", "hypothesis": "b", "label": "neutral"}),
            "column label holds words",
        ),
        ("a.tsv", "a\tb\tc\td\ne\tf\tg\th\n", "4 columns could be texts"),
        ("a.xml", "<?xml version='1.0'?><x/>", "this XML is in no format"),
    ],
)
def test_a_file_that_does_not_fit_is_set_aside(name: str, text: str, reason: str, tmp_path: Path) -> None:
    found = read(tmp_path / name, text)
    assert not found.examples
    assert reason in found.set_aside[0].reason


def test_a_column_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    found = read(tmp_path / "a.jsonl", lines({"text": "a"}), ReadOptions(text=("b", "text")))
    assert "there is no column b" in found.set_aside[0].reason


def test_the_files_of_sts_b_have_scores() -> None:
    path = SHARED / "data/similarity/stsb/data/stsb-en-dev.csv"
    if not path.is_file():
        pytest.skip("shared/data/similarity is not beside the repository")
    found = CompareTask.read([path], CompareSettings(), ReadOptions())
    assert (len(found.examples), len(found.set_aside)) == (1500, 0)
    assert {each.kind for each in found.examples} == {"scores"}
    assert max(each.score or 0 for each in found.examples) == 5


def test_one_of_several_columns_of_negatives_is_used_and_the_others_are_named(tmp_path: Path) -> None:
    found = read(tmp_path / "a.csv", "anchor,positive,negative_1,negative_2\na,b,c,d\n")
    assert found.examples[0].texts == ("a", "b", "c")
    assert found.remarks[0].reason == (
        "anchor, partner and hard negative are in columns anchor, positive, negative_1; not used: negative_2"
    )
