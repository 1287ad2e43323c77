"""`alembert pretrain`: from scratch or from a checkpoint."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli.options import Device, Overwrite, ScoresAsJson, ShowConfig
from alembert.errors import BadSetting
from alembert.hardware.torch_settings import resolve_device
from alembert.settings import read_toml, to_toml
from alembert.terminal import ProgressBar, note, print_json
from alembert.train.pretrain.recipes import choose_recipe, resolve_recipe
from alembert.train.settings import ObjectiveWeights, PretrainSettings

if TYPE_CHECKING:
    from alembert.train.pretrain.pretrain import PretrainRunResult


def pretrain(
    inputs: Annotated[
        list[Path] | None, typer.Argument(metavar="INPUT", help="A Corpus folder, or files with text.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the checkpoint goes; run again to continue.")
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="A checkpoint to adapt, or hub:organisation/name.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Vocabulary of a new model; learnt if not given.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Size of a new model: tiny, mini, small, base ...")] = None,
    recipe: Annotated[str | None, typer.Option(help="Settings that belong together; see docs/pretrain.md.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in TOML, on top of the recipe.")] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=WEIGHT]", help="Learn this (and nothing else); may be repeated."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="What is masked: piece, word, span or entity.")] = None,
    hours: Annotated[float | None, typer.Option(help="Length of the run by the clock.")] = None,
    tokens: Annotated[str | None, typer.Option(help="Length of the run in tokens: 500k, 20M, 1G.")] = None,
    steps: Annotated[int | None, typer.Option(help="Length of the run in steps.")] = None,
    rate: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a sequence at most.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides about all chance.")] = None,
    dictionary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Terms that are one word in Chinese, one a line.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where shards are kept; hidden beside the result.")
    ] = None,
    device: Device = "auto",
    shard: Annotated[
        bool, typer.Option("--shard", help="Spread the model over the processes of torchrun (FSDP2).")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that prepare the data.")] = None,
    overwrite: Overwrite = False,
    show_config: ShowConfig = False,
    as_json: ScoresAsJson = False,
) -> None:
    """Pre-train a model from scratch, or adapt one to your text. A stopped run continues with the same command."""
    from alembert.train.pretrain.inputs import PretrainStart

    changes = {
        "hours": hours,
        "tokens": None if tokens is None else parse_count(tokens),
        "steps": steps,
        "seed": seed,
        "objectives": _weights(objective) if objective else None,
        "masks": None if unit is None else {"unit": unit},
        "optimiser": None if rate is None else {"rate": rate},
        "sequences": None if length is None else {"length": length},
    }
    names = [each.partition("=")[0] for each in objective or ()]
    name = recipe or choose_recipe(model, names)
    given = {key: value for key, value in changes.items() if value is not None}
    settings = resolve_pretrain_settings(name, config, given, chosen=recipe is not None)
    if show_config:
        print(to_toml(settings), end="")
        return
    if not inputs or out is None:
        raise typer.BadParameter("give INPUT and --out, or --show-config")
    _run(
        inputs,
        out,
        PretrainStart(model, tokenizer, size),
        settings,
        as_json,
        dictionary=dictionary,
        cache=cache,
        workers=workers,
        device=_device(device),
        shard=shard,
        overwrite=overwrite,
    )


def resolve_pretrain_settings(
    name: str, config: Path | None, changes: dict[str, Any], *, chosen: bool = False
) -> PretrainSettings:
    """Put recipe, file and flags together; the last one wins. A recipe that was `chosen` wins over that of the file."""

    layers = {str(config): read_toml(config) if config else {}, "The command line": changes}
    return resolve_recipe(name, layers, chosen=chosen)


def _weights(objectives: list[str]) -> dict[str, float]:
    """Read NAME or NAME=WEIGHT; whatever is not named is off."""

    weights = {item.name: 0.0 for item in fields(ObjectiveWeights)}
    for each in objectives:
        name, _, weight = each.partition("=")
        try:
            weights[name] = float(weight or 1)
        except ValueError:
            raise BadSetting(f"--objective {each!r} has no number after =. Write NAME or NAME=0.5.") from None
    return weights


def parse_count(text: str) -> int:
    """Read a number with k, M or G.

    >>> parse_count("20M"), parse_count("1.5k"), parse_count("300")
    (20000000, 1500, 300)
    """

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text.strip())
    if not found:
        raise BadSetting(f"--tokens is {text!r}; expected a number such as 500k, 20M or 1G.")
    factor = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}[found[2].lower()]
    return round(float(found[1]) * factor)


def _device(wanted: str) -> str:

    return resolve_device(wanted)


def _run(inputs: list[Path], out: Path, start: Any, settings: PretrainSettings, as_json: bool, **around: Any) -> None:
    from alembert.train.distributed import is_first_process
    from alembert.train.pretrain.pretrain import pretrain as run
    from alembert.train.run import RunContext

    with ProgressBar(sys.stderr, plain_every=60) as bar:
        surroundings = RunContext(log=note, on_reading=bar.show, on_progress=bar.show_training, **around)
        done = run(inputs, out, start, settings, surroundings)
    if is_first_process():
        _show(done, out, as_json)


def _show(done: PretrainRunResult, out: Path, as_json: bool) -> None:

    if as_json:
        print_json({"folder": str(out), **asdict(done)})
        return
    print(f"{out}: {done.done.step:,} steps, {done.done.tokens:,} tokens, {done.done.seconds / 60:.1f} minutes")
    print(f"{'held out':32} {'before':>24} {'after':>24}")
    for name, scores in done.after.items():
        before = done.before.get(name, {})
        print(f"{name:32} {_brief(before):>24} {_brief(scores):>24}")


def _brief(scores: Any) -> str:
    return f"loss {scores['loss']:.3f}, {scores['accuracy']:.1%}" if scores else "-"
