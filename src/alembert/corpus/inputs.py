"""What a user names as text: one Corpus folder, or raw files and folders; and whether it has what training asks for."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from alembert import artifact
from alembert.corpus.clean import CleanSettings
from alembert.corpus.objects import SCHEMES
from alembert.corpus.settings import BuildSettings
from alembert.corpus.store import Corpus
from alembert.errors import BadFile, BadSetting

# Raw files are taken as they are: what a user trains on directly is not judged.
PLAIN: Final = BuildSettings(
    clean=CleanSettings(
        headings=False,
        notices=False,
        min_characters=0,
        min_words=0,
        exact_duplicates=False,
        near_duplicates=False,
    )
)


def expand_inputs(inputs: Sequence[str | Path]) -> list[Path]:
    """Return inputs with what patterns match in their place; refuse those that are not there, and none at all."""
    if not inputs:
        raise BadSetting("No input was given. Name a Corpus folder, or files with text.")
    paths = expand_patterns([Path(each) for each in inputs])
    check_there(paths)
    return paths


def expand_patterns(paths: Sequence[Path]) -> list[Path]:
    """Put what a pattern matches (`corpus/*.tsv`, `**` for folders of any depth) in its place, in the order of names.

    A path at which something is stands for itself, whatever signs its name has.
    """
    return [match for path in paths for match in ([path] if _is_no_pattern(path) else _matches(path))]


def _is_no_pattern(path: Path) -> bool:
    return not glob.has_magic(str(path)) or path.exists()


def _matches(pattern: Path) -> list[Path]:
    found = {Path(each) for each in glob.iglob(str(pattern), recursive=True)}  # noqa: PTH207 (Path.glob takes hidden files)
    if not found:
        raise BadFile(f"No file matches {pattern}. Check the pattern, in which ** stands for folders of any depth.")
    # What lies in a folder that matches too is read with it.
    return sorted(path for path in found if found.isdisjoint(path.parents))


def check_there(paths: Sequence[Path]) -> None:
    """Refuse paths at which nothing is."""
    for path in paths:
        if path.exists():
            continue
        if path.parts and path.parts[0].removesuffix(":") in SCHEMES:
            raise BadFile(
                f"The input {path} is not here: this command takes no objects in a store, or was not given their address "
                "as text. Build a Corpus of them first (alembert corpus build), or copy them here."
            )
        raise BadFile(f"The input {path} does not exist. Check the path.")


def named_corpus(inputs: Sequence[Path]) -> Corpus | None:
    """Open the Corpus that was named; none, if the inputs are raw files."""
    folders = [path for path in inputs if (path / artifact.MANIFEST).is_file()]
    if folders and len(inputs) > 1:
        raise BadSetting(
            f"{folders[0]} is a folder of alembert's own, and {len(inputs)} inputs were given. Give one Corpus, or raw "
            "files alone; `alembert corpus build` makes one Corpus of many files."
        )
    return Corpus.open(folders[0]) if folders else None


def entities_in(corpus: Corpus) -> int:
    """Count the entities of a corpus: those of the input, and those that dictionaries found."""
    counts = corpus.counts
    return counts.get("gold entities", 0) + sum(
        count for name, count in counts.items() if name.startswith("entities: ")
    )


def check_supply(corpus: Path, *, documents: int, entities: int, next_sentence: bool, wants_entities: bool) -> None:
    """Refuse objectives that a corpus of so many documents and entities has nothing for."""
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
            f"Entity masks or boundaries are on, and the corpus {corpus} has no entities. Build it with a "
            "dictionary (alembert corpus build --lexicon LABEL=FILE), or use --unit word and boundaries = 0."
        )
