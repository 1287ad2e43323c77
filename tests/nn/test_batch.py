import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadInput
from alembert.nn.batch import Batch

documents = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=12)


@given(documents)
def test_packing_keeps_every_document_in_the_callers_order(ids: list[list[int]]) -> None:
    batch = Batch.packed(ids)
    assert [row.tolist() for row in batch.split(batch.ids_N)] == ids
    assert [row.tolist() for row in batch.split(batch.positions_N)] == [list(range(len(row))) for row in ids]


@given(documents)
def test_groups_tile_the_row_with_documents_of_one_length(ids: list[list[int]]) -> None:
    batch = Batch.packed(ids)
    assert [group.start for group in batch.groups] == [0, *(group.stop for group in batch.groups[:-1])]
    assert batch.groups[-1].stop == sum(map(len, ids))
    assert all(len(ids[d]) == group.length for group in batch.groups for d in group.documents)
    assert len({group.length for group in batch.groups}) == len(batch.groups)


@given(documents)
def test_padded_and_packed_have_the_same_documents(ids: list[list[int]]) -> None:
    longest = max(map(len, ids))
    ids_BT = torch.tensor([row + [0] * (longest - len(row)) for row in ids])
    padded = Batch.padded(ids_BT, (ids_BT != 0).long())
    packed = Batch.packed(ids)
    for batch in (packed, padded):
        assert [document.tolist() for document in batch.split(batch.ids_N)] == ids
    assert torch.equal(packed.ids_N[packed.starts_B], padded.ids_N[padded.starts_B])


def test_segments_follow_their_documents() -> None:
    batch = Batch.packed([[1, 2, 3], [4]], segments=[[0, 1, 1], [0]])
    assert [row.tolist() for row in batch.split(batch.segments_N)] == [[0, 1, 1], [0]]


@pytest.mark.parametrize("ids", [[], [[]], [[1], []]])
def test_a_batch_without_tokens_is_refused(ids: list[list[int]]) -> None:
    with pytest.raises(BadInput, match="at least one token"):
        Batch.packed(ids)


@pytest.mark.parametrize("mask", [[[0, 1]], [[1, 0, 1]], [[0, 0]]])
def test_padding_anywhere_but_at_the_end_is_refused(mask: list[list[int]]) -> None:
    with pytest.raises(BadInput, match="Pad on the right"):
        Batch.padded(torch.ones(1, len(mask[0]), dtype=torch.long), torch.tensor(mask))


@pytest.mark.parametrize("segments", [[[0, 0], [1, 1, 1]], [[0, 0, 0]], [[0, 0, 0], [1], [1]]])
def test_segments_that_do_not_fit_are_refused(segments: list[list[int]]) -> None:
    with pytest.raises(BadInput, match="one number a token"):
        Batch.packed([[1, 2, 3], [4]], segments)


@pytest.mark.parametrize("shape", [(1, 3), (3, 2)])
def test_a_mask_of_another_shape_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match="shape"):
        Batch.padded(torch.ones(2, 3, dtype=torch.long), torch.ones(shape))


def test_ids_are_whole_numbers() -> None:
    with pytest.raises(BadInput, match="whole numbers"):
        Batch.packed([[1.5, 2.0]])
    with pytest.raises(BadInput, match="rectangle"):
        Batch.padded(torch.ones(3))


@pytest.mark.parametrize("prefixes", [[1], [1, 4], [-1, 0]])
def test_prefixes_outside_their_documents_are_refused(prefixes: list[int]) -> None:
    with pytest.raises(BadInput, match="one prefix length a document"):
        Batch.packed([[1, 2, 3], [4]], prefixes=prefixes)
