"""The steps of the demo that train: pre-training, a tagger, a classifier, and a student of the tagger."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alembert import sample
from alembert.artifact import atomic_write
from alembert.demo import DemoFolders, DemoStep, format_command
from alembert.demo.text_steps import write_lines
from alembert.settings import to_toml

if TYPE_CHECKING:
    from alembert.tasks.classify.data import ClassifySettings
    from alembert.tasks.tag.data import TagSettings
    from alembert.train.distill.settings import DistillSettings
    from alembert.train.finetune.finetune import FinetuneRunResult

PRETRAIN_TOKENS = 300_000
STEP_TOKENS = 1024
"""Tokens of a step."""
STUDENT_SHAPE = "half"


def pretrain(folders: DemoFolders) -> DemoStep:
    """Pre-train the extended checkpoint on the corpus."""
    from alembert.train.pretrain.inputs import PretrainStart
    from alembert.train.pretrain.pretrain import pretrain as run
    from alembert.train.pretrain.settings import HeldOutSettings, biobert
    from alembert.train.run import RunContext
    from alembert.train.settings import BatchSettings, ModelSettings, OptimiserSettings

    settings = replace(
        biobert(),
        tokens=PRETRAIN_TOKENS,
        batch=BatchSettings(tokens=STEP_TOKENS, micro_tokens=512),
        model=ModelSettings(),  # all parts at once: none of them has learnt anything yet
        optimiser=OptimiserSettings(learning_rate=2e-3),
        evaluation=HeldOutSettings(share=0.1, times=4),
    )
    start, context = PretrainStart(model=str(folders.extended)), RunContext(overwrite=True)
    done = run([folders.corpus], folders.pretrained, start, settings, context)
    before, after = (scores["masked_lm"] for scores in (done.before, done.after))
    config = _write_text(folders.settings("pretrain"), to_toml(settings))
    flags: dict[str, Any] = {"model": folders.extended, "config": config, "out": folders.pretrained}
    return DemoStep(
        "The model pre-trained: entities and words masked whole, entity boundaries to be found",
        (
            f"{done.done.tokens:,} tokens, {done.done.tokens / done.done.seconds:,.0f} a second",
            f"held-out masked loss {before['loss']:.2f} -> {after['loss']:.2f}, accuracy {before['accuracy']:.1%} -> "
            f"{after['accuracy']:.1%}; loss of entity boundaries {done.before['boundaries']['loss']:.2f} -> "
            f"{done.after['boundaries']['loss']:.2f}",
        ),
        (f"{format_command('pretrain', folders.corpus, **flags)} --overwrite",),
    )


def _write_text(path: Path, text: str) -> Path:
    atomic_write(path, text.encode())
    return path


def tagger(folders: DemoFolders) -> DemoStep:
    """Fine-tune a tagger."""
    from alembert.tasks.tag.data import TagSettings

    title = "A tagger for diseases, chemicals and genes: fine-tuned, and scored on texts whose labels it never saw"
    return _finetune(folders, "tag", TagSettings(), title, TrainingPace(24.0, 2e-3, STEP_TOKENS))


def classifier(folders: DemoFolders) -> DemoStep:
    """Fine-tune a classifier; the mean of all tokens, since the first one has learnt nothing in pre-training."""
    from alembert.tasks.classify.data import ClassifySettings

    settings = ClassifySettings(pooling="mean")
    title = "A classifier that tells abstracts from letters, the same way"
    return _finetune(folders, "classify", settings, title, TrainingPace(6.0, 1e-3, STEP_TOKENS // 2))


@dataclass(frozen=True)
class TrainingPace:
    """Epochs, learning rate and tokens of a step; chosen on the development part."""

    epochs: float
    learning_rate: float
    batch_tokens: int


def _finetune(
    folders: DemoFolders, task: str, task_settings: TagSettings | ClassifySettings, title: str, pace: TrainingPace
) -> DemoStep:
    """Fine-tune the pre-trained model on the sample's labels and evaluate it on the test part."""
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.evaluate import evaluate
    from alembert.infer.task_model import TaskModel
    from alembert.train.finetune.data import DataFiles, TaskSpec
    from alembert.train.finetune.finetune import FinetuneJob, finetune
    from alembert.train.finetune.settings import FinetuneSettings
    from alembert.train.run import RunContext
    from alembert.train.settings import BatchSettings, OptimiserSettings

    train, dev, test = (_write_labelled(folders, task, split) for split in sample.SPLITS)
    out, data = folders.model(task), DataFiles(train=(train,), dev=(dev,))
    spec = TaskSpec(task=task, data=data, settings=task_settings)
    job = FinetuneJob(model=str(folders.pretrained), tasks={task: spec})
    batch, optimiser = (
        BatchSettings(tokens=pace.batch_tokens, micro_tokens=pace.batch_tokens),
        OptimiserSettings(learning_rate=pace.learning_rate),
    )
    settings = FinetuneSettings(epochs=pace.epochs, optimiser=optimiser, batch=batch)
    done = finetune(job, out, settings, context=RunContext(overwrite=True))
    evaluation = evaluate(TaskModel.open(out), [test], ReadOptions())
    config = _write_text(folders.settings(task), f"{to_toml(settings)}\n[task]\n{to_toml(task_settings, 'task')}")
    flags: dict[str, Any] = {"task": task, "model": folders.pretrained, "train": train, "dev": dev}
    return DemoStep(
        title,
        (
            f"{done.report.parts[0].examples} examples, {pace.epochs:g} passes; {_on_dev(done)}",
            f"test part, {evaluation.scores.coverage.examples} examples: {evaluation.scores.main} {evaluation.scores.value:.3f}, "
            f"95 % of resamples {evaluation.interval.low:.3f} to {evaluation.interval.high:.3f}",
        ),
        (
            f"{format_command('finetune', **flags, config=config, out=out)} --overwrite",
            format_command("evaluate", out, test),
        ),
    )


def _on_dev(done: FinetuneRunResult) -> str:
    return f"{done.main} on the development part {done.measures[done.main]:.3f}"


def _write_labelled(folders: DemoFolders, task: str, split: str) -> Path:
    """Write the passages of a split as examples of a task."""
    path = folders.labelled(task, split)
    write_lines(path, (_example(passage, task) for passage in sample.load_passages(split=split)))
    return path


def _example(passage: sample.SamplePassage, task: str) -> dict[str, Any]:
    entities = [
        {"id": f"T{number}", "label": entity.label, "spans": [[entity.start, entity.end]]}
        for number, entity in enumerate(passage.entities, 1)
    ]
    answer = {"entities": entities} if task == "tag" else {"label": passage.kind}
    return {"id": passage.id, "text": passage.text, **answer}


def student(folders: DemoFolders) -> DemoStep:
    """Distil the tagger into a smaller one, and train the same one without its teacher."""
    from alembert.train.distill.distill import distill
    from alembert.train.distill.settings import build_controls
    from alembert.train.distill.stages import DistillJob
    from alembert.train.finetune.data import DataFiles
    from alembert.train.run import RunContext

    train, dev = (folders.labelled("tag", split) for split in ("train", "dev"))
    job = DistillJob(teacher=str(folders.tagger), student=STUDENT_SHAPE, data=DataFiles(train=(train,), dev=(dev,)))
    settings, context = student_settings(), RunContext(overwrite=True)
    distilled = distill(job, folders.student, settings, context=context)
    baseline = distill(
        job, folders.student_baseline, build_controls(settings)["without distillation"].settings, context=context
    )
    config = _write_text(folders.settings("distill"), to_toml(settings))
    flags: dict[str, Any] = {"student": STUDENT_SHAPE, "train": train, "dev": dev, "config": config}
    return DemoStep(
        f"The tagger distilled into a student of {STUDENT_SHAPE} its layers",
        (
            f"with its teacher: {_on_dev(distilled)}",
            f"the same student, from the same start, without: {_on_dev(baseline)}",
        ),
        (f"{format_command('distill', folders.tagger, **flags, out=folders.student)} --overwrite",),
    )


def student_settings() -> DistillSettings:
    """Return the settings that the student learns with."""
    from alembert.train.distill.settings import fast
    from alembert.train.settings import BatchSettings

    usual, batch = fast(), BatchSettings(tokens=STEP_TOKENS, micro_tokens=STEP_TOKENS)
    faster = replace(usual.prediction.optimiser, learning_rate=2e-3)
    return replace(
        usual,
        intermediate=replace(usual.intermediate, batch=batch),
        prediction=replace(usual.prediction, batch=batch, optimiser=faster),
    )
