"""`alembert score`: what it prints for causal and for masked models."""

import io
import json
import math
from pathlib import Path

import pytest

from alembert.cli import run
from small_checkpoints import fine_tuned, language_model


@pytest.fixture(scope="module", params=["causal", "bidirectional"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A folder, and the kind of its scores."""
    folder = language_model(tmp_path_factory.mktemp("score") / request.param, request.param)
    return folder, "exact" if request.param == "causal" else "pseudo"


def test_json_has_every_token(model: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder, kind = model
    assert run(["score", folder, "床 前", "光", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["text"], first["kind"]) == ("床 前", kind)
    tokens = [(token["token"], token["start"], token["end"]) for token in first["tokens"]]
    ending = [("[SEP]", 3, 3)] if kind == "exact" else []
    assert tokens == [("床", 0, 1), ("前", 2, 3), *ending]
    total = sum(token["log_probability"] for token in first["tokens"])
    assert first["log_probability"] == pytest.approx(total)
    assert first["perplexity"] == pytest.approx(math.exp(-total / len(tokens)))
    assert second["tokens"][0]["log_probability"] > first["tokens"][0]["log_probability"]


def test_people_see_one_line_a_text(model: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder, kind = model
    assert run(["score", folder, "床前", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert run(["score", folder, "床前"]) == 0
    name = "log probability" if kind == "exact" else "pseudo-log-likelihood"
    measure = "perplexity" if kind == "exact" else "pseudo-perplexity"
    numbers = f"{name} {record['log_probability']:.4f}  {measure} {record['perplexity']:.4f}"
    assert capsys.readouterr().out == f"床前\n  {numbers}\n"


def test_lines_too_long_are_set_aside(
    model: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(("床\n" + "明" * 40 + "\n").encode())))
    assert run(["score", model[0], "--json"]) == 3
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "line 2 set aside: The text has 42 tokens" in err


def test_a_model_without_a_language_model_head_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine_tuned("classify", tmp_path / "model", tmp_path / "train.jsonl")
    assert run(["score", str(tmp_path / "model"), "aspirin helps"]) == 2
    assert "it has no `masked_lm` head" in capsys.readouterr().err
