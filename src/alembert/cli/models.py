"""The models that commands are given: a folder or `hub:organisation/name`, and what a foreign folder is taken for."""

from __future__ import annotations

from pathlib import Path

from alembert.terminal.output import note

MODEL = "A checkpoint or Export folder, or hub:organisation/name."
"""Help of an argument that is a fine-tuned model."""
LANGUAGE_MODEL = "A checkpoint folder with a language-model head, or hub:organisation/name."
"""Help of an argument that is a model before fine-tuning."""


def find_model(model: str | Path) -> Path:
    """Return the folder of a fine-tuned model; say what it is taken for if it was fine-tuned by another program."""
    from alembert.hub import model_folder
    from alembert.tasks.files import describe_inferred_task

    folder = model_folder(model)
    if remark := describe_inferred_task(folder, str(model)):
        note(remark)
    return folder
