"""The order of training data."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from alembert.data.feed import (
    Cursor,
    HeldOutSplit,
    SequenceBatchPlan,
    SequenceSampler,
    SequenceSpec,
    batch_sequences,
    build_sequences,
)
from alembert.data.order import make_rng
from alembert.data.sequences import TokenSpan


@dataclass
class Books:
    """Documents of known sentence lengths, instead of shards."""

    lengths: list[list[int]]

    def __post_init__(self) -> None:
        flat = np.cumsum([0, *(n for document in self.lengths for n in document)])
        ends = np.cumsum([0, *map(len, self.lengths)])
        self._borders = [flat[a : b + 1] for a, b in pairwise(ends)]

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        return make_rng("books").integers(0, 2**64, len(self.lengths), dtype=np.uint64)

    def __len__(self) -> int:
        return len(self.lengths)

    def get_token_range(self, document: int) -> tuple[int, int]:
        return int(self._borders[document][0]), int(self._borders[document][-1])

    def get_sentence_borders(self, document: int) -> npt.NDArray[np.int64]:
        return self._borders[document]


@pytest.fixture
def books() -> Books:
    rng = make_rng("lengths")
    return Books([rng.integers(3, 40, rng.integers(1, 12)).tolist() for _ in range(120)])


CUTTING = SequenceSpec(length=64)


def feed(books: Books, seed: int = 1, **settings: int) -> SequenceSampler:
    made = SequenceSampler(books, HeldOutSplit(books, 0.1), seed=seed, micro_tokens=512, **settings)
    made.documents_per_window, made.windows = 16, 8
    return made


def an_epoch(source: SequenceSampler, epoch: int = 0) -> list[SequenceBatchPlan]:
    cursor, portions = Cursor(epoch), []
    while cursor.epoch == epoch:
        taken, cursor = source.take(cursor, 1, CUTTING)
        portions += taken
    return portions


def test_an_epoch_has_every_training_token_once(books: Books) -> None:
    split = HeldOutSplit(books, 0.1)
    seen = sorted(s.a for portion in an_epoch(feed(books)) for s in portion.spans)
    tokens = sum(end - start for start, end in seen)
    expected = sum(np.diff(books.get_token_range(d))[0] for d in range(len(books)) if split.is_training(d))
    assert tokens == expected
    assert all(a[1] <= b[0] for a, b in pairwise(seen))


def test_held_out_documents_are_never_fed(books: Books) -> None:
    held_out = set(HeldOutSplit(books, 0.1).held_out())
    assert held_out
    assert not held_out & {s.document for p in an_epoch(feed(books)) for s in p.spans}


def test_planning_can_begin_anywhere(books: Books) -> None:
    whole, end = feed(books).take(Cursor(), 40, CUTTING)
    first, middle = feed(books).take(Cursor(), 17, CUTTING)
    rest, last = feed(books).take(middle, 23, CUTTING)
    assert first + rest == whole
    assert last == end


def test_portions_keep_the_budget(books: Books) -> None:
    assert all(portion.tokens <= 512 for portion in an_epoch(feed(books)))


def test_another_epoch_and_another_seed_have_another_order(books: Books) -> None:
    orders = [an_epoch(feed(books)), an_epoch(feed(books), 1), an_epoch(feed(books, seed=2))]
    assert len({tuple(s.a for portion in order for s in portion.spans) for order in orders}) == 3


def test_static_copies_come_back(books: Books) -> None:
    source = feed(books, static_copies=2)
    assert [an_epoch(source, epoch)[0].copy for epoch in range(4)] == [0, 1, 0, 1]


def test_pairs_of_held_out_documents_are_never_used(books: Books) -> None:
    held_out = [books.get_token_range(d) for d in HeldOutSplit(books, 0.1).held_out()]
    portions, _ = feed(books).take(Cursor(), 60, SequenceSpec(length=64, pairs="next_sentence"))
    ranges = [r for portion in portions for s in portion.spans for r in (s.a, s.b) if r]
    assert not [r for r in ranges for start, end in held_out if start <= r[0] < end]


def test_a_share_too_small_still_holds_one_document_out(books: Books) -> None:
    assert HeldOutSplit(books, 1e-9).held_out_count == len(list(HeldOutSplit(books, 1e-9).held_out())) == 1


def test_nothing_is_held_out_if_so_wanted(books: Books) -> None:
    assert list(HeldOutSplit(books, 0.0).held_out()) == []


def test_the_split_does_not_depend_on_the_order_of_documents(books: Books) -> None:
    hashes = books.hashes

    class Turned(Books):
        @property
        def hashes(self) -> npt.NDArray[np.uint64]:
            return hashes[::-1]

    turned = Turned(books.lengths[::-1])
    before = {hashes[d] for d in HeldOutSplit(books, 0.2).held_out()}
    assert before == {turned.hashes[d] for d in HeldOutSplit(turned, 0.2).held_out()}


def test_a_sequence_longer_than_the_budget_stands_alone() -> None:
    stretches = [TokenSpan(0, (0, n)) for n in (5, 100, 5, 5)]
    assert [len(part) for part in batch_sequences(stretches, 20)] == [1, 1, 2]


def test_a_late_start_adds_the_rest_of_a_document_and_cuts_nothing(books: Books) -> None:
    source, split = books, HeldOutSplit(books, 0.0)
    whole = SequenceSpec(length=10_000)
    for document in range(20):
        ends = books.get_sentence_borders(document).tolist()
        made = build_sequences(source, document, replace(whole, late_start_share=1.0), make_rng(document), split)
        assert made[0] == build_sequences(source, document, whole, make_rng(document), split)[0]
        assert [s.a[1] for s in made] == [ends[-1]] * len(made)
        assert all(s.a[0] in ends for s in made)
