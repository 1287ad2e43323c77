"""`alembert predict` with a fine-tuned model: what it reads and prints. Loaded with the command, since it loads torch."""

from collections.abc import Sequence

import typer

from alembert.cli.codes import SET_ASIDE
from alembert.cli.lines import each_line
from alembert.cli.output import print_json, visible
from alembert.errors import BadInput
from alembert.infer.task_model import TaskModel
from alembert.tasks.example import Example


def predict_texts(model: TaskModel, texts: Sequence[str], as_json: bool) -> None:
    """Predict the given texts, or each line of stdin if there are none."""
    lines: list[str] = list(texts)

    def check(line: str) -> None:
        model.task.check(model.task.of_texts([line]))
        lines.append(line)

    set_aside = 0 if texts else each_line(check)
    if not lines:
        raise BadInput("There is no text to predict. Give texts after the model, or one a line on stdin.")
    examples = model.task.of_texts(lines)
    model.task.check(examples)
    for example, prediction in zip(examples, model.predictions(examples), strict=True):
        if as_json:
            print_json(model.task.record(example, prediction))
        else:
            _show(model, example, prediction)
    if set_aside:
        raise typer.Exit(SET_ASIDE)


def _show(model: TaskModel, example: Example, prediction: object) -> None:
    print(visible(" | ".join(example.texts)))
    for line in model.task.show(example, prediction):
        print(f"  {visible(line)}", flush=True)
