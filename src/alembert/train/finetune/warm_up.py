"""Warm-up: a model learns from silver labels first, and from the training files afterwards.

In: the prepared data of a run whose files name warm-up files, and its settings. Out: the model after a pass over
these files, from which the usual run starts with a fresh optimiser and schedule. Silver labels are those of
dictionaries (`corpus label`) or of another model (`annotate`, `predict --json`): cheap, and partly wrong, so they come
before the right ones (silver first and gold afterwards did best in arXiv 2402.09282). It is a run of the one loop with
its states in a folder of its own, so a seed that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from alembert.errors import BadFile, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.tasks.example import exclude_examples
from alembert.train.distributed import Processes
from alembert.train.finetune.data import PreparedData
from alembert.train.finetune.objective import EncodedExamples
from alembert.train.finetune.seeds import build_objective
from alembert.train.finetune.settings import FinetuneSettings
from alembert.train.run import RunContext
from alembert.train.training_run import STATE_FOLDER, TrainingRun, VocabularySubset

WARM_UP_FOLDER: Final = "warm_up"


def prepare_warm_up(prepared: PreparedData, settings: FinetuneSettings, log: Callable[[str], None]) -> PreparedData:
    """Add what warm-up files hold; examples with the text of a development example are left out."""
    part = prepared.tasks[0]
    data = part.spec.data
    if not data.warm_up:
        return prepared
    if len(prepared.tasks) > 1:
        raise BadSetting(f"Warm-up files are for one task, and this run has {len(prepared.tasks)}. Leave them out.")
    reading = part.task.read_warm_up(data.warm_up_files.paths, data.options, settings.warm_up.min_score)
    examples = exclude_examples(reading.examples, (example.key for example in part.dev.examples))
    if not any(map(part.task.gold_answers, examples)):
        raise BadFile(
            f"The warm-up files have no example with {part.task.answer_name}. Check the files and their format."
        )
    log(
        f"warm-up: {len(examples):,} examples; {len(reading.examples) - len(examples):,} with the text of a development example "
        f"were left out, and {len(reading.set_aside):,} could not be read"
    )
    task = part.task.for_warm_up()
    tokenizer, longest = prepared.tokenizer, prepared.max_length
    train = task.for_training().encode(examples, tokenizer, longest)
    dev = part.task.encode(part.dev.examples, tokenizer, longest)
    whole = VocabularySubset.all(prepared.checkpoint.blueprint.config.vocab_size)
    pieces = whole if settings.masked_lm.weight else VocabularySubset.of([*train, *dev])
    own = replace(
        part,
        task=task,
        train=EncodedExamples(examples, pieces.remap(train)),
        dev=EncodedExamples(part.dev.examples, pieces.remap(dev)),
    )
    return replace(prepared, warm_up=PreparedData((own,), pieces, prepared.checkpoint))


def get_warm_up_settings(settings: FinetuneSettings, prepared: PreparedData) -> FinetuneSettings:
    """Return the settings of the stage: those of the run, with a length and a rate of its own."""
    own = settings.warm_up
    return replace(
        settings,
        hours=None,
        steps=None,
        tokens=max(1, round(own.epochs * prepared.train_tokens)),
        epochs=own.epochs,
        optimiser=replace(settings.optimiser, learning_rate=own.learning_rate),
        evaluation=replace(settings.evaluation, times=1, patience=None),
        saving=replace(settings.saving, keep="last"),
    )


@dataclass(frozen=True)
class WarmUpStage:
    """The first stage of a run."""

    prepared: PreparedData
    """The warm-up examples."""
    settings: FinetuneSettings
    """Those of the whole run, with the seed."""
    folder: Path
    """Where its log, settings, curves and states go."""
    context: RunContext
    processes: Processes

    def train(self, checkpoint: Checkpoint) -> Checkpoint:
        """Train a model with the heads of the run, or load what a run that was stopped later has reached."""
        stage = get_warm_up_settings(self.settings, self.prepared)
        return TrainingRun(
            checkpoint,
            partial(build_objective, self.prepared, stage),
            stage,
            self.folder,
            self.folder / STATE_FOLDER,
            self.context,
            self.processes,
            phase="warm-up",
            vocabulary=self.prepared.vocabulary,
        ).complete()
