"""The pieces of another vocabulary: which of the teacher's they stand for, and the mean of their rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alembert.files.student_weights import average_rows, map_pieces
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary


def cutter(*pieces: str, lowercase: bool = True) -> Tokenizer:
    vocabulary = Vocabulary((*SpecialTokens().roles().values(), *pieces))
    return Tokenizer.from_vocabulary(vocabulary, lowercase=lowercase)


def test_special_pieces_go_by_their_role() -> None:
    special = SpecialTokens(cls="<s>", sep="</s>")
    pieces = ("[PAD]", "[UNK]", "[MASK]", "</s>", "<s>", "a")
    small = Tokenizer.from_vocabulary(Vocabulary(pieces, special), lowercase=True)
    assert map_pieces(cutter("a"), small) == [(0,), (1,), (4,), (3,), (2,), (5,)]


def test_a_cased_vocabulary_is_cut_as_the_teacher_lower_cases_it() -> None:
    sources = map_pieces(cutter("br", "##af"), cutter("BRAF", "##AF", lowercase=False))
    assert sources[5:] == [(5, 6), (6,)]


def test_unknown_pieces_are_counted() -> None:
    with pytest.warns(UserWarning, match="2 of 7 pieces are unknown"):
        assert map_pieces(cutter("a"), cutter("β", "##β"))[5:] == [(1,), (1,)]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), min_size=1, max_size=6))
def test_rows_are_means(sources: list[list[int]]) -> None:
    rows = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([rows[each].mean(0) for each in sources])
    torch.testing.assert_close(average_rows(rows, sources), expected)
