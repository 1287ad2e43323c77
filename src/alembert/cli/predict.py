"""`alembert predict`: texts in, predictions out."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from alembert.infer.predictor import FilledMask


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
    from alembert.infer import predictor
    from alembert.infer.engine_torch import TorchEngine

    engine = TorchEngine.open(model)
    for text in _texts(fill_mask):
        filled = predictor.fill_mask(engine, text, top)
        if as_json:
            record = {"text": text, "masks": [asdict(mask) for mask in filled]}
            print(json.dumps(record, ensure_ascii=False), flush=True)
        else:
            _show(text, filled)


def _texts(given: str) -> Iterator[str]:
    if given != "-":
        yield given
        return
    yield from (line.rstrip("\n") for line in sys.stdin if line.strip())


def _show(text: str, filled: "tuple[FilledMask, ...]") -> None:
    print(text)
    for mask in filled:
        print(f"  characters {mask.start}-{mask.end}")
        for candidate in mask.candidates:
            print(f"    {candidate.score:7.2%}  {candidate.token}")
