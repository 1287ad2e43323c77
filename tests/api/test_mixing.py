"""`alembert.mix`: a share that is given, or chosen by fine-tuning or by evaluation, and a command that can be repeated."""

import json
from pathlib import Path

import pytest
import torch

import alembert
from alembert import artifact
from alembert.api import mixing
from alembert.cli import run
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import preset
from small_checkpoints import fine_tuned, opinionated
from task_cases import CASES, TOKENIZER


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models, two taggers and files of examples."""
    folder = tmp_path_factory.mktemp("mix")
    config = preset("tiny", vocab_size=TOKENIZER.vocab_size, max_position_embeddings=64)
    for seed, name in enumerate(("start", "adapted")):
        Checkpoint.new(Blueprint(config=config), TOKENIZER, seed=seed).save(folder / name)
    lines = list(map(json.dumps, CASES["tag"].lines()))
    (folder / "train.jsonl").write_text("\n".join(lines[:18]) + "\n")
    (folder / "other.jsonl").write_text("\n".join(lines[18:]) + "\n")
    fine_tuned("tag", folder / "tagger-1", folder / "dev.jsonl")
    changed = open_checkpoint(folder / "tagger-1")
    opinionated(changed.model, 0.1)
    task = (folder / "tagger-1" / "task.json").read_bytes()
    changed.save(folder / "tagger-2")
    (folder / "tagger-2" / "task.json").write_bytes(task)
    return folder


def test_a_given_share_is_written_with_the_hashes_of_both(place: Path, tmp_path: Path) -> None:
    found = alembert.mix(place / "start", place / "adapted", share=0.25, out=tmp_path / "mixed", progress=False)
    assert (found.share, found.scores, found.main) == (0.25, {}, None)
    manifest = artifact.verify(tmp_path / "mixed")
    assert [each.name for each in manifest.inputs] == ["start", "adapted"]
    assert "0.25 of the adapted model" in (tmp_path / "mixed/README.md").read_text()
    states = [open_checkpoint(each).model.state_dict() for each in (place / "start", place / "adapted", found.folder)]
    for name, weights in states[2].items():
        torch.testing.assert_close(weights, 0.75 * states[0][name] + 0.25 * states[1][name])


def test_half_of_each_is_the_default_and_the_same_call_finds_it(place: Path, tmp_path: Path) -> None:
    def call() -> alembert.MixResult:
        return alembert.mix(place / "start", place / "adapted", out=tmp_path / "m", progress=False)

    first = call()
    before = artifact.hash_input(tmp_path / "m")
    assert first == call()
    assert first.share == 0.5
    assert artifact.hash_input(tmp_path / "m") == before


def test_a_share_is_chosen_by_fine_tuning(place: Path, tmp_path: Path) -> None:
    found = alembert.mix(
        place / "start",
        place / "adapted",
        choose=place / "other.jsonl",
        train=place / "train.jsonl",
        task="tag",
        shares=[0, 1],
        epochs=0.2,
        out=tmp_path / "chosen",
        progress=False,
    )
    assert found.main == "f1"
    assert list(found.scores) == [0.0, 1.0]
    assert found.scores[found.share] == max(found.scores.values())
    assert not (found.folder / "task.json").exists()
    assert not list((tmp_path / ".alembert-cache").iterdir())


def test_a_stopped_choice_goes_on(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    whole = mixing.MixJob._try

    def killed(job: mixing.MixJob, folder: Path) -> tuple[str, float]:
        tried.append(folder.name)
        if len(tried) == 2:
            raise KeyboardInterrupt
        return whole(job, folder)

    monkeypatch.setattr(mixing.MixJob, "_try", killed)
    job = mixing.MixJob(
        start=str(place / "tagger-1"), adapted=str(place / "tagger-2"), shares=(0.0, 1.0), dev=(place / "dev.jsonl",)
    )
    with pytest.raises(KeyboardInterrupt):
        job.run(tmp_path / "out")
    monkeypatch.setattr(mixing.MixJob, "_write_trial", lambda *_: pytest.fail("the first two are there"))
    found = job.run(tmp_path / "out")
    assert list(found.scores) == [0.0, 1.0]
    assert artifact.verify(found.folder)


def test_taggers_are_evaluated_as_they_are_and_stay_taggers(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "mixed")
    arguments = ["--choose", str(place / "dev.jsonl"), "--shares", "0,0.5", "--out", out]
    assert run(["mix", str(place / "tagger-1"), str(place / "tagger-2"), *arguments]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["share", "f1"]
    assert sum("<- kept" in line for line in said) == 1
    score = alembert.evaluate(out, place / "dev.jsonl", progress=False, rounds=1).scores.value
    kept = next(line for line in said if "<- kept" in line)
    assert float(kept.split()[1]) == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--share", "0.5", "--choose", "dev.jsonl"], "Both `share` and `choose`"),
        (["--epochs", "2"], "`epochs` is for trying shares"),
        (["--choose", "dev.jsonl"], "is not fine-tuned"),
        (["--choose", "dev.jsonl", "--train", "train.jsonl"], "Name the task"),
        (["--choose", "dev.jsonl", "--shares", "0,x"], "--shares is '0,x'"),
        (["--share", "2"], "The share is 2.0"),
        (["--choose", "dev.jsonl", "--train", "dev.jsonl", "--task", "tag"], "There is no example to train on"),
    ],
)
def test_what_cannot_be_chosen_is_refused_and_nothing_is_written(
    place: Path,
    tmp_path: Path,
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    assert run(["mix", "start", "adapted", *arguments, "--out", str(tmp_path / "no")]) == 2
    assert sentence in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
