"""/v1/explain: the record of the command, admitted by what it costs, and nothing of a text in a refusal."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert.cli import run
from alembert.serve.models import is_same_answer
from serving import Client, started

TEXT = "Imatinib inhibits BCR-ABL1."
CANARY = "Zanzibarococcus"


def test_the_answer_is_that_of_the_command(client: Client, exports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = client.post("/v1/explain", {"inputs": TEXT, "model": "tagger", "span": [0, 8]})
    assert answer.status == 200, answer.body
    assert run(["inspect", "why", str(exports / "tagger"), TEXT, "--span", "0:8", "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)["explanation"]
    assert answer.json["model"] == "tagger"
    assert is_same_answer(answer.json["explanation"], expected)


def test_it_has_what_the_page_shows(client: Client) -> None:
    found = client.post("/v1/explain", {"inputs": TEXT, "model": "topics"}).json["explanation"]
    assert {"text", "question", "span", "label", "method", "margin", "words", "features", "residue"} < set(found)
    assert {"comprehensiveness", "random_sufficiency", "better_than_random"} < set(found["faithfulness"])
    assert (found["method"], found["residue"]) == ("occlusion", None)
    assert [word["text"] for word in found["words"]] == ["Imatinib", "inhibits", "BCR", "-", "ABL1", "."]


def test_a_text_with_entities_is_explained(client: Client) -> None:
    entities = [
        {"id": f"T{n}", "label": label, "spans": [[start, start + 3]]}
        for n, (label, start) in enumerate([("drug", 0), ("gene", 8)])
    ]
    answer = client.post(
        "/v1/explain", {"inputs": {"text": "Abc and ras.", "entities": entities}, "model": "relations"}
    )
    assert answer.status == 200, answer.body
    assert '0:3 "Abc"' in answer.json["explanation"]["question"]


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ({"inputs": "x", "model": CANARY}, 404, "names a model that is not here"),
        ({"inputs": TEXT, "model": "vectors"}, 422, "cannot be explained"),
        ({"inputs": CANARY, "model": "tagger", "label": CANARY}, 422, "does not have the label"),
        ({"inputs": CANARY, "model": "tagger", "task": CANARY}, 422, "name it with `task`"),
        ({"inputs": CANARY, "model": "tagger", "method": "gradients"}, 422, "has no gradients"),
        ({"inputs": CANARY, "model": "tagger", "method": CANARY}, 422, "a value that is not known"),
        ({"inputs": CANARY, "model": "tagger", "span": [100, 200]}, 422, "has no word"),
        ({"inputs": CANARY, "model": "tagger", "span": [10**30, 1]}, 422, "not known"),
        ({"inputs": CANARY, "model": "tagger", "span": [-1, 1]}, 422, "not known"),
        ({"inputs": CANARY, "model": "topics", "span": [0, 1]}, 422, "Leave the span out"),
        ({"inputs": " ", "model": "tagger"}, 422, "has no text"),
        ({"inputs": ["a", "b"], "model": "tagger"}, 422, "expected str | object"),
    ],
)
def test_what_cannot_be_explained_is_a_sentence(body: Any, status: int, part: str, client: Client) -> None:
    answer = client.post("/v1/explain", body)
    assert answer.status == status, answer.body
    assert part in answer.sentence
    assert CANARY not in answer.body.decode()


@pytest.mark.parametrize(("limit", "part"), [(10, "may need at most 10"), (300, "at most 300 are allowed")])
def test_a_text_that_costs_too_much_is_refused(limit: int, part: str, tagger: Path) -> None:
    with started(tagger, max_explain_tokens=limit) as server:
        answer = Client(server.url).post("/v1/explain", {"inputs": TEXT, "span": [0, 8]})
    assert (answer.status, part in answer.sentence) == (422, True), answer.body


def test_the_limits_of_requests_hold(tagger: Path) -> None:
    with started(tagger, max_characters=100) as server:
        assert Client(server.url).post("/v1/explain", {"inputs": "a" * 101}).status == 413


def test_it_waits_in_the_queue_like_predictions(client: Client) -> None:
    answer = client.post("/v1/explain", {"inputs": TEXT, "model": "topics"})
    assert "queue;dur=" in answer.headers["server-timing"]
    assert "/v1/explain" in client.get("/openapi.json").json["paths"]
