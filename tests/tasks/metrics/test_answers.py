"""Exact match and F1 equal the scripts of SQuAD and CMRC: hand-computed cases, and a plain second implementation."""

import re
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.tasks.metrics.answers import (
    ANSWER_SCORERS,
    best_no_answer_threshold,
    find_first_rank,
    longest_run,
    split_english_words,
)

SQUAD_1, SQUAD_2, CMRC = ANSWER_SCORERS["squad1"], ANSWER_SCORERS["squad2"], ANSWER_SCORERS["cmrc"]
WORDS = st.text("aA the.,an北京-：B", max_size=12)


# -- a second implementation, word for word after the descriptions of the scripts


def plain_words(text: str) -> list[str]:
    kept = [character for character in text.lower() if character not in string.punctuation]
    return [word for word in "".join(kept).split() if word not in ("a", "an", "the")]


def plain_squad(right: str, guess: str, version: int) -> tuple[float, float]:
    gold, given = plain_words(right), plain_words(guess)
    left = list(given)
    same = sum(1 for word in gold if word in left and not left.remove(word))  # type: ignore[func-returns-value]
    if version == 2 and not (gold and given):
        return float(gold == given), float(gold == given)
    if not same:
        return float(gold == given), 0.0
    precision, recall = same / len(given), same / len(gold)
    return float(gold == given), 2 * precision * recall / (precision + recall)


def plain_cmrc(right: str, guess: str) -> tuple[float, float]:
    marks = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
    gold, given = ("".join(c for c in text.lower().strip() if c not in marks) for text in (right, guess))

    def cut(text: str) -> list[str]:
        return re.findall(
            r"[\u4e00-\u9fa5]|[.,]+(?=\s|$|[\u4e00-\u9fa5])|[^\s\u4e00-\u9fa5]+?(?=[.,]|\s|$|[\u4e00-\u9fa5])|\S",
            text,
        )

    one, other = cut(gold), cut(given)
    runs = {tuple(one[a:b]) for a in range(len(one)) for b in range(a + 1, len(one) + 1)}
    found = [b - a for a in range(len(other)) for b in range(a + 1, len(other) + 1) if tuple(other[a:b]) in runs]
    if not found:
        return float(gold == given), 0.0
    precision, recall = max(found) / len(other), max(found) / len(one)
    return float(gold == given), 2 * precision * recall / (precision + recall)


@given(WORDS, WORDS)
def test_squad_equals_a_plain_computation(right: str, guess: str) -> None:
    for script, version in ((SQUAD_1, 1), (SQUAD_2, 2)):
        exact, f1 = plain_squad(right, guess, version)
        assert float(script.exact(right, guess)) == exact
        assert script.f1(right, guess) == pytest.approx(f1)


@given(st.text("aB1 北京大学：-", max_size=10), st.text("aB1 北京大学：-", max_size=10))
def test_cmrc_equals_a_plain_computation(right: str, guess: str) -> None:
    exact, f1 = plain_cmrc(right, guess)
    assert float(CMRC.exact(right, guess)) == exact
    assert CMRC.f1(right, guess) == pytest.approx(f1)


# -- by hand


@pytest.mark.parametrize(
    ("right", "guess", "exact", "f1"),
    [
        ("France", "france.", True, 1),
        ("the 10th and 11th centuries", "in the 10th and 11th centuries", False, 8 / 9),
        ("a b b c", "b b b", False, 4 / 6),
        ("BCR-ABL", "BCR ABL", False, 0),
        ("Rome", "Paris", False, 0),
        ("theatre of an animal", "theatre of animal", True, 1),
    ],
)
def test_squad_by_hand(right: str, guess: str, exact: bool, f1: float) -> None:
    assert SQUAD_2.exact(right, guess) is exact
    assert SQUAD_2.f1(right, guess) == pytest.approx(f1)


def test_the_best_of_several_right_answers_counts() -> None:
    assert SQUAD_1.best(["10th century", "in the 10th"], "in 10th") == (1.0, 1.0)
    exact, f1 = SQUAD_1.best(["red blood cells", "cells"], "white cells")
    assert (exact, f1) == (0.0, pytest.approx(2 / 3))


def test_version_2_knows_questions_without_an_answer() -> None:
    assert SQUAD_2.best([], "") == (1.0, 1.0)
    assert SQUAD_2.best([], "Rome") == (0.0, 0.0)
    assert SQUAD_2.best(["Rome"], "") == (0.0, 0.0)
    assert SQUAD_2.best(["the", "Rome"], "") == (0.0, 0.0)


def test_chinese_questions_may_have_no_answer_too() -> None:
    assert (CMRC.best([], ""), CMRC.best([], "北京")) == ((1.0, 1.0), (0.0, 0.0))


def test_version_1_finds_nothing_in_common_between_texts_without_words() -> None:
    assert SQUAD_1.best(["A"], "the") == (1.0, 0.0)


@pytest.mark.parametrize(
    ("right", "guess", "exact", "f1"),
    [
        ("光荣和ω-force", "光荣和ω-force", True, 1),
        ("光荣和ω-force", "光荣", False, 2 * 2 / (2 + 4)),
        ("《战国无双3》", "战国无双3", True, 1),
        ("北京大学", "北大", False, 2 * 1 / (2 + 4)),
        ("1998年5月", "5月", False, 2 * 2 / (2 + 4)),
        ("don't stop", "stop", False, 2 * 1 / (1 + 3)),
        ("北京", "上海", False, 0),
    ],
)
def test_cmrc_by_hand(right: str, guess: str, exact: bool, f1: float) -> None:
    assert CMRC.exact(right, guess) is exact
    assert CMRC.f1(right, guess) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("j.k. rowling's 3,000", ["j.k.", "rowling", "'s", "3,000"]),
        (
            'he said "yes" (no), i can\'t.',
            ["he", "said", "``", "yes", "''", "(", "no", ")", ",", "i", "ca", "n't", "."],
        ),
        ("at&t 5.5% 2–1", ["at", "&", "t", "5.5", "%", "2", "–", "1"]),
        ("cannot 'hello' ...", ["can", "not", "'", "hello", "'", "..."]),
        ("", []),
    ],
)
def test_english_words_are_those_of_the_treebank(text: str, words: list[str]) -> None:
    assert split_english_words(text) == words


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_the_longest_run_is_that_of_all_runs(one: list[str], other: list[str]) -> None:
    joined = "".join(other)
    runs = ["".join(one[a:b]) for a in range(len(one)) for b in range(a, len(one) + 1)]
    assert longest_run(one, other) == max((len(run) for run in runs if run in joined), default=0)


# -- thresholds


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=8))
def test_the_best_threshold_is_the_best_of_all(lines: list[tuple[float, bool, int]]) -> None:
    none = np.array([is_none for _, is_none, _ in lines], float)
    scores = np.array([score for score, _, _ in lines]) * (1 - none)
    sure = np.array([difference for *_, difference in lines], float)

    def at(threshold: float) -> float:
        return float(np.where(sure > threshold, none, scores).mean())

    threshold, value = best_no_answer_threshold(scores, none, sure)
    assert at(threshold) == pytest.approx(value)
    assert value == pytest.approx(max(at(each) for each in (-9.0, *sure)))


def test_nothing_to_choose_from_is_no_error() -> None:
    nothing = np.zeros(0)
    assert best_no_answer_threshold(nothing, nothing, nothing) == (0.0, 0.0)


# -- ranks


def test_ranks_by_hand() -> None:
    assert find_first_rank(["BRCA1"], ["brca1 ", "x"]) == 1
    assert find_first_rank(["BRCA1"], ["a", "b", "c", "d", "BRCA1"]) == 5
    assert find_first_rank(["BRCA1"], ["a", "b", "c", "d", "e", "BRCA1"]) is None
    assert find_first_rank([], ["a"]) is None
