"""Replaced units: of the same type and size, at their rates, and never what another objective asks for."""

from functools import cache

import numpy as np
import pytest

from alembert.corpus.shards import ENTITY_END, ENTITY_START, IN_ENTITY, WORD_START, TokenArrays
from alembert.data.feed import HeldOutSplit
from alembert.data.masking import ReplacementTable, SwapSettings, find_units, replace_units
from alembert.data.order import make_rng
from alembert.data.sequences import Instance
from alembert.errors import BadSetting

W, E = WORD_START, IN_ENTITY
PIECES = ("[PAD]", "[CLS]", "[SEP]", ".", *(f"w{n}" for n in range(30)))
IS_WORD = np.array([piece[0].isalpha() for piece in PIECES])
NOTHING = np.zeros(0, np.int64)

# [CLS] word word-of-two . disease-of-two drug word [SEP]
IDS = np.array([1, 10, 11, 12, 3, 13, 14, 15, 16, 2], np.int32)
FLAGS = [0, W, W, 0, W, W | E | ENTITY_START, E | ENTITY_END, W | E | ENTITY_START | ENTITY_END, W, 0]
TYPES = [0, 0, 0, 0, 0, 1, 1, 2, 0, 0]


def sequence() -> Instance:
    special = np.isin(IDS, (1, 2))
    return Instance(IDS, np.zeros(10, np.uint8), np.array(FLAGS, np.uint8), special, types=np.array(TYPES, np.uint16))


@cache
def table(copies: int = 5) -> ReplacementTable:
    """All of the sequence but its special tokens, with other ids in each document; the first one is held out."""
    borders = np.arange(copies + 1)
    source = TokenArrays(
        ids=np.concatenate([np.where(IDS[1:-1] > 3, IDS[1:-1] + 7 + n, 3) for n in range(copies)]),
        flags=np.array(FLAGS[1:-1] * copies, np.uint8),
        types=np.array(TYPES[1:-1] * copies, np.uint8),
        sentences=borders * 8,
        documents=borders,
        hashes=np.array([0, *[2**63] * (copies - 1)], np.uint64),
    )
    return ReplacementTable.build(source, HeldOutSplit(source, 0.1), PIECES)


def replaced(seed: int, taken: list[int] | None = None, **rates: float) -> list[int]:
    settings = SwapSettings(**rates)
    where = NOTHING if taken is None else np.array(taken)
    return replace_units(sequence(), IDS, table(), settings, make_rng(seed), taken=where).tolist()


def test_units_are_entities_and_words_of_letters() -> None:
    found = find_units(sequence(), IS_WORD)
    assert found.starts.tolist() == [1, 2, 5, 7, 8]
    assert found.sizes.tolist() == [1, 2, 2, 1, 1]
    assert found.types.tolist() == [0, 0, 1, 2, 0]


def test_what_truncation_left_of_an_entity_is_no_unit() -> None:
    whole = sequence()
    cut = Instance(
        *(each[[0, 6, 7, 8, 9]] for each in (whole.ids, whole.segments, whole.flags, whole.special)),
        types=whole.types[[0, 6, 7, 8, 9]],  # type: ignore[index]
    )
    assert find_units(cut, IS_WORD).starts.tolist() == [2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_a_replacement_has_the_type_and_size_of_what_it_replaces(seed: int) -> None:
    found = replaced(seed, entity_rate=1.0, word_rate=1.0)
    assert [found[n] for n in (0, 4, 9)] == [1, 3, 2]
    offsets = np.array(found) - IDS
    assert offsets[5] == offsets[6]
    assert offsets[2] == offsets[3]
    assert all(8 <= offset <= 11 for offset in offsets[[2, 5, 7]])
    assert found[1] - 7 in {a + n for a in (10, 16) for n in range(1, 5)}


def test_held_out_documents_lend_nothing() -> None:
    assert 17 not in table().ids  # the first word of the first document
    assert len(table().ids) == 4 * 8


def test_tokens_that_are_taken_stay() -> None:
    found = replaced(1, taken=[6], entity_rate=1.0, word_rate=1.0)
    assert found[5:7] == [13, 14]
    assert found[7] != 15


def test_units_are_replaced_at_their_rates() -> None:
    rows = np.array([replaced(seed, entity_rate=0.4, word_rate=0.15) for seed in range(2000)]) != IDS
    assert rows[:, [5, 7]].mean() == pytest.approx(0.4, abs=0.03)
    assert rows[:, [1, 2, 8]].mean() == pytest.approx(0.15, abs=0.02)


def test_the_same_address_replaces_alike() -> None:
    assert replaced(7, entity_rate=0.5, word_rate=0.5) == replaced(7, entity_rate=0.5, word_rate=0.5)


def test_what_has_no_like_stays() -> None:
    empty = table(copies=1)  # its only document is held out
    settings = SwapSettings(entity_rate=1.0, word_rate=1.0)
    found = replace_units(sequence(), IDS, empty, settings, make_rng(1), taken=NOTHING)
    assert found.tolist() == IDS.tolist()


@pytest.mark.parametrize("rates", [{"entity_rate": 1.5}, {"word_rate": -0.1}, {"entity_rate": 0.0, "word_rate": 0.0}])
def test_impossible_rates_are_refused(rates: dict[str, float]) -> None:
    with pytest.raises(BadSetting, match="of the swaps"):
        SwapSettings(**rates)
