"""Documents: what is sound, and the native record form."""

import doctest

import pytest

from alembert.corpus import document as module
from alembert.corpus.document import (
    Document,
    Entity,
    Relation,
    Section,
    find_problems,
    from_record,
    to_record,
)
from alembert.errors import BadInput

WHOLE = Document(
    id="1",
    text="breast or ovarian cancer",
    sections=(Section(0, 24, "title", "Title"),),
    entities=(
        Entity("T1", "Disease", ((0, 6), (18, 24)), ("D001943",), (("sure", "yes"),)),
        Entity("T2", "Disease", ((10, 24),)),
    ),
    relations=(Relation("R1", "same", (("a", "T1"), ("b", "T2")), (("by", "me"),)),),
    labels=("cancer",),
    meta={"year": 2020},
    language="en",
)


def test_a_record_holds_everything() -> None:
    assert from_record(to_record(WHOLE)) == WHOLE


def test_examples_in_the_docstrings() -> None:
    assert doctest.testmod(module).failed == 0


def test_a_sound_document_has_no_problems() -> None:
    assert list(find_problems(WHOLE)) == []


@pytest.mark.parametrize(
    "bad",
    [
        Document("1", "abc", entities=(Entity("T1", "x", ()),)),
        Document("1", "abc", entities=(Entity("T1", "x", ((0, 4),)),)),
        Document("1", "abc", entities=(Entity("T1", "x", ((1, 1),)),)),
        Document("1", "abc", entities=(Entity("T1", "x", ((0, 2), (1, 3))),)),
        Document("1", "abc", entities=(Entity("T1", "x", ((0, 1),)), Entity("T1", "x", ((1, 2),)))),
        Document("1", "abc", sections=(Section(0, 2, "a"), Section(1, 3, "b"))),
        Document("1", "abc", relations=(Relation("R1", "x", (("a", "T9"),)),)),
    ],
)
def test_problems_are_found(bad: Document) -> None:
    assert len(list(find_problems(bad))) == 1


def test_a_relation_may_name_a_concept_or_a_relation() -> None:
    entity = Entity("T1", "x", ((0, 1),), ("D1",))
    relations = (Relation("R1", "x", (("a", "D1"),)), Relation("R2", "x", (("a", "R1"),)))
    assert list(find_problems(Document("1", "abc", entities=(entity,), relations=relations))) == []


@pytest.mark.parametrize(
    "record",
    [
        {"id": "1"},
        {"id": 1, "text": "a"},
        {"id": "1", "text": "a", "entities": [{"id": "T1", "label": "x", "spans": [[0, 9]]}]},
        {"id": "1", "text": "a", "entities": [{"id": "T1", "label": "x", "spans": [0, 1]}]},
        {"id": "1", "text": "a", "entities": ["T1"]},
        {"id": "1", "text": "a", "sections": 3},
    ],
)
def test_a_record_that_does_not_fit_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        from_record(record)
