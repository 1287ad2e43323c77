"""Imports point one way, and light entry points stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "alembert"
EVERYONE = {"errors", "artifact", "hardware", "settings", "html", "charts", "hub"}
MAY_IMPORT = {
    "errors": set(),
    "artifact": {"errors", "settings"},
    "hardware": {"errors", "artifact"},
    "sample": EVERYONE,
    "text": EVERYONE,
    "workers": EVERYONE,
    "corpus": EVERYONE | {"text", "workers"},
    "nn": EVERYONE,
    "files": EVERYONE | {"nn", "text"},
    "settings": {"errors"},
    "html": set(),
    "charts": {"html"},
    "hub": {"errors", "models"},
    "models": set(),
    "data": EVERYONE | {"text", "corpus"},
    "tasks": EVERYONE | {"nn", "data", "text", "corpus"},
    "train": EVERYONE | {"nn", "data", "tasks", "files", "corpus", "text"},
    "compress": EVERYONE | {"nn", "files", "data", "tasks"},
    "infer": EVERYONE | {"text", "workers", "corpus", "data", "tasks", "sample", "models"},
    "inspect": EVERYONE | {"infer", "nn", "text", "corpus", "data", "tasks"},
    "serve": EVERYONE | {"infer", "inspect", "corpus"},
    "terminal": {"errors", "workers", "corpus", "train"},
}
NO_TORCH = {
    "errors",
    "artifact",
    "settings",
    "html",
    "charts",
    "hub",
    "models",
    "text",
    "workers",
    "corpus",
    "data",
    "sample",
    "serve",
    "terminal",
    "cli",
}
ONLY_HERE = {"infer/engine_torch.py": {"files", "nn"}}
"""Modules that may import more than their part."""
MAY_IMPORT["api"] = {*MAY_IMPORT}
LAYERS_WITHOUT_LIMIT = {"cli", "demo", "spacy_component", "__init__", "__main__"}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: use absolute imports"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    modules = imported_modules(path)
    ours = {name.split(".")[1] for name in modules if name.startswith("alembert.")}
    if part not in LAYERS_WITHOUT_LIMIT:
        assert part in MAY_IMPORT, f"{part} is a new part: give it a place in MAY_IMPORT"
        extra = ONLY_HERE.get(path.relative_to(PACKAGE).as_posix(), set())
        assert ours - {part, "__version__"} <= MAY_IMPORT[part] | extra
    if part in NO_TORCH:
        assert not {name for name in modules if name.split(".")[0] == "torch"}


def test_transformers_is_a_test_dependency() -> None:
    users = [p for p in PACKAGE.rglob("*.py") if any(m.startswith("transformers") for m in imported_modules(p))]
    assert users == []


@pytest.mark.parametrize(
    "statement",
    ["import alembert", "from alembert.cli import run; run(['--help'])", "from alembert import Tokenizer"],
)
def test_light_entry_points_load_no_torch(statement: str) -> None:
    check = f"import sys; {statement}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)
