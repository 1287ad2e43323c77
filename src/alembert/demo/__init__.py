"""The demo: a shipped model at work, then the whole chain on the embedded sample, each step saying what it did.

In: a folder. Out: steps as they are done, and in the folder everything that they made, with `demo.html`: one page that
needs nothing else. Every step works on what the steps before it left in the folder, as a user's own run would.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alembert.errors import TRAINING, BadFile, require

if TYPE_CHECKING:
    from alembert.demo.abstracts import AbstractsReport
    from alembert.inspect.comparison import ComparisonReport


@dataclass(frozen=True)
class DemoStep:
    """A step of the chain and what it did."""

    title: str
    lines: tuple[str, ...]
    commands: tuple[str, ...] = ()
    """What does the same from a shell."""
    seconds: float = 0.0
    comparison: ComparisonReport | None = None
    """The models side by side, of the step that compares them."""
    abstracts: AbstractsReport | None = None
    """What a shipped model found, of the step that annotates the abstracts."""

    def to_table(self) -> dict[str, Any]:
        """Return everything as plain values."""
        reports = {"comparison": self.comparison, "abstracts": self.abstracts}
        tables = {name: report.to_table() if report else None for name, report in reports.items()}
        return asdict(replace(self, comparison=None, abstracts=None)) | tables


@dataclass(frozen=True)
class DemoFolders:
    """Where the demo puts things."""

    out: Path

    @property
    def abstracts(self) -> Path:
        return self.out / "abstracts.jsonl"

    @property
    def abstracts_annotated(self) -> Path:
        """The abstracts with what a shipped model found."""
        return self.out / "abstracts-annotated"

    @property
    def raw(self) -> Path:
        return self.out / "sample.jsonl"

    @property
    def held_out(self) -> Path:
        """The texts of the test part, without their labels."""
        return self.out / "held-out.jsonl"

    @property
    def corpus(self) -> Path:
        return self.out / "corpus"

    @property
    def vocab(self) -> Path:
        return self.out / "vocab"

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint"

    @property
    def extended(self) -> Path:
        return self.out / "extended"

    @property
    def pretrained(self) -> Path:
        return self.out / "pretrained"

    @property
    def tagger(self) -> Path:
        return self.out / "tagger"

    @property
    def classifier(self) -> Path:
        return self.out / "classifier"

    @property
    def student(self) -> Path:
        return self.out / "student"

    @property
    def student_baseline(self) -> Path:
        """The same student, trained without its teacher."""
        return self.out / "student-without-distillation"

    @property
    def export(self) -> Path:
        return self.out / "int8"

    @property
    def annotated(self) -> Path:
        return self.out / "annotated"

    @property
    def page(self) -> Path:
        return self.out / "demo.html"

    def model(self, task: str) -> Path:
        """Where the model that was fine-tuned for a task is."""
        return {"tag": self.tagger, "classify": self.classifier}[task]

    def labelled(self, task: str, split: str) -> Path:
        """Where the examples of a task are."""
        return self.out / f"{task}-{split}.jsonl"

    def lexicon(self, label: str) -> Path:
        return self.out / f"{label}.tsv"

    def settings(self, what: str) -> Path:
        """Where the settings of a step are, for its command."""
        return self.out / f"{what}.toml"


def format_command(verb: str, *arguments: str | Path, **flags: str | Path | float) -> str:
    """Write a call of alembert for a shell, as a copy of what was done.

    >>> format_command("vocab learn", Path("my corpus"), size=1500, held_out=5)
    "alembert vocab learn 'my corpus' --size 1500 --held-out 5"
    """
    words = [str(argument) for argument in arguments]
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    return f"alembert {verb} {shlex.join(words)}"


__all__ = ["DemoFolders", "DemoStep", "run"]

require("The demo", *TRAINING, "onnx", "pyarrow")


def run(out: Path) -> Iterator[DemoStep]:
    """Run all steps, yielding each as it is done; the last one names the page and what to try next."""
    folders = _create_folders(out)
    done: list[DemoStep] = []
    for number, step in enumerate(_steps(), 1):
        done.append(_run_timed(number, step, folders))
        yield done[-1]
    yield _write_page(folders, done)


def _create_folders(out: Path) -> DemoFolders:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BadFile(f"The folder {out} cannot be made: {problem.strerror}. Choose another with --out.") from None
    return DemoFolders(out)


def _steps() -> list[Callable[[DemoFolders], DemoStep]]:
    from alembert.demo import text_steps as text
    from alembert.demo import text_steps as using
    from alembert.demo import training_steps as training
    from alembert.demo.abstracts import annotate_abstracts

    return [
        annotate_abstracts,
        *(text.machine, text.corpus, text.vocab, text.checkpoint, text.extend),
        *(training.pretrain, training.tagger, training.classifier, training.student),
        *(using.export, using.annotate, using.compare_side_by_side),
    ]


def _run_timed(number: int, step: Callable[[DemoFolders], DemoStep], folders: DemoFolders) -> DemoStep:
    start = time.perf_counter()
    done = step(folders)
    return replace(done, title=f"{number}. {done.title}", seconds=time.perf_counter() - start)


def _write_page(folders: DemoFolders, done: list[DemoStep]) -> DemoStep:
    from alembert.artifact import atomic_write
    from alembert.demo.page import render_demo_page

    shipped = next((step.abstracts.model for step in done if step.abstracts), None)
    next_commands = _next_commands(folders, shipped)
    atomic_write(folders.page, render_demo_page(folders, done, next_commands).encode())
    return DemoStep("The report, and what to try next", (f"open {folders.page} in a browser", *next_commands))


def _next_commands(folders: DemoFolders, shipped: str | None) -> tuple[str, ...]:
    corpus, model, test = folders.corpus, folders.pretrained, folders.labelled("tag", "test")
    text = "Tofacitinib inhibits JAK1 in rheumatoid arthritis."
    with_shipped = ("alembert models", format_command("predict", shipped, text)) if shipped else ()
    return (
        *with_shipped,
        format_command("corpus show", corpus, sample=2),
        format_command("vocab report", model, corpus),
        format_command("inspect tokens", model, "BRAF V600E-mutant melanoma"),
        format_command("inspect masks", corpus, model=model, unit="entity"),
        format_command("predict", folders.tagger, "Imatinib inhibits BCR-ABL1 in chronic myeloid leukemia."),
        format_command("inspect errors", folders.tagger, test),
        format_command("fill", model, "Aspirin inhibits [MASK] aggregation."),
    )
