"""Scores of classes, equal to scikit-learn."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.preprocessing import MultiLabelBinarizer

from alembert.tasks.metrics import Tally, classes, f1_measure
from alembert.tasks.metrics.classes import Averages

LABELS = ["a", "b", "c", "d"]
PAIRS = st.lists(st.tuples(*[st.sampled_from(LABELS)] * 2), min_size=1, max_size=25)
SETS = st.lists(st.tuples(*[st.frozensets(st.sampled_from(LABELS))] * 2), min_size=1, max_size=15)
Pairs = list[tuple[str, str]]
Sets = list[tuple[frozenset[str], frozenset[str]]]

pytestmark = pytest.mark.filterwarnings("ignore:y_pred contains classes", "ignore:A single label was found")


def sides(pairs: list[tuple[object, object]]) -> tuple[list[object], list[object]]:
    return [gold for gold, _ in pairs], [guess for _, guess in pairs]


def numbers_of(averages: Averages) -> list[float]:
    return [averages.precision, averages.recall, averages.f1]


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@given(pairs=PAIRS)
@settings(deadline=None, max_examples=40)
def test_averages_are_scikit_learns(average: str, pairs: Pairs) -> None:
    gold, guess = sides(pairs)
    theirs = metrics.precision_recall_fscore_support(gold, guess, average=average, zero_division=0)
    ours = getattr(classes.class_scores(gold, guess, LABELS), average)
    assert numbers_of(ours) == pytest.approx(list(theirs[:3]), abs=1e-12)


@given(PAIRS.filter(lambda pairs: len({label for pair in pairs for label in pair}) > 1))
@settings(deadline=None, max_examples=40)
def test_single_numbers_are_scikit_learns(pairs: Pairs) -> None:
    gold, guess = sides(pairs)
    ours = classes.class_scores(gold, guess, LABELS)
    theirs = [
        metrics.accuracy_score(gold, guess),
        metrics.balanced_accuracy_score(gold, guess),
        metrics.matthews_corrcoef(gold, guess),
        metrics.cohen_kappa_score(gold, guess, labels=LABELS),
    ]
    assert [ours.accuracy, ours.balanced_accuracy, ours.mcc, ours.kappa] == pytest.approx(theirs, abs=1e-12)


@given(PAIRS)
@settings(deadline=None, max_examples=40)
def test_every_label_is_scikit_learns(pairs: Pairs) -> None:
    gold, guess = sides(pairs)
    theirs = metrics.precision_recall_fscore_support(gold, guess, labels=LABELS, zero_division=0)
    ours = [
        [tally.precision, tally.recall, tally.f1, tally.support]
        for tally in classes.class_scores(gold, guess, LABELS).by_label.values()
    ]
    assert np.array(ours) == pytest.approx(np.array(theirs).T, abs=1e-12)


@given(PAIRS)
@settings(deadline=None, max_examples=40)
def test_confusion_is_scikit_learns(pairs: Pairs) -> None:
    gold, guess = sides(pairs)
    theirs = metrics.confusion_matrix(gold, guess, labels=LABELS)
    assert np.array_equal(classes.class_scores(gold, guess, LABELS).confusion, theirs)


def test_undefined_ratios_are_zero() -> None:
    found = classes.class_scores(["a", "b"], ["a", "c"], ["a", "b", "c", "d"]).by_label
    assert (found["c"].recall, found["b"].precision, found["d"].f1) == (0, 0, 0)


def test_a_label_that_does_not_occur_costs_nothing() -> None:
    assert classes.class_scores(["a", "b"], ["a", "b"], LABELS).macro == Averages(precision=1.0, recall=1.0, f1=1.0)


def test_a_constant_answer_has_no_correlation() -> None:
    found = classes.class_scores(["a", "a"], ["a", "a"], LABELS)
    assert (found.accuracy, found.mcc, found.kappa) == (1.0, 0.0, 0.0)


def test_no_examples_score_zero() -> None:
    found = classes.class_scores([], [], LABELS)
    assert (found.accuracy, found.macro.f1, found.mcc, found.kappa, found.balanced_accuracy) == (
        0,
        0,
        0,
        0,
        0,
    )


def test_scoring_never_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classes.class_scores(["a"], ["b"], LABELS)
        classes.multilabel_scores([[]], [[]], LABELS)


def test_correlation_holds_for_large_counts() -> None:
    matrix = np.array([[10**9, 0], [0, 10**9]])
    assert classes.mcc(matrix) == pytest.approx(1)


def test_a_name_that_is_no_label_is_refused() -> None:
    with pytest.raises(KeyError):
        classes.class_scores(["z"], ["a"], LABELS)


@given(PAIRS, st.randoms())
def test_order_does_not_matter(pairs: Pairs, chance: object) -> None:
    shuffled = list(pairs)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert classes.class_scores(*sides(shuffled), LABELS) == classes.class_scores(*sides(pairs), LABELS)


@given(PAIRS)
def test_measures_give_the_score_of_all_examples(pairs: Pairs) -> None:
    gold, guess = sides(pairs)
    found, everything = classes.class_scores(gold, guess, LABELS), np.arange(len(pairs))
    accuracy = classes.accuracy_measure(gold, guess)(everything)
    macro = classes.confusion_measure(gold, guess, LABELS, classes.macro_f1)(everything)
    mcc = classes.confusion_measure(gold, guess, LABELS, classes.mcc)(everything)
    assert (accuracy, macro, mcc) == pytest.approx((found.accuracy, found.macro.f1, found.mcc))


@given(PAIRS, st.data())
@settings(deadline=None, max_examples=40)
def test_a_resampled_macro_f1_is_that_of_the_sample(pairs: Pairs, data: st.DataObject) -> None:
    gold, guess = sides(pairs)
    drawn = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=1, max_size=30))
    theirs = metrics.f1_score(*sides([pairs[place] for place in drawn]), average="macro", zero_division=0)
    assert classes.confusion_measure(gold, guess, LABELS, classes.macro_f1)(np.array(drawn)) == pytest.approx(theirs)


# -- any number of labels


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@given(pairs=SETS.filter(lambda pairs: any(gold or guess for gold, guess in pairs)))
@settings(deadline=None, max_examples=40)
def test_averages_of_sets_are_scikit_learns(average: str, pairs: Sets) -> None:
    gold, guess = sides(pairs)
    binarizer = MultiLabelBinarizer(classes=LABELS)
    one, other = binarizer.fit_transform(gold), binarizer.fit_transform(guess)
    occurring = np.flatnonzero((one | other).any(axis=0))
    theirs = metrics.precision_recall_fscore_support(one, other, labels=occurring, average=average, zero_division=0)
    ours = getattr(classes.multilabel_scores(gold, guess, LABELS), average)
    assert numbers_of(ours) == pytest.approx(list(theirs[:3]), abs=1e-12)


@given(SETS)
@settings(deadline=None, max_examples=40)
def test_subset_accuracy_is_scikit_learns(pairs: Sets) -> None:
    gold, guess = sides(pairs)
    binarizer = MultiLabelBinarizer(classes=LABELS)
    theirs = metrics.accuracy_score(binarizer.fit_transform(gold), binarizer.fit_transform(guess))
    assert classes.multilabel_scores(gold, guess, LABELS).subset_accuracy == theirs


def test_every_label_of_sets_has_its_tally() -> None:
    found = classes.multilabel_scores([{"a", "b"}, {"b"}], [{"a"}, {"a", "b"}], ["a", "b"])
    assert found.by_label == {"a": Tally(tp=1, fp=1, fn=0), "b": Tally(tp=1, fp=0, fn=1)}


def test_no_sets_score_zero() -> None:
    assert classes.multilabel_scores([], [], LABELS).subset_accuracy == 0.0


@given(SETS)
def test_measures_of_sets_give_the_score_of_all_examples(pairs: Sets) -> None:
    gold, guess = sides(pairs)
    found, everything = classes.multilabel_scores(gold, guess, LABELS), np.arange(len(pairs))
    micro = f1_measure(classes.multilabel_counts(gold, guess))(everything)
    macro = classes.multilabel_macro_f1_measure(gold, guess, LABELS)(everything)
    assert (micro, macro) == pytest.approx((found.micro.f1, found.macro.f1))


@given(SETS)
def test_right_sets_are_perfect(pairs: Sets) -> None:
    gold, _ = sides(pairs)
    found = classes.multilabel_scores(gold, gold, LABELS)
    assert (found.subset_accuracy, found.micro.f1, found.macro.f1) == (1.0, *[float(any(gold))] * 2)
