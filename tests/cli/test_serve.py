"""`alembert serve`: a sentence for each thing that can be wrong; what it serves is tested in tests/serve."""

from pathlib import Path

import pytest

from alembert.cli import run


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["."], "has no"),
        ([".", "."], "named twice"),
        ([".", "--port", "70000"], "`port` is 70000"),
        ([".", "--port", "x"], "--port"),
        ([".", "--host", "0.0.0.0"], "there is no token"),
        ([".", "--token-file", "nowhere"], "The token file nowhere cannot be read"),
        ([".", "--processes", "0"], "`--processes` is 0"),
        ([".", "--set", "max_texts=0"], "`max_texts` is 0"),
        ([".", "--set", "max_textss=3"], "max_texts"),
        ([], "Missing argument"),
    ],
)
def test_bad_arguments_are_one_sentence_and_exit_code_2(
    arguments: list[str],
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["serve", *arguments]) == 2
    shown, notes = capsys.readouterr()
    assert (shown, notes.count("\n")) == ("", 1)
    assert notes.startswith("error: ")
    assert part in notes
    assert list(tmp_path.iterdir()) == []


def test_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--set", "help"]) == 0
    assert "max_queue_seconds = 10.0" in capsys.readouterr().out
