"""`alembert convert`: old .bin weights to safetensors, or a copy of a model without traces of its training data."""

from pathlib import Path
from typing import Annotated

import typer

from alembert.errors import TRAINING, require
from alembert.tasks.files import forget_training
from alembert.terminal import escape_controls, print_json


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help="Folder with config.json and pytorch_model.bin, or hub:organisation/name; with --forget-training, a "
            "fine-tuned model or an Export.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the checkpoint to.")],
    family: Annotated[str | None, typer.Option(help="bert or albert, if config.json has no `model_type`.")] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Class of the model, such as BertForMaskedLM, if config.json does not name it.")
    ] = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget-training", help="Copy the folder without the hashes of its training texts and entities."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a complete result.")] = False,
) -> None:
    """Convert old .bin weights to safetensors, without executing anything in the old file."""
    if forget:
        if family or architecture:
            raise typer.BadParameter("--family and --architecture cannot be used with --forget-training")
        _forget_training(Path(source), out, overwrite=overwrite, as_json=as_json)
        return

    require("Converting weights", *TRAINING)
    from alembert.files import checkpoint as converting

    checkpoint = converting.convert(source, out, family=family, architecture=architecture, overwrite=overwrite)
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


def _forget_training(source: Path, out: Path, *, overwrite: bool, as_json: bool) -> None:
    forget_training(source, out, overwrite=overwrite)
    if as_json:
        print_json({"out": str(out)})
    else:
        print(escape_controls(f"{out}: as {source}, without hashes of what it was trained on"))
