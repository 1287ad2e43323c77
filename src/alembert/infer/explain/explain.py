"""Explain a decision: choose what is asked, score the inputs by gradients or by occlusion, and measure the picture.

A word is its pieces with their features; the features are also scored apart, so their scores are part of those of words.

**Occlusion** leaves out one input at a time; its score is what the margin loses. It needs no gradient, so it works on
Exports. **Gradients** are integrated from a text of masks without features to the text; steps are doubled until the scores
add up to the change of the margin within 1 % (completeness), and what is missing is reported as the residue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from alembert.errors import BadInput, BadSetting
from alembert.infer.explain.faithfulness import count_evaluations, measure_faithfulness
from alembert.infer.explain.inputs import DecisionInputs, InputUnit
from alembert.infer.explain.result import MAX_RESIDUE, Explanation, FeatureScore, Method, WordScore
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
