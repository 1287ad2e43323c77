"""The verb `distill` with plain text: a teacher and a Corpus to a small model that later learns tasks.

In: a Checkpoint that is not fine-tuned, what the student is, a Corpus folder or raw files, settings. Out: a Checkpoint
folder without heads, whose `run/` holds log, settings and curves. The text is read as it is, nothing is masked, and only
what happens inside both models is compared. The same call goes on with a run that was stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from alembert import artifact
from alembert.artifact import Draft
from alembert.corpus.inputs import expand_inputs
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shards import Shards
from alembert.data.feed import Cursor, HeldOutSplit, SequenceSampler
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.student import make_student
from alembert.files.surgery import with_dropout, with_heads
from alembert.settings import as_table, to_toml
from alembert.train.curves import write_curves
from alembert.train.distill.layers import LayerLosses
from alembert.train.distill.objective import SCORES_KEY, TextDistillObjective, fit_projections
from alembert.train.distill.settings import GeneralDistillSettings
from alembert.train.distill.teacher import Teacher
from alembert.train.distributed import Processes
from alembert.train.loop import TrainingLoop
from alembert.train.pretrain.inputs import BuildContext, check_split, open_corpus
from alembert.train.pretrain.lm import Collator
from alembert.train.progress import RunTotals
from alembert.train.run import OutputFolder, RunContext, join_processes
from alembert.train.runlog import RunLog
from alembert.train.state import RunStates

RUN_FOLDER: Final = "run"
STATE_FOLDER: Final = ".state"
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
    around: RunContext | None = None,
) -> GeneralDistillRunResult:
    """Teach a student on plain text, or go on with a run that was stopped."""
    files = expand_inputs(inputs)
    with join_processes(around) as (heard, processes):
        return _GeneralDistillRun(teacher, student, files, Path(out), settings, heard, processes).run()


@dataclass
class _GeneralDistillRun:
    """One call of the verb."""

    teacher: str
    student: str
    files: list[Path]
    out: Path
    settings: GeneralDistillSettings
    around: RunContext
    processes: Processes

    def run(self) -> GeneralDistillRunResult:
        place = OutputFolder(self.out, self._plan(), self.processes, self.around.overwrite)
        place.check()
        teacher = open_checkpoint(self.teacher)
        shards = self.processes.in_turn(lambda: self._shards(teacher))
        self.settings = self._with_length(self.settings)
        assembler = Collator(shards, teacher.require_tokenizer(), self.settings.batch.padded)
        student = make_student(
            teacher,
            self.student,
            self.settings.student,
            rows=_first_rows(assembler, self.settings),
            seed=self.settings.seed,
        )
        inside = LayerLosses(self.settings.losses, student.blueprint.config, teacher.blueprint.config)
        student = with_heads(student, inside.heads, seed=self.settings.seed)
        model = teacher.model.to(self.processes.device(self.around.device))
        lesson = TextDistillObjective(assembler, Teacher(model), inside, self.settings)
        loop = self.processes.agree(lambda: self._loop(student, lesson, place.partial_folder))
        with place.open() as draft:
            return self._train(loop, draft, student, shards)

    def _plan(self) -> dict[str, Any]:
        folders = [each for each in (self.teacher, self.student) if Path(each).is_dir()]
        named = [each for each in (self.teacher, self.student) if each not in folders]
        config = {"verb": "distill", "stage": "general", "named": named, **as_table(self.settings)}
        return {"config": config, "inputs": [*self.files, *map(Path, folders)], "seed": self.settings.seed}

    def _shards(self, teacher: Checkpoint) -> Shards:
        around = self.around
        cache = around.cache_for(self.out)
        kitchen = BuildContext(cache, around.workers, around.log, around.on_reading)
        corpus = open_corpus(self.files, kitchen)
        shards = open_or_build_shards(
            corpus, teacher.require_tokenizer(), cache, workers=kitchen.workers, tell=kitchen.tell
        )
        check_split(shards, self.settings.evaluation.share)
        return shards

    def _with_length(self, settings: GeneralDistillSettings) -> GeneralDistillSettings:
        if any(settings.length_of_run.values()):
            return settings
        self.around.log(
            f"No length was given: the run takes {DEFAULT_TOKENS:,} tokens. --hours or --tokens choose another."
        )
        return replace(settings, tokens=DEFAULT_TOKENS)

    def _loop(self, student: Checkpoint, lesson: TextDistillObjective, unfinished: Path) -> TrainingLoop:
        wanted = self.settings.model
        model = with_dropout(student, wanted.dropout, wanted.attention_dropout).model
        if self.settings.losses.fitted:
            fit_projections(model, lesson)
        return TrainingLoop(
            model,
            lesson,
            self.settings,
            states=RunStates(unfinished / STATE_FOLDER),
            log=RunLog(unfinished / RUN_FOLDER, tensorboard=self.processes.is_first),
            processes=self.processes,
            device=self.around.device,
            sharded=self.around.shard,
            tell=lambda progress: self.around.on_progress(replace(progress, phase="distillation")),
        )

    def _train(self, loop: TrainingLoop, draft: Draft, student: Checkpoint, shards: Shards) -> GeneralDistillRunResult:
        after = loop.run().scores[SCORES_KEY]
        loop.log.close()
        rows = (row["scores"][SCORES_KEY] for row in loop.log.rows("held_out"))
        before: dict[str, float] = self.processes.broadcast(next(rows, {}))
        done = GeneralDistillRunResult(before, after, loop.position.done)
        if self.processes.is_first:
            trained = with_heads(replace(student, model=loop.model.cpu()), {})
            trained.write(draft, training=self._card(shards, done))
            artifact.atomic_write(draft.path / RUN_FOLDER / "settings.toml", to_toml(self.settings).encode())
            write_curves(loop.log, draft.path / RUN_FOLDER, "Distillation")
            draft.counts.update(done.done.counts)
        return done

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


def _first_rows(assembler: Collator, settings: GeneralDistillSettings) -> list[list[int]]:
    """Give some rows of the text, by which a narrower student is cut out of its teacher."""
    split = HeldOutSplit(assembler.shards, settings.evaluation.share)
    feed = SequenceSampler(assembler.shards, split, seed=settings.seed, micro_tokens=STUDENT_SAMPLE_TOKENS)
    (portion,), _ = feed.take(Cursor(), 1, settings.sequences.cutting(0.0))
    batch = assembler.micro(portion.spans, [], "", ()).batch
    return [ids.tolist() for ids in batch.split(batch.ids_N)]
