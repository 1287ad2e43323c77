"""Export of a fine-tuned Checkpoint: the graph, the tasks, the tokenizer, and what was measured.

A model of several tasks becomes one graph: one encoder, an output for each head. It is built in fp32 first, which is also
the yardstick. int8 is calibrated on the tasks' own text and measured on labelled examples; what costs any task more than
the settings allow goes back to float (`FloatFallback`). Everything is measured before the folder is begun, since its card
reports it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from alembert import artifact, hardware
from alembert.compress import ExportSettings
from alembert.compress.card import ExportReport, TaskMeasurement, render_card
from alembert.compress.formats import FloatFallback, GraphBuilder, create_builder
from alembert.compress.measure import (
    LONE_TOKENS,
    ExportData,
    ExportedTask,
    Fp32Baseline,
    choose_format,
    describe_speeds,
    fill_batches,
    measure_format_speeds,
    stretch_row,
)
from alembert.compress.network import check_exportable
from alembert.data.windows import REFERENCE_TOKENS, Row
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.hardware.torch_settings import choose_threads
from alembert.nn.config import count_multiplications_per_token
from alembert.tasks.files import (
    HASH_FILES,
    choose_task,
    get_run_folder,
    read_tasks,
    write_tasks,
)
from alembert.tasks.runtime.export import ExportedGraph
from alembert.tasks.runtime.export_files import (
    EXPORT_KIND,
    GRAPH_FILES,
    RUNTIME_PACKAGES,
    ExportFormat,
    ExportMetadata,
    ExportPrecision,
    write_decoding_weights,
)

__all__ = ["ExportData", "export"]

Say = Callable[[str], None]
FORMAT_ROWS: Final = 32
"""Rows on which formats are compared: speed does not depend on how well a graph is calibrated."""


def export(
    checkpoint: Checkpoint,
    out: str | Path,
    settings: ExportSettings | None = None,
    material: ExportData | Mapping[str, ExportData] | None = None,
    *,
    task: str | None = None,
    overwrite: bool = False,
    say: Say = lambda _: None,
) -> ExportReport:
    """Write an Export of a fine-tuned checkpoint.

    Of a model of several tasks all are exported, each with the material of its name, unless `task` names one of them.
    """
    settings = settings or ExportSettings()
    artifact.check_can_create(out, EXPORT_KIND, config={}, overwrite=overwrite)
    parts = _list_exported_tasks(checkpoint, material or {}, task)
    _check_calibration(settings, parts)
    form = settings.format or _choose_format(checkpoint, settings, parts, say)
    settings = replace(settings, format=form)
    work = _ExportRun(checkpoint, settings, form, parts, say)
    work.check()
    graph, in_float = work.choose_graph()
    outcome = work.outcome(graph, in_float)
    config = {"graph": outcome.facts.to_table(), "settings": asdict(settings), **work.record(outcome)}
    inputs = list(dict.fromkeys([parts[0].saved.folder, *(file for part in parts for file in part.data.files)]))
    with artifact.create(out, EXPORT_KIND, config=config, inputs=inputs, overwrite=overwrite) as draft:
        work.write(draft.path, graph, outcome)
        draft.counts["parameters"] = checkpoint.parameters
    return outcome


def _check_calibration(settings: ExportSettings, parts: Sequence[ExportedTask]) -> None:
    """Refuse int8 without text, before anything is measured."""
    if settings.precision == "int8" and not any(part.data.calibration for part in parts):
        raise BadSetting(
            "int8 is calibrated on text of the task, and none was given. Give a file (--calibrate FILE; training data "
            "is good), or export with --fp32."
        )


def _choose_format(
    checkpoint: Checkpoint, settings: ExportSettings, parts: Sequence[ExportedTask], say: Say
) -> ExportFormat:
    """Choose the format whose library is faster here: by the model itself, if speed is measured and there is text."""
    dtype = "int8" if settings.precision == "int8" else "float32"
    machine = hardware.detect_capabilities()
    formats: dict[str | None, ExportFormat] = {library: name for name, library in RUNTIME_PACKAGES.items()}
    available = [formats[library] for library in machine.libraries_for(dtype)]
    rows = _calibration_rows(parts, FORMAT_ROWS) if any(part.data.stopwatch for part in parts) else []
    if len(available) < 2 or not rows:
        verdict = machine.library_for(dtype)
        chosen, reason = formats.get(verdict.value, "onnx"), verdict.reason
    else:
        say("trying the model in both formats")
        lone = stretch_row(max(rows, key=lambda row: row.length), min(LONE_TOKENS, checkpoint.max_tokens))
        graphs = _build_graphs(available, checkpoint, settings, parts, rows)
        speeds = measure_format_speeds(graphs, fill_batches(rows, choose_threads().count), lone)
        chosen, reason = choose_format(speeds), describe_speeds(speeds)
    say(f"format {chosen}: {reason}")
    return chosen


def _build_graphs(
    formats: Sequence[ExportFormat],
    checkpoint: Checkpoint,
    settings: ExportSettings,
    parts: Sequence[ExportedTask],
    rows: Sequence[Row],
) -> dict[ExportFormat, ExportedGraph]:
    """Build the graph in several formats, calibrated on these rows."""
    heads, width = {part.head: part.facts for part in parts}, checkpoint.blueprint.config.hidden_size
    graphs = {}
    for form in formats:
        builder = create_builder(form, checkpoint.model, list(heads), rows, portable=settings.portable)
        builder.check()
        graph = builder.build_fp32() if settings.precision == "fp32" else builder.build_int8(())
        graphs[form] = ExportedGraph(builder.compile(graph), heads, width)
    return graphs


def _calibration_rows(parts: Sequence[ExportedTask], most: int) -> list[Row]:
    """Return rows of the tasks' text, as many of each task that has some."""
    texts = [part for part in parts if part.data.calibration]
    return [row for part in texts for row in part.rows(max(1, most // len(texts)))]


def _list_exported_tasks(
    checkpoint: Checkpoint, material: ExportData | Mapping[str, ExportData], task: str | None
) -> tuple[ExportedTask, ...]:
    if checkpoint.folder is None:
        raise BadSetting("The checkpoint was made here and is in no folder. Save it, and open the folder.")
    tasks = read_tasks(checkpoint.folder)
    exported = tasks.values() if task is None else [choose_task(checkpoint.folder, tasks, task)]
    data = _data_by_task(material, [saved.name for saved in exported], checkpoint.folder)
    return tuple(
        ExportedTask(checkpoint, saved, data.get(saved.name, ExportData()), len(tasks) == 1) for saved in exported
    )


def _data_by_task(
    material: ExportData | Mapping[str, ExportData], names: Sequence[str], folder: Path
) -> Mapping[str, ExportData]:
    """Map tasks to their material: the only task gets it, and of several each that of its name."""
    if isinstance(material, ExportData):
        if len(names) == 1:
            return {names[0]: material}
        raise BadSetting(
            f"{folder} has several tasks ({', '.join(names)}), and examples were given without saying whose they are. "
            "Give them by the name of the task, or export one task."
        )
    if strange := sorted(material.keys() - set(names)):
        raise BadSetting(f"Examples were given for {strange[0]}, which is not exported; expected {' or '.join(names)}.")
    return material


@dataclass(frozen=True)
class _ExportRun:
    """One export under way."""

    checkpoint: Checkpoint
    settings: ExportSettings
    format: ExportFormat
    parts: tuple[ExportedTask, ...]
    say: Say

    def check(self) -> None:
        """Refuse before the long work what cannot be exported."""
        self.checkpoint.require_tokenizer()
        for part in self.parts:
            _ = part.task
        check_exportable(self.checkpoint.model, self.heads)
        self.builder.check()

    @cached_property
    def heads(self) -> list[str]:
        return [part.head for part in self.parts]

    @cached_property
    def builder(self) -> GraphBuilder:
        portable = self.settings.portable
        return create_builder(self.format, self.checkpoint.model, self.heads, self.rows, portable=portable)

    @cached_property
    def exact(self) -> Any:
        """The graph in fp32."""
        return self.builder.build_fp32()

    @cached_property
    def rows(self) -> list[Row]:
        """The rows to calibrate on, as many of each task that has text."""
        return _calibration_rows(self.parts, self.settings.calibration_rows)

    def compile(self, graph: Any) -> ExportedGraph:
        heads = {part.head: part.facts for part in self.parts}
        return ExportedGraph(self.builder.compile(graph), heads, self.checkpoint.blueprint.config.hidden_size)

    @cached_property
    def trials(self) -> list[Fp32Baseline]:
        """The tasks in fp32; one graph for all uses, so that it is compiled once, and not while speed is measured."""
        exact = self.compile(self.exact) if any(part.data.judged for part in self.parts) else None
        return [] if exact is None else [Fp32Baseline(part, part.candidate(exact)) for part in self.parts]

    def choose_graph(self) -> tuple[Any | None, tuple[str, ...]]:
        """Return the int8 graph to be written, and what is in float in it; none: fp32 is written."""
        if self.settings.precision == "fp32":
            return None, ()
        self.say(f"calibrating int8 on {len(self.rows):,} rows of text")
        fallback = FloatFallback(quantise=self.builder.build_int8, loss=self._loss, rank=self.builder.rank_products)
        return fallback.search(self.settings.max_score_loss, self.say) or (None, ())

    def _loss(self, graph: Any) -> float:
        """Return the points that int8 costs the task which loses most."""
        scored = [trial for trial in self.trials if trial.is_scored]
        if not scored:
            return 0.0
        self.say(f"scoring int8 on {sum(len(trial.part.data.judged) for trial in scored):,} examples")
        compiled = self.compile(graph)
        return max(trial.loss(trial.part.candidate(compiled)) for trial in scored)

    def outcome(self, graph: Any | None, in_float: tuple[str, ...]) -> ExportReport:
        return ExportReport(
            tasks=self._measure_tasks(graph),
            facts=self._facts("fp32" if graph is None else "int8"),
            asked=self.settings.precision,
            calibration_rows=0 if graph is None else len(self.rows),
            in_float=in_float,
            bytes=self.builder.size(self.exact if graph is None else graph),
            checkpoint_bytes=self.checkpoint.bytes,
            vectors=next((part.vectors for part in self.parts if part.vectors), None),
        )

    def _facts(self, precision: ExportPrecision) -> ExportMetadata:
        config = self.checkpoint.blueprint.config
        return ExportMetadata(
            format=self.format,
            precision=precision,
            heads={part.head: part.facts for part in self.parts},
            longest=config.max_position_embeddings,
            parameters=self.checkpoint.parameters,
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            multiplications=count_multiplications_per_token(config, tokens=REFERENCE_TOKENS),
        )

    def _measure_tasks(self, graph: Any | None) -> dict[str, TaskMeasurement]:
        measurements = {part.head: TaskMeasurement(task=part.task.name) for part in self.parts}
        compiled = None if graph is None else self.compile(graph)
        for trial in self.trials:
            part = trial.part
            if part.data.stopwatch and part.data.judged:
                self.say(f"measuring speed{f' of {part.saved.name}' if len(self.parts) > 1 else ''}")
            measurements[part.head] = trial.measure(None if compiled is None else part.candidate(compiled))
        return measurements

    def record(self, outcome: ExportReport) -> dict[str, Any]:
        """Return what the manifest records; `measured` is of the task that lost most."""
        tasks = {name: asdict(measurement) for name, measurement in outcome.tasks.items()}
        return {"in_float": list(outcome.in_float), "tasks": tasks, "measured": asdict(outcome.measured)}

    def write(self, folder: Path, graph: Any | None, outcome: ExportReport) -> None:
        """Fill the folder of the Export."""
        self.builder.write(self.exact if graph is None else graph, folder / GRAPH_FILES[self.format])
        self.checkpoint.require_tokenizer().save(folder)
        self._write_tasks(folder)
        write_decoding_weights(folder, {part.head: part.decoding_weights for part in self.parts})
        (folder / "README.md").write_text(render_card(outcome), encoding="utf8")

    def _write_tasks(self, folder: Path) -> None:
        """Write what the tasks are, and what they were trained on if that is to go along."""
        heads = {part.saved.name: part.head for part in self.parts}
        write_tasks(folder, {part.saved.name: (part.task, part.saved.training) for part in self.parts}, heads)
        for part in self.parts if self.settings.training_hashes else ():
            run = get_run_folder(folder, part.saved.name, heads)
            for file in HASH_FILES:
                if (source := part.saved.run_path(file)).is_file():
                    run.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, run / file)
