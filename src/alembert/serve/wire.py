"""The bodies of requests and answers: JSON and JSON lines, read by msgspec with a sentence for whatever is wrong.

msgspec repeats names of unknown fields and values of enumerations, which may be text of a user. A message of it is passed on
only if it names nothing but types and the places of fields that we know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from alembert.errors import UserError
from alembert.serve.models import ServiceInput

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
_SAFE: Final = re.compile(
    r"Expected `[\w |]+`, got `\w+`( - at `\$[\w.\[\]0-9]*`)?|Object missing required field `\w+`.*"
)
_PLACE: Final = re.compile(r"\$(\.\w+)?(\[\d+\])?")
_encoder: Final = msgspec.json.Encoder()


class RequestProblem(UserError):
    """A request that is refused: a status, a word for programs, and a sentence for people."""

    def __init__(self, status: int, kind: str, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.kind = kind
        self.headers = headers or {}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"error": {"kind": self.kind, "message": str(self)}}


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What /v1/predict reads."""

    inputs: str | dict[str, Any] | list[str | dict[str, Any]]
    """A text, an object such as {"question": ..., "passage": ...}, or a list of either."""
    model: str | None = None
    """Name of the model; not needed if the server has one."""
    min_score: float | None = None
    """Withhold and count answers below this score, from 0 to 1."""
    min_precision: float | None = None
    """Withhold and count answers below the score that reached this precision on the development data."""


class EmbedRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What /v1/embed reads."""

    inputs: str | list[str]
    """A text, or a list of texts."""
    model: str | None = None
    """Name of the model; not needed if the server has one."""


_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class ExplainRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What /v1/explain reads."""

    inputs: str | dict[str, Any]
    """A text, or an object as for /v1/predict."""
    model: str | None = None
    """Name of the model; not needed if the server has one."""
    span: tuple[_Offset, _Offset] | None = None
    """Characters of the entity or answer to explain; by default the one that the model is least sure of."""
    label: str | None = None
    """Its type, or the label of the text."""
    method: Literal["gradients", "occlusion"] | None = None
    """By default gradients for Checkpoints, and occlusion for Exports, which have no gradients."""
    task: str | None = None
    """Name of the task; not needed if the model has one."""


class DecisionRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What /v1/decisions reads: a text as its reader has corrected it, and the last decision."""

    id: str
    """Name of the text; the last record of a name counts."""
    text: str
    entities: list[DecidedEntity]
    """The entities that are right, by now."""
    state: str
    """`open` while entities wait for a decision, `reviewed` if none does."""
    decision: Decision
    by: str = ""
    """Who decided."""
    also: list[Decision] = []
    """Further decisions that were made in the same step."""


class DecidedEntity(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An entity of a corrected text; offsets count characters (Unicode code points)."""

    start: int
    end: int
    label: str


class Decision(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What was done with an entity."""

    action: str
    """accept, reject, relabel, add or undo."""
    start: int
    end: int
    label: str
    model: str = ""


class ConvertRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What /v1/convert reads: annotated documents, and the format of the file that is wanted."""

    documents: list[dict[str, Any]]
    """Records of the native annotation format: `id`, `text`, `entities` and more (docs/formats.md)."""
    format: str = "jsonl"
    """jsonl, brat (a zip file), pubtator, conll, label-studio, bioc-json or bioc-xml."""


Body = TypeVar("Body", PredictRequest, EmbedRequest, ExplainRequest, DecisionRequest, ConvertRequest)


def decode(body: bytes, kind: type[Body]) -> Body:
    """Read a body, or refuse it with a sentence that repeats nothing of it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as problem:
        raise RequestProblem(422, "bad_request", _explain(str(problem), kind)) from None
    except RecursionError:
        raise RequestProblem(400, "bad_json", "The JSON of the request is nested too deeply to be read.") from None
    except (msgspec.DecodeError, UnicodeError):
        raise RequestProblem(
            400,
            "bad_json",
            "The body of the request is not JSON in UTF-8. Send one JSON object; escape quotes and controls.",
        ) from None


def _explain(message: str, kind: type[Any]) -> str:
    fields = ", ".join(kind.__struct_fields__)
    advice = f"The fields are {fields}; /openapi.json describes them."
    if not _SAFE.fullmatch(message):
        return f"The request has a field or a value that is not known. {advice}"
    missing = re.search(r"missing required field `(\w+)`", message)
    if missing:
        return f"The request has no `{missing[1]}`. {advice}"
    types = re.match(r"Expected `([\w |]+)`, got `(\w+)`", message)
    place = _PLACE.search(message)
    where = place[0].lstrip("$.") if place else ""
    assert types is not None
    return f"{f'`{where}` of the request' if where else 'The request'} is of type {types[2]}; expected {types[1]}. {advice}"


@dataclass(frozen=True)
class BadLine:
    """Stands for a line that is neither a text nor an object."""

    problem: str


def decode_lines(body: bytes) -> list[ServiceInput | BadLine]:
    """Read JSON lines: on each a text or an object; empty lines are left out."""
    return [_decode_line(line) for line in body.split(b"\n") if line.strip()]


def _decode_line(line: bytes) -> ServiceInput | BadLine:
    try:
        return msgspec.json.decode(line, type=str | dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return BadLine("is neither a JSON string nor a JSON object in UTF-8.")


def encode(answer: Any) -> bytes:
    """Write an answer as JSON; numbers that JSON does not have become null."""
    return _encoder.encode(answer)


def encode_line(answer: Any) -> bytes:
    """Write an answer as a line of JSON."""
    return _encoder.encode(answer) + b"\n"


def list_inputs(inputs: Any) -> Sequence[ServiceInput]:
    """Return the inputs of a request as a list."""
    return inputs if isinstance(inputs, list) else [inputs]
