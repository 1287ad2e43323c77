"""Options that several commands share: the same name, the same words."""

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="auto, cpu, cuda ...")]
ForgetTraining = Annotated[
    bool,
    typer.Option(
        "--forget-training",
        help="Write no hashes of the training texts and entities, to give the model away.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a complete checkpoint.")]
ShowConfig = Annotated[
    bool, typer.Option("--show-config", help="Print all settings as TOML, and do nothing.")
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[FILE=]TYPES",
        help="tag: types that files annotate, as in Disease,Gene; others are unknown there. May be repeated.",
    ),
]
ScoresAsJson = Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object.")]
