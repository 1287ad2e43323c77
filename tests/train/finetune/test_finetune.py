"""The verb from end to end on the embedded sample: what comes out, who can open it, and what is refused."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from alembert import hardware, sample
from alembert.cli.finetune import parse_tasks
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import AlreadyDone, BadFile, BadSetting, Interrupted
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.infer.task_model import TaskModel
from alembert.nn.batch import Batch
from alembert.nn.config import preset
from alembert.settings import read_layers
from alembert.tasks.files import read_task
from alembert.tasks.tag.data import TagSettings
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import (
    FinetuneJob,
    FinetuneRunResult,
    finetune,
    inspect_data,
)
from alembert.train.finetune.settings import FinetuneSettings, resolve_settings
from alembert.train.run import RunContext
from alembert.train.runlog import TrainingProgress
from alembert.train.settings import BatchSettings, EvaluationSettings, OptimiserSettings, SavingSettings
from sample_lines import labelled, write_lines

LONGEST = 160  # characters of a text: what is tested does not need more
SETTINGS = FinetuneSettings(
    epochs=2,
    batch=BatchSettings(tokens=256, micro_tokens=128),
    optimiser=OptimiserSettings(learning_rate=1e-3),
    saving=SavingSettings(keep="best", log_every=2),
)


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A folder with `model`, `train.jsonl` and `dev.jsonl`."""
    folder = tmp_path_factory.mktemp("finetune")
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    Checkpoint.new(Blueprint(config=config), tokenizer, seed=3).save(folder / "model")
    write_lines(folder / "train.jsonl", labelled("train", 30, LONGEST))
    write_lines(folder / "dev.jsonl", labelled("dev", 8, LONGEST))
    return folder


def assignment(place: Path, **changes: Any) -> FinetuneJob:
    files = {"train": (place / "train.jsonl",), "dev": (place / "dev.jsonl",)}
    data = DataFiles(**{**files, **changes.pop("data", {})})
    model = changes.pop("model", str(place / "model"))
    spec = TaskSpec(**{"task": "tag", "data": data, **changes})
    return FinetuneJob(model=model, tasks={spec.task: spec})


@pytest.fixture(scope="module")
def tagger(place: Path) -> tuple[Path, FinetuneRunResult]:
    out = place / "ner"
    return out, finetune(assignment(place), out, SETTINGS)


def test_it_learns(place: Path, tmp_path: Path) -> None:
    data = {"train": (place / "dev.jsonl",), "unsplit": (), "dev": ()}
    settings = replace(SETTINGS, epochs=40, evaluation=EvaluationSettings(at_start=False), evals_per_epoch=0.1)
    job = assignment(place, data={**data, "dev": (place / "train.jsonl",)})
    losses: list[float] = []

    def hear(progress: TrainingProgress) -> None:
        losses.append(progress.loss or 0.0)

    finetune(job, tmp_path / "out", settings, context=RunContext(on_progress=hear))
    assert losses[-1] < 0.3 * losses[0]


def test_the_result_is_a_checkpoint_with_a_task(tagger: tuple[Path, FinetuneRunResult]) -> None:
    out, done = tagger
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {"task.json", "model.safetensors", "run/log.jsonl", "run/settings.toml", "run/data.json"} <= files
    assert not any(".state" in name for name in files)
    assert 0 <= done.measures["f1"] <= 1


def test_a_run_keeps_all_its_settings_as_they_were_given(place: Path, tmp_path: Path) -> None:
    job = assignment(place, settings=TagSettings(head="crf", max_length=64))
    finetune(job, tmp_path / "out", SETTINGS)
    kept = tmp_path / "out" / "run" / "settings.toml"
    settings, tasks = resolve_settings(parse_tasks(["tag"]).kinds, read_layers(kept, None, {}))
    assert (settings, tasks["tag"].of_task) == (SETTINGS, job.tasks["tag"].settings)


def test_weights_may_be_read_by_those_who_may_read_the_rest(tagger: tuple[Path, FinetuneRunResult]) -> None:
    out, _ = tagger
    modes = {(out / name).stat().st_mode for name in ("model.safetensors", "config.json")}
    assert len(modes) == 1


def test_transformers_opens_it_with_the_same_logits(tagger: tuple[Path, FinetuneRunResult]) -> None:
    out, _ = tagger
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(out).eval()
    ours = TaskModel.open(out)
    ids = [2, 5, 17, 23, 42, 3]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0]
        found = ours.engine.model(Batch.packed([ids]))["tag"]  # type: ignore[attr-defined]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert list(theirs.config.id2label.values()) == list(ours.task.labels)


def test_it_predicts_as_it_was_scored(tagger: tuple[Path, FinetuneRunResult], place: Path) -> None:
    out, done = tagger
    model = TaskModel.open(out)
    examples = model.read([place / "dev.jsonl"], DataFiles(train=(place / "dev.jsonl",)).options).examples
    assert model.task.score(examples, model.predict(examples)).measures == pytest.approx(done.measures)


def test_what_was_trained_on_is_known_by_hashes(tagger: tuple[Path, FinetuneRunResult], place: Path) -> None:
    out, _ = tagger
    model = TaskModel.open(out)
    examples = model.read([place / "train.jsonl"], DataFiles(train=(place / "dev.jsonl",)).options).examples
    assert read_task(out).train_keys() == {example.key for example in examples}
    assert sum((read_task(out).surfaces() or {}).values()) == sum(len(example.entities) for example in examples)


def test_what_was_trained_on_can_be_forgotten(place: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, forget_training=True)
    finetune(assignment(place), tmp_path / "out", settings, seeds=2)
    names = {path.name for path in (tmp_path / "out").rglob("*")}
    assert "scores.json" in names
    assert not names & {"train.keys.npy", "surfaces.json"}


def test_the_same_command_again_says_so(tagger: tuple[Path, FinetuneRunResult], place: Path) -> None:
    with pytest.raises(AlreadyDone, match="complete already"):
        finetune(assignment(place), tagger[0], SETTINGS)


def kill_at(step: int) -> Callable[[TrainingProgress], None]:
    def hear(progress: TrainingProgress) -> None:
        if progress.step == step:
            signal.raise_signal(signal.SIGTERM)

    return hear


@pytest.mark.parametrize("seeds", [1, 2])
def test_an_interrupted_run_continues_to_the_same_result(place: Path, tmp_path: Path, seeds: int) -> None:
    job = assignment(place)
    whole = finetune(job, tmp_path / "whole", SETTINGS, seeds=seeds)
    steps = whole.results[0].counts["steps"]
    with pytest.raises(Interrupted):
        finetune(job, tmp_path / "parts", SETTINGS, seeds=seeds, context=RunContext(on_progress=kill_at(steps // 2)))
    again = finetune(job, tmp_path / "parts", SETTINGS, seeds=seeds)
    assert [each.measures for each in again.results] == [each.measures for each in whole.results]
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other


def test_seeds_give_mean_and_spread_and_the_best_is_the_result(place: Path, tmp_path: Path) -> None:
    done = finetune(assignment(place), tmp_path / "out", SETTINGS, seeds=3)
    values = [each.value for each in done.results]
    assert done.mean == pytest.approx(np.mean(values))
    assert done.spread == pytest.approx(np.std(values, ddof=1))
    assert done.measures[done.main] == max(values)
    best = (tmp_path / "out" / "seeds" / str(1 + done.best) / "model.safetensors").read_bytes()
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == best
    assert [path.name for path in TaskModel.open(tmp_path / "out").seed_folders()] == ["1", "2", "3"]


def test_the_best_weights_are_kept_and_patience_ends_the_run(place: Path, tmp_path: Path) -> None:
    evaluation = EvaluationSettings(at_start=False, patience=1)
    settings = replace(SETTINGS, epochs=30, evaluation=evaluation, optimiser=OptimiserSettings(learning_rate=1e-9))
    done = finetune(assignment(place), tmp_path / "out", settings)
    full = finetune(assignment(place), tmp_path / "full", replace(settings, evaluation=EvaluationSettings(), epochs=2))
    assert done.results[0].counts["steps"] <= full.results[0].counts["steps"]


def test_dev_texts_are_taken_out_of_training(place: Path, tmp_path: Path) -> None:
    lines = labelled("train", 12, LONGEST) + labelled("dev", 8, LONGEST)[:3]
    job = assignment(place, data={"train": (write_lines(tmp_path / "more.jsonl", lines),)})
    report = inspect_data(job, SETTINGS)["tag"]
    assert report.parts[0].examples == 12
    assert any("3 training examples have the text of a development example" in line for line in report.decided)


@pytest.mark.parametrize("dev", [(), ("empty.jsonl",)])
def test_without_dev_a_tenth_is_set_apart_and_announced(place: Path, tmp_path: Path, dev: tuple[str, ...]) -> None:
    (tmp_path / "empty.jsonl").touch()
    job = assignment(place, data={"dev": tuple(tmp_path / name for name in dev)})
    report = inspect_data(job, SETTINGS)["tag"]
    assert [part.examples for part in report.parts] == [27, 3]
    assert any("set apart for development" in line for line in report.decided)


def test_development_data_that_cannot_be_read_are_not_replaced(place: Path, tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_bytes(b"\x00\x01\x02 no text at all \xff\xfe\x00")
    job = assignment(place, data={"dev": (tmp_path / "dev.jsonl",)})
    with pytest.raises(BadFile, match=r"development data cannot be used: .*dev\.jsonl"):
        inspect_data(job, SETTINGS)["tag"]


def test_one_file_is_divided(place: Path) -> None:
    data = {"train": (), "dev": (), "unsplit": (place / "train.jsonl",), "split": "80/10/10"}
    report = inspect_data(assignment(place, data=data), SETTINGS)["tag"]
    assert [part.examples for part in report.parts] == [24, 3]


@pytest.mark.parametrize("data", [{"dev": ()}, {"train": (), "dev": (), "unsplit": True}])
def test_runs_with_other_seeds_are_judged_by_the_same_texts(place: Path, data: dict[str, Any]) -> None:
    if data.get("unsplit"):
        data = {**data, "unsplit": (place / "train.jsonl",)}
    reports = [
        inspect_data(assignment(place, data=data), replace(SETTINGS, seed=seed))["tag"].to_table() for seed in (1, 2)
    ]
    assert reports[0] == reports[1]


def test_a_label_may_fall_into_the_part_that_is_set_apart(place: Path, tmp_path: Path) -> None:
    lines = labelled("train", 30, LONGEST)
    for number, line in enumerate(lines):
        line["entities"] = [{"id": "T1", "label": f"label{number}", "spans": [[0, 2]]}]
    job = assignment(place, data={"train": (write_lines(tmp_path / "rare.jsonl", lines),), "dev": ()})
    finetune(job, tmp_path / "out", replace(SETTINGS, epochs=1))
    assert len(TaskModel.open(tmp_path / "out").task.types) == 30


def test_types_that_training_does_not_have_are_refused(place: Path, tmp_path: Path) -> None:
    strange = [{"id": "1", "text": "A b c", "entities": [{"id": "T1", "label": "planet", "spans": [[0, 1]]}]}]
    job = assignment(place, data={"dev": (write_lines(tmp_path / "strange.jsonl", strange),)})
    with pytest.raises(BadFile, match=r"planet.*it knows chemical, disease, gene"):
        finetune(job, tmp_path / "out", SETTINGS)
    assert not list(tmp_path.glob("out*"))


def test_a_text_without_entities_is_refused_as_such(place: Path, tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "plain.jsonl", [{"id": "1", "text": "one text alone"}])
    with pytest.raises(BadFile, match="has an entity"):
        inspect_data(assignment(place, data={"train": (plain,), "dev": ()}), SETTINGS)["tag"]


def test_files_without_entities_are_refused(place: Path, tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "plain.jsonl", [{"id": str(n), "text": f"text {n}"} for n in range(5)])
    with pytest.raises(BadFile, match="None of the 4 training examples has an entity"):
        inspect_data(assignment(place, data={"train": (plain,), "dev": ()}), SETTINGS)["tag"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train": ()}, "either training files"),
        ({"train": (Path("nowhere.tsv"),)}, "The input nowhere.tsv"),
        ({"unsplit": (Path("x"),), "train": ()}, "leave --dev out"),
    ],
)
def test_files_that_do_not_go_together_are_refused(place: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises((BadFile, BadSetting), match=sentence):
        assignment(place, data=changes)


def test_another_order_of_labels_starts_a_new_head(
    tagger: tuple[Path, FinetuneRunResult], place: Path, tmp_path: Path
) -> None:
    """A head whose labels mean something else must not be carried over."""
    job = assignment(place, model=str(tagger[0]), settings=TagSettings(scheme="bioes"))
    finetune(job, tmp_path / "out", replace(SETTINGS, epochs=0.1))
    assert TaskModel.open(tmp_path / "out").task.labels[:2] == ("O", "B-chemical")


def test_a_changed_label_order_in_the_model_is_found(tagger: tuple[Path, FinetuneRunResult], tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    changed.mkdir()
    for path in tagger[0].iterdir():
        if path.is_file():
            (changed / path.name).write_bytes(path.read_bytes())
    config = json.loads((changed / "config.json").read_text())
    config["id2label"] = {key: config["id2label"][str(6 - int(key))] for key in config["id2label"]}
    config["label2id"] = {label: int(key) for key, label in config["id2label"].items()}
    (changed / "config.json").write_text(json.dumps(config))
    (changed / "manifest.json").unlink()
    with pytest.raises(BadFile, match=r"task\.json do not fit"):
        TaskModel.open(changed)


@pytest.mark.parametrize("head", ["crf", "span"])
def test_other_heads_come_back_as_they_were_trained(place: Path, tmp_path: Path, head: str) -> None:
    job = assignment(place, settings=TagSettings(head=head))  # type: ignore[arg-type]
    done = finetune(job, tmp_path / "out", SETTINGS)
    model = TaskModel.open(tmp_path / "out")
    examples = model.read([place / "dev.jsonl"], job.tasks["tag"].data.options).examples
    assert model.task.score(examples, model.predict(examples)).measures == pytest.approx(done.measures)
    assert head in (tmp_path / "out" / "README.md").read_text() or head == "span"


def test_several_files_with_different_types_make_one_tagger(place: Path, tmp_path: Path) -> None:
    def only(label: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**line, "entities": [e for e in line["entities"] if e["label"] == label]} for line in lines]

    lines = labelled("train", 30, LONGEST)
    one = write_lines(tmp_path / "disease.jsonl", only("disease", lines[:15]))
    other = write_lines(tmp_path / "gene.jsonl", only("gene", lines[15:]))
    dev = write_lines(tmp_path / "d.jsonl", only("gene", labelled("dev", 8, LONGEST)))
    said = ReadOptions(types=(f"{one}=disease", f"{other}=gene", f"{dev}=gene"))
    job = assignment(place, data={"train": (one, other), "dev": (dev,), "options": said})
    finetune(job, tmp_path / "out", SETTINGS)
    task = TaskModel.open(tmp_path / "out").task
    assert task.to_table()["partial"] is True
    assert str(tmp_path) not in (tmp_path / "out" / "task.json").read_text()
    assert task.labels == ("O", "B-disease", "I-disease", "B-gene", "I-gene")


def test_classification_goes_the_same_way(place: Path, tmp_path: Path) -> None:
    for split, count in (("train", 30), ("dev", 8)):
        lines = [{"text": each["text"], "label": each["topic"]} for each in labelled(split, count)]
        write_lines(tmp_path / f"{split}.jsonl", lines)
    data = {"train": (tmp_path / "train.jsonl",), "dev": (tmp_path / "dev.jsonl",)}
    done = finetune(assignment(place, task="classify", data=data), tmp_path / "out", SETTINGS)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert list(theirs.config.id2label.values()) == sorted(sample.TOPICS)
    assert 0 <= done.measures["accuracy"] <= 1


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda text: ["any", *["odd"] * (len(text) % 2)], "multi_label_classification"),
        (lambda text: len(text) / 7, "regression"),
        (lambda text: "odd" if len(text) % 2 else "even", None),
    ],
    ids=["several", "number", "one"],
)
def test_other_programs_are_told_what_the_outputs_of_a_classifier_say(
    answer: Callable[[str], object], problem: str | None, place: Path, tmp_path: Path
) -> None:
    for split, count in (("train", 30), ("dev", 8)):
        lines = [{"text": each["text"], "label": answer(each["text"])} for each in labelled(split, count)]
        write_lines(tmp_path / f"{split}.jsonl", lines)
    data = {"train": (tmp_path / "train.jsonl",), "dev": (tmp_path / "dev.jsonl",)}
    finetune(assignment(place, task="classify", data=data), tmp_path / "out", SETTINGS)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert theirs.config.problem_type == problem
    assert open_checkpoint(tmp_path / "out").config().get("problem_type") == problem


@pytest.mark.slow
def test_two_processes_reach_the_same_scores(place: Path, tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text("epochs = 1\n[batch]\ntokens = 512\nmicro_tokens = 256\n")
    files = ["--train", str(place / "train.jsonl"), "--dev", str(place / "dev.jsonl")]
    command = ["finetune", "--task", "tag", "--model", str(place / "model"), *files, "--config", str(config)]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    for name, way in (("one", []), ("two", torchrun)):
        call = [sys.executable, *way, "-m", "alembert", *command, "--out", str(tmp_path / name)]
        subprocess.run(call, check=True, capture_output=True, timeout=300)
    one, two = (json.loads((tmp_path / name / "run/scores.json").read_text()) for name in ("one", "two"))
    assert two["measures"] == pytest.approx(one["measures"], abs=0.02)
    assert two["counts"]["tokens"] == one["counts"]["tokens"]
