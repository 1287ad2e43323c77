"""brat standoff: a text file and an annotation file of the same name, or a folder of such pairs.

Read are text-bound annotations (T, discontinuous ones with ``0 5;10 15``), relations (R), equivalences (*), events (E,
as relations whose first argument has the role "Trigger"), attributes (A, M), normalisations (N, as concepts) and notes
(#, as attributes). Offsets count characters of the text file as it is, carriage returns included. A text file without
annotations is a document without entities; annotations without a text file are set aside, and so are all other files of
the folder (except for brat's own settings and hidden files). A malformed line is set aside alone. The id is the name of
the file, in which ``%2F`` stands for a character that file names cannot hold, and ``%~2`` at the end marks a second
document of the same id. Events may name events; triggers keep their own entity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from alembert.artifact import is_artifact
from alembert.corpus.document import Document, Entity, Relation
from alembert.corpus.readers.contract import DamagedFile, Item, ReadOptions, SetAside
from alembert.corpus.readers.mentions import locate_mention, make_ids_unique, partition_relations, unlinked_reason
from alembert.corpus.readers.source import COMPRESSED_SUFFIXES, SourceFile, SourceLine, strip_compression_suffix

NO_DATABASE = "id:"
TRIGGER = "Trigger"
NOT_BRAT_REASON = "a folder without .ann files; name its files instead"
BRAT_CONFIG_FILES = {"annotation.conf", "visual.conf", "tools.conf", "kb_shortcuts.conf"}
_TEXT_BOUND = re.compile(r"(?P<label>.+?) (?P<spans>\d+ \d+(?:;\d+ \d+)*)")
_REPEATED = re.compile(r"%~\d+$")


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read a pair of files, named by either of them, or all pairs of a folder."""
    if source.path is None:
        yield source.set_aside("brat needs a folder or a pair of files, not a stream", kind="file")
    elif source.path.is_dir():
        yield from _folder(source.path, source, options)
    else:
        yield from _pair(source.path.with_name(get_stem(source.path)), source, options)


def _folder(folder: Path, source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DamagedFile(f"the folder cannot be read: {error.strerror}") from None
    stems = list_stems(folder)
    if not stems:
        raise DamagedFile(NOT_BRAT_REASON)
    for stem in stems:
        yield from _pair(folder / stem, source, options)
    for name in names:
        if not _is_pair_file(name) and name not in BRAT_CONFIG_FILES and not is_artifact(folder / name):
            yield SetAside(str(folder / name), "file", None, "this is neither .txt nor .ann", "file")


def list_stems(folder: Path) -> list[str]:
    """List the pairs of a folder by their file names without suffixes."""
    names = (path.name for path in folder.iterdir() if not path.name.startswith("."))
    return sorted({get_stem(folder / name) for name in names if _is_pair_file(name)})


def get_document_id(stem: str) -> str:
    """Return the id of the document whose files have this name.

    >>> get_document_id("a%2Fletter%~2")
    'a/letter'
    """
    return unquote(_REPEATED.sub("", stem))


def find_pair_files(path: Path) -> tuple[Path, ...]:
    """Return the text and annotation files of a file's pair; a text without annotations is alone."""
    annotations = _find(path.with_name(get_stem(path)), ".ann") if is_text_or_annotations(path) else None
    if annotations is None:
        return (path,)
    text = _find(path.with_name(get_stem(path)), ".txt")
    return (text, annotations) if text else (annotations,)


def is_text_or_annotations(path: Path) -> bool:
    return _is_pair_file(path.name)


def has_annotations(folder: Path) -> bool:
    return any(strip_compression_suffix(path.name).endswith(".ann") for path in folder.iterdir())


def has_partner(path: Path) -> bool:
    """Whether a text file has an annotation file beside it."""
    return _find(path.with_name(get_stem(path)), ".ann") is not None


def get_stem(path: Path) -> str:
    return re.sub(r"\.(txt|ann)$", "", strip_compression_suffix(path.name))


def _is_pair_file(name: str) -> bool:
    return strip_compression_suffix(name).endswith((".txt", ".ann"))


def _find(base: Path, ending: str) -> Path | None:
    candidates = [base.with_name(base.name + ending + packed) for packed in ("", *COMPRESSED_SUFFIXES)]
    return next((path for path in candidates if path.is_file()), None)


def _pair(base: Path, folder: SourceFile, options: ReadOptions) -> Iterator[Item]:
    text_path, ann_path = _find(base, ".txt"), _find(base, ".ann")
    name = folder.ids.get(base.name) or get_document_id(base.name)
    if text_path is None:
        yield SetAside(f"{base}.ann", "file", name, "there is no text file beside the annotations", "file")
        return
    text_source = SourceFile(text_path, options)
    ann_source = SourceFile(ann_path, options) if ann_path else None
    try:
        text = text_source.text() if text_source.head(1) else ""
        if not text.strip():
            yield text_source.set_aside("the text file is empty", name, kind="file")
            return
        yield from _annotated(name, text, ann_source)
    except DamagedFile as damage:
        bad = ann_source if ann_source and ann_source.position != "file" else text_source
        yield bad.set_aside(str(damage), name, kind="file")
    finally:
        for source in filter(None, (text_source, ann_source)):
            folder.tally += source.tally
            source.close()


def _annotated(name: str, text: str, source: SourceFile | None) -> Iterator[Item]:
    if source is None or not source.head(1):
        yield Document(name, text)
        return
    parsed = _Annotations(name, text, source)
    for line in source.lines():
        bad = replace(line, id=name, kind="annotation") if isinstance(line, SetAside) else parsed.add(line)
        if bad is not None:
            yield bad
    yield from (source.set_aside(reason, name, kind="annotation") for reason in parsed.finish())
    yield Document(
        name,
        text,
        entities=tuple(parsed.entities),
        relations=tuple(parsed.relations),
        unlinked_relations=tuple(parsed.unlinked),
    )


class _Annotations:
    """Collects the lines of an annotation file; attributes and concepts are assigned to their owners at the end."""

    def __init__(self, name: str, text: str, source: SourceFile) -> None:
        self.name, self.text, self.source = name, text, source
        self.entities: list[Entity] = []
        self.relations: list[Relation] = []
        self.unlinked: list[Relation] = []
        self.attributes: dict[str, list[tuple[str, str]]] = {}
        self.concepts: dict[str, list[str]] = {}

    def add(self, line: SourceLine) -> SetAside | None:
        """Add one line, or return why it is set aside."""
        key, _, content = line.text.partition("\t")
        if not key.strip():
            return None
        readers = {"T": self._mention, "R": self._relation, "*": self._relation, "E": self._relation}
        readers |= {"A": self._attribute, "M": self._attribute, "N": self._concept, "#": self._note}
        try:
            readers[key[0]](key, content)
        except (KeyError, ValueError, IndexError):
            return self.source.set_aside(
                "the line is not a brat annotation that fits the text", self.name, kind="annotation"
            )
        return None

    def finish(self) -> list[str]:
        """Assign attributes and concepts to their owners; return a reason for each that has none."""
        self.entities = [
            replace(
                entity,
                concepts=tuple(self.concepts.pop(entity.id, ())),
                attributes=tuple(self.attributes.pop(entity.id, ())),
            )
            for entity in make_ids_unique(self.entities, self.source)
        ]
        relations, self.unlinked = partition_relations(self.relations, self.entities)
        self.relations = [
            replace(relation, attributes=tuple(self.attributes.pop(relation.id, ()))) for relation in relations
        ]
        missing = sorted({*self.attributes, *self.concepts})
        return [unlinked_reason(relation) for relation in self.unlinked] + [
            f"an attribute, note or concept is for {target}, which does not exist" for target in missing
        ]

    def _mention(self, key: str, content: str) -> None:
        label_and_spans, _, surface = content.partition("\t")
        match = _TEXT_BOUND.fullmatch(label_and_spans.strip())
        if match is None:
            raise ValueError
        pairs = [part.split(" ") for part in match["spans"].split(";")]
        spans = tuple(sorted((int(start), int(end)) for start, end in pairs))
        located = locate_mention(self.source, self.text, spans, surface or None)
        if located is None:
            raise ValueError
        self.entities.append(Entity(key, match["label"], located))

    def _relation(self, key: str, content: str) -> None:
        label, *arguments = content.split()
        if key == "*":
            key = f"*{len(self.relations) + 1}"
            pairs = [(f"Arg{number}", target) for number, target in enumerate(arguments, start=1)]
        else:
            pairs = [(role, target) for role, _, target in (part.rpartition(":") for part in arguments)]
        if key.startswith("E"):
            label, _, trigger = label.rpartition(":")
            pairs.insert(0, (TRIGGER, trigger))
        self.relations.append(Relation(key, label, tuple(pairs)))

    def _attribute(self, key: str, content: str) -> None:
        name, target, *value = content.split(maxsplit=2)
        self.attributes.setdefault(target, []).append((name, value[0] if value else "true"))

    def _concept(self, key: str, content: str) -> None:
        _, target, concept = content.partition("\t")[0].split(" ", 2)
        self.concepts.setdefault(target, []).append(concept.strip().removeprefix(NO_DATABASE))

    def _note(self, key: str, content: str) -> None:
        head, _, note = content.partition("\t")
        kind, target = head.split()
        self.attributes.setdefault(target, []).append(("note" if kind == "AnnotatorNotes" else kind, note))
