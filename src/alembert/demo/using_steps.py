"""The steps of the demo that put a model to work: an Export, annotated documents, all models side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembert import sample
from alembert.demo import DemoFolders, DemoStep, format_command
from alembert.demo.text_steps import write_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alembert.corpus.document import Document
    from alembert.html import EntityMark
    from alembert.inspect.comparison import ComparisonReport

SPEED_SECONDS = 2.0
"""What measuring speed may take for each model."""


def export(folders: DemoFolders) -> DemoStep:
    """Write the student as an int8 Export."""
    title = "The student exported to int8: a folder that runs without torch"
    from alembert.compress.export import export as write
    from alembert.compress.measure import ExportData
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.engine_torch import TorchEngine
    from alembert.infer.task_model import TaskModel
    from alembert.tasks.files import read_task

    engine = TorchEngine.open(folders.student)
    model = TaskModel.from_engine(engine, read_task(folders.student))
    train, dev = (folders.labelled("tag", split) for split in ("train", "dev"))
    calibration, judged = (model.read([path], ReadOptions()).examples for path in (train, dev))
    material = ExportData(calibration=calibration, judged=judged, files=(train, dev))
    outcome = write(engine.checkpoint, folders.export, material=material, overwrite=True)
    flags: dict[str, Any] = {"calibrate": train, "dev": dev, "out": folders.export}
    return DemoStep(
        title,
        tuple(f"{name}: {value}" for name, value in outcome.rows()),
        (f"{format_command('export', folders.student, **flags)} --overwrite",),
    )


def annotate(folders: DemoFolders) -> DemoStep:
    """Annotate the texts of the test part, without their labels."""
    from alembert.infer.annotate import annotate as run
    from alembert.infer.annotate_pipeline import Pipeline

    write_lines(folders.held_out, ({"id": p.id, "text": p.text} for p in sample.load_passages(split="test")))
    model = folders.export
    result = run(Pipeline.open([model]), [folders.held_out], folders.annotated, overwrite=True)
    counts = result.manifest.counts
    first = next(read_annotated(folders))
    return DemoStep(
        "The texts of the test part annotated, each exactly once",
        (
            f"{counts['written']} of {counts['read']} documents, {counts['entities']} entities, "
            f"{counts['set aside']} set aside",
            f"{first.id}, {{found}} and [right]: {_bracketed(first)}",
        ),
        (f"{format_command('annotate', model, folders.held_out, out=folders.annotated)} --overwrite",),
    )


def read_annotated(folders: DemoFolders) -> Iterator[Document]:
    """Read what `annotate` wrote."""
    from alembert.corpus.document import Document
    from alembert.corpus.readers import read

    for part in sorted(folders.annotated.glob("part-*")):
        yield from (item for item in read(part) if isinstance(item, Document))


def entity_marks(document: Document) -> list[EntityMark]:
    """Return what is right in a passage of the sample, then what the model found there."""
    from alembert.html import EntityMark
    from alembert.inspect.errors.tag import match_entities

    passage = next(passage for passage in sample.load_passages() if passage.id == document.id)
    gold = [(entity.start, entity.end, entity.label) for entity in passage.entities]
    guesses = [(*entity.spans[0], entity.label) for entity in document.entities]
    matches = match_entities(gold, guesses)
    marks = [EntityMark(*match.gold, "gold", match.kind) for match in matches if match.gold]
    return marks + [EntityMark(*match.guess, "guess", match.kind) for match in matches if match.guess]


def _bracketed(document: Document) -> str:
    from alembert.html import split_runs
    from alembert.inspect.marked import format_run

    return "".join(map(format_run, split_runs(document.text, entity_marks(document))))


def score_all_models(folders: DemoFolders) -> ComparisonReport:
    """Score all models on the test part, and measure how fast they are here."""
    from alembert.inspect.comparison import compare_models

    models = {
        "teacher": folders.tagger,
        "student": folders.student,
        "student without distillation": folders.student_baseline,
        "student, int8": folders.export,
    }
    return compare_models(models, [folders.labelled("tag", "test")], speed_seconds=SPEED_SECONDS)


def compare_side_by_side(folders: DemoFolders) -> DemoStep:
    """Show the models on the way in one table."""
    from alembert.inspect.report_pages import write_comparison
    from alembert.inspect.reports import comparison_sentences, model_table

    comparison = score_all_models(folders)
    write_comparison(comparison, folders.out / "comparison")
    others = [word for model in comparison.models[1:] for word in ("--against", model.folder)]
    return DemoStep(
        "The models on the way: score, size and speed",
        (*model_table(comparison).lines(), *comparison_sentences(comparison, brief=True)),
        (format_command("evaluate", comparison.reference.folder, folders.labelled("tag", "test"), *others),),
        comparison=comparison,
    )
