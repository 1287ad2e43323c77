"""`alembert demo`: the chain on the embedded sample."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything that the demo makes.")] = Path("work/demo"),
) -> None:
    """Run the chain on the embedded sample and print what was done."""
    from alembert import demo as steps

    start = time.perf_counter()
    for step in steps.run(out):
        print(f"{step.title}", *(f"  {line}" for line in step.lines), "", sep="\n", flush=True)
    print(f"done in {time.perf_counter() - start:.0f} s", file=sys.stderr)
