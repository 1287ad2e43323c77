"""Whether examples are what a task of the kind `classify` takes; a sentence with file and line if they are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from alembert.corpus.examples.labelled import LabelValue
from alembert.corpus.examples.records import parse_number
from alembert.errors import BadInput
from alembert.tasks.classify_example import ClassifyExample, as_kind, in_words, sides_of
from alembert.tasks.classify_settings import Kind


def check_form(examples: Sequence[ClassifyExample], *, is_document: bool, pairs: bool | None) -> None:
    """Refuse pairs among texts, texts among pairs, and documents where there should be none.

    A text without an answer may stand for a document: its sentences are found.
    """
    for example in examples:
        if not is_document:
            sides_of(example, pairs)
        elif example.golds and not example.is_document:
            raise BadInput(
                f"{example.line_of(0)} is a text on its own; this task reads documents of sentences with a label each. "
                "Read the data with `context` document under [task]."
            )


def check_answers(examples: Sequence[ClassifyExample], kind: Kind, labels: Sequence[str]) -> None:
    """Refuse right answers of another kind, and labels that are not known."""
    known = set(labels)
    for line, gold in answers_in(examples, kind):
        strange = next((name for name in _names(gold) if name not in known), None)
        if strange is not None:
            raise BadInput(
                f"{line} has the label {strange!r}, which this task does not know; it knows {listed(labels)}. Use data "
                "with the same labels, or fine-tune on all of them."
            )


def answers_in(examples: Sequence[ClassifyExample], kind: Kind) -> Iterator[tuple[str, LabelValue]]:
    """Give where each right answer stands and what it is, read as the kind; one of another kind is refused."""
    for example in examples:
        for place, gold in enumerate(example.golds):
            fitting = as_kind(gold, kind)
            if fitting is None:
                wanted = {"single": "one label", "multi": "a list of labels", "number": "a number"}[kind]
                raise BadInput(
                    f"{example.line_of(place)} has {in_words(gold)}, and this task expects {wanted}. Use data of the "
                    "same kind, or name the kind with `kind` under [task] when you fine-tune."
                )
            yield example.line_of(place), fitting


def check_differ(values: Sequence[float]) -> None:
    """Refuse numbers that are all the same: nothing can be learnt from them, nor compared with them."""
    if min(values) == max(values):
        raise BadInput(
            f"All examples have the number {values[0]:g}, so there is nothing to learn. Give data with different ones."
        )


def labels_of(golds: Sequence[LabelValue], kind: Kind) -> tuple[str, ...]:
    """List the labels, by value if they are numbers, else by name."""
    names = {name for gold in golds for name in _names(gold)}
    if len(names) < (1 if kind == "multi" else 2):
        found = f"All examples have the label {min(names)!r}" if names else "No example has a label"
        raise BadInput(f"{found}, so there is nothing to tell apart. Give data with at least two answers.")
    values = {name: parse_number(name) for name in names}
    return tuple(sorted(names, key=lambda name: (values[name] is None, values[name] or 0.0, name)))


def listed(labels: Sequence[str]) -> str:
    """Write out labels, the first twenty of many."""
    more = f" and {len(labels) - 20} more" if len(labels) > 20 else ""
    return ", ".join(labels[:20]) + more


def _names(gold: LabelValue) -> tuple[str, ...]:
    if isinstance(gold, float):
        return ()
    return gold if isinstance(gold, tuple) else (gold,)
