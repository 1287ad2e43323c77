"""Settings of pre-training: every field explained, and everything that cannot work refused in words."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest

from alembert.data.masking import MaskSettings
from alembert.errors import BadSetting
from alembert.settings import read_field_docs
from alembert.train.pretrain.settings import HeldOutSettings, ObjectiveWeights, PretrainSettings, SequenceSettings
from alembert.train.settings import (
    BatchSettings,
    EvaluationSettings,
    ModelSettings,
    OptimiserSettings,
    SavingSettings,
    ScheduleSettings,
)


def tables(settings: Any) -> Iterator[type]:
    yield type(settings)
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            yield from tables(value)


@pytest.mark.parametrize("kind", list(tables(PretrainSettings())))
def test_every_field_has_an_explanation(kind: type) -> None:
    names = {item.name for item in dataclasses.fields(kind)}
    assert names <= {name for name, text in read_field_docs(kind).items() if text.strip()}


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        (MaskSettings, {"rate": 1.5}, "`rate` is 1.5; it must be above 0 and at most 1"),
        (MaskSettings, {"rate": 0.0}, "`rate` is 0.0; it must be above 0"),
        (MaskSettings, {"mask_share": -0.1}, "`mask_share` is -0.1; it must be from 0 to 1"),
        (MaskSettings, {"mask_share": 0.8, "random_share": 0.3}, "lower one of them"),
        (MaskSettings, {"unit": "letter"}, "Use one of piece, word, span, entity"),
        (MaskSettings, {"max_predictions": 0}, "use 1 or more, or leave it out"),
        (ObjectiveWeights, {"boundaries": -1.0}, "The weight of `boundaries` is -1.0; expected 0"),
        (ObjectiveWeights, {"masked_lm": math.nan}, "or a positive number"),
        (ObjectiveWeights, {"masked_lm": 0.0}, "Give at least one, such as masked_lm = 1"),
        (ObjectiveWeights, {"next_sentence": 1.0, "sentence_order": 1.0}, "Choose one of them"),
        (SequenceSettings, {"max_length": 7}, "needs at least 8"),
        (SequenceSettings, {"long_length": 4}, "`long_length` is 4 tokens"),
        (SequenceSettings, {"long_share": 1.1}, "expected a share from 0 to 1"),
        (SequenceSettings, {"short_share": math.nan}, "expected a share from 0 to 1"),
        (SequenceSettings, {"static_masks": 0}, "leave it out for new masks in every pass"),
        (BatchSettings, {"tokens": 100, "micro_tokens": 200}, "holds at least one micro-batch"),
        (BatchSettings, {"micro_tokens": 0}, "holds at least one micro-batch"),
        (
            ModelSettings,
            {"dropout": 1.0},
            "`dropout` is 1.0; expected a number from 0 up to, not including, 1",
        ),
        (ModelSettings, {"attention_dropout": -0.1}, "`attention_dropout` is -0.1"),
        (ModelSettings, {"first": ("head",)}, "the parts of a model are embeddings, layers, heads"),
        (ModelSettings, {"first_share": 2.0}, "expected a share from 0 to 1"),
        (ModelSettings, {"first_plateau": 1.5}, "expected a share from 0 to 1"),
        (ModelSettings, {"first_plateau_steps": 0}, "expected 1 or more"),
        (ModelSettings, {"first_learning_rate": 0.0}, "expected a positive number, or none"),
        (SavingSettings, {"towards_start": -0.1}, "expected a share from 0 to 1"),
        (HeldOutSettings, {"share": 1.0}, "expected a share from 0, below 1"),
        (HeldOutSettings, {"tokens": 0}, "at least 1"),
        (EvaluationSettings, {"times": -1}, "expected 0 or more"),
        (SavingSettings, {"minutes": 0.0}, "are positive numbers"),
        (SavingSettings, {"minutes": math.nan}, "are positive numbers"),
        (SavingSettings, {"steps": 0}, "are positive numbers"),
        (SavingSettings, {"ema_decay": 1.0}, "expected a decay between 0 and 1, such as 0.999"),
        (
            OptimiserSettings,
            {"learning_rate": 0.0},
            "`learning_rate` of the optimiser is 0.0; expected a positive number",
        ),
        (ScheduleSettings, {"warmup": -0.1}, "expected a share from 0 to 1"),
        (PretrainSettings, {"hours": 1.0, "tokens": 5}, "is given by hours and tokens. Give one of"),
        (PretrainSettings, {"steps": 0}, "the length of a run is a positive number"),
        (PretrainSettings, {"hours": math.inf}, "the length of a run is a positive number"),
        (PretrainSettings, {"seed": -1}, "`seed` is -1; expected a whole number from 0"),
        (PretrainSettings, {"seed": 2**63}, "below 2 to the power of 63"),
    ],
)
def test_what_cannot_work_is_refused_in_words(kind: type, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting) as refused:
        kind(**changes)
    assert sentence in str(refused.value)


def test_a_step_has_the_micro_batches_that_its_tokens_need() -> None:
    assert BatchSettings(tokens=8192, micro_tokens=2048).micro_batches == 4
    assert BatchSettings(tokens=100, micro_tokens=100).micro_batches == 1


def test_only_objectives_with_a_weight_are_chosen() -> None:
    weights = ObjectiveWeights(masked_lm=1.0, boundaries=0.2)
    assert weights.chosen() == {"masked_lm": 1.0, "boundaries": 0.2}


@pytest.mark.parametrize("kind", ["next_sentence", "sentence_order"])
def test_a_pair_objective_decides_about_the_pairs(kind: str) -> None:
    assert ObjectiveWeights(**{kind: 1.0}).pairs == kind
