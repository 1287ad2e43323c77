"""`alembert models`: the models that ship with the package, and their cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from alembert.errors import BadSetting
from alembert.infer.bench import measure_words_per_second
from alembert.inspect.tables import Cell, Table
from alembert.models import ShippedModel, list_models
from alembert.terminal import escape_controls, note, print_json


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print the model card of this model instead of the list.")
    ] = None,
    speed: Annotated[bool, typer.Option(help="Measure the speed on this machine, about a second per model.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per model.")] = False,
) -> None:
    """List the models that ship with alembert: what they find, scores, size, speed on this machine, licence.

    Each opens by its name in every command and in `alembert.load`.
    """
    chosen = list_models() if name is None else [_find(name)]
    if name is not None and not as_json:
        print(*map(escape_controls, chosen[0].text.splitlines()), sep="\n")
        return
    speeds = {model.name: measure_words_per_second(model.folder) if speed else None for model in chosen}
    if as_json:
        for model in chosen:
            print_json({**model.to_dict(), "words_per_second": speeds[model.name]})
        return
    _print(chosen, speeds)


def _find(name: str) -> ShippedModel:
    by_name = {model.name: model for model in list_models()}
    if name not in by_name:
        raise BadSetting(f"No shipped model is called {name!r}; expected one of: {', '.join(by_name)}.")
    return by_name[name]


def _print(chosen: list[ShippedModel], speeds: dict[str, float | None]) -> None:
    for line in _table(chosen, speeds).lines():
        print(escape_controls(line))
    print()
    for model in chosen:
        print(escape_controls(f"{model.name}: {model.card['summary']} {model.card['license']}."))
    note("strict F1 on test files; `alembert models NAME` prints the model card")


def _table(chosen: list[ShippedModel], speeds: dict[str, float | None]) -> Table:
    corpora = list(dict.fromkeys(score["data"] for model in chosen for score in model.card["scores"]))
    header = ("model", "entities", *corpora, "MB", "words/s here")
    rows = tuple((*_cells(model, corpora), _rounded(speeds[model.name])) for model in chosen)
    return Table(name="models", title="Shipped models", header=header, rows=rows)


def _cells(model: ShippedModel, corpora: list[str]) -> Iterator[Cell]:
    f1: dict[str, Any] = {score["data"]: score["f1"] for score in model.card["scores"]}
    yield model.name
    yield ", ".join(model.card["types"])
    yield from (f"{100 * f1[corpus]:.1f}" if corpus in f1 else None for corpus in corpora)
    yield f"{model.size / 1e6:.1f}"


def _rounded(speed: float | None) -> int | None:
    return None if speed is None else int(round(speed, -2))
