"""Areas under curves, equal to scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from alembert.tasks.metrics.auc import areas, average_precision, roc_auc

SCORED = st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=2, max_size=40).filter(
    lambda pairs: 0 < sum(gold for gold, _ in pairs) < len(pairs)
)
Scored = list[tuple[bool, int]]


@given(SCORED)
@settings(deadline=None, max_examples=40)
def test_areas_are_scikit_learns(pairs: Scored) -> None:
    gold, score = [one for one, _ in pairs], [other / 8 for _, other in pairs]
    theirs = metrics.roc_auc_score(gold, score), metrics.average_precision_score(gold, score)
    assert (roc_auc(gold, score), average_precision(gold, score)) == pytest.approx(theirs)


@given(SCORED)
def test_the_other_way_round_is_the_rest(pairs: Scored) -> None:
    gold, score = np.array(pairs).T
    assert roc_auc(gold, score) + roc_auc(gold, -score) == pytest.approx(1)


def test_a_perfect_order_is_one() -> None:
    assert roc_auc([0, 1, 1], [0.1, 0.2, 0.3]) == average_precision([0, 1, 1], [0.1, 0.2, 0.3]) == 1.0


def test_labels_without_examples_or_counter_examples_are_named() -> None:
    found = areas([[1, 1, 0], [0, 1, 0]], [[0.9, 0.5, 0.1], [0.2, 0.6, 0.3]], ["a", "b", "c"])
    assert (found.roc_auc, found.undefined) == ({"a": 1.0}, ("b", "c"))


def test_macro_is_over_defined_labels() -> None:
    found = areas([[1, 0, 0], [0, 1, 0]], [[0.9, 0.5, 0.1], [0.2, 0.1, 0.3]], ["a", "b", "c"])
    assert (found.macro_roc_auc, found.macro_average_precision) == (0.5, 0.75)


def test_no_label_at_all_is_zero() -> None:
    found = areas([[1]], [[0.3]], ["a"])
    assert (found.macro_roc_auc, found.macro_average_precision) == (0.0, 0.0)
