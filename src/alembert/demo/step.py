"""What a step of the demo leaves behind: folders on the disk, and a few lines about itself."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alembert.inspect.comparison import ComparisonReport


@dataclass(frozen=True)
class Step:
    """One link of the chain and what it did."""

    title: str
    lines: tuple[str, ...]
    commands: tuple[str, ...] = ()
    """What does the same from a shell."""
    seconds: float = 0.0
    comparison: ComparisonReport | None = None
    """The models side by side, of the step that compares them."""

    def to_table(self) -> dict[str, Any]:
        """Give everything as plain values."""
        compared = None if self.comparison is None else self.comparison.to_table()
        return asdict(replace(self, comparison=None)) | {"comparison": compared}


@dataclass(frozen=True)
class Folders:
    """Where the demo puts things."""

    out: Path

    @property
    def raw(self) -> Path:
        return self.out / "sample.jsonl"

    @property
    def held_out(self) -> Path:
        """The texts of the test part, without what is known about them."""
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
    def untaught(self) -> Path:
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


def command(verb: str, *arguments: str | Path, **flags: str | Path | float) -> str:
    """Write a call of alembert for a shell, as a copy of what was done.

    >>> command("vocab learn", Path("my corpus"), size=1500, held_out=5)
    "alembert vocab learn 'my corpus' --size 1500 --held-out 5"
    """
    words = [str(each) for each in arguments]
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    return f"alembert {verb} {shlex.join(words)}"
