"""The demo with a quarter of the examples and few steps: everything that it leaves behind, in seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from alembert import demo
from alembert.demo import text_steps, training_steps
from alembert.train.distill.settings import DistillSettings

_student_settings = training_steps.student_settings
_TrainingPace = training_steps.TrainingPace
_write_lines = training_steps.write_lines


def run_short_demo(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_steps, "write_lines", write_few_lines)
        patch.setattr(training_steps, "PRETRAIN_TOKENS", 8 * training_steps.STEP_TOKENS)
        patch.setattr(training_steps, "TrainingPace", shorten_pace)
        patch.setattr(training_steps, "student_settings", shorten_student)
        patch.setattr(text_steps, "SPEED_SECONDS", 0.05)
        for _ in demo.run(folder):
            pass


def write_few_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    _write_lines(path, islice(records, None, None, 4))


def shorten_pace(passes: float, rate: float, step: int) -> Any:
    return _TrainingPace(min(passes, 4.0), rate, step)


def shorten_student() -> DistillSettings:
    usual = _student_settings()
    return replace(
        usual,
        intermediate=replace(usual.intermediate, epochs=1),
        prediction=replace(usual.prediction, epochs=1),
    )
