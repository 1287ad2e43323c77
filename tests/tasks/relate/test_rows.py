"""Rows of pairs: the same from marked and from plain text, both entities always inside, what is cut is counted."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alembert.tasks.relate.data import RelateExample, RelateSettings, example_from_entities
from alembert.tasks.relate.pairs import PairRules
from alembert.tasks.relate.task import RelateTask
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz.,-[]<>"
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{each}" for each in LETTERS)),
    lowercase=True,
)
UNTYPED = PairRules(types=(("", ""),), forward=(("", ""),), distance=None)


def task(**settings: object) -> RelateTask:
    return RelateTask(RelateSettings(**settings), "marked", ("no", "yes"), UNTYPED)  # type: ignore[arg-type]


def tokens(examples: list[RelateExample], own: RelateTask, longest: int = 512) -> list[list[list[str]]]:
    tokenizer = TOKENIZER.with_markers(own.special_tokens)
    encoded = own.encode(examples, tokenizer, longest)
    return [[tokenizer.tokens(row.ids) for row in each.rows] for each in encoded]


def test_marks_become_pieces_and_leave_nothing_behind() -> None:
    (found,) = tokens(RelateTask.examples_from_texts(["a << bc >>-d [[ e ]]."]), task())
    assert " ".join(found[0]) == "[CLS] a [E1] b ##c [/E1] - d [E2] e [/E2] . [SEP]"


@pytest.mark.parametrize("reads", ["first", "markers"])
def test_a_marked_sentence_and_its_entities_give_the_same_row(reads: str) -> None:
    own = task(pooling=reads)
    marked = RelateTask.examples_from_texts(["in << ab >>-like [[ c d ]]s", "<e1>ab</e1> <e2>c</e2>"])
    plain = [
        example_from_entities("in ab-like c ds", [(3, 5, "x"), (11, 14, "y")]),
        example_from_entities("ab c", [(0, 2, ""), (3, 4, "")]),
    ]
    tokenizer = TOKENIZER.with_markers(own.special_tokens)
    rows = [own.encode(examples, tokenizer, 512) for examples in (marked, plain)]
    for one, other in zip(*rows, strict=True):
        assert one.rows[0].ids.tolist() == other.rows[0].ids.tolist()
        assert one.rows[0].positions.tolist() == other.rows[0].positions.tolist()


@pytest.mark.parametrize(
    ("spans", "row"),
    [
        ([(0, 3), (1, 2)], "[E1] a [E2] b [/E2] c [/E1]"),
        ([(0, 2), (0, 1)], "[E1] [E2] a [/E2] b [/E1] c"),
        ([(0, 1), (1, 2)], "[E1] a [/E1] [E2] b [/E2] c"),
        ([(0, 2), (1, 3)], "[E1] a [E2] b [/E1] c [/E2]"),
    ],
)
def test_marks_of_overlapping_entities_nest(spans: list[tuple[int, int]], row: str) -> None:
    example = example_from_entities("abc", [(*span, "x") for span in spans])
    (found,) = tokens([example], task())
    assert " ".join(found[0][1:-1]) == row


def test_markers_are_asked_in_the_order_of_the_pair() -> None:
    own = task(pooling="markers")
    example = RelateTask.examples_from_texts(["[[ b ]] by << a >>"])
    tokenizer = TOKENIZER.with_markers(own.special_tokens)
    (row,) = own.encode(example, tokenizer, 512)[0].rows
    assert tokenizer.tokens(row.ids[row.positions]) == ["[E1]", "[E2]"]


def test_stand_ins_are_one_piece_each() -> None:
    rules = PairRules(types=(("DISEASE", "GENE"), ("GENE", "DISEASE")))
    own = RelateTask(RelateSettings(pooling="markers"), "anonymised", ("0", "1"), rules)
    tokenizer = TOKENIZER.with_markers(own.special_tokens)
    (row,) = own.encode(own.examples_from_texts(["a @GENE$-b in @DISEASE$."]), tokenizer, 512)[0].rows
    assert tokenizer.tokens(row.ids) == [
        "[CLS]",
        "a",
        "@GENE$",
        "-",
        "b",
        "i",
        "##n",
        "@DISEASE$",
        ".",
        "[SEP]",
    ]
    assert tokenizer.tokens(row.ids[row.positions]) == ["@GENE$", "@DISEASE$"]


def test_found_entities_are_replaced_if_the_model_learnt_from_stand_ins() -> None:
    own = RelateTask(RelateSettings(), "anonymised", ("0", "1"), PairRules(types=(("GENE", "DISEASE"),)))
    found = tokens([example_from_entities("ab in cd.", [(0, 2, "gene"), (6, 8, "Disease")])], own)
    assert found == [[["[CLS]", "@GENE$", "i", "##n", "@DISEASE$", ".", "[SEP]"]]]


def test_a_pair_that_does_not_fit_is_out_of_reach() -> None:
    own = task(max_length=16)
    tokenizer = TOKENIZER.with_markers(own.special_tokens)
    examples = RelateTask.examples_from_texts([f"<< a >> {'b ' * 9} [[ c ]]", f"<< a >> {'b ' * 8} [[ c ]]"])
    far, near = own.encode(examples, tokenizer, 512)
    assert (len(far.rows), len(near.rows)) == (0, 1)
    assert near.rows[0].length == 16
    assert own.decode(far, []).answers[0].label is None


@given(st.integers(0, 30), st.integers(0, 8), st.integers(0, 30), st.integers(20, 40))
def test_both_entities_are_always_read_and_what_is_cut_is_counted(
    before: int, between: int, after: int, limit: int
) -> None:
    own = task(max_length=limit)
    tokenizer = TOKENIZER.with_markers(own.special_tokens)
    text = f"{'ab ' * before}<< x >> {'cd ' * between}[[ y ]]{' ef' * after}"
    (encoded,) = own.encode(own.examples_from_texts([text]), tokenizer, 512)
    inside = 6 + 2 * between
    if inside > limit - 2:
        assert encoded.rows == ()
        return
    found = tokenizer.tokens(encoded.rows[0].ids)
    assert {"[E1]", "x", "[/E1]", "[E2]", "y", "[/E2]"} <= set(found)
    whole = inside + 2 * (before + after) + 2
    assert encoded.coverage.cut_characters == whole - len(found)
    assert len(found) == whole if whole <= limit else limit - 2 <= len(found) <= limit
    assert not found[1].startswith("##")


def test_two_columns_a_label_equal_one_layer_over_both_states() -> None:
    own = task(pooling="markers")
    draw = torch.Generator().manual_seed(1)
    states, weight = torch.randn(3, 2, 5, generator=draw), torch.randn(2, 10, generator=draw)
    reference = states.reshape(3, 10) @ weight.T
    columns = torch.cat([weight[:, :5], weight[:, 5:]])
    outputs = states.reshape(6, 5) @ columns.T
    torch.testing.assert_close(own._evidence(outputs), reference)
    np.testing.assert_allclose(own._evidence(outputs.numpy()), reference.numpy(), atol=1e-5)
