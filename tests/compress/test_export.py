"""Exports as folders: what is in them, what is measured and told, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert import artifact
from alembert.compress import export as exporting
from alembert.compress.card import Measured, Outcome, card
from alembert.compress.export import Material, export
from alembert.compress.settings import ExportSettings
from alembert.errors import BadFile, BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.speed import speeds
from alembert.infer.task_model import TaskModel
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.tasks.export_files import ExportFacts
from alembert.tasks.files import write_tasks
from small_checkpoints import examples_of, fine_tuned, opinionated
from task_cases import TOKENIZER

FP32 = ExportSettings(precision="fp32")
FEW = ExportSettings(rows=6)
FACTS = ExportFacts(
    precision="int8",
    head="tag",
    per_token=True,
    labels=("O", "B|x"),
    longest=64,
    parameters=1_234,
    layers=2,
    width=16,
    multiplications=5,
)


@pytest.fixture
def tagger(tmp_path: Path) -> tuple[Checkpoint, tuple[Any, ...]]:
    examples = fine_tuned("tag", tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    return checkpoints.open(tmp_path / "checkpoint"), examples


def outcome(**measured: Any) -> Outcome:
    return Outcome(
        task="tag",
        facts=FACTS,
        asked="int8",
        calibration_rows=300,
        in_float=(),
        measured=Measured(**measured),
        bytes=1_000_000,
        checkpoint_bytes=4_000_000,
    )


def test_the_folder_is_an_artefact_with_all_that_is_needed(tagger: Any, tmp_path: Path) -> None:
    export(tagger[0], tmp_path / "export", FP32)
    manifest = artifact.verify(tmp_path / "export")
    assert manifest.kind == "Export"
    assert {
        "model.xml",
        "model.bin",
        "task.json",
        "tokenizer.json",
        "vocab.txt",
        "README.md",
    } <= manifest.files.keys()
    assert "run/train.keys.npy" in manifest.files
    assert [each.name for each in manifest.inputs] == ["checkpoint"]


def test_an_int8_export_is_scored_against_fp32(tagger: Any, tmp_path: Path) -> None:
    made, examples = tagger
    found = export(made, tmp_path / "export", FEW, Material(calibration=examples, judged=examples[:8]))
    measured = found.measured
    assert (found.facts.precision, measured.measure, measured.judged) == ("int8", "f1", 8)
    assert measured.lost == pytest.approx(100 * (measured.fp32 - measured.exported))
    assert 0 <= measured.same_answers <= 1
    model = TaskModel.open(tmp_path / "export")
    assert model.task.score(examples[:8], model.predict(examples[:8])).value == pytest.approx(
        measured.exported
    )


def test_weights_are_a_quarter_of_the_size(tmp_path: Path) -> None:
    shape = {"hidden_size": 64, "intermediate_size": 256}
    examples = fine_tuned("tag", tmp_path / "checkpoint", tmp_path / "examples.jsonl", **shape)
    found = export(
        checkpoints.open(tmp_path / "checkpoint"), tmp_path / "export", FEW, Material(calibration=examples)
    )
    assert found.bytes < 0.35 * found.checkpoint_bytes
    assert (tmp_path / "export" / "model.bin").stat().st_size == pytest.approx(found.bytes, rel=0.02)


def test_what_was_measured_is_in_manifest_and_card(tagger: Any, tmp_path: Path) -> None:
    made, examples = tagger
    material = Material(
        calibration=examples,
        judged=examples[:4],
        stopwatch=lambda forms, texts: speeds(forms, texts, seconds=0.01),
        machine="a machine",
    )
    found = export(made, tmp_path / "export", FEW, material)
    config = artifact.open_artifact(tmp_path / "export").config
    assert config["measured"]["texts_per_second"].keys() == {"the checkpoint", "fp32", "int8"}
    assert config["measured"]["fp32"] == found.measured.fp32
    text = (tmp_path / "export" / "README.md").read_text(encoding="utf8")
    assert "speed of int8" in text
    assert "a machine" in text


def test_examples_without_answers_are_compared_by_what_is_answered(tagger: Any, tmp_path: Path) -> None:
    made, examples = tagger
    material = Material(calibration=examples, judged=examples[:4], labelled=False)
    measured = export(made, tmp_path / "export", FEW, material).measured
    assert measured.fp32 is measured.lost is None
    assert measured.same_answers is not None


def test_what_costs_too_much_goes_back_to_float(
    tagger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, examples = tagger
    losses = iter([9.0, 9.0, 0.1])
    monkeypatch.setattr(exporting._Work, "_loss", lambda work, graph: next(losses))
    told: list[str] = []
    found = export(made, tmp_path / "export", FEW, Material(calibration=examples), say=told.append)
    assert len(found.in_float) == 2
    assert sum("products in float" in sentence for sentence in told) == 2
    assert f"in float: {', '.join(found.in_float)}" in (tmp_path / "export" / "README.md").read_text()
    assert artifact.open_artifact(tmp_path / "export").config["in_float"] == list(found.in_float)


def test_the_export_is_fp32_if_int8_always_costs_too_much(
    tagger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, examples = tagger
    monkeypatch.setattr(exporting._Work, "_loss", lambda work, graph: 9.0)
    found = export(made, tmp_path / "export", FEW, Material(calibration=examples))
    assert found.facts.precision == "fp32"
    assert TaskModel.open(tmp_path / "export").engine.name == "openvino fp32"
    assert "int8 costs too much with this model; the Export has fp32 numbers" in list(found.notes())


def test_int8_without_text_is_refused(tagger: Any, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="--calibrate"):
        export(tagger[0], tmp_path / "export", FEW)


def test_an_export_that_is_there_is_kept_unless_it_may_be_replaced(tagger: Any, tmp_path: Path) -> None:
    export(tagger[0], tmp_path / "export", FP32)
    with pytest.raises(BadFile, match="--overwrite"):
        export(tagger[0], tmp_path / "export", FP32)
    assert export(tagger[0], tmp_path / "export", FP32, overwrite=True).facts.precision == "fp32"


def test_a_checkpoint_without_tokenizer_is_refused(tagger: Any, tmp_path: Path) -> None:
    for name in ("vocab.txt", "tokenizer.json"):
        (tmp_path / "checkpoint" / name).unlink()
    with pytest.raises(BadFile, match="no tokenizer"):
        export(checkpoints.open(tmp_path / "checkpoint"), tmp_path / "export", FP32)


def test_a_checkpoint_that_is_in_no_folder_is_refused(tagger: Any, tmp_path: Path) -> None:
    made = Checkpoint.new(tagger[0].blueprint, tagger[0].tokenizer)
    with pytest.raises(BadSetting, match="in no folder"):
        export(made, tmp_path / "export", FP32)


@pytest.mark.parametrize("changes", [{"precision": "int4"}, {"rows": 0}, {"limit": -1}])
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="expected"):
        ExportSettings(**changes)


def test_the_same_checkpoint_gives_the_same_graph(tagger: Any, tmp_path: Path) -> None:
    for name in ("one", "other"):
        export(tagger[0], tmp_path / name, FP32)
    one, other = (artifact.open_artifact(tmp_path / name).files for name in ("one", "other"))
    assert one == other


def test_loss_and_gain_are_told() -> None:
    told = dict(outcome(judged=90, measure="f1", fp32=0.9, exported=0.897).rows())
    assert told["f1 on 90 examples"] == "0.8970, with fp32 0.9000: 0.30 points lost"
    assert told["size"] == "1.0 MB, as a checkpoint 4.0 MB"


def test_int8_that_is_not_faster_here_is_told() -> None:
    speed = {"fp32": 100.0, "int8": 90.0}
    (note,) = outcome(texts_per_second=speed, tokens_per_second=speed).notes()
    assert note.startswith("int8 is 0.90x as fast as fp32 here")


def test_the_card_keeps_labels_in_their_cells() -> None:
    assert r"| labels | O, B\|x |" in card(outcome())


def test_an_outcome_is_plain_values() -> None:
    table = json.loads(json.dumps(outcome(judged=9, measure="f1", fp32=0.9, exported=0.8).to_table()))
    assert table["lost_points"] == pytest.approx(10)


def test_one_task_of_a_model_of_several_is_exported_by_its_name(tmp_path: Path) -> None:
    task, examples = examples_of("tag, crf", tmp_path / "examples.jsonl")
    heads = {"entities": task.head(), "topics": HeadSpec(kind="classify", outputs=2)}
    config = EncoderConfig(
        vocab_size=TOKENIZER.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    blueprint = Blueprint(config=config, heads=heads, labels={"entities": task.labels})
    made = Checkpoint.new(blueprint, TOKENIZER)
    opinionated(made.model)
    made.save(tmp_path / "both")
    write_tasks(tmp_path / "both", {"entities": (task, {"seed": 7})})
    opened = checkpoints.open(tmp_path / "both")
    with pytest.raises(BadSetting, match="several tasks"):
        export(opened, tmp_path / "export", FP32)
    export(opened, tmp_path / "export", FP32, task="entities")
    model, expected = TaskModel.open(tmp_path / "export"), TaskModel.open(tmp_path / "both", task="entities")
    assert model.training() == {"seed": 7}
    assert [each.spans for each in model.predict(examples)] == [
        each.spans for each in expected.predict(examples)
    ]


@pytest.mark.parametrize("name", ["classify, number", "compare, mean"])
def test_numbers_and_vectors_are_never_called_the_same_answers(name: str, tmp_path: Path) -> None:
    examples = fine_tuned(name, tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    material = Material(calibration=examples, judged=examples, labelled=False)
    found = export(checkpoints.open(tmp_path / "checkpoint"), tmp_path / "export", FEW, material)
    assert found.measured.same_answers is None
