"""`alembert convert`: bring a checkpoint with old .bin weights into today's form."""

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="Has config.json and pytorch_model.bin; or hub:organisation/name."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the Checkpoint to.")],
    family: Annotated[
        str | None, typer.Option(help="bert or albert, if config.json does not say `model_type`.")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Such as BertForMaskedLM, if config.json does not say.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a Checkpoint that is there.")
    ] = False,
) -> None:
    """Convert old .bin weights to safetensors; nothing in the old file is executed."""
    from alembert.cli.output import print_json
    from alembert.files import convert as converting

    checkpoint = converting.convert(
        source, out, family=family, architecture=architecture, overwrite=overwrite
    )
    record = {
        "out": str(out),
        "family": checkpoint.family,
        "parameters": checkpoint.parameters,
        "heads": list(checkpoint.blueprint.heads),
        "left_out": list(checkpoint.unexpected),
    }
    if as_json:
        print_json(record)
    else:
        heads = ", ".join(checkpoint.blueprint.heads) or "none"
        print(f"{out}: {checkpoint.family}, {checkpoint.parameters:,} parameters, heads: {heads}")
