"""Arguments of a wrong type are refused with a sentence, whichever public function they are given to."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alembert
from alembert.api.documents import check_arguments

PLAIN = ("str", "str | None", "int", "int | None", "float | None", "bool")
VERBS: list[Callable[..., Any]] = [
    alembert.annotate,
    alembert.distill,
    alembert.embed,
    alembert.evaluate,
    alembert.export,
    alembert.fill,
    alembert.finetune,
    alembert.generate,
    alembert.load,
    alembert.pretrain,
    alembert.read,
    alembert.score,
    alembert.write,
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_plain_argument_is_checked(verb: Callable[..., Any]) -> None:
    parameters = signature(verb).parameters.values()
    required = {each.name: "none" for each in parameters if each.default is each.empty}
    required = {name: value for name, value in required.items() if name not in ("models", "options")}
    plain = [each for each in parameters if each.annotation in PLAIN]
    for each in plain:
        with pytest.raises(alembert.UserError, match=f"`{each.name}` is a object; expected"):
            verb(**{**required, each.name: object()})


def test_numbers_of_numpy_are_numbers_and_truth_values_are_not() -> None:
    @check_arguments
    def run(share: "float | None" = None, count: "int" = 1) -> "tuple[Any, Any]":
        return share, count

    assert run(np.float32(0.5), count=np.int64(3)) == (0.5, 3)  # type: ignore[arg-type]
    assert run(1) == (1, 1)
    for wrong in ({"share": True}, {"count": True}, {"count": 1.5}, {"count": None}, {"share": "1"}):
        with pytest.raises(alembert.UserError):
            run(**wrong)  # type: ignore[arg-type]


def test_any_number_of_arguments_is_left_to_the_function() -> None:
    @check_arguments
    def run(*models: "Path", task: "str | None" = None) -> int:
        return len(models)

    assert run(Path("one"), Path("two"), task="tag") == 2
    with pytest.raises(alembert.UserError, match="`task` is a"):
        run(Path("one"), task=Path("two"))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 5, [], {}, b"x", object(), "a\0b", ""])
def test_models_and_inputs_are_paths(wrong: Any, tmp_path: Path) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: alembert.annotate(wrong, tmp_path, out=tmp_path / "out"),
        lambda: alembert.evaluate(wrong, tmp_path),
        lambda: alembert.load(wrong),
        lambda: alembert.export(wrong, out=tmp_path / "out"),
        lambda: alembert.open(wrong),
    ]
    for call in calls:
        with pytest.raises(alembert.UserError):
            call()


@pytest.mark.parametrize("wrong", [5, {"text": 1}, [5], b"text"])
def test_columns_are_names(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(alembert.UserError, match="name of a column"):
        alembert.finetune("classify", model=tmp_path, train=tmp_path, text=wrong, out=tmp_path / "out")


@pytest.mark.parametrize("wrong", [5, "gene.tsv", ["gene.tsv"]])
def test_lexicons_have_labels(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(alembert.UserError, match="`lexicons` is a"):
        alembert.annotate(tmp_path, tmp_path, lexicons=wrong, out=tmp_path / "out")
