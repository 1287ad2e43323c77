"""Models that find words by a pattern: answers depend on the text alone, and nothing is computed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alembert.tasks.tag.data import PredictedEntity, TagPrediction
from scripted_models import Scripted, tagger

WORDS = re.compile(r"(?P<Drug>[Aa]spirin|咳\w?)|(?P<Disease>(?:breast )?cancer)|(?P<Sign>[^\w\s]\S?)")


@dataclass(frozen=True)
class Finder(Scripted):
    """A tagger that finds the groups of a pattern, and fails on texts with the word `poison`."""

    poison: str = "poison"

    def say_all(self, examples: Sequence[Any]) -> list[Any]:
        if any(self.poison in example.text for example in examples):
            raise ValueError("a bug in the model")
        return [
            TagPrediction(found(example.text), replace(each.coverage))
            for example, each in zip(examples, self.encode(examples), strict=True)
        ]


def found(text: str) -> tuple[PredictedEntity, ...]:
    return tuple(
        PredictedEntity(match.start(), match.end(), str(match.lastgroup), 0.75) for match in WORDS.finditer(text)
    )


def finder(folder: Path, poison: str = "poison") -> Finder:
    """Make a tagger whose folder is there, as that of a real model is."""
    folder.mkdir(exist_ok=True)
    (folder / "task.json").write_text("{}")
    plain = tagger({}, types=("Drug", "Disease", "Sign"), folder=folder)
    return Finder(folder, plain.engine, plain.tasks, poison=poison)
