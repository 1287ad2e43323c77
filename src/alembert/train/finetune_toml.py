"""All settings of a fine-tuning run: put together from layers, and written as one file.

A layer is a table of plain values, as a TOML file or the arguments of a call give it; later layers win. The file is what
`finetune --show-config` prints, a run keeps, and `--config` takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.settings import changed, inner_table, to_toml
from alembert.tasks.task import get_task_class
from alembert.train.finetune_settings import FinetuneSettings, usual_settings


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
            weight = f"# How much its loss counts beside those of the other tasks.\nweight = {each.weight!r}\n"
        read = "read" if name is None else f"{of_task}.read"
        tables += [
            f"[{of_task}]\n{weight}{to_toml(each.of_task, of_task)}",
            f"[{read}]\n{to_toml(each.reading)}",
        ]
    return "\n".join(tables)


def layered_settings(
    kinds: Mapping[str, str], layers: Mapping[str, Mapping[str, Any]], *, are_named: bool
) -> tuple[FinetuneSettings, dict[str, TaskSettings]]:
    """Change the usual settings by layers, given by where they come from; return those of each task apart.

    `kinds` has the kind of each task by its name. Named tasks make a multi-task model, with a table `[task.NAME]` each.
    """
    settings = FinetuneSettings() if are_named else usual_settings(next(iter(kinds.values())))
    tasks = {name: TaskSettings(get_task_class(kind).settings_class(), ReadOptions()) for name, kind in kinds.items()}
    for where, layer in layers.items():
        own = dict(layer)
        tasks = _changed_tasks(tasks, own, where, are_named=are_named)
        if own.keys() & {"hours", "tokens", "steps", "epochs"}:
            settings = replace(settings, hours=None, tokens=None, steps=None)
        settings = changed(settings, own, where)
    return settings, tasks


def _changed_tasks(
    tasks: Mapping[str, TaskSettings], table: dict[str, Any], where: str, *, are_named: bool
) -> dict[str, TaskSettings]:
    """Take the tables [task] and [read] out of a layer, and change the settings of the tasks by them."""
    of_tasks, reading = dict(inner_table(table, "task", where)), inner_table(table, "read", where)
    result = {}
    for name, old in tasks.items():
        own = dict(inner_table(of_tasks, name, f"{where}, `task`")) if are_named else of_tasks
        place = f"{where}, `task.{name}`" if are_named else f"{where}, `task`"
        weight = _weight(own.pop("weight", old.weight), place) if are_named else old.weight
        columns = inner_table(own, "read", place) if are_named else {}
        read = changed(changed(old.reading, reading, f"{where}, `read`"), columns, f"{place}, `read`")
        result[name] = TaskSettings(changed(old.of_task, own, place), read, weight)
    if are_named and of_tasks:
        raise BadSetting(
            f"{where} has [task.{next(iter(of_tasks))}]; with several tasks each has a table of its own, and they are "
            f"{', '.join(f'[task.{name}]' for name in tasks)}."
        )
    return result


def _weight(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise BadSetting(f"{where}, `weight` is {value!r}; expected a positive number.")
    return float(value)
