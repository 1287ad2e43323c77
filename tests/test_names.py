"""A public class name occurs once in the package, and modules have a size that one reads in a sitting."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "alembert"
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 400
SHORTEST = 60
SHORT_FOLDERS = {"cli", "corpus/readers", "corpus/writers", "files/families", "inspect/errors"}
"""Folders with a module for each command, format, family or task, however short it is."""
SHORT: dict[str, str] = {
    "train/finetune/data_reports.py": "shared by fine-tuning and distillation",
}
"""Short modules that are not a part of another one, with the reason."""


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf8").splitlines())


def test_public_class_names_are_unique() -> None:
    modules = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(name_of(path))
    assert {name: places for name, places in modules.items() if len(places) > 1} == {}


def test_no_module_is_too_long() -> None:
    assert [name_of(path) for path in MODULES if lines_of(path) > LONGEST] == []


def test_short_modules_have_a_reason() -> None:
    short = {
        name_of(path)
        for path in MODULES
        if lines_of(path) < SHORTEST
        and path.name not in ("__init__.py", "__main__.py")
        and path.parent.relative_to(PACKAGE).as_posix() not in SHORT_FOLDERS
    }
    assert short == set(SHORT)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_docstrings_are_imperative(path: Path) -> None:
    """`Give`, `Say` and `Tell` say nothing that the name does not."""
    vague = [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and (ast.get_docstring(node) or "").split(" ")[0] in ("Give", "Say", "Tell")
    ]
    assert vague == []
