"""`alembert.read` and `alembert.write`, and how the public functions read their arguments.

Documents are read and written as streams, in every supported format. Arguments are paths, settings, files of tasks and
progress.
"""

from __future__ import annotations

import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from alembert.corpus.document import Document
from alembert.errors import BadFile, BadInput, BadSetting
from alembert.infer.predictions import AnnotatedDocument
from alembert.settings import as_table, read_toml, rename_old_keys
from alembert.terminal import ProgressBar, note, say_all

if TYPE_CHECKING:
    from alembert.corpus.label import LabelResult
    from alembert.infer.stream import InputStream
    from alembert.train.run import RunContext


P = ParamSpec("P")
R = TypeVar("R")

_CHECKED_TYPES: Final[Mapping[str, type]] = {
    "str": str,
    "int": Integral,
    "float": Real,
    "bool": bool,
    "None": NoneType,
}
"""Types that are checked by their name in a signature; paths, settings and inputs are checked where they are read."""

StrPath = str | PathLike[str]
Paths = StrPath | Iterable[StrPath]
SettingsLike = Mapping[str, Any] | StrPath | Any
"""A dict as a TOML file would hold it, the path of such a file, or the settings dataclass itself."""


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments of other types than the plain ones that the signature states, before anything is done."""
    parameters = signature(function).parameters.values()
    stated = {parameter.name: str(parameter.annotation) for parameter in parameters}
    plain = {name: type_ for name, type_ in stated.items() if _CHECKED_TYPES.keys() >= set(type_.split(" | "))}
    positional = [parameter.name for parameter in parameters if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in (*zip(positional, args, strict=False), *kwargs.items()):
            if name in plain:
                _check_type(name, value, plain[name])
        return function(*args, **kwargs)

    return call


def _check_type(name: str, value: Any, stated: str) -> None:
    names = stated.split(" | ")
    kinds = tuple(_CHECKED_TYPES[type_name] for type_name in names)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise BadSetting(f"`{name}` is a {type(value).__name__}; expected {' or '.join(names)}.")


def to_columns(text: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the names of columns: none, one or several."""
    if text is None or isinstance(text, str):
        return () if text is None else (text,)
    names = list(text) if isinstance(text, Iterable) and not isinstance(text, Mapping) else [None]
    if not all(isinstance(name, str) for name in names):
        raise BadSetting(f"`text` is a {type(text).__name__}; expected the name of a column, or a list of names.")
    return tuple(map(str, names))


def to_path(value: Any, name: str) -> Path:
    """Return a path, and refuse what is none."""
    if isinstance(value, str | PathLike) and not isinstance(value, bytes) and str(value):
        if "\0" in str(value):
            raise BadInput(f"`{name}` holds a NUL character, which no path can have.")
        return Path(value)
    raise BadInput(f"`{name}` is a {type(value).__name__}; expected a path, such as 'work/ner'.")


def to_paths(value: Paths | None, name: str) -> tuple[Path, ...]:
    """Return the paths of an argument that takes one or several; none for None."""
    return tuple(map(Path, to_inputs(value, name)))


def to_lexicons(value: Any) -> dict[str, Path]:
    """Return the file of each lexicon by its label."""
    return {label: to_path(path, "lexicons") for label, path in _check_labels(value).items()}


def to_lexicon_options(value: Any) -> list[str]:
    """Return lexicons, of which each may have several files, as commands take them: LABEL=FILE."""
    return [f"{label}={path}" for label, files in _check_labels(value).items() for path in to_paths(files, "lexicons")]


def _check_labels(value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise BadInput(f"`lexicons` is a {type(value).__name__}; expected a dict such as {{'gene': 'hgnc.tsv'}}.")
    return {str(label): files for label, files in (value or {}).items()}


def to_local_files(value: Paths | None, name: str) -> tuple[Path, ...]:
    """Return paths of what is read: an object in a store (s3://, gs://) and standard input (`-`) are copied here."""
    from alembert.corpus.fetch import fetch_to_temporary_folder

    return tuple(fetch_to_temporary_folder(to_inputs(value, name)))


def files_by_task(
    names: Sequence[str], value: Paths | Mapping[str, Paths] | None, argument: str
) -> dict[str, tuple[Path, ...]]:
    """Return the files of each task; those of several tasks are given in a dict, by their names."""
    expected = ", ".join(map(str, names))
    if not isinstance(value, Mapping):
        if value is not None and len(names) > 1:
            raise BadSetting(
                f"`{argument}` gives files for {len(names)} tasks; expected a dict with the names {expected}."
            )
        return {name: to_local_files(value, argument) for name in names}
    if strange := [name for name in value if name not in names]:
        raise BadSetting(f"`{argument}` has files for {strange[0]!r}, which is no task; the tasks are {expected}.")
    return {name: to_local_files(value.get(name), argument) for name in names}


def to_inputs(value: Paths | None, name: str) -> tuple[str | Path, ...]:
    """Return what an argument names: text as it is, since it may be an address, else paths; none for None."""
    if value is None:
        return ()
    if isinstance(value, str | PathLike):
        value = [value]
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise BadInput(f"`{name}` is a {type(value).__name__}; expected a path, or a list of paths.")
    paths = tuple(item if isinstance(item, str) and item else to_path(item, name) for item in value)
    if not paths:
        raise BadInput(f"`{name}` is an empty list; expected at least one path.")
    return paths


def model_name(value: Any, name: str = "model") -> str:
    """Return the name of a model: a folder, or hub:organisation/name."""
    path = to_path(value, name)
    return value if isinstance(value, str) else str(path)


def settings_table(settings: SettingsLike | None, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return settings as a table of plain values, whichever way they were given; `path` is where old names look for it."""
    if settings is None:
        return {}
    if isinstance(settings, Mapping):
        return rename_old_keys(settings, "`settings`", path)
    if is_dataclass(settings) and not isinstance(settings, type):
        return as_table(settings)
    if isinstance(settings, str | PathLike):
        return rename_old_keys(read_toml(Path(settings)), str(settings), path)
    raise BadSetting(
        f"`settings` is a {type(settings).__name__}; expected a dict, the path of a TOML file, or a settings dataclass."
    )


def progress_bar(shown: bool) -> ProgressBar:
    """Make a progress line on stderr: on a terminal or in a notebook, if it is wanted."""
    return ProgressBar(sys.stderr, shown=shown and None)


def run_context(bar: ProgressBar, *, progress: bool, device: str, overwrite: bool) -> RunContext:
    """Set where a training run computes, and where it reports to."""
    from alembert.hardware.torch_settings import resolve_device
    from alembert.train.run import RunContext

    context = RunContext(
        device=resolve_device(device),
        overwrite=overwrite,
        log=note,
        print_table=say_all,
        on_progress=bar.show_training,
        on_reading=bar.show,
    )
    return context if progress else context.silent()


_FORMAT_BY_SUFFIX: Final = {
    ".jsonl": "jsonl",
    ".json": "bioc-json",
    ".xml": "bioc-xml",
    ".pubtator": "pubtator",
    ".parquet": "parquet",
    ".conll": "conll",
    "": "brat",
}
"""What a file is written as if no format is named; a path without an ending is a folder, as brat has it."""


_FORMAT_ALIASES: Final = {"bioc": "bioc-xml"}
"""What `annotate` calls a format -> what the writers call it."""


@check_arguments
def read(inputs: Paths, *, format: str | None = None, **options: Any) -> Iterator[Document]:  # noqa: A002
    """Read documents from files, folders or patterns (`notes/*.jsonl`) of any known format, as a stream.

    An input may lie in an object store (`s3://`, `gs://`), and `-` is standard input; both are copied here first. The
    format of each file is recognised unless it is named. `options` say how files are read: `text`, `id`, `title` and
    `label` name columns or fields; `encoding`, `delimiter` and `header` are for tables (docs/formats.md lists all
    options). Items that could not be read, and guesses such as an encoding, are counted in a warning at the end.
    """
    from alembert.corpus.inputs import list_input_files
    from alembert.corpus.readers import FORMATS, ReadOptions
    from alembert.infer.stream import open_input_stream
    from alembert.settings import apply_changes

    if format is not None and format not in FORMATS:
        raise BadSetting(f"`format` is {format!r}, which no reader has. Use one of {', '.join(FORMATS)}.")
    files = list_input_files(to_local_files(inputs, "inputs"), format=format)
    for sentence in files.notes():
        warnings.warn(sentence, stacklevel=3)
    return _documents(open_input_stream(files, apply_changes(ReadOptions(), options, "`read`"), format))


def _documents(supply: InputStream) -> Iterator[Document]:
    from alembert.corpus.readers import Remark, SetAside
    from alembert.infer.stream import StreamPosition

    aside: list[SetAside] = []
    remarks: Counter[str] = Counter()
    for entry in supply.read_from(StreamPosition()):
        if isinstance(entry.item, Document):
            yield entry.item
        elif isinstance(entry.item, SetAside):
            aside.append(entry.item)
        elif isinstance(entry.item, Remark):
            remarks[entry.item.reason] += entry.item.count
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


@check_arguments
def write(documents: Iterable[Document], path: StrPath, *, format: str | None = None) -> Path:  # noqa: A002
    """Write documents, with what models found in them, to a file or folder.

    The format follows from the ending (.jsonl, .jsonl.gz, .json for BioC, .xml for BioC, .pubtator, .parquet, .conll;
    none for a brat folder), or is one of jsonl, bioc-json, bioc-xml, pubtator, parquet, conll, brat and label-studio.
    The file appears when it is complete. What a format cannot hold is counted in a warning.
    """
    from alembert.corpus.writers import write as write_format

    target = to_path(path, "path")
    chosen = _guess_format(target) if format is None else _FORMAT_ALIASES.get(format, format)
    if isinstance(documents, str | bytes | Mapping | Document) or not isinstance(documents, Iterable):
        raise BadInput(f"`documents` is a {type(documents).__name__}; expected an iterable of Documents.")
    if chosen == "brat" and target.exists():
        raise BadFile(f"{target} is there already, and brat has a folder of files. Name a new folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}")  # with the same ending, by which writers tell compression
    failed: list[str] = []
    try:
        losses = Counter(write_format(_check_documents(documents, failed), hidden, chosen))
    except BaseException:
        _remove(hidden)
        raise
    hidden.replace(target)
    if failed:
        losses["documents that could not be annotated"] = len(failed)
    if losses:
        warnings.warn(
            f"{target}: {'; '.join(f'{reason}: {count:,}' for reason, count in losses.items())}", stacklevel=3
        )
    return target


@check_arguments
def label_corpus(
    inputs: Paths,
    *,
    out: StrPath,
    lexicons: Mapping[str, Paths],
    exclude: Paths | None = None,
    sentences: int | None = None,
    seed: int | None = None,
    settings: SettingsLike | None = None,
    progress: bool = True,
) -> LabelResult:
    """Label sentences of plain text with dictionaries, for a tagger to warm up with (`alembert.finetune(..., warm_up=...)`).

    `inputs` is a Corpus folder, or files with text; `out` a file of JSON lines. `lexicons` has the files of terms of
    each label, such as `{"Disease": "diseases.tsv"}`. Sentences of the files in `exclude`, such as test files, are left
    out. `sentences` draws at most so many, most of them with a match. Where the dictionaries are unsure, the file says
    so.
    """
    from alembert.corpus.label import LabelSettings
    from alembert.corpus.label import label_corpus as run
    from alembert.settings import apply_changes, drop_none

    if not isinstance(lexicons, Mapping):
        raise BadInput(f"`lexicons` is a {type(lexicons).__name__}; expected a dict of labels and files.")
    chosen = apply_changes(LabelSettings(), settings_table(settings), "`settings`")
    changes = drop_none(sentences=sentences, seed=seed)
    with progress_bar(progress) as bar:
        return run(
            to_local_files(inputs, "inputs"),
            to_path(out, "out"),
            lexicons=[(label, path) for label, files in lexicons.items() for path in to_paths(files, "lexicons")],
            exclude=to_local_files(exclude, "exclude"),
            settings=apply_changes(chosen, changes, "The arguments"),
            on_progress=bar.show,
        )


def _guess_format(path: Path) -> str:
    ending = path.with_suffix("").suffix if path.suffix in (".gz", ".zst") else path.suffix
    if ending not in _FORMAT_BY_SUFFIX:
        endings = ", ".join(suffix for suffix in _FORMAT_BY_SUFFIX if suffix)
        raise BadSetting(f"The format of {path} cannot be inferred from {ending!r}; expected {endings}, or `format=`.")
    return _FORMAT_BY_SUFFIX[ending]


def _check_documents(documents: Iterable[Any], failed: list[str]) -> Iterator[Document]:
    """Pass documents on; `failed` gets the ids of those that a stream could not annotate."""
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, Document):
            raise BadInput(f"Item {number} is a {type(document).__name__}; expected a Document.")
        if isinstance(document, AnnotatedDocument) and document.problem:
            failed.append(document.id)
        yield document


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
