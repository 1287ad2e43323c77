"""What entities of each type are called: in the examples, or in lexicons of the user.

In: the examples of a task and lexicons, whose labels are types of the task. Out: for an entity another name of its type.
A type that has a lexicon takes names from it alone; inverted names ("Leukemia, Myeloid, Acute") are turned round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alembert.errors import BadSetting
from alembert.tasks.rewriting import Rewriter
from alembert.tasks.task import AnyTask
from alembert.text.lexicon import Lexicon, list_spellings


@dataclass(frozen=True)
class EntityNames:
    """Names by type, in the order of the alphabet."""

    names: Mapping[str, Sequence[str]]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, task: AnyTask, rewriter: Rewriter[Any], examples: Sequence[Any], lexicons: Sequence[Lexicon]
    ) -> EntityNames:
        """Gather the names of entities; refuse a task without entities, and a lexicon of a type that it has not."""
        found: dict[str, set[str]] = {}
        for example in examples:
            for text, entities in zip(example.texts, rewriter.entities(example), strict=True):
                for start, end, label in entities:
                    found.setdefault(label, set()).add(text[start:end])
        if not found:
            raise BadSetting(
                f"The examples of the task {task.name} have no entities that could be replaced as a whole. "
                "Leave --entities and --dictionary out."
            )
        given = _of_lexicons(lexicons, sorted(found))
        names = {label: sorted(given.get(label, own)) for label, own in found.items()}
        notes = [
            f"entities of type {label} are all called the same, so that none is replaced as a whole"
            for label, listed in sorted(names.items())
            if len(listed) < 2
        ]
        return cls(names, tuple(notes))

    def other(self, label: str, name: str, chance: float) -> str | None:
        """Choose by a number from 0 to 1 a name of a type that is not this one; none: there is none."""
        listed = self.names[label]
        at = bisect_left(listed, name)
        is_listed = at < len(listed) and listed[at] == name
        count = len(listed) - is_listed
        chosen = int(chance * count)
        return listed[chosen + (is_listed and chosen >= at)] if count else None


def _of_lexicons(lexicons: Sequence[Lexicon], types: Sequence[str]) -> dict[str, set[str]]:
    named: dict[str, set[str]] = {}
    known = {label.casefold(): label for label in types}
    for lexicon in lexicons:
        if lexicon.label.casefold() not in known:
            raise BadSetting(
                f"The dictionary {lexicon.path} is of the type {lexicon.label!r}; the entities of the examples are "
                f"{', '.join(types)}. Write --dictionary TYPE=FILE with one of them."
            )
        terms = {list_spellings(term)[-1] for term, _ in lexicon.terms}
        named.setdefault(known[lexicon.label.casefold()], set()).update(terms)
    return named
