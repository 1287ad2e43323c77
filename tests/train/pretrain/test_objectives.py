"""Objectives: what they hide, what they ask, and their loss."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from alembert.corpus.shards import ENTITY_END, ENTITY_START, IN_ENTITY, WORD_START
from alembert.data.masking import MaskSettings
from alembert.data.order import make_rng
from alembert.data.sequences import Instance
from alembert.train.pretrain.objectives import (
    LMObjective,
    TrainingInstance,
    build_objectives,
    perplexity,
    select_answers,
)

MASK, VOCABULARY = 4, 50


def make(name: str, **masks: float) -> LMObjective:
    (made,) = build_objectives({name: 1.0}, masks=MaskSettings(**masks), mask_id=MASK, vocab_size=VOCABULARY)
    return made


def exercise(label: int | None = None) -> TrainingInstance:
    """[CLS] 10 ... 19 [SEP], of which 12 and 13 are an entity."""
    ids = np.array([2, *range(10, 20), 3], np.int32)
    flags = np.array([0, *[WORD_START] * 10, 0], np.uint8)
    flags[3] |= IN_ENTITY | ENTITY_START
    flags[4] |= IN_ENTITY | ENTITY_END
    special = np.array([True, *[False] * 10, True])
    return TrainingInstance(Instance(ids, np.zeros(12, np.uint8), flags, special, label), ids)


def test_masked_tokens_are_asked_for() -> None:
    asked = exercise()
    make("masked_lm", mask_share=1.0, random_share=0.0, rate=0.3).prepare(asked, make_rng(1))
    answers = asked.answers["masked_lm"]
    assert answers.tokens is not None
    assert (asked.ids[answers.tokens] == MASK).all()
    assert answers.labels.tolist() == asked.instance.ids[answers.tokens].tolist()
    assert len(answers.labels) == round(0.3 * 12)


def test_masked_tokens_know_whether_they_stand_in_an_entity() -> None:
    asked = exercise()
    make("masked_lm", rate=1.0).prepare(asked, make_rng(1))
    answers = asked.answers["masked_lm"]
    assert answers.in_entity is not None
    assert answers.tokens[answers.in_entity].tolist() == [3, 4]  # type: ignore[index]


def test_the_instance_itself_is_not_changed() -> None:
    asked = exercise()
    make("masked_lm", rate=1.0).prepare(asked, make_rng(1))
    assert asked.instance.ids.tolist() == [2, *range(10, 20), 3]


def test_boundaries_are_the_first_and_the_last_token_of_an_entity() -> None:
    asked = exercise()
    make("boundaries").prepare(asked, make_rng(1))
    answers = asked.answers["boundaries"]
    assert answers.tokens.tolist() == list(range(1, 11))  # type: ignore[union-attr]
    assert np.argwhere(answers.labels).tolist() == [[2, 0], [3, 1]]


def test_each_token_is_predicted_from_those_before_it() -> None:
    asked = exercise()
    make("causal").prepare(asked, make_rng(1))
    answers = asked.answers["causal"]
    assert answers.tokens.tolist() == list(range(11))  # type: ignore[union-attr]
    assert answers.labels.tolist() == asked.ids[1:].tolist()


@pytest.mark.parametrize("seed", range(5))
def test_only_what_follows_the_prefix_is_predicted(seed: int) -> None:
    asked = exercise()
    make("prefix").prepare(asked, make_rng(seed))
    answers = asked.answers["prefix"]
    assert asked.prefix is not None
    assert 1 <= asked.prefix <= 10
    assert answers.labels.tolist() == asked.ids[asked.prefix :].tolist()


@pytest.mark.parametrize("name", ["next_sentence", "sentence_order"])
def test_a_pair_has_one_answer_and_a_single_sequence_none(name: str) -> None:
    pair, single = exercise(label=1), exercise()
    for each in (pair, single):
        make(name).prepare(each, make_rng(1))
    assert pair.answers[name].labels.tolist() == [1]
    assert single.answers == {}


def test_the_loss_is_the_sum_over_answers() -> None:
    logits, labels = torch.randn(7, VOCABULARY), torch.randint(VOCABULARY, (7,))
    expected = 7 * functional.cross_entropy(logits, labels)
    torch.testing.assert_close(make("masked_lm").loss(logits, labels), expected)


def test_tallies_add_up_to_scores() -> None:
    objective = make("masked_lm")
    logits, labels = torch.randn(20, VOCABULARY), torch.randint(VOCABULARY, (20,))
    whole = objective.scores(objective.tally(logits, labels))
    halves = [objective.tally(logits[part], labels[part]) for part in (slice(8), slice(8, 20))]
    together = objective.scores({key: halves[0][key] + halves[1][key] for key in halves[0]})
    assert together == pytest.approx(whole)
    assert whole["perplexity"] == pytest.approx(math.exp(whole["loss"]))


def test_boundaries_are_scored_by_f1() -> None:
    objective = make("boundaries")
    labels = torch.tensor([[1.0, 0], [0, 1], [0, 0], [0, 0]])
    logits = torch.tensor([[9.0, -9], [-9, -9], [9, -9], [-9, -9]])
    assert objective.scores(objective.tally(logits, labels))["f1"] == pytest.approx(0.5)


def test_perplexity_of_nonsense_is_infinite() -> None:
    assert perplexity(1e5) == math.inf


def test_answers_can_be_restricted() -> None:
    logits, labels = select_answers(torch.arange(6).view(3, 2), torch.arange(3), torch.tensor([True, False, True]))
    assert logits.tolist() == [[0, 1], [4, 5]]
    assert labels.tolist() == [0, 2]
