"""schemathesis asks the service thousands of questions made of its OpenAPI document, right ones and wrong ones.

No answer is a server error, and each has a status, a type and a body that the document says.
"""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from serving import PATIENCE, started

pytestmark = pytest.mark.slow
schemathesis = pytest.importorskip("schemathesis")
conformance = pytest.importorskip("schemathesis.specs.openapi.checks")

CHECKS = [
    schemathesis.checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
QUESTIONS = {"POST": 950, "GET": 10}
"""For each route, type of body and kind of question; a GET has nothing that could be varied but headers."""
LEAST = 5000


def test_no_question_of_the_document_is_a_server_error(exports: Path, tmp_path: Path) -> None:
    statuses: Counter[int] = Counter()
    with started(exports / "tagger", exports / "vectors", label=tmp_path / "labels.jsonl") as server:
        document = schemathesis.openapi.from_url(f"{server.url}openapi.json")
        for operation in (each.ok() for each in document.get_all_operations()):
            model = "vectors" if operation.path == "/v1/embed" else "tagger"
            for mode in MODES if operation.method == "post" else MODES[:1]:
                ask_all(operation, mode, QUESTIONS[operation.method.upper()], model, statuses)
    print(f"{statuses.total()} questions, by status: {dict(statuses)}")
    assert statuses.total() >= LEAST
    assert statuses[200] > 0
    assert statuses[422] > 0


def ask_all(operation, mode, number: int, model: str, statuses: Counter[int]) -> None:
    """Ask questions for a route; the same ones in every run. Right ones name a model that is there."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[*HealthCheck],
    )
    def ask(case) -> None:
        if mode == MODES[0] and isinstance(case.body, dict) and "inputs" in case.body:
            case.body["model"] = model
        if mode == MODES[0] and "model" in (case.query or {}):
            case.query["model"] = model
        response = case.call(timeout=PATIENCE)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    ask()
