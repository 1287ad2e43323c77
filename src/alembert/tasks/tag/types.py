"""Which types of entities a file annotates: as the user says, or, for training files, as far as it can be told.

A word of `ReadOptions.types` is `TYPE,TYPE` for all files or `FILE=TYPE,TYPE` for a file or all files of a folder.
What is said holds wherever files are read. What is told from files holds for training alone: scores never depend on
which types a file happens to contain. A file that was named is one source, and so is a folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from alembert.corpus.jobs import make_source_names
from alembert.corpus.readers.contract import ReadOptions, Remark
from alembert.errors import BadFile, BadSetting
from alembert.tasks.example import ReadResult, collect
from alembert.tasks.tag.data import TagExample, read_file

MIN_DOCUMENTS: Final = 100
"""Documents that each training source must have before types are told from any."""
MIN_EXPECTED_DOCUMENTS: Final = 10
"""Documents of a source that would have a type, by its frequency in other sources, if its absence is to mean something."""


@dataclass(frozen=True)
class AnnotatedTypes:
    """What a user says about files."""

    place: Path | None
    """A file, or a folder of files; none: all files."""
    types: frozenset[str]

    def covers(self, file: Path) -> bool:
        """Whether it is said about a file."""
        if self.place is None:
            return True
        place, whole = self.place.resolve(), file.resolve()
        return place == whole or place in whole.parents


def parse_types(words: Sequence[str]) -> list[AnnotatedTypes]:
    """Read what is said about files; what is said about one place in several words counts together.

    >>> [(str(each.place), sorted(each.types)) for each in parse_types(["a.tsv=Disease,Gene", "Disease"])]
    [('a.tsv', ['Disease', 'Gene']), ('None', ['Disease'])]
    """
    types_of: dict[Path | None, frozenset[str]] = {}
    for word in words:
        place, _, names = word.rpartition("=")
        types = frozenset(filter(None, map(str.strip, names.split(","))))
        if not types or (not place and "=" in word):
            raise BadSetting(
                f"`types` has {word!r}; expected types with commas between them, or a file and its types, as in "
                "train.tsv=Disease,Gene."
            )
        where = Path(place) if place else None
        types_of[where] = types_of.get(where, frozenset()) | types
    return [AnnotatedTypes(place, types) for place, types in types_of.items()]


def check_declared_types(words: Sequence[str], files: Sequence[Path], known: Sequence[str]) -> None:
    """Refuse what is said about no file, and types that the task does not know."""
    for declared in parse_types(words):
        if not any(map(declared.covers, files)):
            raise BadSetting(
                f"`types` names {declared.place}, which is none of the files that are read, nor a folder above one: "
                f"{', '.join(map(str, files))}. Name a file as it is given."
            )
        if strange := sorted(declared.types - {*known}):
            raise BadSetting(
                f"`types` names {', '.join(strange)}, which the task does not know; it knows {', '.join(known)}."
            )


def select_types_for_files(words: Sequence[str], files: Sequence[Path]) -> tuple[str, ...]:
    """Choose what is said about some of these files."""
    return tuple(
        word for word in words if any(declared.covers(file) for declared in parse_types([word]) for file in files)
    )


def apply_declared_types(reading: ReadResult[TagExample], words: Sequence[str]) -> ReadResult[TagExample]:
    """Keep the entities of the types that are said to be annotated, and count the others."""
    declared = parse_types(words)
    if not declared:
        return reading
    types = {
        source: _declared_types(Path(source), declared) for source in {example.source for example in reading.examples}
    }
    examples = tuple(_keep_types(example, types[example.source]) for example in reading.examples)
    remarks = _remarks(reading.examples, types)
    return replace(reading, examples=examples, remarks=(*reading.remarks, *remarks))


def _declared_types(file: Path, declared: Sequence[AnnotatedTypes]) -> frozenset[str] | None:
    """Choose what is said about a file; the nearest folder counts."""
    about = [one for one in declared if one.covers(file)]
    nearest = max(about, key=lambda one: len(one.place.resolve().parts) if one.place else 0, default=None)
    return nearest.types if nearest else None


def _keep_types(example: TagExample, types: frozenset[str] | None) -> TagExample:
    if types is None:
        return example
    return replace(
        example,
        entities=tuple(span for span in example.entities or () if span[2] in types),
        discontinuous=tuple(span for span in example.discontinuous if span[2] in types),
        types=types if example.types is None else types & example.types,
    )


def _remarks(examples: Sequence[TagExample], types: Mapping[str, frozenset[str] | None]) -> Iterator[Remark]:
    lost: dict[str, Counter[str]] = {}
    for example in examples:
        if (own := types[example.source]) is not None:
            lost.setdefault(example.source, Counter()).update(t for t in example.labels if t not in own)
    for source, counts in lost.items():
        named = ", ".join(sorted(types[source] or ()))
        yield Remark(source, f"annotates {named} alone, as was said; other types are unknown there", 1)
        if counts:
            others = ", ".join(sorted(counts))
            yield Remark(source, f"entities of other types than {named} were left out: {others}", counts.total())


# -- files that a tagger is warmed up with


def read_warm_up(
    files: Sequence[Path], options: ReadOptions, min_score: float, known: Sequence[str]
) -> ReadResult[TagExample]:
    """Read files with silver labels of types that the task knows; those below `min_score` are unknown."""
    reading = apply_declared_types(collect(files, lambda path: read_file(path, options, min_score)), options.types)
    _check_warm_up_types(reading.examples, known)
    return replace(reading, examples=tuple(_narrow_types(reading.examples)))


def _check_warm_up_types(examples: Sequence[TagExample], known: Sequence[str]) -> None:
    """Refuse entities of types that the training files do not have."""
    for example in examples:
        if strange := sorted({*example.labels} - {*known}):
            raise BadFile(
                f"The warm-up files have entities of the type {strange[0]!r} ({example.where}), which the training files do "
                f"not have; they have {', '.join(known)}. Write the warm-up file again with one of these as its label, such "
                f"as `alembert corpus label --lexicon {known[0]}=FILE`."
            )


def _narrow_types(examples: Sequence[TagExample]) -> Iterator[TagExample]:
    """Take the types that a file has for those that it annotates, unless its documents say which they are."""
    types_of: dict[str, set[str]] = {}
    for example in examples:
        types_of.setdefault(example.source, set()).update(example.labels)
    for example in examples:
        yield replace(example, types=frozenset(types_of[example.source])) if example.types is None else example


# -- training files about which nothing was said


@dataclass(frozen=True)
class _Source:
    """What one training source has."""

    name: str
    documents: int
    with_type: Counter[str]
    """Documents that have a type."""
    is_open: bool
    """Whether nothing was said about it."""

    @classmethod
    def of(cls, name: str, examples: Sequence[TagExample]) -> _Source:
        counts = Counter(label for each in examples for label in {*each.labels})
        return cls(name, len(examples), counts, all(each.types is None for each in examples))


def infer_types(examples: Sequence[TagExample], named: Sequence[Path] = ()) -> tuple[list[TagExample], list[str]]:
    """Detect in training examples which types their sources do not annotate, and describe it in sentences.

    A source is a file or folder as it was `named`, or the file of the example where none is. A source with many
    documents that never has a type which is frequent in others is taken not to annotate it. Where any source is small,
    or has no entity at all, nothing is told: all types count as annotated.
    """
    source_of = _sources_by_file({example.source for example in examples}, named)
    by_source: dict[str, list[TagExample]] = {}
    for example in examples:
        by_source.setdefault(source_of[example.source], []).append(example)
    sources = [_Source.of(name, members) for name, members in by_source.items()]
    types = frozenset().union(*(source.with_type for source in sources))
    if any(source.documents < MIN_DOCUMENTS for source in sources):
        return list(examples), list(_differing_types_note(sources, types))
    missing = {source.name: _missing_types(source, sources) for source in sources}
    return [
        replace(example, types=types - lacking) if (lacking := missing[source_of[example.source]]) else example
        for example in examples
    ], list(_describe_inferred_types(sources, types, missing))


def _sources_by_file(files: Collection[str], named: Sequence[Path]) -> dict[str, str]:
    """Find for each file what was named: itself, or the nearest folder above it."""
    name_of = {path.resolve(): str(path) for path in named}
    paths = {file: Path(file).resolve() for file in files}
    return {
        file: next((name_of[above] for above in (path, *path.parents) if above in name_of), file)
        for file, path in paths.items()
    }


def _missing_types(source: _Source, sources: Sequence[_Source]) -> frozenset[str]:
    """Name the types that a source has so rarely, compared with others, that it cannot be chance: never."""
    if not (source.is_open and source.with_type):
        return frozenset()
    return frozenset(
        label
        for label, (having, documents) in _frequencies(sources).items()
        if label not in source.with_type and source.documents * having >= MIN_EXPECTED_DOCUMENTS * documents
    )


def _frequencies(sources: Sequence[_Source]) -> dict[str, tuple[int, int]]:
    """Count for each type the documents that have it, and all documents of the sources in which it occurs."""
    frequencies: dict[str, tuple[int, int]] = {}
    for source in sources:
        for label, count in source.with_type.items():
            having, documents = frequencies.get(label, (0, 0))
            frequencies[label] = having + count, documents + source.documents
    return frequencies


def _describe_inferred_types(
    sources: Sequence[_Source], types: frozenset[str], missing: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    """Describe what each source is taken to annotate, if it is not everything; one sentence, since a screen has few lines."""
    short = make_source_names([Path(source.name) for source in sources])
    annotated = [
        f"{name} annotates {', '.join(sorted(types - missing[source.name]))}"
        for name, source in zip(short, sources, strict=True)
        if missing[source.name]
    ]
    if annotated:
        yield (
            f"taken from the types that they have: {'; '.join(annotated)}; other types count as unknown there in training, and "
            "not on development data (--set read.types says it for both)"
        )


def _differing_types_note(sources: Sequence[_Source], types: frozenset[str]) -> Iterator[str]:
    if any(source.is_open and types - source.with_type.keys() for source in sources):
        yield (
            "the training files do not have the same types, and all types count as annotated in each of them; if a file "
            "does not annotate some, say which it does: --set read.types=FILE=TYPE,TYPE"
        )
