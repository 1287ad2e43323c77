"""`alembert distill --compare`: students without distillation beside the result, all scored on one file."""

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
    """The file of --compare, and what run.types says."""

    file: Path
    types: tuple[str, ...] = ()

    @property
    def options(self) -> ReadOptions:
        """How the file is read."""

        return ReadOptions(types=select_types_for_files(self.types, list_input_files([self.file]).paths))


def drop_compare_types(types: Sequence[str] | None, compare: Path | None, *files: Sequence[Path]) -> tuple[str, ...]:
    """Leave out what run.types says about the file of --compare alone."""

    words = tuple(types or ())
    if not words:
        return ()
    of_data = select_types_for_files(words, list_input_files([file for each in files for file in each]).paths)
    of_test = select_types_for_files(words, list_input_files([compare]).paths if compare else [])
    return tuple(word for word in words if word in of_data or word not in of_test)


def comparison_folder(out: Path) -> Path:
    """Return the folder of the comparison and of the students that the result is compared with."""
    return out.with_name(f"{out.name}-comparison")


def train_controls(
    wish: DistillJob, out: Path, settings: DistillSettings, seeds: int, around: RunContext
) -> dict[str, Path]:
    """Train what the result is compared with; what is done already is found."""
    from alembert.train.distill.distill import distill as run

    folders = {}
    for name, control in build_controls(settings, has_texts=bool(wish.texts)).items():
        folders[name] = comparison_folder(out) / name.replace(" ", "-")
        around.log(f"The student {name}: {folders[name]}")
        folders[name].parent.mkdir(parents=True, exist_ok=True)
        with suppress(AlreadyDone):
            own = wish if control.has_texts else replace(wish, texts=())
            run(own, folders[name], control.settings, seeds=seeds, around=around)
    return folders


def show_comparison(students: Mapping[str, Path], wish: DistillJob, test: ComparisonFile, folder: Path) -> None:
    """Score the teacher and all students on the file, print the table and write its page."""

    found = compare_models({"teacher": Path(wish.teacher), **students}, [test.file], test.options, task=wish.task)
    print(*map(escape_controls, comparison_lines(found)), sep="\n")
    for path in write_comparison(found, folder):
        print(path)
