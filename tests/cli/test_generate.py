"""`alembert generate`: what it prints, and a sentence for each thing that can be wrong."""

import io
import json
from pathlib import Path

import pytest

from alembert.cli import run
from small_checkpoints import language_model


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return language_model(tmp_path_factory.mktemp("generate") / "causal", "causal")


def test_texts_are_continued(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", causal, "床前", "月", "--max-new-tokens", "3"]) == 0
    out, err = capsys.readouterr()
    assert out == "床前光光光\n月光光光\n"
    assert err == "note: 2 of 2 texts reached the limit of new tokens before their end\n"


def test_json_holds_every_text(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--method",
        "beam",
        "--beams",
        "3",
        "--count",
        "2",
        "--max-new-tokens",
        "2",
        "--no-repeat-ngram",
        "2",
    ]
    assert run(["generate", causal, "床", *options, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["prompt"] == "床"
    assert record["texts"][0] == {**record["texts"][0], "text": "床光光", "ids": [9, 9], "finished": False}
    assert len(record["texts"]) == 2


def test_samples_come_back_with_their_seed(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--method", "sample", "--temperature", "20", "--top-k", "4", "--top-p", "0.9", "--count", "3"]
    printed = []
    for seed in ("1", "1", "2"):
        assert run(["generate", causal, "", *options, "--seed", seed]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]
    assert printed[0].count("\n") == 3


def test_lines_too_long_are_set_aside(
    causal: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "床前\n" + "明" * 40 + "\n\n月\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert run(["generate", causal, "--max-new-tokens", "1"]) == 3
    out, err = capsys.readouterr()
    assert out == "床前光\n月光\n"
    assert "line 2 set aside: The prompt has 41 tokens" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "--method", "guess"], "`method` is 'guess'"),
        (["a", "--beams", "2"], "`beams` is a setting of the method `beam`"),
        (["a", "--max-new-tokens", "0"], "Invalid value for '--max-new-tokens'"),
    ],
    ids=str,
)
def test_wrong_options_are_told_before_the_model_is_opened(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "nowhere", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_model_that_fills_masks_cannot_continue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", language_model(tmp_path / "masked", "bidirectional"), "床"]) == 2
    assert "alembert pretrain --objective causal" in capsys.readouterr().err
