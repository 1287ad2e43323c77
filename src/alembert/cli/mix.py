"""`alembert mix`: weights between a model and what further training has made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from alembert.api.mixing import DEFAULT_SHARE, SHARES, MixResult
from alembert.api.mixing import mix as run
from alembert.cli.options import (
    AsJson,
    Device,
    Epochs,
    Overwrite,
    TrainFiles,
    data_option,
    output_option,
    settings_option,
)
from alembert.errors import BadSetting
from alembert.terminal import print_json


def mix(
    start: Annotated[str, typer.Argument(metavar="START", help="A checkpoint, or hub:organisation/name.")],
    adapted: Annotated[str, typer.Argument(metavar="ADAPTED", help="What further training has made of it.")],
    *,
    out: Annotated[Path, output_option(metavar="FOLDER", help="Folder to write the checkpoint to.")],
    share: Annotated[
        float | None, typer.Option(help=f"Part of ADAPTED in the result; {DEFAULT_SHARE} by default.")
    ] = None,
    choose: Annotated[
        list[str] | None,
        data_option(
            metavar="FILE",
            help=f"Development examples: try the shares {', '.join(f'{each:g}' for each in SHARES)} and keep the best.",
        ),
    ] = None,
    train: TrainFiles = None,
    task: Annotated[str | None, data_option(metavar="TASK", help="Task of the examples, such as tag.")] = None,
    shares: Annotated[str | None, data_option(metavar="LIST", help="Other shares to try, such as 0,0.5,1.")] = None,
    epochs: Epochs = None,
    seeds: Annotated[int, typer.Option(min=1, help="Fine-tune each share this many times; the mean counts.")] = 1,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    config: Annotated[
        Path | None, settings_option(metavar="FILE", help="Settings of the fine-tuning as a TOML file.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Mix the weights of two models of one shape. Fine-tuning to choose a share takes 2 epochs unless --epochs is given."""
    result = run(
        start,
        adapted,
        out=out,
        share=share,
        choose=choose,
        train=train,
        task=task,
        shares=None if shares is None else _parse_shares(shares),
        epochs=epochs,
        seeds=seeds,
        settings=config,
        device=device,
        overwrite=overwrite,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        _show(result)


def _parse_shares(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise BadSetting(f"--shares is {text!r}; expected numbers with commas between them, such as 0,0.5,1.") from None


def _show(result: MixResult) -> None:
    if result.scores:
        print(f"{'share':>6} {result.main:>10}")
    for share, score in result.scores.items():
        print(f"{share:>6g} {score:>10.4f}{'  <- kept' if share == result.share else ''}")
    print(f"{result.folder}: {result.share:g} of the adapted model, {1 - result.share:g} of the start")
