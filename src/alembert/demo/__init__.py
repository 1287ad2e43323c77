"""The demo: the whole chain on the embedded sample, step by step, each step saying what it did.

In: a folder. Out: steps as they are done, and in the folder everything that they made, with `demo.html`: one page that
needs nothing else. Every step works on what the steps before it left in the folder, as a user's own run would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from alembert.demo.step import Folders, Step, command
from alembert.errors import BadFile
from alembert.extras import TRAINING, require

__all__ = ["Folders", "Step", "run"]

require("The demo", *TRAINING, "onnx", "pyarrow")


def run(out: Path) -> Iterator[Step]:
    """Run all steps, yielding each as it is done; the last one names the page and what to try next."""
    folders = _made(out)
    done: list[Step] = []
    for number, step in enumerate(_steps(), 1):
        done.append(_timed(number, step, folders))
        yield done[-1]
    yield _report(folders, done)


def _made(out: Path) -> Folders:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BadFile(f"The folder {out} cannot be made: {problem.strerror}. Choose another with --out.") from None
    return Folders(out)


def _steps() -> list[Callable[[Folders], Step]]:
    from alembert.demo import text_steps as text
    from alembert.demo import training_steps as training
    from alembert.demo import using_steps as using

    return [
        *(text.machine, text.corpus, text.vocab, text.checkpoint, text.extend),
        *(training.pretrain, training.tagger, training.classifier, training.student),
        *(using.export, using.annotate, using.side_by_side),
    ]


def _timed(number: int, step: Callable[[Folders], Step], folders: Folders) -> Step:
    start = time.perf_counter()
    done = step(folders)
    return replace(done, title=f"{number}. {done.title}", seconds=time.perf_counter() - start)


def _report(folders: Folders, done: list[Step]) -> Step:
    """Write the page."""
    from alembert.artifact import atomic_write
    from alembert.demo.page import page

    next_ = _what_next(folders)
    atomic_write(folders.page, page(folders, done, next_).encode())
    return Step("The report, and what to try next", (f"open {folders.page} in a browser", *next_))


def _what_next(folders: Folders) -> tuple[str, ...]:
    corpus, model, test = folders.corpus, folders.pretrained, folders.labelled("tag", "test")
    return (
        command("corpus show", corpus, sample=2),
        command("vocab report", model, corpus),
        command("inspect tokens", model, "BRAF V600E-mutant melanoma"),
        command("inspect masks", corpus, model=model, unit="entity"),
        command("predict", folders.tagger, "Imatinib inhibits BCR-ABL1 in chronic myeloid leukemia."),
        command("inspect errors", folders.tagger, test),
        command("fill", model, "Aspirin inhibits [MASK] aggregation."),
    )
