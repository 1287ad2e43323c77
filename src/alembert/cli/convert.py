"""`alembert convert`: bring a checkpoint with old .bin weights into today's form."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Has config.json and pytorch_model.bin.")],
    out: Annotated[Path, typer.Option(help="Folder to write the Checkpoint to.")],
    family: Annotated[
        str | None, typer.Option(help="bert or albert, if config.json does not say `model_type`.")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Such as BertForMaskedLM, if config.json does not say.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a Checkpoint that is there.")
    ] = False,
) -> None:
    """Convert old .bin weights to safetensors; nothing in the old file is executed."""
    from alembert.files import convert as converting

    checkpoint = converting.convert(
        source, out, family=family, architecture=architecture, overwrite=overwrite
    )
    parameters = sum(p.numel() for p in checkpoint.model.parameters())
    heads = ", ".join(checkpoint.blueprint.heads) or "none"
    print(f"{out}: {checkpoint.family}, {parameters:,} parameters, heads: {heads}", file=sys.stderr)
    if checkpoint.unexpected:
        names = ", ".join(checkpoint.unexpected[:5])
        print(
            f"note: {len(checkpoint.unexpected)} weights left out, no part of the model: {names}",
            file=sys.stderr,
        )
