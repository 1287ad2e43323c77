"""Dictionaries label sentences, and each rule marks what it should as unknown."""

import pytest

from alembert.text.dictionary_labels import UNKNOWN_RULES, DictionaryLabeller, DictionaryLabels
from alembert.text.lexicon import Lexicon

DISEASE = Lexicon(
    "Disease",
    [(term, "") for term in ("multiple sclerosis", "ovarian cancer", "gout", "MS", "AIP", "lead poisoning", "cold")],
)
CHEMICAL = Lexicon("Chemical", [(term, "") for term in ("aspirin", "lead", "lithium", "ACTH")])


def label(*sentences: str, rules: tuple[str, ...] = UNKNOWN_RULES) -> list[DictionaryLabels]:
    (found,) = DictionaryLabeller.from_lexicons([DISEASE, CHEMICAL], rules).label([sentences])
    return [each for each in found if each is not None]


def entities(sentence: str, found: DictionaryLabels) -> list[tuple[str, str]]:
    return [(sentence[start:end], name) for start, end, name in found.entities]


def unknown(sentence: str, found: DictionaryLabels) -> list[str]:
    return [sentence[start:end] for start, end in found.unknown]


@pytest.mark.parametrize(
    ("rule", "sentence", "expected"),
    [
        ("short", "we saw that AIP and ACTH matter here", ["AIP", "ACTH"]),
        ("ordinary", "they had a cold for two days", ["cold"]),
        ("capitals", "levels of TNF and p53 fell in Paris", ["TNF", "p53", "Paris"]),
        ("endings", "it had severe renal toxicity and adriamycin", ["renal toxicity", "adriamycin"]),
        ("neighbours", "patients with breast and ovarian cancer", ["breast and"]),
        ("neighbours", "they had chronic gout for years", ["chronic"]),
        ("neighbours", "they had non-gout pain with aspirin toxicity", ["non", "toxicity"]),
    ],
)
def test_each_rule_marks_its_words_and_no_rule_none(rule: str, sentence: str, expected: list[str]) -> None:
    found = [word for each in label(sentence, rules=(rule,)) for word in unknown(sentence, each)]
    assert " ".join(found) == " ".join(expected)
    assert label(sentence, rules=())[0].unknown == ()


def test_of_nested_matches_the_longer_counts() -> None:
    sentence = "they had lead poisoning for years"
    assert entities(sentence, label(sentence)[0]) == [("lead poisoning", "Disease")]


def test_the_same_words_with_two_labels_are_unknown() -> None:
    lexicons = [Lexicon("Gene", [("aspirin", "")]), CHEMICAL]
    sentence = "they took aspirin with lithium"
    ((found,),) = DictionaryLabeller.from_lexicons(lexicons).label([[sentence]])
    assert found is not None
    assert entities(sentence, found) == [("lithium", "Chemical")]
    assert unknown(sentence, found) == ["aspirin"]
    ((plain,),) = DictionaryLabeller.from_lexicons(lexicons, ()).label([[sentence]])
    assert plain is not None
    assert len(plain.entities) == 2


def test_an_abbreviation_behind_a_match_is_defined_for_the_whole_document() -> None:
    first, second = "they had multiple sclerosis (MS) for years", "progress of MS was slow"
    found = label(first, second)
    assert entities(first, found[0]) == [("multiple sclerosis", "Disease"), ("MS", "Disease")]
    assert entities(second, found[1]) == [("MS", "Disease")]


def test_unknown_stretches_and_entities_share_no_character() -> None:
    sentence = "Acute TNF-related gout and MS (MS) after aspirin-induced renal toxicity in Lithium users"
    (found,) = label(sentence)
    places = [range(start, end) for start, end, *_ in (*found.entities, *found.unknown)]
    assert sum(map(len, places)) == len({place for each in places for place in each})


def test_unwanted_sentences_define_and_are_not_labelled() -> None:
    sentences = ["they had multiple sclerosis (MS)", "progress of MS was slow"]
    labeller = DictionaryLabeller.from_lexicons([DISEASE])
    ((first, second),) = labeller.label([sentences], [[False, True]])
    assert first is None
    assert second is not None
    assert second.entities == ((12, 14, "Disease"),)
