"""`alembert inspect attention`, `neighbours` and `why`: look inside a model, or two side by side."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from alembert.charts import Chart
from alembert.cli.options import (
    MODEL_HELP,
    AsJson,
    Device,
    OneTask,
    PictureFile,
    TaskName,
    check_picture,
    data_option,
    find_model,
    output_option,
    write_picture,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.jobs import Progress
from alembert.errors import BadInput, BadSetting
from alembert.hub import model_folder
from alembert.infer.attention import AttentionMaps
from alembert.infer.engines import choose_device
from alembert.infer.explain.explain import choose_model_task, explain_decision
from alembert.infer.explain.result import Explanation, Method, render_explanations
from alembert.infer.neighbours import Neighbourhood, find_neighbours, read_sentences, read_terms
from alembert.infer.predictor import Predictor
from alembert.infer.predictor_io import PredictorInput, to_read_example
from alembert.infer.task_model import TaskModel
from alembert.inspect.attention_page import (
    LEGEND,
    build_head_chart,
    build_heads_table,
    build_overview_chart,
    build_overview_table,
    build_tokens_table,
    render_attention_page,
)
from alembert.inspect.neighbours_page import KINDS, build_map_chart, list_neighbours, render_neighbours_page
from alembert.inspect.row_charts import build_explanation_chart
from alembert.inspect.tables import Table
from alembert.terminal import ProgressBar, escape_controls, note, print_json, read_stdin


def attention(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A checkpoint folder, or hub:organisation/name.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text, or - to read it from stdin.")],
    *,
    pair: Annotated[
        str | None, data_option(metavar="TEXT", help="A second text: of a pair, or the passage of a question.")
    ] = None,
    task: TaskName = None,
    window: Annotated[int, data_option(metavar="N", help="Which window of a long text, from 1.")] = 1,
    layer: Annotated[int | None, output_option(metavar="N", help="One layer, from 1.")] = None,
    head: Annotated[int | None, output_option(metavar="N", help="One head of the layer, from 1.")] = None,
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
        _print_maps(maps, layer, head)


def _to_input(model: Predictor, text: str, pair: str | None) -> PredictorInput:
    """Put texts together as the task reads them."""
    if pair is None:
        return text
    return {"question": text, "passage": pair} if model.tasks == ("answer",) else (text, pair)


def _chart(maps: AttentionMaps, layer: int | None, head: int | None) -> Chart:
    return build_overview_chart(maps) if layer is None or head is None else build_head_chart(maps, layer, head)


def _print_maps(maps: AttentionMaps, layer: int | None, head: int | None) -> None:
    print(f"{len(maps.tokens)} tokens, {maps.layers} layers with {maps.heads} heads each")
    if layer is not None and head is not None:
        table = build_tokens_table(maps, layer, head)
    else:
        table = build_overview_table(maps) if layer is None else build_heads_table(maps, layer)
    for line in table.lines():
        print(escape_controls(line))
    if layer is None:
        print(LEGEND)


# -- neighbours

_MAX_LETTERS = 60
"""Letters of a sentence on a terminal."""


def neighbours(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A checkpoint folder, or hub:organisation/name.")],
    word: Annotated[str, typer.Argument(metavar="WORD", help="A word, or a term of several words.")],
    *,
    against: Annotated[
        str | None, data_option(metavar="MODEL", help="Another model, such as the one before it was adapted.")
    ] = None,
    lexicon: Annotated[
        Path | None, data_option(metavar="FILE", help="Terms to compare, one a line or a table.")
    ] = None,
    texts: Annotated[
        list[str] | None, data_option(metavar="FILE", help="Documents whose sentences are compared; may be repeated.")
    ] = None,
    top: Annotated[int, output_option(min=1, help="Neighbours to list.")] = 10,
    out: PictureFile = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """List the nearest tokens, terms and sentences of a word, in one model or in two side by side."""
    check_picture(out)
    folders = [model_folder(each) for each in (against, model) if each is not None]
    terms = [] if lexicon is None else read_terms(lexicon)
    sentences, set_aside = read_sentences(fetch_to_temporary_folder(texts)) if texts else ([], [])
    where = choose_device(folders, device)
    found = []
    for folder in folders:
        with ProgressBar(sys.stderr) as bar:

            def show(done: int, total: int, name: str = folder.name, bar: ProgressBar = bar) -> None:
                bar.show(Progress(f"reading with {name}", done, total))

            found.append(
                find_neighbours(folder, word, terms=terms, sentences=sentences, top=top, device=where, on_progress=show)
            )
    *before, after = found
    _write(after, before[0] if before else None, out, as_json=as_json)
    for reason in set_aside:
        note(reason)


def _write(after: Neighbourhood, before: Neighbourhood | None, out: Path | None, *, as_json: bool) -> None:
    models = [after] if before is None else [before, after]
    if out is not None:
        write_picture(
            out,
            lambda: render_neighbours_page(after, before),
            lambda: [build_map_chart(each, None if each is models[0] else models[0]) for each in models[::-1]],
        )
    if as_json:
        print_json({**after.to_dict(), "against": None if before is None else before.to_dict()})
    else:
        _print_neighbours(models)
    for each in models:
        for sentence in each.notes:
            note(f"{each.model}: {sentence}" if before is not None else sentence)


def _print_neighbours(models: list[Neighbourhood]) -> None:
    for kind, heading in KINDS.items():
        for own, other in zip(models, models[::-1], strict=True):
            rows = list_neighbours(kind, own, None if own is other else other)
            if rows:
                cells = tuple(
                    (
                        rank,
                        _shorten(each.text),
                        f"{each.similarity:.3f}",
                        "new" if is_new and own is models[-1] else "gone" if is_new else "",
                    )
                    for rank, each, is_new in rows
                )
                table = Table(name=kind, title=heading, header=("", heading, "cosine", ""), rows=cells)
                print(f"\n{own.model}")
                for line in table.lines():
                    print(escape_controls(line))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 1]}…"


# -- why

_SPAN = re.compile(r"(\d+):(\d+)")


def why(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="A text as for `alembert predict`: parts of a pair are separated by a tab. - for stdin.",
        ),
    ],
    *,
    span: Annotated[
        str | None, typer.Option(metavar="START:END", help="Characters of the entity or answer to explain.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME", help="Its type, or the label of the text.")] = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="gradients (Checkpoints alone, and there by default) or occlusion."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Explain the same answer of a second model beside it.")
    ] = None,
    task: OneTask = None,
    out: PictureFile = None,
    as_json: AsJson = False,
) -> None:
    """Show which words made a decision of a model, and how faithful that picture is."""
    check_picture(out)
    place, given = parse_span(span), read_stdin().strip("\n") if text == "-" else text
    explanations = [_explain(model, given, place, label, method, task)]
    if against is not None:
        explanations.append(_explain_same(explanations[0], against, given, method, task))
    if out is not None:
        write_picture(
            out,
            lambda: render_explanations(explanations),
            lambda: [build_explanation_chart(each) for each in explanations],
        )
    if as_json:
        first, *others = ({"model": each.model, "explanation": each.record()} for each in explanations)
        print_json({**first, "against": others[0]} if others else first)
    elif out is None:
        for each in explanations:
            print(*([each.model] if against is not None else []), *map(escape_controls, each.to_lines()), sep="\n")


def parse_span(span: str | None) -> tuple[int, int] | None:
    """Read START:END.

    >>> parse_span("0:8")
    (0, 8)
    """
    if span is None:
        return None
    match = _SPAN.fullmatch(span)
    if match is None or int(match[1]) >= int(match[2]):
        raise BadSetting(f"--span is {span!r}; expected START:END in characters, such as 0:8.")
    return int(match[1]), int(match[2])


def _explain(
    model: str, text: str, span: tuple[int, int] | None, label: str | None, method: str | None, task: str | None
) -> Explanation:
    opened, part = choose_model_task([TaskModel.open(find_model(model), task=task)], None)
    example = to_read_example(part.task, text, 1)
    chosen: Method | None = method  # type: ignore[assignment]
    return explain_decision(part, opened.engine, example, span=span, label=label, method=chosen, name=model)


def _explain_same(first: Explanation, model: str, text: str, method: str | None, task: str | None) -> Explanation:
    """Explain with a second model what was explained with the first; without the label if the second does not know it."""
    try:
        return _explain(model, text, first.span, first.label or None, method, task)
    except BadInput:
        return _explain(model, text, first.span, None, method, task)
