"""`run.compare` of `alembert distill`: students without distillation beside the result, all scored on one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from alembert.corpus.inputs import list_input_files
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import AlreadyDone
from alembert.inspect.comparison import compare_models
from alembert.inspect.report_pages import write_comparison
from alembert.inspect.reports import comparison_lines
from alembert.tasks.tag.types import select_types_for_files
from alembert.terminal import escape_controls
from alembert.train.distill.settings import DistillSettings, build_controls

if TYPE_CHECKING:
    from alembert.train.distill.stages import DistillJob
    from alembert.train.run import RunContext


@dataclass(frozen=True)
class ComparisonFile:
    """The file of run.compare, and what run.types says."""

    file: Path
    types: tuple[str, ...] = ()

    @property
    def options(self) -> ReadOptions:
        """How the file is read."""

        return ReadOptions(types=select_types_for_files(self.types, list_input_files([self.file]).paths))


def drop_compare_types(test: ComparisonFile | None, types: tuple[str, ...], *parts: Sequence[Path]) -> tuple[str, ...]:
    """Leave out what run.types says about the file of run.compare alone."""
    if test is None or not types:
        return types
    of_data = select_types_for_files(types, list_input_files([file for part in parts for file in part]).paths)
    return tuple(word for word in types if word in of_data or word not in test.options.types)


def comparison_folder(out: Path) -> Path:
    """Return the folder of the comparison and of the students that the result is compared with."""
    return out.with_name(f"{out.name}-comparison")


def train_controls(
    job: DistillJob, out: Path, settings: DistillSettings, seeds: int, context: RunContext
) -> dict[str, Path]:
    """Train the students that the result is compared with, unless they are there already."""
    from alembert.train.distill.distill import distill as run

    folders = {}
    for name, control in build_controls(settings, has_texts=bool(job.texts)).items():
        folders[name] = comparison_folder(out) / name.replace(" ", "-")
        context.log(f"The student {name}: {folders[name]}")
        folders[name].parent.mkdir(parents=True, exist_ok=True)
        with suppress(AlreadyDone):
            own = job if control.has_texts else replace(job, texts=())
            run(own, folders[name], control.settings, seeds=seeds, context=context)
    return folders


def show_comparison(students: Mapping[str, Path], job: DistillJob, test: ComparisonFile, folder: Path) -> None:
    """Score the teacher and all students on the file, print the table and write its page."""

    report = compare_models({"teacher": Path(job.teacher), **students}, [test.file], test.options, task=job.task)
    print(*map(escape_controls, comparison_lines(report)), sep="\n")
    for path in write_comparison(report, folder):
        print(path)
