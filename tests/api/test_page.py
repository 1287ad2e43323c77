"""What is generated in the documentation is up to date, and it uses nothing that is not public."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

import alembert

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(("script", "page"), [("api_page", "api.md"), ("design_page", "design.md")])
def test_pages_are_generated_from_the_docstrings(script: str, page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf8")
    assert load_script(script).page(text) == text, f"run .venv/bin/python scripts/{script}.py"


def test_tables_list_what_the_code_has() -> None:
    script = load_script("doc_tables")
    for name in script.TABLES:
        text = (ROOT / "docs" / name).read_text(encoding="utf8")
        assert script.page(name, text) == text, "run .venv/bin/python scripts/doc_tables.py"


def load_script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_import_from_alembert_alone(page: Path) -> None:
    text = page.read_text(encoding="utf8")
    inside = re.findall(r"^\s*(?:from|import) (alembert\.\S+)", text, re.MULTILINE)
    assert inside == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_nothing_of_alembert_that_is_not_public(page: Path) -> None:
    text = page.read_text(encoding="utf8")
    imported = re.findall(r"^\s*from alembert import (.+)$", text, re.MULTILINE)
    names = {*re.findall(r"\balembert\.(\w+)", text), *re.split(r"\W+", " ".join(imported))}
    assert names - {*alembert.__all__, ""} == set()


def test_every_public_name_has_a_docstring() -> None:
    bare = [name for name in alembert.__all__ if name != "__version__" and not getattr(alembert, name).__doc__]
    assert bare == []
