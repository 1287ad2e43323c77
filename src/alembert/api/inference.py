"""`alembert.load`, `evaluate`, `annotate`, `embed`, `fill`, `generate` and `score`: using models.

Nothing here needs torch for an Export; a Checkpoint runs in torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from alembert.api.documents import (
    Paths,
    SettingsLike,
    StrPath,
    check_arguments,
    model_name,
    progress_bar,
    settings_table,
    to_columns,
    to_inputs,
    to_lexicons,
    to_local_files,
    to_path,
)
from alembert.errors import BadInput
from alembert.infer.predictor import Predictor
from alembert.settings import drop_none

if TYPE_CHECKING:
    from alembert.infer.evaluate import Evaluation
    from alembert.infer.language_model import FilledMask, TextScore


@check_arguments
def load(
    *models: StrPath,
    task: str | None = None,
    device: str = "auto",
    pooling: str | None = None,
    lexicons: Mapping[str, StrPath] | None = None,
) -> Predictor:
    """Load models to predict with: Checkpoints, Exports, folders that transformers fine-tuned, or hub:organisation/name.

    Several taggers, classifiers and relation models work together in one pass: `alembert.load("work/ner", "work/rel")`.
    `task` chooses one task of a multi-task model. `device` (auto, cpu, cuda) is for Checkpoints, which run in torch;
    Exports run on the CPU. `pooling` (mean or cls) says how `encode` makes a vector of a text, if the model's folder
    does not. `lexicons` adds terms to the lexicons that a tagger was trained with: `{"Disease": "our-terms.tsv"}`.
    """
    folders = [resolve_model_folder(model) for model in models]
    return Predictor(*folders, task=task, device=device, pooling=pooling, lexicons=to_lexicons(lexicons))


def resolve_model_folder(model: StrPath, argument: str = "model") -> Path:
    """Return the folder of a model; `hub:organisation/name` is fetched from the Hugging Face hub."""
    from alembert.hub import model_folder as find_folder
    from alembert.tasks.files import describe_inferred_task

    name = model_name(model, argument)
    folder = find_folder(name)
    if remark := describe_inferred_task(folder, name):
        warnings.warn(remark, stacklevel=4)
    return folder


@check_arguments
def evaluate(
    model: StrPath,
    files: Paths | Mapping[str, Paths],
    *,
    task: str | None = None,
    against: StrPath | None = None,
    part: str | None = None,
    text: str | Iterable[str] | None = None,
    label: str | None = None,
    rounds: int = 1000,
    device: str = "auto",
    progress: bool = True,
) -> Evaluation | dict[str, Evaluation]:
    """Score a fine-tuned model on labelled files, with intervals, coverage and calibration.

    Of the `Evaluation` that is returned, `.scores.measures` has the scores, `.interval` the 95 % interval of the main
    one. To score all tasks of a multi-task model, give a dict of the tasks' files by their names, such as `{"disease":
    "disease-test.tsv", "topic": "topic-test.tsv"}`: a dict of evaluations is returned. `against` is another model to
    compare with; `part` takes train, dev or test of files that `finetune` split. `text` and `label` name columns of
    tables. `rounds` is the number of bootstrap samples for the interval.
    """
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.engines import choose_device
    from alembert.infer.evaluate import evaluate as run
    from alembert.infer.evaluate import evaluate_tasks
    from alembert.infer.task_model import TaskModel

    folders = [resolve_model_folder(name) for name in ([model] if against is None else [model, against])]
    where = choose_device(folders, device)
    opened = [TaskModel.open(folder, where, task) for folder in folders]
    options = ReadOptions(text=to_columns(text), label=label)
    other = opened[1] if len(opened) > 1 else None
    with progress_bar(progress) as bar:
        how: dict[str, Any] = {
            "part": part,
            "against": other,
            "rounds": rounds,
            "device": where,
            "on_progress": bar.show,
        }
        if isinstance(files, Mapping):
            own = {name: to_local_files(paths, "files") for name, paths in files.items()}
            return evaluate_tasks(opened[0], own, options, **how)
        return run(opened[0], to_local_files(files, "files"), options, **how)


@dataclass(frozen=True, kw_only=True)
class EmbeddingResult:
    """Vectors on the disk, and what was counted on the way."""

    folder: Path
    """Folder of the vectors, the `index` of `Predictor.search`."""
    counts: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"folder": str(self.folder), "counts": dict(self.counts)}


@check_arguments
def embed(
    model: StrPath,
    inputs: Paths,
    *,
    out: StrPath,
    unit: str | None = None,
    pooling: str | None = None,
    settings: SettingsLike | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> EmbeddingResult:
    """Write a vector for each document, or with `unit="sentence"` for each sentence, to a folder that can be searched.

    The same call resumes a run that was stopped. `pooling` (mean or cls) says how a vector is made, if the model's
    folder does not.
    """
    from alembert.infer.embed import EncodeSettings, encode
    from alembert.infer.embedder import Embedder
    from alembert.infer.engines import choose_device
    from alembert.settings import apply_changes

    folder, target = resolve_model_folder(model), to_path(out, "out")
    run_settings = apply_changes(EncodeSettings(), settings_table(settings), "`settings`")
    run_settings = apply_changes(run_settings, drop_none(unit=unit), "The arguments")
    files = to_inputs(inputs, "inputs")
    embedder = Embedder.open(folder, mode=cast(Any, pooling), device=choose_device([folder], device))
    with progress_bar(progress) as bar:
        result = encode(embedder, files, target, run_settings, overwrite=overwrite, on_progress=bar.show)
    return EmbeddingResult(folder=target, counts=dict(result.manifest.counts))


@dataclass(frozen=True, kw_only=True)
class AnnotationResult:
    """Annotated documents on the disk, and what was counted on the way."""

    folder: Path
    counts: Mapping[str, int]
    """Documents read, written and set aside, entities, relations and labels, tokens, by name."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"folder": str(self.folder), "counts": dict(self.counts)}


@check_arguments
def annotate(
    model: StrPath | Iterable[StrPath],
    inputs: Paths,
    *,
    out: StrPath,
    format: str | None = None,  # noqa: A002
    task: str | None = None,
    keep: bool = False,
    lexicons: Mapping[str, StrPath] | None = None,
    min_score: float | None = None,
    min_precision: float | None = None,
    settings: SettingsLike | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> AnnotationResult:
    """Annotate any number of documents with a model, or with several in one pass, each document exactly once.

    The same call resumes a run that was stopped. `format` is jsonl (the default), bioc (XML), bioc-json, pubtator,
    brat, parquet, conll or label-studio. `keep` keeps the annotations of the input beside the new ones. `lexicons` also
    marks the terms of dictionaries, by label, where the models found nothing: `{"gene": "genes.tsv"}`. `min_score` and
    `min_precision` are those of `Predictor.predict`.
    """
    from alembert.infer.annotate import AnnotateSettings
    from alembert.infer.annotate import annotate as run
    from alembert.infer.annotate_pipeline import Pipeline
    from alembert.infer.engines import choose_device
    from alembert.settings import apply_changes

    folders = [resolve_model_folder(name) for name in to_inputs(model, "model")]
    run_settings = apply_changes(AnnotateSettings(), settings_table(settings), "`settings`")
    run_settings = apply_changes(run_settings, drop_none(format=format), "The arguments")
    pipeline = Pipeline.open(
        folders,
        task=task,
        keep=keep,
        device=choose_device(folders, device),
        lexicons=to_lexicons(lexicons),
        min_score=min_score,
        min_precision=min_precision,
    )
    folder = to_path(out, "out")
    with progress_bar(progress) as bar:
        result = run(
            pipeline,
            to_inputs(inputs, "inputs"),
            folder,
            run_settings,
            overwrite=overwrite,
            on_progress=bar.show,
        )
    return AnnotationResult(folder=folder, counts=dict(result.manifest.counts))


# -- language models


@check_arguments
def fill(model: StrPath | Predictor, text: str, *, top: int = 5) -> tuple[FilledMask, ...]:
    """Return what a masked language model expects at each `[MASK]` of a text, the likeliest candidates first."""
    from alembert.infer.language_model import fill_mask

    return fill_mask(_predictor(model).language_model, _text(text), top)


@check_arguments
def generate(
    model: StrPath | Predictor,
    prompt: str | Iterable[str],
    *,
    max_new_tokens: int | None = None,
    settings: SettingsLike | None = None,
    **options: Any,
) -> Any:
    """Continue a text with a language model that was trained with the objective causal or prefix.

    One prompt gives a tuple of `GeneratedText`, the best first; a list of prompts gives a list of tuples. `options`
    control decoding: `method` (greedy, sample, beam), `temperature`, `top_k`, `top_p`, `beams`, `count`, `seed`,
    `no_repeat_ngram`, `length_penalty`, `repetition_penalty`.
    """
    from alembert.infer.language_model import generate_batch
    from alembert.settings import apply_changes, rename_old_keys
    from alembert.tasks.generate.decoding import DecodeSettings

    decoding = apply_changes(DecodeSettings(), settings_table(settings, ("decoding",)), "`settings`")
    named = rename_old_keys(options, "`generate`", ("decoding",))
    decoding = apply_changes(decoding, {**named, **drop_none(max_new_tokens=max_new_tokens)}, "`generate`")
    prompts = [prompt] if isinstance(prompt, str) else [_text(item) for item in _iterable(prompt, "prompt")]
    written = list(generate_batch(_predictor(model).language_model, prompts, decoding))
    return written[0] if isinstance(prompt, str) else written


@check_arguments
def score(model: StrPath | Predictor, text: str) -> TextScore:
    """Return how probable a language model finds a text: exactly for causal models, as pseudo-log-likelihood for masked ones.

    `.log_probability` is the sum over `.tokens`, `.perplexity` the exponential of the negative mean.
    """
    from alembert.infer.language_model import score_text

    return score_text(_predictor(model).language_model, _text(text))


def _iterable(value: Any, name: str) -> Iterable[Any]:
    if not isinstance(value, Iterable):
        raise BadInput(f"`{name}` is a {type(value).__name__}; expected a text, or a list of texts.")
    return value


def _predictor(model: StrPath | Predictor) -> Predictor:
    return model if isinstance(model, Predictor) else load(model)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(f"The text is a {type(value).__name__}; expected a text (str).")
    return value
