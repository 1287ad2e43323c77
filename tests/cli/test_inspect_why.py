"""`alembert inspect why`: the picture in the terminal, as JSON and as a page, of one model or of two."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from alembert.cli import run
from alembert.cli.inspect_models import parse_span
from alembert.errors import BadSetting

Show = Callable[..., str]
TEXT = "Patients with type 2 diabetes took metformin."
DOCS = Path(__file__).resolve().parents[2] / "docs" / "inspect.md"
COMMANDS = re.findall(r"^\$ alembert (inspect why bio .*)$", DOCS.read_text(encoding="utf8"), re.MULTILINE)


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    def call(*arguments: object) -> str:
        assert run(["inspect", "why", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return call


def test_lines_say_what_is_asked_and_how_faithful_the_picture_is(show: Show) -> None:
    lines = show("bio-fast", TEXT, "--span", "14:29").splitlines()
    assert lines[0].startswith('why 14:29 "type 2 diabetes" is Disease: margin ')
    assert lines[0].endswith(", by occlusion")
    assert "21-29  diabetes" in lines[1]
    assert "comprehensiveness, higher is better" in "\n".join(lines)


def test_json_is_one_object(show: Show) -> None:
    record = json.loads(show("bio-fast", TEXT, "--span", "14:29", "--json"))
    assert record["model"] == "bio-fast"
    assert record["explanation"]["span"] == [14, 29]


def test_two_models_stand_side_by_side(show: Show, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    record = json.loads(show("bio-fast", TEXT, "--against", "bio", "--out", page, "--json"))
    assert record["against"]["model"] == "bio"
    assert record["against"]["explanation"]["span"] == record["explanation"]["span"]
    assert page.read_text(encoding="utf8").count("<h2>bio") == 2
    assert page.stat().st_size < 2_000_000


def test_a_page_replaces_the_lines(show: Show, tmp_path: Path) -> None:
    assert show("bio-fast", TEXT, "--out", tmp_path / "why.html") == ""


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_picture_says_what_it_is_worth(suffix: str, show: Show, tmp_path: Path) -> None:
    picture = tmp_path / f"why.{suffix}"
    show("bio-fast", TEXT, "--span", "14:29", "--out", picture)
    content = picture.read_bytes()
    if suffix == "png":
        assert content.startswith(b"\x89PNG")
    else:
        text = content.decode()
        assert all(part in text for part in ("type 2 diabetes", ">diabetes</text>", "comprehensiveness", "margin"))


@pytest.mark.parametrize("span", ["9", "9:8", "a:b", "1:2:3"])
def test_a_span_has_two_ends(span: str) -> None:
    with pytest.raises(BadSetting, match="expected START:END"):
        parse_span(span)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_the_page_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(command)) == 0


def test_the_page_has_examples() -> None:
    assert COMMANDS
