"""The verb `pretrain`: text and a model, or the size of a new one, to a Checkpoint.

In: a Corpus folder or raw files; a Checkpoint to adapt, or a size and a tokenizer; settings. Out: a Checkpoint folder
whose `run/` holds the log, the settings and the curves. The same call goes on with a run that was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from alembert.artifact import Draft
from alembert.corpus.inputs import expand_inputs
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_heads
from alembert.nn.config import narrow_config
from alembert.nn.heads import GENERATOR_WIDTH
from alembert.settings import as_table
from alembert.train.distributed import Processes
from alembert.train.pretrain.inputs import PretrainInputs, PretrainStart, prepare_inputs
from alembert.train.pretrain.lm import GENERAL_TEXT, PretrainObjective
from alembert.train.pretrain.replaced import GENERATOR
from alembert.train.pretrain.settings import PretrainSettings
from alembert.train.progress import RunTotals
from alembert.train.run import OutputFolder, RunContext, join_processes
from alembert.train.training_run import RUN_FOLDER, STATE_FOLDER, TrainingRun, with_default_tokens

DEFAULT_TOKENS: Final = 10_000_000
ADAPTATION_NOTE: Final = "adaptation"
"""Name of the sentence in the manifest that compares the head alone with the end of the run."""
LEARNT_SHARE: Final = 0.01
"""Share of the loss of a head alone by which a run has to be better, to have taught the encoder."""
PUBLISHED_HEADS: Final = ("masked_lm", "next_sentence")
"""Heads that a published BERT can have."""


@dataclass(frozen=True)
class PretrainRunResult:
    """What a run has done, and the scores on held-out text before and after it."""

    before: Mapping[str, Mapping[str, float]]
    after: Mapping[str, Mapping[str, float]]
    done: RunTotals
    head_alone: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What held-out text said when a fresh head had been trained alone; empty: no head was."""
    head_plateaued: bool = False
    """Whether the loss of the head alone had stopped falling by then."""

    @property
    def summary(self) -> str | None:
        """Compare the head alone with the end of the run, and say whether the encoder has learnt; none: no head was alone."""
        name = next(iter(self.head_alone), None)
        if name is None:
            return None
        alone, final = (scores[name]["loss"] for scores in (self.head_alone, self.after))
        general = [scores.get(f"{name}, {GENERAL_TEXT}") for scores in (self.head_alone, self.after)]
        changes = f"Held-out loss after the head alone: {alone:.3f}; final: {final:.3f}" + "".join(
            f"; general text {one['loss']:.3f} -> {two['loss']:.3f}" for one, two in [general] if one and two
        )
        if not self.head_plateaued:
            return (
                f"{changes}. The head was still learning when the encoder was freed, so it cannot be told how much of this "
                "the encoder has learnt: train for longer."
            )
        if alone - final < LEARNT_SHARE * alone:
            return f"{changes}. The run was too short to teach the model more than its own head: train for longer."
        return f"{changes}. The run was long enough to teach the encoder, not only the head."


def pretrain(
    inputs: Sequence[str | Path],
    out: str | Path,
    start: PretrainStart,
    settings: PretrainSettings,
    context: RunContext | None = None,
) -> PretrainRunResult:
    """Pre-train a model, or go on with a run that was stopped."""
    files = expand_inputs(inputs)
    with join_processes(context) as (own_context, processes):
        return _PretrainRun(files, Path(out), start, settings, own_context, processes).run()


@dataclass
class _PretrainRun:
    """One call of the verb."""

    files: list[Path]
    out: Path
    start: PretrainStart
    settings: PretrainSettings
    context: RunContext
    processes: Processes

    def run(self) -> PretrainRunResult:
        output = OutputFolder(self.out, self._plan(), self.processes, self.context.overwrite)
        output.check()
        cache = self.context.cache_for(self.out)
        # The first process makes what is missing; the others find it made.
        inputs = self.processes.in_turn(
            lambda: prepare_inputs(self.files, self.start, self.settings, self.context, cache)
        )
        self.settings = _skip_head_warmup(self.settings, inputs, self.context.log)
        self.settings = _with_default_length(self.settings, inputs.shards.counts["tokens"], self.context.log)
        training = self._training(inputs, output.partial_folder)
        training.check()
        with output.open() as draft:
            return self._train(training, draft, inputs)

    def _plan(self) -> dict[str, Any]:
        of_context = (self.context.dictionary, self.context.held_out_general)
        return {
            "config": {
                "verb": "pretrain",
                "size": self.start.size,
                "hub": self.start.hub,
                **as_table(self.settings),
            },
            "inputs": [*self.files, *self.start.files, *(path for path in of_context if path)],
            "seed": self.settings.seed,
        }

    def _training(self, inputs: PretrainInputs, folder: Path) -> TrainingRun:
        return TrainingRun(
            inputs.checkpoint,
            lambda: PretrainObjective(inputs.shards, inputs.tokenizer, self.settings, inputs.general),
            self.settings,
            folder / RUN_FOLDER,
            folder / STATE_FOLDER,
            self.context,
            self.processes,
            phase="pre-training",
        )

    def _train(self, training: TrainingRun, draft: Draft, inputs: PretrainInputs) -> PretrainRunResult:
        after = training.train().scores
        position = training.loop.position
        alone = training.scores_of_first_parts()
        result = PretrainRunResult(training.first_scores(), after, position.done, alone, position.plateaued)
        if self.processes.is_first:
            card = _card_facts(inputs, self.settings, result)
            self._without_unpublished_heads(training.trained).write(draft, training=card)
            training.write_run()
            draft.counts.update(result.done.counts)
            if position.freed is not None and result.summary:
                draft.counts["steps_of_head_alone"] = position.freed.step
                draft.notes[ADAPTATION_NOTE] = result.summary
        return result

    def _without_unpublished_heads(self, trained: Checkpoint) -> Checkpoint:
        """Keep the heads that others can open, or all if that was asked for."""
        heads = trained.blueprint.heads
        published = heads.keys() - {GENERATOR} if self.settings.keep_heads == "all" else PUBLISHED_HEADS
        kept = with_heads(trained, {name: heads[name] for name in heads if name in published}, pooler=False)
        if left_out := sorted(heads.keys() - kept.blueprint.heads.keys() - {GENERATOR}):
            self.context.log(
                f"Left out of the result, since no published BERT has them: the heads {', '.join(left_out)} "
                '(keep_heads = "all" keeps them).'
            )
        return kept


def _skip_head_warmup(
    settings: PretrainSettings, inputs: PretrainInputs, log: Callable[[str], None]
) -> PretrainSettings:
    """Train heads alone at first only if one of them is fresh."""
    if settings.model.first != ("heads",) or inputs.fresh:
        return settings
    log("No head is fresh, so all parts of the model are trained from the beginning.")
    return replace(settings, model=replace(settings.model, first=()))


def _with_default_length(settings: PretrainSettings, corpus: int, log: Callable[[str], None]) -> PretrainSettings:
    """Choose ten million tokens for a run that was given no length, from one pass to a hundred."""
    tokens = min(max(corpus, DEFAULT_TOKENS), 100 * corpus)
    advice = f", {tokens / corpus:.0f} passes over the text. --hours, --tokens or --steps choose another."
    return with_default_tokens(settings, tokens, advice, log)


def _describe_token_objectives(inputs: PretrainInputs, settings: PretrainSettings) -> dict[str, str]:
    """Describe for the model card what tokens were replaced by, and which types of entities were tagged."""
    facts, weights = {}, settings.objectives.chosen()
    if "rtd" in weights:
        width = narrow_config(inputs.checkpoint.blueprint.config, GENERATOR_WIDTH).hidden_size
        facts["replaced tokens"] = f"drawn by a generator of width {width}, which is not part of the model"
    if "entity_swap" in weights:
        rates = settings.swaps
        facts["replaced tokens"] = f"{rates.entity_rate:.0%} of the entities, {rates.word_rate:.0%} of the other words"
    if "entity_types" in weights:
        facts["entity types"] = f"{', '.join(inputs.shards.type_names)} (weight outside {settings.outside_weight:g})"
    return facts


def _card_facts(inputs: PretrainInputs, settings: PretrainSettings, run: PretrainRunResult) -> dict[str, str]:
    """Describe for the model card what the model was trained on, and with what result."""
    shards, done = inputs.shards.counts, run.done
    weights = settings.objectives.chosen()
    facts = {
        "corpus": f"{shards['documents']:,} documents, {shards['sentences']:,} sentences, "
        f"{shards['tokens']:,} tokens, {shards['entities']:,} entities",
        "objectives": ", ".join(f"{name} (weight {weight:g})" for name, weight in weights.items()),
        "masks": f"{settings.masks.unit}, rate {settings.masks.rate:g}",
        "length of the run": f"{done.step:,} steps, {done.tokens:,} tokens, {done.seconds / 3600:.2f} hours",
        "optimiser": f"{settings.optimiser.name}, rate {settings.optimiser.learning_rate:g}",
        "seed": str(settings.seed),
    } | _describe_token_objectives(inputs, settings)
    for name, scores in run.after.items():
        facts[f"held out: {name}"] = ", ".join(
            f"{measure} {run.before.get(name, {}).get(measure, float('nan')):.4g} -> {value:.4g}"
            for measure, value in scores.items()
            if measure != "predictions"
        )
    if run.summary:
        facts["head and encoder"] = run.summary
    return facts
