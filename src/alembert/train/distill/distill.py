"""The verb `distill` with labelled data: a fine-tuned teacher and examples to a small model for the same task.

In: a Checkpoint with its task, what the student is (a size, a share of the teacher's layers, or a folder), files of
examples, settings. Out: a Checkpoint folder as `finetune` writes it. The task is the teacher's, with its labels in its
order, so that they cannot differ; data with other labels are refused. The same call goes on with a run that was stopped.

Sentences of plain text for a teacher to label: what a student learns from beside the labelled examples.

In: a Corpus folder or raw files. Out: so many sentences of them, drawn evenly from all, always the same for a seed. A
student soon knows a few thousand examples by heart; text of the same kind costs nothing but the teacher's time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from alembert.artifact import Draft, shortlist
from alembert.corpus.excerpt import TextSampleReader
from alembert.corpus.inputs import expand_inputs
from alembert.corpus.jobs import Progress
from alembert.data.order import make_rng, stable_hash
from alembert.errors import BadFile, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.student import make_student
from alembert.files.surgery import with_embedding_head
from alembert.hub import model_folder
from alembert.settings import as_table
from alembert.tasks.compare.pooling import find_missing_head
from alembert.tasks.data_screen import format_data_report
from alembert.tasks.files import TASK_FILE, open_task
from alembert.tasks.task import AnyTask
from alembert.text.sentences import split_sentences
from alembert.text.tokenizer import Tokenizer
from alembert.train.augment.augment import augment
from alembert.train.distill.settings import DistillSettings
from alembert.train.distill.stages import DistillContext, DistillJob, StudentRun
from alembert.train.distributed import Processes
from alembert.train.finetune.data import TaskSpec, prepare_data, require_tokenizer
from alembert.train.finetune.data_reports import build_reports
from alembert.train.finetune.finetune import FinetuneRunResult, select_best_seed
from alembert.train.finetune.seeds import check_seeds, get_seed_folder
from alembert.train.run import OutputFolder, RunContext, join_processes


def sample_sentences(
    inputs: Sequence[Path], most: int, seed: int, tell: Callable[[Progress], None] = lambda _: None
) -> list[str]:
    """Draw sentences with letters, each once, in the order in which they stand there."""
    rng = make_rng(seed, "texts")
    drawn: dict[int, tuple[int, str]] = {}
    seen: set[str] = set()
    for sample in replace(TextSampleReader.open(inputs), tell=tell):
        for start, end in split_sentences(sample.text):
            sentence = " ".join(sample.text[start:end].split())
            if sentence in seen or not any(map(str.isalpha, sentence)):
                continue
            place = len(seen) if len(seen) < most else int(rng.integers(len(seen) + 1))
            if place < most:
                drawn[place] = (len(seen), sentence)
            seen.add(sentence)
    if not drawn:
        raise BadFile(f"No sentence was found in {', '.join(map(str, inputs))}. Check the files.")
    return [sentence for _, sentence in sorted(drawn.values())]


STUDENT_SAMPLE_ROWS: Final = 256
"""Rows by which a student is cut out of its teacher."""


def distill(
    wish: DistillJob,
    out: str | Path,
    settings: DistillSettings,
    *,
    seeds: int = 1,
    around: RunContext | None = None,
) -> FinetuneRunResult:
    """Distil a teacher into a student, or go on with a run that was stopped."""
    check_seeds(seeds)
    texts = tuple(expand_inputs(wish.texts)) if wish.texts else ()
    wish = replace(wish, teacher=str(model_folder(wish.teacher)), texts=texts)
    with join_processes(around) as (heard, processes):
        if wish.texts:
            heard.log("Plain text has no gold labels, so the loss `labels` is left out.")
            settings = settings.without_right_answers()
        return _DistillRun(wish, Path(out), settings, seeds, heard, processes).run()


@dataclass
class _DistillRun:
    """One call of the verb."""

    wish: DistillJob
    out: Path
    settings: DistillSettings
    seeds: int
    around: RunContext
    processes: Processes

    def run(self) -> FinetuneRunResult:
        place = OutputFolder(self.out, self._plan(), self.processes, self.around.overwrite)
        place.check()
        hall = self.processes.agree(self._gathered)
        reports = build_reports(hall.prepared)
        for report in reports.values():
            self.around.print_table(format_data_report(report))
        StudentRun(hall, self.settings.seed, reports, place.partial_folder).check()
        with place.open() as draft:
            results = tuple(
                StudentRun(hall, self.settings.seed + number, reports, self._folder(draft, number)).run()
                for number in range(self.seeds)
            )
            return select_best_seed(draft, reports, results, partial(self._folder, draft), self.processes)

    def _folder(self, draft: Draft, number: int) -> Path:
        return get_seed_folder(draft.path, self.settings.seed + number, self.seeds)

    def _plan(self) -> dict[str, Any]:
        wish = self.wish
        models = [each for each in (wish.teacher, wish.student, wish.words) if each is not None]
        folders = [each for each in models if Path(each).is_dir()]
        named = set(models) - set(folders)
        return {
            "config": {
                "verb": "distill",
                "named": sorted(named),
                "task": wish.task,
                "parts": wish.data.sizes,
                "split": wish.data.split if wish.data.unsplit else None,
                "types": list(wish.data.options.types),
                "seeds": self.seeds,
                **as_table(self.settings),
            },
            "inputs": [
                *wish.data.contents,
                *wish.texts,
                *map(Path, folders),
                *([wish.vocabulary] if wish.vocabulary else []),
            ],
            "seed": self.settings.seed,
        }

    def _gathered(self) -> DistillContext:
        found = open_checkpoint(self.wish.teacher)
        teacher = with_embedding_head(found, find_missing_head(found.folder, found.blueprint.heads))
        task = open_task(Path(self.wish.teacher), self.wish.task).for_student()
        _check_same_task(task, self.wish)
        own = None if self.wish.vocabulary is None else Tokenizer.open(self.wish.vocabulary)
        student = make_student(
            teacher,
            self.wish.student,
            self.settings.student,
            tokenizer=own,
            rows=self._first_rows(teacher, task),
            seed=self.settings.seed,
        )
        subject = TaskSpec(task=task.name, data=self.wish.data, settings=task.settings)
        prepared = prepare_data(
            {None: subject},
            student,
            known={None: task},
            more=partial(self._more, teacher),
        )
        return DistillContext(self.wish, teacher, prepared, self.settings, self.out, self.around, self.processes)

    def _first_rows(self, teacher: Checkpoint, task: AnyTask) -> list[Sequence[int]]:
        """Give some rows of the data, by which a narrower student is cut out of its teacher."""
        data = self.wish.data
        train, _, whole = (part.paths for part in data.parts)
        found = task.read([*train, *whole], task.settings, data.options).examples
        task.check(found)
        longest = teacher.blueprint.config.max_position_embeddings
        encoded = task.encode(found[:STUDENT_SAMPLE_ROWS], require_tokenizer(teacher), longest)
        return [row.ids.tolist() for each in encoded for row in each.rows][:STUDENT_SAMPLE_ROWS]

    def _more(self, teacher: Checkpoint, task: AnyTask, examples: Sequence[Any]) -> Sequence[Any]:
        """Make further examples: copies of those that there are, and sentences of plain text."""
        return (*self._augmented(teacher, task, examples), *self._unlabelled(task))

    def _unlabelled(self, task: AnyTask) -> Sequence[Any]:
        if not self.wish.texts:
            return ()
        found = sample_sentences(self.wish.texts, self.settings.max_texts, self.settings.seed, self.around.on_reading)
        self.around.log(f"{len(found):,} sentences of plain text are labelled by the teacher.")
        return task.examples_from_texts(found, [f"text-{number}" for number in range(1, len(found) + 1)])

    def _augmented(self, teacher: Checkpoint, task: AnyTask, examples: Sequence[Any]) -> Sequence[Any]:
        if not self.settings.augment.copies:
            return ()
        source = teacher if self.wish.words is None else open_checkpoint(self.wish.words)
        wanted = self.settings.augment
        wanted = replace(wanted, seed=stable_hash(self.settings.seed, "augment", wanted.seed))
        made = augment(source, task, examples, wanted, tell=self.around.on_reading)
        for note in made.notes:
            self.around.log(note)
        return made.examples


def _check_same_task(task: AnyTask, wish: DistillJob) -> None:
    """Refuse a student that was fine-tuned for something else than its teacher."""
    folder = Path(wish.student)
    if not (folder / TASK_FILE).is_file():
        return
    other = open_task(folder, wish.task)
    if (other.name, other.labels) != (task.name, task.labels):
        raise BadSetting(
            f"The student {folder} was fine-tuned for {_describe_task(other)}, and its teacher for {_describe_task(task)}. Give a "
            "student that is not fine-tuned, or one with the teacher's labels in the teacher's order."
        )


def _describe_task(task: AnyTask) -> str:
    return f"the task {task.name} with the labels {shortlist(task.labels)}" if task.labels else f"the task {task.name}"
