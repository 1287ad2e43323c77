"""`alembert pretrain`: from scratch or from a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from alembert.cli.options import (
    Assignments,
    ConfigFile,
    DeviceRunOptions,
    LearningRate,
    Overwrite,
    ScoresAsJson,
    asks_for_help,
    data_option,
    open_run_context,
    output_option,
    print_settings,
    training_option,
)
from alembert.errors import BadSetting, require_training
from alembert.settings import parse_count, read_layers, split_table
from alembert.terminal import print_json
from alembert.train.pretrain.settings import (
    USUAL_WEIGHTS,
    ObjectiveWeights,
    PretrainSettings,
    choose_recipe,
    resolve_recipe,
)

if TYPE_CHECKING:
    from alembert.train.pretrain.pretrain import PretrainRunResult


@dataclass(frozen=True, kw_only=True)
class PretrainRunOptions(DeviceRunOptions):
    """Options of `pretrain` beside the settings of the training."""

    held_out_general: str | None = None
    """General text, a file or a Corpus, to evaluate on too, which shows what the model forgets."""
    dictionary: str | None = None
    """Word list for Chinese segmentation, one term per line."""
    cache: str | None = None
    """Folder for the tokenized text; none: a hidden folder beside the result."""
    shard: bool = False
    """Shard the model over the processes of torchrun (FSDP2)."""
    workers: int | None = None
    """Processes that prepare the data; none: one for each CPU."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise BadSetting(f"`workers` is {self.workers}; expected 1 or more.")


_PATHS: Final = ("held_out_general", "dictionary", "cache")
"""Options of a run that are paths."""


def pretrain(
    inputs: Annotated[
        list[Path] | None, typer.Argument(metavar="INPUT", help="A Corpus folder, or files with text.")
    ] = None,
    *,
    model: Annotated[
        str | None, data_option(metavar="FOLDER", help="A checkpoint to adapt, or hub:organisation/name.")
    ] = None,
    tokenizer: Annotated[
        Path | None, data_option(metavar="FOLDER", help="Tokenizer of a new model; by default, one is learnt.")
    ] = None,
    size: Annotated[str | None, data_option(help="Size of a new model: tiny, mini, small, base ...")] = None,
    recipe: Annotated[str | None, training_option(help="Named group of settings; see docs/pretrain.md.")] = None,
    objective: Annotated[
        list[str] | None,
        training_option(
            metavar="NAME[=WEIGHT]", help="Train on this objective instead of those of the recipe; may be repeated."
        ),
    ] = None,
    hours: Annotated[float | None, training_option(help="Length of the run in hours.")] = None,
    tokens: Annotated[str | None, training_option(help="Length of the run in tokens: 500k, 20M, 1G.")] = None,
    learning_rate: LearningRate = None,
    out: Annotated[Path | None, output_option(metavar="FOLDER", help="Folder to write the checkpoint to.")] = None,
    overwrite: Overwrite = False,
    as_json: ScoresAsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Pre-train a model from scratch, or adapt one to your text. To resume a stopped run, repeat the command."""
    flags = {
        "hours": hours,
        "tokens": None if tokens is None else parse_count(tokens),
        "objectives": _weights(objective) if objective else None,
        "optimiser": {"learning_rate": learning_rate},
    }
    names = [word.partition("=")[0] for word in objective or ()]
    usual = recipe or choose_recipe(model, names)
    options, layers = split_table(PretrainRunOptions(), "run", read_layers(config, assignments, flags))
    settings = resolve_recipe(usual, layers, chosen=recipe is not None)
    if asks_for_help(assignments):
        print_settings(settings, run=options)
        return
    if not inputs or out is None:
        raise typer.BadParameter("give INPUT and --out, or --set help")
    require_training()
    from alembert.train.pretrain.inputs import PretrainStart

    _run(
        inputs,
        out,
        PretrainStart(model, tokenizer, size),
        settings,
        as_json,
        **{name: Path(value) for name in _PATHS if (value := getattr(options, name)) is not None},
        workers=options.workers,
        device=options.device,
        shard=options.shard,
        overwrite=overwrite,
    )


def _weights(objectives: list[str]) -> dict[str, float]:
    """Read NAME or NAME=WEIGHT; whatever is not named is off."""
    weights = {item.name: 0.0 for item in fields(ObjectiveWeights)}
    for word in objectives:
        name, _, weight = word.partition("=")
        try:
            weights[name] = float(weight or USUAL_WEIGHTS.get(name, 1.0))
        except ValueError:
            raise BadSetting(f"--objective {word!r} has no number after =. Write NAME or NAME=0.5.") from None
    return weights


def _run(inputs: list[Path], out: Path, start: Any, settings: PretrainSettings, as_json: bool, **options: Any) -> None:
    from alembert.train.distributed import is_first_process
    from alembert.train.pretrain.pretrain import pretrain as run

    with open_run_context(**options) as context:
        done = run(inputs, out, start, settings, context)
    if is_first_process():
        _show(done, out, as_json)


def _show(done: PretrainRunResult, out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(out), **asdict(done), "summary": done.summary})
        return
    print(f"{out}: {done.done.step:,} steps, {done.done.tokens:,} tokens, {done.done.seconds / 60:.1f} minutes")
    print(f"{'held out':32} {'before':>24} {'after':>24}")
    for name, scores in done.after.items():
        before = done.before.get(name, {})
        print(f"{name:32} {_brief(before):>24} {_brief(scores):>24}")
    if done.summary:
        print(done.summary)


def _brief(scores: Any) -> str:
    return f"loss {scores['loss']:.3f}, {scores['accuracy']:.1%}" if scores else "-"
