"""alembert models in a spaCy pipeline: `nlp.add_pipe("alembert", config={"model": "work/ner"})`.

In: documents that spaCy has tokenised. Out: `doc.spans["alembert"]` with every entity, nested ones too, `doc.ents`
with the longest of those that overlap, `doc.cats` with the probabilities of labels, and `doc._.alembert`, the whole
prediction with exact offsets and relations. spaCy's spans begin and end at its tokens: an entity that ends inside one
is widened to the token, and a warning counts such entities. spaCy finds the component by its entry point.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from alembert.api.inference import load
from alembert.infer.predictions import AnnotatedDocument

NAME: Final = "alembert"
DEFAULTS: Final[dict[str, Any]] = {
    "model": None,
    "spans_key": NAME,
    "min_score": None,
    "min_precision": None,
    "device": "auto",
    "lexicons": None,
}


class SpacyComponent:
    """A pipeline component that predicts with alembert models."""

    def __init__(
        self,
        model: Any,
        spans_key: str,
        limits: dict[str, float | None],
        device: str,
        lexicons: dict[str, str] | None = None,
    ) -> None:
        """Load one model, or a list of models that work together; `lexicons` adds terms to those that taggers read."""
        from alembert.errors import BadSetting

        if not model:
            raise BadSetting(
                'The component has no model. Name one: nlp.add_pipe("alembert", config={"model": "work/ner"}).'
            )
        names = [model] if isinstance(model, str) else list(model)
        self.predictor = load(*names, device=device, lexicons=lexicons)
        self.spans_key = spans_key
        self.limits = limits
        if not Doc.has_extension(NAME):
            Doc.set_extension(NAME, default=None)

    def __call__(self, doc: Doc) -> Doc:
        """Annotate one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], batch_size: int = 128) -> Iterator[Doc]:
        """Annotate documents as a stream, many together; `batch_size` is spaCy's and not needed here."""
        waiting: deque[Doc] = deque()

        def texts() -> Iterator[str]:
            for doc in stream:
                waiting.append(doc)
                yield doc.text

        for prediction in self.predictor.pipe(texts(), **self.limits):  # type: ignore[arg-type]
            yield self._annotate(waiting.popleft(), prediction)

    def _annotate(self, doc: Doc, prediction: AnnotatedDocument) -> Doc:
        doc._.alembert = prediction
        if prediction.problem and doc.text.strip():
            warnings.warn(f"A document was not annotated: {prediction.problem}", stacklevel=2)
        spans = _spans(doc, prediction)
        doc.spans[self.spans_key] = spans
        if spans:
            doc.ents = filter_spans([*doc.ents, *spans])
        doc.cats.update(prediction.probabilities)
        return doc


def _spans(doc: Doc, prediction: AnnotatedDocument) -> list[Span]:
    spans, widened = [], 0
    for entity in prediction.entities:
        span = doc.char_span(entity.start, entity.end, label=entity.label)
        if span is None:
            span = doc.char_span(entity.start, entity.end, label=entity.label, alignment_mode="expand")
            widened += 1
        if span is not None:
            spans.append(span)
    if widened:
        warnings.warn(
            f"{widened} entities of a document end inside a token of spaCy and were widened to it; doc._.alembert has the "
            "exact offsets.",
            stacklevel=2,
        )
    return spans


def create_component(  # noqa: PLR0917 (spaCy calls it by name)
    nlp: Language,
    name: str,
    model: Any,
    spans_key: str,
    min_score: float | None,
    min_precision: float | None,
    device: str,
    lexicons: dict[str, str] | None,
) -> SpacyComponent:
    """Make the component, as spaCy calls it for `nlp.add_pipe("alembert", config=...)`."""
    return SpacyComponent(model, spans_key, {"min_score": min_score, "min_precision": min_precision}, device, lexicons)


Language.factory(NAME, default_config=DEFAULTS, assigns=["doc.ents", "doc.spans", "doc.cats"], func=create_component)
