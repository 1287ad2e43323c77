"""`alembert score`: texts in, how probable a language model finds them out."""

from __future__ import annotations

from typing import Annotated

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import LANGUAGE_MODEL_HELP, TEXTS_HELP, for_each_text, refuse_files
from alembert.infer.engines import open_torch_engine
from alembert.infer.language_model import TextScore, score_text
from alembert.terminal import escape_controls, print_json


def score(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=LANGUAGE_MODEL_HELP)],
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help=TEXTS_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text, with each token.")] = False,
) -> None:
    """Print how probable a language model finds each text: its log probability and perplexity.

    Exact for causal models; pseudo-log-likelihood (each token masked in turn) for masked ones.
    """
    refuse_files(texts or [], "score")
    engine = open_torch_engine(model)
    if for_each_text(texts or [], lambda text: _show_score(score_text(engine, text), as_json)):
        raise typer.Exit(SET_ASIDE)


def _show_score(scored: TextScore, as_json: bool) -> None:
    if as_json:
        print_json(scored.to_dict())
        return
    is_exact = scored.kind == "exact"
    name, measure = ("log probability", "perplexity") if is_exact else ("pseudo-log-likelihood", "pseudo-perplexity")
    print(escape_controls(scored.text))
    print(f"  {name} {scored.log_probability:.4f}  {measure} {scored.perplexity:.4f}", flush=True)
