"""Writers: what a format cannot hold is counted, compression, and Label Studio's tasks."""

import io
import json
from pathlib import Path

import pytest

from alembert.corpus.document import Document, Entity, Relation, Section
from alembert.corpus.readers import read
from alembert.corpus.writers import FORMATS, write
from alembert.errors import BadSetting

TEXT = "breast or ovarian\ncancer 𝛼 fever"
DOCUMENT = Document(
    id="a|b",
    text=TEXT,
    sections=(Section(0, 6, "odd"),),
    entities=(
        Entity("x", "Big Disease", ((0, 6), (18, 24)), ("D1",), (("sure", "yes"),)),
        Entity("y", "Disease", ((10, 24),)),
        Entity("z", "Sign", ((27, 32),), ("D2",)),
    ),
    relations=(Relation("r", "near", (("a", "x"), ("b", "z"))), Relation("s", "all", (("a", "x"),))),
    labels=("l",),
    meta={"n": 1},
    language="en",
)


def losses_of(name: str, target: Path) -> dict[str, int]:
    return dict(write([DOCUMENT], target / "out", name))


def test_pubtator_counts_what_it_cannot_hold(tmp_path: Path) -> None:
    assert losses_of("pubtator", tmp_path) == {
        "names were changed because the format cannot hold one of their characters": 1,
        "no place in the format for labels": 1,
        "no place in the format for meta": 1,
        "no place in the format for language": 1,
        "no place in the format for sections": 1,
        "no place in the format for attributes": 1,
        "discontinuous mentions were written from their first to their last character": 1,
        "relations between mentions were written between their concepts": 1,
        "relations were lost: the format has those between two concepts only": 1,
    }


def test_conll_counts_what_it_cannot_hold(tmp_path: Path) -> None:
    losses = losses_of("conll", tmp_path)
    assert losses["mentions that overlap a longer one were lost"] == 1
    assert losses["no place in the format for relations"] == 2
    assert losses["no place in the format for concept ids"] == 2


def test_brat_counts_what_it_cannot_hold(tmp_path: Path) -> None:
    losses = losses_of("brat", tmp_path)
    assert losses["annotation ids were numbered anew"] == 5
    assert losses["relations of other than two arguments, and no events, were lost"] == 1
    assert losses["names were changed because the format cannot hold one of their characters"] == 1


def test_bioc_xml_replaces_what_xml_cannot_hold(tmp_path: Path) -> None:
    target = tmp_path / "out.xml"
    losses = write([Document("1", "a\x00b\x1fc")], target, "bioc-xml")
    assert losses == {"characters that XML cannot hold were replaced by U+FFFD": 2}
    assert list(read(target)) == [Document("1", "a�b�c")]


def test_brat_keeps_documents_of_the_same_id(tmp_path: Path) -> None:
    twins = [Document("1", "one"), Document("1", "two")]
    write(twins, tmp_path / "out", "brat")
    assert list(read(tmp_path / "out")) == twins


def test_brat_shortens_names_that_no_folder_takes(tmp_path: Path) -> None:
    losses = write([Document("x" * 500, "one")], tmp_path / "out", "brat")
    assert losses == {"ids too long for a file name were shortened": 1}


def test_brat_needs_a_folder() -> None:
    with pytest.raises(BadSetting, match="folder"):
        write([], io.BytesIO(), "brat")


def test_an_unknown_format_is_a_wrong_setting() -> None:
    with pytest.raises(BadSetting, match="word"):
        write([], io.BytesIO(), "word")


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("name", sorted({*FORMATS} - {"brat", "label-studio", "parquet"}))
def test_compressed_by_the_ending_and_the_same_bytes_each_time(name: str, ending: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}{ending}" for number in range(2)]
    for path in paths:
        write([DOCUMENT], path, name)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert any(isinstance(item, Document) for item in read(paths[0], format=name))


def test_label_studio_tasks_have_regions_links_and_choices() -> None:
    target = io.BytesIO()
    losses = write([DOCUMENT], target, "label-studio")
    (task,) = json.loads(target.getvalue())
    results = task["annotations"][0]["result"]
    assert [result["type"] for result in results] == ["labels", "labels", "labels", "relation", "choices"]
    value = results[2]["value"]
    assert task["data"]["text"][value["start"] : value["end"]] == value["text"] == "fever"
    assert losses["relations of other than two mentions were lost"] == 1


def test_brat_gets_the_types_that_were_written(tmp_path: Path) -> None:
    write([DOCUMENT], tmp_path, "brat")
    assert (tmp_path / "annotation.conf").read_text() == (
        "[entities]\nBig_Disease\nDisease\nSign\n\n[relations]\nnear\ta:<ENTITY>, b:<ENTITY>\n\n[events]\n\n"
        "[attributes]\nsure\tArg:<ANY>, Value:yes\n"
    )


def test_triggers_are_events_and_numbers_are_no_list_of_values(tmp_path: Path) -> None:
    scores = [Entity(f"T{n}", "Gene", ((0, 1),), attributes=(("score", f"0.{n}"),)) for n in range(2, 5)]
    entities = (Entity("T1", "Binding", ((2, 9),)), *scores)
    event = Relation("E1", "Binding", (("Trigger", "T1"), ("Theme", "T2")), (("Negation", "true"),))
    write([Document("1", "A binding", entities=entities, relations=(event,))], tmp_path, "brat")
    assert (tmp_path / "annotation.conf").read_text() == (
        "[entities]\nGene\n\n[relations]\n\n[events]\nBinding\tTheme*:<ANY>\n\n"
        "[attributes]\nNegation\tArg:<ANY>\nscore\tArg:<ANY>\n"
    )
