"""ROUGE: by hand, and equal to the package `rouge_score`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.tasks.metrics.answers import ROUGE_METRICS, rouge, rouge_words


@pytest.mark.parametrize(
    ("written", "right", "expected"),
    [
        ("a b c", "a b c", (1, 1, 1)),
        ("a b c d", "b a d", (6 / 7, 0, 4 / 7)),
        ("a b", "a b c d", (2 / 3, 1 / 2, 2 / 3)),
        ("a a a", "a b", (2 / 5, 0, 2 / 5)),
        ("a", "a", (1, 0, 1)),
        ("", "a", (0, 0, 0)),
        ("", "", (0, 0, 0)),
        ("IL-6 rises!", "il 6 rises", (1, 1, 1)),
    ],
)
def test_rouge_by_hand(written: str, right: str, expected: tuple[float, float, float]) -> None:
    assert tuple(rouge(written, right)[name] for name in ROUGE_METRICS) == pytest.approx(expected)


def test_chinese_characters_are_words() -> None:
    assert rouge_words("阿司匹林100mg。") == ["阿", "司", "匹", "林", "100mg"]
    assert rouge("阿司匹林", "阿司咪唑")["rougeL"] == pytest.approx(0.5)


TEXTS = st.text("abcde AB.,-é0", max_size=60)


@pytest.fixture(scope="module")
def scorer() -> Any:
    package = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge_score is not installed")
    return package.RougeScorer(list(ROUGE_METRICS), use_stemmer=False)


@given(written=TEXTS, right=TEXTS)
def test_rouge_equals_the_package(scorer: Any, written: str, right: str) -> None:
    theirs = scorer.score(right, written)
    ours = rouge(written, right)
    assert {name: each.fmeasure for name, each in theirs.items()} == pytest.approx(ours, abs=1e-12)


@given(TEXTS, TEXTS)
def test_rouge_does_not_prefer_a_side(one: str, other: str) -> None:
    assert rouge(one, other) == rouge(other, one)
