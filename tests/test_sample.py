"""The embedded sample is complete, balanced and annotated without contradictions."""

import doctest
import re
from collections import Counter
from itertools import pairwise, product
from pathlib import Path

import pytest

from alembert import sample
from alembert.errors import BadSetting
from alembert.sample import LABELS, SPLITS, TOPICS, SamplePassage, load_abstracts, load_passages

DOCS_PAGE = Path(__file__).parent.parent / "docs" / "sample.md"
ALL = load_passages()
SHARES = {"train": 0.70, "dev": 0.15, "test": 0.15}
PARTS = list(product(("en", "zh"), SPLITS))
ENTITIES = [(p, e) for p in ALL for e in p.entities]
ANSWERS = [(p, span) for p in ALL for q in p.questions for span in q.answers]


def is_trimmed(surface: str) -> bool:
    return surface.strip(" ,;:，。；：、") == surface


def missed_mentions(passage: SamplePassage) -> list[str]:
    """Find words of the passage that are annotated in one place and not in another; Chinese has no word edges."""
    covered = {i for e in passage.entities for i in range(e.start, e.end)}
    surfaces = {re.escape(passage.text[e.start : e.end]) for e in passage.entities}
    before, after = (r"(?<!\w)", r"(?!\w)") if passage.language == "en" else ("", "")
    found = [m for s in surfaces for m in re.finditer(f"{before}{s}{after}", passage.text)]
    return [m.group() for m in found if not covered.issuperset(range(*m.span()))]


def surfaces(split: str, language: str) -> set[str]:
    return {p.text[e.start : e.end].lower() for p in load_passages(language, split) for e in p.entities}


def test_example_in_docstring() -> None:
    assert doctest.testmod(sample).failed == 0


def test_enough_passages() -> None:
    assert len(load_passages("en")) >= 150
    assert len(load_passages("zh")) >= 50


def test_filters_divide_the_whole() -> None:
    parts = [p for language, split in PARTS for p in load_passages(language, split)]
    assert sorted(parts, key=lambda p: p.id) == sorted(ALL, key=lambda p: p.id)


@pytest.mark.parametrize("wrong", [{"language": "fr"}, {"split": "training"}])
def test_unknown_choice_is_named(wrong: dict[str, str]) -> None:
    with pytest.raises(BadSetting, match=next(iter(wrong.values()))):
        load_passages(**wrong)


def test_ids_are_unique() -> None:
    ids = [p.id for p in ALL] + [q.id for p in ALL for q in p.questions]
    assert len(ids) == len(set(ids))


def test_texts_are_unique() -> None:
    openings = Counter(p.text[:40] for p in ALL)
    assert openings.most_common(1)[0][1] == 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_topic_in_every_split(language: str) -> None:
    found = {(p.topic, p.split) for p in load_passages(language)}
    assert found == set(product(TOPICS, SPLITS))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_topics_are_balanced(language: str) -> None:
    counts = Counter(p.topic for p in load_passages(language))
    assert max(counts.values()) <= 1.2 * min(counts.values())


@pytest.mark.parametrize(("language", "split"), PARTS)
def test_split_shares(language: str, split: str) -> None:
    share = len(load_passages(language, split)) / len(load_passages(language))
    assert share == pytest.approx(SHARES[split], abs=0.02)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_test_entities_are_partly_known_from_training(language: str) -> None:
    known, tested = surfaces("train", language), surfaces("test", language)
    assert 0.2 < len(known & tested) / len(tested) < 0.8


def test_texts_are_clean() -> None:
    assert [p.id for p in ALL if p.text != " ".join(p.text.split())] == []


def test_kinds_are_known() -> None:
    assert {p.kind for p in ALL} == {"abstract", "letter"}


def test_every_passage_has_entities() -> None:
    assert [p.id for p in ALL if not p.entities] == []


def test_entities_lie_inside_the_text() -> None:
    assert [p.id for p, e in ENTITIES if not 0 <= e.start < e.end <= len(p.text)] == []


def test_entities_lie_in_order_without_overlap() -> None:
    assert [p.id for p in ALL if any(a.end > b.start for a, b in pairwise(p.entities))] == []


def test_entity_labels_are_known() -> None:
    assert {e.label for _, e in ENTITIES} == set(LABELS)


def test_entity_surfaces_are_trimmed() -> None:
    assert [p.id for p, e in ENTITIES if not is_trimmed(p.text[e.start : e.end])] == []


def test_every_mention_of_an_entity_is_annotated() -> None:
    missed = [(p.id, surface) for p in ALL for surface in missed_mentions(p)]
    assert missed == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_surface_has_one_label(language: str) -> None:
    pairs = {(p.text[e.start : e.end], e.label) for p in load_passages(language) for e in p.entities}
    assert [s for s, n in Counter(surface for surface, _ in pairs).items() if n > 1] == []


def test_answers_lie_inside_the_text() -> None:
    assert [p.id for p, (start, end) in ANSWERS if not 0 <= start < end <= len(p.text)] == []


def test_answers_are_trimmed() -> None:
    assert [p.id for p, (start, end) in ANSWERS if not is_trimmed(p.text[start:end])] == []


@pytest.mark.parametrize(("language", "fewest"), [("en", 40), ("zh", 15)])
def test_enough_questions(language: str, fewest: int) -> None:
    questions = [q for p in load_passages(language) for q in p.questions]
    assert len(questions) >= fewest


@pytest.mark.parametrize(("language", "split"), PARTS)
def test_each_split_has_questions_with_and_without_answer(language: str, split: str) -> None:
    questions = [q for p in load_passages(language, split) for q in p.questions]
    assert {bool(q.answers) for q in questions} == {True, False}


@pytest.mark.parametrize(("name", "language"), [("English", "en"), ("Chinese", "zh")])
def test_docs_page_states_the_counts(name: str, language: str) -> None:
    splits = " / ".join(str(len(load_passages(language, split))) for split in SPLITS)
    labels = Counter(e.label for p in load_passages(language) for e in p.entities)
    questions = [q for p in load_passages(language) for q in p.questions]
    unanswerable = sum(not q.answers for q in questions)
    cells = [name, len(load_passages(language)), splits, *(labels[label] for label in LABELS)]
    row = " | ".join(map(str, [*cells, f"{len(questions)} ({unanswerable})"]))
    assert f"| {row} |" in DOCS_PAGE.read_text(encoding="utf-8")


def test_abstracts_are_twenty_and_each_is_called_by_its_number() -> None:
    assert [abstract.id for abstract in load_abstracts()] == [f"abstract-{n:02}" for n in range(1, 21)]


def test_abstracts_have_the_length_of_abstracts() -> None:
    words = {abstract.id: len(abstract.text.split()) for abstract in load_abstracts()}
    assert {name: count for name, count in words.items() if not 90 <= count <= 160} == {}
    assert all(5 <= len(abstract.title.split()) <= 20 for abstract in load_abstracts())


def test_abstracts_are_clean() -> None:
    texts = [text for abstract in load_abstracts() for text in (abstract.title, abstract.text)]
    assert [text for text in texts if text != " ".join(text.split())] == []
    assert len({text[:40] for text in texts}) == len(texts)


def test_abstracts_have_abbreviations_greek_letters_and_negative_findings() -> None:
    text = " ".join(abstract.text for abstract in load_abstracts())
    assert len(re.findall(r"\([A-Z][\w-]*[A-Z0-9][\w-]*\)", text)) > 40
    assert {"α", "β", "ε", "µ"} <= set(text)
    assert len(re.findall(r"\b(?:[Nn]o|not|none|[Nn]either|nor)\b", text)) > 30


def test_abstracts_are_no_passages_of_the_sample() -> None:
    openings = {passage.text[:40] for passage in ALL}
    assert [abstract.id for abstract in load_abstracts() if abstract.text[:40] in openings] == []


def test_docs_page_states_the_words_of_the_abstracts() -> None:
    words = sum(len(f"{abstract.title} {abstract.text}".split()) for abstract in load_abstracts())
    assert f"{words:,} words" in DOCS_PAGE.read_text(encoding="utf-8")
