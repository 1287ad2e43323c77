"""The verb `distill` with plain text: a teacher and a Corpus to a small model that later learns tasks.

In: a Checkpoint that is not fine-tuned, what the student is, a Corpus folder or raw files, settings. Out: a Checkpoint
folder without heads, whose `run/` holds log, settings and curves. The text is read as it is, nothing is masked, and only
the layers of both models are compared. The same call goes on with a run that was stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from alembert.artifact import Draft
from alembert.corpus.inputs import expand_inputs
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shards import Shards
from alembert.data.feed import Cursor, HeldOutSplit, SequenceSampler
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.student import make_student
from alembert.files.surgery import with_heads
from alembert.settings import as_table
from alembert.train.distill.layers import LayerLosses
from alembert.train.distill.objective import SCORES_KEY, TextDistillObjective, fit_projections
from alembert.train.distill.settings import GeneralDistillSettings
from alembert.train.distill.teacher import Teacher
from alembert.train.distributed import Processes
from alembert.train.pretrain.collator import Collator
from alembert.train.pretrain.inputs import check_split, open_corpus
from alembert.train.progress import RunTotals
from alembert.train.run import OutputFolder, RunContext, join_processes
from alembert.train.training_run import RUN_FOLDER, STATE_FOLDER, TrainingRun, with_default_tokens

DEFAULT_TOKENS: Final = 5_000_000
STUDENT_SAMPLE_TOKENS: Final = 8192
"""Tokens by which a student is cut out of its teacher, about."""


@dataclass(frozen=True)
class GeneralDistillRunResult:
    """What a run has done, and how far the student was from its teacher on held-out text before and after it."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    done: RunTotals


def distill_general(
    teacher: str,
    student: str,
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    settings: GeneralDistillSettings,
    context: RunContext | None = None,
) -> GeneralDistillRunResult:
    """Teach a student on plain text, or go on with a run that was stopped."""
    files = expand_inputs(inputs)
    with join_processes(context) as (own_context, processes):
        return _GeneralDistillRun(teacher, student, files, Path(out), settings, own_context, processes).run()


@dataclass
class _GeneralDistillRun:
    """One call of the verb."""

    teacher: str
    student: str
    files: list[Path]
    out: Path
    settings: GeneralDistillSettings
    context: RunContext
    processes: Processes

    def run(self) -> GeneralDistillRunResult:
        output = OutputFolder(self.out, self._plan(), self.processes, self.context.overwrite)
        output.check()
        teacher = open_checkpoint(self.teacher)
        shards = self.processes.in_turn(lambda: self._shards(teacher))
        advice = ". --hours or --tokens choose another."
        self.settings = with_default_tokens(self.settings, DEFAULT_TOKENS, advice, self.context.log)
        training = self._training(teacher, shards, output.partial_folder)
        training.check()
        with output.open() as draft:
            return self._train(training, draft, shards)

    def _plan(self) -> dict[str, Any]:
        models = self.teacher, self.student
        folders = [model for model in models if Path(model).is_dir()]
        named = [model for model in models if model not in folders]
        config = {"verb": "distill", "stage": "general", "named": named, **as_table(self.settings)}
        return {"config": config, "inputs": [*self.files, *map(Path, folders)], "seed": self.settings.seed}

    def _shards(self, teacher: Checkpoint) -> Shards:
        context, cache = self.context, self.context.cache_for(self.out)
        corpus = open_corpus(self.files, context, cache)
        shards = open_or_build_shards(
            corpus, teacher.require_tokenizer(), cache, workers=context.workers, on_progress=context.on_reading
        )
        check_split(shards, self.settings.evaluation.share)
        return shards

    def _training(self, teacher: Checkpoint, shards: Shards, folder: Path) -> TrainingRun:
        settings = self.settings
        collator = Collator(shards, teacher.require_tokenizer(), settings.batch.padded)
        rows = _sample_rows(collator, settings)
        student = make_student(teacher, self.student, settings.student, rows=rows, seed=settings.seed)
        losses = LayerLosses(settings.losses, student.blueprint.config, teacher.blueprint.config)
        model = teacher.model.to(self.processes.device(self.context.device))
        objective = TextDistillObjective(collator, Teacher(model), losses, settings)
        return TrainingRun(
            with_heads(student, losses.heads, seed=settings.seed),
            lambda: objective,
            settings,
            folder / RUN_FOLDER,
            folder / STATE_FOLDER,
            self.context,
            self.processes,
            phase="distillation",
            initialise=partial(fit_projections, objective=objective),
        )

    def _train(self, training: TrainingRun, draft: Draft, shards: Shards) -> GeneralDistillRunResult:
        after = training.train().scores[SCORES_KEY]
        before = training.first_scores().get(SCORES_KEY, {})
        result = GeneralDistillRunResult(before, after, training.loop.position.done)
        if self.processes.is_first:
            with_heads(training.trained, {}).write(draft, training=self._card(shards, result))
            training.write_run()
            draft.counts.update(result.done.counts)
        return result

    def _card(self, shards: Shards, run: GeneralDistillRunResult) -> dict[str, str]:
        weights = self.settings.losses.chosen()
        return {
            "teacher": Path(self.teacher).name,
            "student": self.student,
            "corpus": f"{shards.counts['documents']:,} documents, {shards.counts['tokens']:,} tokens",
            "losses": ", ".join(f"{name} (weight {weight:g})" for name, weight in weights.items()),
            "length of the run": f"{run.done.step:,} steps, {run.done.tokens:,} tokens",
            "held-out text": ", ".join(
                f"{name} {run.before.get(name, float('nan')):.4g} -> {value:.4g}" for name, value in run.after.items()
            ),
            "seed": str(self.settings.seed),
        }


def _sample_rows(collator: Collator, settings: GeneralDistillSettings) -> list[list[int]]:
    """Return some rows of the text, by which a narrower student is cut out of its teacher."""
    split = HeldOutSplit(collator.shards, settings.evaluation.share)
    feed = SequenceSampler(collator.shards, split, seed=settings.seed, micro_tokens=STUDENT_SAMPLE_TOKENS)
    (portion,), _ = feed.take(Cursor(), 1, settings.sequences.cutting(0.0))
    batch = collator.micro(portion.spans, [], "", ()).batch
    return [ids.tolist() for ids in batch.split(batch.ids_N)]
