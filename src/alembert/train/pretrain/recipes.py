"""Recipes: settings that belong together, each a function that returns them.

A recipe says nothing about how long a run is, but for the published one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from alembert.data.masking import MaskSettings
from alembert.errors import BadSetting
from alembert.settings import apply_changes, split_value
from alembert.train.pretrain.settings import ObjectiveWeights, PretrainSettings, SequenceSettings
from alembert.train.schedule import ScheduleSettings
from alembert.train.settings import BatchSettings, ModelSettings, OptimiserSettings


def bert_original() -> PretrainSettings:
    """BERT as published: masked pieces and next sentences, ten static copies, BERT's Adam, a million steps."""
    return PretrainSettings(
        steps=1_000_000,
        objectives=ObjectiveWeights(masked_lm=1.0, next_sentence=1.0),
        masks=MaskSettings(unit="piece", rate=0.15, mask_share=0.8, random_share=0.1, max_predictions=20),
        sequences=SequenceSettings(max_length=128, long_length=512, long_share=0.1, short_share=0.1, static_masks=10),
        batch=BatchSettings(tokens=256 * 128),
        optimiser=OptimiserSettings(name="bert_adam", learning_rate=1e-4, weight_decay=0.01, epsilon=1e-6, clip=1.0),
        schedule=ScheduleSettings(kind="linear", warmup=0.01),
    )


def adapt() -> PretrainSettings:
    """Go on training a model on plain text: masked whole words, a fresh head first, gently, embeddings frozen.

    The output is tied to the token embedding. In a short run it would move all rows of it, those of rare pieces most,
    and undo what the model knew of them.
    """
    return PretrainSettings(
        batch=BatchSettings(tokens=4096),
        masks=MaskSettings(unit="word", rate=0.2),
        model=ModelSettings(
            first=("heads",), first_share=0.25, first_learning_rate=1e-3, first_plateau=0.01, frozen=("embeddings",)
        ),
        optimiser=OptimiserSettings(learning_rate=5e-5, layer_decay=0.9),
        schedule=ScheduleSettings(warmup=0.1, restart=True),
    )


def biobert() -> PretrainSettings:
    """Adapt a model to a domain: entities masked whole, other words too, and entity boundaries found.

    BioBERT as published keeps BERT's own vocabulary and objectives: that is `adapt` with unit = "piece" and
    next_sentence = 1. The rate is high and embeddings are trained, since an extended vocabulary has new rows: for long runs.
    """
    return PretrainSettings(
        objectives=ObjectiveWeights(masked_lm=1.0, boundaries=0.2),
        masks=MaskSettings(unit="entity", entity_rate=0.3),
        model=ModelSettings(first=("heads",), first_share=0.05),
        optimiser=OptimiserSettings(learning_rate=3e-4),
        schedule=ScheduleSettings(warmup=0.06),
    )


def electra() -> PretrainSettings:
    """ELECTRA-Small as published: replaced tokens of a generator of a quarter of the width are found, with weight 50."""
    return PretrainSettings(
        objectives=ObjectiveWeights(masked_lm=0.0, rtd=50.0),
        masks=MaskSettings(unit="piece", rate=0.15, mask_share=0.85, random_share=0.0),
        batch=BatchSettings(tokens=128 * 128),
        optimiser=OptimiserSettings(learning_rate=5e-4, weight_decay=0.01, epsilon=1e-6, clip=1.0),
        schedule=ScheduleSettings(kind="linear", warmup=0.01),
    )


def from_scratch_small() -> PretrainSettings:
    """A small model from nothing in hours: many small steps, many masks, a high rate, no dropout, no pairs.

    Text is read about once, so nothing is learnt by heart, and what counts is how soon the model learns to look at its context:
    more steps of fewer tokens, and twice as many masks, brought it there sooner for the same tokens (docs/results.md).
    """
    return PretrainSettings(
        batch=BatchSettings(tokens=2048, micro_tokens=1024),
        masks=MaskSettings(unit="word", rate=0.3),
        model=ModelSettings(dropout=0.0, attention_dropout=0.0),
        optimiser=OptimiserSettings(learning_rate=1e-3),
        schedule=ScheduleSettings(warmup=0.06),
    )


def chinese_wwm() -> PretrainSettings:
    """Chinese whole-word masking: words by jieba and the user's dictionary are masked as one."""
    return PretrainSettings(
        segmenter="jieba",
        masks=MaskSettings(unit="word"),
        optimiser=OptimiserSettings(learning_rate=5e-4),
        schedule=ScheduleSettings(warmup=0.06),
    )


def causal_poet() -> PretrainSettings:
    """Learn to write: each token predicted from those before it, from the title on or from any sentence."""
    return PretrainSettings(
        segmenter="characters",
        sequences=SequenceSettings(late_share=1.0),
        objectives=ObjectiveWeights(masked_lm=0.0, causal=1.0),
        batch=BatchSettings(tokens=1024, micro_tokens=1024),
        model=ModelSettings(dropout=0.0, attention_dropout=0.0),
        optimiser=OptimiserSettings(learning_rate=2e-3),
        schedule=ScheduleSettings(warmup=0.05),
    )


RECIPES: Final[dict[str, Callable[[], PretrainSettings]]] = {
    "bert-original": bert_original,
    "adapt": adapt,
    "biobert": biobert,
    "electra": electra,
    "from-scratch-small": from_scratch_small,
    "chinese-wwm": chinese_wwm,
    "causal-poet": causal_poet,
}


def get_recipe(name: str) -> PretrainSettings:
    """Return the settings of a recipe by its name."""
    if name not in RECIPES:
        near = difflib.get_close_matches(name.replace("_", "-"), RECIPES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise BadSetting(f"There is no recipe {name!r}; expected one of {', '.join(RECIPES)}.{hint}")
    return RECIPES[name]()


def choose_recipe(model: str | None, objectives: Iterable[str] = ()) -> str:
    """Name the recipe for a start model (None: from nothing) and the objectives that were asked for."""
    names = set(objectives)
    if names and names <= {"causal", "prefix"}:
        return "causal-poet"
    return "from-scratch-small" if model is None else "adapt"


def resolve_recipe(name: str, layers: Mapping[str, Mapping[str, Any]], *, chosen: bool = False) -> PretrainSettings:
    """Change a recipe by layers of plain values, given by where they come from; the last one wins.

    A layer may name another recipe, unless this one was `chosen` by the user.
    """
    in_file, tables = split_value(name, "recipe", layers)
    settings = get_recipe(name if chosen else in_file)
    for where, table in tables.items():
        if table.keys() & {"hours", "tokens", "steps"}:
            settings = replace(settings, hours=None, tokens=None, steps=None)
        settings = apply_changes(settings, table, where)
    return settings
