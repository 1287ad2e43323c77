"""`alembert evaluate`: how good a fine-tuned model is, and how far the number can be trusted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alembert.cli.codes import SET_ASIDE

if TYPE_CHECKING:
    from alembert.infer.evaluate import Evaluation


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A fine-tuned checkpoint folder.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Labelled files of any known format.")],
    *,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which task of a model that has several.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Another model to compare with on the same examples.")
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="Only this part of a file that finetune split: train, dev or test.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the text; two make pairs.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the label.")] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of all files, if it is not to be recognised.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Samples that intervals are computed from.")] = 1000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda ...")] = "auto",
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page with plots.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Score a fine-tuned model on labelled files, with intervals, coverage and calibration."""
    from alembert.cli.output import print_json
    from alembert.cli.pages import check_page, write_page
    from alembert.cli.progress import Bar
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.hardware.torch_settings import device_named
    from alembert.infer.evaluate import evaluate as run
    from alembert.infer.task_model import TaskModel
    from alembert.inspect.evaluation_page import page

    check_page(report)
    where = device_named(device)
    opened = TaskModel.open(model, where, task)
    other = None if against is None else TaskModel.open(against, where, _same_task(task, against))
    options = ReadOptions(text=tuple(text or ()), label=label, encoding=encoding)
    with Bar(sys.stderr) as bar:
        found = run(
            opened, files, options, part=part, against=other, rounds=rounds, device=where, tell=bar.show
        )
    if report is not None:
        write_page(report, page(found))
    if as_json:
        print_json(found.to_table())
    else:
        _print(found)
    _warn(found)
    if found.set_aside:
        raise typer.Exit(SET_ASIDE)


def _same_task(task: str | None, rival: Path) -> str | None:
    """Name the task of a rival, which may be a model of this one alone."""
    from alembert.tasks.files import task_names

    return task if task and task_names(rival) else None


def _print(found: Evaluation) -> None:
    from alembert.cli.output import visible
    from alembert.inspect.evaluation_report import headline, sentences, tables

    print(visible(f"{found.model}, task {found.task}, on {', '.join(found.files)}"))
    print(visible(headline(found)))
    for table in tables(found):
        print(f"\n{visible(table.title)}")
        for line in table.lines():
            print(visible(line))
    print()
    for sentence in sentences(found):
        print(visible(sentence))


def _warn(found: Evaluation) -> None:
    from alembert.cli.output import note
    from alembert.inspect.evaluation_report import overlap_warning

    for remark in found.remarks:
        note(f"{remark.source}: {remark.reason}" + f" ({remark.count:,} times)" * (remark.count > 1))
    for item in found.set_aside:
        note(f"{item.source}, {item.position} set aside: {item.reason}")
    if warning := overlap_warning(found):
        note(warning)
