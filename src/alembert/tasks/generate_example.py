"""Examples of the task `generate`: a source, and what is to be written for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alembert.corpus.examples.source_target import read_source_target_pairs
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadInput
from alembert.tasks.example import Example, Reading


@dataclass(frozen=True, kw_only=True)
class GenerateExample(Example):
    """A source, and perhaps its target."""

    target: str | None = None
    """What is to be written; none: not known."""

    @property
    def source(self) -> str:
        return self.texts[0]


def read_examples(files: Sequence[Path], options: ReadOptions) -> Reading[GenerateExample]:
    """Read files of pairs."""
    examples: list[GenerateExample] = []
    aside: list[SetAside] = []
    remarks: list[Remark] = []
    for path in files:
        found = read_source_target_pairs(path, options)
        aside += found.set_aside
        remarks += found.remarks
        examples += [
            GenerateExample(id=pair.id, texts=(pair.source,), where=pair.where, target=pair.target)
            for pair in found.pairs
        ]
    return Reading(tuple(examples), tuple(aside), tuple(remarks))


def texts_of(texts: Sequence[str], ids: Sequence[str] | None) -> list[GenerateExample]:
    """Make examples without targets."""
    names = ids or [f"text-{number}" for number in range(1, len(texts) + 1)]
    return [GenerateExample(id=name, texts=(text,)) for name, text in zip(names, texts, strict=True)]


def check_texts(examples: Sequence[GenerateExample]) -> None:
    """Refuse sources without a word."""
    for example in examples:
        if not example.source.strip():
            raise BadInput(f"{example.where or f'example {example.id}'} has no text to write for.")


def check_learnable(examples: Sequence[GenerateExample]) -> None:
    """Refuse training data that say nothing about what to write."""
    if all(example.target is None for example in examples):
        raise BadInput("There are no examples with a target to learn from. Check what was set aside, and why.")
