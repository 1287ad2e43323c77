"""The inputs of a command: one Corpus folder, or raw files, each read once and under a unique name.

In: what a user named: a Corpus, files, folders and patterns (`corpus/*.tsv`). Out: the Corpus, checked for what
training needs, or a list of files, in the order given and by name inside a folder or pattern; `InputReader` reads one
and knows how far it has come. A file that was named twice, through a link, or beside its folder is one input, and so
are the two files of a brat pair; a folder of brat pairs and a Corpus stay whole. The result of the command itself and
unfinished work of other commands are never inputs, so that results may lie among the inputs.

Documents of many formats are named after their file. Where two files would give the same id, both use their path below
the folder that all inputs share (`a/letter`, `b/letter`), so ids depend on the set of files, not on their order. Ids
inside files are not checked here.
"""

from __future__ import annotations

import glob
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from alembert import artifact
from alembert.corpus.object_store import SCHEMES
from alembert.corpus.readers import Item, ReadOptions, brat, detect_file_format, read
from alembert.corpus.readers.contract import Remark
from alembert.corpus.readers.source import readable_name, strip_compression_suffix
from alembert.corpus.store import Corpus
from alembert.errors import BadFile, BadSetting, require


def expand_inputs(inputs: Sequence[str | Path]) -> list[Path]:
    """Replace patterns by what they match; raise if there is no input, or one does not exist."""
    if not inputs:
        raise BadSetting("No input was given. Name a Corpus folder, or files with text.")
    paths = expand_patterns([Path(path) for path in inputs])
    check_paths_exist(paths)
    return paths


def expand_patterns(paths: Sequence[Path]) -> list[Path]:
    """Replace patterns (`corpus/*.tsv`, `**` for folders of any depth) by what they match, sorted by name.

    A path that exists is no pattern, whatever characters its name has.
    """
    return [match for path in paths for match in ([path] if _is_no_pattern(path) else _matches(path))]


def _is_no_pattern(path: Path) -> bool:
    return not glob.has_magic(str(path)) or path.exists()


def _matches(pattern: Path) -> list[Path]:
    matches = {Path(match) for match in glob.iglob(str(pattern), recursive=True)}  # noqa: PTH207 (Path.glob takes hidden files)
    if not matches:
        raise BadFile(f"No file matches {pattern}. Check the pattern, in which ** stands for folders of any depth.")
    # A folder that matches is read with all its files.
    return sorted(path for path in matches if matches.isdisjoint(path.parents))


def check_paths_exist(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.exists():
            continue
        if path.parts and path.parts[0].removesuffix(":") in SCHEMES:
            raise BadFile(
                f"The input {path} is not here: this command takes no objects in a store, or was not given their address "
                "as text. Build a Corpus of them first (alembert corpus build), or copy them here."
            )
        raise BadFile(f"The input {path} does not exist. Check the path.")


def open_input_corpus(inputs: Sequence[Path]) -> Corpus | None:
    """Open the Corpus among the inputs; None if they are raw files."""
    folders = [path for path in inputs if (path / artifact.MANIFEST).is_file()]
    if folders and len(inputs) > 1:
        raise BadSetting(
            f"{folders[0]} is a folder of alembert's own, and {len(inputs)} inputs were given. Give one Corpus, or raw "
            "files alone; `alembert corpus build` makes one Corpus of many files."
        )
    return Corpus.open(folders[0]) if folders else None


def count_entities(corpus: Corpus) -> int:
    """Count the entities of the input and of the lexicons."""
    counts = corpus.counts
    return counts.get("gold entities", 0) + sum(
        count for name, count in counts.items() if name.startswith("entities: ")
    )


def check_objective_data(
    corpus: Path, *, documents: int, entities: int, next_sentence: bool, wants_entities: bool
) -> None:
    """Raise for objectives that a corpus with so few documents or entities cannot serve."""
    if documents < 1:
        raise BadFile(f"The corpus {corpus} has no documents. Build it from files with text.")
    if next_sentence and documents < 3:
        raise BadSetting(
            f"next_sentence is on, and the corpus has {documents} document(s): a random second sentence would "
            "come from the same document and its label would be wrong. Give more documents, or set next_sentence to 0 "
            "(sentence_order works with any)."
        )
    if wants_entities and not entities:
        raise BadSetting(
            f"Entity masks or an objective about entities is on, and the corpus {corpus} has no entities. Build it with "
            "a dictionary (alembert corpus build --lexicon LABEL=FILE), or use --set masks.unit=word and set boundaries, "
            "entity_types and entity_swap to 0."
        )


_PYARROW_SUFFIXES: Final = {".parquet", ".zst"}
"""Endings of files that cannot be read without pyarrow."""


@dataclass(frozen=True)
class InputFile:
    """One input: a file, both files of a brat pair, or a folder that is read as a whole."""

    path: Path
    name: str = ""
    """The path below the folder that all inputs share."""
    more: tuple[Path, ...] = ()
    """Files that are read with it: the annotations of a brat pair."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Ids by the name of a file, for names that another input has too."""


@dataclass(frozen=True)
class InputFiles:
    """All inputs of a command, and counts of what was left out."""

    files: tuple[InputFile, ...]
    repeated: int = 0
    """Files that were left out because they were listed before, by themselves or with their pair or folder."""
    empty: int = 0
    """Folders without a file."""
    unfinished: int = 0
    """Folders with unfinished work of other commands."""

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self.files]

    @property
    def contents(self) -> list[Path]:
        """All files that are read."""
        return [path for file in self.files for path in (file.path, *file.more)]

    def left_out(self) -> Iterator[str]:
        """Yield a sentence for each kind of input that is not read."""
        if self.repeated:
            yield (
                f"files that were named twice, or are the other file of a brat pair: {self.repeated:,}; each document is "
                "read once"
            )
        if self.empty:
            yield f"empty folders among the inputs: {self.empty:,}"
        if self.unfinished:
            yield f"folders with unfinished work of alembert, which are no inputs: {self.unfinished:,}"

    def remarks(self, named: Sequence[Path]) -> tuple[Remark, ...]:
        """Return what was left out as remarks on the inputs that a user named."""
        source = ", ".join(map(str, named))
        return tuple(Remark(source, sentence, 1) for sentence in self.left_out())

    def notes(self) -> Iterator[str]:
        """Yield sentences about what was left out, and about ids that differ from the names of files."""
        yield from self.left_out()
        if renamed := [name for file in self.files for name in file.ids.values()]:
            yield (
                f"files that share their name with another one: {len(renamed):,}; documents that are named by their file "
                f"have its path as their id, such as {min(renamed)}"
            )


def list_input_files(
    inputs: Sequence[Path],
    *,
    out: str | Path | None = None,
    get_display_name: Callable[[Path], str] = str,
    format: str | None = None,  # noqa: A002
) -> InputFiles:
    """List the inputs of a command whose result goes to `out`; `get_display_name` names copies of objects."""
    expanded = expand_inputs(inputs)
    walk = _FolderWalk(out)
    try:
        paths = [file for path in expanded for file in walk.files(path)]
    except OSError as error:
        raise BadFile(
            f"The folder {error.filename} cannot be read: {error.strerror}. Check its permissions, or leave it out."
        ) from None
    if not paths:
        raise BadFile(
            f"There is no file to read: {expanded[0]} is empty. Name a folder with files, or the files themselves."
        )
    if packed := {path.suffix for path in paths} & _PYARROW_SUFFIXES:
        require(f"Reading {min(packed)} files", "pyarrow")
    files = list(_deduplicate(paths, has_pairs=format in (None, "brat")))
    parts = [_parts(file.path, get_display_name) for file in files]
    shared = _count_shared_folders(
        [_parts(path if path.is_dir() else path.parent, get_display_name) for path in expanded]
    )
    named = [
        replace(file, name=readable_name("/".join(file_parts[shared:]) or file_parts[-1]))
        for file, file_parts in zip(files, parts, strict=True)
    ]
    return InputFiles(_assign_ids(named), len(paths) - len(files), walk.empty, walk.unfinished)


class _FolderWalk:
    """Lists the files of folders, and counts folders without anything to read."""

    def __init__(self, out: str | Path | None) -> None:
        self.empty = self.unfinished = 0
        location = None if out is None else artifact.locate_artifact(out)
        self._own = {location.target, location.partial} if location else set()

    def files(self, path: Path) -> Iterator[Path]:
        """Yield the files of a folder; what a reader reads as a whole is one path."""
        if self._is_own(path) or _is_setting_of_brat(path):
            return
        if not path.is_dir() or (path / artifact.MANIFEST).is_file():
            yield path
        elif (path / artifact.DRAFT).is_file():
            self.unfinished += 1
        elif brat.has_annotations(path):
            yield path
        else:
            children = [child for child in sorted(path.iterdir()) if not _is_ignored(child)]
            self.empty += not children
            for child in children:
                # A link to a folder may lead back to where it stands: it is left to the readers, which set it aside.
                yield from [child] if child.is_symlink() else self.files(child)

    def _is_own(self, path: Path) -> bool:
        if not self._own:
            return False
        resolved = path.resolve()
        return not self._own.isdisjoint((resolved, *resolved.parents))


def _is_setting_of_brat(path: Path) -> bool:
    """Check for a settings file of a brat corpus, which patterns such as `corpus/*` match too."""
    return path.name in brat.BRAT_CONFIG_FILES and any(path.parent.glob("*.ann"))


def _is_ignored(path: Path) -> bool:
    return path.name.startswith(".") or path.name in brat.BRAT_CONFIG_FILES


def _deduplicate(paths: Sequence[Path], *, has_pairs: bool) -> Iterator[InputFile]:
    folders = {path.resolve() for path in paths if path.is_dir()}
    seen: set[Path] = set()
    for path in paths:
        first, *more = brat.find_pair_files(path) if has_pairs else (path,)
        resolved = first.resolve()
        in_folder = brat.is_text_or_annotations(path) and resolved.parent in folders
        if resolved not in seen and not in_folder:
            seen.add(resolved)
            yield InputFile(first, more=tuple(more))


def _parts(path: Path, get_display_name: Callable[[Path], str]) -> tuple[str, ...]:
    name = get_display_name(path)
    return Path(os.path.normpath(path.absolute())).parts if name == str(path) else tuple(name.split("/"))


def _count_shared_folders(names: Sequence[tuple[str, ...]]) -> int:
    """Count the folders that all names begin with."""
    first, last = min(names), max(names)
    return next((n for n, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))


_IdCandidates = tuple[int, str, tuple[str, str, str]]
"""The number of an input, the name of a document in it, and its possible ids, from short to unique."""


def _assign_ids(files: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Choose unique ids for documents that are named after their file."""
    names = [candidate for number, file in enumerate(files) for candidate in _list_id_candidates(number, file)]
    levels = [0] * len(names)
    while rising := _find_repeated([ids[level] for (_, _, ids), level in zip(names, levels, strict=True)], levels):
        for index in rising:
            levels[index] += 1
    changed: dict[int, dict[str, str]] = {}
    for (number, name, ids), level in zip(names, levels, strict=True):
        if ids[level] != ids[0]:
            changed.setdefault(number, {})[name] = ids[level]
    return tuple(replace(file, ids=changed.get(number, {})) for number, file in enumerate(files))


def _find_repeated(ids: Sequence[str], levels: Sequence[int]) -> list[int]:
    counts = Counter(ids)
    return [index for index, name in enumerate(ids) if counts[name] > 1 and levels[index] < 2]


def _list_id_candidates(number: int, file: InputFile) -> Iterator[_IdCandidates]:
    folder = file.name.rpartition("/")[0]
    if not file.path.is_dir():
        stem, default = _get_stem_and_id(file)
        yield number, stem, (default, f"{folder}/{default}" if folder else default, file.name)
    elif not (file.path / artifact.MANIFEST).is_file():
        for stem in brat.list_stems(file.path):
            default = brat.get_document_id(stem)
            yield number, stem, (default, f"{file.name}/{default}", f"{file.name}/{stem}.txt")


def _get_stem_and_id(file: InputFile) -> tuple[str, str]:
    if file.more or strip_compression_suffix(file.path.name).endswith(".ann"):
        stem = brat.get_stem(file.path)
        return stem, brat.get_document_id(stem)
    stem = readable_name(strip_compression_suffix(file.path.name).rsplit(".", 1)[0])
    return stem, stem


class InputReader:
    """Reads an input and knows the position; folders and Parquet files need their path, and have none."""

    def __init__(self, file: InputFile) -> None:
        self.path = file.path
        self._ids = file.ids
        self._file: io.BufferedReader | None = None

    def items(self, options: ReadOptions, format: str | None) -> Iterator[Item]:  # noqa: A002
        if format in ("brat", "parquet") or self.path.is_dir():
            return read(self.path, options, format, self._ids)
        try:
            self._file = self.path.open("rb")
        except OSError:
            return read(self.path, options, format, self._ids)  # which sets the file aside, with the reason
        return read(self._file, options, format, self._ids)

    def get_position(self) -> int:
        return self._file.tell() if self._file else 0

    def close(self) -> None:
        if self._file:
            self._file.close()


def try_detect_format(path: Path) -> str | None:
    """Detect the format of an input; None if the reader will report what is wrong with it."""
    try:
        return detect_file_format(path)
    except BadFile:
        return None


def count_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(count_bytes(child) for child in path.iterdir())
    return path.stat().st_size
