"""Relations between entities: settings, examples, and how they are read.

`<< a >> ... [[ b ]]` (ChemProt as SciBERT ships it), `<e1>a</e1> ... <e2>b</e2>` (SemEval) and `[E1] a [/E1] ...
[E2] b [/E2]` wrap the words; `@GENE$ ... @DISEASE$` (BioBERT) replaces them, and one that names two types,
`@CHEM-GENE$`, is both entities at once. Texts are full of signs that look like marks (`P << 0.01`, `[[3H]serotonin]`):
marks with spaces inside come first, and a text in which a mark occurs twice, or in which the marks of the two entities
cross, is an error.

Three forms: a sentence with two entities that are marked, one in which words such as @GENE$ stand in their place, and a
document with any number of entities and relations between them, or between the concepts that they are mentions of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from alembert.corpus.document import Document, Entity, Relation, Span, from_record
from alembert.data.order import stable_hash
from alembert.errors import BadInput, BadSetting
from alembert.tasks.example import Example
from alembert.tasks.settings import check_choices
from alembert.text.sentences import split_sentences

_MARKER_STYLES: Final = {
    "<< >> and [[ ]]": (("<<", ">>"), ("[[", "]]")),
    "<e1> and <e2>": (("<e1>", "</e1>"), ("<e2>", "</e2>")),
    "[E1] and [E2]": (("[E1]", "[/E1]"), ("[E2]", "[/E2]")),
}
_PLACEHOLDER: Final = re.compile(r"@([A-Za-z][\w-]*)\$", re.ASCII)


@dataclass(frozen=True, slots=True)
class EntityMarker:
    """A marked entity: `text[start:end]` are its words, `text[outer_start:outer_end]` has the marks as well."""

    start: int
    end: int
    outer_start: int
    outer_end: int
    name: str = ""
    """The type that replaces the words (GENE of @GENE$); empty if the words are there."""


@dataclass(frozen=True, slots=True)
class MarkedPair:
    """The two entities of a text, and how they are marked."""

    first: EntityMarker
    second: EntityMarker
    layout: str
    """For messages: "<< >> and [[ ]]", "@DISEASE$ and @GENE$"."""

    @property
    def is_anonymised(self) -> bool:
        return bool(self.first.name)


def find_marked_pair(text: str) -> MarkedPair | None:
    """Find the two marked entities of a text; None if nothing is marked.

    >>> pair = find_marked_pair("<< Aspirin >>-like [[ COX-2 ]] inhibitors")
    >>> pair.first, pair.layout
    (EntityMarker(start=3, end=10, outer_start=0, outer_end=13, name=''), '<< >> and [[ ]]')
    """
    halves = 0
    for layout, (first, second) in _MARKER_STYLES.items():
        markers = [mark for marks in (first, second) if (mark := _find_wrapped(text, *marks))]
        if len(markers) == 2:
            _refuse_crossed(*markers)
            return MarkedPair(markers[0], markers[1], layout)
        halves += len(markers)
    placeholders = [EntityMarker(*match.span(), *match.span(), match[1]) for match in _PLACEHOLDER.finditer(text)]
    if placeholders:
        return _make_placeholder_pair(placeholders)
    if halves:
        raise BadInput("one entity is marked in the text; expected two")
    return None


def _make_placeholder_pair(marks: list[EntityMarker]) -> MarkedPair:
    is_both = len(marks) == 1 and "-" in marks[0].name
    if len(marks) != 2 and not is_both:
        words = "1 word" if len(marks) == 1 else f"{len(marks)} words"
        raise BadInput(
            f"the text has {words} such as @GENE$; expected one for each of two entities, or @CHEM-GENE$ for both"
        )
    names = sorted({f"@{mark.name}$" for mark in marks})
    return MarkedPair(marks[0], marks[-1], " and ".join(names))


def _refuse_crossed(marker: EntityMarker, other_marker: EntityMarker) -> None:
    first, second = sorted((marker, other_marker), key=lambda mark: mark.outer_start)
    if second.outer_start < first.outer_end < second.outer_end:
        raise BadInput("the marks of the two entities cross; expected them apart, or one inside the other")


def _find_wrapped(text: str, opening: str, closing: str) -> EntityMarker | None:
    for gap in (" ", r"\s{0,4}"):
        start, end = re.escape(opening) + gap, gap + re.escape(closing)
        matches = list(re.finditer(rf"{start}(?!\s)((?:(?!{start}).)+?){end}", text, re.DOTALL))
        if len(matches) > 1:
            raise BadInput(f"the marks {opening} {closing} stand at {len(matches)} places of the text; expected one")
        if matches:
            (match,) = matches
            return EntityMarker(*match.span(1), *match.span())
    return None


RelateForm = Literal["marked", "anonymised", "document", "plain"]
"""plain: a text without entities, in which there is nothing to relate."""
_TAGGER_ADVICE = (
    "To have the entities found as well, give a tagger before this model: alembert predict TAGGER MODEL TEXT"
)
UNKNOWN_CONCEPT = "-1"
"""What PubTator files write for a mention whose concept is not in the dictionary."""


class NoMarkedEntities(BadInput):
    """A text in which two entities should be marked has no marks at all."""


@dataclass(frozen=True, slots=True)
class EntityMention:
    """An entity: `text[start:end]` are its words."""

    id: str
    start: int
    end: int
    type: str = ""
    concepts: tuple[str, ...] = ()
    outer: Span | None = None
    """With the marks around it, if the text has some."""

    @property
    def whole(self) -> Span:
        """The stretch of the text that the entity and its marks take."""
        return self.outer or (self.start, self.end)


@dataclass(frozen=True, slots=True)
class RelationLink:
    """A relation: ids of mentions, or concepts, and what it is called."""

    head: str
    tail: str
    label: str


@dataclass(frozen=True, slots=True)
class UnlinkedRelation:
    """A relation that a document has, though not both of its ends are entities of it."""

    label: str
    ends: tuple[str, ...] = ()
    """Ids of mentions, or concepts, that it is known to be between: one or none."""


@dataclass(frozen=True, kw_only=True)
class RelateExample(Example):
    """A text with entities, and their relations if these are known."""

    form: RelateForm
    mentions: tuple[EntityMention, ...] = ()
    """In the order of the text; of a marked pair, the first and the second."""
    links: tuple[RelationLink, ...] | None = None
    unlinked: tuple[UnlinkedRelation, ...] = ()
    """Relations that nobody can find, beside the links: they count as missed."""
    given_sentences: tuple[Span, ...] = ()
    """Sentences of a document, if the file has them."""
    layout: str = ""
    """How the entities are marked, in words."""
    group: str | None = None
    """The document that the text is a part of, or that it is."""

    @property
    def text(self) -> str:
        return self.texts[0]

    @property
    def plain_texts(self) -> tuple[str, ...]:
        return (" ".join(self._unmarked()),) if self.form == "marked" else self.texts

    @property
    def group_id(self) -> int | str:
        """Sentences that differ in nothing but which entities are marked belong together."""
        if self.group is not None:
            return self.group
        if self.form != "marked":
            return self.key
        return stable_hash("sentence", " ".join("".join(self._unmarked()).split()).casefold())

    def _unmarked(self) -> Iterator[str]:
        """Part the text at the marks of its entities, and leave these out."""
        at = 0
        for start, end in sorted(span for mention in self.mentions for span in _marks_of(mention)):
            yield self.text[at:start]
            at = max(at, end)
        yield self.text[at:]

    @cached_property
    def sentences(self) -> tuple[Span, ...]:
        """The sentences of the text."""
        return self.given_sentences or tuple(split_sentences(self.text))

    @cached_property
    def sentence_starts(self) -> list[int]:
        """Where sentences begin."""
        return [start for start, _ in self.sentences]


def _marks_of(mention: EntityMention) -> list[Span]:
    start, end = mention.whole
    return [(start, mention.start), (mention.end, end)]


def example_from_marked_text(
    text: str,
    labels: Sequence[str] | None,
    *,
    id: str,  # noqa: A002
    where: str = "",
    group: str | None = None,
) -> RelateExample:
    """Make an example of a text with two marked entities, which have these relations to each other (none: unknown)."""
    pair = find_marked_pair(text)
    if pair is None:
        raise NoMarkedEntities(
            "no entities are marked in the text; expected << a >> and [[ b ]], <e1> and <e2>, or words such as @GENE$"
        )
    return RelateExample(
        id=id,
        texts=(text,),
        where=where,
        form="anonymised" if pair.is_anonymised else "marked",
        mentions=(_to_mention_of_mark("1", pair.first), _to_mention_of_mark("2", pair.second)),
        links=None if labels is None else tuple(RelationLink("1", "2", label) for label in labels),
        layout=pair.layout,
        group=group,
    )


def _to_mention_of_mark(name: str, mark: EntityMarker) -> EntityMention:
    return EntityMention(name, mark.start, mark.end, mark.name, outer=(mark.outer_start, mark.outer_end))


def example_from_entities(
    text: str,
    entities: Iterable[tuple[int, int, str]],
    *,
    id: str = "text",  # noqa: A002
    is_sentence: bool = False,
) -> RelateExample:
    """Make an example of a text and entities that something else has found: start, end and type of each.

    The text is one sentence, or its sentences are to be found.
    """
    ordered = sorted(entities, key=lambda entity: (entity[0], -entity[1]))
    mentions = tuple(EntityMention(f"T{n}", start, end, label) for n, (start, end, label) in enumerate(ordered, 1))
    sentences = ((0, len(text)),) if is_sentence else ()
    return RelateExample(id=id, texts=(text,), form="document", mentions=mentions, given_sentences=sentences)


def example_from_document(
    document: Document, where: str, *, is_annotated: bool = True
) -> tuple[RelateExample, list[str]]:
    """Make an example of a document; return also, of each relation that is none between two entities, why it is left out."""
    mentions = tuple(sorted(map(_to_mention, document.entities), key=lambda mention: (mention.start, -mention.end)))
    names = {name for mention in mentions for name in (mention.id, *mention.concepts)}
    relations, lost = _relations(document, names)
    links = dict.fromkeys(relation for relation in relations if isinstance(relation, RelationLink))
    example = RelateExample(
        id=document.id,
        texts=(document.text,),
        where=where,
        form="document",
        mentions=mentions,
        links=tuple(links) if is_annotated else None,
        unlinked=tuple(r for r in relations if isinstance(r, UnlinkedRelation)) if is_annotated else (),
        given_sentences=tuple((part.start, part.end) for part in document.sections if part.kind == "sentence"),
        layout="entities at character offsets",
        group=document.id,
    )
    return example, lost


def example_from_text(text: str, name: str) -> RelateExample:
    """Make an example without answers, of a marked text or of a JSON object with `text` and `entities`."""
    record = _parse_record(text)
    if record is not None and "entities" in record:
        return example_from_document(from_record({"id": name, **record}), name, is_annotated=False)[0]
    if record is not None:  # a line of a file of marked sentences: its label is not to be read
        text = str(record["text"])
    try:
        return example_from_marked_text(text, None, id=name)
    except NoMarkedEntities as wrong:
        return RelateExample(id=name, texts=(text,), form="plain", layout=f"{wrong}. {_TAGGER_ADVICE}")
    except BadInput as wrong:
        return RelateExample(id=name, texts=(text,), form="plain", layout=str(wrong))


def _parse_record(text: str) -> dict[str, object] | None:
    try:
        record = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and ("entities" in record or "text" in record) else None


def _to_mention(entity: Entity) -> EntityMention:
    concepts = tuple(concept for concept in entity.concepts if concept != UNKNOWN_CONCEPT)
    return EntityMention(entity.id, entity.start, entity.end, entity.label, concepts)


def _relations(document: Document, names: set[str]) -> tuple[list[RelationLink | UnlinkedRelation], list[str]]:
    """Read the relations of a document; return also why those between others, or of more than two, are left out.

    The file's reader has reported the relations that it could not link.
    """
    others = {relation.id for relation in (*document.relations, *document.unlinked_relations)}
    relations: list[RelationLink | UnlinkedRelation] = []
    lost: list[str] = []
    for relation in document.relations:
        try:
            relations.append(_relation(relation, names, others))
            if isinstance(relations[-1], UnlinkedRelation):
                lost.append(f"relation {relation.id} names an entity that the document does not have")
        except BadInput as wrong:
            lost.append(f"relation {relation.id} {wrong}")
    for relation in document.unlinked_relations:
        with suppress(BadInput):
            relations.append(_relation(relation, names, others))
    return relations, lost


def _relation(relation: Relation, names: set[str], others: set[str]) -> RelationLink | UnlinkedRelation:
    """Read a relation; BioC has files whose relations name concepts in attributes instead of arguments."""
    named = relation.arguments or tuple(pair for pair in relation.attributes if pair[1] in names)
    if len(named) > 2 or len(relation.arguments) == 1:
        raise BadInput(f"has {len(named)} arguments, and this task relates two entities")
    if any(target in others - names for _, target in named):
        raise BadInput("has another relation as an argument, and this task relates two entities")
    ends = tuple(target for _, target in named if target in names)
    if len(ends) < 2:
        return UnlinkedRelation(relation.label, ends)
    if ends[0] == ends[1]:
        raise BadInput("is between an entity and itself")
    return RelationLink(ends[0], ends[1], relation.label)


RelatePooling = Literal["first", "markers"]
RelateMetric = Literal["auto", "micro_f1", "macro_f1", "accuracy"]
_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "pooling": ("first", "markers"),
    "main": ("auto", "micro_f1", "macro_f1", "accuracy"),
    "directed": (True, False),
}


@dataclass(frozen=True, kw_only=True)
class RelateSettings:
    """Settings of relation extraction."""

    pooling: RelatePooling = "first"
    """Representation that is classified: the first token, or the markers of the two entities, concatenated."""
    negative_label: str = "auto"
    """Label for no relation; auto: detected from the data; blank: there is none."""
    max_distance: int | None = 0
    """Documents: maximum distance of two entities in sentences (0: the same sentence); none: whatever fits `max_length`."""
    directed: bool = True
    """Documents: relations have a direction; false: each pair is classified once, in text order."""
    max_length: int = 256
    """Maximum tokens of a sequence, special tokens included; longer texts are cut to the part around both entities."""
    main: RelateMetric = "auto"
    """Metric for model selection: micro_f1 (auto) or macro_f1 of the relations, or accuracy."""

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        if self.max_length < 16:
            raise BadSetting(f"`max_length` of the task is {self.max_length}; a row needs at least 16 tokens.")
        if self.max_distance is not None and self.max_distance < 0:
            raise BadSetting(
                f"`max_distance` of the task is {self.max_distance}; expected a number of sentences from 0, or none."
            )

    @property
    def measure(self) -> str:
        """The measure that models are chosen by."""
        return "micro_f1" if self.main == "auto" else self.main
