"""The temperature of a CRF, against all paths written out."""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from alembert.tasks.tag.crf import AllowedTransitions, CrfDecoder, build_allowed_transitions

TAGS = ("O", "B-x", "I-x")
LEGAL = build_allowed_transitions(TAGS, "bio")
LENGTHS = (5, 3, 1, 4, 2)


def path_of(seed: int) -> CrfDecoder:
    rng = np.random.default_rng(seed)
    return CrfDecoder(rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3))


def legal_paths(length: int, legal: AllowedTransitions) -> list[tuple[int, ...]]:
    return [
        path
        for path in product(range(3), repeat=length)
        if legal.start[path[0]] and legal.end[path[-1]] and all(legal.transitions[move] for move in pairwise(path))
    ]


def score(crf: CrfDecoder, emissions: np.ndarray, path: tuple[int, ...]) -> float:
    moves = sum(crf.transitions_CC[move] for move in pairwise(path))
    own = sum(emissions[place, tag] for place, tag in enumerate(path))
    return float(crf.start_C[path[0]] + moves + own + crf.end_C[path[-1]])


def loss(crf: CrfDecoder, texts: list[np.ndarray], right: list[tuple[int, ...]], temperature: float) -> float:
    """Minus the logarithm of how likely the right paths are, by the definition."""
    total = 0.0
    for emissions, path in zip(texts, right, strict=True):
        scores = [score(crf, emissions, each) / temperature for each in legal_paths(len(emissions), LEGAL)]
        total += np.log(np.sum(np.exp(scores))) - score(crf, emissions, path) / temperature
    return float(total)


def drawn(crf: CrfDecoder, seed: int, temperature: float, copies: int = 1) -> tuple[list, list]:
    """Texts, and a right path of each, drawn from the CRF at a temperature."""
    rng = np.random.default_rng(seed)
    texts = [rng.normal(size=(length, 3)) * 2 for length in LENGTHS * copies]
    right = []
    for emissions in texts:
        paths = legal_paths(len(emissions), LEGAL)
        powers = np.exp([score(crf, emissions, path) / temperature for path in paths])
        right.append(paths[rng.choice(len(paths), p=powers / powers.sum())])
    return texts, right


@pytest.mark.parametrize("seed", range(5))
def test_no_temperature_makes_the_right_paths_more_likely(seed: int) -> None:
    crf = path_of(seed)
    texts, right = drawn(crf, seed + 100, 1.7, copies=3)
    found = crf.fit_temperature(texts, [np.array(path) for path in right], LEGAL)
    best = minimize_scalar(lambda t: loss(crf, texts, right, t), bounds=(0.1, 10), method="bounded")
    assert loss(crf, texts, right, found) <= best.fun + 1e-6


def test_the_temperature_is_found_again() -> None:
    crf = path_of(1)
    texts, right = drawn(crf, 2, 2.5, copies=300)
    found = crf.fit_temperature(texts, [np.array(path) for path in right], LEGAL)
    assert found == pytest.approx(2.5, rel=0.1)


def test_probabilities_at_a_temperature_are_those_of_all_paths() -> None:
    crf, temperature = path_of(3), 2.0
    emissions = np.random.default_rng(4).normal(size=(4, 3))
    paths = legal_paths(4, LEGAL)
    powers = np.exp([score(crf, emissions, path) / temperature for path in paths])
    expected = np.zeros((4, 3))
    for path, power in zip(paths, powers / powers.sum(), strict=True):
        expected[np.arange(4), path] += power
    np.testing.assert_allclose(crf.marginals(emissions, LEGAL, temperature), expected, atol=1e-9)


def test_without_texts_the_temperature_is_one() -> None:
    assert path_of(1).fit_temperature([np.empty((0, 3))], [np.empty(0, np.int64)], LEGAL) == 1
