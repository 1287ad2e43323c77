"""One seed of a fine-tuning run: train, choose thresholds on the development data, write everything into a folder.

A folder is done when its `run/scores.json` is there, which is written last: a run of several seeds that was stopped
goes on with the one that was not done.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from alembert.artifact import Draft, atomic_write
from alembert.files.checkpoint import Checkpoint
from alembert.files.heads import with_dropout
from alembert.nn.model import Model
from alembert.settings import to_toml
from alembert.tasks.data_report import DataReport
from alembert.tasks.files import write_keys, write_surfaces, write_task
from alembert.tasks.running import ModelRunner
from alembert.tasks.surfaces import count_surfaces
from alembert.tasks.task import AnyTask, Scores
from alembert.train.curves import write_curves
from alembert.train.distributed import Processes
from alembert.train.finetune_settings import FinetuneSettings
from alembert.train.loop import Loop
from alembert.train.runlog import RunLog
from alembert.train.state import States
from alembert.train.surroundings import Surroundings
from alembert.train.task_data import Prepared
from alembert.train.task_lesson import TaskLesson

RUN: Final = "run"
STATE: Final = ".state"
SCORES: Final = "scores.json"


@dataclass(frozen=True)
class SeedResult:
    """How well one seed does on the development data."""

    seed: int
    main: str
    measures: Mapping[str, float]
    by_label: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """Steps, tokens and seconds of the run, and parameters of the model."""

    @property
    def value(self) -> float:
        return self.measures[self.main]


@dataclass
class OneSeed:
    """A run with one seed in a folder of its own."""

    folder: Path
    prepared: Prepared
    report: DataReport
    learner: Checkpoint
    """The model with the head of the task, before training."""
    settings: FinetuneSettings
    around: Surroundings
    processes: Processes

    def check(self) -> None:
        """Refuse what cannot run, before anything is written."""
        self.processes.agree(lambda: self._loop)

    def run(self) -> SeedResult:
        """Train, or give the result of a seed that is done."""
        done = self.folder / RUN / SCORES
        if self.processes.from_first(done.is_file()):
            return SeedResult(**json.loads(done.read_bytes()))
        loop = self._loop
        loop.run()
        loop.log.close()
        result: list[SeedResult] = []
        self.processes.first_alone(lambda: result.append(self._written(loop)))
        found: SeedResult = self.processes.from_first(result[0] if result else None)
        del self._loop  # states of the optimiser take twice the memory of the model
        return found

    @cached_property
    def _loop(self) -> Loop:
        wanted = self.settings.model
        prepared = self.prepared
        return Loop(
            prepared.pieces.model(with_dropout(self.learner, wanted.dropout, wanted.attention_dropout)),
            TaskLesson(prepared.task, prepared.train, prepared.dev, self.settings),
            self.settings,
            states=States(self.folder / STATE),
            log=RunLog(self.folder / RUN, tensorboard=self.processes.is_first),
            processes=self.processes,
            device=self.around.device,
            sharded=self.around.shard,
            tell=lambda progress: self.around.tell(replace(progress, phase="fine-tuning")),
        )

    def _written(self, loop: Loop) -> SeedResult:
        """Choose thresholds, score, and write the folder; the scores come last."""
        task, scores = self._judged(loop.model)
        done = loop.position.done
        draft = Draft(self.folder, resumed=True)
        trained = replace(self.learner, model=self.prepared.pieces.whole(loop.model.cpu(), self.learner))
        trained.write(draft, training=self._card(task, scores))
        counts = {**draft.counts, "steps": done.step, "tokens": done.tokens, "seconds": round(done.seconds)}
        result = SeedResult(self.settings.seed, scores.main, scores.measures, scores.by_label, counts)
        write_task(self.folder, task, self._facts())
        for path, content in task.companions().items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self.folder / path, content)
        self._write_run(loop)
        atomic_write(self.folder / RUN / SCORES, _json(asdict(result)))
        shutil.rmtree(self.folder / STATE, ignore_errors=True)
        return result

    def _judged(self, model: Model) -> tuple[AnyTask, Scores]:
        """Look at the development data once more, now with the weights that are kept."""
        dev, head = self.prepared.dev, self.prepared.task.head().kind
        bound = self.prepared.task.bind(model.head(head))
        outputs = bound.run(ModelRunner(model, head, bound.attention), dev.encoded)
        bound = bound.tune(dev.examples, dev.encoded, outputs)
        predictions = [bound.decode(each, found) for each, found in zip(dev.encoded, outputs, strict=True)]
        return bound, bound.score(dev.examples, predictions)

    def _write_run(self, loop: Loop) -> None:
        train = self.prepared.train.examples
        write_keys(self.folder, (example.key for example in train))
        write_surfaces(self.folder, count_surfaces(self.prepared.task.surfaces(train)))
        atomic_write(self.folder / RUN / "data.json", _json(self.report.to_table()))
        atomic_write(self.folder / RUN / "settings.toml", to_toml(self.settings).encode())
        write_curves(loop.log, self.folder / RUN, "Fine-tuning")

    def _facts(self) -> dict[str, Any]:
        divided = self.prepared.divided
        facts = {"examples": len(divided.train), "seed": self.settings.seed, "split": divided.split}
        return {**facts, "reading": asdict(divided.options)}

    def _card(self, task: AnyTask, scores: Scores) -> dict[str, str]:
        """Say on the model card what the model was trained for, and with what result."""
        settings, divided = self.settings, self.prepared.divided
        measured = ", ".join(f"{name} {value:.4g}" for name, value in scores.measures.items())
        return {
            "task": f"{task.name}: {'; '.join(task.decisions())}",
            "examples": f"{len(divided.train):,} to train on, {len(divided.dev):,} for development",
            "length of the run": f"{settings.epochs:g} passes"
            if settings.tokens
            else "see run/settings.toml",
            "optimiser": f"{settings.optimiser.name}, rate {settings.optimiser.rate:g}",
            "seed": str(settings.seed),
            "development data": measured,
        }


def _json(table: Any) -> bytes:
    return (json.dumps(table, indent=2, ensure_ascii=False) + "\n").encode()
