"""A small search over rates and epochs, within a time budget, judged on the development data.

Rates come first, outwards from the one given, then numbers of epochs at the best of them. A trial is a whole run with
the same seed; another is begun as long as it can be expected to end in time, and at least one is made. Trials that are
done are on the disk, so a stopped search goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from alembert.artifact import atomic_write
from alembert.train.finetune_settings import FinetuneSettings
from alembert.train.one_seed import OneSeed, SeedResult

RATES: Final = (1.0, 0.5, 2.0, 0.25, 4.0)
EPOCHS: Final = (0.6, 1.6)
TABLE: Final = "tuning.json"
WEIGHTS: Final = "*.safetensors"


@dataclass(frozen=True)
class Trial:
    """One try: what was changed, and how well it did."""

    rate: float
    epochs: float
    value: float
    seconds: int


def search(
    settings: FinetuneSettings,
    seconds: float,
    folder: Path,
    run: Callable[[FinetuneSettings, Path], OneSeed],
    say: Callable[[str], None],
) -> tuple[FinetuneSettings, Path]:
    """Find the best settings; give them and the folder of their run."""
    trials: list[tuple[FinetuneSettings, Path, SeedResult]] = []
    for wanted in _candidates(settings, trials):
        if trials and not _fits(wanted, trials, seconds):
            continue
        place = folder / str(len(trials) + 1)
        result = run(wanted, place).run()
        trials.append((wanted, place, result))
        say(
            f"try {len(trials)}: rate {wanted.optimiser.rate:g}, {wanted.epochs:g} epochs: "
            f"{result.main} {result.value:.4f} on the development data"
        )
        _forget_weights(trials)
    best, place, _ = _best(trials)
    table = [asdict(_summary(tried, result)) for tried, _, result in trials]
    atomic_write(folder / TABLE, (json.dumps(table, indent=2) + "\n").encode())
    return best, place


def _candidates(
    settings: FinetuneSettings, trials: Sequence[tuple[FinetuneSettings, Path, SeedResult]]
) -> Iterator[FinetuneSettings]:
    for factor in RATES:
        yield replace(settings, optimiser=replace(settings.optimiser, rate=settings.optimiser.rate * factor))
    best, _, _ = _best(trials)
    if any(settings.length_of_run.values()):  # epochs say nothing about the length of the run
        return
    for epochs in sorted({max(1.0, round(best.epochs * factor)) for factor in EPOCHS} - {best.epochs}):
        yield replace(best, epochs=epochs)


def _best(
    trials: Sequence[tuple[FinetuneSettings, Path, SeedResult]],
) -> tuple[FinetuneSettings, Path, SeedResult]:
    return max(trials, key=lambda trial: trial[2].value)


def _fits(
    wanted: FinetuneSettings, trials: Sequence[tuple[FinetuneSettings, Path, SeedResult]], seconds: float
) -> bool:
    spent = sum(result.counts["seconds"] for _, _, result in trials)
    epochs = sum(tried.epochs for tried, _, _ in trials)
    return spent + spent / epochs * wanted.epochs <= seconds


def _forget_weights(trials: Sequence[tuple[FinetuneSettings, Path, SeedResult]]) -> None:
    """Keep the weights of the best try alone; the others keep their log and scores."""
    _, kept, _ = _best(trials)
    for _, place, _ in trials:
        if place != kept:
            for path in place.glob(WEIGHTS):
                path.unlink()


def _summary(tried: FinetuneSettings, result: SeedResult) -> Trial:
    return Trial(tried.optimiser.rate, tried.epochs, result.value, result.counts["seconds"])
