"""The tasks by name; apart from the contract, so that `alembert --help` can list them and load nothing."""

from typing import Final

TASKS: Final = {
    "answer": "AnswerTask",
    "choose": "ChooseTask",
    "classify": "ClassifyTask",
    "compare": "CompareTask",
    "generate": "GenerateTask",
    "relate": "RelateTask",
    "tag": "TagTask",
}
"""Name, which is also the module in this folder -> class."""
