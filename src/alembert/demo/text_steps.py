"""The steps of the demo that do not train.

Before training: the machine, a corpus, a vocabulary and a checkpoint. After it: an Export, annotated documents, and all
models side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alembert import hardware, sample
from alembert.artifact import atomic_write
from alembert.demo import DemoFolders, DemoStep, format_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alembert.corpus.document import Document
    from alembert.files.checkpoint import Checkpoint
    from alembert.html import EntityMark
    from alembert.inspect.comparison import ComparisonReport


PIECES = 1500
TERMS = 200
HELD_OUT_EVERY = 5


def machine(folders: DemoFolders) -> DemoStep:
    """Show what was chosen on this machine."""
    choices = hardware.detect_capabilities().choices
    lines = (f"{choice.name.replace('_', ' ')}: {choice.value}. {choice.reason}" for choice in choices)
    return DemoStep("This machine", tuple(lines), ("alembert doctor",))


def corpus(folders: DemoFolders) -> DemoStep:
    """Build a corpus of all passages."""
    from alembert.corpus.build import LexiconFiles, build

    _write_sample(folders)
    lexicons = {label: folders.lexicon(label) for label in sample.LABELS}
    counts = build([folders.raw], folders.corpus, lexicon_files=LexiconFiles(lexicons=lexicons)).manifest.counts
    entities = ", ".join(f"{counts.get(f'entities: {label}', 0)} {label}s" for label in sample.LABELS)
    flags = [word for label, path in lexicons.items() for word in ("--lexicon", f"{label}={path}")]
    return DemoStep(
        "A corpus from raw text: cleaned, split into sentences, entities found by dictionary",
        (
            f"{counts['documents']} documents, English and Chinese, {counts['characters']:,} characters, "
            f"{counts['sentences']:,} sentences",
            f"found with a dictionary of the training part's entities: {entities}",
        ),
        (format_command("corpus build", folders.raw, *flags, out=folders.corpus),),
    )


def _write_sample(folders: DemoFolders) -> None:
    """Write the passages as raw files, and the entities of the training part as lexicons."""
    passages = sample.load_passages()
    write_lines(folders.raw, ({"id": p.id, "text": p.text, "label": p.topic} for p in passages))
    for label in sample.LABELS:
        terms = {
            passage.text[entity.start : entity.end]
            for passage in sample.load_passages(split="train")
            for entity in passage.entities
            if entity.label == label
        }
        atomic_write(folders.lexicon(label), ("\n".join(sorted(terms)) + "\n").encode())


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records as JSON lines."""
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    atomic_write(path, ("\n".join(lines) + "\n").encode())


def vocab(folders: DemoFolders) -> DemoStep:
    """Learn a vocabulary from the corpus."""
    from alembert.corpus.excerpt import TextSampleReader
    from alembert.files.vocab import VocabOutput, learn

    output = VocabOutput(folders.vocab, [folders.corpus], overwrite=True)
    learnt = learn(TextSampleReader.open([folders.corpus]), output, size=PIECES)
    shown = "Imatinib inhibits BCR-ABL1."
    pieces = learnt.tokenizer.tokens(learnt.tokenizer.encode(shown, add_special_tokens=False).ids)
    fit = learnt.fit
    return DemoStep(
        "A vocabulary learnt from it",
        (
            f"{fit.vocabulary:,} pieces, {fit.pieces_per_word:.2f} per word, {fit.unknown} unknown words",
            f"{fit.split_mentions:,} of {fit.mentions:,} entities have a split word",
            f"{shown!r} -> {' '.join(pieces)}",
        ),
        (f"{format_command('vocab learn', folders.corpus, size=PIECES, out=folders.vocab)} --overwrite",),
    )


def checkpoint(folders: DemoFolders) -> DemoStep:
    """Write a checkpoint with random weights, and open it again."""
    from alembert.files.checkpoint import Checkpoint
    from alembert.files.checkpoint import open as open_checkpoint
    from alembert.files.family import Blueprint
    from alembert.nn.config import preset
    from alembert.nn.heads import HeadSpec
    from alembert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.open(folders.vocab)
    config = preset("tiny", vocab_size=tokenizer.vocab_size)
    blueprint = Blueprint(config=config, heads={"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)})
    made = Checkpoint.new(blueprint, tokenizer)
    made.save(folders.checkpoint, overwrite=True)
    tokens, difference = _compare(made, open_checkpoint(folders.checkpoint))
    size = sum(path.stat().st_size for path in folders.checkpoint.iterdir())
    return DemoStep(
        "A tiny checkpoint, written and reopened",
        (
            f"{folders.checkpoint}: {config.num_hidden_layers} layers x {config.hidden_size}, "
            f"{made.parameters:,} parameters with random weights, {size / 1e6:.1f} MB",
            f"reopened, {tokens:,} tokens encoded by both: largest difference {difference}",
        ),
    )


def _compare(made: Checkpoint, opened: Checkpoint) -> tuple[int, float]:
    """Encode the test passages with both; give the number of tokens and the largest difference."""
    import torch

    from alembert.nn.batch import Batch

    assert opened.tokenizer is not None
    encodings = opened.tokenizer.encode_batch([passage.text for passage in sample.load_passages("en", "test")])
    batch = Batch.packed([encoding.ids for encoding in encodings])
    with torch.inference_mode():
        difference = made.model.eval().encoder(batch) - opened.model.encoder(batch)
    return len(batch.ids_N), difference.abs().max().item()


def extend(folders: DemoFolders) -> DemoStep:
    """Add terms of the corpus to the vocabulary, and rows for them to the model."""
    from alembert.corpus.excerpt import TextSampleReader
    from alembert.files.vocab import VocabOutput, open_tokenizer_with_model
    from alembert.files.vocab import extend as extended
    from alembert.text.extend import ExtendSettings

    output = VocabOutput(folders.extended, [folders.checkpoint, folders.corpus], overwrite=True)
    subject, samples = open_tokenizer_with_model(folders.checkpoint), TextSampleReader.open([folders.corpus])
    done = extended(subject, samples, output, ExtendSettings(terms=TERMS), held_out_every=HELD_OUT_EVERY)
    assert done.before is not None
    assert done.after is not None
    saved = 1 - done.after.pieces / done.before.pieces
    proof = done.extension.proof
    flags: dict[str, Any] = {"terms": TERMS, "held_out": HELD_OUT_EVERY, "out": folders.extended}
    return DemoStep(
        f"The vocabulary extended by {TERMS} terms, and the model's embedding with it",
        (
            f"on documents that had no part in the choice: {saved:.1%} fewer pieces, entities with a split word "
            f"{done.before.split_mentions} -> {done.after.split_mentions} of {done.after.mentions}",
            f"of {proof.words:,} distinct words {proof.unchanged:,} are tokenized as before, {proof.joined} became one "
            f"piece, {proof.changed} begin with a new piece and changed",
        ),
        (f"{format_command('vocab extend', folders.checkpoint, folders.corpus, **flags)} --overwrite",),
    )


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
    first = next(read_annotated(folders.annotated))
    return DemoStep(
        "The texts of the test part annotated, each exactly once",
        (
            f"{counts['written']} of {counts['read']} documents, {counts['entities']} entities, "
            f"{counts['set aside']} set aside",
            f"{first.id}, {{found}} and [right]: {_bracketed(first)}",
        ),
        (f"{format_command('annotate', model, folders.held_out, out=folders.annotated)} --overwrite",),
    )


def read_annotated(folder: Path) -> Iterator[Document]:
    """Read what `annotate` wrote."""
    from alembert.corpus.document import Document
    from alembert.corpus.readers import read

    for part in sorted(folder.glob("part-*")):
        yield from (item for item in read(part) if isinstance(item, Document))


def entity_marks(document: Document) -> list[EntityMark]:
    """Return what is right in a passage of the sample, then what the model found there."""
    from alembert.html import EntityMark
    from alembert.inspect.errors.entity_matches import match_entities

    passage = next(passage for passage in sample.load_passages() if passage.id == document.id)
    gold = [(entity.start, entity.end, entity.label) for entity in passage.entities]
    guesses = [(*entity.spans[0], entity.label) for entity in document.entities]
    matches = match_entities(gold, guesses)
    marks = [EntityMark(*match.gold, "gold", match.kind) for match in matches if match.gold]
    return marks + [EntityMark(*match.guess, "guess", match.kind) for match in matches if match.guess]


def _bracketed(document: Document) -> str:
    from alembert.html import split_runs
    from alembert.inspect.tables import format_run

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
