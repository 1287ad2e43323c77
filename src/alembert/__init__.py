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
    from alembert.api.documents import read, write
    from alembert.api.exporting import ExportResult, export
    from alembert.api.inference import (
        AnnotationResult,
        EmbeddingResult,
        annotate,
        embed,
        evaluate,
        fill,
        generate,
        load,
        score,
    )
    from alembert.api.mixing import MixResult, mix
    from alembert.api.training import PretrainingResult, TrainingResult, distill, finetune, pretrain
    from alembert.corpus.document import Document, Entity, Relation
    from alembert.errors import UserError
    from alembert.files.checkpoint import Checkpoint, open  # noqa: A004
    from alembert.infer.evaluate import Evaluation
    from alembert.infer.language_model import FilledMask, GeneratedText, TextScore
    from alembert.infer.predictions import (
        AnnotatedDocument,
        AnswerPrediction,
        ChoicePrediction,
        FailedPrediction,
        GenerationPrediction,
        PairPrediction,
        SearchHit,
        SimilarityPrediction,
        Triple,
    )
    from alembert.infer.predictor import Predictor
    from alembert.text.tokenizer import Tokenizer

__version__ = "0.1.0"

_HOMES = {
    "AnnotatedDocument": "alembert.infer.predictions",
    "AnnotationResult": "alembert.api.inference",
    "AnswerPrediction": "alembert.infer.predictions",
    "Checkpoint": "alembert.files.checkpoint",
    "ChoicePrediction": "alembert.infer.predictions",
    "Document": "alembert.corpus.document",
    "EmbeddingResult": "alembert.api.inference",
    "Entity": "alembert.corpus.document",
    "Evaluation": "alembert.infer.evaluate",
    "ExportResult": "alembert.api.exporting",
    "FailedPrediction": "alembert.infer.predictions",
    "FilledMask": "alembert.infer.language_model",
    "GeneratedText": "alembert.infer.language_model",
    "GenerationPrediction": "alembert.infer.predictions",
    "MixResult": "alembert.api.mixing",
    "PairPrediction": "alembert.infer.predictions",
    "Predictor": "alembert.infer.predictor",
    "PretrainingResult": "alembert.api.training",
    "Relation": "alembert.corpus.document",
    "SearchHit": "alembert.infer.predictions",
    "SimilarityPrediction": "alembert.infer.predictions",
    "TextScore": "alembert.infer.language_model",
    "Tokenizer": "alembert.text.tokenizer",
    "TrainingResult": "alembert.api.training",
    "Triple": "alembert.infer.predictions",
    "UserError": "alembert.errors",
    "annotate": "alembert.api.inference",
    "distill": "alembert.api.training",
    "embed": "alembert.api.inference",
    "evaluate": "alembert.api.inference",
    "export": "alembert.api.exporting",
    "fill": "alembert.api.inference",
    "finetune": "alembert.api.training",
    "generate": "alembert.api.inference",
    "load": "alembert.api.inference",
    "mix": "alembert.api.mixing",
    "open": "alembert.files.checkpoint",
    "pretrain": "alembert.api.training",
    "read": "alembert.api.documents",
    "score": "alembert.api.inference",
    "write": "alembert.api.documents",
}
__all__ = [
    "AnnotatedDocument",
    "AnnotationResult",
    "AnswerPrediction",
    "Checkpoint",
    "ChoicePrediction",
    "Document",
    "EmbeddingResult",
    "Entity",
    "Evaluation",
    "ExportResult",
    "FailedPrediction",
    "FilledMask",
    "GeneratedText",
    "GenerationPrediction",
    "MixResult",
    "PairPrediction",
    "Predictor",
    "PretrainingResult",
    "Relation",
    "SearchHit",
    "SimilarityPrediction",
    "TextScore",
    "Tokenizer",
    "TrainingResult",
    "Triple",
    "UserError",
    "__version__",
    "annotate",
    "distill",
    "embed",
    "evaluate",
    "export",
    "fill",
    "finetune",
    "generate",
    "load",
    "mix",
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
    if name in ("Checkpoint", "open"):
        from alembert.extras import TRAINING, require

        require("A Checkpoint", *TRAINING)
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
