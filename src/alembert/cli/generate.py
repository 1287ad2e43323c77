"""`alembert predict --generate`: what it reads and prints. Loaded with the command, since it loads numpy."""

from collections.abc import Sequence
from dataclasses import asdict

import typer

from alembert.cli.codes import SET_ASIDE
from alembert.cli.lines import each_line
from alembert.cli.output import note, print_json, visible
from alembert.infer.generate import CausalEngine, GeneratedText, generate_batch, prompt_ids
from alembert.tasks.decoding.settings import DecodeSettings


def continue_lines(engine: CausalEngine, settings: DecodeSettings, as_json: bool) -> None:
    """Continue each line of stdin, many together."""
    prompts: list[str] = []

    def check(line: str) -> None:
        prompt_ids(engine, line)
        prompts.append(line)

    set_aside = each_line(check)
    continue_texts(engine, prompts, settings, as_json)
    if set_aside:
        raise typer.Exit(SET_ASIDE)


def continue_texts(
    engine: CausalEngine, prompts: Sequence[str], settings: DecodeSettings, as_json: bool
) -> None:
    """Continue texts and print each as soon as it is there."""
    texts = unfinished = 0
    for prompt, found in zip(prompts, generate_batch(engine, prompts, settings), strict=True):
        _show(prompt, found, as_json)
        texts += len(found)
        unfinished += sum(not generated.finished for generated in found)
    if unfinished:
        note(f"{unfinished} of {texts} texts reached the limit of new tokens before their end")


def _show(prompt: str, found: tuple[GeneratedText, ...], as_json: bool) -> None:
    if as_json:
        print_json({"prompt": prompt, "texts": [asdict(generated) for generated in found]})
        return
    for generated in found:
        print(visible(generated.text), flush=True)
