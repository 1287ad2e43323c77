"""What the task `relate` tells from its training data: which label means no relation, and in sentences, what it found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from alembert.errors import BadInput, BadSetting
from alembert.tasks.classify_check import listed
from alembert.tasks.relate_example import Form, RelateExample
from alembert.tasks.relate_pairs import Rules
from alembert.tasks.relate_settings import RelateSettings

_NEGATIVE: Final = re.compile(r"0|none|no|norel(ation)?|na|nil|null|neg(ative)?|other|unrelated|.*false")
DOCUMENT_NEGATIVE: Final = "none"
"""What pairs of a document that have no relation are called, if nothing else is asked for."""


def form_of(examples: Sequence[RelateExample]) -> Form:
    """Tell how the entities are given, the same way in all examples."""
    first = examples[0].form
    other = next((each for each in examples if each.form != first), None)
    if other is not None:
        raise BadInput(
            f"{other.where} is {in_words(other.form)}, and {examples[0].where} is {in_words(first)}. Learn from one kind "
            "at a time."
        )
    return first


def in_words(form: Form) -> str:
    """Say what a form is."""
    return {
        "marked": "a sentence with two marked entities",
        "anonymised": "a sentence with words such as @GENE$ in the place of its entities",
        "document": "a document with entities",
        "plain": "a text without entities",
    }[form]


def negative_of(examples: Sequence[RelateExample], settings: RelateSettings) -> str | None:
    """Tell which label means that there is no relation."""
    if settings.negative != "auto":
        return settings.negative.strip() or None
    if examples[0].form == "document":
        return DOCUMENT_NEGATIVE
    labels = {link.label for example in examples for link in example.links or ()}
    fit = [label for label in labels if _NEGATIVE.fullmatch(re.sub(r"[\W_]", "", label).lower())]
    return fit[0] if len(fit) == 1 and len(labels) > 1 else None


def check_links(examples: Sequence[RelateExample]) -> None:
    """Refuse examples without any relation."""
    if any(example.links for example in examples):
        return
    if all(example.form == "document" and len(example.mentions) < 2 for example in examples):
        raise BadInput(
            "No document has two entities, so there is nothing to relate. Give documents with entities and relations; "
            "`alembert annotate TAGGER FILE` finds the entities."
        )
    raise BadInput("There are no relations to learn from. Check what was set aside, and why.")


def pairless_note(examples: Sequence[RelateExample], rules: Rules) -> Iterator[str]:
    """Say how many texts have no entities that could be related."""
    count = sum(example.form == "document" and not rules.fit(example.mentions) for example in examples)
    if count:
        types = f" ({_types(rules)})" if rules.is_typed else ""
        yield (
            f"{count:,} of {len(examples):,} texts have no two entities that this model relates{types}, so there is nothing "
            "to find in them. To have the entities found first, give a tagger before this model: alembert predict TAGGER "
            "MODEL TEXT, or alembert annotate TAGGER MODEL FILE."
        )


def check_negative(negative: str | None, labels: Sequence[str], settings: RelateSettings) -> None:
    """Refuse a label that was asked for and does not occur."""
    if settings.negative not in ("auto", "") and negative not in labels:
        raise BadSetting(
            f"`negative` of the task is {settings.negative!r}, and no training example has that label; they have "
            f"{listed(labels)}."
        )


def decisions_of(rules: Rules, labels: Sequence[str], form: Form, layout: str, main: str) -> Iterator[str]:
    """Say what was told from the data."""
    yield f"Each example is {in_words(form)} ({layout})." if layout else f"Each example is {in_words(form)}."
    if form == "document":
        yield from _pairs(rules)
    elif rules.forward == rules.types == (("", ""),):
        yield "The first entity always comes first in the text, so the marks tell no direction."
    relations = [label for label in labels if label != rules.negative]
    many = "relation" if len(relations) == 1 else "relations"
    yield f"{len(relations)} {many}: {listed(relations)}."
    if rules.negative is None:
        yield "No label means that there is no relation, so micro_f1 is over all of them and equals accuracy."
    else:
        yield f"The label {rules.negative} means that there is no relation; micro_f1 and macro_f1 are over the others."
    yield f"Models are chosen by {main}."


def _pairs(rules: Rules) -> Iterator[str]:
    what = "concepts, each two at their nearest mentions" if rules.by_concept else "entities"
    far = {None: "as far apart as a row is long", 0: "in one sentence"}.get(
        rules.distance, f"up to {rules.distance} sentences apart"
    )
    yield f"Pairs of {what}, {far}, of the types that are related in training: {_types(rules)}."
    if rules.forward:
        order = listed([f"{head} and {tail}" for head, tail in rules.forward])
        yield f"Their relations run in the order of the text, and so do the pairs: {order}."


def _types(rules: Rules) -> str:
    arrow = "to" if rules.directed else "and"
    return listed([f"{head} {arrow} {tail}" for head, tail in rules.types])
