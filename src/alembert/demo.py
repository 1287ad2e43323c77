"""The demo: the chain on the embedded sample, step by step, each step saying what it did.

Every step works on what the step before it left in the output folder, as a user's own run would.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from alembert import hardware, sample
from alembert.artifact import atomic_write
from alembert.errors import BadFile

if TYPE_CHECKING:
    from alembert.files.checkpoint import Checkpoint

PIECES = 1500
TERMS = 200
TOKENS = 300_000
COPIES = 2


@dataclass(frozen=True)
class Step:
    """One link of the chain and what it did."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Folders:
    """Where the demo puts things."""

    out: Path

    @property
    def raw(self) -> Path:
        return self.out / "sample.jsonl"

    @property
    def corpus(self) -> Path:
        return self.out / "corpus"

    @property
    def vocab(self) -> Path:
        return self.out / "vocab"

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint"

    @property
    def extended(self) -> Path:
        return self.out / "extended"

    @property
    def pretrained(self) -> Path:
        return self.out / "pretrained"

    @property
    def tagger(self) -> Path:
        return self.out / "tagger"

    @property
    def classifier(self) -> Path:
        return self.out / "classifier"

    @property
    def student(self) -> Path:
        return self.out / "student"

    def labelled(self, task: str, split: str) -> Path:
        """Where the examples of a task are."""
        return self.out / f"{task}-{split}.jsonl"

    def lexicon(self, label: str) -> Path:
        return self.out / f"{label}.tsv"


def run(out: Path) -> Iterator[Step]:
    """Run all steps, yielding each as it is done."""
    folders = Folders(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BadFile(
            f"The folder {out} cannot be made: {problem.strerror}. Choose another with --out."
        ) from None
    yield _machine()
    for step in (_corpus, _vocab, _checkpoint, _extend, _pretrain, _tagger, _classifier, _student):
        yield step(folders)
    yield _what_next(folders)


def _machine() -> Step:
    choices = hardware.capabilities().choices
    lines = (f"{choice.name.replace('_', ' ')}: {choice.value}. {choice.reason}" for choice in choices)
    return Step("1. This machine", tuple(lines))


def _corpus(folders: Folders) -> Step:
    from alembert.corpus.build import Words, build

    _write_sample(folders)
    words = Words(lexicons={label: folders.lexicon(label) for label in sample.LABELS})
    counts = build([folders.raw], folders.corpus, words=words).manifest.counts
    found = ", ".join(f"{counts.get(f'entities: {label}', 0)} {label}s" for label in sample.LABELS)
    return Step(
        "2. A corpus from raw text: cleaned, split into sentences, entities found by dictionary",
        (
            f"{counts['documents']} documents, English and Chinese, {counts['characters']:,} characters, "
            f"{counts['sentences']:,} sentences",
            f"found with a dictionary of the training part's entities: {found}",
        ),
    )


def _write_sample(folders: Folders) -> None:
    """Write the passages as raw files, and the entities of the training part as lexicons."""
    passages = sample.passages()
    lines = [json.dumps({"id": p.id, "text": p.text, "label": p.topic}, ensure_ascii=False) for p in passages]
    atomic_write(folders.raw, ("\n".join(lines) + "\n").encode())
    for label in sample.LABELS:
        terms = {
            passage.text[entity.start : entity.end]
            for passage in sample.passages(split="train")
            for entity in passage.entities
            if entity.label == label
        }
        atomic_write(folders.lexicon(label), ("\n".join(sorted(terms)) + "\n").encode())


def _vocab(folders: Folders) -> Step:
    from alembert.corpus.samples import Samples
    from alembert.files.vocab import Output, learn

    output = Output(folders.vocab, [folders.corpus], overwrite=True)
    learnt = learn(Samples.open([folders.corpus]), output, size=PIECES)
    shown = "Imatinib inhibits BCR-ABL1."
    pieces = learnt.tokenizer.tokens(learnt.tokenizer.encode(shown, add_special_tokens=False).ids)
    fit = learnt.fit
    return Step(
        "3. A vocabulary learnt from it",
        (
            f"{fit.vocabulary:,} pieces, {fit.pieces_per_word:.2f} per word, {fit.unknown} unknown words",
            f"{fit.split_mentions:,} of {fit.mentions:,} entities have a split word",
            f"{shown!r} -> {' '.join(pieces)}",
        ),
    )


def _checkpoint(folders: Folders) -> Step:
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
    return Step(
        "4. A tiny checkpoint, written and reopened",
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
    encodings = opened.tokenizer.encode_batch([passage.text for passage in sample.passages("en", "test")])
    batch = Batch.packed([encoding.ids for encoding in encodings])
    with torch.inference_mode():
        difference = made.model.eval().encoder(batch) - opened.model.encoder(batch)
    return len(batch.ids_N), difference.abs().max().item()


def _extend(folders: Folders) -> Step:
    from alembert.corpus.samples import Samples
    from alembert.files.vocab import Output, extend, open_subject
    from alembert.text.extend import Wish

    output = Output(folders.extended, [folders.checkpoint, folders.corpus], overwrite=True)
    done = extend(
        open_subject(folders.checkpoint),
        Samples.open([folders.corpus]),
        output,
        Wish(terms=TERMS),
        held_out_every=5,
    )
    assert done.before is not None
    assert done.after is not None
    saved = 1 - done.after.pieces / done.before.pieces
    proof = done.extension.proof
    return Step(
        f"5. The vocabulary extended by {TERMS} terms, and the model's embedding with it",
        (
            f"on documents that had no part in the choice: {saved:.1%} fewer pieces, entities with a split word "
            f"{done.before.split_mentions} -> {done.after.split_mentions} of {done.after.mentions}",
            f"of {proof.words:,} distinct words {proof.unchanged:,} are cut as before, {proof.joined} became one "
            f"piece, {proof.changed} begin with a new piece and changed",
        ),
    )


def _pretrain(folders: Folders) -> Step:
    from alembert.train.ingredients import Start
    from alembert.train.optim_settings import OptimiserSettings
    from alembert.train.pretrain import pretrain
    from alembert.train.recipes import biobert
    from alembert.train.settings import BatchSettings, HeldOutSettings, ModelSettings
    from alembert.train.surroundings import Surroundings

    settings = replace(
        biobert(),
        tokens=TOKENS,
        batch=BatchSettings(tokens=1024, micro_tokens=512),
        model=ModelSettings(),  # all parts at once: none of them has learnt anything yet
        optimiser=OptimiserSettings(rate=2e-3),
        evaluation=HeldOutSettings(share=0.1, times=4),
    )
    around = Surroundings(overwrite=True)
    run = pretrain([folders.corpus], folders.pretrained, Start(model=str(folders.extended)), settings, around)
    before, after = (scores["masked_lm"] for scores in (run.before, run.after))
    tokens_per_second = run.done.tokens / run.done.seconds
    return Step(
        "6. The model pre-trained: entities and words masked whole, entity boundaries to be found",
        (
            f"{run.done.tokens:,} tokens in {run.done.seconds:.0f} s, {tokens_per_second:,.0f} tokens/s",
            f"held-out masked loss {before['loss']:.2f} -> {after['loss']:.2f}, accuracy {before['accuracy']:.1%} -> "
            f"{after['accuracy']:.1%}; loss of entity boundaries {run.before['boundaries']['loss']:.2f} -> "
            f"{run.after['boundaries']['loss']:.2f}",
            f"loss curve: {folders.pretrained / 'run' / 'loss.html'}",
        ),
    )


def _tagger(folders: Folders) -> Step:
    lines = _finetuned(folders, "tag", folders.tagger, epochs=12)
    return Step(
        "7. A tagger for diseases, chemicals and genes: fine-tuned, and scored on texts it never saw", lines
    )


def _classifier(folders: Folders) -> Step:
    lines = _finetuned(folders, "classify", folders.classifier, epochs=12)
    return Step("8. A classifier of topics, the same way", lines)


def _finetuned(folders: Folders, task: str, out: Path, epochs: float) -> tuple[str, ...]:
    """Fine-tune the pre-trained model on the sample's labels and evaluate it on the test part."""
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.evaluate import evaluate
    from alembert.infer.task_model import TaskModel
    from alembert.train.finetune import Assignment, finetune
    from alembert.train.finetune_settings import FinetuneSettings
    from alembert.train.optim_settings import OptimiserSettings
    from alembert.train.surroundings import Surroundings
    from alembert.train.task_data import Data

    train, dev, test = (_write_labelled(folders, task, split) for split in sample.SPLITS)
    job = Assignment(task=task, data=Data(train=(train,), dev=(dev,)), model=str(folders.pretrained))
    settings = FinetuneSettings(epochs=epochs, optimiser=OptimiserSettings(rate=1e-3))
    done = finetune(job, out, settings, around=Surroundings(overwrite=True))
    found = evaluate(TaskModel.open(out), [test], ReadOptions())
    counts = done.results[0].counts
    return (
        f"{done.report.parts[0].examples} examples, {epochs:g} passes in {counts['seconds']} s; "
        f"{done.main} on the development part {done.measures[done.main]:.3f}",
        f"test part, {found.scores.coverage.examples} examples: {found.scores.main} {found.scores.value:.3f}, "
        f"95 % of resamples {found.interval.low:.3f} to {found.interval.high:.3f}",
    )


def _student(folders: Folders) -> Step:
    """Distil the tagger into one layer, and compare it with its teacher and with the same student without one."""
    from alembert.inspect.comparison import compare
    from alembert.inspect.comparison_page import write
    from alembert.inspect.comparison_report import lines
    from alembert.train.distill import distill
    from alembert.train.distill_recipes import controls, fast
    from alembert.train.lecture_hall import Distillation
    from alembert.train.surroundings import Surroundings
    from alembert.train.task_data import Data

    train, dev, test = (folders.labelled("tag", split) for split in sample.SPLITS)
    wish = Distillation(teacher=str(folders.tagger), student="1x96", data=Data(train=(train,), dev=(dev,)))
    usual = fast()
    settings = replace(
        usual,
        augment=replace(usual.augment, copies=COPIES),
        prediction=replace(usual.prediction, optimiser=replace(usual.prediction.optimiser, rate=1e-3)),
    )
    around = Surroundings(overwrite=True)
    distill(wish, folders.student, settings, around=around)
    found = {"teacher": folders.tagger, "student": folders.student}
    for name, changed in controls(settings).items():
        found[name] = folders.out / f"student-{name.replace(' ', '-')}"
        distill(wish, found[name], changed, around=around)
    comparison = compare(found, [test], speed_seconds=2.0)
    page = next(path for path in write(comparison, folders.out / "comparison") if path.suffix == ".html")
    told = (*lines(comparison), f"plot: {page}")
    return Step(f"9. The tagger distilled into 1 layer of width 96, with {COPIES} copies of each text", told)


def _write_labelled(folders: Folders, task: str, split: str) -> Path:
    """Write the passages of a split as examples of a task."""
    lines = []
    for passage in sample.passages(split=split):
        entities = [
            {"id": f"T{number}", "label": each.label, "spans": [[each.start, each.end]]}
            for number, each in enumerate(passage.entities, 1)
        ]
        answer = {"entities": entities} if task == "tag" else {"label": passage.topic}
        lines.append(json.dumps({"id": passage.id, "text": passage.text, **answer}, ensure_ascii=False))
    path = folders.labelled(task, split)
    atomic_write(path, ("\n".join(lines) + "\n").encode())
    return path


def _what_next(folders: Folders) -> Step:
    corpus, pretrained, tagger = (
        shlex.quote(str(path)) for path in (folders.corpus, folders.pretrained, folders.tagger)
    )
    return Step(
        "Try",
        (
            f"alembert corpus show {corpus} --sample 2",
            f"alembert vocab report {pretrained} {corpus}",
            f"alembert inspect tokens {pretrained} 'BRAF V600E-mutant melanoma'",
            f"alembert inspect masks {corpus} --model {pretrained} --unit entity",
            f"alembert predict {tagger} 'Imatinib inhibits BCR-ABL1 in chronic myeloid leukemia.'",
            f"alembert inspect errors {tagger} {shlex.quote(str(folders.labelled('tag', 'test')))}",
            f"alembert predict {pretrained} --fill-mask 'Aspirin inhibits [MASK] aggregation.'  (half a minute of training: a guess)",
        ),
    )
