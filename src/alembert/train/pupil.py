"""One seed of a distillation: a student that goes through both stages, in a folder of its own.

The states and the log of the stage that teaches what happens inside lie in `inside`, those of the stage that teaches the
answers where `finetune` has them. Both are runs of the one loop, so a seed that was stopped goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from alembert.artifact import atomic_write
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_dropout, with_heads
from alembert.settings import to_toml
from alembert.tasks.data_report import DataReport
from alembert.train.curves import write_curves
from alembert.train.distill_settings import StageSettings
from alembert.train.finetune import with_length
from alembert.train.learner import as_written, knows_task, with_task_heads
from alembert.train.lecture_hall import LectureHall
from alembert.train.loop import Loop
from alembert.train.one_seed import RUN, STATE, OneSeed, SeedResult
from alembert.train.projections import fit_projections
from alembert.train.runlog import RunLog
from alembert.train.state import States

INSIDE: Final = "inside"


@dataclass(frozen=True)
class Pupil:
    """One seed: a student that goes through both stages."""

    hall: LectureHall
    seed: int
    reports: Mapping[str, DataReport]
    folder: Path

    def check(self) -> None:
        """Refuse settings that cannot work, before anything is written."""
        for stage in self._stages:
            self.hall.check(stage)

    def run(self) -> SeedResult:
        """Train, or give the result of a seed that is done."""
        learner = self._begun()
        if not self._is_done and not self.hall.settings.intermediate.skip:
            learner = self._taught_inside(learner)
        stage = self._length(self.hall.settings.prediction)
        result = OneSeed(
            self.folder,
            self.hall.prepared,
            self.reports,
            learner,
            stage,
            partial(self.hall.lesson, stage),
            self.hall.around,
            self.hall.processes,
            phase="distillation",
            told=self._told(),
            forget_training=self.hall.settings.forget_training,
        ).run()
        self.hall.processes.first_alone(lambda: shutil.rmtree(self.folder / INSIDE / STATE, ignore_errors=True))
        return result

    @property
    def _is_done(self) -> bool:
        found: bool = self.hall.processes.from_first((self.folder / RUN / "scores.json").is_file())
        return found

    @property
    def _stages(self) -> list[StageSettings]:
        settings = self.hall.settings
        return [stage for stage in (settings.intermediate, settings.prediction) if not stage.skip]

    def _length(self, stage: StageSettings) -> StageSettings:
        return with_length(replace(stage, seed=self.seed), self.hall.prepared)

    def _begun(self) -> Checkpoint:
        """Give the student its head: its own if it knows the task, or the teacher's if it begins as that does and fits."""
        prepared, teacher = self.hall.prepared, self.hall.checkpoint
        learner = with_task_heads(prepared, self.seed)
        same = learner.blueprint.config.hidden_size == teacher.blueprint.config.hidden_size
        is_fresh = self.hall.settings.student.start == "scratch"
        if not same or is_fresh or knows_task(prepared, prepared.tasks[0]):
            return learner
        ours, theirs = learner.model.state_dict(), teacher.model.state_dict()
        kept = {
            name: theirs[source].clone()
            for name in ours
            if (source := name.replace(f"heads.{prepared.tasks[0].head}.", f"heads.{self.hall.head}."))
            and name.startswith(("heads.", "pooler."))
            and source in theirs
            and theirs[source].shape == ours[name].shape
        }
        learner.model.load_state_dict({**ours, **kept})
        return learner

    def _taught_inside(self, learner: Checkpoint) -> Checkpoint:
        """Run the stage that teaches what happens inside; give the student without what served it alone."""
        hall, stage = self.hall, self._length(self.hall.settings.intermediate)
        prepared, lesson = hall.prepared, hall.lesson(stage)
        heads = {**learner.blueprint.heads, **lesson.inside.heads}
        student = with_heads(learner, heads, seed=self.seed)
        model = prepared.pieces.model(with_dropout(student, stage.model.dropout, stage.model.attention_dropout))
        if stage.losses.fitted:
            fit_projections(model, lesson, lesson.inside)
        log = RunLog(self.folder / INSIDE, tensorboard=hall.processes.is_first)
        loop = Loop(
            model,
            lesson,
            stage,
            states=States(self.folder / INSIDE / STATE),
            log=log,
            processes=hall.processes,
            device=hall.around.device,
            sharded=hall.around.shard,
            tell=lambda progress: hall.around.tell(replace(progress, phase="inside")),
        )
        loop.run()
        log.close()
        hall.processes.first_alone(partial(self._write_inside, log, stage))
        trained = replace(student, model=prepared.pieces.whole(loop.model.cpu(), student))
        return replace(as_written(trained, prepared), folder=learner.folder)

    def _write_inside(self, log: RunLog, stage: StageSettings) -> None:
        atomic_write(self.folder / INSIDE / "settings.toml", to_toml(stage).encode())
        write_curves(log, self.folder / INSIDE, "What happens inside")

    def _told(self) -> dict[str, str]:
        """Say on the model card who taught the student, and how."""
        hall = self.hall
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
        return {"teacher": f"{Path(hall.wish.teacher).name}, {size}", "student": hall.wish.student, **stages}
