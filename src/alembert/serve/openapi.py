"""The OpenAPI document of the service, with the schemas of the bodies that msgspec reads.

It describes what is the same for every server: routes, bodies, statuses. What the models of a server are called, and
which labels they have, /v1/models says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from alembert import __version__
from alembert.serve.wire import JSON, JSON_LINES, ConvertRequest, DecisionRequest, EmbedRequest, PredictRequest

_REFUSALS: Final = {
    "400": "The body is not JSON.",
    "401": "The token is missing or wrong.",
    "408": "The request arrived too slowly.",
    "413": "The request is too large.",
    "415": "The Content-Type is wrong.",
    "422": "The request was understood and cannot be answered: the sentence says why.",
    "429": "The queue is full, or the address has too many connections; see Retry-After.",
    "503": "The server is stopping.",
}
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
    bodies = (PredictRequest, EmbedRequest, DecisionRequest, ConvertRequest)
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
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths() -> dict[str, Any]:
    return {
        "/v1/predict": {
            "post": _post(
                "Predict", f"The records of `alembert predict --json`. {_INPUT} {_LINES}", PredictRequest, True
            )
        },
        "/v1/embed": {"post": _post("Vectors of texts", f"One vector for each text. {_LINES}", EmbedRequest, True)},
        "/v1/decisions": {
            "post": _post("Append a decision", "Only if the server has --label FILE.", DecisionRequest, False)
        },
        "/v1/labels": {"get": _get("Reviewed texts as training data", JSON_LINES)},
        "/v1/convert": {
            "post": _post(
                "Documents as a file", "The header `alembert-losses` counts what is lost.", ConvertRequest, False
            )
        },
        "/v1/models": {"get": _get("The models, their tasks and labels", JSON)},
        "/metrics": {"get": _get("Metrics for Prometheus", "text/plain")},
        "/healthz": {"get": _get("The process is alive", "text/plain", is_open=True)},
        "/readyz": {
            "get": {
                **_get("A known text is answered as at the start", "text/plain", is_open=True),
                "responses": {"200": {"description": "Ready."}, "503": {"description": "Not ready, and why."}},
            }
        },
    }


def _post(summary: str, description: str, body: type[Any], has_lines: bool) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
    answers: dict[str, Any] = {JSON: {"schema": {"type": "object"}}}
    if has_lines:
        content[JSON_LINES] = answers[JSON_LINES] = {"schema": {"type": "string"}}
    return {
        "summary": summary,
        "description": description,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": {"description": "The answers.", "content": answers}, **_refusals(_REFUSALS)},
        "security": [{"token": []}, {}],
    }


def _get(summary: str, media_type: str, *, is_open: bool = False) -> dict[str, Any]:
    answer = {"description": summary, "content": {media_type: {}}}
    security: dict[str, Any] = {} if is_open else {"security": [{"token": []}, {}]}
    return {"summary": summary, "responses": {"200": answer}, **security}


def _refusals(sentences: Mapping[str, str]) -> dict[str, Any]:
    schema = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": sentence, "content": schema} for status, sentence in sentences.items()}
