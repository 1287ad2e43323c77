"""Models side by side: score, size and speed, and what each keeps of the score of one of them.

In: folders of models for the same task, by name, and labelled files; or models that were scored already. Out: a
`ComparisonReport` of plain values, which the terminal, a page, a plot and JSON show each in its own form. Scores never depend
on speed: it is measured afterwards, and not at all if no time is allowed for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.infer.engines import ModelSize
from alembert.infer.scoring import (
    ModelComparison,
    ProgressCallback,
    ScoredModel,
    open_models,
    score_models,
)
from alembert.infer.speed import MEASURE_SECONDS, Clock, Speed, describe_machine, measure_speeds
from alembert.tasks import metrics
from alembert.tasks.metrics import Interval


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """Score, size and speed of one model."""

    name: str
    folder: str
    score: float
    interval: Interval
    size: ModelSize
    speed: Speed | None = None
    """None: it was not measured."""
    against: metrics.PairedComparison | None = None
    """Its score minus that of the reference, on the same examples; none: it is the reference."""


@dataclass(frozen=True, kw_only=True)
class ComparisonReport:
    """Models on the same examples."""

    task: str
    files: tuple[str, ...]
    examples: int
    documents: int
    """Documents that the examples are from; samples are drawn of these."""
    set_aside: int
    """Items of the files that could not be read and are in no score."""
    measure: str
    """The score that is compared; higher is better."""
    rounds: int
    """Samples that intervals are computed from."""
    against: int
    """Number of the model that the others are compared with."""
    models: tuple[ModelSummary, ...]
    machine: str | None = None
    """Where speed was measured; none: it was not."""

    @property
    def reference(self) -> ModelSummary:
        """The model that the others are compared with."""
        return self.models[self.against]

    def score_ratio(self, model: ModelSummary) -> float | None:
        """Return the share of the reference's score that a model has; None if the reference scores nothing."""
        return model.score / self.reference.score if self.reference.score > 0 else None

    def speed_up(self, model: ModelSummary) -> float | None:
        """Return how many times as many texts as the reference a model reads in the same time; None if not measured."""
        if model.speed is None or self.reference.speed is None:
            return None
        return model.speed.texts_per_second / self.reference.speed.texts_per_second

    def multiplication_ratio(self, model: ModelSummary) -> float:
        """Return how many times fewer multiplications than the reference a model's encoder needs."""
        return self.reference.size.multiplications / model.size.multiplications

    def to_table(self) -> dict[str, Any]:
        """Return everything as plain values; docs/evaluate.md names the keys."""
        table = asdict(self)
        table["reference"] = self.models[table.pop("against")].name
        for row, model in zip(table["models"], self.models, strict=True):
            row["kept"] = self.score_ratio(model)
            row["fewer_multiplications"] = self.multiplication_ratio(model)
            row["speed_up"] = self.speed_up(model)
            if model.speed is not None:
                rates = ("texts_per_second", "tokens_per_second")
                row["speed"] |= {rate: getattr(model.speed, rate) for rate in rates}
        return table


def compare_models(
    models: Mapping[str, str | Path],
    files: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    task: str | None = None,
    part: str | None = None,
    rounds: int = 1000,
    seed: int = 1,
    device: str = "cpu",
    speed_seconds: float | None = MEASURE_SECONDS,
    on_progress: ProgressCallback = lambda _: None,
) -> ComparisonReport:
    """Compare models, given by name, with the first of them; `speed_seconds` is for each, none measures no speed."""
    if not models:
        raise BadSetting("There is no model to compare. Give at least one folder.")
    opened = open_models([Path(folder) for folder in models.values()], device, task)
    scored = score_models(opened, files, options, part=part, rounds=rounds, seed=seed, on_progress=on_progress)
    return build_comparison(scored, list(models), device=device, speed_seconds=speed_seconds, on_progress=on_progress)


def build_comparison(
    scored: ModelComparison,
    names: Sequence[str],
    *,
    reference: int = 0,
    device: str = "cpu",
    speed_seconds: float | None = MEASURE_SECONDS,
    clock: Clock = perf_counter,
    on_progress: ProgressCallback = lambda _: None,
) -> ComparisonReport:
    """Compare models that were scored on the same examples, and have these names, with one of them."""
    models = [model.model for model in scored.models]
    measured: Sequence[Speed | None] = [None] * len(models)
    if speed_seconds is not None:
        measured = measure_speeds(models, scored.examples, seconds=speed_seconds, clock=clock, on_progress=on_progress)
    others = [
        None if number == reference else scored.paired_bootstrap(model, scored.models[reference])
        for number, model in enumerate(scored.models)
    ]
    return ComparisonReport(
        task=models[0].task.name,
        files=scored.files,
        examples=len(scored.examples),
        documents=scored.documents,
        set_aside=sum(item.kind != "annotation" for item in scored.reading.set_aside),
        measure=scored.models[0].scores.main,
        rounds=scored.rounds,
        against=reference,
        models=tuple(map(_summarise_model, names, scored.models, measured, others)),
        machine=None if speed_seconds is None else describe_machine(device),
    )


def _summarise_model(
    name: str, scored: ScoredModel, speed: Speed | None, against: metrics.PairedComparison | None
) -> ModelSummary:
    return ModelSummary(
        name=name,
        folder=str(scored.model.folder),
        score=scored.scores.value,
        interval=scored.interval,
        size=scored.model.engine.size,
        speed=speed,
        against=against,
    )
