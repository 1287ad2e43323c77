"""The format of an Export is chosen by running the model in both."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.compress import ExportSettings
from alembert.compress import export as exporting
from alembert.compress.export import ExportData, export
from alembert.compress.measure import (
    FormatSpeed,
    choose_format,
    describe_speeds,
    fill_batches,
    measure_format_speeds,
    stretch_row,
)
from alembert.data.windows import Row, TokenFeatures
from alembert.files import checkpoint as checkpoints
from alembert.infer.speed import measure_speeds
from small_checkpoints import fine_tuned


class Scripted:
    """A graph that takes a given time for each token, and for each call."""

    def __init__(self, now: list[float], a_token: float, a_call: float) -> None:
        self.heads = {"tag": True}
        self.now, self.a_token, self.a_call = now, a_token, a_call

    def head_outputs(self, heads: Sequence[str], rows: Sequence[Row]) -> Iterator[tuple[int, Any]]:
        self.now[0] += self.a_call + self.a_token * sum(row.length for row in rows)
        yield from enumerate(rows)


def rows(*lengths: int) -> list[Row]:
    return [Row(np.ones(length, np.int32), positions=np.arange(length)) for length in lengths]


def test_speed_is_tokens_over_seconds_and_latency_that_of_single_rows() -> None:
    now = [0.0]
    graphs: Any = {"openvino": Scripted(now, 0.001, 0.5), "onnx": Scripted(now, 0.002, 0.1)}
    found = measure_format_speeds(graphs, rows(100, 100, 100), *rows(100), clock=lambda: now[0])
    assert found["openvino"].tokens_per_second == pytest.approx(300 / 0.8)
    assert found["openvino"].milliseconds == pytest.approx(600)
    assert found["onnx"].tokens_per_second == pytest.approx(300 / 0.7)
    assert found["onnx"].milliseconds == pytest.approx(300)
    assert choose_format(found) == "onnx"
    assert describe_speeds(found).startswith(
        "in openvino 375 tokens a CPU second, 600.0 CPU ms for one row alone; in onnxruntime"
    )


def test_many_rows_and_single_ones_count_alike() -> None:
    assert choose_format({"openvino": FormatSpeed(1000, 9.0), "onnx": FormatSpeed(800, 8.0)}) == "openvino"
    assert choose_format({"openvino": FormatSpeed(1000, 9.0), "onnx": FormatSpeed(800, 7.0)}) == "onnx"


def test_load_that_comes_and_goes_does_not_change_what_is_measured() -> None:
    now, calls = [0.0], count()

    def busy() -> float:
        now[0] += 0.3 * (next(calls) % 3 == 0)
        return now[0]

    graphs: Any = {"openvino": Scripted(now, 0.001, 0.5), "onnx": Scripted(now, 0.002, 0.1)}
    found = measure_format_speeds(graphs, rows(100, 100, 100), *rows(100), clock=busy)
    assert found["onnx"].milliseconds == pytest.approx(300)
    assert found["openvino"].tokens_per_second == pytest.approx(300 / 0.8)


def test_each_thread_has_full_batches() -> None:
    assert sum(row.length for row in fill_batches(rows(30, 10, 60), 2)) == 4100
    assert len(fill_batches(rows(5000), 1)) == 1


def test_a_row_is_stretched_with_its_segments_and_features() -> None:
    ids, segments, features = np.array([5, 6, 7]), np.array([0, 1, 1]), np.array([[1], [2], [3]])
    row = Row(ids, segments=segments, positions=np.arange(3), features=TokenFeatures(features, np.zeros(1, np.int64)))
    longer = stretch_row(row, 4)
    assert (longer.length, longer.ids[3], longer.segments[3]) == (4, 5, 0)
    assert longer.features.rows_TF.tolist() == [[1], [2], [3], [1]]
    assert stretch_row(row, 2).ids.tolist() == [5, 6]


@pytest.mark.parametrize("winner", ["openvino", "onnx"])
@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_the_export_has_the_format_that_won(
    winner: Any, precision: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = fine_tuned("tag", tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    measured: list[Any] = []

    def scripted(graphs: Any, given: Any, lone: Any) -> Any:
        measured.append(measure_format_speeds(graphs, given[:8], lone))
        return {form: FormatSpeed(2.0 if form == winner else 1.0, 1.0) for form in graphs}

    monkeypatch.setattr(exporting, "measure_format_speeds", scripted)
    said: list[str] = []
    material = ExportData(
        calibration=examples, stopwatch=lambda forms, texts: measure_speeds(forms, texts, seconds=0.1)
    )
    checkpoint = checkpoints.open(tmp_path / "checkpoint")
    settings = ExportSettings(precision=precision, calibration_rows=6)
    outcome = export(checkpoint, tmp_path / "export", settings, material, say=said.append)
    assert outcome.facts.format == winner
    assert set(measured[0]) == {"openvino", "onnx"}
    assert all(pace.tokens_per_second > 0 and pace.milliseconds > 0 for pace in measured[0].values())
    assert any(sentence.startswith(f"format {winner}: in openvino") for sentence in said)


def test_without_a_stopwatch_the_machine_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = fine_tuned("tag", tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    monkeypatch.setattr(exporting, "measure_format_speeds", lambda *_: pytest.fail("speed was measured"))
    checkpoint = checkpoints.open(tmp_path / "checkpoint")
    export(checkpoint, tmp_path / "export", ExportSettings(calibration_rows=6), ExportData(calibration=examples))
    assert (tmp_path / "export" / "manifest.json").is_file()
