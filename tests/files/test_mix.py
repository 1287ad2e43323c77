"""Mixed checkpoints: the line between two models, rows matched by piece, and what does not fit together."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.files.surgery import TOKEN_EMBEDDING, mix_checkpoints, with_added_pieces, with_kept_pieces
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from small_checkpoints import SHAPE
from task_cases import TOKENIZER

MASKED_LM = {"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)}


def make(seed: int = 0, tokenizer: Tokenizer | None = TOKENIZER, heads: Any = None, **changes: Any) -> Checkpoint:
    config = EncoderConfig(vocab_size=TOKENIZER.vocab_size, **{**SHAPE, **changes})
    return Checkpoint.new(Blueprint(config=config, heads=heads or {}), tokenizer, seed=seed)


def with_pieces(pieces: tuple[str, ...]) -> Tokenizer:
    parts = TOKENIZER.parts
    return Tokenizer(replace(parts, vocabulary=Vocabulary(pieces, parts.vocabulary.special), model_size=None))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_weights_lie_on_the_line_between_both(share: float) -> None:
    start, adapted = make(1, heads=MASKED_LM), make(2, heads=MASKED_LM)
    mixed = mix_checkpoints(start, adapted, share).model.state_dict()
    one, two = start.model.state_dict(), adapted.model.state_dict()
    assert mixed.keys() == one.keys() == two.keys()
    for name, weights in mixed.items():
        torch.testing.assert_close(weights, (1 - share) * one[name] + share * two[name])
    ends = {0.0: one, 1.0: two}.get(share, mixed)
    assert all(torch.equal(weights, ends[name]) for name, weights in mixed.items())


def test_a_head_of_one_side_is_taken_as_it_is() -> None:
    adapted = make(2, heads=MASKED_LM)
    head = {name: w for name, w in adapted.model.state_dict().items() if name.startswith("heads.")}
    for pair in ((make(1), adapted), (adapted, make(1))):
        mixed = mix_checkpoints(*pair, 0.25)
        assert list(mixed.blueprint.heads) == ["masked_lm"]
        assert all(torch.equal(mixed.model.state_dict()[name], weights) for name, weights in head.items())


def test_rows_are_matched_by_piece_and_new_ones_are_taken_as_they_are() -> None:
    start, other = make(1, heads=MASKED_LM), make(2, heads=MASKED_LM)
    pieces = TOKENIZER.vocabulary.pieces
    order = [*range(5), *range(len(pieces) - 1, 4, -1)]
    turned = with_kept_pieces(other, with_pieces(tuple(pieces[number] for number in order)), order)
    extended = with_pieces((*(pieces[number] for number in order), "novelpiece"))
    adapted = with_added_pieces(turned, extended, {len(pieces): [7, 8]})
    mixed = mix_checkpoints(start, adapted, 0.5)
    rows, one, two = (each.model.state_dict()[TOKEN_EMBEDDING] for each in (mixed, start, other))
    assert mixed.tokenizer is extended
    torch.testing.assert_close(rows[:-1], (one[order] + two[order]) / 2)
    assert torch.equal(rows[-1], adapted.model.state_dict()[TOKEN_EMBEDDING][-1])
    assert mixed.model.state_dict()["heads.masked_lm.bias"].shape == (len(pieces) + 1,)


def test_a_pooler_stays_only_with_bare_encoders() -> None:
    config = EncoderConfig(vocab_size=TOKENIZER.vocab_size, **SHAPE)
    pooled = Checkpoint.new(Blueprint(config=config, pooler=True), TOKENIZER)
    assert mix_checkpoints(pooled, make(2), 0.5).blueprint.pooler
    assert not mix_checkpoints(pooled, make(2, heads=MASKED_LM), 0.5).blueprint.pooler


def labelled(*labels: str) -> Checkpoint:
    config = EncoderConfig(vocab_size=TOKENIZER.vocab_size, **SHAPE)
    heads = {"tag": HeadSpec(kind="tag", outputs=len(labels))}
    return Checkpoint.new(Blueprint(config=config, heads=heads, labels={"tag": labels}), TOKENIZER)


@pytest.mark.parametrize(
    ("start", "adapted", "sentence"),
    [
        (make(), make(hidden_size=32), "`hidden_size` is 16 and 32"),
        (make(), make(num_hidden_layers=1), "`num_hidden_layers` is 2 and 1"),
        (make(), make(tokenizer=None), "One of the two models has no tokenizer"),
        (labelled("O", "B"), labelled("B", "O"), "Both models have a head `tag`, of different kinds or labels"),
        (make(), make(tokenizer=with_pieces(TOKENIZER.vocabulary.pieces[:-2])), "2 of the .* pieces of the start"),
    ],
    ids=["width", "depth", "no tokenizer", "labels", "vocabulary"],
)
def test_what_does_not_fit_is_refused(start: Checkpoint, adapted: Checkpoint, sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        mix_checkpoints(start, adapted, 0.5)


def test_tokenizers_that_normalise_otherwise_are_refused() -> None:
    parts = TOKENIZER.parts
    other = replace(parts.settings, do_lower_case=not parts.settings.do_lower_case)
    with pytest.raises(BadSetting, match="differ in how they normalise text"):
        mix_checkpoints(make(), make(tokenizer=Tokenizer(replace(parts, settings=other))), 0.5)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_beyond_the_models_is_refused(share: float) -> None:
    with pytest.raises(BadSetting, match="from 0"):
        mix_checkpoints(make(), make(), share)
