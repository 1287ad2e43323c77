"""All settings of a fine-tuning run as one file: what `finetune --show-config` prints, a run keeps, and `--config` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alembert.corpus.readers.contract import ReadOptions
from alembert.settings import to_toml
from alembert.train.finetune_settings import FinetuneSettings


@dataclass(frozen=True)
class TaskSettings:
    """What was decided about one task."""

    of_task: Any
    reading: ReadOptions
    weight: float = 1.0


def finetune_toml(settings: FinetuneSettings, tasks: Mapping[str | None, TaskSettings]) -> str:
    """Write the settings of a run and of its tasks; an only task has the name none."""
    tables = [to_toml(settings)]
    for name, each in tasks.items():
        of_task, weight = "task" if name is None else f"task.{name}", ""
        if name is not None:
            weight = (
                f"# How much its loss counts beside those of the other tasks.\nweight = {each.weight!r}\n"
            )
        read = "read" if name is None else f"{of_task}.read"
        tables += [
            f"[{of_task}]\n{weight}{to_toml(each.of_task, of_task)}",
            f"[{read}]\n{to_toml(each.reading)}",
        ]
    return "\n".join(tables)
