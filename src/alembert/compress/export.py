"""A fine-tuned Checkpoint in, an Export folder out: the graph, the tasks, the tokenizer, and what was measured.

A model of several tasks becomes one graph: one encoder, an output for each head. It is built in fp32 first, which is also
the yardstick. int8 is calibrated on the tasks' own text and measured on labelled examples; what costs any task more than
the settings allow goes back to float (`fallback`). Everything is measured before the folder is begun, since its card
tells it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from alembert import artifact, hardware
from alembert.compress.candidate import tokenizer_of
from alembert.compress.card import Measured, Outcome, card
from alembert.compress.fallback import Fallback
from alembert.compress.faster import faster, paces, told
from alembert.compress.makers import MAKERS, Maker
from alembert.compress.network import check_exportable
from alembert.compress.part import Material, Part, Trial
from alembert.compress.settings import ExportSettings
from alembert.data.windows import REFERENCE_TOKENS, Row
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.nn.config import count_multiplications_per_token
from alembert.tasks.files import (
    HASH_FILES,
    get_run_path,
    read_task_names,
    read_task_table,
    write_task,
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

__all__ = ["Material", "export"]

Say = Callable[[str], None]
FEW_ROWS: Final = 32
"""Rows on which formats are compared: speed does not depend on how well a graph is calibrated."""


def export(
    checkpoint: Checkpoint,
    out: str | Path,
    settings: ExportSettings | None = None,
    material: Material | Mapping[str, Material] | None = None,
    *,
    task: str | None = None,
    overwrite: bool = False,
    say: Say = lambda _: None,
) -> Outcome:
    """Write an Export of a fine-tuned checkpoint.

    Of a model of several tasks all are exported, each with the material of its name, unless `task` names one of them.
    """
    settings = settings or ExportSettings()
    artifact.check_can_create(out, EXPORT_KIND, config={}, overwrite=overwrite)
    parts = _parts(checkpoint, material or {}, task)
    _check_calibrated(settings, parts)
    form = settings.format or _format(checkpoint, settings, parts, say)
    settings = replace(settings, format=form)
    named = task is None and bool(read_task_names(parts[0].folder))
    work = _Work(checkpoint, settings, form, parts, say, named=named)
    work.check()
    graph, in_float = work.chosen()
    outcome = work.outcome(graph, in_float)
    config = {"graph": outcome.facts.to_table(), "settings": asdict(settings), **work.record(outcome)}
    inputs = list(dict.fromkeys([parts[0].folder, *(file for part in parts for file in part.material.files)]))
    with artifact.create(out, EXPORT_KIND, config=config, inputs=inputs, overwrite=overwrite) as draft:
        work.write(draft.path, graph, outcome)
        draft.counts["parameters"] = checkpoint.parameters
    return outcome


def _check_calibrated(settings: ExportSettings, parts: Sequence[Part]) -> None:
    """Refuse int8 without text, before anything is measured."""
    if settings.precision == "int8" and not any(part.material.calibration for part in parts):
        raise BadSetting(
            "int8 is calibrated on text of the task, and none was given. Give a file (--calibrate FILE; training data "
            "is good), or export with --fp32."
        )


def _format(checkpoint: Checkpoint, settings: ExportSettings, parts: Sequence[Part], say: Say) -> ExportFormat:
    """Choose the format whose library is faster here: by the model itself, if speed is measured and there is text."""
    dtype = "int8" if settings.precision == "int8" else "float32"
    machine = hardware.detect_capabilities()
    formats: dict[str | None, ExportFormat] = {library: name for name, library in RUNTIME_PACKAGES.items()}
    there = [formats[library] for library in machine.libraries_for(dtype)]
    rows = _rows(parts, FEW_ROWS) if any(part.material.stopwatch for part in parts) else []
    if len(there) < 2 or not rows:
        verdict = machine.library_for(dtype)
        chosen, reason = formats.get(verdict.value, "onnx"), verdict.reason
    else:
        say("trying the model in both formats")
        found = paces(_in_formats(there, checkpoint, settings, parts, rows), rows)
        chosen, reason = faster(found), told(found)
    say(f"format {chosen}: {reason}")
    return chosen


def _in_formats(
    formats: Sequence[ExportFormat],
    checkpoint: Checkpoint,
    settings: ExportSettings,
    parts: Sequence[Part],
    rows: Sequence[Row],
) -> dict[ExportFormat, ExportedGraph]:
    """Make the graph in several formats, calibrated on these rows."""
    heads, width = {part.head: part.facts for part in parts}, checkpoint.blueprint.config.hidden_size
    made = {}
    for form in formats:
        maker: Maker = MAKERS[form](checkpoint.model, list(heads), rows)
        maker.check()
        graph = maker.exact() if settings.precision == "fp32" else maker.int8(())
        made[form] = ExportedGraph(maker.compile(graph), heads, width)
    return made


def _rows(parts: Sequence[Part], most: int) -> list[Row]:
    """Give rows of the tasks' text, as many of each task that has some."""
    texts = [part for part in parts if part.material.calibration]
    return [row for part in texts for row in part.rows(max(1, most // len(texts)))]


def _parts(checkpoint: Checkpoint, material: Material | Mapping[str, Material], task: str | None) -> tuple[Part, ...]:
    if checkpoint.folder is None:
        raise BadSetting("The checkpoint was made here and is in no folder. Save it, and open the folder.")
    folder = checkpoint.folder
    several = read_task_names(folder)
    wanted = several if task is None and several else (task,)
    kinds = [read_task_table(folder, name)["task"] for name in wanted]  # a name that is not there is refused
    names = list(wanted) if several else [None]
    called = [name or kind for name, kind in zip(names, kinds, strict=True)]
    given = _by_name(material, called, folder)
    return tuple(
        Part(checkpoint, folder, name, given.get(own, Material())) for name, own in zip(names, called, strict=True)
    )


def _by_name(material: Material | Mapping[str, Material], names: Sequence[str], folder: Path) -> Mapping[str, Material]:
    """Say whose the material is: the only task has it, and of several each that of its name."""
    if isinstance(material, Material):
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
class _Work:
    """One export under way."""

    checkpoint: Checkpoint
    settings: ExportSettings
    format: ExportFormat
    parts: tuple[Part, ...]
    say: Say
    named: bool
    """Whether tasks have names in the Export."""

    def check(self) -> None:
        """Refuse before the long work what cannot be exported."""
        tokenizer_of(self.checkpoint)
        for part in self.parts:
            _ = part.task
        check_exportable(self.checkpoint.model, self.heads)
        self.maker.check()

    @cached_property
    def heads(self) -> list[str]:
        return [part.head for part in self.parts]

    @cached_property
    def maker(self) -> Maker:
        return MAKERS[self.format](self.checkpoint.model, self.heads, self.rows)

    @cached_property
    def exact(self) -> Any:
        """The graph in fp32."""
        return self.maker.exact()

    @cached_property
    def rows(self) -> list[Row]:
        """The rows to calibrate on, as many of each task that has text."""
        return _rows(self.parts, self.settings.rows)

    def compiled(self, graph: Any) -> ExportedGraph:
        heads = {part.head: part.facts for part in self.parts}
        return ExportedGraph(self.maker.compile(graph), heads, self.checkpoint.blueprint.config.hidden_size)

    @cached_property
    def trials(self) -> list[Trial]:
        """The tasks in fp32; one graph for all uses, so that it is compiled once, and not while speed is measured."""
        exact = self.compiled(self.exact) if any(part.material.judged for part in self.parts) else None
        return [] if exact is None else [Trial(part, part.form(exact)) for part in self.parts]

    def chosen(self) -> tuple[Any | None, tuple[str, ...]]:
        """Give the int8 graph to be written, and what is in float in it; none: fp32 is written."""
        if self.settings.precision == "fp32":
            return None, ()
        self.say(f"calibrating int8 on {len(self.rows):,} rows of text")
        search = Fallback(
            quantised=self.maker.int8,
            loss=self._loss,
            ranked=self.maker.ranked,
        )
        return search.within(self.settings.limit, self.say) or (None, ())

    def _loss(self, graph: Any) -> float:
        """Give the points that int8 costs the task which loses most."""
        scored = [trial for trial in self.trials if trial.is_scored]
        if not scored:
            return 0.0
        self.say(f"scoring int8 on {sum(len(trial.part.material.judged) for trial in scored):,} examples")
        made = self.compiled(graph)
        return max(trial.loss(trial.part.form(made)) for trial in scored)

    def outcome(self, graph: Any | None, in_float: tuple[str, ...]) -> Outcome:
        return Outcome(
            tasks=self._measured(graph),
            facts=self._facts("fp32" if graph is None else "int8"),
            asked=self.settings.precision,
            calibration_rows=0 if graph is None else len(self.rows),
            in_float=in_float,
            bytes=self.maker.size(self.exact if graph is None else graph),
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

    def _measured(self, graph: Any | None) -> dict[str, Measured]:
        found = {part.head: Measured(task=part.task.name) for part in self.parts}
        made = None if graph is None else self.compiled(graph)
        for trial in self.trials:
            part = trial.part
            if part.material.stopwatch and part.material.judged:
                self.say(f"measuring speed{f' of {part.name}' if self.named else ''}")
            found[part.head] = trial.measured(None if made is None else part.form(made))
        return found

    def record(self, outcome: Outcome) -> dict[str, Any]:
        """Give what the manifest keeps of the work; `measured` is of the task that lost most."""
        tasks = {name: asdict(each) for name, each in outcome.tasks.items()}
        return {"in_float": list(outcome.in_float), "tasks": tasks, "measured": asdict(outcome.measured)}

    def write(self, folder: Path, graph: Any | None, outcome: Outcome) -> None:
        """Fill the folder of the Export."""
        self.maker.write(self.exact if graph is None else graph, folder / GRAPH_FILES[self.format])
        tokenizer_of(self.checkpoint).save(folder)
        self._write_tasks(folder)
        write_decoding_weights(folder, {part.head: part.decoding_weights for part in self.parts})
        (folder / "README.md").write_text(card(outcome), encoding="utf8")

    def _write_tasks(self, folder: Path) -> None:
        """Write what the tasks are, and what they were trained on if that is to go along."""
        facts = {part.head: (part.task, part.training) for part in self.parts}
        if self.named:
            write_tasks(folder, facts)
        else:
            write_task(folder, *facts[self.heads[0]])
        for part in self.parts if self.settings.training_hashes else ():
            for file in HASH_FILES:
                if (source := get_run_path(part.folder, part.name, file)).is_file():
                    copy = get_run_path(folder, part.name if self.named else None, file)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, copy)
