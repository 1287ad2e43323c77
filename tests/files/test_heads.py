"""Heads that come and go while the rest of a checkpoint stays as it is."""

import pytest
import torch

from alembert.files.card import build_model_card
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.files.surgery import find_fresh_heads, with_heads
from alembert.nn.config import preset
from alembert.nn.heads import HEAD_KINDS, HeadSpec

MASKED = HeadSpec(kind="masked_lm", dropout=0.0)
NEXT = HeadSpec(kind="next_sentence", dropout=0.0)
CLASSES = HeadSpec(kind="classify", outputs=3)
CONFIG = preset("tiny", vocab_size=60, num_hidden_layers=1)


def checkpoint(pooler: bool = False, **heads: HeadSpec) -> Checkpoint:
    labels = {name: ("a", "b", "c") for name, spec in heads.items() if spec.kind == "classify"}
    return Checkpoint.new(Blueprint(config=CONFIG, heads=heads, pooler=pooler, labels=labels), seed=1)


def moved(one: Checkpoint, two: Checkpoint) -> set[str]:
    """Name the weights that are in only one of them, or differ."""
    first, second = one.model.state_dict(), two.model.state_dict()
    shared = first.keys() & second.keys()
    return (first.keys() ^ second.keys()) | {n for n in shared if not torch.equal(first[n], second[n])}


def test_what_is_kept_has_the_same_weights() -> None:
    old = checkpoint(masked_lm=MASKED)
    assert moved(old, with_heads(old, {"masked_lm": MASKED}, seed=9)) == set()


def test_a_new_head_changes_nothing_else() -> None:
    old = checkpoint(masked_lm=MASKED)
    new = with_heads(old, {"masked_lm": MASKED, "next_sentence": NEXT})
    assert all(name.startswith(("heads.next_sentence.", "pooler.")) for name in moved(old, new))
    assert set(new.blueprint.heads) == {"masked_lm", "next_sentence"}


def test_fresh_weights_follow_from_the_seed() -> None:
    old = checkpoint()
    one, same, other = (with_heads(old, {"masked_lm": MASKED}, seed=seed) for seed in (1, 1, 2))
    assert moved(one, same) == set()
    assert moved(one, other)
    assert all(name.startswith("heads.masked_lm.") for name in moved(one, other))


def test_a_language_model_is_kept_when_it_comes_to_copy_and_when_it_ceases_to() -> None:
    old, copying = checkpoint(masked_lm=MASKED), HeadSpec(kind="copy_lm", dropout=0.0)
    there = with_heads(old, {"copy_lm": copying}, seed=9)
    state = there.model.state_dict()
    assert moved(old, with_heads(there, {"masked_lm": MASKED}, seed=8)) == set()
    assert moved(there, with_heads(there, {"copy_lm": copying}, seed=8)) == set()
    torch.testing.assert_close(state["heads.copy_lm.bias"], old.model.state_dict()["heads.masked_lm.bias"])


def test_a_head_of_another_shape_begins_fresh() -> None:
    old = checkpoint(topic=CLASSES)
    wanted = {"topic": HeadSpec(kind="classify", outputs=5)}
    assert find_fresh_heads(old, wanted) == ("topic",)
    assert with_heads(old, wanted).model.state_dict()["heads.topic.linear.weight"].shape[0] == 5


def test_a_head_of_the_same_shape_is_not_fresh_whatever_its_dropout() -> None:
    old = checkpoint(topic=CLASSES)
    assert find_fresh_heads(old, {"topic": HeadSpec(kind="classify", outputs=3, dropout=0.4)}) == ()


def test_a_head_that_reads_other_states_begins_fresh() -> None:
    old = checkpoint(topic=CLASSES)
    assert find_fresh_heads(old, {"topic": HeadSpec(kind="classify", outputs=3, pooling="mean")}) == ("topic",)


def test_labels_go_with_their_head() -> None:
    old = checkpoint(masked_lm=MASKED, topic=CLASSES)
    assert with_heads(old, {"masked_lm": MASKED}).blueprint.labels == {}
    assert with_heads(old, {"topic": CLASSES}).blueprint.labels == {"topic": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("had", "keep", "heads", "has"),
    [
        (True, True, {"masked_lm": MASKED}, True),
        (True, False, {"masked_lm": MASKED}, False),
        (False, True, {"masked_lm": MASKED}, False),
        (False, False, {"next_sentence": NEXT}, True),
    ],
)
def test_the_pooler_stays_if_wanted_and_comes_if_needed(
    had: bool, keep: bool, heads: dict[str, HeadSpec], has: bool
) -> None:
    new = with_heads(checkpoint(pooler=had, masked_lm=MASKED), heads, pooler=keep)
    assert (new.model.pooler is not None) is has


def test_a_pooler_that_is_kept_keeps_its_weights() -> None:
    old = checkpoint(pooler=True)
    assert moved(old, with_heads(old, {"next_sentence": NEXT})) <= {
        f"heads.next_sentence.linear.{kind}" for kind in ("weight", "bias")
    }


def test_another_configuration_of_the_same_shapes_can_be_given() -> None:
    old = checkpoint(masked_lm=MASKED)
    config = preset("tiny", vocab_size=60, num_hidden_layers=1, hidden_dropout_prob=0.4)
    new = with_heads(old, {"masked_lm": MASKED}, config=config)
    assert new.blueprint.config.hidden_dropout_prob == new.model.config.hidden_dropout_prob == 0.4


@pytest.mark.parametrize("kind", HEAD_KINDS)
def test_the_model_card_knows_every_kind_of_head(kind: str) -> None:
    outputs = 3 if HEAD_KINDS[kind].outputs is None else None
    for pooling in HEAD_KINDS[kind].poolings:
        spec = HeadSpec(kind=kind, outputs=outputs, pooling=pooling)
        blueprint = Blueprint(config=CONFIG, heads={"mine": spec})
        assert "| head `mine` |" in build_model_card(blueprint, "alembert")
