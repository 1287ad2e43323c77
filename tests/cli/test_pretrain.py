"""`alembert pretrain`: what flags, file and recipe say together, what is printed, and a sentence for what is wrong."""

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from alembert import sample
from alembert.cli import run
from alembert.cli.pretrain import parse_count
from alembert.errors import BadSetting
from alembert.settings import apply_changes
from alembert.train.pretrain.settings import RECIPES, PretrainSettings, get_recipe

QUICK = ["--set", "steps=2", "--set", "seed=5", "--set", "run.workers=1", "--set", "run.device=cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few documents and a file of settings for a run of a moment."""
    folder = tmp_path_factory.mktemp("pretrain")
    texts = [passage.text for passage in sample.load_passages("en")][:20]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "notes.jsonl").write_text(lines)
    (folder / "quick.toml").write_text(
        "[batch]\ntokens = 512\nmicro_tokens = 256\n[evaluation]\nshare = 0.1\ntokens = 300\ntimes = 1\n"
    )
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    out = folder / "trained"
    settings = ["--config", str(folder / "quick.toml"), "--size", "tiny", *QUICK]
    assert run(["pretrain", str(folder / "notes.jsonl"), *settings, "--out", str(out)]) == 0
    return out


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> PretrainSettings:
    """Read the settings that a command would run with."""
    assert run(["pretrain", "--set", "help", *arguments]) == 0
    table = tomllib.loads(capsys.readouterr().out)
    assert table.pop("run")
    return apply_changes(PretrainSettings(), table, "The output")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run what must be refused; give the sentence."""
    assert run(["pretrain", *arguments]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert told.err.startswith("error: ")
    return told.err


# -- settings


@pytest.mark.parametrize("name", RECIPES)
def test_the_settings_of_a_recipe_are_printed_whole(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert shown(capsys, "--recipe", name) == get_recipe(name)


def test_what_is_printed_is_accepted_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--recipe", "biobert", "--hours", "1.5", "--learning-rate", "1e-5", "--set", "seed=7"]
    before = shown(capsys, *flags)
    run(["pretrain", "--set", "help", *flags])
    (tmp_path / "mine.toml").write_text(capsys.readouterr().out)
    assert shown(capsys, "--config", str(tmp_path / "mine.toml")) == before


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], "from-scratch-small"),
        (["--model", "folder"], "adapt"),
        (["--objective", "causal"], "causal-poet"),
        (["--objective", "causal", "--objective", "masked_lm"], "from-scratch-small"),
    ],
)
def test_each_kind_of_run_has_its_usual_recipe(
    capsys: pytest.CaptureFixture[str], arguments: list[str], name: str
) -> None:
    assert shown(capsys, *arguments).optimiser == get_recipe(name).optimiser


def test_flags_win_over_the_file_and_the_file_over_the_recipe(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('seed = 3\ntokens = 9\n[optimiser]\nlearning_rate = 0.5\nname = "lamb"\n')
    found = shown(
        capsys, "--recipe", "bert-original", "--config", str(file), "--learning-rate", "0.25", "--set", "steps=4"
    )
    assert (found.optimiser.learning_rate, found.optimiser.name) == (0.25, "lamb")
    assert (found.seed, found.steps, found.tokens) == (3, 4, None)
    assert found.optimiser.epsilon == get_recipe("bert-original").optimiser.epsilon
    assert found.sequences == get_recipe("bert-original").sequences


def test_a_file_can_name_its_recipe_and_a_flag_wins_over_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('recipe = "biobert"\n')
    assert shown(capsys, "--config", str(file)) == get_recipe("biobert")
    assert shown(capsys, "--config", str(file), "--recipe", "adapt") == get_recipe("adapt")


def test_flags_reach_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, "--set", "masks.unit=span", "--set", "sequences.max_length=64", "--tokens", "1.5k")
    assert (found.masks.unit, found.sequences.max_length, found.tokens) == ("span", 64, 1500)


def test_objectives_on_the_command_line_are_all_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, "--recipe", "biobert", "--objective", "masked_lm=0.5", "--objective", "next_sentence")
    assert found.objectives.chosen() == {"masked_lm": 0.5, "next_sentence": 1.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20M", 20_000_000),
        ("500k", 500_000),
        ("1G", 10**9),
        ("300", 300),
        ("2.5K", 2500),
        (" 7m ", 7_000_000),
    ],
)
def test_numbers_can_be_written_short(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("text", ["", "M", "-5", "1e6", "20 millions", "1,000"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="expected a number such as 500k, 20M or 1G"):
        parse_count(text)


# -- runs


def test_a_run_prints_what_held_out_text_says(
    trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["notes.jsonl", "--config", "quick.toml", "--model", str(trained), *QUICK]
    assert run(["pretrain", *arguments, "--out", str(tmp_path / "again"), "--set", f"run.cache={tmp_path}"]) == 0
    told = capsys.readouterr()
    assert "2 steps" in told.out
    assert "masked_lm" in told.out
    assert "loss" in told.out
    assert (tmp_path / "again" / "config.json").is_file()


def test_the_settings_beside_the_log_repeat_the_run(
    trained: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [
        "--config",
        str(trained / "run" / "settings.toml"),
        "--size",
        "tiny",
        "--set",
        "run.device=cpu",
        "--json",
    ]
    capsys.readouterr()
    assert run(["pretrain", "notes.jsonl", *settings, "--set", "run.workers=1", "--out", "repeated"]) == 0
    report = json.loads(capsys.readouterr().out, parse_constant=_no_constants)
    assert report["done"]["step"] == 2
    assert math.isfinite(report["after"]["masked_lm"]["loss"])
    weights = [(path / "model.safetensors").read_bytes() for path in (trained, folder / "repeated")]
    assert weights[0] == weights[1]


def _no_constants(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def test_the_same_command_again_has_nothing_to_do(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["pretrain", "notes.jsonl", "--config", "quick.toml", "--size", "tiny", *QUICK]
    assert run([*command, "--out", str(trained)]) == 0
    assert "complete already" in capsys.readouterr().err


# -- what is refused


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--recipe", "biobret"], "Did you mean biobert?"),
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--objective", "maskedlm"], "is `masked_lm`"),
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--objective", "causal=much"], "NAME=0.5"),
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--objective", "causal=-1"], "a positive number"),
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--objective", "masked_lm=0"], "Give at least one"),
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--set", "masks.unit=letter"], "one of 'piece', 'word'"),
        (["notes.jsonl", "--size", "tinny", "--out", "x", "--set", "steps=1"], "Did you mean `tiny`?"),
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--tokens", "lots"], "such as 500k, 20M or 1G"),
        (
            ["notes.jsonl", "--size", "tiny", "--out", "x", "--tokens", "5", "--hours", "1"],
            "Give one of hours",
        ),
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--learning-rate", "0"], "expected a positive number"),
        (["notes.jsonl", "--size", "tiny", "--out", "x", "--config", "none.toml"], "cannot be read"),
        (["notes.jsonl", "--out", "x", "--set", "steps=1"], "Say what to start from"),
        (["nothing.jsonl", "--size", "tiny", "--out", "x", "--set", "steps=1"], "does not exist"),
        (["notes.jsonl", "--size", "tiny", "--out", "notes.jsonl", "--set", "steps=1"], "is a file"),
        (["notes.jsonl", "--size", "tiny", "--set", "steps=1"], "give INPUT and --out"),
        (["--size", "tiny", "--set", "steps=1", "--out", "x"], "give INPUT and --out"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    sentence: str,
) -> None:
    (tmp_path / "notes.jsonl").write_bytes((folder / "notes.jsonl").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(capsys, *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.jsonl"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("recipe = 5\n", "There is no recipe '5'"),
        ("[masks]\nraet = 0.1\n", "The nearest known key is `rate`"),
        ("learning_rate = 0.1\n", "belongs under ["),
        ("[objectives]\nnext_sentence = 1\nsentence_order = 1\n", "Choose one of them"),
        ("hours = 1\nsteps = 5\n", "Give one of hours, tokens and steps"),
    ],
)
def test_a_file_that_cannot_work_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, sentence: str
) -> None:
    (tmp_path / "bad.toml").write_text(content)
    assert sentence in refused(capsys, "--set", "help", "--config", str(tmp_path / "bad.toml"))
