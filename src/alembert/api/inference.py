"""`alembert.load`, `read`, `write`, `evaluate`, `annotate`, `fill`, `generate` and `score`: using models and documents.

Nothing here needs torch for an Export; a Checkpoint runs in torch.
"""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from alembert.api.arguments import (
    Paths,
    Settings,
    StrPath,
    checked,
    columns_of,
    files_of,
    given,
    inputs_of,
    model_name,
    path_of,
    progress_bar,
    settings_table,
)
from alembert.corpus.document import Document
from alembert.errors import BadFile, BadInput, BadSetting
from alembert.infer.predictor import Predictor

if TYPE_CHECKING:
    from alembert.infer.evaluate import Evaluation
    from alembert.infer.fill_mask import FilledMask
    from alembert.infer.supply import Supply
    from alembert.infer.text_score import TextScore

_FORMAT_OF_ENDING: Final = {
    ".jsonl": "jsonl",
    ".json": "bioc-json",
    ".xml": "bioc-xml",
    ".pubtator": "pubtator",
    ".parquet": "parquet",
    ".conll": "conll",
    "": "brat",
}
"""What a file is written as if no format is named; a path without an ending is a folder, as brat has it."""


@checked
def load(
    *models: StrPath, task: str | None = None, device: str = "auto", pooling: str | None = None
) -> Predictor:
    """Load models to predict with: Checkpoints, Exports, or folders that transformers fine-tuned.

    Several taggers, classifiers and relation models work together in one pass: `alembert.load("work/ner", "work/rel")`.
    `task` chooses one task of a multi-task model. `device` is for Checkpoints, which run in torch. `pooling` (mean or
    cls) is for `encode` with a model whose folder does not state how vectors are made.
    """
    folders = [model_folder(model) for model in models]
    return Predictor(*folders, task=task, device=device, pooling=pooling)


def model_folder(model: StrPath) -> Path:
    """Return the folder of a model; `hub:organisation/name` is fetched from the Hugging Face hub."""
    from alembert.hub import model_folder as find_folder
    from alembert.tasks.files import task_remark

    name = model_name(model)
    folder = find_folder(name)
    if remark := task_remark(folder, name):
        warnings.warn(remark, stacklevel=4)
    return folder


# -- documents


@checked
def read(inputs: Paths, *, format: str | None = None, **options: Any) -> Iterator[Document]:  # noqa: A002
    """Read documents from files, folders or patterns (`notes/*.jsonl`) of any known format, as a stream.

    An input may lie in an object store (`s3://`, `gs://`), and `-` is standard input; both are copied here first. The format
    of each file is recognised unless it is named. `options` say how files are read: `text`, `id`, `title` and `label` name
    columns or fields, `encoding`, `delimiter` and `header` are for tables (docs/formats.md has all of them). What could not
    be read, or was guessed on the way, is counted in a warning at the end.
    """
    from alembert.corpus.input_files import list_files
    from alembert.corpus.readers import FORMATS, ReadOptions
    from alembert.infer.supply import supply_of
    from alembert.settings import changed

    if format is not None and format not in FORMATS:
        raise BadSetting(f"`format` is {format!r}, which no reader has. Use one of {', '.join(FORMATS)}.")
    files = list_files(files_of(inputs, "inputs"), format=format)
    return _documents(supply_of(files, changed(ReadOptions(), options, "`read`"), format))


def _documents(supply: Supply) -> Iterator[Document]:
    from alembert.corpus.readers import Remark, SetAside
    from alembert.infer.supply import Place

    aside: list[SetAside] = []
    remarks: Counter[str] = Counter()
    for taken in supply.items(Place()):
        if isinstance(taken.item, Document):
            yield taken.item
        elif isinstance(taken.item, SetAside):
            aside.append(taken.item)
        elif isinstance(taken.item, Remark):
            remarks[taken.item.reason] += taken.item.count
        else:
            remarks["records that their file takes back, and that a stream cannot"] += 1
    if aside:
        first = aside[0]
        warnings.warn(
            f"{len(aside):,} items could not be read; the first: {first.source}, {first.position}: {first.reason}",
            stacklevel=2,
        )
    for reason, count in remarks.items():
        warnings.warn(f"{reason} ({count:,})", stacklevel=2)


@checked
def write(documents: Iterable[Document], path: StrPath, *, format: str | None = None) -> Path:  # noqa: A002
    """Write documents, with what models found in them, to a file or folder.

    The format follows from the ending (.jsonl, .jsonl.gz, .json for BioC, .xml for BioC, .pubtator, .parquet, .conll; none
    for a brat folder) unless it is named; `label-studio` has to be. The file appears when it is complete. What a format
    cannot hold is counted in a warning.
    """
    from alembert.corpus.writers import write as write_format

    target = path_of(path, "path")
    chosen = format or _format_of(target)
    if isinstance(documents, str | bytes | Mapping | Document) or not isinstance(documents, Iterable):
        raise BadInput(f"`documents` is a {type(documents).__name__}; expected an iterable of Documents.")
    if chosen == "brat" and target.exists():
        raise BadFile(f"{target} is there already, and brat has a folder of files. Name a new folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}")  # with the same ending, by which writers tell compression
    try:
        losses = write_format(_checked(documents), hidden, chosen)
    except BaseException:
        _remove(hidden)
        raise
    hidden.replace(target)
    if losses:
        warnings.warn(
            f"{target}: {'; '.join(f'{reason}: {count:,}' for reason, count in losses.items())}", stacklevel=3
        )
    return target


def _format_of(path: Path) -> str:
    ending = path.with_suffix("").suffix if path.suffix in (".gz", ".zst") else path.suffix
    if ending not in _FORMAT_OF_ENDING:
        known = ", ".join(each for each in _FORMAT_OF_ENDING if each)
        raise BadSetting(
            f"The format of {path} cannot be told from {ending!r}; expected {known}, or `format=`."
        )
    return _FORMAT_OF_ENDING[ending]


def _checked(documents: Iterable[Any]) -> Iterator[Document]:
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, Document):
            raise BadInput(f"Item {number} is a {type(document).__name__}; expected a Document.")
        yield document


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# -- verbs


@checked
def evaluate(
    model: StrPath,
    files: Paths,
    *,
    task: str | None = None,
    against: StrPath | None = None,
    part: str | None = None,
    text: str | Iterable[str] | None = None,
    label: str | None = None,
    rounds: int = 1000,
    device: str = "auto",
    progress: bool = True,
) -> Evaluation:
    """Score a fine-tuned model on labelled files, with intervals, coverage and calibration.

    `.scores.measures` has the scores, `.interval` the 95 % interval of the main one. `against` is another model to
    compare with; `part` takes train, dev or test of files that `finetune` divided.
    """
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.engines import device_for
    from alembert.infer.evaluate import evaluate as run
    from alembert.infer.task_model import TaskModel

    folders = [model_folder(each) for each in ([model] if against is None else [model, against])]
    where = device_for(folders, device)
    opened = [TaskModel.open(folder, where, task) for folder in folders]
    options = ReadOptions(text=columns_of(text), label=label)
    other = opened[1] if len(opened) > 1 else None
    with progress_bar(progress) as bar:
        return run(
            opened[0],
            files_of(files, "files"),
            options,
            part=part,
            against=other,
            rounds=rounds,
            device=where,
            tell=bar.show,
        )


@dataclass(frozen=True, kw_only=True)
class EmbeddingResult:
    """Vectors on the disk, and what was counted on the way."""

    folder: Path
    """What `Predictor.search` looks through."""
    counts: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"folder": str(self.folder), "counts": dict(self.counts)}


def embed(
    model: StrPath,
    inputs: Paths,
    *,
    out: StrPath,
    unit: str | None = None,
    pooling: str | None = None,
    settings: Settings | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> EmbeddingResult:
    """Write a vector for each document, or with `unit="sentence"` for each sentence, to a folder that can be searched.

    The same call resumes a run that was stopped. `pooling` (mean or cls) is for a model whose folder does not state it.
    """
    from alembert.infer.embed import EncodeSettings, encode
    from alembert.infer.embed_model import Embedder
    from alembert.infer.engines import device_for
    from alembert.settings import changed

    folder, target = model_folder(model), path_of(out, "out")
    run_settings = changed(EncodeSettings(), settings_table(settings), "`settings`")
    run_settings = changed(run_settings, given(unit=unit), "The arguments")
    files = files_of(inputs, "inputs")
    embedder = Embedder.open(folder, mode=cast(Any, pooling), device=device_for([folder], device))
    with progress_bar(progress) as bar:
        result = encode(embedder, files, target, run_settings, overwrite=overwrite, tell=bar.show)
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


@checked
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
    settings: Settings | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> AnnotationResult:
    """Annotate documents of any number with a model, or with several in one pass, each document exactly once.

    The same call resumes a run that was stopped. `keep` leaves the annotations of the input beside the new ones.
    `lexicons` adds the terms of dictionaries, by label, where no entity stands: `{"gene": "genes.tsv"}`.
    """
    from alembert.infer.annotate import AnnotateSettings
    from alembert.infer.annotate import annotate as run
    from alembert.infer.annotate_models import Pipeline
    from alembert.infer.engines import device_for
    from alembert.settings import changed

    folders = [model_folder(each) for each in inputs_of(model, "model")]
    run_settings = changed(AnnotateSettings(), settings_table(settings), "`settings`")
    run_settings = changed(run_settings, given(format=format), "The arguments")
    pipeline = Pipeline.open(
        folders,
        task=task,
        keep=keep,
        device=device_for(folders, device),
        lexicons=_lexicons(lexicons),
        min_score=min_score,
        min_precision=min_precision,
    )
    folder = path_of(out, "out")
    with progress_bar(progress) as bar:
        result = run(
            pipeline,
            inputs_of(inputs, "inputs"),
            folder,
            run_settings,
            overwrite=overwrite,
            tell=bar.show,
        )
    return AnnotationResult(folder=folder, counts=dict(result.manifest.counts))


def _lexicons(named: Any) -> dict[str, Path]:
    if named is not None and not isinstance(named, Mapping):
        raise BadInput(
            f"`lexicons` is a {type(named).__name__}; expected a dict such as {{'gene': 'hgnc.tsv'}}."
        )
    return {str(label): path_of(path, "lexicons") for label, path in (named or {}).items()}


# -- language models


@checked
def fill(model: StrPath | Predictor, text: str, *, top: int = 5) -> tuple[FilledMask, ...]:
    """Return what a masked language model expects at each `[MASK]` of a text, the likeliest candidates first."""
    from alembert.infer.fill_mask import fill_mask

    return fill_mask(_predictor(model).language_model, _text(text), top)


@checked
def generate(
    model: StrPath | Predictor,
    prompt: str | Iterable[str],
    *,
    max_new_tokens: int | None = None,
    settings: Settings | None = None,
    **options: Any,
) -> Any:
    """Continue a text with a model that was trained to write (objective causal or prefix).

    One prompt gives a tuple of `GeneratedText`, the best first; a list of prompts gives a list of tuples. `options` are those
    of decoding: `method` (greedy, sample, beam), `temperature`, `top_k`, `top_p`, `beams`, `count`, `seed`, `no_repeat`,
    `length_penalty`, `repetition_penalty`.
    """
    from alembert.infer.generate import generate_batch
    from alembert.settings import changed
    from alembert.tasks.decoding.settings import DecodeSettings

    decoding = changed(DecodeSettings(), settings_table(settings), "`settings`")
    decoding = changed(decoding, {**options, **given(longest=max_new_tokens)}, "`generate`")
    prompts = [prompt] if isinstance(prompt, str) else [_text(each) for each in _iterable(prompt, "prompt")]
    written = list(generate_batch(_predictor(model).language_model, prompts, decoding))
    return written[0] if isinstance(prompt, str) else written


@checked
def score(model: StrPath | Predictor, text: str) -> TextScore:
    """Return how probable a language model finds a text: exactly for causal models, as pseudo-log-likelihood for masked ones.

    `.log_probability` is the sum over `.tokens`, `.perplexity` the usual measure of a model.
    """
    from alembert.infer.text_score import score_text

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
