"""`alembert demo`: a shipped model on abstracts, then the chain on the embedded sample."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from alembert import demo as steps
from alembert.demo import DemoStep
from alembert.terminal import escape_controls, print_json, say


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything that the demo makes.")] = Path("work/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per step.")] = False,
) -> None:
    """Annotate abstracts with a shipped model, then run the whole chain on the embedded sample."""
    start = time.perf_counter()
    say("annotating abstracts, then running the chain on the embedded sample ...")
    for step in steps.run(out):
        if as_json:
            print_json(step.to_table())
        else:
            print(*_format_step(step), "", sep="\n", flush=True)
    say(f"done in {time.perf_counter() - start:.0f} s")


def _format_step(step: DemoStep) -> Iterator[str]:
    yield f"{step.title} ({step.seconds:.0f} s)" if step.seconds else step.title
    yield from (f"  {escape_controls(line)}" for line in step.lines)
    yield from (f"  $ {command}" for command in step.commands)
