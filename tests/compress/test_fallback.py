"""Parts go back to float until the loss is small enough; graphs are sets of what is in float here."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.compress.formats import FloatFallback

NAMES = tuple("abcdefgh")
POINTS = st.floats(0, 5, allow_subnormal=False)


def search(harm: dict[str, float], tried: list[frozenset[str]] | None = None) -> FloatFallback[frozenset[str]]:
    def quantise(kept: Sequence[str]) -> frozenset[str]:
        if tried is not None:
            tried.append(frozenset(kept))
        return frozenset(kept)

    return FloatFallback(
        quantise=quantise,
        loss=lambda graph: sum(points for name, points in harm.items() if name not in graph),
        rank=lambda graph: sorted(harm, key=lambda name: -harm[name]),
    )


def test_nothing_stays_in_float_if_all_of_it_costs_little() -> None:
    tried: list[frozenset[str]] = []
    assert search(dict.fromkeys(NAMES, 0.01), tried).search(0.5) == (frozenset(), ())
    assert len(tried) == 1


def test_the_most_harmful_goes_back_first() -> None:
    found = search({**dict.fromkeys(NAMES, 0.01), "d": 3.0}).search(0.5)
    assert found == (frozenset("d"), ("d",))


def test_each_try_is_said() -> None:
    told: list[str] = []
    search({**dict.fromkeys(NAMES, 0.01), "d": 3.0, "e": 3.0}).search(0.5, told.append)
    assert told == [
        "int8 costs 6.06 points, more than 0.5: trying with 1 of 8 products in float",
        "int8 costs 3.06 points, more than 0.5: trying with 2 of 8 products in float",
    ]


def test_there_may_be_no_way() -> None:
    assert search(dict.fromkeys(NAMES, 3.0)).search(0.5) is None


@given(st.dictionaries(st.sampled_from(NAMES), POINTS, min_size=1), POINTS)
def test_what_is_found_costs_no_more_than_it_may(harm: dict[str, float], limit: float) -> None:
    fallback = search(harm)
    found = fallback.search(limit)
    if found is not None:
        graph, kept = found
        assert graph == frozenset(kept)
        assert fallback.loss(graph) <= limit


@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_more_than_twice_as_many_stay_in_float_as_needed(count: int) -> None:
    harm = {name: (1.0 if name in NAMES[:count] else 0.0) for name in NAMES}
    found = search(harm).search(0.5)
    assert found is not None
    assert count <= len(found[1]) < 2 * count + 1
