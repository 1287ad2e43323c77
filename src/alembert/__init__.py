"""alembert: one toolkit for the whole life of a domain BERT.

Importing this package is cheap: it loads neither torch nor numpy. Public names are loaded on first use. The one thing
done at import is `hardware.prepare_environment()`, which sets the limits that must be in place before torch or
OpenVINO load.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from alembert import hardware

if TYPE_CHECKING:
    from alembert.api.documents import label_corpus, read, write
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
    from alembert.corpus.label import LabelResult
    from alembert.errors import UserError
    from alembert.files.checkpoint import Checkpoint, open  # noqa: A004
    from alembert.infer.attention import AttentionMaps
    from alembert.infer.evaluate import Evaluation
    from alembert.infer.explain.result import Explanation
    from alembert.infer.language_model import FilledMask, GeneratedText, TextScore
    from alembert.infer.neighbours import Neighbourhood
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
    from alembert.models import ShippedModel, list_models
    from alembert.text.tokenizer import Tokenizer
    from alembert.train.runs import RunOverview, list_runs

__version__ = "0.1.0"

COMMANDS: Final = {
    "demo": "Run every step on an embedded sample.",
    "doctor": "Show what this machine can do, what was chosen and why.",
    "corpus": "Build a corpus from raw files, and look at it.",
    "vocab": "Learn, extend, prune and evaluate vocabularies.",
    "pretrain": "Pre-train a model from scratch, or adapt one to your text.",
    "mix": "Mix the weights of a model before and after further training.",
    "finetune": "Fine-tune a model for one task or several.",
    "distill": "Distil a small student from a teacher.",
    "augment": "Augment labelled examples by replacing words.",
    "evaluate": "Score a fine-tuned model on labelled files.",
    "embed": "Train embedding models, embed texts and search them.",
    "export": "Export a fine-tuned model to run without torch.",
    "convert": "Convert old .bin weights to safetensors.",
    "predict": "Predict with a fine-tuned model.",
    "models": "List the models that ship with alembert.",
    "fill": "Fill the masks of a text.",
    "generate": "Continue texts with a causal language model.",
    "score": "Compute the log probability and perplexity of texts.",
    "annotate": "Annotate documents with fine-tuned models.",
    "serve": "Serve fine-tuned models over HTTP, with a web page.",
    "bench": "Measure the speed of a fine-tuned model.",
    "inspect": "Look inside tokenizers, training data and errors.",
}
"""What `alembert --help` lists, in the order of a model's life: each verb is a file of `alembert.cli`, and a page of docs."""

_HOMES: Final = {
    "AnnotatedDocument": "alembert.infer.predictions",
    "AnnotationResult": "alembert.api.inference",
    "AnswerPrediction": "alembert.infer.predictions",
    "AttentionMaps": "alembert.infer.attention",
    "Checkpoint": "alembert.files.checkpoint",
    "ChoicePrediction": "alembert.infer.predictions",
    "Document": "alembert.corpus.document",
    "EmbeddingResult": "alembert.api.inference",
    "Entity": "alembert.corpus.document",
    "Evaluation": "alembert.infer.evaluate",
    "Explanation": "alembert.infer.explain.result",
    "ExportResult": "alembert.api.exporting",
    "FailedPrediction": "alembert.infer.predictions",
    "FilledMask": "alembert.infer.language_model",
    "GeneratedText": "alembert.infer.language_model",
    "GenerationPrediction": "alembert.infer.predictions",
    "LabelResult": "alembert.corpus.label",
    "MixResult": "alembert.api.mixing",
    "Neighbourhood": "alembert.infer.neighbours",
    "PairPrediction": "alembert.infer.predictions",
    "Predictor": "alembert.infer.predictor",
    "PretrainingResult": "alembert.api.training",
    "Relation": "alembert.corpus.document",
    "RunOverview": "alembert.train.runs",
    "SearchHit": "alembert.infer.predictions",
    "ShippedModel": "alembert.models",
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
    "label_corpus": "alembert.api.documents",
    "list_models": "alembert.models",
    "list_runs": "alembert.train.runs",
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
    "AttentionMaps",
    "Checkpoint",
    "ChoicePrediction",
    "Document",
    "EmbeddingResult",
    "Entity",
    "Evaluation",
    "Explanation",
    "ExportResult",
    "FailedPrediction",
    "FilledMask",
    "GeneratedText",
    "GenerationPrediction",
    "LabelResult",
    "MixResult",
    "Neighbourhood",
    "PairPrediction",
    "Predictor",
    "PretrainingResult",
    "Relation",
    "RunOverview",
    "SearchHit",
    "ShippedModel",
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
    "label_corpus",
    "list_models",
    "list_runs",
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
        from alembert.errors import TRAINING, require

        require("A Checkpoint", *TRAINING)
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
