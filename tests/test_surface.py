"""The surface: public names, commands and their docs pages, exit codes, and documentation that runs."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import alembert
from alembert import COMMANDS
from alembert.cli import app, run
from shared_folders import SharedFolders

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# What is added to a command of the documentation, for its training to end after a few steps.
SHORTER = {"pretrain": ["--tokens", "2k"], "distill": ["--epochs", "1"], "finetune": ["--epochs", "1"]}


def blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf8"), re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def shortened(arguments: list[str]) -> list[str]:
    """The same command, whose training ends after a few steps."""
    if any(word.startswith("steps=") for word in arguments):
        return ["steps=2" if word.startswith("steps=") else word for word in arguments]
    return [*arguments, *SHORTER.get(arguments[0], [])]


def command_lines(page: Path) -> list[list[str]]:
    """The `alembert` calls of a page that name no placeholder such as MODEL."""
    text = "\n".join(blocks(page, "") + blocks(page, "console"))
    lines = re.findall(r"^(?:\$ )?(?:\.venv/bin/)?alembert ([^#\n]*)", text, re.MULTILINE)
    calls = [shlex.split(line) for line in lines]
    return [call for call in calls if not any(re.fullmatch(r"\[.*|[A-Z_]{3,}", word) for word in call)]


@pytest.fixture(scope="session")
def demo_folder(shared_folders: SharedFolders) -> Path:
    """What the demo leaves behind, made in a few steps."""
    from short_demo import run_short_demo

    return shared_folders.make("demo", run_short_demo)


@pytest.fixture
def playground(tmp_path: Path, demo_folder: Path) -> Path:
    """A folder in which the demo has run, as the README's reader has it; fresh for each test."""
    shutil.copytree(demo_folder, tmp_path / "work/demo")
    (tmp_path / "abstracts.jsonl").write_text('{"id": "1", "text": "No fever."}\n')
    return tmp_path


def alembert_command(*arguments: str, cwd: Path | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "alembert", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False, **options)


def test_public_names_are_exactly_those_of_the_reference() -> None:
    """docs/api.md is generated, so that a name cannot become public unseen."""
    listed = re.findall(r"^### `(?:alembert\.)?(\w+)`", (ROOT / "docs/api.md").read_text(encoding="utf8"), re.MULTILINE)
    assert dir(alembert) == sorted(alembert.__all__) == sorted([*listed, "__version__"])
    assert all(getattr(alembert, name) is not None for name in alembert.__all__)


def test_the_version_has_one_value() -> None:
    assert f'version = "{alembert.__version__}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_a_docs_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"alembert {name}" in capsys.readouterr().out
    assert f"alembert {name}" in (ROOT / f"docs/{name}.md").read_text(encoding="utf8")
    assert f"({name}.md)" in (ROOT / "docs/index.md").read_text(encoding="utf8")


def test_the_help_of_a_verb_loads_no_torch() -> None:
    calls = "; ".join(f"run([{name!r}, '--help'])" for name in COMMANDS)
    check = f"import sys; from alembert.cli import run; {calls}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=60)


def test_help_loads_neither_torch_nor_numpy_nor_rich() -> None:
    heavy = "{'torch', 'numpy', 'rich', 'tokenizers', 'transformers'}"
    check = f"import sys; from alembert.cli import run; run(['--help']); sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["predict"], "Missing"),
        (["predict"], "See `alembert predict --help`."),
        (["corpus", "build", "--nonsense"], "See `alembert corpus build --help`."),
        (["nonsense"], "See `alembert --help`."),
        (["fill", "nowhere", "x", "--tpo", "3"], "--tpo"),
        (["fill", "nowhere", "x", "--top", "zero"], "--top"),
        (["fill", "nowhere", "a [MASK]"], "There is no folder nowhere"),
        (["convert", "nowhere", "--out", "new"], "There is no folder nowhere"),
        (["inspect", "tokens", "nowhere", "text"], "nowhere"),
    ],
)
def test_a_bad_command_line_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    shown, notes = capsys.readouterr()
    assert shown == ""
    assert notes.startswith("error: ")
    assert sentence in notes
    assert notes.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_bad_command_line_ends_the_process_with_its_exit_code(tmp_path: Path) -> None:
    result = alembert_command("fill", "nowhere", "a [MASK]", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_lines_that_cannot_be_used_are_named_and_the_rest_goes_on(playground: Path) -> None:
    arguments = ["fill", "work/demo/checkpoint", "--json"]
    lines = "Aspirin [MASK]\nno mask\n\n\u5496[MASK]\n"
    result = alembert_command(*arguments, cwd=playground, input=lines)
    assert result.returncode == 3
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == [
        "Aspirin [MASK]",
        "\u5496[MASK]",
    ]
    assert "line 2 set aside" in result.stderr


@pytest.mark.parametrize("command", [["fill"], ["inspect", "tokens"]], ids=lambda c: c[0])
@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["text", "json"])
def test_a_terminal_without_utf8_gets_escapes(
    command: list[str], json_flag: list[str], playground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(playground)
    monkeypatch.setattr(sys, "argv", ["alembert", *command, "work/demo/checkpoint", "\u5496[MASK]", *json_flag])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict"))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command line has its own, until the end
    assert run() == 0
    assert b"\\u5496" in sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_process_without_utf8_writes_escapes(playground: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "NO_COLOR": "1"}
    result = alembert_command(
        "inspect", "tokens", "work/demo/checkpoint", "\u5496[MASK]", cwd=playground, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "\\u5496" in result.stdout


def test_stdin_that_is_not_utf8_is_a_sentence(
    playground: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(playground)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff[MASK]"), encoding="utf8"))
    assert run(["fill", "work/demo/checkpoint"]) == 2
    assert "not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["/proc/nowhere", "/dev/full"])
def test_an_impossible_folder_is_a_sentence(out: str) -> None:
    result = alembert_command("demo", "--out", out)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_the_whole_demo_runs(tmp_path: Path) -> None:
    result = alembert_command("demo", "--out", "demo", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "demo/demo.html").is_file()


def test_the_page_of_the_demo_fetches_and_runs_nothing(demo_folder: Path) -> None:
    page = (demo_folder / "demo.html").read_text(encoding="utf8")
    assert re.findall(r"https?:|<script|<link|<img|<iframe|@import|url\(|\bsrc=|\bhref=(?!\"#)", page) == []


@pytest.mark.parametrize("name", ["teacher", "student", "student without distillation", "student, int8"])
def test_the_page_of_the_demo_has_every_model_with_score_size_and_speed(name: str, demo_folder: Path) -> None:
    page = (demo_folder / "demo.html").read_text(encoding="utf8")
    row = re.search(rf"<tr><td[^>]*>{name}</td>(.*?)</tr>", page)
    assert row is not None
    assert len(re.findall(r"<td[^>]*>[^<]*\d[^<]*</td>", row[1])) == 7


def test_the_commands_of_the_demo_are_commands(demo_folder: Path) -> None:
    page = (demo_folder / "demo.html").read_text(encoding="utf8")
    lines = [line for block in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL) for line in block.splitlines()]
    assert len(lines) > 15
    for line in lines:
        _, *words = shlex.split(unescape(line))
        parse(words)


def parse(words: list[str]) -> None:
    """Let the command line understand words, and do nothing; what it does not understand is raised."""
    command: Any = get_command(app)
    context: Any = None
    while hasattr(command, "commands"):
        context = command.make_context("alembert", list(words), parent=context, resilient_parsing=True)
        command, words = command.commands[words[0]], words[1:]
    command.make_context("alembert", list(words), parent=context)


def test_the_same_command_again_has_nothing_to_do(
    playground: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(playground)
    commands = [
        ["vocab", "learn", "work/demo/corpus", "--size", "1500", "--out", "work/learnt"],
        ["corpus", "build", "abstracts.jsonl", "--out", "work/corpus"],
    ]
    for command in commands:
        assert run(command) == 0
        assert "already complete" not in capsys.readouterr().err
        assert run(command) == 0
        assert "already complete" in capsys.readouterr().err


def test_no_command_shows_the_help_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Usage: alembert" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error(playground: Path) -> None:
    line = f"{shlex.quote(sys.executable)} -m alembert doctor | true; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", line], cwd=playground, capture_output=True, text=True, check=True)
    assert result.stdout == "0\n"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_documentation_runs(page: Path, playground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(playground)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)
    assert not blocks(page, "python") or names


@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)], ids=lambda page: page.name)
def test_commands_in_the_documentation_run(
    page: Path, playground: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(playground)
    for arguments in command_lines(page):
        parse(arguments)
        code = run(shortened(arguments))
        shown, notes = capsys.readouterr()
        assert code == 0, notes
        assert shown
        if "--json" in arguments:
            assert json.loads(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_in_the_documentation_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
