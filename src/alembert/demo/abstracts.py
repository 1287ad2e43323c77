"""The first step of the demo: a model that ships with the package annotates the abstracts of the sample.

In: the abstracts and the model. Out: the annotated abstracts in the demo's folder, and what was found in numbers.
Nothing is trained for it. A package without shipped models, such as an incomplete checkout, skips the step.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from alembert import sample
from alembert.demo import DemoFolders, DemoStep, format_command
from alembert.demo.text_steps import read_annotated, write_lines
from alembert.models import list_models

if TYPE_CHECKING:
    from alembert.corpus.document import Document, Entity
    from alembert.infer.annotate_pipeline import Pipeline
    from alembert.models import ShippedModel

MODEL: Final = "bio"
_TITLE: Final = f"The model `{MODEL}`, which ships with alembert, annotates twenty abstracts"
_TOP: Final = 5
"""Names of a type that the terminal shows."""
_EXAMPLE_DOCUMENTS, _EXAMPLE_ENTITIES = 3, 6
_SPEED_ROUNDS: Final = 2
"""The first one may have to warm up."""


@dataclass(frozen=True)
class AbstractsReport:
    """The annotated abstracts, and how fast they were annotated."""

    model: str
    documents: tuple[Document, ...]
    words_per_second: float

    @property
    def words(self) -> int:
        return sum(len(document.text.split()) for document in self.documents)

    @property
    def labels(self) -> tuple[str, ...]:
        """All types: those of the sample in its order, and then others that were found."""
        known = [label.capitalize() for label in sample.LABELS]
        found = sorted({entity.label for document in self.documents for entity in document.entities})
        return tuple(dict.fromkeys((*known, *found)))

    def entities(self, label: str | None = None) -> list[Entity]:
        """Return the entities of a type, or all, in the order of the text."""
        return [entity for each in self.documents for entity in each.entities if label in (None, entity.label)]

    def count_names(self, label: str) -> Counter[str]:
        """Count the mentions of each name of a type; upper case makes no difference, the most frequent form is shown."""
        forms: dict[str, Counter[str]] = {}
        for entity in self.entities(label):
            name = _name(entity)
            forms.setdefault(name.casefold(), Counter())[name] += 1
        return Counter({counts.most_common(1)[0][0]: counts.total() for counts in forms.values()})

    def to_table(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "model": self.model,
            "documents": len(self.documents),
            "words": self.words,
            "words_per_second": round(self.words_per_second, 1),
            "entities": {label: len(self.entities(label)) for label in self.labels},
            "most_frequent": {label: dict(self.count_names(label).most_common(_TOP)) for label in self.labels},
        }


def annotate_abstracts(folders: DemoFolders) -> DemoStep:
    """Annotate the abstracts, as `alembert annotate` does."""
    write_lines(folders.abstracts, ({"id": a.id, "title": a.title, "text": a.text} for a in sample.load_abstracts()))
    model = find_model()
    if model is None:
        reason = (
            f"skipped: this package has no model `{MODEL}` (see `alembert models`), so the demo begins with the chain"
        )
        return DemoStep(_TITLE, (reason,))
    report = _annotate(model, folders)
    command = format_command("annotate", MODEL, folders.abstracts, out=folders.abstracts_annotated)
    return DemoStep(_TITLE, tuple(_lines(report)), (f"{command} --overwrite",), abstracts=report)


def find_model() -> ShippedModel | None:
    """Return the model that the demo begins with, if the package has it."""
    return next((model for model in list_models() if model.name == MODEL), None)


def _annotate(model: ShippedModel, folders: DemoFolders) -> AbstractsReport:
    from alembert.infer.annotate import annotate
    from alembert.infer.annotate_pipeline import Pipeline

    pipeline = Pipeline.open([model.folder])
    annotate(pipeline, [folders.abstracts], folders.abstracts_annotated, overwrite=True)
    documents = tuple(read_annotated(folders.abstracts_annotated))
    return AbstractsReport(model.name, documents, _measure_words_per_second(pipeline, documents))


def _measure_words_per_second(pipeline: Pipeline, documents: tuple[Document, ...]) -> float:
    """Annotate the same texts again, in memory: a result that was complete before took no time."""
    texts, seconds = [document.text for document in documents], []
    for _ in range(_SPEED_ROUNDS):
        start = time.perf_counter()
        pipeline.annotate(texts)
        seconds.append(time.perf_counter() - start)
    return sum(len(text.split()) for text in texts) / min(seconds)


def _lines(report: AbstractsReport) -> Iterator[str]:
    yield (
        f"{report.words:,} words, {len(report.entities()):,} entities, {report.words_per_second:,.0f} words per second on "
        "this machine"
    )
    for label in report.labels:
        names = report.count_names(label)
        top = ", ".join(f"{name} {count}" for name, count in names.most_common(_TOP))
        yield f"{label}: {names.total():,} mentions of {len(names):,} names" + (
            f", most frequent: {top}" if top else ""
        )
    for document in report.documents[:_EXAMPLE_DOCUMENTS]:
        yield f"{document.id}, the first entities: {_first_entities(document)}"


def _first_entities(document: Document) -> str:
    first: dict[str, Entity] = {}
    for entity in document.entities:
        first.setdefault(_name(entity).casefold(), entity)
    shown = islice(first.values(), _EXAMPLE_ENTITIES)
    return ", ".join(f"{_name(entity)} ({entity.label}{_score(entity)})" for entity in shown) or "none"


def _name(entity: Entity) -> str:
    """Return the words of an entity on one line."""
    return " ".join(entity.text.split())


def _score(entity: Entity) -> str:
    return "" if entity.score is None else f" {entity.score:.2f}"
