"""`alembert finetune`: labelled examples and a model to a model for one task."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli.codes import SET_ASIDE
from alembert.cli.options import Device, Overwrite, ScoresAsJson, ShowConfig

if TYPE_CHECKING:
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.train.finetune import Assignment, Finetuned
    from alembert.train.finetune_settings import FinetuneSettings


def finetune(
    task: Annotated[str, typer.Option(help="What to learn: classify or tag.")],
    model: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="A checkpoint, or hub:organisation/name.")
    ] = None,
    train: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Examples to train on; may be repeated.")
    ] = None,
    dev: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Examples to judge by; a part of --train if none."),
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Examples that are divided by --split.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Shares of training, development and test in --data; 80/10/10.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the model goes; run again to continue.")
    ] = None,
    *,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training examples.")] = None,
    rate: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides about all chance.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many times, and report mean and spread.")] = 1,
    tune: Annotated[
        str | None, typer.Option(metavar="TIME", help="Try rates and epochs for so long first: 30m, 2h.")
    ] = None,
    crf: Annotated[bool, typer.Option("--crf", help="tag: find the best path of tags with a CRF.")] = False,
    nested: Annotated[bool, typer.Option("--nested", help="tag: entities may nest and overlap.")] = False,
    every_token: Annotated[
        bool, typer.Option("--every-token", help="tag: each token has a label of its own (part of speech).")
    ] = False,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the text; two make pairs.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the label.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in TOML.")] = None,
    device: Device = "auto",
    check: Annotated[bool, typer.Option("--check", help="Look at the data, and do nothing.")] = False,
    overwrite: Overwrite = False,
    show_config: ShowConfig = False,
    as_json: ScoresAsJson = False,
) -> None:
    """Fine-tune a model for a task. A stopped run continues with the same command."""
    changes = {
        "epochs": epochs,
        "seed": seed,
        "optimiser": None if rate is None else {"rate": rate},
        "task": _task_changes(task, crf=crf, nested=nested, every_token=every_token),
        "read": _read_changes(text, label),
    }
    given = {key: value for key, value in changes.items() if value is not None}
    settings, of_task, reading = settings_of(task, config, given)
    if show_config:
        _print_config(settings, of_task, reading)
        return
    if model is None or not (train or data) or (out is None and not check):
        raise typer.BadParameter("give --model, --train or --data, and --out; or --show-config")
    if split is not None and not data:
        raise typer.BadParameter("--split divides the files of --data, which was not given")
    searched = seconds(tune)
    from alembert.train.finetune import Assignment
    from alembert.train.task_data import Data

    files = Data(
        train=tuple(train or ()),
        dev=tuple(dev or ()),
        whole=tuple(data or ()),
        split=split or "80/10/10",
        options=reading,
    )
    assignment = Assignment(task=task, data=files, model=model, settings=of_task)
    if check:
        _check(assignment, settings, as_json)
        return
    assert out is not None
    _run(assignment, out, settings, seeds, searched, device, overwrite=overwrite, as_json=as_json)


def _task_changes(task: str, *, crf: bool, nested: bool, every_token: bool) -> dict[str, Any] | None:
    from alembert.errors import BadSetting

    if not (crf or nested or every_token):
        return None
    if task != "tag" or (crf and nested):
        raise BadSetting(
            "--crf, --nested and --every-token belong to --task tag, and of --crf and --nested one can be given."
        )
    head = {"head": "crf" if crf else "span"} if crf or nested else {}
    return head | ({"every_token": True} if every_token else {})


def _read_changes(text: list[str] | None, label: str | None) -> dict[str, Any] | None:
    given = {"text": text, "label": label}
    return {name: value for name, value in given.items() if value} or None


def settings_of(
    task: str, config: Path | None, changes: dict[str, Any]
) -> tuple[FinetuneSettings, Any, ReadOptions]:
    """Put the usual settings, file and flags together, the last one wins; give those of task and reading apart."""
    from dataclasses import replace

    from alembert.corpus.readers.contract import ReadOptions
    from alembert.settings import changed, inner_table, read_toml
    from alembert.tasks.task import task_class
    from alembert.train.finetune_settings import FinetuneSettings

    settings, of_task, reading = FinetuneSettings(), task_class(task).settings_class(), ReadOptions()
    for where, layer in ((str(config), read_toml(config) if config else {}), ("The command line", changes)):
        own = dict(layer)
        of_task = changed(of_task, inner_table(own, "task", where), f"{where}, `task`")
        reading = changed(reading, inner_table(own, "read", where), f"{where}, `read`")
        if own.keys() & {"hours", "tokens", "steps", "epochs"}:
            settings = replace(settings, hours=None, tokens=None, steps=None)
        settings = changed(settings, own, where)
    return settings, of_task, reading


def _print_config(settings: FinetuneSettings, of_task: Any, reading: ReadOptions) -> None:
    from alembert.settings import to_toml

    print(to_toml(settings), end="")
    for name, table in (("task", of_task), ("read", reading)):
        print(f"\n[{name}]")
        print(to_toml(table), end="")


def _check(assignment: Assignment, settings: FinetuneSettings, as_json: bool) -> None:
    from alembert.cli.output import print_json
    from alembert.tasks.data_screen import lines
    from alembert.train.finetune import examine_data

    report = examine_data(assignment, settings)
    if as_json:
        print_json(report.to_table())
    else:
        print("\n".join(lines(report)))


def _run(
    assignment: Assignment,
    out: Path,
    settings: FinetuneSettings,
    seeds: int,
    tune: float | None,
    device: str,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    from alembert.cli.output import note
    from alembert.cli.progress import Bar
    from alembert.hardware.torch_settings import device_named
    from alembert.train.distributed import speaks
    from alembert.train.finetune import finetune as run
    from alembert.train.surroundings import Surroundings

    with Bar(sys.stderr, plain_every=60) as bar:
        around = Surroundings(
            device=device_named(device),
            overwrite=overwrite,
            say=note,
            show=lambda lines: print(*lines, sep="\n", file=sys.stderr),
            tell=bar.show_training,
        )
        done = run(assignment, out, settings, seeds=seeds, tune=tune, around=around)
    if speaks():
        _show(done, out, as_json)
        if done.report.set_aside.count:
            raise typer.Exit(SET_ASIDE)


def seconds(text: str | None) -> float | None:
    """Read a time with s, m or h.

    >>> seconds("30m"), seconds("1.5h")
    (1800.0, 5400.0)
    """
    from alembert.errors import BadSetting

    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not found or not float(found[1]):
        raise BadSetting(f"--tune is {text!r}; expected a time such as 90s, 30m or 2h.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _show(done: Finetuned, out: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from alembert.cli.output import print_json

    if as_json:
        table = {"folder": str(out), "main": done.main, "mean": done.mean, "spread": done.spread}
        print_json({**table, "best": done.best, "results": [asdict(result) for result in done.results]})
        return
    print(f"{out}: on the development data")
    for name, value in done.measures.items():
        print(f"  {name:16} {value:.4f}{'  <- chosen by this' if name == done.main else ''}")
    if len(done.results) > 1:
        each = ", ".join(f"{result.value:.4f}" for result in done.results)
        print(f"  {len(done.results)} seeds: {done.main} {done.mean:.4f} +- {done.spread:.4f} ({each})")
    print(f"Next: alembert evaluate {out} TEST_FILE; alembert predict {out} TEXT")
