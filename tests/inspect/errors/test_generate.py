"""The error atlas of written texts."""

from pathlib import Path

from alembert.inspect.errors.generate import analyse_errors
from alembert.tasks.example import Coverage
from alembert.tasks.generate.data import GenerateExample, GenerateSettings
from alembert.tasks.generate.task import GeneratePrediction, GenerateTask, ScoredText
from scripted_models import scripted

MODEL = scripted(GenerateTask(GenerateSettings()), Path("titles"))
EXAMPLES = [
    GenerateExample(id=str(number), texts=("a source",), target=target)
    for number, target in enumerate(["a b c", "a b c", "a b c", None])
]


def prediction(text: str, cut: int = 0) -> GeneratePrediction:
    return GeneratePrediction(Coverage(tokens=9, cut_characters=cut), (ScoredText(text, -1.0, finished=True),))


FOUND = analyse_errors(
    MODEL, EXAMPLES, [prediction("a b"), prediction("d", cut=5), prediction("a b c"), prediction("e")]
)


def test_how_much_is_wrong_is_told() -> None:
    assert FOUND.summary == "rougeL is 0.600 over 3 texts; 1 share no word with the right one"


def test_the_furthest_apart_come_first_and_perfect_ones_are_no_cases() -> None:
    assert [(case.id, case.problem) for case in FOUND.cases] == [("1", "rougeL 0.00"), ("0", "rougeL 0.80")]


def test_cut_sources_are_apart() -> None:
    (table,) = (each for each in FOUND.tables if each.name == "by_cut")
    assert [(row[0], row[1]) for row in table.rows] == [("whole", 2), ("cut", 1)]
