"""What commands and functions say on stderr: nothing that a terminal would obey."""

import ast
import warnings
from pathlib import Path

import pytest

from alembert.cli import _prepare_streams, run
from alembert.terminal import say

PACKAGE = Path(__file__).parent.parent.parent / "src" / "alembert"
SPEAKING = [
    PACKAGE / "terminal.py",
    *(path for part in ("api", "cli") for path in sorted((PACKAGE / part).glob("*.py"))),
]
HOSTILE = "a\x1b[2J\x07\u202e\r\nerror: b\udcff"
VISIBLE = r"a\x1b[2J\x07\u202e\r\nerror: b\udcff"


def test_a_line_stays_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    assert capsys.readouterr().err == f"{VISIBLE}\n"


@pytest.mark.parametrize(
    "arguments",
    [["predict", HOSTILE, "text"], ["evaluate", HOSTILE, "x"], [HOSTILE], ["predict", f"--{HOSTILE}"]],
    ids=["a path", "another", "a command", "an option"],
)
def test_an_error_shows_escapes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert r"a\x1b[2J" in said
    assert said.count("\n") == 1
    assert said[:-1].isprintable()


def test_a_warning_shows_escapes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    _prepare_streams()
    warnings.showwarning(UserWarning(HOSTILE), UserWarning, "file.py", 1)
    assert capsys.readouterr().err == f"note: {VISIBLE}\n"


@pytest.mark.parametrize("path", SPEAKING, ids=lambda path: path.stem)
def test_only_one_function_prints_on_stderr(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text("utf8"))) if isinstance(node, ast.Call)]
    named = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    aimed = [node.lineno for node in named if any(each.arg == "file" for each in node.keywords)]
    assert len(aimed) == (1 if path.stem == "terminal" else 0), aimed
