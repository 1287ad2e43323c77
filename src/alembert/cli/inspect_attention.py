"""`alembert inspect attention`: which tokens a model looks at, in every layer and head."""

from __future__ import annotations

from typing import Annotated

import typer

from alembert.charts import Chart
from alembert.cli.options import (
    DATA_PANEL,
    OUTPUT_PANEL,
    AsJson,
    Device,
    PictureFile,
    TaskName,
    check_picture,
    find_model,
    write_picture,
)
from alembert.errors import BadSetting
from alembert.infer.attention import AttentionMaps
from alembert.infer.predictor import Predictor
from alembert.infer.predictor_io import PredictorInput
from alembert.inspect.attention_page import (
    LEGEND,
    build_head_chart,
    build_heads_table,
    build_overview_chart,
    build_overview_table,
    build_tokens_table,
    render_attention_page,
)
from alembert.terminal import escape_controls, note, print_json, read_stdin


def attention(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A checkpoint folder, or hub:organisation/name.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text, or - to read it from stdin.")],
    *,
    pair: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="A second text: of a pair, or the passage of a question.", rich_help_panel=DATA_PANEL
        ),
    ] = None,
    task: TaskName = None,
    window: Annotated[
        int, typer.Option(metavar="N", help="Which window of a long text, from 1.", rich_help_panel=DATA_PANEL)
    ] = 1,
    layer: Annotated[
        int | None, typer.Option(metavar="N", help="One layer, from 1.", rich_help_panel=OUTPUT_PANEL)
    ] = None,
    head: Annotated[
        int | None, typer.Option(metavar="N", help="One head of the layer, from 1.", rich_help_panel=OUTPUT_PANEL)
    ] = None,
    out: PictureFile = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Show what the tokens of a text look at, in every layer and head of a model."""
    check_picture(out)
    if head is not None and layer is None:
        raise BadSetting(f"--head is {head}, and no layer was named. Add --layer N.")
    opened = Predictor(find_model(model), task=task, device=device)
    maps = opened.attention(_to_input(opened, read_stdin() if text == "-" else text, pair), window=window)
    maps.check_numbers(layer, head)
    if maps.windows > 1:
        note(f"the model reads the text in {maps.windows} windows; this is number {window} (--window)")
    if out is not None:
        write_picture(out, lambda: render_attention_page(maps, model, layer, head), lambda: [_chart(maps, layer, head)])
    if as_json:
        print_json(maps.to_dict(layer, head))
    else:
        _print(maps, layer, head)


def _to_input(model: Predictor, text: str, pair: str | None) -> PredictorInput:
    """Put texts together as the task reads them."""
    if pair is None:
        return text
    return {"question": text, "passage": pair} if model.tasks == ("answer",) else (text, pair)


def _chart(maps: AttentionMaps, layer: int | None, head: int | None) -> Chart:
    return build_overview_chart(maps) if layer is None or head is None else build_head_chart(maps, layer, head)


def _print(maps: AttentionMaps, layer: int | None, head: int | None) -> None:
    print(f"{len(maps.tokens)} tokens, {maps.layers} layers with {maps.heads} heads each")
    if layer is not None and head is not None:
        table = build_tokens_table(maps, layer, head)
    else:
        table = build_overview_table(maps) if layer is None else build_heads_table(maps, layer)
    for line in table.lines():
        print(escape_controls(line))
    if layer is None:
        print(LEGEND)
