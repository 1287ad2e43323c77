"""The settings of pre-training, and recipes: settings that belong together.

The same in Python, in a TOML file (`alembert pretrain --set help` prints one) and in the manifest of the result.

A recipe says nothing about how long a run is, but for the published one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

from alembert.data.feed import SequenceSpec
from alembert.data.masking import MaskSettings, SwapSettings
from alembert.errors import BadSetting
from alembert.settings import apply_changes, split_value
from alembert.train.settings import (
    BatchSettings,
    EvaluationSettings,
    ModelSettings,
    OptimiserSettings,
    RunSettings,
    ScheduleSettings,
    check_share,
)

USUAL_WEIGHTS: Final = {"rtd": 50.0, "entity_swap": 50.0}
"""Weights of objectives that are named without one, where it is not 1: as ELECTRA, since a yes or no has a small loss."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveWeights:
    """What is learnt: the weight of each objective in the loss; 0 leaves it out.

    The bidirectional ones share a forward pass. `causal` and `prefix` need passes of their own: each micro-batch is
    given to one kind of pass, as often as the weights say.
    """

    masked_lm: float = 1.0
    """Masked language modelling."""
    next_sentence: float = 0.0
    """Predict whether the second part of the sequence follows the first, as in BERT."""
    sentence_order: float = 0.0
    """Predict whether two parts that follow each other were swapped, as in ALBERT."""
    boundaries: float = 0.0
    """Predict the first and last token of each entity."""
    entity_types: float = 0.0
    """Tag each token with the type of its entity (BIO)."""
    rtd: float = 0.0
    """Replaced-token detection, as ELECTRA (weight 50): find the tokens that a small generator has put in."""
    entity_swap: float = 0.0
    """Find entities that were replaced by others of their type, and words replaced by others; without a generator."""
    causal: float = 0.0
    """Causal language modelling."""
    prefix: float = 0.0
    """Prefix language modelling: predict the second half from all of the first half and the tokens before, as UniLM."""

    def __post_init__(self) -> None:
        for name, weight in self.chosen(all_of_them=True).items():
            if not 0 <= weight < float("inf"):
                raise BadSetting(f"The weight of `{name}` is {weight}; expected 0 (leave it out) or a positive number.")
        if not self.chosen():
            raise BadSetting("All objectives have the weight 0. Give at least one, such as masked_lm = 1.")
        if self.next_sentence and self.sentence_order:
            raise BadSetting("next_sentence and sentence_order need different pairs of sentences. Choose one of them.")
        if self.rtd and (self.masked_lm or self.entity_swap):
            raise BadSetting(
                "rtd puts tokens of its generator where masked_lm and entity_swap would put theirs. Set masked_lm and "
                "entity_swap to 0; the generator learns masked_lm by itself. masked_lm and entity_swap go together."
            )

    def chosen(self, *, all_of_them: bool = False) -> dict[str, float]:
        """Return the objectives that have a weight."""
        weights = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: weight for name, weight in weights.items() if weight or all_of_them}

    @property
    def needs_entities(self) -> bool:
        """Whether an objective is about entities."""
        return bool(self.boundaries or self.entity_types or self.entity_swap)

    @property
    def pairs(self) -> Literal["next_sentence", "sentence_order"] | None:
        """Which kind of sentence pairs the sequences are made of."""
        if self.next_sentence:
            return "next_sentence"
        return "sentence_order" if self.sentence_order else None


@dataclass(frozen=True, kw_only=True)
class SequenceSettings:
    """How documents become training sequences."""

    max_length: int = 128
    """Maximum tokens of a sequence, with [CLS] and [SEP]."""
    long_length: int | None = None
    """Maximum length in the last part of the run (BERT: 512); none: `max_length` throughout."""
    long_share: float = 0.1
    """Share of the run at `long_length`."""
    cut: Literal["sentence", "token"] = "sentence"
    """Where a sequence may end: after a sentence, or after any token (which fills sequences completely)."""
    late_share: float = 0.0
    """Share of documents that are also read from a later sentence on (half of them from the second, after the title), so
    that a model learns to start anywhere."""
    short_share: float = 0.1
    """Share of documents cut into shorter sentence pairs, as in BERT."""
    static_masks: int | None = None
    """Number of fixed sets of pairs and masks used in turn (static masking); none: new ones in every epoch."""

    def __post_init__(self) -> None:
        for name in ("max_length", "long_length"):
            value = getattr(self, name)
            if value is not None and value < 8:
                raise BadSetting(f"`{name}` is {value} tokens; a training sequence needs at least 8.")
        for name in ("long_share", "late_share", "short_share"):
            check_share(name, getattr(self, name))
        if self.static_masks is not None and self.static_masks < 1:
            raise BadSetting(
                f"`static_masks` is {self.static_masks}; expected 1 or more, or leave it out for new masks in every pass."
            )

    def cutting(self, progress: float, pairs: Literal["next_sentence", "sentence_order"] | None = None) -> SequenceSpec:
        """Choose how documents are cut at a point of the run."""
        is_late = progress >= 1 - self.long_share
        return SequenceSpec(
            length=self.long_length if is_late and self.long_length else self.max_length,
            pairs=pairs,
            short_share=self.short_share,
            cut=self.cut,
            late_start_share=self.late_share,
        )


@dataclass(frozen=True, kw_only=True)
class HeldOutSettings(EvaluationSettings):
    """What is held out of the corpus, and how often it is evaluated."""

    share: float = 0.01
    """Share of the documents that is held out, chosen by their content."""
    tokens: int = 50_000
    """Maximum tokens of held-out text in an evaluation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share < 1:
            raise BadSetting(f"`share` of the evaluation is {self.share}; expected a share from 0, below 1.")
        if self.tokens < 1:
            raise BadSetting(f"`tokens` of the evaluation is {self.tokens}; expected at least 1.")


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(RunSettings):
    """Settings of pre-training."""

    segmenter: Literal["auto", "jieba", "characters"] = "auto"
    """Segmenter of Chinese words for whole-word masking; auto: jieba if it is installed."""
    evaluation: HeldOutSettings = field(default_factory=HeldOutSettings)
    """Held-out data."""
    keep_heads: Literal["published", "all"] = "published"
    """Heads in the result: those that Hugging Face tools can open, or all, in a format that only alembert reads."""
    objectives: ObjectiveWeights = field(default_factory=ObjectiveWeights)
    """The weights of the objectives."""
    masks: MaskSettings = field(default_factory=MaskSettings)
    """Masking."""
    swaps: SwapSettings = field(default_factory=SwapSettings)
    """What `entity_swap` replaces."""
    outside_weight: float = 0.3
    """Weight of tokens outside of entities in the loss of `entity_types`: dictionaries miss entities."""
    generator_embeddings: Literal["trained", "read"] = "trained"
    """What the generator of `rtd` does with the token embeddings of the model: train them too (ELECTRA), or read them."""
    sequences: SequenceSettings = field(default_factory=SequenceSettings)
    """How documents become sequences."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("outside_weight", self.outside_weight)
        if self.generator_embeddings not in ("trained", "read"):
            raise BadSetting(f"`generator_embeddings` is {self.generator_embeddings!r}; expected trained or read.")


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
    next_sentence = 1. The rate is high and embeddings are trained, since an extended vocabulary has new rows: for long
    runs.
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

    Text is read about once, so nothing is learnt by heart, and what counts is how soon the model learns to look at its
    context: more steps of fewer tokens, and twice as many masks, brought it there sooner for the same tokens
    (docs/results.md).
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
