"""Decoding equals a search of all paths, and pytorch-crf; what it returns is legal; numpy alone."""

import itertools
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torchcrf
from hypothesis import given, settings
from hypothesis import strategies as st

from alembert.errors import BadSetting
from alembert.tasks.tag.crf import (
    AllowedTransitions,
    build_allowed_transitions,
    compute_marginals,
    find_best_path,
    find_best_paths,
    viterbi_decode,
)
from alembert.tasks.tag.decode import compute_marginals_batch, viterbi_decode_batch

BIO = ["O", "B-x", "I-x", "B-y-z", "I-y-z"]
BIOES = ["O", "B-x", "I-x", "E-x", "S-x"]
SCHEMES = [(BIO, "bio"), (BIOES, "bioes")]
Weights = tuple[npt.NDArray[np.float64], ...]


def weights(places: int, seed: int, tags: int = 5) -> Weights:
    """Emissions, transitions, start and end."""
    random = np.random.default_rng(seed)
    return tuple(random.normal(0, 2, shape) for shape in ((places, tags), (tags, tags), tags, tags))


def is_legal(path: tuple[int, ...], legal: AllowedTransitions) -> bool:
    steps = all(legal.transitions[a, b] for a, b in itertools.pairwise(path))
    return bool(legal.start[path[0]] and legal.end[path[-1]] and steps)


def all_paths(scores: Weights, legal: AllowedTransitions) -> dict[tuple[int, ...], float]:
    emissions, transitions, start, end = scores
    places = np.arange(len(emissions))
    return {
        path: start[path[0]]
        + end[path[-1]]
        + emissions[places, path].sum()
        + sum(transitions[a, b] for a, b in itertools.pairwise(path))
        for path in itertools.product(range(emissions.shape[1]), repeat=len(emissions))
        if is_legal(path, legal)
    }


def anything(tags: int) -> AllowedTransitions:
    return AllowedTransitions(np.ones((tags, tags), np.bool_), np.ones(tags, np.bool_), np.ones(tags, np.bool_))


def by_the_rules(tags: list[str], scheme: str) -> bool:
    """Read a row of tags from left to right, as a person would."""
    inside = ""
    for tag in tags:
        if tag[0] in "IE":
            if inside != tag[2:]:
                return False
        elif inside and scheme == "bioes":
            return False
        inside = tag[2:] if tag[0] in "BI" else ""
    return not (inside and scheme == "bioes")


@pytest.mark.parametrize(("labels", "scheme"), SCHEMES)
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_legal_paths_are_those_that_can_be_read(labels: list[str], scheme: str, length: int) -> None:
    legal = build_allowed_transitions(labels, scheme)
    for path in itertools.product(range(5), repeat=length):
        assert is_legal(path, legal) == by_the_rules([labels[tag] for tag in path], scheme)


@pytest.mark.parametrize(
    ("labels", "scheme", "message"),
    [
        (["O", "S-x"], "bio", "'S-x' is no tag of the scheme bio; expected O, B-..., I-..."),
        (["O", "X"], "bioes", "'X' is no tag"),
        (["O", ""], "bio", "'' is no tag"),
        (["O"], "iob1", "no tagging scheme 'iob1'"),
    ],
)
def test_what_is_no_tag_or_scheme_is_refused(labels: list[str], scheme: str, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        build_allowed_transitions(labels, scheme)


@pytest.mark.parametrize(("labels", "scheme"), SCHEMES)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 999))
def test_viterbi_finds_the_best_of_all_legal_paths(labels: list[str], scheme: str, places: int, seed: int) -> None:
    scores, legal = weights(places, seed), build_allowed_transitions(labels, scheme)
    paths = all_paths(scores, legal)
    assert tuple(viterbi_decode(*scores, legal).tolist()) == max(paths, key=paths.__getitem__)


@pytest.mark.parametrize(("labels", "scheme"), SCHEMES)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 999))
def test_the_best_legal_path_adds_up_emissions_alone(labels: list[str], scheme: str, places: int, seed: int) -> None:
    emissions, legal = weights(places, seed)[0], build_allowed_transitions(labels, scheme)
    paths = all_paths((emissions, np.zeros((5, 5)), np.zeros(5), np.zeros(5)), legal)
    assert tuple(find_best_path(emissions, legal).tolist()) == max(paths, key=paths.__getitem__)


@pytest.mark.parametrize(("labels", "scheme"), SCHEMES)
@settings(max_examples=100, deadline=None)
@given(st.integers(1, 80), st.integers(0, 999), st.sampled_from([0.0, 3.0, 5.0]))
def test_a_search_around_illegal_moves_finds_what_a_search_of_the_whole_text_finds(
    labels: list[str], scheme: str, places: int, seed: int, favour: float
) -> None:
    emissions, legal = weights(places, seed)[0], build_allowed_transitions(labels, scheme)
    emissions[:, 0] += favour  # most places are outside, as in texts
    expected = viterbi_decode(emissions, np.zeros((5, 5)), np.zeros(5), np.zeros(5), legal)
    assert find_best_path(emissions, legal).tolist() == expected.tolist()


@pytest.mark.parametrize(("labels", "scheme"), SCHEMES)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 999))
def test_marginals_are_the_shares_of_all_legal_paths(labels: list[str], scheme: str, places: int, seed: int) -> None:
    scores, legal = weights(places, seed), build_allowed_transitions(labels, scheme)
    expected = np.zeros((places, 5))
    for path, value in all_paths(scores, legal).items():
        expected[np.arange(places), path] += np.exp(value)
    np.testing.assert_allclose(compute_marginals(*scores, legal), expected / expected.sum(1, keepdims=True), atol=1e-12)


@pytest.mark.parametrize(("labels", "scheme"), SCHEMES)
@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=8), st.integers(0, 999), st.sampled_from([0.0, 3.0]))
def test_texts_together_are_decoded_as_each_is_alone(
    labels: list[str], scheme: str, lengths: list[int], seed: int, favour: float
) -> None:
    emissions, *others = weights(sum(lengths), seed)
    # Half numbers, so that paths of the same score occur.
    emissions, legal = np.round(2 * emissions) / 2, build_allowed_transitions(labels, scheme)
    emissions[:, 0] += favour
    scores = (np.round(others[0]), np.round(others[1]), np.round(others[2]))
    stops = np.cumsum(lengths)
    texts = [emissions[stop - length : stop] for stop, length in zip(stops.astype(int), lengths, strict=True)]
    alone = [tag for text in texts for tag in viterbi_decode(text, *scores, legal).tolist()]
    assert viterbi_decode_batch(emissions, lengths, scores, legal).tolist() == alone
    without_moves = [tag for text in texts for tag in find_best_path(text, legal).tolist()]
    assert find_best_paths(emissions, lengths, legal).tolist() == without_moves
    together = compute_marginals_batch(emissions, lengths, scores, legal)
    for text, stop in zip(texts, stops.astype(int), strict=True):
        sure = together[stop - len(text) : stop]
        np.testing.assert_allclose(sure, compute_marginals(text, *scores, legal), atol=1e-12)


def reference(scores: Weights) -> torchcrf.CRF:
    _, transitions, start, end = scores
    crf = torchcrf.CRF(len(start), batch_first=True).double()
    for weight, value in (
        (crf.transitions, transitions),
        (crf.start_transitions, start),
        (crf.end_transitions, end),
    ):
        weight.data.copy_(torch.from_numpy(value))
    return crf


@pytest.mark.parametrize("places", [1, 2, 300])
def test_viterbi_equals_pytorch_crf(places: int) -> None:
    scores = weights(places, places, tags=40)
    mask = torch.ones(1, places, dtype=torch.bool)
    expected = reference(scores).decode(torch.from_numpy(scores[0])[None], mask)
    assert [viterbi_decode(*scores, anything(40)).tolist()] == expected


def test_marginals_are_the_gradient_of_the_partition() -> None:
    scores = weights(200, 7, tags=40)
    emissions = torch.from_numpy(scores[0])[None].requires_grad_()
    tags = torch.zeros(1, 200, dtype=torch.int64)
    mask = torch.ones_like(tags, dtype=torch.bool)
    (gradient,) = torch.autograd.grad(reference(scores)(emissions, tags, mask), emissions)
    expected = torch.nn.functional.one_hot(tags, 40) - gradient
    np.testing.assert_allclose(compute_marginals(*scores, anything(40)), expected[0].numpy(), atol=1e-9)


def test_no_emission_buys_a_forbidden_move() -> None:
    emissions = np.zeros((30, 5))
    emissions[:, 2] = 10_000.0
    emissions[:, 0] = 9_999.0
    legal = build_allowed_transitions(BIO, "bio")
    assert is_legal(tuple(find_best_path(emissions, legal).tolist()), legal)


def test_scores_far_apart_give_probabilities() -> None:
    emissions, transitions, start, end = (values * 300 for values in weights(50, 3))
    found = compute_marginals(emissions, transitions, start, end, build_allowed_transitions(BIOES, "bioes"))
    np.testing.assert_allclose(found.sum(1), 1)


def test_a_set_of_tags_without_any_legal_path_still_gets_an_answer() -> None:
    legal = build_allowed_transitions(["I-x", "I-y"], "bio")
    emissions = np.array([[0.0, 1.0], [0.5, 0.0]])
    assert find_best_path(emissions, legal).tolist() == [1, 1]
    assert np.isfinite(compute_marginals(emissions, np.zeros((2, 2)), np.zeros(2), np.zeros(2), legal)).all()


def test_no_places_have_no_tags() -> None:
    legal, empty = build_allowed_transitions(BIO, "bio"), weights(0, 0)
    assert viterbi_decode(*empty, legal).tolist() == []
    assert compute_marginals(*empty, legal).shape == (0, 5)


def test_ten_thousand_words_are_one_path() -> None:
    scores, legal = weights(10_000, 4), build_allowed_transitions(BIO, "bio")
    assert is_legal(tuple(viterbi_decode(*scores, legal).tolist()), legal)


@pytest.mark.parametrize("module", ["crf", "decode"])
def test_decoding_loads_no_torch(module: str) -> None:
    check = f"import sys, alembert.tasks.tag.{module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)
