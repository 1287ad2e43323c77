"""Silver labels first, gold labels afterwards: what is learnt, where it is kept, and how a stopped run goes on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alembert import hardware
from alembert.errors import BadFile, BadSetting, Interrupted
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import preset
from alembert.tasks.files import TRAIN_KEYS_FILE
from alembert.tasks.tag.data import TagSettings
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, finetune
from alembert.train.finetune.settings import FinetuneSettings, WarmUpSettings
from alembert.train.run import RunContext
from alembert.train.runlog import TrainingProgress
from alembert.train.settings import BatchSettings, ModelSettings, OptimiserSettings, SavingSettings
from sample_lines import labelled, write_lines

SETTINGS = FinetuneSettings(
    steps=3,
    model=ModelSettings(precision="float32"),  # in the child process too
    batch=BatchSettings(tokens=128, micro_tokens=64),
    optimiser=OptimiserSettings(learning_rate=1e-3),
    saving=SavingSettings(keep="last", log_every=1, steps=1),
    warm_up=WarmUpSettings(learning_rate=5e-4),
)


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A folder with `model`, `train.jsonl`, `dev.jsonl`, and `silver.jsonl` with unknown stretches."""
    folder = tmp_path_factory.mktemp("warm_up")
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    Checkpoint.new(Blueprint(config=config), tokenizer, seed=3).save(folder / "model")
    lines = labelled("train", 24, 120)
    write_lines(folder / "train.jsonl", lines[:12])
    write_lines(folder / "dev.jsonl", labelled("dev", 4, 120))
    write_lines(folder / "silver.jsonl", [{**line, "meta": {"unknown": [[0, 4]]}} for line in lines[12:]])
    return folder


def job(place: Path, *warm_up: str, **settings: Any) -> FinetuneJob:
    files = DataFiles(
        train=(place / "train.jsonl",), dev=(place / "dev.jsonl",), warm_up=tuple(place / name for name in warm_up)
    )
    spec = TaskSpec(task="tag", data=files, settings=TagSettings(**settings))
    return FinetuneJob(model=str(place / "model"), tasks={"tag": spec})


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def stop_in(phase: str, step: int, number: int = signal.SIGTERM) -> Callable[[TrainingProgress], None]:
    def hear(progress: TrainingProgress) -> None:
        if (progress.phase, progress.step) == (phase, step):
            os.kill(os.getpid(), number)

    return hear


@pytest.mark.parametrize("settings", [{}, {"head": "crf"}, {"head": "span"}, {"scheme": "bioes", "case": True}])
def test_each_head_is_warmed_up(place: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    phases: list[str] = []
    context = RunContext(on_progress=lambda progress: phases.append(progress.phase))
    finetune(job(place, "silver.jsonl", **settings), tmp_path / "out", SETTINGS, context=context)
    assert [*dict.fromkeys(phases)] == ["warm-up", "fine-tuning"]
    rows = [json.loads(line) for line in (tmp_path / "out/warm_up/log.jsonl").read_text().splitlines()]
    rates = [row["rate"] for row in rows if row["kind"] == "step"]
    assert 0 < max(rates) <= SETTINGS.warm_up.learning_rate
    assert rates[-1] < max(rates)
    assert not list((tmp_path / "out").rglob(".state"))
    task = json.loads((tmp_path / "out/task.json").read_text())["tasks"]["tag"]
    assert not task["partial"]


def test_it_changes_the_result_and_is_known_by_hashes(place: Path, tmp_path: Path) -> None:
    finetune(job(place), tmp_path / "plain", SETTINGS)
    finetune(job(place, "silver.jsonl"), tmp_path / "warm", SETTINGS)
    assert weights(tmp_path / "plain") != weights(tmp_path / "warm")
    sizes = [(tmp_path / name / "run" / TRAIN_KEYS_FILE).stat().st_size for name in ("plain", "warm")]
    assert sizes[1] - sizes[0] == 12 * 8


@pytest.mark.parametrize("phase", ["warm-up", "fine-tuning"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(phase: str, place: Path, tmp_path: Path) -> None:
    finetune(job(place, "silver.jsonl"), tmp_path / "whole", SETTINGS)
    with pytest.raises(Interrupted):
        finetune(
            job(place, "silver.jsonl"), tmp_path / "parts", SETTINGS, context=RunContext(on_progress=stop_in(phase, 2))
        )
    finetune(job(place, "silver.jsonl"), tmp_path / "parts", SETTINGS)
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts")


KILLED_RUN = """
import signal, sys
from pathlib import Path
from test_warm_up import SETTINGS, RunContext, finetune, job, stop_in
place, out, phase = sys.argv[1:]
context = RunContext(on_progress=stop_in(phase, 2, signal.SIGKILL))
finetune(job(Path(place), "silver.jsonl"), out, SETTINGS, context=context)
"""


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["warm-up", "fine-tuning"])
def test_a_killed_run_ends_as_one_that_was_not(phase: str, place: Path, tmp_path: Path) -> None:
    finetune(job(place, "silver.jsonl"), tmp_path / "whole", SETTINGS)
    out = tmp_path / "parts"
    command = [sys.executable, "-c", KILLED_RUN, str(place), str(out), phase]
    found = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": found}, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL
    finetune(job(place, "silver.jsonl"), out, SETTINGS)
    assert weights(tmp_path / "whole") == weights(out)


@pytest.mark.parametrize("shared", [False, True])
def test_seeds_are_warmed_up_each_or_all_at_once(place: Path, tmp_path: Path, shared: bool) -> None:
    settings = replace(SETTINGS, warm_up=replace(SETTINGS.warm_up, shared=shared))
    phases: list[tuple[str, int]] = []
    context = RunContext(on_progress=lambda progress: phases.append((progress.phase, progress.step)))
    out = tmp_path / "out"
    finetune(job(place, "silver.jsonl"), out, settings, seeds=2, context=context)
    assert phases.count(("warm-up", 1)) == (1 if shared else 2)
    assert (out / "seeds/2/warm_up").exists() != shared
    assert weights(out / "seeds/1") != weights(out / "seeds/2")
    assert not list(out.rglob(".state"))


def test_other_types_than_those_of_the_training_files_are_refused(place: Path, tmp_path: Path) -> None:
    entity = {"id": "T1", "label": "Planet", "spans": [[0, 4]]}
    write_lines(tmp_path / "strange.jsonl", [{"id": "1", "text": "Mars is red.", "entities": [entity]}])
    with pytest.raises(BadFile, match=r"'Planet'.*corpus label --lexicon"):
        finetune(job(place, str(tmp_path / "strange.jsonl")), tmp_path / "out", SETTINGS)
    assert not (tmp_path / "out.partial").exists()


def test_files_without_entities_are_refused(place: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "bare.jsonl", [{"id": "1", "text": "Mars is red."}])
    with pytest.raises(BadFile, match="no example with entities"):
        finetune(job(place, str(tmp_path / "bare.jsonl")), tmp_path / "out", SETTINGS)


def test_other_tasks_and_several_tasks_are_refused(place: Path, tmp_path: Path) -> None:
    tagging = job(place, "silver.jsonl").tasks["tag"]
    both = FinetuneJob(model=str(place / "model"), tasks={"one": tagging, "other": job(place).tasks["tag"]})
    with pytest.raises(BadSetting, match="for one task"):
        finetune(both, tmp_path / "out", SETTINGS)


def test_silver_files_are_no_development_data(place: Path, tmp_path: Path) -> None:
    data = DataFiles(train=(place / "train.jsonl",), dev=(place / "silver.jsonl",))
    spec = TaskSpec(task="tag", data=data)
    with pytest.raises(BadFile, match="unknown stretches"):
        finetune(FinetuneJob(model=str(place / "model"), tasks={"tag": spec}), tmp_path / "out", SETTINGS)


@pytest.mark.parametrize("changes", [{"epochs": 0}, {"learning_rate": -1.0}, {"min_score": 2.0}])
def test_settings_that_nobody_means_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=r"\[warm_up\]"):
        WarmUpSettings(**changes)
