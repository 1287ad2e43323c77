"""Tags of heads that were trained elsewhere: any order and spelling of names, to entities and back."""

import numpy as np
import pytest

from alembert.tasks.tag.tags import UNTAGGED, TagScheme, from_tags, to_tags

RANGES = [(0, 1, "gene"), (1, 4, "gene"), (6, 8, "drug")]


def prefixed(prefixes: str, separator: str = "-") -> list[str]:
    return [f"{prefix}{separator}{label}" for prefix in prefixes for label in ("drug", "gene")]


@pytest.mark.parametrize(
    ("names", "scheme"),
    [
        ([*prefixed("BI"), "O"], "BIO"),
        (["O", *prefixed("IB", "_")], "BIO"),
        (["O", *prefixed("BIES")], "BIOES"),
        (["O", *prefixed("BILU")], "BILOU"),
        (["O", *prefixed("BMES", "_")], "BMES"),
    ],
)
def test_schemes_with_a_beginning_give_the_entities_back(names: list[str], scheme: str) -> None:
    found = TagScheme.from_names(names)
    assert (found.name, set(found.types)) == (scheme, {"drug", "gene"})
    assert from_tags(to_tags(RANGES, 9, found.tags).tolist(), found.tags) == RANGES


@pytest.mark.parametrize("names", [["O", "I-drug", "I-gene"], ["drug", "gene", "O"]])
def test_without_a_beginning_neighbours_of_one_type_are_one_entity(names: list[str]) -> None:
    found = TagScheme.from_names(names)
    assert found.name == "IO"
    assert from_tags(to_tags(RANGES, 9, found.tags).tolist(), found.tags) == [(0, 4, "gene"), (6, 8, "drug")]


def test_labels_of_every_word_stay_apart_and_unlabelled_words_have_no_tag() -> None:
    found = TagScheme.from_names(["NOUN", "VERB"])
    assert found.is_every_token
    tags = to_tags([(0, 1, "NOUN"), (1, 2, "NOUN")], 3, found.tags)
    assert tags.tolist() == [0, 0, UNTAGGED]
    assert from_tags([0, 0, 1], found.tags) == [(0, 1, "NOUN"), (1, 2, "NOUN"), (2, 3, "VERB")]


def test_numbered_labels_are_types() -> None:
    found = TagScheme.from_names(["LABEL_0", "LABEL_1"])
    assert found.types == ("LABEL_0", "LABEL_1")


def test_prefixes_alone_are_one_type() -> None:
    assert TagScheme.from_names(["B", "I", "O"]).tags == ("B-entity", "I-entity", "O")


def test_what_only_looks_like_a_prefix_is_a_name() -> None:
    assert TagScheme.from_names(["O", "S-phase", "E-value"]).types == ("S-phase", "E-value")


def test_marks_of_old_taggers_are_types_of_their_own() -> None:
    assert TagScheme.from_names(["O", "B-PER", "I-PER", "X", "[CLS]"]).types == ("PER", "X", "[CLS]")


def test_broken_tags_are_read_as_the_pipelines_do() -> None:
    tags = ("O", "B-x", "I-x", "I-y")
    assert from_tags(np.array([2, 2, 3, 1, 3, 0, 2]).tolist(), tags) == [
        (0, 2, "x"),
        (2, 3, "y"),
        (3, 4, "x"),
        (4, 5, "y"),
        (6, 7, "x"),
    ]
