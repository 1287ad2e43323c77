"""One run of the training loop, as `pretrain`, `finetune` and both stages of `distill` make it.

In: a Checkpoint with the heads that it is trained with, an objective and settings. Out: the trained Checkpoint, with
the log, the settings and the curves of the run in one folder, and in another, until it is over, the states that a
stopped run goes on from.

A run may train a `VocabularySubset`. A few thousand labelled texts hold a few thousand of a vocabulary's pieces; the
rows of all others never get a gradient, yet it would be filled with zeros, added up and measured, and their moments
moved, in every small step. So the model has the rows of its own pieces alone, with other numbers, and the others are
put back, untouched, when it is written. Weight decay does not reach the rows that are left out, which is what one wants
of them.
"""

# V pieces of the vocabulary, K own pieces, E embedding width
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from alembert.artifact import atomic_write
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import TOKEN_EMBEDDING, with_dropout
from alembert.nn.model import Model
from alembert.settings import to_toml
from alembert.tasks.example import EncodedExample
from alembert.train.curves import write_curves
from alembert.train.distributed import Processes
from alembert.train.loop import TrainingLoop
from alembert.train.objective import EvalResult, Objective
from alembert.train.run import RunContext
from alembert.train.runlog import RunLog
from alembert.train.settings import RunSettings
from alembert.train.state import RunStates


@dataclass(frozen=True, eq=False)
class VocabularySubset:
    """The pieces of a run, as ids of the vocabulary in rising order: their places are their numbers in the run."""

    ids_K: npt.NDArray[np.int64]

    @classmethod
    def of(cls, encoded: Iterable[EncodedExample]) -> VocabularySubset:
        """Collect the pieces of examples."""
        ids = [np.unique(row.ids) for example in encoded for row in example.rows]
        return cls(np.unique(np.concatenate(ids)))

    @classmethod
    def all(cls, size: int) -> VocabularySubset:
        """Take all pieces of a vocabulary."""
        return cls(np.arange(size))

    def remap(self, encoded: Sequence[EncodedExample]) -> list[EncodedExample]:
        """Return the examples with the numbers of the run."""
        return [
            replace(example, rows=tuple(replace(row, ids=np.searchsorted(self.ids_K, row.ids)) for row in example.rows))
            for example in encoded
        ]

    def shrink(self, checkpoint: Checkpoint) -> Model:
        """Make a model with the rows of the run alone; a checkpoint with a head over the vocabulary needs all."""
        old = checkpoint.model
        config = replace(old.config, vocab_size=len(self.ids_K))
        model = Model.skeleton(config, old.specs, pooler=old.pooler is not None)
        state = dict(old.state_dict())
        state[TOKEN_EMBEDDING] = state[TOKEN_EMBEDDING][torch.from_numpy(self.ids_K)]
        model.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
        return model

    def restore(self, trained: Model, checkpoint: Checkpoint) -> Model:
        """Put the trained rows back among those of the checkpoint."""
        state = dict(trained.state_dict())
        rows_VE = checkpoint.model.state_dict()[TOKEN_EMBEDDING].clone()
        rows_VE[torch.from_numpy(self.ids_K)] = state[TOKEN_EMBEDDING].to(rows_VE)
        model = Model.skeleton(checkpoint.model.config, trained.specs, pooler=trained.pooler is not None)
        model.load_state_dict({**state, TOKEN_EMBEDDING: rows_VE}, assign=True)
        return model.eval()


RUN_FOLDER: Final = "run"
STATE_FOLDER: Final = ".state"
SETTINGS_FILE: Final = "settings.toml"
SettingsT = TypeVar("SettingsT", bound=RunSettings)


@dataclass
class TrainingRun:
    """A model that is trained once."""

    checkpoint: Checkpoint
    """The model with the heads of the run, before training."""
    objective: Callable[[], Objective]
    settings: RunSettings
    run_folder: Path
    """Where the log, the settings and the curves go."""
    state_folder: Path
    context: RunContext
    processes: Processes
    phase: str
    vocabulary: VocabularySubset | None = None
    """The pieces that the data have, if the model is trained with those alone."""
    initialise: Callable[[Model], None] = lambda _: None
    """Changes the weights that the run begins with."""

    def check(self) -> None:
        """Refuse what cannot run, before anything is written."""
        self.processes.agree(lambda: self.loop)

    @cached_property
    def loop(self) -> TrainingLoop:
        dropout = self.settings.model.dropout, self.settings.model.attention_dropout
        checkpoint = with_dropout(self.checkpoint, *dropout)
        model = checkpoint.model if self.vocabulary is None else self.vocabulary.shrink(checkpoint)
        self.initialise(model)
        return TrainingLoop(
            model,
            self.objective(),
            self.settings,
            states=RunStates(self.state_folder),
            log=RunLog(self.run_folder, tensorboard=self.processes.is_first),
            processes=self.processes,
            device=self.context.device,
            sharded=self.context.shard,
            on_progress=lambda progress: self.context.on_progress(replace(progress, phase=self.phase)),
        )

    def train(self) -> EvalResult:
        """Train to the end, from where a stopped run was."""
        evaluation = self.loop.run()
        self.loop.log.close()
        return evaluation

    def complete(self) -> Checkpoint:
        """Make it the first of several stages: train, write the run, and return the model."""
        self.train()
        self.processes.on_first(self.write_run)
        return self.trained

    @property
    def trained(self) -> Checkpoint:
        """The model after training, with the configuration that it had before."""
        model = self.loop.model.cpu()
        if self.vocabulary is not None:
            model = self.vocabulary.restore(model, self.checkpoint)
        return replace(self.checkpoint, model=model)

    def first_scores(self) -> Mapping[str, Any]:
        """Read the scores on held-out data before training from the log."""
        first: Mapping[str, Any] = next((row["scores"] for row in self.loop.log.rows("held_out")), {})
        scores: Mapping[str, Any] = self.processes.broadcast(first)
        return scores

    def scores_of_first_parts(self) -> Mapping[str, Any]:
        """Read from the log what held-out data said when the parts that were trained first had been trained alone."""
        freed = self.loop.position.freed
        rows = [] if freed is None else self.loop.log.rows("held_out")
        found: Mapping[str, Any] = next((row["scores"] for row in rows if freed and row["step"] == freed.step), {})
        scores: Mapping[str, Any] = self.processes.broadcast(found)
        return scores

    def write_run(self, toml: str | None = None) -> None:
        """Write the settings (none: those of the loop) and the curves beside the log."""
        atomic_write(self.run_folder / SETTINGS_FILE, (toml or to_toml(self.settings)).encode())
        write_curves(self.loop.log, self.run_folder, self.phase.capitalize())


def with_default_tokens(settings: SettingsT, tokens: int, advice: str, log: Callable[[str], None]) -> SettingsT:
    """Choose the length of a run that was given none."""
    if any(settings.length_of_run.values()):
        return settings
    log(f"No length was given: the run takes {tokens:,} tokens{advice}")
    return replace(settings, tokens=tokens)
