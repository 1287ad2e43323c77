"""Which pairs of a document are asked about: types, direction, distance, concepts, and relations out of reach."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.document import Document, Entity, Relation
from alembert.errors import BadInput
from alembert.tasks.relate.data import (
    RelateExample,
    RelateSettings,
    UnlinkedRelation,
    example_from_document,
    example_from_entities,
)
from alembert.tasks.relate.pairs import (
    CandidatePair,
    PairRules,
    learn_pair_rules,
    list_candidate_pairs,
)
from alembert.tasks.relate.task import RelateTask

TEXT = "Abc and Ras here. Def and Raf there. Ghi."
ABC, RAS, DEF, RAF, GHI = ("Abc", "drug"), ("Ras", "gene"), ("Def", "drug"), ("Raf", "gene"), ("Ghi", "drug")
ALL = (ABC, RAS, DEF, RAF, GHI)


def document(
    relations: Sequence[tuple[str, str, str]], entities: Sequence[tuple[str, str]] = ALL, **concepts: str
) -> RelateExample:
    """Entities are called by their words; `concepts` says which are mentions of one concept."""
    named = tuple(
        Entity(
            word,
            label,
            ((TEXT.index(word), TEXT.index(word) + 3),),
            (concepts[word],) if word in concepts else (),
        )
        for word, label in entities
    )
    links = tuple(
        Relation(f"R{n}", label, (("Arg1", head), ("Arg2", tail))) for n, (head, tail, label) in enumerate(relations)
    )
    return example_from_document(Document("d", TEXT, entities=named, relations=links), "d.json")[0]


def rules(*examples: RelateExample, distance: int | None = 0, directed: bool = True) -> PairRules:
    return learn_pair_rules(examples, distance=distance, directed=directed, negative="none")


def named(example: RelateExample, pairs: Sequence[CandidatePair]) -> list[tuple[str, str, str | None]]:
    words = [example.text[each.start : each.end] for each in example.mentions]
    return [(words[pair.head], words[pair.tail], pair.label) for pair in pairs]


def test_pairs_have_the_types_and_the_direction_of_training() -> None:
    example = document([("Abc", "Ras", "inhibits")])
    pairs = list_candidate_pairs(example, rules(example))
    assert named(example, pairs) == [("Abc", "Ras", "inhibits"), ("Def", "Raf", "none")]


def test_the_tail_may_stand_before_the_head() -> None:
    example = document([("Raf", "Def", "binds")])
    assert named(example, list_candidate_pairs(example, rules(example))) == [
        ("Ras", "Abc", "none"),
        ("Raf", "Def", "binds"),
    ]


def test_pairs_across_sentences_are_within_the_distance() -> None:
    example = document([("Abc", "Ras", "inhibits")])
    near = list_candidate_pairs(example, rules(example, distance=1))
    anywhere = list_candidate_pairs(example, rules(example, distance=None))
    assert ("Abc", "Raf", "none") in named(example, near)
    assert ("Ghi", "Ras", "none") not in named(example, near)
    assert ("Ghi", "Ras", "none") in named(example, anywhere)
    assert len(anywhere) == 6


def test_a_relation_out_of_reach_is_listed_and_not_asked_about() -> None:
    example = document([("Abc", "Ras", "inhibits"), ("Ghi", "Ras", "inhibits")])
    pairs = list_candidate_pairs(example, rules(example))
    assert [each for each in pairs if not each.is_reachable] == [CandidatePair(4, 1, "inhibits", is_reachable=False)]


def test_a_relation_of_types_that_were_never_related_counts_too() -> None:
    learnt = rules(document([("Abc", "Ras", "inhibits")]))
    strange = document([("Ras", "Abc", "inhibits")])
    far = [each for each in list_candidate_pairs(strange, learnt) if not each.is_reachable]
    assert named(strange, far) == [("Ras", "Abc", "inhibits")]


def test_same_types_run_as_the_relations_of_training_do() -> None:
    forward = document([("Abc", "Def", "with")], entities=(ABC, DEF))
    both = document([("Abc", "Def", "with"), ("Ghi", "Def", "with")], entities=(ABC, DEF, GHI))
    assert named(forward, list_candidate_pairs(forward, rules(forward, distance=1))) == [("Abc", "Def", "with")]
    assert len(list_candidate_pairs(both, rules(both, distance=None))) == 6


def test_without_direction_each_pair_is_asked_about_once() -> None:
    example = document([("Def", "Abc", "with")], entities=(ABC, DEF, GHI))
    pairs = list_candidate_pairs(example, rules(example, distance=None, directed=False))
    assert named(example, pairs) == [("Abc", "Def", "with"), ("Abc", "Ghi", "none"), ("Def", "Ghi", "none")]


def test_without_direction_mentions_of_the_same_two_concepts_are_one_pair() -> None:
    both = ("C1", "C2")
    entities = tuple(Entity(f"T{n}", "gene", ((n * 8, n * 8 + 3),), both) for n in range(2))
    relation = Relation("R1", "binds", (("Arg1", "C1"), ("Arg2", "C2")))
    example, _ = example_from_document(Document("d", TEXT, entities=entities, relations=(relation,)), "d.json")
    pairs = list_candidate_pairs(example, rules(example, directed=False))
    assert pairs == [CandidatePair(0, 1, "binds")]


def test_concepts_are_related_at_their_nearest_mentions() -> None:
    concepts = {"Abc": "D1", "Ghi": "D1", "Ras": "G1", "Def": "D2", "Raf": "G2"}
    example = document([("D1", "G1", "inhibits")], **concepts)
    learnt = rules(example, distance=2)
    assert learnt.by_concept
    assert named(example, list_candidate_pairs(example, learnt)) == [
        ("Abc", "Ras", "inhibits"),
        ("Ghi", "Raf", "none"),
        ("Def", "Ras", "none"),
        ("Def", "Raf", "none"),
    ]


def test_two_relations_of_a_pair_are_two_answers() -> None:
    example = document([("Abc", "Ras", "inhibits"), ("Abc", "Ras", "binds")])
    assert [each.label for each in list_candidate_pairs(example, rules(example))] == ["inhibits", "binds", "none"]


def test_without_a_negative_class_only_related_pairs_are_scored() -> None:
    example = document([("Abc", "Ras", "inhibits")])
    learnt = learn_pair_rules([example], distance=0, directed=True, negative=None)
    assert len(list_candidate_pairs(example, learnt)) == 1
    assert (
        len(
            list_candidate_pairs(
                example_from_entities(TEXT, [(0, 3, "drug"), (8, 11, "gene"), (18, 21, "drug")]), learnt
            )
        )
        == 1
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((("Arg1", "Abc"), ("Arg2", "Ras"), ("Arg3", "Def")), "has 3 arguments"),
        ((("Arg1", "Abc"), ("Arg2", "R1")), "another relation"),
        ((("Arg1", "Abc"), ("Arg2", "Abc")), "and itself"),
    ],
)
def test_what_is_no_relation_of_two_is_left_out_with_a_reason(arguments: object, reason: str) -> None:
    entities = document([]).mentions
    named_entities = tuple(Entity(each.id, each.type, ((each.start, each.end),)) for each in entities)
    source = Document("d", TEXT, entities=named_entities, relations=(Relation("R1", "x", arguments),))  # type: ignore[arg-type]
    example, lost = example_from_document(source, "d.json")
    assert example.links == ()
    assert reason in lost[0]


def test_bioc_relations_that_name_concepts_in_attributes_are_read() -> None:
    entities = (Entity("1", "Chemical", ((0, 3),), ("D1",)), Entity("2", "Disease", ((8, 11),), ("D2",)))
    relation = Relation("R0", "CID", (), (("Chemical", "D1"), ("Disease", "D2")))
    example, lost = example_from_document(Document("d", TEXT, entities=entities, relations=(relation,)), "d.xml")
    assert (len(example.links or ()), lost) == (1, [])


@given(
    st.lists(st.tuples(st.integers(0, 38), st.sampled_from(["drug", "gene"])), max_size=7, unique=True),
    st.sampled_from([0, 1, None]),
    st.booleans(),
)
def test_no_pair_comes_twice_and_none_is_of_other_types(
    found: list[tuple[int, str]], distance: int | None, directed: bool
) -> None:
    learnt = rules(document([("Abc", "Ras", "inhibits")]), distance=distance, directed=directed)
    example = example_from_entities(TEXT, [(start, start + 3, label) for start, label in found])
    pairs = list_candidate_pairs(example, learnt)
    types = [{example.mentions[each].type for each in (pair.head, pair.tail)} for pair in pairs]
    assert len({frozenset((pair.head, pair.tail)) for pair in pairs}) == len(pairs)
    assert all(each == {"drug", "gene"} for each in types)
    if distance is None:
        drugs = sum(label == "drug" for _, label in found)
        assert len(pairs) == drugs * (len(found) - drugs)


def unlinked(*ends: str, entities: Sequence[tuple[str, str]] = ALL) -> RelateExample:
    """A document with a relation that can be linked and one that is known to be between these ends alone."""
    return replace(document([("Abc", "Ras", "inhibits")], entities), unlinked=(UnlinkedRelation("inhibits", ends),))


@pytest.mark.parametrize(
    ("ends", "certain"), [(("Def",), ["inhibits"]), (("Ghi",), ["inhibits", "none"]), ((), ["inhibits"])]
)
def test_pairs_that_an_unlinked_relation_may_mean_are_not_certain(ends: tuple[str, ...], certain: list[str]) -> None:
    example = unlinked(*ends)
    pairs = list_candidate_pairs(example, rules(example))
    assert [each.label for each in pairs] == ["inhibits", "none"]
    assert [each.label for each in pairs if each.is_certain] == certain


def test_a_pair_read_where_another_has_a_relation_is_not_certain() -> None:
    entities = (Entity("T1", "drug", ((0, 3),), ("D1", "D2")), Entity("T2", "gene", ((8, 11),), ("G1",)))
    relation = Relation("R1", "binds", (("Arg1", "D1"), ("Arg2", "G1")))
    example, _ = example_from_document(Document("d", TEXT, entities=entities, relations=(relation,)), "d.json")
    pairs = list_candidate_pairs(example, rules(example))
    assert pairs == [CandidatePair(0, 1, "binds"), CandidatePair(0, 1, "none", is_certain=False)]


@pytest.mark.parametrize(
    ("relation", "ends"),
    [
        (Relation("R1", "x", (("Arg1", "Abc"), ("Arg2", "T9"))), ("Abc",)),
        (Relation("R1", "x", (("Arg1", "T8"), ("Arg2", "T9"))), ()),
        (Relation("R1", "x", (), (("entity1", "Abc"), ("entity2", "D9"), ("novel", "No"))), ("Abc",)),
    ],
)
def test_what_an_unlinked_relation_is_between_is_kept(relation: Relation, ends: tuple[str, ...]) -> None:
    entities = (Entity("Abc", "drug", ((0, 3),)), Entity("Ras", "gene", ((8, 11),)))
    apart = {"relations" if not relation.arguments else "unlinked_relations": (relation,)}
    example, _ = example_from_document(Document("d", TEXT, entities=entities, **apart), "d.json")  # type: ignore[arg-type]
    assert example.unlinked == (UnlinkedRelation("x", ends),)


def test_forms_cannot_be_mixed() -> None:
    marked = RelateTask.examples_from_texts(["<< a >> [[ b ]]"])
    with pytest.raises(BadInput, match="Learn from one kind"):
        RelateTask.learn([document([("Abc", "Ras", "inhibits")]), *marked], RelateSettings())
