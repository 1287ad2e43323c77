"""The stages of a distillation for a task: a student first learns its teacher's layers, then its answers.

In: who teaches whom, the teacher, the prepared examples, settings. Out: for each seed a folder as `finetune` writes
it; the states and the log of the intermediate stage lie in `inside`, those of the stage of answers where `finetune` has
them. Both are runs of the one loop, so a seed that was stopped goes on where it was. The teacher reads the examples
once for all seeds and passes, if its outputs fit on the disk. A student that reads other pieces than its teacher has
other rows of the same examples; then answers alone can be compared, line by line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Final

from alembert.data.windows import Row
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_heads
from alembert.nn.model import Model
from alembert.settings import as_table
from alembert.tasks.data_report import DataReport
from alembert.tasks.example import EncodedExample
from alembert.tasks.files import read_task
from alembert.tasks.task import AnyTask
from alembert.train.distill.layers import LayerLosses
from alembert.train.distill.objective import TaskDistillObjective, build_teacher_request, fit_projections
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
from alembert.train.finetune.data import DataFiles, PreparedData, PreparedTask
from alembert.train.finetune.finetune import with_run_length
from alembert.train.finetune.objective import EncodedExamples, TaskObjective, group_rows
from alembert.train.finetune.seeds import SeedResult, SeedRun, has_task_head, with_task_heads, without_training_heads
from alembert.train.gradients import choose_half_precision
from alembert.train.run import RunContext
from alembert.train.training_run import STATE_FOLDER, TrainingRun, VocabularySubset

INTERMEDIATE_FOLDER: Final = "inside"


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
class TaskDistillation:
    """A teacher, the examples, and how students of any seed learn from both."""

    job: DistillJob
    teacher: Checkpoint
    teacher_task: AnyTask
    """The task as the teacher reads it: a student may read fewer features beside the pieces."""
    prepared: PreparedData
    settings: DistillSettings
    cache: Path
    """Where the teacher's outputs are kept."""
    context: RunContext
    processes: Processes

    @property
    def _part(self) -> PreparedTask:
        return self.prepared.tasks[0]

    @property
    def _teacher_head(self) -> str:
        return read_task(Path(self.job.teacher), self.job.task).head or self._part.head

    @property
    def _stages(self) -> list[StageSettings]:
        return [stage for stage in (self.settings.intermediate, self.settings.prediction) if not stage.skip]

    def check(self) -> None:
        """Refuse settings that cannot work, before anything is written."""
        for stage in self._stages:
            request = build_teacher_request(self._layer_losses(stage), stage)
            self._check_reading(self._task_objective(stage), self._open_teacher(stage), request)

    def train_student(self, seed: int, folder: Path, reports: Mapping[str, DataReport]) -> SeedResult:
        """Lead a student through both stages, or return the result of a seed that is done."""
        stage = self._with_length(self.settings.prediction, seed)
        inside = partial(self._train_intermediate, seed=seed, folder=folder / INTERMEDIATE_FOLDER)
        return SeedRun(
            folder,
            self.prepared,
            reports,
            self._with_task_head(seed),
            stage,
            partial(self._objective, stage),
            self.context,
            self.processes,
            phase="distillation",
            card_facts=self._card_facts(),
            forget_training=self.settings.forget_training,
            first_stage=None if self.settings.intermediate.skip else inside,
        ).run()

    # -- the student

    def _with_length(self, stage: StageSettings, seed: int) -> StageSettings:
        return with_run_length(replace(stage, seed=seed), self.prepared)

    def _with_task_head(self, seed: int) -> Checkpoint:
        """Take the student's own head if it has one, or the teacher's if the student begins as that does and fits."""
        student, teacher = with_task_heads(self.prepared, seed), self.teacher
        same = student.blueprint.config.hidden_size == teacher.blueprint.config.hidden_size
        is_fresh = self.settings.student.start == "scratch"
        if not same or is_fresh or has_task_head(self.prepared, self._part):
            return student
        ours, theirs = student.model.state_dict(), teacher.model.state_dict()
        kept = {
            name: theirs[source].clone()
            for name in ours
            if (source := name.replace(f"heads.{self._part.head}.", f"heads.{self._teacher_head}."))
            and name.startswith(("heads.", "pooler."))
            and source in theirs
            and theirs[source].shape == ours[name].shape
        }
        student.model.load_state_dict({**ours, **kept})
        return student

    def _train_intermediate(self, student: Checkpoint, seed: int, folder: Path) -> Checkpoint:
        """Run the stage that teaches layers; return the student without the projections that served it alone."""
        stage = self._with_length(self.settings.intermediate, seed)
        objective = self._objective(stage)
        heads = {**student.blueprint.heads, **objective.layer_losses.heads}
        training = TrainingRun(
            with_heads(student, heads, seed=seed),
            lambda: objective,
            stage,
            folder,
            folder / STATE_FOLDER,
            self.context,
            self.processes,
            phase="intermediate layers",
            vocabulary=self.prepared.vocabulary,
            initialise=partial(fit_projections, objective=objective),
        )
        return replace(without_training_heads(training.complete(), self.prepared), folder=student.folder)

    def _card_facts(self) -> dict[str, str]:
        """Describe for the model card who taught the student, and how."""
        config = self.teacher.blueprint.config
        stages = {
            name: ", ".join(f"{loss} (weight {weight:g})" for loss, weight in stage.losses.chosen().items())
            for name, stage in (
                ("losses inside", self.settings.intermediate),
                ("losses of answers", self.settings.prediction),
            )
            if not stage.skip
        }
        size = f"{len(config.layer_order)} layers of width {config.hidden_size}"
        return {"teacher": f"{Path(self.job.teacher).name}, {size}", "student": self.job.student, **stages}

    # -- what it learns

    def _objective(self, stage: StageSettings) -> TaskDistillObjective:
        rows, teacher, losses = self._task_objective(stage), self._open_teacher(stage), self._layer_losses(stage)
        cache = self._cache_teacher(rows, teacher, losses, stage)
        return TaskDistillObjective(
            rows, teacher, losses, stage, cache, teacher_dev=self._with_teacher_features(rows.dev)
        )

    def _task_objective(self, stage: StageSettings) -> TaskObjective:
        part = self._part
        return TaskObjective(part.task, part.train, part.dev, stage, name=part.name, head=part.head)

    def _layer_losses(self, stage: StageSettings) -> LayerLosses:
        ours, theirs = self.prepared.checkpoint.blueprint.config, self.teacher.blueprint.config
        return LayerLosses(stage.losses, ours, theirs, self._part.task.attention_pattern)

    # -- the teacher

    def _open_teacher(self, stage: StageSettings) -> Teacher:
        return Teacher(self._teacher_model, self._part.task, self._teacher_head, stage.imitation, self._teacher_half)

    @property
    def _teacher_half(self) -> str | None:
        device = self.processes.device(self.context.device)
        return choose_half_precision(self.settings.teacher_precision, device.type)

    @cached_property
    def _teacher_model(self) -> Model:
        return self._teacher_vocabulary.shrink(self.teacher).to(self.processes.device(self.context.device))

    @cached_property
    def _tokenizes_differently(self) -> bool:
        """Whether the teacher reads other pieces than the student, and with them other rows of the same examples."""
        return self.prepared.tokenizer.vocabulary != self.teacher.require_tokenizer().vocabulary

    @property
    def _reads_differently(self) -> bool:
        """Whether the teacher reads other rows than the student, or matches that the student does not always see."""
        return self._tokenizes_differently or bool(self.teacher_task.lexicon_labels)

    @cached_property
    def _teacher_vocabulary(self) -> VocabularySubset:
        size = self.teacher.blueprint.config.vocab_size
        return VocabularySubset.all(size) if self._tokenizes_differently else self.prepared.vocabulary

    @cached_property
    def _teacher_rows(self) -> list[Row]:
        """The rows of the training examples as the teacher reads them."""
        part, teacher = self._part, self.teacher
        examples = self._with_teacher_features(part.train).encoded
        if self._tokenizes_differently:
            encode = self.teacher_task.for_training().encode
            examples = encode(part.splits.train, teacher.require_tokenizer(), teacher.max_tokens)
        items = group_rows(examples, together=part.task.loss_unit == "examples")
        return [row for item in items for row in item]

    def _with_teacher_features(self, read: EncodedExamples) -> EncodedExamples:
        """Return examples with what the teacher reads beside the pieces."""
        if not self.teacher_task.lexicon_labels or self._tokenizes_differently:
            return read
        theirs = self.teacher_task.encode(read.examples, self.prepared.tokenizer, self.prepared.checkpoint.max_tokens)
        pairs = zip(read.encoded, theirs, strict=True)
        return replace(read, encoded=[_with_features(*pair) for pair in pairs])

    def _cache_teacher(
        self, task_objective: TaskObjective, teacher: Teacher, losses: LayerLosses, stage: StageSettings
    ) -> TeacherCache | None:
        """Let the teacher read everything once, if there is room for its outputs."""
        rows, request = self._teacher_rows, build_teacher_request(losses, stage)
        self._check_reading(task_objective, teacher, request)
        request = request if request.is_empty else self._joint_request(stage)
        if request.is_empty:
            return None
        if self.settings.cache.use == "never" and not self._reads_differently:
            return None
        writer = TeacherCacheWriter(
            self.cache / f"teacher-{self._cache_key(request, stage)}", rows, teacher, request, self.context.on_reading
        )
        needed = estimate_bytes(rows, teacher, request)
        has_room = self._reads_differently or fits_on_disk(needed, self.cache, self.settings.cache.gigabytes)
        if not has_room and not writer.is_done:
            self.context.log(
                f"What the teacher says would take {needed / 1e9:.1f} GB, more than [cache] allows or half of the free disk: it "
                "reads the texts anew in every pass."
            )
            return None
        return self.processes.in_turn(writer.write)

    def _cache_key(self, request: TeacherRequest, stage: StageSettings) -> str:
        about = {
            "wanted": as_table(request),
            "imitation": as_table(stage.imitation),
            "head": self._teacher_head,  # one of several, which all read the same rows
            "task": self._part.task.to_table(),
            **({"half": half} if (half := self._teacher_half) else {}),
        }
        return hash_contents(self._teacher_rows, self._teacher_vocabulary.ids_K, Path(self.job.teacher), about)

    def _joint_request(self, stage: StageSettings) -> TeacherRequest:
        """Join the requests of all stages that ask the teacher alike, so that it reads for them together."""
        alike = [other for other in self._stages if other.imitation == stage.imitation]
        requests = (build_teacher_request(self._layer_losses(other), other) for other in alike)
        return reduce(TeacherRequest.union, requests, TeacherRequest())

    def _check_reading(self, task_objective: TaskObjective, teacher: Teacher, request: TeacherRequest) -> None:
        """Refuse to compare what two readings of a text do not share."""
        if not self._tokenizes_differently:
            return
        if request.has_layers:
            raise BadSetting(
                "The student reads other pieces than its teacher, so what happens inside cannot be compared, only answers can. "
                "Use --set intermediate.epochs=0, and in the prediction stage the losses prediction and labels."
            )
        ours = [row for item in task_objective.items for row in item]
        if count_answers(ours, teacher, request) != count_answers(self._teacher_rows, teacher, request):
            raise BadSetting(
                "Teacher and student, who read other pieces, cut some training texts at other places, so their answers do not "
                "go together. Use the teacher's vocabulary, or shorter texts."
            )


def _with_features(ours: EncodedExample, theirs: EncodedExample) -> EncodedExample:
    pairs = zip(ours.rows, theirs.rows, strict=True)
    return replace(ours, rows=tuple(replace(row, features=other.features) for row, other in pairs))
