"""The verb `pretrain`: text and a model, or the size of a new one, to a Checkpoint.

In: a Corpus folder or raw files; a Checkpoint to adapt, or a size and a tokenizer; settings. Out: a Checkpoint folder
whose `run/` holds the log, the settings and the curves. The same call goes on with a run that was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from alembert import artifact
from alembert.artifact import Draft
from alembert.corpus.inputs import expand_inputs
from alembert.files.surgery import with_dropout, with_heads
from alembert.nn.model import Model
from alembert.settings import as_table, to_toml
from alembert.train.curves import write_curves
from alembert.train.distributed import Processes
from alembert.train.loop import TrainingLoop
from alembert.train.pretrain.inputs import (
    BuildContext,
    PretrainInputs,
    PretrainStart,
    prepare_inputs,
)
from alembert.train.pretrain.lm import PretrainObjective
from alembert.train.progress import RunTotals
from alembert.train.run import OutputFolder, RunContext, join_processes
from alembert.train.runlog import RunLog
from alembert.train.settings import PretrainSettings
from alembert.train.state import RunStates

RUN_FOLDER: Final = "run"
STATE_FOLDER: Final = ".state"
DEFAULT_TOKENS: Final = 10_000_000
PUBLISHED_HEADS: Final = ("masked_lm", "next_sentence")
"""Heads that a published BERT can have."""


@dataclass(frozen=True)
class PretrainRunResult:
    """What a run has done, and what held-out text said before and after it."""

    before: Mapping[str, Mapping[str, float]]
    after: Mapping[str, Mapping[str, float]]
    done: RunTotals


def pretrain(
    inputs: Sequence[str | Path],
    out: str | Path,
    start: PretrainStart,
    settings: PretrainSettings,
    around: RunContext | None = None,
) -> PretrainRunResult:
    """Pre-train a model, or go on with a run that was stopped."""
    files = expand_inputs(inputs)
    with join_processes(around) as (heard, processes):
        return _PretrainRun(files, Path(out), start, settings, heard, processes).run()


@dataclass
class _PretrainRun:
    """One call of the verb."""

    files: list[Path]
    out: Path
    start: PretrainStart
    settings: PretrainSettings
    around: RunContext
    processes: Processes

    def run(self) -> PretrainRunResult:
        place = OutputFolder(self.out, self._plan(), self.processes, self.around.overwrite)
        place.check()
        found = self._gather()
        self.settings = _skip_head_warmup(self.settings, found, self.around.log)
        self.settings = _with_default_length(self.settings, found.shards.counts["tokens"], self.around.log)
        # Before anything is written: it may refuse settings too.
        loop = self.processes.agree(lambda: self._loop(found, place.partial_folder))
        with place.open() as draft:
            return self._train(loop, draft, found)

    def _plan(self) -> dict[str, Any]:
        dictionary = [self.around.dictionary] if self.around.dictionary else []
        return {
            "config": {
                "verb": "pretrain",
                "size": self.start.size,
                "hub": self.start.hub,
                **as_table(self.settings),
            },
            "inputs": [*self.files, *self.start.files, *dictionary],
            "seed": self.settings.seed,
        }

    def _gather(self) -> PretrainInputs:
        """Let the first process make what is missing; the others find it made."""
        around = self.around
        cache = around.cache_for(self.out)
        kitchen = BuildContext(cache, around.workers, around.log, around.on_reading)
        return self.processes.in_turn(
            lambda: prepare_inputs(self.files, self.start, self.settings, kitchen, around.dictionary)
        )

    def _loop(self, found: PretrainInputs, unfinished: Path) -> TrainingLoop:
        return TrainingLoop(
            with_dropout(found.checkpoint, self.settings.model.dropout, self.settings.model.attention_dropout).model,
            PretrainObjective(found.shards, found.tokenizer, self.settings),
            self.settings,
            states=RunStates(unfinished / STATE_FOLDER),
            log=RunLog(unfinished / RUN_FOLDER, tensorboard=self.processes.is_first),
            processes=self.processes,
            device=self.around.device,
            sharded=self.around.shard,
            tell=self.around.on_progress,
        )

    def _train(self, loop: TrainingLoop, draft: Draft, found: PretrainInputs) -> PretrainRunResult:
        after = loop.run().scores
        loop.log.close()
        before = self.processes.broadcast(next((row["scores"] for row in loop.log.rows("held_out")), {}))
        done = PretrainRunResult(before, after, loop.position.done)
        if self.processes.is_first:
            self._write(draft, found, loop.model, done)
            write_curves(loop.log, draft.path / RUN_FOLDER, "Pre-training")
        return done

    def _write(self, draft: Draft, found: PretrainInputs, model: Model, done: PretrainRunResult) -> None:
        """Write the checkpoint, with the heads that others can open, and the settings beside the log."""
        heads = found.checkpoint.blueprint.heads
        wanted = heads if self.settings.keep_heads == "all" else PUBLISHED_HEADS
        trained = replace(found.checkpoint, model=model.cpu())
        kept = with_heads(trained, {n: heads[n] for n in heads if n in wanted}, pooler=False)
        if left_out := sorted(heads.keys() - kept.blueprint.heads.keys()):
            self.around.log(
                f"Left out of the result, since no published BERT has them: the heads {', '.join(left_out)} "
                '(keep_heads = "all" keeps them).'
            )
        kept.write(draft, training=_card_facts(found, self.settings, done))
        artifact.atomic_write(draft.path / RUN_FOLDER / "settings.toml", to_toml(self.settings).encode())
        draft.counts.update(done.done.counts)


def _skip_head_warmup(
    settings: PretrainSettings, found: PretrainInputs, say: Callable[[str], None]
) -> PretrainSettings:
    """Train heads alone at first only if one of them is fresh."""
    if settings.model.first != ("heads",) or found.fresh:
        return settings
    say("No head is fresh, so all parts of the model are trained from the beginning.")
    return replace(settings, model=replace(settings.model, first=()))


def _with_default_length(settings: PretrainSettings, corpus: int, say: Callable[[str], None]) -> PretrainSettings:
    """Choose the length of a run that was given none: ten million tokens, from one pass to a hundred."""
    if any(settings.length_of_run.values()):
        return settings
    tokens = min(max(corpus, DEFAULT_TOKENS), 100 * corpus)
    say(
        f"No length was given: the run takes {tokens:,} tokens, {tokens / corpus:.0f} passes over the text. "
        "--hours, --tokens or --set steps choose another."
    )
    return replace(settings, tokens=tokens)


def _card_facts(found: PretrainInputs, settings: PretrainSettings, run: PretrainRunResult) -> dict[str, str]:
    """Say on the model card what the model was trained on, and with what result."""
    shards, done = found.shards.counts, run.done
    weights = settings.objectives.chosen()
    facts = {
        "corpus": f"{shards['documents']:,} documents, {shards['sentences']:,} sentences, "
        f"{shards['tokens']:,} tokens, {shards['entities']:,} entities",
        "objectives": ", ".join(f"{name} (weight {weight:g})" for name, weight in weights.items()),
        "masks": f"{settings.masks.unit}, rate {settings.masks.rate:g}",
        "length of the run": f"{done.step:,} steps, {done.tokens:,} tokens, {done.seconds / 3600:.2f} hours",
        "optimiser": f"{settings.optimiser.name}, rate {settings.optimiser.learning_rate:g}",
        "seed": str(settings.seed),
    }
    for name, scores in run.after.items():
        facts[f"held out: {name}"] = ", ".join(
            f"{measure} {run.before.get(name, {}).get(measure, float('nan')):.4g} -> {value:.4g}"
            for measure, value in scores.items()
            if measure != "predictions"
        )
    return facts
