"""Exports as folders: what is in them, what is measured and told, what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alembert import artifact
from alembert.compress import ExportSettings
from alembert.compress import export as exporting
from alembert.compress.card import ExportReport, TaskMeasurement, render_card
from alembert.compress.export import ExportData, export
from alembert.compress.formats import OpenVinoBuilder
from alembert.compress.measure import Fp32Baseline
from alembert.errors import BadFile, BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.infer.speed import measure_speeds
from alembert.infer.task_model import TaskModel
from alembert.tasks.files import write_surfaces
from alembert.tasks.runtime.export_files import ExportMetadata, HeadMetadata
from small_checkpoints import fine_tuned, fine_tuned_together

FP32 = ExportSettings(format="openvino", precision="fp32")
FEW = ExportSettings(format="openvino", calibration_rows=6)
ONNX = ExportSettings(format="onnx", calibration_rows=6)
"""For what is the same in both formats: its int8 numbers are found much faster."""
FACTS = ExportMetadata(
    format="openvino",
    precision="int8",
    heads={"tag": HeadMetadata(kind="tag", per_token=True, labels=("O", "B|x"))},
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


def outcome(**measured: Any) -> ExportReport:
    return ExportReport(
        tasks={"tag": TaskMeasurement(task="tag", **measured)},
        facts=FACTS,
        asked="int8",
        calibration_rows=300,
        in_float=(),
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
    assert [each.name for each in manifest.inputs] == ["checkpoint"]


@pytest.mark.parametrize("kept", [False, True])
def test_what_was_trained_on_goes_along_only_if_asked(kept: bool, tagger: Any, tmp_path: Path) -> None:
    write_surfaces(tmp_path / "checkpoint/run", {"0123456789abcdef": 2})
    export(tagger[0], tmp_path / "export", replace(FP32, training_hashes=kept))
    of_training = {"run/train.keys.npy", "run/surfaces.json"}
    assert of_training & artifact.verify(tmp_path / "export").files.keys() == (of_training if kept else set())


def test_an_int8_export_is_scored_against_fp32(tagger: Any, tmp_path: Path) -> None:
    made, examples = tagger
    found = export(made, tmp_path / "export", FEW, ExportData(calibration=examples, judged=examples[:8]))
    measured = found.measured
    assert (found.facts.precision, measured.measure, measured.judged) == ("int8", "f1", 8)
    assert measured.lost == pytest.approx(100 * (measured.fp32 - measured.exported))
    assert measured.interval[0] <= measured.lost <= measured.interval[1]
    assert 0 <= measured.same_answers <= 1
    model = TaskModel.open(tmp_path / "export")
    assert model.task.score(examples[:8], model.predict(examples[:8])).value == pytest.approx(measured.exported)


def test_weights_are_a_quarter_of_the_size(tmp_path: Path) -> None:
    shape = {"hidden_size": 64, "intermediate_size": 256}
    examples = fine_tuned("tag", tmp_path / "checkpoint", tmp_path / "examples.jsonl", **shape)
    found = export(
        checkpoints.open(tmp_path / "checkpoint"), tmp_path / "export", FEW, ExportData(calibration=examples)
    )
    assert found.bytes < 0.35 * found.checkpoint_bytes
    assert (tmp_path / "export" / "model.bin").stat().st_size == pytest.approx(found.bytes, rel=0.02)


def test_what_was_measured_is_in_manifest_and_card(tagger: Any, tmp_path: Path) -> None:
    made, examples = tagger
    material = ExportData(
        calibration=examples,
        judged=examples[:4],
        stopwatch=lambda forms, texts: measure_speeds(forms, texts, seconds=0.01),
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
    material = ExportData(calibration=examples, judged=examples[:4], labelled=False)
    measured = export(made, tmp_path / "export", ONNX, material).measured
    assert measured.fp32 is measured.lost is None
    assert measured.same_answers is not None


def test_what_costs_too_much_goes_back_to_float(tagger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, examples = tagger
    losses = iter([9.0, 9.0, 0.1])
    monkeypatch.setattr(exporting._ExportRun, "_loss", lambda work, graph: next(losses))
    told: list[str] = []
    found = export(made, tmp_path / "export", FEW, ExportData(calibration=examples), say=told.append)
    assert len(found.in_float) == 2
    assert sum("products in float" in sentence for sentence in told) == 2
    assert f"in float: {', '.join(found.in_float)}" in (tmp_path / "export" / "README.md").read_text()
    assert artifact.open_artifact(tmp_path / "export").config["in_float"] == list(found.in_float)


def test_the_export_is_fp32_if_int8_always_costs_too_much(
    tagger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, examples = tagger
    monkeypatch.setattr(exporting._ExportRun, "_loss", lambda work, graph: 9.0)
    monkeypatch.setattr(OpenVinoBuilder, "rank_products", lambda builder, graph: [])  # nothing more to be tried
    found = export(made, tmp_path / "export", FEW, ExportData(calibration=examples))
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


@pytest.mark.parametrize(
    "changes", [{"precision": "int4"}, {"calibration_rows": 0}, {"max_score_loss": -1}, {"format": "tf"}]
)
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


@pytest.mark.parametrize(
    ("exported", "interval", "change"),
    [
        (
            0.92,
            (-5.5, 1.0),
            "no measurable difference (2.00 points won, which may be chance: -1.00 to +5.50)",
        ),
        (0.88, (0.5, 4.0), "2.00 points lost (0.50 to 4.00)"),
        (0.92, (-3.0, -1.0), "2.00 points won (1.00 to 3.00)"),
        (0.9, (0.0, 0.0), "no difference"),
    ],
)
def test_a_change_that_may_be_chance_is_called_so(exported: float, interval: tuple[float, float], change: str) -> None:
    told = dict(outcome(judged=100, measure="f1", fp32=0.9, exported=exported, interval=interval).rows())
    assert told["f1 on 100 examples"] == f"{exported:.4f}, with fp32 0.9000: {change}"


def test_int8_that_is_not_faster_here_is_told() -> None:
    speed = {"fp32": 100.0, "int8": 90.0}
    (note,) = outcome(texts_per_second=speed, tokens_per_second=speed).notes()
    assert note.startswith("int8 is 0.90x as fast as fp32 here")


def test_the_card_keeps_labels_in_their_cells() -> None:
    assert r"| labels | O, B\|x |" in render_card(outcome())


def test_the_card_shows_labels_as_text() -> None:
    heads = {"tag": HeadMetadata(kind="tag", per_token=True, labels=("<script>", "`a`\udcff"))}
    made = replace(outcome(), facts=replace(FACTS, heads=heads))
    assert r"| labels | &lt;script&gt;, \`a\`\\udcff |" in render_card(made)


def test_an_outcome_is_plain_values() -> None:
    table = json.loads(json.dumps(outcome(judged=9, measure="f1", fp32=0.9, exported=0.8).to_table()))
    assert table["lost_points"] == pytest.approx(10)


def test_one_task_of_a_model_of_several_is_exported_by_its_name(tmp_path: Path) -> None:
    examples = fine_tuned_together({"entities": "tag, crf", "topics": "classify"}, tmp_path / "both", tmp_path)
    export(
        checkpoints.open(tmp_path / "both"),
        tmp_path / "export",
        replace(FP32, training_hashes=True),
        task="entities",
    )
    model, expected = TaskModel.open(tmp_path / "export"), TaskModel.open(tmp_path / "both", task="entities")
    assert model.training_facts == {"examples": 24}
    assert model.train_keys() == expected.train_keys() != set()
    assert list(model.engine.facts.heads) == ["entities"]
    assert [each.spans for each in model.predict(examples["entities"])] == [
        each.spans for each in expected.predict(examples["entities"])
    ]


@pytest.fixture
def both(tmp_path: Path) -> tuple[Checkpoint, dict[str, Any]]:
    """A checkpoint for two tasks, and their examples."""
    examples = fine_tuned_together({"entities": "tag, crf", "topics": "classify"}, tmp_path / "both", tmp_path)
    return checkpoints.open(tmp_path / "both"), examples


def test_several_tasks_share_one_encoder(both: Any, tmp_path: Path) -> None:
    one = export(both[0], tmp_path / "one", FP32, task="entities")
    all_of_them = export(both[0], tmp_path / "export", FP32)
    assert list(all_of_them.facts.heads) == ["entities", "topics"]
    assert one.bytes < all_of_them.bytes < 1.1 * one.bytes


def test_what_int8_costs_is_told_for_each_task(both: Any, tmp_path: Path) -> None:
    material = {name: ExportData(calibration=each, judged=each[:6]) for name, each in both[1].items()}
    found = export(
        both[0],
        tmp_path / "export",
        ExportSettings(format="onnx", calibration_rows=8, max_score_loss=100),
        material,
    )
    assert found.calibration_rows == 8
    text = (tmp_path / "export" / "README.md").read_text(encoding="utf8")
    assert "| tasks | entities (tag), topics (classify) |" in text
    assert "| entities: f1 on 6 examples |" in text
    assert "| topics: accuracy on 6 examples |" in text
    assert artifact.open_artifact(tmp_path / "export").config["tasks"].keys() == {"entities", "topics"}


def test_int8_is_judged_by_the_task_that_loses_most(both: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {"entities": 0.1, "topics": 3.0}
    monkeypatch.setattr(Fp32Baseline, "loss", lambda trial, made: losses[trial.part.head])
    material = {name: ExportData(calibration=each, judged=each[:2]) for name, each in both[1].items()}
    assert export(both[0], tmp_path / "fp32", ONNX, material).facts.precision == "fp32"
    losses["topics"] = 0.2
    assert export(both[0], tmp_path / "int8", ONNX, material).facts.precision == "int8"


def test_the_outcome_is_that_of_the_task_that_lost_most() -> None:
    tasks = {
        "one": TaskMeasurement(task="tag", measure="f1", fp32=0.9, exported=0.8),
        "two": TaskMeasurement(task="classify", measure="accuracy", fp32=0.9, exported=0.9),
        "three": TaskMeasurement(task="tag"),
    }
    assert replace(outcome(), tasks=tasks).measured == tasks["one"]


def test_a_task_that_was_not_measured_is_named(both: Any, tmp_path: Path) -> None:
    examples = both[1]["topics"]
    material = {"topics": ExportData(calibration=examples, judged=examples[:4], labelled=False)}
    found = export(both[0], tmp_path / "export", ONNX, material)
    assert "what int8 costs was not measured for entities: no examples were given" in list(found.notes())


def test_examples_of_several_tasks_have_the_name_of_theirs(both: Any, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="without saying whose they are"):
        export(both[0], tmp_path / "export", FEW, ExportData(calibration=both[1]["topics"]))


def test_examples_of_a_task_that_is_not_exported_are_refused(both: Any, tmp_path: Path) -> None:
    material = {name: ExportData(calibration=each) for name, each in both[1].items()}
    with pytest.raises(BadSetting, match="given for topics, which is not exported"):
        export(both[0], tmp_path / "export", FEW, material, task="entities")


def test_a_task_that_is_not_there_is_refused(both: Any, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="'answers' is none of them"):
        export(both[0], tmp_path / "export", FP32, task="answers")


def test_the_card_of_a_model_for_vectors_says_what_a_vector_is(tmp_path: Path) -> None:
    fine_tuned("compare, scores", tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    export(checkpoints.open(tmp_path / "checkpoint"), tmp_path / "export", FP32)
    text = (tmp_path / "export" / "README.md").read_text(encoding="utf8")
    assert "| vectors | the first token through a trained layer, 16 numbers, scaled to length 1" in text


@pytest.mark.parametrize("name", ["classify, number", "compare, mean"])
def test_numbers_and_vectors_are_never_called_the_same_answers(name: str, tmp_path: Path) -> None:
    examples = fine_tuned(name, tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    material = ExportData(calibration=examples, judged=examples, labelled=False)
    found = export(checkpoints.open(tmp_path / "checkpoint"), tmp_path / "export", ONNX, material)
    assert found.measured.same_answers is None
