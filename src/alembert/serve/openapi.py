"""The OpenAPI document of the service, with the schemas of the bodies that msgspec reads.

It describes what is the same for every server: routes, bodies, statuses. What the models of a server are called, and
which labels they have, /v1/models says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from alembert import __version__
from alembert.serve.labels import FILE_NAMES
from alembert.serve.wire import (
    JSON,
    JSON_LINES,
    ConvertRequest,
    DecisionRequest,
    EmbedRequest,
    ExplainRequest,
    PredictRequest,
)

_REFUSALS: Final = {
    "400": "The body is not JSON.",
    "401": "The token is missing or wrong.",
    "403": "The request comes from the page of another site.",
    "404": "The server has no such model, or keeps no decisions.",
    "408": "The request arrived too slowly.",
    "413": "The request is too large.",
    "415": "The Content-Type is wrong.",
    "421": "The Host header names another server.",
    "422": "The request was understood and cannot be answered: the sentence says why.",
    "429": "The queue is full, or the address has too many connections; see Retry-After.",
    "500": "A bug: the log of the server has the place in the code.",
    "503": "The server is stopping.",
}
_GET_REFUSALS: Final = ("401", "403", "404", "408", "421", "429")
_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "message": {"type": "string"}},
            "required": ["kind", "message"],
        }
    },
    "required": ["error"],
}
_ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Predictions": {
        "model": {"type": "string"},
        "predictions": {"type": "array", "items": {"type": "object"}},
    },
    "Embeddings": {
        "model": {"type": "string"},
        "embeddings": {"type": "array", "items": {"$ref": "#/components/schemas/Embedding"}},
    },
    "Embedding": {
        "vector": {"type": "array", "items": {"type": "number"}},
        "coverage": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "Explained": {"model": {"type": "string"}, "explanation": {"type": "object"}},
    "Saved": {"at": {"type": "string", "format": "date-time"}},
    "Models": {
        "models": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
        "keeps_labels": {"type": "boolean"},
    },
    "Model": {
        "name": {"type": "string"},
        "tasks": {"type": "array", "items": {"$ref": "#/components/schemas/ModelTask"}},
        "engine": {"type": "string"},
        "max_tokens": {"type": "integer"},
        "embeds": {"type": "boolean"},
        "example": {},
    },
    "ModelTask": {
        "name": {"type": "string"},
        "kind": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
    },
}
"""Properties of what is answered, all of which are always there."""
_FILES: Final[Mapping[str, Any]] = {media_type: {} for _, media_type in FILE_NAMES.values()}
_INPUT: Final = (
    "An input is a text, or an object: `text`; `question` with `passage` or with `choices`; `texts` for a pair; `text` with "
    "`entities` for relations. An object may have an `id`, which its answer repeats."
)
_LINES: Final = (
    "As JSON lines, each line is a text or an object, and each line of the answer is a record or `error`; `model`, "
    "`min_score` and `min_precision` are then parameters of the address."
)


def describe_service() -> dict[str, Any]:
    """Return the OpenAPI document."""
    bodies = (PredictRequest, EmbedRequest, ExplainRequest, DecisionRequest, ConvertRequest)
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "alembert",
            "version": __version__,
            "description": "Predictions of fine-tuned encoders. Offsets count Unicode code points. Nothing is truncated: "
            "`coverage` says what was read.",
        },
        "paths": _paths(),
        "components": {
            "schemas": {**schemas, **{name: _object(each) for name, each in _ANSWERS.items()}, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths() -> dict[str, Any]:
    return {
        "/v1/predict": {
            "post": _post(
                "Predict",
                f"The records of `alembert predict --json`. {_INPUT} {_LINES}",
                PredictRequest,
                "Predictions",
                lines=("model", "min_score", "min_precision"),
            )
        },
        "/v1/embed": {
            "post": _post(
                "Vectors of texts", f"One vector for each text. {_LINES}", EmbedRequest, "Embeddings", lines=("model",)
            )
        },
        "/v1/explain": {
            "post": _post(
                "Explain an answer",
                "Which words and features made an answer, and how faithful that picture is: the record of `alembert inspect "
                "why --json`.",
                ExplainRequest,
                "Explained",
            )
        },
        "/v1/decisions": {
            "post": _post("Append a decision", "Only if the server has --label FILE.", DecisionRequest, "Saved")
        },
        "/v1/labels": {"get": _labels()},
        "/v1/convert": {
            "post": _post("Documents as a file", "The header `alembert-losses` counts what is lost.", ConvertRequest)
        },
        "/v1/models": {"get": _get("The models, their tasks and labels", JSON, answer="Models")},
        "/metrics": {"get": _get("Metrics for Prometheus", "text/plain")},
        "/healthz": {"get": _get("The process is alive", "text/plain", is_open=True)},
        "/readyz": {
            "get": {
                **_get("A known text is answered as at the start", "text/plain", is_open=True),
                "responses": {"200": {"description": "Ready."}, "503": {"description": "Not ready, and why."}},
            }
        },
    }


def _post(
    summary: str, description: str, body: type[Any], answer: str = "", *, lines: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Describe a route that reads a body; without `answer` it answers with a file.

    `lines` are the parameters of a route that reads JSON lines, too.
    """
    content: dict[str, Any] = {JSON: {"schema": _refer(body.__name__)}}
    answers: dict[str, Any] = {JSON: {"schema": _refer(answer)}} if answer else dict(_FILES)
    if lines:
        content[JSON_LINES] = answers[JSON_LINES] = {"schema": {"type": "string"}}
    return {
        "summary": summary,
        "description": description,
        "parameters": [_parameter(name) for name in lines],
        "requestBody": {"required": True, "content": content},
        "responses": {"200": {"description": "The answers.", "content": answers}, **_refusals(_REFUSALS)},
        "security": [{"token": []}, {}],
    }


def _get(summary: str, media_type: str, *, answer: str = "", is_open: bool = False) -> dict[str, Any]:
    content = {media_type: {"schema": _refer(answer)} if answer else {}}
    security: dict[str, Any] = {} if is_open else {"security": [{"token": []}, {}]}
    refusals = {status: _REFUSALS[status] for status in _GET_REFUSALS}
    responses = {"200": {"description": summary, "content": content}, **_refusals(refusals)}
    return {"summary": summary, "responses": responses, **security}


def _labels() -> dict[str, Any]:
    formats = {"type": "string", "enum": [*FILE_NAMES], "default": "jsonl"}
    parameter = {"name": "format", "in": "query", "description": "The format of the file.", "schema": formats}
    described = _get("Reviewed texts as training data, or as a file in another format", JSON_LINES)
    described["responses"]["200"]["content"] = _FILES
    described["responses"]["422"] = _refusals({"422": _REFUSALS["422"]})["422"]
    return {**described, "parameters": [parameter]}


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string"} if name == "model" else {"type": "number", "minimum": 0, "maximum": 1}
    return {"name": name, "in": "query", "description": "With JSON lines.", "schema": schema}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": [*properties]}


def _refer(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _refusals(sentences: Mapping[str, str]) -> dict[str, Any]:
    schema = {JSON: {"schema": _refer("Error")}}
    return {status: {"description": sentence, "content": schema} for status, sentence in sentences.items()}
