"""Explain a decision: choose what is asked, score the inputs, and measure how faithful that is.

A word is its pieces with their features; the features are also scored apart, so their scores are part of those of words.

**Occlusion** leaves out one input at a time; its score is what the margin loses. It needs no gradient, so it works on
Exports. **Gradients** are integrated from a text of masks without features to the text; steps are doubled until the scores
add up to the change of the margin within 1 % (completeness), and what is missing is reported as the residue.

**Faithfulness** is what becomes of the margin without the highest words, and with these alone: comprehensiveness and
sufficiency of DeYoung et al. (2020), on margins. Both are compared with those of random orders, which are the same in
every run, and for checkpoints with the order of attention: a picture that does no better than chance says nothing about
the decision. A word is left out with its features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from alembert.errors import BadInput, BadSetting
from alembert.infer.explain.inputs import DecisionInputs, InputUnit
from alembert.infer.explain.result import MAX_RESIDUE, Explanation, Faithfulness, FeatureScore, Method, WordScore
from alembert.infer.task_model import ModelTask, TaskEngine, TaskModel
from alembert.tasks.example import Example
from alembert.text.sentences import Span

METHODS: Final = ("gradients", "occlusion")
_FIRST_STEPS: Final = 16
_MAX_STEPS: Final = 1024


def explain_decision(
    part: ModelTask,
    engine: TaskEngine,
    example: Example,
    *,
    span: Span | None = None,
    label: str | None = None,
    method: Method | None = None,
    name: str = "",
    max_tokens: int | None = None,
) -> Explanation:
    """Explain an answer of a task; by default the one that the model is least sure of.

    A decision that needs more than `max_tokens` to be computed is refused.
    """
    inputs = find_inputs(part, engine, example, span, label)
    chosen = choose_method(part, engine, method)
    units = [*inputs.words, *inputs.features]
    evaluations = len(units) + count_evaluations(inputs.part.runner.gradients() is not None)
    if max_tokens is not None and evaluations * inputs.tokens > max_tokens:
        raise BadInput(
            f"The decision depends on {len(units):,} words and features in {inputs.tokens:,} tokens, which are "
            f"{evaluations * inputs.tokens:,} tokens to compute; at most {max_tokens:,} are allowed. Give a shorter text."
        )
    scores, residue, steps = integrate(inputs) if chosen == "gradients" else (occlude(inputs), None, None)
    words, features = scores[: len(inputs.words)], scores[len(inputs.words) :]
    return Explanation(
        model=name or str(part.saved.folder),
        texts=example.texts,
        question=inputs.question.sentence,
        span=inputs.question.span,
        label=inputs.question.label,
        method=chosen,
        margin=inputs.base.value,
        words=tuple(
            WordScore(unit.name, unit.start, unit.end, score, unit.text)
            for unit, score in zip(inputs.words, words, strict=True)
        ),
        features=_rank_features([unit.name for unit in inputs.features], features),
        residue=residue,
        steps=steps,
        faithfulness=measure_faithfulness(inputs, words),
        is_default=span is None and label is None,
    )


def estimate_tokens(part: ModelTask, engine: TaskEngine, example: Example) -> int:
    """Estimate what an explanation computes: the example once, and its longest row once for each of its tokens."""
    (encoded,) = part.task.encode([example], engine.tokenizer, engine.max_tokens)
    longest = max((row.length for row in encoded.rows), default=0)
    return encoded.tokens + longest * (longest + count_evaluations(has_attention=True))


def choose_model_task(models: Sequence[TaskModel], name: str | None) -> tuple[TaskModel, ModelTask]:
    """Return the task of a name, or the only one, with its model."""
    parts = [(model, part) for model in models for part in model.tasks.values() if name in (None, part.name)]
    if len(parts) != 1:
        names = ", ".join(part.name for model in models for part in model.tasks.values())
        raise BadSetting(f"The answers of one task are explained at a time; name it with `task`, one of: {names}.")
    return parts[0]


def choose_method(part: ModelTask, engine: TaskEngine, method: str | None) -> Method:
    """Check the method; by default gradients where the model has them."""
    has_gradients = part.runner.gradients() is not None
    if method not in (None, *METHODS):
        raise BadSetting(f"`method` is {method!r}; expected {' or '.join(METHODS)}.")
    if method == "gradients" and not has_gradients:
        raise BadSetting(
            f"The model is an Export ({engine.name}), which has no gradients. Use the method occlusion, or the Checkpoint "
            "that the Export was made of."
        )
    return "gradients" if has_gradients and method != "occlusion" else "occlusion"


def find_inputs(
    part: ModelTask, engine: TaskEngine, example: Example, span: Span | None, label: str | None
) -> DecisionInputs:
    """Predict, choose the answer to explain, and find what it depends on."""
    margins = part.task.margins()  # tasks without are refused before anything is computed
    (encoded,) = part.task.encode([example], engine.tokenizer, engine.max_tokens)
    if not encoded.rows:
        raise BadInput("The model reads nothing of this input, so there is no decision to explain.")
    with engine.lock:
        ((*outputs,),) = part.runner.outputs([encoded])
    question = margins.questions(example, encoded, outputs, span, label)[0]
    return DecisionInputs(part, engine, example, encoded, outputs, question)


def occlude(inputs: DecisionInputs) -> list[float]:
    """Score each input by what the margin loses without it."""
    units = [*inputs.words, *inputs.features]
    return [inputs.base.value - value for value in inputs.margins_without([unit] for unit in units)]


def integrate(inputs: DecisionInputs) -> tuple[list[float], float, int]:
    """Score each input by integrated gradients; return the scores, the residue and the steps."""
    gradients = inputs.part.runner.gradients()
    assert gradients is not None
    rows, baseline = [inputs.encoded.rows[number] for number in inputs.deciding_rows], inputs.baseline
    (without_all,) = inputs.margins_without([inputs.words])
    change = inputs.base.value - without_all
    steps = _FIRST_STEPS
    while True:
        with inputs.engine.lock:
            found = gradients.integrate(rows, baseline, lambda outputs: _gradient(inputs, outputs), steps)
        residue = abs(change - sum(float(part.sum()) for part in found)) / max(abs(change), 1e-6)
        if residue <= MAX_RESIDUE or steps >= _MAX_STEPS:
            return _share_out(inputs, found), residue, steps
        steps *= 2


def _gradient(inputs: DecisionInputs, outputs: Sequence[Any]) -> list[Any]:
    gradient = inputs.margin_of(outputs).gradient
    return [gradient[row] for row in inputs.deciding_rows]


def _share_out(inputs: DecisionInputs, found: Sequence[Any]) -> list[float]:
    """Add up what belongs to each input: to a word its pieces and their features."""
    of_row = dict(zip(inputs.deciding_rows, found, strict=True))

    def score(unit: InputUnit) -> float:
        columns = [1 + column for column in unit.columns] if unit.kind == "feature" else slice(None)
        return sum(float(of_row[row][list(tokens)][:, columns].sum()) for row, tokens in unit.cells.items())

    return [score(unit) for unit in (*inputs.words, *inputs.features)]


def _rank_features(names: Sequence[str], scores: Sequence[float]) -> tuple[FeatureScore, ...]:
    pairs = sorted(zip(names, scores, strict=True), key=lambda pair: -pair[1])
    return tuple(FeatureScore(name, score) for name, score in pairs)


# -- faithfulness

SHARES: Final = (0.05, 0.1, 0.2, 0.5)
"""Of the words, the highest first."""
RANDOM_ORDERS: Final = 5
_SEED: Final = 1

Order = Sequence[int]


def measure_faithfulness(inputs: DecisionInputs, scores: Sequence[float]) -> Faithfulness:
    """Compare the order of the scores of the words with random ones, and with that of attention if it is known."""
    random = np.random.default_rng(_SEED)
    orders: list[Order] = [_rank(scores), *(random.permutation(len(scores)).tolist() for _ in range(RANDOM_ORDERS))]
    attention = attention_scores(inputs)
    if attention is not None:
        orders.append(_rank(attention))
    sets = [units for order in orders for units in _left_out(inputs.words, order)]
    losses = inputs.base.value - np.array(list(inputs.margins_without(sets)))
    without_O, alone_O = losses.reshape(len(orders), 2, -1).mean(2).T
    chance = slice(1, 1 + RANDOM_ORDERS)
    return Faithfulness(
        comprehensiveness=float(without_O[0]),
        sufficiency=float(alone_O[0]),
        random_comprehensiveness=float(without_O[chance].mean()),
        random_sufficiency=float(alone_O[chance].mean()),
        attention_comprehensiveness=None if attention is None else float(without_O[-1]),
        attention_sufficiency=None if attention is None else float(alone_O[-1]),
    )


def count_evaluations(has_attention: bool) -> int:
    """Count how often the margin is computed."""
    return (1 + RANDOM_ORDERS + has_attention) * 2 * len(SHARES)


def attention_scores(inputs: DecisionInputs) -> list[float] | None:
    """Return how much the outputs that decide attend to each word; none: an Export."""
    gradients = inputs.part.runner.gradients()
    if gradients is None:
        return None
    rows = [inputs.encoded.rows[number] for number in inputs.deciding_rows]
    with inputs.engine.lock:
        found = gradients.attention(rows)
    per_row = {}
    for number, attention_PT in zip(inputs.deciding_rows, found, strict=True):
        changes = inputs.base.gradient[number]
        asked = (
            np.abs(changes).sum(1) > 0 if len(changes) == len(attention_PT) else np.ones(len(attention_PT), np.bool_)
        )
        per_row[number] = attention_PT[asked].mean(0)
    return [sum(float(per_row[row][list(tokens)].sum()) for row, tokens in word.cells.items()) for word in inputs.words]


def _rank(scores: Sequence[float]) -> list[int]:
    ranked: list[int] = np.argsort(-np.array(scores), kind="stable").tolist()
    return ranked


def _left_out(words: Sequence[InputUnit], order: Order) -> Iterator[list[InputUnit]]:
    """Yield what is left out for each share: the first words, then all but the first."""
    counts = [max(1, round(share * len(order))) for share in SHARES]
    yield from ([words[number] for number in order[:count]] for count in counts)
    yield from ([words[number] for number in order[count:]] for count in counts)
