"""`alembert.finetune`, `alembert.pretrain` and `alembert.distill`, with plain arguments.

Each call does what the command of the same name does: it writes a folder, and the same call resumes a run that was
stopped. A call whose result is complete returns it. What has no argument here goes into `settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Final

from alembert.api.documents import (
    Paths,
    SettingsLike,
    StrPath,
    check_arguments,
    files_by_task,
    model_name,
    progress_bar,
    run_context,
    settings_table,
    to_columns,
    to_lexicon_options,
    to_local_files,
    to_path,
    to_paths,
)
from alembert.api.inference import resolve_model_folder
from alembert.errors import AlreadyDone, BadInput, BadSetting, require_training
from alembert.settings import drop_none

if TYPE_CHECKING:
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.train.distill.settings import DistillSettings
    from alembert.train.finetune.data import DataFiles
    from alembert.train.finetune.finetune import FinetuneRunResult
    from alembert.train.finetune.seeds import SeedResult

_ARGUMENTS: Final = "The arguments"
_SETTINGS: Final = "`settings`"


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """A fine-tuned model, and how well it does on its development data."""

    folder: Path
    """Where the model is; `alembert.load` opens it."""
    main: str
    """Name of the measure that the best weights were chosen by, such as f1."""
    scores: Mapping[str, float]
    """All measures on the development data."""
    seeds: tuple[float, ...]
    """The main score of each seed."""

    @property
    def score(self) -> float:
        """The main score of the model."""
        return self.scores[self.main]

    @property
    def mean(self) -> float:
        """Mean of the main score over the seeds."""
        return fmean(self.seeds)

    @property
    def deviation(self) -> float:
        """Standard deviation of the main score over the seeds; 0 for one seed."""
        return stdev(self.seeds) if len(self.seeds) > 1 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "folder": str(self.folder), "mean": self.mean, "deviation": self.deviation}


@dataclass(frozen=True, kw_only=True)
class PretrainingResult:
    """A pre-trained model, and its measures on held-out text before and after the run."""

    folder: Path
    before: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    after: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tokens: int = 0
    """Tokens that the model was trained on."""
    summary: str | None = None
    """Of a run that trained a fresh head first: the losses of the head alone and at the end, and whether the encoder learnt."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "folder": str(self.folder)}


@check_arguments
def finetune(
    task: str | Mapping[str, str],
    *,
    model: StrPath,
    out: StrPath,
    train: Paths | Mapping[str, Paths] | None = None,
    dev: Paths | Mapping[str, Paths] | None = None,
    data: Paths | Mapping[str, Paths] | None = None,
    warm_up: Paths | None = None,
    split: str | None = None,
    lexicons: Mapping[str, Paths] | None = None,
    epochs: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    seeds: int = 1,
    text: str | Iterable[str] | None = None,
    label: str | None = None,
    settings: SettingsLike | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> TrainingResult:
    """Fine-tune a model for a task, or for several on one encoder.

    `task` is tag, classify, relate, answer, choose, compare or generate; for several tasks a dict of names and kinds,
    such as `{"disease": "tag", "topic": "classify"}`, and `train`, `dev` and `data` are dicts with the same names.
    `model` is a folder, or hub:organisation/name. Give `train` (and `dev`, else a tenth of it is set apart), or `data`,
    which is divided by `split` (80/10/10). `warm_up` are files with silver labels (`alembert.label_corpus`), which a
    tagger learns from first. `lexicons` are terms whose matches a tagger reads, by label: `{"Disease": "mesh.tsv.gz"}`;
    a label may have a list of files. `text` and `label` name columns of tables. `seeds=3` trains three times and keeps
    the best model. `settings` takes everything else: a dict, or the path of a TOML file.
    """
    require_training()
    from alembert.train.finetune.finetune import FinetuneJob, build_task_specs
    from alembert.train.finetune.finetune import finetune as run
    from alembert.train.finetune.settings import build_lexicon_layer, resolve_settings

    kinds = _kinds(task)
    optimiser, read = {"learning_rate": learning_rate}, {"text": _columns(text), "label": label}
    changes = drop_none(epochs=epochs, seed=seed, optimiser=optimiser, read=read)
    layers = {
        _SETTINGS: settings_table(settings),
        _ARGUMENTS: changes,
        "`lexicons`": build_lexicon_layer(kinds, to_lexicon_options(lexicons)),
    }
    run_settings, of_tasks = resolve_settings(kinds, layers)
    arguments = {"train": train, "dev": dev, "data": data, "warm_up": warm_up}
    files = _data(arguments, split, {name: task_settings.reading for name, task_settings in of_tasks.items()})
    job = FinetuneJob(model=model_name(model), tasks=build_task_specs(kinds, files, of_tasks))
    train_model = partial(run, job, settings=run_settings, seeds=seeds)
    return _train(train_model, to_path(out, "out"), progress=progress, device=device, overwrite=overwrite)


@check_arguments
def pretrain(
    inputs: Paths,
    *,
    out: StrPath,
    model: StrPath | None = None,
    size: str | None = None,
    tokenizer: StrPath | None = None,
    held_out_general: StrPath | None = None,
    recipe: str | None = None,
    hours: float | None = None,
    tokens: int | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    settings: SettingsLike | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> PretrainingResult:
    """Adapt a model to text, or pre-train one from nothing.

    `inputs` is a Corpus folder, or files with text. Give `model` to adapt one, or `size` (tiny, mini, ... or layers x
    width such as 6x384) and perhaps `tokenizer` to begin from nothing. The run lasts `hours`, `tokens` or `steps`.
    `recipe` names settings that belong together, such as adapt or biobert; `settings` takes everything else.
    `held_out_general` is text of no domain, on which the model is evaluated too: it shows what is forgotten.
    """
    require_training()
    from alembert.train.pretrain.inputs import PretrainStart
    from alembert.train.pretrain.pretrain import pretrain as run
    from alembert.train.pretrain.settings import choose_recipe, resolve_recipe

    start = None if model is None else model_name(model)
    optimiser = {"learning_rate": learning_rate}
    changes = drop_none(hours=hours, tokens=tokens, steps=steps, seed=seed, optimiser=optimiser)
    layers = {_SETTINGS: settings_table(settings), _ARGUMENTS: changes}
    run_settings = resolve_recipe(recipe or choose_recipe(start), layers, chosen=recipe is not None)
    vocabulary = None if tokenizer is None else to_path(tokenizer, "tokenizer")
    general = None if held_out_general is None else to_path(held_out_general, "held_out_general")
    folder, files = to_path(out, "out"), to_paths(inputs, "inputs")
    with progress_bar(progress) as bar:
        context = run_context(bar, progress=progress, device=device, overwrite=overwrite)
        context = replace(context, held_out_general=general)
        try:
            done = run(files, folder, PretrainStart(start, vocabulary, size), run_settings, context)
        except AlreadyDone:
            return _read_finished_pretraining(folder)
    return PretrainingResult(
        folder=folder, before=done.before, after=done.after, tokens=done.done.tokens, summary=done.summary
    )


@check_arguments
def distill(
    teacher: StrPath,
    *,
    student: str,
    out: StrPath,
    train: Paths | None = None,
    dev: Paths | None = None,
    data: Paths | None = None,
    split: str | None = None,
    task: str | None = None,
    texts: Paths | None = None,
    preset: str | None = None,
    epochs: float | None = None,
    seed: int | None = None,
    seeds: int = 1,
    settings: SettingsLike | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> TrainingResult:
    """Distil a fine-tuned teacher into a smaller student for the same task.

    `student` is a size such as 4x312 (layers x width), a share of the teacher's layers such as half, or a folder.
    `texts` is plain text whose sentences the teacher labels as well. `preset` is fast (the default) or tinybert.
    `epochs` are those of the last stage, which learns the teacher's predictions. `train`, `dev`, `data`, `split` and
    `seeds` are those of `finetune`.
    """
    require_training()
    from alembert.train.distill.distill import distill as run
    from alembert.train.distill.stages import DistillJob

    source = resolve_model_folder(teacher, "teacher")
    run_settings = _distill_settings(
        source, task, preset=preset, table=settings_table(settings), epochs=epochs, seed=seed
    )
    reading = {"": _get_read_options(source, task)}
    job = DistillJob(
        teacher=str(source),
        student=str(student),
        data=_data({"train": train, "dev": dev, "data": data}, split, reading)[""],
        task=task,
        texts=to_local_files(texts, "texts"),
    )
    train_model = partial(run, job, settings=run_settings, seeds=seeds)
    return _train(train_model, to_path(out, "out"), progress=progress, device=device, overwrite=overwrite)


def _read_finished_pretraining(folder: Path) -> PretrainingResult:
    """Read from its log what a run that was complete before has reached."""
    from alembert.artifact import open_artifact
    from alembert.train.pretrain.pretrain import ADAPTATION_NOTE
    from alembert.train.runlog import RunLog
    from alembert.train.training_run import RUN_FOLDER

    rows = list(RunLog(folder / RUN_FOLDER, tensorboard=False).rows("held_out"))
    if not rows:
        return PretrainingResult(folder=folder)
    first, last = rows[0], rows[-1]
    summary = open_artifact(folder).notes.get(ADAPTATION_NOTE)
    return PretrainingResult(
        folder=folder, before=first["scores"], after=last["scores"], tokens=last["tokens"], summary=summary
    )


def _train(
    train_model: Callable[..., FinetuneRunResult], folder: Path, *, progress: bool, device: str, overwrite: bool
) -> TrainingResult:
    """Train a model for a task, or return the result of a run that was complete before."""
    with progress_bar(progress) as bar:
        context = run_context(bar, progress=progress, device=device, overwrite=overwrite)
        try:
            done = train_model(out=folder, context=context)
        except AlreadyDone:
            return _read_finished_training(folder)
    return _result(folder, done.results, done.best)


def _kinds(task: str | Mapping[str, str]) -> dict[str, str]:
    """Return the kind of each task by its name."""
    from alembert.tasks.task import get_task_class

    if not isinstance(task, str | Mapping) or not task:
        raise BadInput(
            f"`task` is {type(task).__name__}; expected the name of a task such as 'tag', or a dict of names and tasks."
        )
    kinds = {task: task} if isinstance(task, str) else {str(name): str(kind) for name, kind in task.items()}
    for kind in kinds.values():
        get_task_class(kind)
    return kinds


def _columns(text: str | Iterable[str] | None) -> list[str] | None:
    return None if text is None else list(to_columns(text))


def _data(files: Mapping[str, Any], split: str | None, reading: Mapping[str, ReadOptions]) -> dict[str, DataFiles]:
    """Return the files of each task with how they are read; those of several tasks are given by their names."""
    from alembert.train.finetune.data import DataFiles

    of_tasks = {argument: files_by_task([*reading], value, argument) for argument, value in files.items()}
    data: dict[str, DataFiles] = {}
    for name, options in reading.items():
        train, dev, whole = (of_tasks[argument][name] for argument in ("train", "dev", "data"))
        if not (train or whole):
            raise BadSetting("There is nothing to learn from. Give `train`, or `data`, which is divided.")
        if split is not None and not whole:
            raise BadSetting("`split` divides the files of `data`, which was not given.")
        first = of_tasks["warm_up"][name] if "warm_up" in of_tasks else ()
        data[name] = DataFiles(
            train=train, dev=dev, unsplit=whole, warm_up=first, split=split or "80/10/10", options=options
        )
    return data


def _distill_settings(
    teacher: Path,
    task: str | None,
    *,
    preset: str | None,
    table: dict[str, Any],
    epochs: float | None,
    seed: int | None,
) -> DistillSettings:
    from alembert.settings import apply_changes
    from alembert.tasks.files import read_task
    from alembert.train.distill.settings import check_preset, get_preset

    name = check_preset(preset or str(table.pop("preset", "fast")))
    table.pop("preset", None)
    settings = apply_changes(get_preset(name, read_task(teacher, task).kind), table, _SETTINGS)
    changes = drop_none(seed=seed, prediction={"epochs": epochs})
    return apply_changes(settings, changes, _ARGUMENTS)


def _get_read_options(folder: Path, task: str | None) -> Any:
    """Return how the files of a model's training were read."""
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.tasks.files import read_task

    return read_task(folder, task).apply_columns(ReadOptions())


def _result(folder: Path, results: Iterable[SeedResult], best: int) -> TrainingResult:
    listed = list(results)
    return TrainingResult(
        folder=folder,
        main=listed[best].main,
        scores=dict(listed[best].measures),
        seeds=tuple(result.value for result in listed),
    )


def _read_finished_training(folder: Path) -> TrainingResult:
    """Read what a run that was complete before has reached."""
    from alembert.train.finetune.seeds import SCORES_FILE, SEEDS_FOLDER, SeedResult
    from alembert.train.training_run import RUN_FOLDER

    def read(run_folder: Path) -> SeedResult:
        return SeedResult.from_json((run_folder / RUN_FOLDER / SCORES_FILE).read_bytes())

    own = read(folder)
    members = sorted((folder / SEEDS_FOLDER).glob("*"), key=lambda path: int(path.name))
    values = tuple(read(member).value for member in members) or (own.value,)
    return replace(_result(folder, [own], 0), seeds=values)
