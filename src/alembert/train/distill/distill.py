"""The verb `distill`: a teacher to a small student, for the teacher's task or on plain text.

`distill` takes a Checkpoint with its task, what the student is (a size, a share of the teacher's layers, or a folder),
files of examples and settings, and writes a Checkpoint folder as `finetune` does. The task is the teacher's, with its
labels in its order, so that they cannot differ; data with other labels are refused. A student soon knows a few thousand
examples by heart, so it may learn from sentences of plain text too, which the teacher labels: so many of a Corpus
folder or raw files, drawn evenly from all, always the same for a seed.

`distill_general` takes a Checkpoint that is not fine-tuned and a Corpus folder or raw files, and writes a Checkpoint
folder without heads, whose `run/` holds log, settings and curves. The text is read as it is, nothing is masked, and
only the layers of both models are compared. Such a student later learns tasks.

The same call goes on with a run that was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from alembert.artifact import Draft, shortlist
from alembert.corpus.excerpt import TextSampleReader
from alembert.corpus.inputs import expand_inputs
from alembert.corpus.jobs import Progress
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shards import Shards
from alembert.data.feed import Cursor, HeldOutSplit, SequenceSampler
from alembert.data.order import make_rng, stable_hash
from alembert.errors import BadFile, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.student import make_student
from alembert.files.surgery import with_embedding_head, with_heads, with_token_features
from alembert.hub import model_folder
from alembert.settings import as_table
from alembert.tasks.compare.pooling import find_missing_head
from alembert.tasks.data_screen import format_data_report
from alembert.tasks.example import ReadResult
from alembert.tasks.files import TASK_FILE, read_task
from alembert.tasks.task import AnyTask
from alembert.text.sentences import split_sentences
from alembert.text.tokenizer import Tokenizer
from alembert.train.augment.augment import augment
from alembert.train.distill.layers import LayerLosses
from alembert.train.distill.objective import SCORES_KEY, TextDistillObjective, fit_projections
from alembert.train.distill.settings import DistillSettings, GeneralDistillSettings
from alembert.train.distill.stages import DistillJob, TaskDistillation
from alembert.train.distill.teacher import Teacher
from alembert.train.distributed import Processes
from alembert.train.finetune.data import TaskSpec, prepare_data
from alembert.train.finetune.data_reports import build_reports
from alembert.train.finetune.finetune import FinetuneRunResult, train_seeds
from alembert.train.finetune.seeds import check_seeds, find_token_features
from alembert.train.pretrain.inputs import check_split, open_corpus
from alembert.train.pretrain.objectives import Collator
from alembert.train.progress import RunTotals
from alembert.train.run import OutputFolder, RunContext, join_processes
from alembert.train.training_run import RUN_FOLDER, STATE_FOLDER, TrainingRun, with_default_tokens

STUDENT_SAMPLE_ROWS: Final = 256
"""Rows by which a student is cut out of its teacher."""


def sample_sentences(
    inputs: Sequence[Path], most: int, seed: int, on_progress: Callable[[Progress], None] = lambda _: None
) -> list[str]:
    """Draw sentences with letters, each once, in the order in which they stand there."""
    rng = make_rng(seed, "texts")
    drawn: dict[int, tuple[int, str]] = {}
    seen: set[str] = set()
    for sample in replace(TextSampleReader.open(inputs), on_progress=on_progress):
        for start, end in split_sentences(sample.text):
            sentence = " ".join(sample.text[start:end].split())
            if sentence in seen or not any(map(str.isalpha, sentence)):
                continue
            slot = len(seen) if len(seen) < most else int(rng.integers(len(seen) + 1))
            if slot < most:
                drawn[slot] = (len(seen), sentence)
            seen.add(sentence)
    if not drawn:
        raise BadFile(f"No sentence was found in {', '.join(map(str, inputs))}. Check the files.")
    return [sentence for _, sentence in sorted(drawn.values())]


def distill(
    job: DistillJob,
    out: str | Path,
    settings: DistillSettings,
    *,
    seeds: int = 1,
    context: RunContext | None = None,
) -> FinetuneRunResult:
    """Distil a teacher into a student, or go on with a run that was stopped."""
    check_seeds(seeds)
    texts = tuple(expand_inputs(job.texts)) if job.texts else ()
    job = replace(job, teacher=str(model_folder(job.teacher)), texts=texts)
    with join_processes(context) as (own_context, processes):
        if job.texts:
            own_context.log("Plain text has no gold labels, so the loss `labels` is left out.")
            settings = settings.without_right_answers()
        return _DistillRun(job, Path(out), settings, seeds, own_context, processes).run()


@dataclass
class _DistillRun:
    """One call of the verb."""

    job: DistillJob
    out: Path
    settings: DistillSettings
    seeds: int
    context: RunContext
    processes: Processes

    def run(self) -> FinetuneRunResult:
        output = OutputFolder(self.out, self._plan(), self.processes, self.context.overwrite)
        output.check()
        distillation = self.processes.agree(self._prepare)
        reports = build_reports(distillation.prepared)
        for report in reports.values():
            self.context.print_table(format_data_report(report))
        distillation.check()
        with output.open() as draft:
            train = partial(distillation.train_student, reports=reports)
            seeds = range(self.settings.seed, self.settings.seed + self.seeds)
            return train_seeds(draft, seeds, train, reports, self.processes)

    def _plan(self) -> dict[str, Any]:
        job = self.job
        models = [model for model in (job.teacher, job.student, job.words) if model is not None]
        folders = [model for model in models if Path(model).is_dir()]
        named = set(models) - set(folders)
        return {
            "config": {
                "verb": "distill",
                "named": sorted(named),
                "task": job.task,
                "parts": job.data.sizes,
                "split": job.data.split if job.data.unsplit else None,
                "types": list(job.data.options.types),
                "seeds": self.seeds,
                **as_table(self.settings),
            },
            "inputs": [
                *job.data.contents,
                *job.texts,
                *map(Path, folders),
                *([job.vocabulary] if job.vocabulary else []),
            ],
            "seed": self.settings.seed,
        }

    def _prepare(self) -> TaskDistillation:
        teacher = open_checkpoint(self.job.teacher)
        teacher = with_embedding_head(teacher, find_missing_head(teacher.folder, teacher.blueprint.heads))
        teacher_task = read_task(Path(self.job.teacher), self.job.task).open()
        task = teacher_task.for_student(lexicons=self.settings.lexicons)
        _check_same_task(task, self.job)
        tokenizer = None if self.job.vocabulary is None else Tokenizer.open(self.job.vocabulary)
        reading = self._read_examples(task)
        student = make_student(
            teacher,
            self.job.student,
            self.settings.student,
            tokenizer=tokenizer,
            rows=_sample_rows(teacher, task, reading.examples),
            seed=self.settings.seed,
        )
        if student.folder is None:  # it was cut out of the teacher
            student = with_token_features(student, task.token_features, find_token_features(teacher))
        name, more = task.name, partial(self._more, teacher)
        spec = TaskSpec(task=name, data=self.job.data, settings=task.settings)
        prepared = prepare_data({name: spec}, student, known={name: task}, readings={name: reading}, more=more)
        cache = self.context.cache_for(self.out)
        return TaskDistillation(
            self.job, teacher, teacher_task, prepared, self.settings, cache, self.context, self.processes
        )

    def _read_examples(self, task: AnyTask) -> ReadResult[Any]:
        """Read the files to train on, or those to be divided: once, since they may be large."""
        data = self.job.data
        train, _, unsplit = (part.paths for part in data.parts)
        reading = task.read([*train, *unsplit], task.settings, data.options)
        task.check(reading.examples)
        return reading

    def _more(self, teacher: Checkpoint, task: AnyTask, examples: Sequence[Any]) -> Sequence[Any]:
        """Make further examples: copies of those that there are, and sentences of plain text."""
        return (*self._augmented(teacher, task, examples), *self._unlabelled(task))

    def _unlabelled(self, task: AnyTask) -> Sequence[Any]:
        if not self.job.texts:
            return ()
        settings, context = self.settings, self.context
        sentences = sample_sentences(self.job.texts, settings.max_texts, settings.seed, context.on_reading)
        context.log(f"{len(sentences):,} sentences of plain text are labelled by the teacher.")
        return task.examples_from_texts(sentences, [f"text-{number}" for number in range(1, len(sentences) + 1)])

    def _augmented(self, teacher: Checkpoint, task: AnyTask, examples: Sequence[Any]) -> Sequence[Any]:
        if not self.settings.augment.copies:
            return ()
        source = teacher if self.job.words is None else open_checkpoint(self.job.words)
        settings = self.settings.augment
        settings = replace(settings, seed=stable_hash(self.settings.seed, "augment", settings.seed))
        augmented = augment(source, task, examples, settings, on_progress=self.context.on_reading)
        for note in augmented.notes:
            self.context.log(note)
        return augmented.examples


def _sample_rows(teacher: Checkpoint, task: AnyTask, examples: Sequence[Any]) -> list[Sequence[int]]:
    """Return some rows of the data, by which a narrower student is cut out of its teacher."""
    encoded = task.encode(examples[:STUDENT_SAMPLE_ROWS], teacher.require_tokenizer(), teacher.max_tokens)
    return [row.ids.tolist() for example in encoded for row in example.rows][:STUDENT_SAMPLE_ROWS]


def _check_same_task(task: AnyTask, job: DistillJob) -> None:
    """Refuse a student that was fine-tuned for something else than its teacher."""
    folder = Path(job.student)
    if not (folder / TASK_FILE).is_file():
        return
    other = read_task(folder, job.task).open()
    if (other.name, other.labels) != (task.name, task.labels):
        raise BadSetting(
            f"The student {folder} was fine-tuned for {_describe_task(other)}, and its teacher for {_describe_task(task)}. Give a "
            "student that is not fine-tuned, or one with the teacher's labels in the teacher's order."
        )


def _describe_task(task: AnyTask) -> str:
    return f"the task {task.name} with the labels {shortlist(task.labels)}" if task.labels else f"the task {task.name}"


DEFAULT_TOKENS: Final = 5_000_000
STUDENT_SAMPLE_TOKENS: Final = 8192
"""Tokens by which a student is cut out of its teacher, about."""


@dataclass(frozen=True)
class GeneralDistillRunResult:
    """What a run has done, and how far the student was from its teacher on held-out text before and after it."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    done: RunTotals


def distill_general(
    teacher: str,
    student: str,
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    settings: GeneralDistillSettings,
    context: RunContext | None = None,
) -> GeneralDistillRunResult:
    """Teach a student on plain text, or go on with a run that was stopped."""
    files = expand_inputs(inputs)
    with join_processes(context) as (own_context, processes):
        return _GeneralDistillRun(teacher, student, files, Path(out), settings, own_context, processes).run()


@dataclass
class _GeneralDistillRun:
    """One call of the verb."""

    teacher: str
    student: str
    files: list[Path]
    out: Path
    settings: GeneralDistillSettings
    context: RunContext
    processes: Processes

    def run(self) -> GeneralDistillRunResult:
        output = OutputFolder(self.out, self._plan(), self.processes, self.context.overwrite)
        output.check()
        teacher = open_checkpoint(self.teacher)
        shards = self.processes.in_turn(lambda: self._shards(teacher))
        advice = ". --hours or --tokens choose another."
        self.settings = with_default_tokens(self.settings, DEFAULT_TOKENS, advice, self.context.log)
        training = self._training(teacher, shards, output.partial_folder)
        training.check()
        with output.open() as draft:
            return self._train(training, draft, shards)

    def _plan(self) -> dict[str, Any]:
        models = self.teacher, self.student
        folders = [model for model in models if Path(model).is_dir()]
        named = [model for model in models if model not in folders]
        config = {"verb": "distill", "stage": "general", "named": named, **as_table(self.settings)}
        return {"config": config, "inputs": [*self.files, *map(Path, folders)], "seed": self.settings.seed}

    def _shards(self, teacher: Checkpoint) -> Shards:
        context, cache = self.context, self.context.cache_for(self.out)
        corpus = open_corpus(self.files, context, cache)
        shards = open_or_build_shards(
            corpus, teacher.require_tokenizer(), cache, workers=context.workers, on_progress=context.on_reading
        )
        check_split(shards, self.settings.evaluation.share)
        return shards

    def _training(self, teacher: Checkpoint, shards: Shards, folder: Path) -> TrainingRun:
        settings = self.settings
        collator = Collator(shards, teacher.require_tokenizer(), settings.batch.padded)
        rows = _sample_shards(collator, settings)
        student = make_student(teacher, self.student, settings.student, rows=rows, seed=settings.seed)
        losses = LayerLosses(settings.losses, student.blueprint.config, teacher.blueprint.config)
        model = teacher.model.to(self.processes.device(self.context.device))
        objective = TextDistillObjective(collator, Teacher(model), losses, settings)
        return TrainingRun(
            with_heads(student, losses.heads, seed=settings.seed),
            lambda: objective,
            settings,
            folder / RUN_FOLDER,
            folder / STATE_FOLDER,
            self.context,
            self.processes,
            phase="distillation",
            initialise=partial(fit_projections, objective=objective),
        )

    def _train(self, training: TrainingRun, draft: Draft, shards: Shards) -> GeneralDistillRunResult:
        after = training.train().scores[SCORES_KEY]
        before = training.first_scores().get(SCORES_KEY, {})
        result = GeneralDistillRunResult(before, after, training.loop.position.done)
        if self.processes.is_first:
            with_heads(training.trained, {}).write(draft, training=self._card(shards, result))
            training.write_run()
            draft.counts.update(result.done.counts)
        return result

    def _card(self, shards: Shards, run: GeneralDistillRunResult) -> dict[str, str]:
        weights = self.settings.losses.chosen()
        return {
            "teacher": Path(self.teacher).name,
            "student": self.student,
            "corpus": f"{shards.counts['documents']:,} documents, {shards.counts['tokens']:,} tokens",
            "losses": ", ".join(f"{name} (weight {weight:g})" for name, weight in weights.items()),
            "length of the run": f"{run.done.step:,} steps, {run.done.tokens:,} tokens",
            "held-out text": ", ".join(
                f"{name} {run.before.get(name, float('nan')):.4g} -> {value:.4g}" for name, value in run.after.items()
            ),
            "seed": str(self.settings.seed),
        }


def _sample_shards(collator: Collator, settings: GeneralDistillSettings) -> list[list[int]]:
    """Return some rows of the text, by which a narrower student is cut out of its teacher."""
    split = HeldOutSplit(collator.shards, settings.evaluation.share)
    feed = SequenceSampler(collator.shards, split, seed=settings.seed, micro_tokens=STUDENT_SAMPLE_TOKENS)
    (portion,), _ = feed.take(Cursor(), 1, settings.sequences.cutting(0.0))
    batch = collator.micro(portion.spans, [], "", ()).batch
    return [ids.tolist() for ids in batch.split(batch.ids_N)]
