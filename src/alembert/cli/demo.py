"""`alembert demo`: the chain on the embedded sample."""

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything that the demo makes.")] = Path("work/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per step.")] = False,
) -> None:
    """Run the chain on the embedded sample and print what was done."""
    from alembert import demo as steps
    from alembert.cli.output import print_json, visible

    start = time.perf_counter()
    print("running the chain on the embedded sample ...", file=sys.stderr)
    for step in steps.run(out):
        if as_json:
            print_json(asdict(step))
        else:
            print(step.title, *(f"  {visible(line)}" for line in step.lines), "", sep="\n", flush=True)
    print(f"done in {time.perf_counter() - start:.0f} s", file=sys.stderr)
