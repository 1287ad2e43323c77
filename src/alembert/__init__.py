"""alembert: one toolkit for the whole life of a domain BERT.

Importing this package is cheap: it loads neither torch nor numpy. Public names are loaded on first use. The one thing
done at import is `hardware.prepare_environment()`, which sets the limits that must be in place before torch or
OpenVINO load.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alembert import hardware

if TYPE_CHECKING:
    from alembert.api.exporting import export
    from alembert.api.inference import annotate, evaluate, fill, generate, load, read, score, write
    from alembert.api.training import distill, finetune, pretrain
    from alembert.corpus.document import Document, Entity, Relation
    from alembert.errors import UserError
    from alembert.files.checkpoint import Checkpoint, open  # noqa: A004
    from alembert.infer.predictions import (
        AnnotatedDocument,
        AnswerPrediction,
        ChoicePrediction,
        GenerationPrediction,
        PairPrediction,
        SimilarityPrediction,
        Triple,
    )
    from alembert.infer.predictor import Predictor
    from alembert.text.tokenizer import Tokenizer

__version__ = "0.1.0"

_HOMES = {
    "AnnotatedDocument": "alembert.infer.predictions",
    "AnswerPrediction": "alembert.infer.predictions",
    "Checkpoint": "alembert.files.checkpoint",
    "ChoicePrediction": "alembert.infer.predictions",
    "Document": "alembert.corpus.document",
    "Entity": "alembert.corpus.document",
    "GenerationPrediction": "alembert.infer.predictions",
    "PairPrediction": "alembert.infer.predictions",
    "Predictor": "alembert.infer.predictor",
    "Relation": "alembert.corpus.document",
    "SimilarityPrediction": "alembert.infer.predictions",
    "Tokenizer": "alembert.text.tokenizer",
    "Triple": "alembert.infer.predictions",
    "UserError": "alembert.errors",
    "annotate": "alembert.api.inference",
    "distill": "alembert.api.training",
    "evaluate": "alembert.api.inference",
    "export": "alembert.api.exporting",
    "fill": "alembert.api.inference",
    "finetune": "alembert.api.training",
    "generate": "alembert.api.inference",
    "load": "alembert.api.inference",
    "open": "alembert.files.checkpoint",
    "pretrain": "alembert.api.training",
    "read": "alembert.api.inference",
    "score": "alembert.api.inference",
    "write": "alembert.api.inference",
}
__all__ = [
    "AnnotatedDocument",
    "AnswerPrediction",
    "Checkpoint",
    "ChoicePrediction",
    "Document",
    "Entity",
    "GenerationPrediction",
    "PairPrediction",
    "Predictor",
    "Relation",
    "SimilarityPrediction",
    "Tokenizer",
    "Triple",
    "UserError",
    "__version__",
    "annotate",
    "distill",
    "evaluate",
    "export",
    "fill",
    "finetune",
    "generate",
    "load",
    "open",
    "pretrain",
    "read",
    "score",
    "write",
]

hardware.prepare_environment()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'alembert' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
