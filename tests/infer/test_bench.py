"""`bench`: what is read, what is measured beside what, and that peers give the answers of the same weights."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile, BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.infer import bench_peers
from alembert.infer.bench import Benchmark, bench, folder_megabytes, read_texts
from alembert.infer.bench_peers import (
    PIPELINE_PEER,
    SORTED_PEER,
    UNSORTED_PEER,
    Peer,
    SkippedPeer,
    open_peers,
)
from alembert.infer.task_model import TaskModel
from alembert.tasks.runtime.export_files import ExportFormat
from small_checkpoints import fine_tuned

SHORT = [f"case {n}: kras, {'a' * (n % 5)} no fever" for n in range(40)]
FP32 = ExportSettings(format="openvino", precision="fp32")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of several tasks, an Export, and texts of which all, some or none are short."""
    folder = tmp_path_factory.mktemp("bench")
    for name in ("tag", "tag, span", "classify", "classify, pairs", "relate"):
        fine_tuned(name, folder / name, folder / f"{name}.jsonl")
    export(checkpoints.open(folder / "tag"), folder / "export", FP32)
    write(folder / "short.jsonl", SHORT)
    write(folder / "mixed.jsonl", [*SHORT[:9], "b" * 90])
    write(folder / "long.jsonl", ["b" * 90] * 3)
    return folder


def write(path: Path, texts: list[str]) -> None:
    path.write_text("".join(f"{json.dumps({'id': str(n), 'text': text})}\n" for n, text in enumerate(texts)))


def measured(folder: Path, file: Path, **more: Any) -> Benchmark:
    return bench(folder, [file], device="cpu", seconds=0.02, **more)


def names(found: Benchmark) -> tuple[list[str], list[str]]:
    return [peer.name for peer in found.peers], [each.name for each in found.left_out]


def opened(model: TaskModel) -> dict[str, Peer | SkippedPeer]:
    return {each.name: each for each in open_peers(model)}


# -- what is measured beside what


def test_a_checkpoint_is_measured_beside_transformers(place: Path) -> None:
    found = measured(place / "tag", place / "short.jsonl")
    assert names(found) == ([PIPELINE_PEER, SORTED_PEER], [UNSORTED_PEER])
    assert (found.engine, found.task, found.texts, found.too_long) == ("torch", "tag", 40, 0)
    assert found.beside is None


def test_an_export_is_measured_beside_its_library_as_texts_come(place: Path) -> None:
    found = measured(place / "export", place / "mixed.jsonl")
    assert names(found) == ([UNSORTED_PEER], [PIPELINE_PEER, SORTED_PEER])
    assert (found.engine, found.texts, found.too_long) == ("openvino fp32", 10, 0)


def test_texts_that_need_windows_are_kept_from_peers_that_have_none(place: Path) -> None:
    found = measured(place / "tag", place / "mixed.jsonl")
    assert found.beside is not None
    assert (found.texts, found.too_long) == (10, 1)
    assert {peer.speed.texts for peer in found.peers} == {found.beside.speed.texts}
    assert found.speed_up(found.peers[0]) == pytest.approx(
        found.beside.speed.texts_per_second / found.peers[0].speed.texts_per_second
    )


def test_peers_without_windows_are_left_out_if_no_text_is_short(place: Path) -> None:
    found = measured(place / "tag", place / "long.jsonl")
    assert names(found) == ([], [UNSORTED_PEER, PIPELINE_PEER, SORTED_PEER])
    assert "too long" in found.left_out[1].reason


def test_all_sides_count_the_same_tokens(place: Path) -> None:
    found = measured(place / "tag", place / "short.jsonl")
    assert {(each.speed.texts, each.speed.tokens) for each in found.peers} == {
        (found.own.speed.texts, found.own.speed.tokens)
    }


def test_the_table_is_plain_and_complete(place: Path) -> None:
    found = measured(place / "export", place / "short.jsonl")
    table = json.loads(json.dumps(found.to_table()))
    assert table["latency_ms"]["p50"] <= table["latency_ms"]["p90"] <= table["latency_ms"]["p99"]
    assert table["peers"][0]["factor"] == round(found.speed_up(found.peers[0]), 3)
    assert table["megabytes"] == round(folder_megabytes(place / "export"), 3) > 0
    assert [each["name"] for each in table["left_out"]] == [PIPELINE_PEER, SORTED_PEER]


def test_start_up_is_opening_and_the_first_answer_and_not_reading(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(bench_peers, "find_spec", lambda _: None)
    found = measured(place / "tag", place / "short.jsonl", clock=lambda: float(next(ticks)))
    assert found.start_seconds == 2.0


# -- who is left out


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tag, span", "config.json names no model"),
        ("classify, pairs", "plain texts"),
        ("relate", "plain texts"),
    ],
)
def test_what_transformers_cannot_answer_is_said(name: str, reason: str, place: Path) -> None:
    found = opened(TaskModel.open(place / name))[PIPELINE_PEER]
    assert isinstance(found, SkippedPeer)
    assert reason in found.reason


def test_a_peer_that_is_not_installed_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_peers, "find_spec", lambda _: None)
    found = opened(TaskModel.open(place / "tag"))[SORTED_PEER]
    assert found == SkippedPeer(SORTED_PEER, "transformers is not installed (pip install transformers)")


def test_a_peer_that_fails_is_left_out(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise OSError("no such file")

    monkeypatch.setattr(bench_peers, "open_transformers_pipeline", fail)
    found = opened(TaskModel.open(place / "tag"))
    assert found[PIPELINE_PEER] == SkippedPeer(PIPELINE_PEER, "transformers cannot open the folder (OSError)")
    assert isinstance(found[SORTED_PEER], Peer)


def test_peers_are_for_the_cpu(place: Path) -> None:
    found = {each.name: each for each in open_peers(TaskModel.open(place / "tag"), "cuda")}
    assert isinstance(found[PIPELINE_PEER], SkippedPeer)
    assert "cuda" in found[PIPELINE_PEER].reason


# -- peers answer with the same weights


@pytest.mark.parametrize("form", ["openvino", "onnx"])
def test_a_graph_as_texts_come_finds_what_the_export_finds(form: ExportFormat, place: Path, tmp_path: Path) -> None:
    settings = ExportSettings(format=form, precision="fp32")
    export(checkpoints.open(place / "tag"), tmp_path / "export", settings)
    model = TaskModel.open(tmp_path / "export")
    examples = read_texts(model, [place / "mixed.jsonl"], ReadOptions()).examples
    peer = opened(model)[UNSORTED_PEER]
    assert isinstance(peer, Peer)
    ours, theirs = model.predict(examples), peer.predict(examples)
    assert [found(each) for each in ours] == [found(each) for each in theirs]
    # Left to itself, OpenVINO computes in bfloat16 on processors that have it.
    near = 1e-2 if form == "openvino" else 1e-4
    np.testing.assert_allclose(list(scores(ours)), list(scores(theirs)), atol=near)


def found(tagged: Any) -> list[tuple[int, int, str]]:
    return [(each.start, each.end, each.label) for each in tagged.entities]


def scores(predictions: Any) -> Iterator[float]:
    return (each.score for tagged in predictions for each in tagged.entities)


def test_transformers_classifies_as_the_checkpoint_does(place: Path) -> None:
    model = TaskModel.open(place / "classify")
    examples = read_texts(model, [place / "short.jsonl"], ReadOptions()).examples
    peers = opened(model)
    ours = [each.answers[0].label for each in model.predict(examples)]
    assert [each["label"] for each in peers[PIPELINE_PEER].predict(examples)] == ours  # type: ignore[union-attr]
    numbers = [label for label, _ in peers[SORTED_PEER].predict(examples)]  # type: ignore[union-attr]
    assert [model.task.labels[number] for number in numbers] == ours


# -- what is read


def test_texts_of_any_format_are_read_for_tasks_on_texts(place: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("No fever.")
    model = TaskModel.open(place / "classify")
    reading = read_texts(model, [tmp_path / "one.txt", place / "short.jsonl"], ReadOptions())
    assert [example.texts[0] for example in reading.examples] == ["No fever.", *SHORT]


def test_other_tasks_read_their_own_files(place: Path) -> None:
    model = TaskModel.open(place / "relate")
    assert len(read_texts(model, [place / "relate.jsonl"], ReadOptions()).examples) == 24


def test_no_more_texts_are_taken_than_wanted(place: Path) -> None:
    for name, file in (("tag", "short"), ("relate", "relate")):
        model = TaskModel.open(place / name)
        assert len(read_texts(model, [place / f"{file}.jsonl"], ReadOptions(), 5).examples) == 5


def test_what_cannot_be_read_is_set_aside(place: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "text": "No fever."}\n{"id": \n')
    reading = read_texts(TaskModel.open(place / "tag"), [tmp_path / "bad.jsonl"], ReadOptions())
    assert (len(reading.examples), len(reading.set_aside)) == (1, 1)


@pytest.mark.parametrize("name", ["tag", "relate"])
def test_a_file_that_is_not_there_is_a_sentence(name: str, place: Path) -> None:
    with pytest.raises(BadFile, match=r"nowhere\.jsonl"):
        read_texts(TaskModel.open(place / name), [Path("nowhere.jsonl")], ReadOptions())


def test_a_file_without_texts_is_a_sentence(place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(BadFile, match="nothing to measure"):
        read_texts(TaskModel.open(place / "tag"), [tmp_path / "empty.jsonl"], ReadOptions())


def test_no_texts_and_no_time_are_refused(place: Path) -> None:
    with pytest.raises(BadSetting, match="0 texts; expected at least 1"):
        measured(place / "tag", place / "short.jsonl", limit=0)
    with pytest.raises(BadSetting, match="expected more than 0"):
        bench(place / "export", [place / "short.jsonl"], seconds=0)


def test_a_peer_counts_tokens_as_the_model_does(place: Path) -> None:
    model = TaskModel.open(place / "tag")
    examples = read_texts(model, [place / "short.jsonl"], ReadOptions()).examples
    peer = Peer("any", replace(model), lambda _: [], reads_whole_texts=True)
    assert [each.tokens for each in peer.encode(examples)] == [each.tokens for each in model.encode(examples)]
