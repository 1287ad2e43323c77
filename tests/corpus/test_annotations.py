"""PubTator, brat and BioC: their quirks, and mentions that do not stand where they are said to."""

import io
import json
from pathlib import Path

import pytest

from alembert.corpus.document import Document, Entity, Relation
from alembert.corpus.readers import Item, Remark, SetAside, read


def pubtator(data: str) -> list[Item]:
    return list(read(io.BytesIO(data.encode()), format="pubtator"))


def brat(folder: Path, text: str, annotations: str) -> list[Item]:
    (folder / "note%2F1.txt").write_text(text, newline="")
    (folder / "note%2F1.ann").write_text(annotations, newline="")
    return list(read(folder))


def one_document(items: list[Item]) -> Document:
    (document,) = (item for item in items if isinstance(item, Document))
    return document


def test_pubtator_rows_of_all_kinds() -> None:
    data = (
        "\n\n7|t|Fever.\n7|a|Aspirin or colds.\n7\t0\t5\tFever\tDisease\t D1|D2 \n7\t7\t14\tAspirin\tChemical\n"
        "7\t18\t23\tcolds\tDisease\tD3\tone|two\n7\tCID\tD1\tD3\tNovel\n"
    )
    document = one_document(pubtator(data))
    assert document.entities == (
        Entity("T1", "Disease", ((0, 5),), ("D1", "D2")),
        Entity("T2", "Chemical", ((7, 14),)),
        Entity("T3", "Disease", ((18, 23),), ("D3",), (("parts", "one|two"),)),
    )
    assert document.relations == (Relation("R1", "CID", (("Arg1", "D1"), ("Arg2", "D3")), (("extra", "Novel"),)),)


@pytest.mark.parametrize("joint", ["|", ",", ";", ", ", " ; "])
@pytest.mark.parametrize("form", ["pubtator", "bioc-json"])
def test_relations_reach_each_of_several_concepts(form: str, joint: str) -> None:
    concepts = f"D1{joint}D2"
    rows = f"1|t|Fever or flu\n1|a|\n1\t0\t5\tFever\tDisease\t{concepts}\n1\t9\t12\tflu\tDisease\tD3\n1\twith\tD3\tD2\n"
    annotations = [
        {"id": "1", "infons": {"identifier": concepts}, "locations": [{"offset": 0, "length": 5}]},
        {"id": "2", "infons": {"identifier": "D3"}, "locations": [{"offset": 9, "length": 3}]},
    ]
    relation = {"id": "R1", "infons": {"type": "with"}, "nodes": [{"refid": "D3"}, {"refid": "D2"}]}
    passage = {"offset": 0, "text": "Fever or flu", "annotations": annotations}
    collection = {"documents": [{"id": "1", "passages": [passage], "relations": [relation]}]}
    data = rows if form == "pubtator" else json.dumps(collection)
    (document,) = read(io.BytesIO(data.encode()), format=form)
    assert isinstance(document, Document)
    assert document.entities[0].concepts == ("D1", "D2")
    assert len(document.relations) == 1


def test_variants_and_ids_that_relations_name_are_not_split() -> None:
    data = (
        "1|t|V600E or HeLa\n1|a|\n1\t0\t5\tV600E\tVariant\tp|SUB|V|600|E,c|SUB|T|1799|A\n"
        "1\t9\t13\tHeLa\tCellLine\tCVCL;0030\n1\tin\tp|SUB|V|600|E\tCVCL;0030\n"
    )
    document = one_document(pubtator(data))
    concepts = [entity.concepts for entity in document.entities]
    assert concepts == [("p|SUB|V|600|E", "c|SUB|T|1799|A"), ("CVCL;0030",)]
    assert len(document.relations) == 1


def test_a_relation_that_cannot_be_linked_is_kept_apart() -> None:
    aside, document = pubtator("1|t|Fever\n1|a|\n1\t0\t5\tFever\tDisease\tD1\n1\twith\tD1\tD9\n")
    assert isinstance(aside, SetAside)
    assert isinstance(document, Document)
    assert document.relations == ()
    assert document.unlinked_relations == (Relation("R1", "with", (("Arg1", "D1"), ("Arg2", "D9"))),)


def test_pubtator_documents_need_no_blank_line_between() -> None:
    items = pubtator("1|t|One\n1|a|\n2|t|Two\n2|a|More\n")
    assert [(item.id, item.text) for item in items if isinstance(item, Document)] == [
        ("1", "One"),
        ("2", "Two\nMore"),
    ]


def test_a_moved_mention_is_mended_and_counted() -> None:
    document, remark = pubtator("1|t|A rare fever here\n1|a|\n1\t9\t14\tfever\tDisease\tD1\n")
    assert isinstance(document, Document)
    assert document.entities[0].spans == ((7, 12),)
    assert isinstance(remark, Remark)


@pytest.mark.parametrize("row", ["1\t80\t85\tfever\tD\tx", "1\t0\t5\tcough\tD\tx", "9\t0\t5\tfever\tD\tx", "1\tx"])
def test_a_mention_that_cannot_be_placed_is_set_aside_alone(row: str) -> None:
    aside, document = pubtator(f"1|t|fever and then at long last another fever\n1|a|\n{row}\n")
    assert isinstance(aside, SetAside)
    assert (aside.position, aside.id) == ("line 3", "1")
    assert isinstance(document, Document)


def test_a_relation_between_unknown_concepts_is_set_aside() -> None:
    aside, document = pubtator("1|t|fever\n1|a|\n1\tCID\tD1\tD2\n")
    assert isinstance(aside, SetAside)
    assert isinstance(document, Document)


def test_brat_annotations_of_all_kinds(tmp_path: Path) -> None:
    annotations = (
        "T1\tDisease 0 6;18 24\tbreast cancer\nT2\tDisease 10 24\tovarian cancer\nR1\tSame Arg1:T1 Arg2:T2\n"
        "E1\tGrowth:T2 Theme:T1\nA1\tNegated T1\nA2\tLevel T2 high\nN1\tReference T2 MESH:D010051\tOvarian Neoplasms\n"
        "#1\tAnnotatorNotes T2\tlook again\n*\tEquiv T1 T2\n"
    )
    document = one_document(brat(tmp_path, "breast or ovarian cancer", annotations))
    assert document.id == "note/1"
    assert document.entities == (
        Entity("T1", "Disease", ((0, 6), (18, 24)), (), (("Negated", "true"),)),
        Entity("T2", "Disease", ((10, 24),), ("MESH:D010051",), (("Level", "high"), ("note", "look again"))),
    )
    assert document.relations == (
        Relation("R1", "Same", (("Arg1", "T1"), ("Arg2", "T2"))),
        Relation("E1", "Growth", (("Trigger", "T2"), ("Theme", "T1"))),
        Relation("*3", "Equiv", (("Arg1", "T1"), ("Arg2", "T2"))),
    )


def test_brat_offsets_count_carriage_returns(tmp_path: Path) -> None:
    document = one_document(brat(tmp_path, "a\r\nfever", "T1\tDisease 3 8\tfever\n"))
    assert document.entities[0].surface(document.text) == "fever"


def test_a_brat_line_that_does_not_fit_is_set_aside_alone(tmp_path: Path) -> None:
    items = brat(tmp_path, "fever", "T1\tDisease 0 5\tfever\nT2 broken\nX1\twhat\nR1\tSame Arg1:T1 Arg2:T9\n")
    asides = [item.position for item in items if isinstance(item, SetAside)]
    assert asides[:2] == ["line 2", "line 3"]
    assert len(asides) == 3
    assert len(one_document(items).entities) == 1


def test_a_brat_pair_is_found_from_either_file(tmp_path: Path) -> None:
    items = brat(tmp_path, "fever", "T1\tDisease 0 5\tfever\n")
    for ending in (".txt", ".ann"):
        assert list(read(tmp_path / f"note%2F1{ending}")) == items


def test_brat_annotations_without_text_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "lonely.ann").write_text("T1\tDisease 0 5\tfever\n")
    (item,) = read(tmp_path)
    assert isinstance(item, SetAside)
    assert item.id == "lonely"


def bioc(*passages: dict[str, object]) -> list[Item]:
    data = json.dumps({"source": "x", "documents": [{"id": "1", "infons": {}, "passages": list(passages)}]})
    return list(read(io.BytesIO(data.encode())))


def annotation(offset: int, text: str) -> dict[str, object]:
    return {
        "id": "1",
        "infons": {"type": "x"},
        "locations": [{"offset": offset, "length": len(text)}],
        "text": text,
    }


def test_bioc_passages_that_count_from_zero_are_moved() -> None:
    first = {"offset": 0, "text": "One fever", "annotations": [annotation(4, "fever")]}
    second = {"offset": 0, "text": "Two colds", "annotations": [annotation(4, "colds")]}
    document = one_document(bioc(first, second))
    assert document.text == "One fever\nTwo colds"
    assert [entity.surface(document.text) for entity in document.entities] == ["fever", "colds"]
    assert [entity.id for entity in document.entities] == ["1", "1.2"]


def test_bioc_sentences_make_the_text_of_a_passage() -> None:
    sentences = [
        {"offset": 10, "text": "One."},
        {"offset": 16, "text": "Two.", "annotations": [annotation(16, "Two")]},
    ]
    document = one_document(bioc({"offset": 10, "sentences": sentences, "infons": {"type": "abstract"}}))
    assert document.text == "\n" * 10 + "One.  Two."
    assert document.entities[0].spans == ((16, 19),)


def test_bioc_documents_one_a_line() -> None:
    line = json.dumps({"id": "1", "passages": [{"offset": 0, "text": "Fever."}]})
    found = [item.text for item in read(io.BytesIO(f"{line}\n{line}\n".encode())) if isinstance(item, Document)]
    assert found == ["Fever.", "Fever."]


def test_what_else_a_brat_folder_holds_is_set_aside(tmp_path: Path) -> None:
    for name in ("a.txt", "a.ann", "b.jsonl", "annotation.conf", "visual.conf", ".stats_cache"):
        (tmp_path / name).write_text("T1\tx 0 2\tT1\n")
    asides = [item for item in read(tmp_path) if isinstance(item, SetAside)]
    assert [(item.source, item.kind) for item in asides] == [(str(tmp_path / "b.jsonl"), "file")]


def kinds(items: list[Item]) -> list[str]:
    return [item.kind for item in items if isinstance(item, SetAside)]


def test_bad_mentions_and_relations_are_annotations(tmp_path: Path) -> None:
    rows = "1|t|Some words\n1\t0\t3\tnowhere\tX\tC1\n1\tlink\tC1\tC2\n"
    assert kinds(pubtator(rows)) == ["annotation", "annotation"]
    assert kinds(brat(tmp_path, "Some words", "T1\tX 0 3\tnowhere\nR1\tlink Arg1:T1 Arg2:T2\n")) == ["annotation"] * 2
    assert kinds(bioc({"offset": 0, "text": "Some words", "annotations": [annotation(0, "nowhere")]})) == ["annotation"]


def test_an_undecodable_annotation_line_is_an_annotation(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("é è words")
    (tmp_path / "a.ann").write_bytes("T1\tX 0 1\té\n".encode() + b"T2\tX 2 3\t\xff\n")
    assert kinds(list(read(tmp_path))) == ["annotation"]
