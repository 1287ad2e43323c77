"""Taggers that read lexicons, trained: the same from any interruption, in several tasks, as teachers and as students."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import alembert
from alembert import hardware
from alembert.cli import run
from alembert.errors import BadSetting, Interrupted, UserError
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import EncoderConfig
from alembert.tasks.files import read_task
from alembert.tasks.tag.data import TagSettings
from alembert.train.distill.distill import distill
from alembert.train.distill.settings import DistillSettings, StageLossWeights, StageSettings, TeacherCacheSettings
from alembert.train.distill.stages import DistillJob
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, finetune
from alembert.train.finetune.settings import FinetuneSettings, build_lexicon_layer
from alembert.train.run import RunContext
from alembert.train.runlog import TrainingProgress
from task_cases import CASES, LEXICONS, LONGEST, TOKENIZER

SETTINGS = FinetuneSettings(steps=6)
TABLE = "encoder.embeddings.features.weight"


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model` and `examples.jsonl`."""
    folder = tmp_path_factory.mktemp("lexicons")
    config = EncoderConfig(
        vocab_size=TOKENIZER.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=LONGEST,
    )
    Checkpoint.new(Blueprint(config=config), TOKENIZER, seed=3).save(folder / "model")
    lines = map(json.dumps, CASES["tag"].lines())
    (folder / "examples.jsonl").write_text("\n".join(lines) + "\n", encoding="utf8")
    return folder


def spec_of(place: Path, *lexicons: str, **settings: Any) -> TaskSpec:
    data = DataFiles(unsplit=(place / "examples.jsonl",), split="60/40")
    return TaskSpec(task="tag", data=data, settings=TagSettings(lexicons=lexicons, **settings))


def job_of(place: Path, *lexicons: str, model: Path | None = None, **settings: Any) -> FinetuneJob:
    return FinetuneJob(model=str(model or place / "model"), tasks={"tag": spec_of(place, *lexicons, **settings)})


@pytest.fixture(scope="module")
def teacher(place: Path) -> Path:
    finetune(job_of(place, *LEXICONS, case=True), place / "teacher", SETTINGS)
    return place / "teacher"


def test_an_interrupted_run_continues_to_the_same_result(place: Path, tmp_path: Path) -> None:
    def stop(progress: TrainingProgress) -> None:
        if progress.step == 3:
            signal.raise_signal(signal.SIGTERM)

    job = job_of(place, *LEXICONS, lexicon_dropout=0.5)
    finetune(job, tmp_path / "whole", SETTINGS)
    with pytest.raises(Interrupted):
        finetune(job, tmp_path / "parts", SETTINGS, context=RunContext(on_progress=stop))
    finetune(job, tmp_path / "parts", SETTINGS)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other


def test_training_opens_the_gate(teacher: Path) -> None:
    table = open_checkpoint(teacher).model.get_parameter(TABLE)
    assert table.any()
    assert not table[0].any()


def test_terms_that_changed_make_another_run(place: Path, tmp_path: Path) -> None:
    terms = tmp_path / "terms.txt"
    terms.write_text("asthma\n")
    finetune(job_of(place, f"d={terms}"), tmp_path / "out", replace(SETTINGS, steps=1))
    terms.write_text("asthma\ngout\n")
    with pytest.raises(UserError, match=r"other|different|already"):
        finetune(job_of(place, f"d={terms}"), tmp_path / "out", replace(SETTINGS, steps=1))


def test_a_model_that_reads_lexicons_keeps_those_that_stay(place: Path, teacher: Path, tmp_path: Path) -> None:
    job = job_of(place, LEXICONS[1], model=teacher)
    frozen = replace(SETTINGS, steps=1, optimiser=replace(SETTINGS.optimiser, learning_rate=1e-30))
    finetune(job, tmp_path / "next", frozen)
    old, new = (open_checkpoint(folder).model.get_parameter(TABLE) for folder in (teacher, tmp_path / "next"))
    torch.testing.assert_close(new[1:], old[-5:])


def test_tasks_read_the_same_features_or_none(place: Path, tmp_path: Path) -> None:
    topics = tmp_path / "topics.jsonl"
    topics.write_text("\n".join(map(json.dumps, CASES["classify"].lines())) + "\n", encoding="utf8")
    classify = TaskSpec(task="classify", data=DataFiles(unsplit=(topics,), split="60/40"), head="topic")
    tag = replace(spec_of(place, *LEXICONS), head="ner")
    job = FinetuneJob(model=str(place / "model"), tasks={"ner": tag, "topic": classify})
    finetune(job, tmp_path / "both", replace(SETTINGS, steps=2))
    found = alembert.load(tmp_path / "both").predict("Aspirin against melanoma")
    assert found.probabilities
    other = replace(spec_of(place, LEXICONS[0]), head="other")
    job = FinetuneJob(model=str(place / "model"), tasks={"ner": tag, "other": other})
    with pytest.raises(BadSetting, match="Give all of them the same, or none"):
        finetune(job, tmp_path / "different", replace(SETTINGS, steps=2))


# -- distillation


@pytest.mark.parametrize("lexicons", [False, True])
@pytest.mark.parametrize("use", ["auto", "never"])
def test_a_student_reads_what_it_is_told_to(
    place: Path, teacher: Path, tmp_path: Path, lexicons: bool, use: Any
) -> None:
    settings = DistillSettings(
        lexicons=lexicons,
        cache=TeacherCacheSettings(use=use),
        intermediate=StageSettings(steps=2, losses=StageLossWeights(attention=1, hidden=1)),
        prediction=StageSettings(steps=2, losses=StageLossWeights(prediction=1)),
    )
    data = DataFiles(unsplit=(place / "examples.jsonl",), split="60/40")
    job = DistillJob(teacher=str(teacher), student="1x16", data=data)
    distill(job, tmp_path / "student", settings, context=RunContext(cache=tmp_path / "cache"))
    task = read_task(tmp_path / "student").open()
    assert bool(task.lexicon_labels) is lexicons
    assert (tmp_path / "student" / "lexicons").is_dir() is lexicons
    assert sum(task.token_features.values()) == open_checkpoint(tmp_path / "student").blueprint.config.token_features
    assert list((tmp_path / "cache").glob("teacher-*"))
    assert alembert.load(tmp_path / "student").predict("Aspirin against melanoma").text


# -- the front doors


def test_the_report_names_lexicons_that_are_no_types(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for option in LEXICONS for word in ("--lexicon", option)]
    files = ["--data", str(place / "examples.jsonl"), "--model", str(place / "model")]
    assert run(["finetune", "--task", "tag", *files, *flags, "--check"]) == 0
    output = capsys.readouterr().out
    assert "matches of the lexicon disease are read beside the pieces: 5 terms" in output
    assert "drug: read as evidence; the tagger has no type of this name" in output
    assert "disease: read as evidence" not in output
    assert run(["finetune", "--task", "classify", *files, *flags, "--check"]) == 2
    assert "Lexicons are read by the task tag" in capsys.readouterr().err


def test_predict_notes_terms_that_were_added(teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "terms.txt").write_text("zebra fever\n")
    assert run(["predict", str(teacher), "A zebra fever.", "--lexicon", f"disease={tmp_path / 'terms.txt'}"]) == 0
    assert "lexicon disease: 5 terms of training + 1 added" in capsys.readouterr().err
    assert run(["predict", str(teacher), "A zebra fever.", "--lexicon", f"gene={tmp_path / 'terms.txt'}"]) == 2
    assert "The model was not trained with a lexicon 'gene'; its lexicons are: disease, drug" in capsys.readouterr().err


def test_lexicons_are_for_taggers() -> None:
    with pytest.raises(BadSetting, match="Lexicons are read by the task tag"):
        build_lexicon_layer({"topic": "classify"}, LEXICONS)
    own = {"lexicons": list(LEXICONS)}
    assert build_lexicon_layer({"tag": "tag"}, LEXICONS) == {"task": own}
    assert build_lexicon_layer({"a": "tag", "b": "classify"}, LEXICONS) == {"task": {"a": own}}
    assert build_lexicon_layer({"b": "classify"}, ()) == {}


def test_the_python_verb_takes_several_files_of_a_label(place: Path, tmp_path: Path) -> None:
    files = [option.partition("=")[2] for option in LEXICONS]
    alembert.finetune(
        "tag",
        model=place / "model",
        data=place / "examples.jsonl",
        lexicons={"name": files},
        settings={"steps": 1},
        out=tmp_path / "out",
        progress=False,
    )
    (table,) = json.loads((tmp_path / "out" / "task.json").read_bytes())["tasks"]["tag"]["lexicons"]
    assert (table["label"], table["terms"]) == ("name", 12)
    assert len(table["sha256"]) == 64
    with pytest.raises(UserError, match="`lexicons` is a list"):
        alembert.finetune("tag", model=place / "model", data=place, lexicons=files, out=tmp_path / "no")
