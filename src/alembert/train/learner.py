"""Who learns in a fine-tuning run, and what: a Checkpoint with the heads that the tasks need, and the lesson for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_heads
from alembert.nn.heads import HeadSpec
from alembert.train.co_training import CoTrained, masked_lm_head
from alembert.train.finetune_settings import FinetuneSettings
from alembert.train.lesson import Lesson
from alembert.train.several import SeveralLesson
from alembert.train.task_data import Prepared, PreparedTask
from alembert.train.task_lesson import TaskLesson


def learner_of(prepared: Prepared, settings: FinetuneSettings) -> Checkpoint:
    """Give the model a head for each task, and one for masked LM if that goes along."""
    if not settings.masked_lm.weight:
        return with_task_heads(prepared, settings.seed)
    name, spec = masked_lm_head(prepared.checkpoint.blueprint)
    return with_task_heads(prepared, settings.seed, {name: spec})


def with_task_heads(prepared: Prepared, seed: int, others: Mapping[str, HeadSpec] | None = None) -> Checkpoint:
    """Give the model a head for each task, and others, unless a task has one of this name.

    A head that it has already is kept only if its labels are the same, in this order.
    """
    heads = {**(others or {}), **{each.head: each.task.head() for each in prepared.tasks}}
    labels = {each.head: each.task.labels for each in prepared.tasks if each.task.labels}
    learner = with_heads(_without_strangers(prepared), heads, pooler=False, seed=seed)
    return replace(learner, blueprint=replace(learner.blueprint, labels=labels))


def _without_strangers(prepared: Prepared) -> Checkpoint:
    """Leave out heads that are called as those of the tasks and have other labels."""
    checkpoint, strangers = prepared.checkpoint, _strangers(prepared)
    kept = {name: spec for name, spec in checkpoint.blueprint.heads.items() if name not in strangers}
    return with_heads(checkpoint, kept) if strangers & checkpoint.blueprint.heads.keys() else checkpoint


def _strangers(prepared: Prepared) -> set[str]:
    known = prepared.checkpoint.blueprint.labels
    return {each.head for each in prepared.tasks if known.get(each.head, ()) != each.task.labels}


def knows_task(prepared: Prepared, task: PreparedTask) -> bool:
    """Tell whether the model came with a head for a task, of the same labels in the same order."""
    return task.head in prepared.checkpoint.blueprint.heads.keys() - _strangers(prepared)


def as_written(trained: Checkpoint, prepared: Prepared) -> Checkpoint:
    """Leave out what served the training alone."""
    own = {name: trained.blueprint.heads[name] for name in (each.head for each in prepared.tasks)}
    return trained if own == dict(trained.blueprint.heads) else with_heads(trained, own)


def lesson_of(prepared: Prepared, settings: FinetuneSettings) -> Lesson:
    """Put together what the model learns: a task, or several in turn, with masked LM beside them if wanted."""
    lessons = [
        TaskLesson(
            each.task,
            each.train,
            each.dev,
            settings,
            name=each.name,
            head=each.head,
            regularise=settings.regularise,
        )
        for each in prepared.tasks
    ]
    weights = {each.name: each.subject.weight for each in prepared.tasks}
    lesson: Lesson = SeveralLesson(lessons, settings, weights) if prepared.are_named else lessons[0]
    if not settings.masked_lm.weight:
        return lesson
    head, _ = masked_lm_head(prepared.checkpoint.blueprint)
    return CoTrained(lesson, prepared.tokenizer, settings.masked_lm, head=head, seed=settings.seed)
