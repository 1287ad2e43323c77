"""One chunk of work: items of a reader in, annotated documents out, and what was set aside on the way.

A document that cannot be used (blank, too long) is set aside before it is computed, and one on which the models fail
after that (`Pipeline.annotate_each`); that is a bug, and costs one document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from alembert.corpus.chunks import generalise_reason
from alembert.corpus.document import Document, Entity, Relation
from alembert.corpus.readers import Item, Remark, SetAside
from alembert.infer.annotate_models import Pipeline
from alembert.infer.annotate_stage import Annotated
from alembert.infer.supply import Place, Taken
from alembert.tasks.example import Coverage


@dataclass(frozen=True)
class Portion:
    """What one item of an input gave: a document to annotate, or why there is none."""

    place: Place
    done: int
    """How far that is, in the measure of `Supply.total`."""
    source: str
    document: Document | None = None
    aside: SetAside | None = None
    remark: tuple[str, int] | None = None
    """Something to count, and how often."""
    number: int | None = None
    """Which item of its source it is, if that is known."""

    @property
    def characters(self) -> int:
        return len(self.document.text) if self.document else 0

    def set_aside(self, reason: str) -> SetAside:
        """Say why the document is not used."""
        name = self.document.id if self.document else None
        return SetAside(self.source, f"item {self.place.items}", name, reason)


def portion_of(taken: Taken, max_characters: int) -> Portion:
    """Look at an item: is it a document that can be annotated?"""
    portion, item = Portion(taken.place, taken.done, taken.source, number=taken.number), taken.item
    if not isinstance(item, Document):
        return _without_document(portion, item)
    portion = replace(portion, document=item)
    if not item.text or item.text.isspace():
        return replace(portion, document=None, aside=portion.set_aside("the text is blank"))
    if len(item.text) > max_characters:
        reason = f"the text has {len(item.text)} characters, more than max_characters ({max_characters})"
        return replace(portion, document=None, aside=portion.set_aside(reason))
    return portion


def _without_document(portion: Portion, item: Item) -> Portion:
    if isinstance(item, SetAside):
        return replace(portion, aside=replace(item, source=portion.source))
    if isinstance(item, Remark):
        return replace(portion, remark=(f"remark: {item.reason}", item.count))
    return replace(portion, remark=("deletions not applied", 1))


@dataclass(frozen=True)
class Computed:
    """A chunk after the models: what was found in which document, and what was set aside, by place."""

    portions: Sequence[Portion]
    annotated: Sequence[tuple[Portion, Annotated]]
    set_aside: Sequence[tuple[Place, SetAside]]

    @property
    def tokens(self) -> int:
        return sum(each.coverage.tokens for _, each in self.annotated)

    def without(self, refused: Mapping[int, str]) -> Computed:
        """Set aside annotated documents by their numbers."""
        if not refused:
            return self
        asides = [(self.annotated[n][0].place, self.annotated[n][0].set_aside(why)) for n, why in refused.items()]
        kept = [pair for number, pair in enumerate(self.annotated) if number not in refused]
        return replace(self, annotated=kept, set_aside=[*self.set_aside, *asides])

    def counts(self, pipeline: Pipeline) -> Counter[str]:
        """Count what became of everything that was read (read = written + set aside), and what was found."""
        counts: Counter[str] = Counter()
        for portion in self.portions:
            if portion.remark:
                counts[portion.remark[0]] += portion.remark[1]
        for _, aside in self.set_aside:
            lost = "annotations of the input set aside" if aside.kind == "annotation" else "set aside"
            counts.update((lost, f"{lost}: {generalise_reason(aside.reason)}"))
        for portion, each in self.annotated:
            counts.update(_found(pipeline, _document(portion), each))
        counts.update(_coverage(Coverage.total(each.coverage for _, each in self.annotated)))
        counts["written"] = len(self.annotated)
        counts["read"] = counts["written"] + counts["set aside"]
        return counts


def compute(pipeline: Pipeline, chunk: Sequence[Portion]) -> Computed:
    """Let the models work on the documents of a chunk."""
    asides = [(portion.place, portion.aside) for portion in chunk if portion.aside]
    wanted = [portion for portion in chunk if portion.document]
    pairs = list(zip(wanted, pipeline.annotate_each([_document(each) for each in wanted]), strict=True))
    return Computed(
        chunk,
        [(portion, each) for portion, each in pairs if isinstance(each, Annotated)],
        asides + [(portion.place, portion.set_aside(each)) for portion, each in pairs if isinstance(each, str)],
    )


def _document(portion: Portion) -> Document:
    if portion.document is None:
        raise ValueError("the portion has no document")
    return portion.document


def _found(pipeline: Pipeline, before: Document, annotated: Annotated) -> Counter[str]:
    """Count what the models have found, by label, and what had to make way for it."""
    counts = Counter({"pairs too far apart": annotated.unread})
    counts["documents with nothing to relate"] = int(annotated.is_pairless)
    counts["cut characters"] = annotated.coverage.cut_characters
    for name in pipeline.replaced:
        counts[f"{name} of the input left out"] = len(getattr(before, name))
    for name in pipeline.gives:
        kept = () if name in pipeline.replaced else getattr(before, name)
        fresh = _labels(getattr(annotated.document, name)) - _labels(kept)
        counts[name] = fresh.total()
        counts.update({f"{name}: {label}": many for label, many in fresh.items()})
    return +counts


def _labels(annotations: Iterable[Entity | Relation | str]) -> Counter[str]:
    return Counter(each if isinstance(each, str) else each.label for each in annotations)


def _coverage(coverage: Coverage) -> dict[str, int]:
    return {
        "characters": coverage.characters,
        "tokens": coverage.tokens,
        "windows": coverage.windows,
        "documents in windows": coverage.split_examples,
        "unknown pieces": coverage.unknown,
        "withheld": coverage.withheld,
    }
