"""What all seeds of a distillation share: the teacher, the examples, and what the teacher says about them.

In: who teaches whom, the teacher, the prepared examples, settings. Out: the lesson of each stage. The teacher is asked
once for all seeds and passes where what it says fits on the disk. A student that reads other pieces than its teacher
has other rows of the same examples; then answers alone can be compared, line by line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

from alembert.data.windows import Row
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.nn.model import Model
from alembert.settings import as_table
from alembert.tasks.files import read_task_names
from alembert.train.distill_settings import DistillSettings, StageSettings
from alembert.train.distributed import Processes
from alembert.train.imitation_lesson import TaskImitation, wanted_of
from alembert.train.inside import Inside
from alembert.train.own_pieces import OwnPieces
from alembert.train.surroundings import Surroundings
from alembert.train.task_data import Data, Prepared, PreparedTask, tokenizer_of
from alembert.train.task_lesson import TaskLesson, items_of
from alembert.train.teacher import Teacher, Wanted
from alembert.train.teacher_record import Record, Recorder, answer_counts, bytes_needed, fits, key_of


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """Who teaches whom, and with what."""

    teacher: str
    """A Checkpoint folder that was fine-tuned for a task."""
    student: str
    """A size such as 4x312, a share of the teacher's layers such as half, or a Checkpoint folder."""
    data: Data
    task: str | None = None
    """Which of the teacher's tasks, if it has several."""
    texts: tuple[Path, ...] = ()
    """Plain text, a Corpus folder or raw files, whose sentences the teacher labels."""
    words: str | None = None
    """A Checkpoint with a masked LM that gives words for new texts; none: the teacher's neighbouring words."""
    vocabulary: Path | None = None
    """The tokenizer of a new student, if it is not the teacher's."""


@dataclass(frozen=True)
class LectureHall:
    """What all seeds of a distillation share: the teacher, the data, and what the teacher says about them."""

    wish: Distillation
    checkpoint: Checkpoint
    """The teacher."""
    prepared: Prepared
    settings: DistillSettings
    out: Path
    around: Surroundings
    processes: Processes

    @property
    def head(self) -> str:
        """The name of the teacher's head: that of the task, if it has several."""
        named = self.wish.task
        return named if named and named in read_task_names(Path(self.wish.teacher)) else self._part.head

    @property
    def _part(self) -> PreparedTask:
        return self.prepared.tasks[0]

    def teacher(self, stage: StageSettings) -> Teacher:
        """Give the teacher with the pieces of its rows, as a stage asks it."""
        return Teacher(self._model, self._part.task, self.head, stage.imitation)

    @cached_property
    def _model(self) -> Model:
        return self._own_pieces.model(self.checkpoint).to(self.processes.device(self.around.device))

    @cached_property
    def has_own_reading(self) -> bool:
        """Whether the teacher reads other pieces than the student, and with them other rows of the same examples."""
        return self.prepared.tokenizer.vocabulary != tokenizer_of(self.checkpoint).vocabulary

    @cached_property
    def _own_pieces(self) -> OwnPieces:
        size = self.checkpoint.blueprint.config.vocab_size
        return OwnPieces.all(size) if self.has_own_reading else self.prepared.pieces

    @cached_property
    def _own_rows(self) -> list[Row]:
        """The rows of the training examples as the teacher reads them."""
        part, config = self._part, self.checkpoint.blueprint.config
        examples = part.train.encoded
        if self.has_own_reading:
            encode = part.task.for_training().encode
            examples = encode(part.divided.train, tokenizer_of(self.checkpoint), config.max_position_embeddings)
        items = items_of(examples, together=part.task.counted == "examples")
        return [row for item in items for row in item]

    def inside(self, stage: StageSettings) -> Inside:
        ours, theirs = self.prepared.checkpoint.blueprint.config, self.checkpoint.blueprint.config
        return Inside(stage.losses, ours, theirs, self._part.task.attention)

    def check(self, stage: StageSettings) -> None:
        """Refuse losses that cannot bind these two models."""
        lesson = self._rows(stage)
        self._check_reading(lesson, self.teacher(stage), wanted_of(self.inside(stage), stage))

    def lesson(self, stage: StageSettings) -> TaskImitation:
        """Put together a stage: rows, teacher, losses, and what the teacher has said."""
        lesson, teacher, inside = self._rows(stage), self.teacher(stage), self.inside(stage)
        return TaskImitation(lesson, teacher, inside, stage, self._record(lesson, teacher, inside, stage))

    def _rows(self, stage: StageSettings) -> TaskLesson:
        part = self._part
        return TaskLesson(part.task, part.train, part.dev, stage, name=part.name, head=part.head)

    def _record(self, lesson: TaskLesson, teacher: Teacher, inside: Inside, stage: StageSettings) -> Record | None:
        """Let the teacher read everything once, if what it says has room."""
        rows, wanted = self._own_rows, wanted_of(inside, stage)
        self._check_reading(lesson, teacher, wanted)
        wanted = wanted if wanted.is_nothing else self._wanted_by_all(stage)
        if wanted.is_nothing:
            return None
        if self.settings.cache.use == "never" and not self.has_own_reading:
            return None
        cache = self.around.cache_for(self.out)
        recorder = Recorder(
            cache / f"teacher-{self._key(wanted, stage)}", rows, teacher, wanted, self.around.tell_reading
        )
        needed = bytes_needed(rows, teacher, wanted)
        has_room = self.has_own_reading or fits(needed, cache, self.settings.cache.gigabytes)
        if not has_room and not recorder.is_done:
            self.around.say(
                f"What the teacher says would take {needed / 1e9:.1f} GB, more than [cache] allows or half of the free disk: it "
                "reads the texts anew in every pass."
            )
            return None
        return self.processes.in_turn(recorder.record)

    def _key(self, wanted: Wanted, stage: StageSettings) -> str:
        """Name what the teacher says in a stage."""
        about = {
            "wanted": as_table(wanted),
            "imitation": as_table(stage.imitation),
            "head": self.head,  # one of several, which all read the same rows
            "task": self._part.task.to_table(),
        }
        return key_of(self._own_rows, self._own_pieces.ids_K, Path(self.wish.teacher), about)

    def _wanted_by_all(self, stage: StageSettings) -> Wanted:
        """Say what all stages want that ask the teacher alike, so that it reads for them together."""
        settings = self.settings
        stages = [each for each in (settings.intermediate, settings.prediction) if not each.skip]
        alike = [each for each in stages if each.imitation == stage.imitation]
        return reduce(Wanted.joined, (wanted_of(self.inside(each), each) for each in alike), Wanted())

    def _check_reading(self, lesson: TaskLesson, teacher: Teacher, wanted: Wanted) -> None:
        """Refuse to compare what two readings of a text do not share."""
        if not self.has_own_reading:
            return
        if wanted.is_inside:
            raise BadSetting(
                "The student reads other pieces than its teacher, so what happens inside cannot be compared, only answers can. "
                "Use --inside-epochs 0, and in the stage of answers the losses prediction and hard."
            )
        ours = [row for item in lesson.items for row in item]
        if answer_counts(ours, teacher, wanted) != answer_counts(self._own_rows, teacher, wanted):
            raise BadSetting(
                "Teacher and student, who read other pieces, cut some training texts at other places, so their answers do not "
                "go together. Use the teacher's vocabulary, or shorter texts."
            )
