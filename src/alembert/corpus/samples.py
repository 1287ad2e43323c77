"""What the vocabulary verbs read: texts with the entities in them, from a Corpus or from plain files.

In: Corpus folders, or files of any format that the readers know, and lexicons. Out: `Samples`, which can be gone
through any number of times, in the same order. Entities are those of the input; where lexicons are given, theirs
replace entities of the same label. What the readers set aside is counted, and the first reason kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from alembert import artifact
from alembert.corpus.document import Document
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import SetAside, read
from alembert.corpus.store import KIND, Corpus
from alembert.errors import BadFile
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import Lexicon
from alembert.text.word_counts import TextSample

_BATCH = 64


@dataclass
class Samples:
    """The samples of one or more inputs."""

    paths: Sequence[Path]
    gazetteer: Gazetteer | None = None
    tell: Callable[[Progress], None] | None = None
    """Called now and then with how far the reading has come."""
    set_aside: int = field(default=0, init=False)
    """Records that could not be read, the last time that all were gone through."""
    first_reason: str = field(default="", init=False)
    """Why the first of them could not."""

    @classmethod
    def open(cls, paths: Iterable[str | Path], lexicons: Sequence[Lexicon] = ()) -> Samples:
        """Check that the inputs are there, before anything is read."""
        found = [Path(path) for path in paths]
        for path in found:
            _check(path)
        return cls(found, Gazetteer.of(lexicons) if lexicons else None)

    def __iter__(self) -> Iterator[TextSample]:
        self.set_aside = 0
        given = (sample for path in self.paths for sample in self._read(path))
        found = given if self.gazetteer is None else _matched(given, self.gazetteer)
        return found if self.tell is None else self._watched(found, self.tell)

    def _watched(self, samples: Iterator[TextSample], tell: Callable[[Progress], None]) -> Iterator[TextSample]:
        known = all(_is_corpus(path) for path in self.paths)
        total = sum(Corpus.open(path).counts["documents"] for path in self.paths) if known else 0
        characters = 0
        for done, sample in enumerate(samples):
            if done % _BATCH == 0:
                tell(Progress("reading", done, total, characters))
            characters += len(sample.text)
            yield sample

    def _read(self, path: Path) -> Iterator[TextSample]:
        if _is_corpus(path):
            yield from _from_corpus(path)
            return
        for item in read(path):
            if isinstance(item, Document):
                yield TextSample(item.text, tuple((e.label, e.surface(item.text)) for e in item.entities))
            elif isinstance(item, SetAside):
                self.set_aside += 1
                self.first_reason = self.first_reason or f"{item.source}, {item.position}: {item.reason}"


def _check(path: Path) -> None:
    if not path.exists():
        raise BadFile(f"There is no corpus {path}. Give a Corpus folder, or files with text; check the path.")
    if _is_corpus(path):
        artifact.open_artifact(path, KIND)


def _is_corpus(path: Path) -> bool:
    return path.is_dir() and (path / artifact.MANIFEST).exists()


def _from_corpus(folder: Path) -> Iterator[TextSample]:
    for table in Corpus.open(folder).tables("text", "entities"):
        for batch in table.to_batches(max_chunksize=256):
            rows = zip(batch.column("text").to_pylist(), batch.column("entities").to_pylist(), strict=True)
            for text, found in rows:
                yield TextSample(text, tuple((e["label"], text[e["start"] : e["end"]]) for e in found))


def _matched(samples: Iterator[TextSample], gazetteer: Gazetteer) -> Iterator[TextSample]:
    known = set(gazetteer.labels)
    while batch := list(islice(samples, _BATCH)):
        found = gazetteer.find_all([sample.text for sample in batch])
        for sample, matches in zip(batch, found, strict=True):
            others = tuple(mention for mention in sample.mentions if mention[0] not in known)
            matched = tuple((match.label, sample.text[match.start : match.end]) for match in matches)
            yield TextSample(sample.text, others + matched)
