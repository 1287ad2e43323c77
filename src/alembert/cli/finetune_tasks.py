"""The tasks that `alembert finetune` learns, and their files, as the command line names them.

One task is named by its kind and has the files of --train, --dev and --data. Several, or one with a name of its own, are
written `[NAME:]KIND[=FILE]`, and their files `NAME=FILE`:

    --task disease:tag=diseases.tsv --task topic:classify=topics.tsv --dev topic=topics-dev.tsv
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.tasks.task import get_task_class
from alembert.train.finetune.settings import TaskRunSettings

if TYPE_CHECKING:
    from alembert.train.finetune.data import DataFiles


@dataclass(frozen=True)
class TaskArgument:
    """A task as the command line names it."""

    name: str
    kind: str
    file: str | None = None


@dataclass(frozen=True)
class TaskArguments:
    """All tasks that were asked for."""

    tasks: tuple[TaskArgument, ...]

    @property
    def names(self) -> list[str]:
        return [task.name for task in self.tasks]

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each task by its name."""
        return {task.name: task.kind for task in self.tasks}


@dataclass(frozen=True)
class FileArguments:
    """What --train, --dev, --data, --warm-up and run.split say."""

    train: Sequence[str] = ()
    dev: Sequence[str] = ()
    unsplit: Sequence[str] = ()
    split: str | None = None
    """Shares by which the training files are split; those of --data, if there are any."""
    warm_up: Sequence[str] = ()


def parse_tasks(words: Sequence[str]) -> TaskArguments:
    """Read what --task says, which may be repeated.

    >>> parse_tasks(["disease:tag=a.tsv", "classify=b.tsv"]).kinds
    {'disease': 'tag', 'classify': 'classify'}
    """
    tasks = tuple(map(_parse_task, words))
    for task in tasks:
        if sum(other.name == task.name for other in tasks) > 1:
            raise BadSetting(
                f"Two tasks are called {task.name}. Give each a name of its own, as in --task one:{task.kind}=a.tsv --task "
                f"two:{task.kind}=b.tsv; more files of one task are --train {task.name}=FILE."
            )
    return TaskArguments(tasks)


def _parse_task(word: str) -> TaskArgument:

    match = re.fullmatch(r"(?:([^:=]+):)?([^:=]+)(?:=(.+))?", word)
    if not match:
        raise BadSetting(
            f"--task is {word!r}; expected a task (tag), a task with its file (tag=train.tsv), or with a name and its file "
            "(disease:tag=train.tsv)."
        )
    name, kind, file = match.groups()
    get_task_class(kind)
    return TaskArgument(name or kind, kind, file)


def build_data(
    task_arguments: TaskArguments, files: FileArguments, settings: Mapping[str, TaskRunSettings]
) -> dict[str, DataFiles]:
    """Return the files of each task."""
    return {
        task.name: _build_task_data(task_arguments, task, files, settings[task.name].reading)
        for task in task_arguments.tasks
    }


def _build_task_data(
    task_arguments: TaskArguments, task: TaskArgument, files: FileArguments, reading: ReadOptions
) -> DataFiles:
    from alembert.train.finetune.data import DataFiles

    first = [task.file] if task.file else []
    train = fetch_to_temporary_folder([*first, *_files_of_task(task_arguments, task, "--train", files.train)])
    dev = fetch_to_temporary_folder(_files_of_task(task_arguments, task, "--dev", files.dev))
    unsplit = fetch_to_temporary_folder(_files_of_task(task_arguments, task, "--data", files.unsplit))
    if files.split is not None and not files.unsplit:
        train, unsplit = [], train
    if not (train or unsplit):
        raise BadSetting(
            f"The task {task.name} has no training files. Name them: --train {task.name}=FILE, or --task "
            f"{task.name}:{task.kind}=FILE."
        )
    return DataFiles(
        train=tuple(train),
        dev=tuple(dev),
        unsplit=tuple(unsplit),
        split=files.split or "80/10/10",
        warm_up=tuple(fetch_to_temporary_folder(_files_of_task(task_arguments, task, "--warm-up", files.warm_up))),
        options=reading,
    )


def _files_of_task(task_arguments: TaskArguments, task: TaskArgument, flag: str, words: Sequence[str]) -> list[str]:
    """Choose the files of a task among those of a flag; those without a name are of an only task."""
    files = []
    for word in words:
        name, _, file = word.partition("=")
        if name in task_arguments.names and file:
            files += [file] if name == task.name else []
        elif len(task_arguments.tasks) == 1:
            files.append(word)
        else:
            raise BadSetting(
                f"{flag} is {word!r}; with several tasks say whose file it is, as in {flag} {task.name}=FILE. "
                f"The tasks are {', '.join(task_arguments.names)}."
            )
    return files
