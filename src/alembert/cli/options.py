"""Options that several commands share: the same name, the same words.

Options of commands that can run on a Ray cluster: the same names, the same words.

The models that commands are given: a folder or `hub:organisation/name`, and what a foreign folder is taken for.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from alembert.errors import BadSetting
from alembert.hub import model_folder
from alembert.tasks.files import describe_inferred_task
from alembert.terminal import note
from alembert.workers.ray import RayCluster, check_ray_installed

LABELLED_HELP: Final = "Labelled files of any known format, folders of them, patterns, s3:// addresses, or - for stdin."
Device = Annotated[str, typer.Option(help="auto, cpu, cuda ...")]
ForgetTraining = Annotated[
    bool,
    typer.Option(
        "--forget-training",
        help="Write no hashes of the training texts and entities, to give the model away.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a complete checkpoint.")]
ShowConfig = Annotated[bool, typer.Option("--show-config", help="Print all settings as TOML, and do nothing.")]
Types = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[FILE=]TYPES",
        help="tag: the only entity types that files annotate, such as Disease,Gene; others are ignored. May be repeated.",
    ),
]
ScoresAsJson = Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object.")]
LabelColumn = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of the label.")]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="SIGN", help="Separator of the columns of tables: , ; | or tab; detected if not given."),
]

MinScore = Annotated[
    float | None,
    typer.Option(metavar="SCORE", help="Withhold answers below this score, 0 to 1; they are counted."),
]
MinPrecision = Annotated[
    float | None,
    typer.Option(
        "--min-precision",
        "--least-precision",
        metavar="SHARE",
        help="Withhold answers below the score that reached this precision on the development data.",
    ),
]


def withheld_note(count: int, thresholds: Iterable[float]) -> str:
    """Say how many answers were withheld, and below which scores.

    >>> withheld_note(12, [0.8, 0.8])
    '12 answers below 0.80 were withheld'
    """
    given = sorted({each for each in thresholds if each})
    scores = " or ".join(f"{each:.2f}" if each == round(each, 2) else f"{each:.4f}" for each in given)
    return f"{count:,} answer{'s' * (count > 1)} below {scores} {'were' if count > 1 else 'was'} withheld"


def single_label_column(columns: list[str] | None) -> str | None:
    """Return the column of --label, and refuse several: of a repeated option the last would be used silently."""
    if columns and len(columns) > 1:
        raise BadSetting(
            f"--label was given {len(columns)} times ({', '.join(columns)}); expected one column. Put several labels of a "
            "text into one column, with | between them, or into a list in JSON lines."
        )
    return columns[0] if columns else None


RunOn = Annotated[str, typer.Option(metavar="PLACE", help="Where the work is done: local or ray.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of a running Ray cluster; RAY_ADDRESS if not given; without either, one is started on this machine.",
    ),
]
WorkerCpus = Annotated[int | None, typer.Option(min=1, max=1024, help="CPUs of each worker on Ray; 1 if not given.")]


def resolve_cluster(on: str, workers: int | None, worker_cpus: int | None, address: str | None) -> RayCluster | None:
    """Give the cluster that was asked for; None: this machine, without one."""

    if on == "ray":
        check_ray_installed()
        return RayCluster(address=address, workers=workers, cpus=worker_cpus or 1)
    if on != "local":
        raise BadSetting(f"`--on` is {on!r}; expected local or ray.")
    if worker_cpus is not None or address is not None:
        raise BadSetting("`--worker-cpus` and `--ray-address` are for a cluster: add --on ray, or leave them out.")
    return None


MODEL_HELP = "A checkpoint or Export folder, or hub:organisation/name."
"""Help of an argument that is a fine-tuned model."""
LANGUAGE_MODEL_HELP = "A checkpoint folder with a language-model head, or hub:organisation/name."
"""Help of an argument that is a model before fine-tuning."""


def find_model(model: str | Path) -> Path:
    """Return the folder of a fine-tuned model; say what it is taken for if it was fine-tuned by another program."""

    folder = model_folder(model)
    if remark := describe_inferred_task(folder, str(model)):
        note(remark)
    return folder
