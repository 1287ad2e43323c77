"""`alembert generate`: texts in, their continuations by a causal or prefix language model out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import LANGUAGE_MODEL_HELP, for_each_text, refuse_files
from alembert.infer.engines import open_torch_engine
from alembert.infer.language_model import GeneratedText, generate_batch, prompt_ids
from alembert.settings import drop_none
from alembert.tasks.generate.decoding import DecodeSettings
from alembert.terminal import escape_controls, note, print_json

if TYPE_CHECKING:
    from alembert.infer.engine_torch import TorchEngine


def generate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=LANGUAGE_MODEL_HELP)],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to continue; one per line on stdin if none.")
    ] = None,
    method: Annotated[str | None, typer.Option(metavar="NAME", help="greedy (if not given), sample or beam.")] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="New tokens at most; 128 if not given.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="sample: temperature; below 1 favours probable tokens.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="sample: draw from this many most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="sample: draw from the most probable tokens with this total probability.")
    ] = None,
    beams: Annotated[int | None, typer.Option(help="beam: number of beams; 4 if not given.")] = None,
    count: Annotated[int | None, typer.Option(help="sample, beam: texts for each prompt; 1 if not given.")] = None,
    seed: Annotated[int | None, typer.Option(help="sample: random seed; 0 if not given.")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="No n-gram of this many tokens may occur twice.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Continue texts with a causal or prefix language model."""
    options = {
        "method": method,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "beams": beams,
        "count": count,
        "seed": seed,
        "no_repeat_ngram": no_repeat_ngram,
    }
    refuse_files(texts or [], "generate")
    if continue_texts(model, texts or [], options, as_json):
        raise typer.Exit(SET_ASIDE)


def continue_texts(model: str, texts: Sequence[str], options: Mapping[str, Any], as_json: bool) -> int:
    """Continue texts, or the lines of stdin, many together; return how many lines were set aside."""
    settings = DecodeSettings(**drop_none(**options))
    engine = open_torch_engine(model)
    prompts: list[str] = []

    def take(text: str) -> None:
        prompt_ids(engine, text)
        prompts.append(text)

    set_aside = for_each_text(texts, take)
    _print_continuations(engine, prompts, settings, as_json)
    return set_aside


def _print_continuations(engine: TorchEngine, prompts: Sequence[str], settings: DecodeSettings, as_json: bool) -> None:
    """Print each continuation as soon as it is there."""
    texts = unfinished = 0
    for prompt, continuations in zip(prompts, generate_batch(engine, prompts, settings), strict=True):
        _show_continuations(prompt, continuations, as_json)
        texts += len(continuations)
        unfinished += sum(not generated.finished for generated in continuations)
    if unfinished:
        note(f"{unfinished} of {texts} texts reached the limit of new tokens before their end")


def _show_continuations(prompt: str, continuations: Sequence[GeneratedText], as_json: bool) -> None:
    if as_json:
        print_json({"prompt": prompt, "texts": [asdict(generated) for generated in continuations]})
        return
    for generated in continuations:
        print(escape_controls(generated.text), flush=True)
