"""Several tasks on one encoder: one part is the plain run, a step's loss, continuing, and what is written."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from alembert import hardware, sample
from alembert.data.feed import Cursor
from alembert.errors import BadFile, BadSetting, Interrupted
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.files.weights import SafetensorsWeights, load_tensor
from alembert.infer.task_model import TaskModel
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec
from alembert.tasks.runtime.torch import collate_rows
from alembert.tasks.settings import LossSettings
from alembert.tasks.tag.data import TagSettings
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.data import DataFiles, PreparedData, TaskSpec, prepare_data
from alembert.train.finetune.finetune import (
    FinetuneJob,
    FinetuneRunResult,
    finetune,
    inspect_data,
)
from alembert.train.finetune.objective import MultiTaskObjective
from alembert.train.finetune.seeds import build_objective, with_training_heads
from alembert.train.finetune.settings import FinetuneSettings, MaskedLMSettings, MultiTaskSettings
from alembert.train.run import RunContext
from alembert.train.runlog import TrainingProgress
from alembert.train.settings import BatchSettings, ModelSettings, OptimiserSettings, SavingSettings

SETTINGS = FinetuneSettings(
    epochs=1,
    batch=BatchSettings(tokens=512, micro_tokens=128),
    optimiser=OptimiserSettings(learning_rate=1e-3),
    saving=SavingSettings(keep="best", log_every=1),
)
TEXT = "Imatinib inhibits BCR-ABL1 in chronic myeloid leukemia."


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A folder with `model`, and files that have entities and topics."""
    folder = tmp_path_factory.mktemp("several")
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    Checkpoint.new(Blueprint(config=config), tokenizer, seed=3).save(folder / "model")
    for split, count in (("train", 16), ("dev", 6)):
        lines = [_line(passage) for passage in sample.load_passages("en", split)[:count]]
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def _line(passage: Any) -> dict[str, Any]:
    entities = [
        {"id": f"T{n}", "label": each.label, "spans": [[each.start, each.end]]}
        for n, each in enumerate(passage.entities)
        if each.end <= 160
    ]
    return {"id": passage.id, "text": passage.text[:160], "label": passage.topic, "entities": entities}


def subject(place: Path, task: str, **changes: Any) -> TaskSpec:
    data = DataFiles(train=(place / "train.jsonl",), dev=(place / "dev.jsonl",))
    return TaskSpec(task=task, data=data, **changes)


def both(place: Path) -> FinetuneJob:
    tasks = {"ner": subject(place, "tag"), "topic": subject(place, "classify")}
    return FinetuneJob(model=str(place / "model"), tasks=tasks)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    stored = SafetensorsWeights.find(folder)
    assert stored is not None
    return {name: load_tensor(stored, name) for name in stored.shapes}


@pytest.fixture(scope="module")
def done(place: Path) -> tuple[Path, FinetuneRunResult]:
    return place / "both", finetune(both(place), place / "both", SETTINGS)


def prepared(place: Path) -> PreparedData:
    return prepare_data(both(place).tasks, checkpoints.open(place / "model"))


def test_one_part_ends_with_the_weights_of_the_plain_run(place: Path, tmp_path: Path) -> None:
    only = subject(place, "tag")
    finetune(
        FinetuneJob(model=str(place / "model"), tasks={"tag": TaskSpec(task="tag", data=only.data)}),
        tmp_path / "plain",
        SETTINGS,
    )
    finetune(FinetuneJob(model=str(place / "model"), tasks={"ner": only}), tmp_path / "named", SETTINGS)
    plain = checkpoints.open(tmp_path / "plain").model.state_dict()
    named = checkpoints.open(tmp_path / "named").model.state_dict()
    assert {name.replace("heads.ner.", "heads.tag.") for name in named} == set(plain)
    assert all(torch.equal(value, plain[name.replace(".ner.", ".tag.")]) for name, value in named.items())


def test_the_loss_of_a_step_is_each_tasks_mean_by_its_share_and_weight(place: Path) -> None:
    ready = prepared(place)
    lesson = build_objective(ready, SETTINGS)
    assert isinstance(lesson, MultiTaskObjective)
    lesson.weights = {"ner": 0.5, "topic": 3.0}
    model = ready.vocabulary.shrink(with_training_heads(ready, SETTINGS)).eval()
    portions, _ = lesson.sample(Cursor(), 6, 0.0)
    micros = [lesson.collate(portion) for portion in portions]
    totals: dict[str, float] = {}
    for micro in micros:
        for name, target in micro.targets.items():
            totals[name] = totals.get(name, 0) + target.count
    found = sum(float(lesson.loss(model, micro, totals, None)[0].detach()) for micro in micros)
    expected = 0.0
    for part in ready.tasks:
        own = [portion for portion in portions if portion.task == part.name]
        rows = [row for p in own for item in p.batch.indices for row in lesson.objectives[part.name].items[item]]
        target = collate_rows(rows, range(len(rows)))
        outputs = model(target.batch, [part.head], positions_P=target.positions)[part.head]
        total = part.task.loss(model.head(part.head), outputs, target, LossSettings())
        expected += lesson.weights[part.name] * len(own) / 6 * float(total.detach()) / totals[part.name]
    assert len({portion.task for portion in portions}) == 2
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, multitask=MultiTaskSettings(mixing="temperature", temperature=3.0)),
        replace(SETTINGS, masked_lm=MaskedLMSettings(weight=0.1)),
        replace(SETTINGS, masked_lm=MaskedLMSettings(weight=0.1), model=ModelSettings(precision="bfloat16")),
    ],
    ids=["temperature", "masked LM", "masked LM in bfloat16"],
)
def test_an_interrupted_run_continues_to_the_same_result(
    settings: FinetuneSettings, place: Path, tmp_path: Path
) -> None:
    def stop(progress: TrainingProgress) -> None:
        if progress.step == 4:
            signal.raise_signal(signal.SIGTERM)

    finetune(both(place), tmp_path / "whole", settings)
    with pytest.raises(Interrupted):
        finetune(both(place), tmp_path / "parts", settings, context=RunContext(on_progress=stop))
    finetune(both(place), tmp_path / "parts", settings)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other


@pytest.mark.slow
def test_two_processes_reach_the_same_weights(place: Path, tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text("epochs = 1\n[batch]\ntokens = 512\nmicro_tokens = 128\n[masked_lm]\nweight = 0.1\n")
    data = place / "train.jsonl"
    tasks = ["--task", f"ner:tag={data}", "--task", f"topic:classify={data}", "--config", str(config)]
    command = ["finetune", *tasks, "--model", str(place / "model"), "--set", "run.device=cpu"]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    for name, way in (("one", []), ("two", torchrun)):
        call = [sys.executable, *way, "-m", "alembert", *command, "--out", str(tmp_path / name)]
        subprocess.run(call, check=True, capture_output=True, timeout=300)
    one, two = (weights_of(tmp_path / name) for name in ("one", "two"))
    assert all(torch.allclose(value, two[name], atol=1e-5) for name, value in one.items())


def test_the_model_is_chosen_by_the_mean_of_the_main_scores(done: tuple[Path, FinetuneRunResult]) -> None:
    _, found = done
    measures = found.measures
    assert found.main == "mean"
    assert measures["mean"] == pytest.approx((measures["ner.f1"] + measures["topic.accuracy"]) / 2)


def test_each_task_has_its_own_files_and_labels(done: tuple[Path, FinetuneRunResult]) -> None:
    out, _ = done
    names = {path.relative_to(out / "run").as_posix() for path in (out / "run").rglob("*.*")}
    assert {"ner/data.json", "ner/train.keys.npy", "topic/data.json", "topic/surfaces.json"} <= names
    labels = checkpoints.open(out).blueprint.labels
    assert labels["ner"][0] == "O"
    assert labels["topic"] == tuple(sorted(sample.TOPICS))


def test_heads_of_one_kind_keep_their_own_labels(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = preset("tiny", vocab_size=tokenizer.vocab_size)
    labels = {"disease": ("O", "B-disease", "I-disease"), "gene": ("O", "I-gene", "B-gene")}
    heads = {name: HeadSpec(kind="tag", outputs=3) for name in labels}
    Checkpoint.new(Blueprint(config=config, heads=heads, labels=labels), tokenizer).save(tmp_path / "two")
    assert checkpoints.open(tmp_path / "two").blueprint.labels == labels


def test_one_of_the_tasks_scores_as_it_did_in_the_run(done: tuple[Path, FinetuneRunResult], place: Path) -> None:
    out, found = done
    for name, measure in (("ner", "f1"), ("topic", "accuracy")):
        model = TaskModel.open(out, task=name)
        examples = model.read([place / "dev.jsonl"], DataFiles(train=(place / "dev.jsonl",)).options).examples
        scores = model.task.score(examples, model.predict(examples))
        assert scores.measures[measure] == pytest.approx(found.measures[f"{name}.{measure}"])
        assert model.train_keys()


def test_a_row_that_both_tasks_read_goes_through_the_encoder_once(done: tuple[Path, FinetuneRunResult]) -> None:
    model = TaskModel.open(done[0])
    seen: list[int] = []
    model.engine.model.encoder.register_forward_hook(  # type: ignore[attr-defined]
        lambda _, inputs, __: seen.extend(inputs[0].lengths)
    )
    list(model.predict_all(model.examples_from_texts([TEXT, "Aspirin.", TEXT])))
    assert len(seen) == 2


def test_all_tasks_answer_as_each_does_alone(done: tuple[Path, FinetuneRunResult]) -> None:
    texts = [TEXT, "Aspirin.", *(passage.text for passage in sample.load_passages("en", "dev")[:4])]
    model = TaskModel.open(done[0])
    together = list(model.predict_all(model.examples_from_texts(texts)))
    for name in ("ner", "topic"):
        alone = TaskModel.open(done[0], task=name)
        examples = alone.task.examples_from_texts(texts)
        for example, expected, found in zip(examples, alone.predict(examples), together, strict=True):
            one, other = alone.task.to_record(example, expected), alone.task.to_record(example, found[name])
            assert json.loads(json.dumps(other), parse_float=rounded) == json.loads(
                json.dumps(one), parse_float=rounded
            )


def rounded(text: str) -> float:
    return round(float(text), 4)


def test_a_folder_is_opened_by_what_it_holds(done: tuple[Path, FinetuneRunResult]) -> None:
    assert [*TaskModel.open(done[0]).tasks] == ["ner", "topic"]
    assert [*TaskModel.open(done[0], task="topic").tasks] == ["topic"]
    with pytest.raises(BadSetting, match=r"several tasks: ner \(tag\), topic \(classify\)\. Say which"):
        TaskModel.open(done[0]).predict([])
    with pytest.raises(BadSetting, match="'x' is none of them"):
        TaskModel.open(done[0], task="x")


def test_a_model_of_several_tasks_can_go_on_learning_one_of_them(
    done: tuple[Path, FinetuneRunResult], place: Path, tmp_path: Path
) -> None:
    """A head with the same name and labels begins as it was; with a rate of nothing it stays so."""
    settings = replace(SETTINGS, optimiser=OptimiserSettings(learning_rate=1e-12), saving=SavingSettings())
    job = FinetuneJob(model=str(done[0]), tasks={"topic": subject(place, "classify")})
    finetune(job, tmp_path / "more", settings)
    before, after = weights_of(done[0]), weights_of(tmp_path / "more")
    torch.testing.assert_close(after["heads.topic.linear.weight"], before["heads.topic.linear.weight"])
    assert not any(name.startswith("heads.ner.") for name in after)


@pytest.mark.parametrize("name", ["", "1st", "a b", "hidden", "keys", "masked_lm"])
def test_names_that_a_head_cannot_carry_are_refused(name: str, place: Path) -> None:
    with pytest.raises(BadSetting, match="cannot be called"):
        FinetuneJob(model="m", tasks={name: subject(place, "tag")})


def test_a_problem_says_whose_it_is(place: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps({"id": str(n), "text": f"text {n}"}) + "\n" for n in range(20)))
    tasks = {"topic": subject(place, "classify"), "ner": TaskSpec(task="tag", data=DataFiles(train=(plain,)))}
    with pytest.raises(BadFile, match=r"Task ner: None of the .* training examples has an entity"):
        inspect_data(FinetuneJob(model=str(place / "model"), tasks=tasks), SETTINGS)


def test_texts_that_one_task_is_judged_by_and_another_trained_on_are_told(place: Path) -> None:
    swapped = DataFiles(train=(place / "dev.jsonl",), dev=(place / "train.jsonl",))
    tasks = {"ner": TaskSpec(task="tag", data=swapped), "topic": subject(place, "classify")}
    reports = inspect_data(FinetuneJob(model=str(place / "model"), tasks=tasks), SETTINGS)
    told = "6 development texts are training texts of the task ner"
    assert any(told in sentence for sentence in reports["topic"].decided)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MultiTaskSettings(temperature=0.5), "`temperature` of .multitask. is 0.5"),
        (lambda: MaskedLMSettings(weight=-1), "`weight` of .masked_lm. is -1"),
        (lambda: MaskedLMSettings(rate=0), "`rate` of .masked_lm. is 0"),
        (lambda: FinetuneJob(model="m", tasks={}), "no task to learn"),
        (
            lambda: TaskSpec(task="classify", data=None, settings=TagSettings()),  # type: ignore[arg-type]
            "takes ClassifySettings, not TagSettings",
        ),
        (lambda: TaskSpec(task="tag", data=None, weight=0), "weight of a task tag is 0"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_cannot_be_are_refused(make: Any, sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        make()
