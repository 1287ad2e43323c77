"""`alembert predict`: texts in, predictions out."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from alembert.cli.codes import SET_ASIDE

if TYPE_CHECKING:
    from alembert.infer.predictor import Engine, FilledMask


def predict(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint folder, or hub:organisation/name.")
    ],
    fill_mask: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="A text with one or more [MASK]; `-` reads one text per line from stdin."
        ),
    ],
    top: Annotated[int, typer.Option(min=1, max=1000, help="How many candidates to show for each mask.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Predict with a model: say what stands at the masks of a text."""
    from alembert.infer.engine_torch import TorchEngine

    engine = TorchEngine.open(model)
    if fill_mask == "-":
        _fill_lines(engine, top, as_json)
    else:
        _fill(engine, fill_mask, top, as_json)


def _fill_lines(engine: "Engine", top: int, as_json: bool) -> None:
    """Fill line by line; a line that cannot be used is named, and the rest goes on."""
    from alembert.cli.output import note, read_stdin
    from alembert.errors import BadInput

    set_aside = 0
    for number, line in enumerate(read_stdin().split("\n"), 1):
        if not line.strip():
            continue
        try:
            _fill(engine, line, top, as_json)
        except BadInput as problem:
            set_aside += 1
            note(f"line {number} set aside: {problem}")
    if set_aside:
        raise typer.Exit(SET_ASIDE)


def _fill(engine: "Engine", text: str, top: int, as_json: bool) -> None:
    from alembert.cli.output import print_json
    from alembert.infer.predictor import fill_mask

    filled = fill_mask(engine, text, top)
    if as_json:
        print_json({"text": text, "masks": [asdict(mask) for mask in filled]})
    else:
        _show(text, filled)


def _show(text: str, filled: "tuple[FilledMask, ...]") -> None:
    from alembert.cli.output import visible

    print(visible(text))
    for mask in filled:
        print(f"  characters {mask.start}-{mask.end}")
        for candidate in mask.candidates:
            print(f"    {candidate.score:7.2%}  {visible(candidate.token)}")
