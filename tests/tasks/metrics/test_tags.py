"""Tags to entities, equal to seqeval's strict reading and to conlleval's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score
from seqeval.scheme import IOB2, IOBES, Entities
from strict_tags import Scheme, entities_of

from alembert.tasks.metrics.spans import SpanScores, span_scores

SCHEMES = {"bio": (IOB2, "BI"), "bioes": (IOBES, "BIES")}
Tags = list[str]


def tags_of(prefixes: str) -> list[str]:
    return ["O", *(f"{prefix}-{label}" for prefix in prefixes for label in ("Drug", "Gene", "x-y"))]


def any_tags(scheme: str) -> st.SearchStrategy[Tags]:
    return st.lists(st.sampled_from(tags_of(SCHEMES[scheme][1])), max_size=15)


def written(blocks: list[tuple[int, str]], scheme: str) -> Tags:
    """Write entities of so many tokens, or a token outside where it is 0, as well-formed tags."""
    tags: Tags = []
    for size, label in blocks:
        if size == 0:
            tags += ["O"]
        elif scheme == "bio":
            tags += [f"B-{label}", *[f"I-{label}"] * (size - 1)]
        else:
            tags += [f"S-{label}"] if size == 1 else [f"B-{label}", *[f"I-{label}"] * (size - 2), f"E-{label}"]
    return tags


BLOCKS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["Drug", "Gene"])), max_size=10)


def conlleval_chunks(tags: Tags) -> list[tuple[int, int, str]]:
    """Read chunks by the two questions of conlleval: does one end before this token, does one begin with it?"""
    found: list[tuple[int, int, str]] = []
    begun, last_prefix, last_label = 0, "O", ""
    inside = False
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, label = tag.partition("-")
        other = label != last_label
        ends = last_prefix in ("E", "S") or (last_prefix in ("B", "I") and (prefix in ("B", "S", "O") or other))
        if inside and ends:
            found.append((begun, index, last_label))
            inside = False
        begins = prefix in ("B", "S") or (prefix in ("I", "E") and (last_prefix in ("O", "E", "S") or other))
        if begins:
            begun, inside = index, True
        last_prefix, last_label = prefix, label
    return found


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
@given(data=st.data())
def test_strict_reading_is_seqevals(scheme: Scheme, data: st.DataObject) -> None:
    tags = data.draw(any_tags(scheme))
    theirs = [entity.to_tuple()[1:] for entity in Entities([tags], SCHEMES[scheme][0]).entities[0]]
    assert sorted(entities_of(tags, scheme)) == sorted((start, end, label) for label, start, end in theirs)


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
@given(blocks=BLOCKS)
def test_readings_agree_on_well_formed_tags(scheme: Scheme, blocks: list[tuple[int, str]]) -> None:
    tags = written(blocks, scheme)
    assert entities_of(tags, scheme) == entities_of(tags, "conll") == conlleval_chunks(tags)


@given(st.lists(st.sampled_from(tags_of("BI")), max_size=15) | st.lists(st.sampled_from(tags_of("BIES")), max_size=15))
def test_lenient_reading_is_conllevals(tags: Tags) -> None:
    assert entities_of(tags, "conll") == conlleval_chunks(tags)


def scored(gold: list[Tags], guess: list[Tags], scheme: Scheme) -> SpanScores:
    return span_scores([entities_of(tags, scheme) for tags in gold], [entities_of(tags, scheme) for tags in guess])


def pairs_of(scheme: str) -> st.SearchStrategy[list[tuple[Tags, Tags]]]:
    same_length = st.lists(st.tuples(*[st.sampled_from(tags_of(SCHEMES[scheme][1]))] * 2), min_size=1, max_size=15)
    return st.lists(same_length.map(lambda both: ([a for a, _ in both], [b for _, b in both])), min_size=1, max_size=5)


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_strict_f1_is_seqevals(scheme: Scheme, data: st.DataObject) -> None:
    gold, guess = map(list, zip(*data.draw(pairs_of(scheme)), strict=True))
    theirs = f1_score(gold, guess, mode="strict", scheme=SCHEMES[scheme][0], zero_division=0)
    assert scored(gold, guess, scheme).strict.f1 == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_every_label_and_the_macro_average_are_seqevals(scheme: Scheme, data: st.DataObject) -> None:
    gold, guess = map(list, zip(*data.draw(pairs_of(scheme)), strict=True))
    ours = scored(gold, guess, scheme)
    if not ours.by_type:
        return  # seqeval's report fails where there are no entities
    theirs = classification_report(
        gold, guess, mode="strict", scheme=SCHEMES[scheme][0], zero_division=0, output_dict=True
    )
    rows = {label: [tally.precision, tally.recall, tally.f1, tally.support] for label, tally in ours.by_type.items()}
    assert ours.macro_f1 == pytest.approx(theirs["macro avg"]["f1-score"], abs=1e-12)
    for label, row in rows.items():
        assert row == pytest.approx(list(theirs[label].values()), abs=1e-12)


def test_an_inside_tag_that_continues_nothing_is_no_entity() -> None:
    assert entities_of(["O", "I-Drug", "B-Gene", "I-Drug"], "bio") == [(2, 3, "Gene")]


def test_an_entity_without_end_is_none() -> None:
    assert entities_of(["B-Drug", "I-Drug", "O", "S-Drug"], "bioes") == [(3, 4, "Drug")]
