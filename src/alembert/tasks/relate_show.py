"""Predictions of the task `relate` for programs (JSON) and for people (lines)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alembert.tasks.classify_decode import Answer
from alembert.tasks.relate_example import Mention, RelateExample
from alembert.tasks.relate_pairs import Candidate
from alembert.tasks.relate_scores import RelatePrediction


def record_of(example: RelateExample, prediction: RelatePrediction, negative: str | None) -> dict[str, Any]:
    """Give a prediction as a JSON object: of a marked pair what it is, of a document the relations in it."""
    brief = prediction.coverage.brief("cut_characters")
    if example.form == "document" or not prediction.pairs:
        found = [triple_of(example, *each) for each in related(prediction, negative)]
        return {"id": example.id, "text": example.text, "triples": found, "coverage": brief}
    triple = triple_of(example, prediction.pairs[0], prediction.answers[0])
    probabilities = dict(prediction.answers[0].probabilities)
    return {
        "id": example.id,
        "text": example.text,
        **triple,
        "probabilities": probabilities,
        "coverage": brief,
    }


def related(prediction: RelatePrediction, negative: str | None) -> Iterator[tuple[Candidate, Answer]]:
    """Give the pairs that have a relation, each once."""
    seen: set[tuple[int, int]] = set()
    for pair, answer in zip(prediction.pairs, prediction.answers, strict=True):
        place = (pair.head, pair.tail)
        if answer.label not in (None, negative) and place not in seen:
            seen.add(place)
            yield pair, answer


def triple_of(example: RelateExample, pair: Candidate, answer: Answer) -> dict[str, Any]:
    """Give a relation with its two entities."""
    return {
        "head": _entity(example, example.mentions[pair.head]),
        "relation": answer.label,
        "tail": _entity(example, example.mentions[pair.tail]),
        "score": answer.score,
    }


def _entity(example: RelateExample, mention: Mention) -> dict[str, Any]:
    found: dict[str, Any] = {
        "start": mention.start,
        "end": mention.end,
        "text": example.text[mention.start : mention.end],
    }
    if mention.type:
        found["label"] = mention.type
    return found | ({"concepts": list(mention.concepts)} if mention.concepts else {})


def lines_of(example: RelateExample, prediction: RelatePrediction, negative: str | None) -> list[str]:
    """Give a prediction as lines: the relation, how sure it is, and between what; of a marked pair also if it has none."""
    pairs = zip(prediction.pairs[:1], prediction.answers[:1], strict=True)
    shown = related(prediction, negative) if example.form == "document" else pairs
    return [line_of(triple_of(example, pair, answer)) for pair, answer in shown]


def line_of(triple: dict[str, Any]) -> str:
    """Give a relation as a line."""
    head, tail = (f"{side['text']} ({side['start']}-{side['end']})" for side in (triple["head"], triple["tail"]))
    said = "not read" if triple["score"] is None else f"{triple['score']:.2f}"
    return f"{triple['relation'] or '(none)'}  {said}  {head} -> {tail}"
