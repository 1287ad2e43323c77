"""A fine-tuned Checkpoint in, an Export folder out: the graph, the task, the tokenizer, and what was measured.

The graph is built in fp32 first, which is also the yardstick. int8 is calibrated on the task's own text and measured on
labelled examples; what costs more than the settings allow goes back to float (`fallback`). Everything is measured before
the folder is begun, since its card tells it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert import artifact
from alembert.compress.candidate import Candidate, Stopwatch, same_answers, tokenizer_of
from alembert.compress.card import Measured, Outcome, card
from alembert.compress.fallback import Fallback
from alembert.compress.graph import build_graph
from alembert.compress.quantise import quantise, ranked
from alembert.compress.settings import ExportSettings
from alembert.data.rows import USUAL_TOKENS, Row
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.hardware.openvino_settings import import_openvino
from alembert.nn.multiplications import encoder_multiplications
from alembert.tasks.export_files import (
    GRAPH,
    KIND,
    ExportFacts,
    Precision,
    write_decoding,
)
from alembert.tasks.files import KEYS, RUN, SURFACES, open_task, read_table, run_file, write_task
from alembert.tasks.running import ModelRunner
from alembert.tasks.running_openvino import GraphRunner
from alembert.tasks.task import AnyTask

if TYPE_CHECKING:
    from openvino import Model as Graph

RANKING_ROWS: Final = 16
"""Rows on which the harm of single products is compared: it is done for each of them."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Material:
    """What an export is made with, beside the checkpoint."""

    calibration: Sequence[Any] = ()
    """Examples of the task, labelled or not, whose text int8 is calibrated on."""
    judged: Sequence[Any] = ()
    """Examples on which fp32 and the Export are compared."""
    labelled: bool = True
    """Whether the right answers of the judged ones are known."""
    stopwatch: Stopwatch | None = None
    """Measures speed; none: it is not measured."""
    machine: str = ""
    """Where it is measured, in a few words."""
    files: tuple[Path, ...] = ()
    """Where the examples come from, for the manifest."""


def export(
    checkpoint: Checkpoint,
    out: str | Path,
    settings: ExportSettings | None = None,
    material: Material | None = None,
    *,
    task: str | None = None,
    overwrite: bool = False,
    say: Say = lambda _: None,
) -> Outcome:
    """Write an Export of a fine-tuned checkpoint; `task` is the name of one of several."""
    settings, material = settings or ExportSettings(), material or Material()
    artifact.check(out, KIND, config={}, overwrite=overwrite)
    if settings.precision == "int8" and not material.calibration:
        raise BadSetting(
            "int8 is calibrated on text of the task, and none was given. Give a file (--calibrate FILE; training data "
            "is good), or export with --fp32."
        )
    work = _Work(checkpoint, settings, material, task, say)
    graph, precision, in_float = work.chosen()
    outcome = work.outcome(graph, precision, in_float)
    config = {"graph": outcome.facts.to_table(), "settings": asdict(settings), **work.record(outcome)}
    inputs = [work.folder, *material.files]
    with artifact.create(out, KIND, config=config, inputs=inputs, overwrite=overwrite) as draft:
        work.write(draft.path, graph, outcome)
        draft.counts["parameters"] = checkpoint.parameters
    return outcome


@dataclass(frozen=True)
class _Work:
    """One export under way."""

    checkpoint: Checkpoint
    settings: ExportSettings
    material: Material
    name: str | None
    say: Say

    @property
    def folder(self) -> Path:
        if self.checkpoint.folder is None:
            raise BadSetting(
                "The checkpoint was made here and is in no folder. Save it, and open the folder."
            )
        return self.checkpoint.folder

    @cached_property
    def task(self) -> AnyTask:
        """The task as it decodes: with what it needs of the head's weights."""
        task = open_task(self.folder, self.name)
        if task.attention not in (None, "bidirectional"):
            raise BadSetting(
                f"A model of the task {task.name} that writes texts cannot be exported. Use the checkpoint itself."
            )
        return task.bind(self.checkpoint.model.head(self.head))

    @cached_property
    def head(self) -> str:
        return self.name or open_task(self.folder).head().kind

    @cached_property
    def exact(self) -> Graph:
        """The graph in fp32."""
        return build_graph(self.checkpoint.model, self.head)

    @cached_property
    def rows(self) -> list[Row]:
        """The rows to calibrate on, from everywhere in the text."""
        examples = self.material.calibration
        wanted = min(self.settings.rows, len(examples))
        drawn = [examples[number * len(examples) // wanted] for number in range(wanted)]
        found = [row for each in self.exact_form.encode(drawn) for row in each.rows]
        return found[: self.settings.rows]

    def candidate(self, graph: Graph) -> Candidate:
        per_token = self.checkpoint.model.spec(self.head).per_token
        return Candidate(self.task, self.checkpoint, GraphRunner(graph, per_token=per_token))

    @cached_property
    def exact_form(self) -> Candidate:
        """The model in fp32; one for all uses, so that it is compiled once, and not while its speed is measured."""
        return self.candidate(self.exact)

    @cached_property
    def exact_answers(self) -> list[Any]:
        """What fp32 says to the judged examples."""
        return self.exact_form.predict(self.material.judged)

    def score(self, answers: Sequence[Any]) -> float:
        return self.task.score(self.material.judged, answers).value

    @property
    def is_scored(self) -> bool:
        return bool(self.material.judged) and self.material.labelled

    @property
    def _answers_are_numbers(self) -> bool:
        """Whether answers are numbers or vectors, of which no two are the same."""
        return not self.task.labels and self.checkpoint.model.spec(self.head).kind in ("classify", "embed")

    def chosen(self) -> tuple[Graph, Precision, tuple[str, ...]]:
        """Give the graph to be written, its numbers, and what of them is in float though int8 was asked for."""
        _ = (
            tokenizer_of(self.checkpoint),
            self.task,
            self.exact,
        )  # what cannot be exported is refused before the long work
        if self.settings.precision == "fp32":
            return self.exact, "fp32", ()
        self.say(f"calibrating int8 on {len(self.rows):,} rows of text")
        search = Fallback(
            quantised=lambda kept: quantise(self.exact, self.rows, kept),
            loss=self._loss,
            ranked=lambda graph: ranked(graph, self.exact, self.rows[:RANKING_ROWS]),
        )
        found = search.within(self.settings.limit, self.say)
        return (self.exact, "fp32", ()) if found is None else (found[0], "int8", found[1])

    def _loss(self, graph: Graph) -> float:
        if not self.is_scored:
            return 0.0
        self.say(f"scoring int8 on {len(self.material.judged):,} examples")
        answers = self.candidate(graph).predict(self.material.judged)
        return 100 * (self.score(self.exact_answers) - self.score(answers))

    def outcome(self, graph: Graph, precision: Precision, in_float: tuple[str, ...]) -> Outcome:
        return Outcome(
            task=self.task.name,
            facts=self._facts(precision),
            asked=self.settings.precision,
            calibration_rows=len(self.rows) if precision == "int8" else 0,
            in_float=in_float,
            measured=self._measured(graph, precision),
            bytes=sum(node.data.nbytes for node in graph.get_ops() if node.get_type_name() == "Constant"),
            checkpoint_bytes=self.checkpoint.bytes,
        )

    def _facts(self, precision: Precision) -> ExportFacts:
        config, spec = self.checkpoint.blueprint.config, self.checkpoint.model.spec(self.head)
        return ExportFacts(
            precision=precision,
            head=spec.kind,
            per_token=spec.per_token,
            labels=self.task.labels,
            longest=config.max_position_embeddings,
            parameters=self.checkpoint.parameters,
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            multiplications=encoder_multiplications(config, tokens=USUAL_TOKENS),
        )

    def _measured(self, graph: Graph, precision: Precision) -> Measured:
        judged, exact = self.material.judged, self.exact_form
        if not judged:
            return Measured()
        made = exact if precision == "fp32" else self.candidate(graph)
        answers = self.exact_answers if precision == "fp32" else made.predict(judged)
        found = Measured(judged=len(judged))
        if self.is_scored:
            scores = self.task.score(judged, answers)
            found = replace(
                found, measure=scores.main, fp32=self.score(self.exact_answers), exported=scores.value
            )
        if precision == "int8" and not self._answers_are_numbers:
            found = replace(found, same_answers=same_answers(self.task, judged, self.exact_answers, answers))
        return self._clocked(found, {"fp32": exact, precision: made})

    def _clocked(self, found: Measured, forms: dict[str, Candidate]) -> Measured:
        if self.material.stopwatch is None:
            return found
        self.say("measuring speed")
        runner = ModelRunner(self.checkpoint.model, self.head, self.task.attention)
        in_torch = Candidate(self.task, self.checkpoint, runner)
        # The first call prepares an engine; the graphs have had theirs.
        in_torch.predict(self.material.judged[:1])
        forms = {"the checkpoint": in_torch, **forms}
        speeds = dict(
            zip(forms, self.material.stopwatch(list(forms.values()), self.material.judged), strict=True)
        )
        return replace(
            found,
            texts_per_second={form: speed.texts_per_second for form, speed in speeds.items()},
            tokens_per_second={form: speed.tokens_per_second for form, speed in speeds.items()},
            machine=self.material.machine,
        )

    def record(self, outcome: Outcome) -> dict[str, Any]:
        """Give what the manifest keeps of the work."""
        return {"in_float": list(outcome.in_float), "measured": asdict(outcome.measured)}

    def write(self, folder: Path, graph: Graph, outcome: Outcome) -> None:
        """Fill the folder of the Export."""
        import_openvino().save_model(graph, str(folder / GRAPH), compress_to_fp16=False)
        tokenizer_of(self.checkpoint).save(folder)
        write_task(folder, self.task, read_table(self.folder, self.name).get("training", {}))
        head = self.checkpoint.model.head(self.head)
        kept = {name: head.get_parameter(name) for name in self.task.decoding_weights}
        write_decoding(folder, {name: each.detach().float().cpu().numpy() for name, each in kept.items()})
        for file in (KEYS, SURFACES):
            if (source := run_file(self.folder, self.name, file)).is_file():
                (folder / RUN).mkdir(exist_ok=True)
                shutil.copyfile(source, folder / RUN / file)
        (folder / "README.md").write_text(card(outcome), encoding="utf8")
