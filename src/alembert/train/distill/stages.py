"""What all seeds of a distillation share: the teacher, the examples, and what the teacher says about them.

In: who teaches whom, the teacher, the prepared examples, settings. Out: the lesson of each stage. The teacher is asked
once for all seeds and passes where what it says fits on the disk. A student that reads other pieces than its teacher
has other rows of the same examples; then answers alone can be compared, line by line.

One seed of a distillation: a student that goes through both stages, in a folder of its own.

The states and the log of the stage that teaches what happens inside lie in `inside`, those of the stage that teaches the
answers where `finetune` has them. Both are runs of the one loop, so a seed that was stopped goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Final

from alembert.artifact import atomic_write
from alembert.data.windows import Row
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_dropout, with_heads
from alembert.nn.model import Model
from alembert.settings import as_table, to_toml
from alembert.tasks.data_report import DataReport
from alembert.tasks.files import read_task_names
from alembert.train.curves import write_curves
from alembert.train.distill.layers import LayerLosses
from alembert.train.distill.objective import (
    TaskDistillObjective,
    build_teacher_request,
    fit_projections,
)
from alembert.train.distill.settings import DistillSettings, StageSettings
from alembert.train.distill.teacher import Teacher, TeacherRequest
from alembert.train.distill.teacher_cache import (
    TeacherCache,
    TeacherCacheWriter,
    count_answers,
    estimate_bytes,
    fits_on_disk,
    hash_contents,
)
from alembert.train.distributed import Processes
from alembert.train.finetune.data import DataFiles, PreparedData, PreparedTask, require_tokenizer
from alembert.train.finetune.finetune import with_run_length
from alembert.train.finetune.objective import TaskObjective, group_rows
from alembert.train.finetune.seeds import (
    RUN_FOLDER,
    STATE_FOLDER,
    SeedResult,
    SeedRun,
    has_task_head,
    with_task_heads,
    without_training_heads,
)
from alembert.train.finetune.subvocabulary import VocabularySubset
from alembert.train.loop import TrainingLoop
from alembert.train.run import RunContext
from alembert.train.runlog import RunLog
from alembert.train.state import RunStates


@dataclass(frozen=True, kw_only=True)
class DistillJob:
    """Who teaches whom, and with what."""

    teacher: str
    """A Checkpoint folder that was fine-tuned for a task."""
    student: str
    """A size such as 4x312, a share of the teacher's layers such as half, or a Checkpoint folder."""
    data: DataFiles
    task: str | None = None
    """Which of the teacher's tasks, if it has several."""
    texts: tuple[Path, ...] = ()
    """Plain text, a Corpus folder or raw files, whose sentences the teacher labels."""
    words: str | None = None
    """A Checkpoint with a masked LM that gives words for new texts; none: the teacher's neighbouring words."""
    vocabulary: Path | None = None
    """The tokenizer of a new student, if it is not the teacher's."""


@dataclass(frozen=True)
class DistillContext:
    """What all seeds of a distillation share: the teacher, the data, and what the teacher says about them."""

    job: DistillJob
    checkpoint: Checkpoint
    """The teacher."""
    prepared: PreparedData
    settings: DistillSettings
    out: Path
    around: RunContext
    processes: Processes

    @property
    def head(self) -> str:
        """The name of the teacher's head: that of the task, if it has several."""
        named = self.job.task
        return named if named and named in read_task_names(Path(self.job.teacher)) else self._part.head

    @property
    def _part(self) -> PreparedTask:
        return self.prepared.tasks[0]

    def teacher(self, stage: StageSettings) -> Teacher:
        """Give the teacher with the pieces of its rows, as a stage asks it."""
        return Teacher(self._model, self._part.task, self.head, stage.imitation)

    @cached_property
    def _model(self) -> Model:
        return self._own_pieces.shrink(self.checkpoint).to(self.processes.device(self.around.device))

    @cached_property
    def tokenizes_differently(self) -> bool:
        """Whether the teacher reads other pieces than the student, and with them other rows of the same examples."""
        return self.prepared.tokenizer.vocabulary != require_tokenizer(self.checkpoint).vocabulary

    @cached_property
    def _own_pieces(self) -> VocabularySubset:
        size = self.checkpoint.blueprint.config.vocab_size
        return VocabularySubset.all(size) if self.tokenizes_differently else self.prepared.vocabulary

    @cached_property
    def _own_rows(self) -> list[Row]:
        """The rows of the training examples as the teacher reads them."""
        part, config = self._part, self.checkpoint.blueprint.config
        examples = part.train.encoded
        if self.tokenizes_differently:
            encode = part.task.for_training().encode
            examples = encode(part.splits.train, require_tokenizer(self.checkpoint), config.max_position_embeddings)
        items = group_rows(examples, together=part.task.loss_unit == "examples")
        return [row for item in items for row in item]

    def inside(self, stage: StageSettings) -> LayerLosses:
        ours, theirs = self.prepared.checkpoint.blueprint.config, self.checkpoint.blueprint.config
        return LayerLosses(stage.losses, ours, theirs, self._part.task.attention_pattern)

    def check(self, stage: StageSettings) -> None:
        """Refuse losses that cannot bind these two models."""
        lesson = self._rows(stage)
        self._check_reading(lesson, self.teacher(stage), build_teacher_request(self.inside(stage), stage))

    def lesson(self, stage: StageSettings) -> TaskDistillObjective:
        """Put together a stage: rows, teacher, losses, and what the teacher has said."""
        lesson, teacher, inside = self._rows(stage), self.teacher(stage), self.inside(stage)
        return TaskDistillObjective(lesson, teacher, inside, stage, self._record(lesson, teacher, inside, stage))

    def _rows(self, stage: StageSettings) -> TaskObjective:
        part = self._part
        return TaskObjective(part.task, part.train, part.dev, stage, name=part.name, head=part.head)

    def _record(
        self, lesson: TaskObjective, teacher: Teacher, inside: LayerLosses, stage: StageSettings
    ) -> TeacherCache | None:
        """Let the teacher read everything once, if what it says has room."""
        rows, wanted = self._own_rows, build_teacher_request(inside, stage)
        self._check_reading(lesson, teacher, wanted)
        wanted = wanted if wanted.is_empty else self._wanted_by_all(stage)
        if wanted.is_empty:
            return None
        if self.settings.cache.use == "never" and not self.tokenizes_differently:
            return None
        cache = self.around.cache_for(self.out)
        recorder = TeacherCacheWriter(
            cache / f"teacher-{self._key(wanted, stage)}", rows, teacher, wanted, self.around.on_reading
        )
        needed = estimate_bytes(rows, teacher, wanted)
        has_room = self.tokenizes_differently or fits_on_disk(needed, cache, self.settings.cache.gigabytes)
        if not has_room and not recorder.is_done:
            self.around.log(
                f"What the teacher says would take {needed / 1e9:.1f} GB, more than [cache] allows or half of the free disk: it "
                "reads the texts anew in every pass."
            )
            return None
        return self.processes.in_turn(recorder.write)

    def _key(self, wanted: TeacherRequest, stage: StageSettings) -> str:
        """Name what the teacher says in a stage."""
        about = {
            "wanted": as_table(wanted),
            "imitation": as_table(stage.imitation),
            "head": self.head,  # one of several, which all read the same rows
            "task": self._part.task.to_table(),
        }
        return hash_contents(self._own_rows, self._own_pieces.ids_K, Path(self.job.teacher), about)

    def _wanted_by_all(self, stage: StageSettings) -> TeacherRequest:
        """Say what all stages want that ask the teacher alike, so that it reads for them together."""
        settings = self.settings
        stages = [each for each in (settings.intermediate, settings.prediction) if not each.skip]
        alike = [each for each in stages if each.imitation == stage.imitation]
        return reduce(
            TeacherRequest.union, (build_teacher_request(self.inside(each), each) for each in alike), TeacherRequest()
        )

    def _check_reading(self, lesson: TaskObjective, teacher: Teacher, wanted: TeacherRequest) -> None:
        """Refuse to compare what two readings of a text do not share."""
        if not self.tokenizes_differently:
            return
        if wanted.has_layers:
            raise BadSetting(
                "The student reads other pieces than its teacher, so what happens inside cannot be compared, only answers can. "
                "Use --intermediate-epochs 0, and in the prediction stage the losses prediction and labels."
            )
        ours = [row for item in lesson.items for row in item]
        if count_answers(ours, teacher, wanted) != count_answers(self._own_rows, teacher, wanted):
            raise BadSetting(
                "Teacher and student, who read other pieces, cut some training texts at other places, so their answers do not "
                "go together. Use the teacher's vocabulary, or shorter texts."
            )


INTERMEDIATE_FOLDER: Final = "inside"


@dataclass(frozen=True)
class StudentRun:
    """One seed: a student that goes through both stages."""

    context: DistillContext
    seed: int
    reports: Mapping[str, DataReport]
    folder: Path

    def check(self) -> None:
        """Refuse settings that cannot work, before anything is written."""
        for stage in self._stages:
            self.context.check(stage)

    def run(self) -> SeedResult:
        """Train, or give the result of a seed that is done."""
        learner = self._begun()
        if not self._is_done and not self.context.settings.intermediate.skip:
            learner = self._train_intermediate(learner)
        stage = self._length(self.context.settings.prediction)
        result = SeedRun(
            self.folder,
            self.context.prepared,
            self.reports,
            learner,
            stage,
            partial(self.context.lesson, stage),
            self.context.around,
            self.context.processes,
            phase="distillation",
            card_facts=self._told(),
            forget_training=self.context.settings.forget_training,
        ).run()
        self.context.processes.on_first(
            lambda: shutil.rmtree(self.folder / INTERMEDIATE_FOLDER / STATE_FOLDER, ignore_errors=True)
        )
        return result

    @property
    def _is_done(self) -> bool:
        found: bool = self.context.processes.broadcast((self.folder / RUN_FOLDER / "scores.json").is_file())
        return found

    @property
    def _stages(self) -> list[StageSettings]:
        settings = self.context.settings
        return [stage for stage in (settings.intermediate, settings.prediction) if not stage.skip]

    def _length(self, stage: StageSettings) -> StageSettings:
        return with_run_length(replace(stage, seed=self.seed), self.context.prepared)

    def _begun(self) -> Checkpoint:
        """Give the student its head: its own if it knows the task, or the teacher's if it begins as that does and fits."""
        prepared, teacher = self.context.prepared, self.context.checkpoint
        learner = with_task_heads(prepared, self.seed)
        same = learner.blueprint.config.hidden_size == teacher.blueprint.config.hidden_size
        is_fresh = self.context.settings.student.start == "scratch"
        if not same or is_fresh or has_task_head(prepared, prepared.tasks[0]):
            return learner
        ours, theirs = learner.model.state_dict(), teacher.model.state_dict()
        kept = {
            name: theirs[source].clone()
            for name in ours
            if (source := name.replace(f"heads.{prepared.tasks[0].head}.", f"heads.{self.context.head}."))
            and name.startswith(("heads.", "pooler."))
            and source in theirs
            and theirs[source].shape == ours[name].shape
        }
        learner.model.load_state_dict({**ours, **kept})
        return learner

    def _train_intermediate(self, learner: Checkpoint) -> Checkpoint:
        """Run the stage that teaches what happens inside; give the student without what served it alone."""
        hall, stage = self.context, self._length(self.context.settings.intermediate)
        prepared, lesson = hall.prepared, hall.lesson(stage)
        heads = {**learner.blueprint.heads, **lesson.layer_losses.heads}
        student = with_heads(learner, heads, seed=self.seed)
        model = prepared.vocabulary.shrink(with_dropout(student, stage.model.dropout, stage.model.attention_dropout))
        if stage.losses.fitted:
            fit_projections(model, lesson, lesson.layer_losses)
        log = RunLog(self.folder / INTERMEDIATE_FOLDER, tensorboard=hall.processes.is_first)
        loop = TrainingLoop(
            model,
            lesson,
            stage,
            states=RunStates(self.folder / INTERMEDIATE_FOLDER / STATE_FOLDER),
            log=log,
            processes=hall.processes,
            device=hall.around.device,
            sharded=hall.around.shard,
            tell=lambda progress: hall.around.on_progress(replace(progress, phase="inside")),
        )
        loop.run()
        log.close()
        hall.processes.on_first(partial(self._write_inside, log, stage))
        trained = replace(student, model=prepared.vocabulary.restore(loop.model.cpu(), student))
        return replace(without_training_heads(trained, prepared), folder=learner.folder)

    def _write_inside(self, log: RunLog, stage: StageSettings) -> None:
        atomic_write(self.folder / INTERMEDIATE_FOLDER / "settings.toml", to_toml(stage).encode())
        write_curves(log, self.folder / INTERMEDIATE_FOLDER, "What happens inside")

    def _told(self) -> dict[str, str]:
        """Say on the model card who taught the student, and how."""
        hall = self.context
        config = hall.checkpoint.blueprint.config
        stages = {
            name: ", ".join(f"{loss} (weight {weight:g})" for loss, weight in stage.losses.chosen().items())
            for name, stage in (
                ("losses inside", hall.settings.intermediate),
                ("losses of answers", hall.settings.prediction),
            )
            if not stage.skip
        }
        size = f"{len(config.layer_order)} layers of width {config.hidden_size}"
        return {"teacher": f"{Path(hall.job.teacher).name}, {size}", "student": hall.job.student, **stages}
