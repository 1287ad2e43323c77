"""The routes: answers are those of the command, and what cannot be answered is a sentence without text of the user."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from alembert.cli import run
from alembert.serve.models import is_same_answer
from alembert.serve.server import configure_logging
from serving import LINES, Client, Gate, in_background, request_bytes, started

TEXTS = ["Imatinib inhibits BCR-ABL1.", "咳嗽和发热 😀 after aspirin, " * 20, "x"]
CANARY = "Zanzibarococcus"


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Any]:
    """What `alembert predict --json` prints."""
    assert run(["predict", *map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


# -- answers


@pytest.mark.parametrize("name", ["tagger", "topics", "vectors"])
def test_answers_are_those_of_the_command(
    name: str, client: Client, exports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = client.predict(TEXTS, model=name)
    assert answer.status == 200
    assert answer.json["model"] == name
    assert is_same_answer(answer.json["predictions"], command(capsys, exports / name, *TEXTS))


def test_a_pair_is_answered_as_by_the_command(
    client: Client, exports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (expected,) = command(capsys, exports / "pairs", "No fever.\tFever.")
    (tabbed,) = client.predict("No fever.\tFever.", model="pairs").json["predictions"]
    (listed,) = client.predict({"texts": ["No fever.", "Fever."]}, model="pairs").json["predictions"]
    assert is_same_answer(tabbed, expected)
    assert is_same_answer(listed["probabilities"], expected["probabilities"])


def test_a_text_with_entities_has_relations(client: Client) -> None:
    entities = [
        {"id": f"T{n}", "label": label, "spans": [[start, start + 3]]}
        for n, (label, start) in enumerate([("drug", 0), ("gene", 8)])
    ]
    answer = client.predict({"id": "q", "text": "Abc and ras.", "entities": entities}, model="relations")
    assert answer.status == 200, answer.body
    assert answer.json["predictions"][0]["id"] == "q"


def test_nothing_is_truncated(client: Client) -> None:
    text = "fever and cough " * 500
    (record,) = client.predict(text, model="tagger").json["predictions"]
    assert record["coverage"]["characters"] == len(text)
    assert record["coverage"]["windows"] > 100
    assert record["text"] == text


def test_offsets_count_code_points(client: Client) -> None:
    text = "😀 咳嗽 imatinib 👩‍⚕️ inhibits bcr-abl1 🧬."
    (record,) = client.predict(text, model="tagger").json["predictions"]
    assert record["entities"]
    assert all(text[each["start"] : each["end"]] == each["text"] for each in record["entities"])


def test_json_lines_are_answered_line_by_line(client: Client) -> None:
    lines = [json.dumps(TEXTS[0]), '{"id": "mine", "text": "Fever."}', "nonsense", "", '""', json.dumps(TEXTS[2])]
    answer = client.ask("POST", "/v1/predict?model=tagger", "\n".join(lines).encode(), LINES)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    first, named, wrong, blank, last = answer.lines
    (alone,) = client.predict(TEXTS[0], model="tagger").json["predictions"]
    assert is_same_answer(first, alone)
    assert (named["id"], last["text"]) == ("mine", "x")
    assert wrong["error"]["message"] == "Line 3 is neither a JSON string nor a JSON object in UTF-8."
    assert blank["error"]["message"] == "Input 4 has no text: it is empty or blank."


def test_vectors_are_those_of_the_embedder(client: Client, exports: Path) -> None:
    import alembert

    answer = client.post("/v1/embed", {"model": "vectors", "inputs": TEXTS})
    expected = alembert.load(exports / "vectors").encode(TEXTS)
    assert is_same_answer([each["vector"] for each in answer.json["embeddings"]], expected.tolist())
    assert answer.json["embeddings"][1]["coverage"]["characters"] == len(TEXTS[1])


def test_thresholds_withhold_and_count(client: Client) -> None:
    (whole,) = client.predict(TEXTS[0], model="tagger").json["predictions"]
    (record,) = client.predict(TEXTS[0], model="tagger", min_score=1.0).json["predictions"]
    assert record["entities"] == []
    assert record["coverage"]["withheld"] == len(whole["entities"]) > 0


def test_times_are_in_the_answer(client: Client) -> None:
    timing = client.predict(TEXTS, model="tagger").headers["server-timing"]
    assert [part.partition(";")[0] for part in timing.split(", ")] == ["queue", "tokenise", "compute"]


def test_models_are_described(client: Client) -> None:
    models = {each["name"]: each for each in client.get("/v1/models").json["models"]}
    assert set(models) == {"tagger", "topics", "pairs", "vectors", "relations"}
    assert models["tagger"]["tasks"][0]["labels"] == ["chemical", "disease", "gene"]
    assert [name for name, each in models.items() if each["embeds"]] == ["vectors"]


def test_the_openapi_document_has_every_route(client: Client) -> None:
    document = client.get("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert {"/v1/predict", "/v1/embed", "/v1/models", "/healthz", "/readyz", "/metrics"} <= set(document["paths"])
    references = {text for text in json.dumps(document).split('"') if text.startswith("#/")}
    assert {text.rpartition("/")[2] for text in references} <= set(document["components"]["schemas"])


def test_metrics_count_by_route_and_status(client: Client) -> None:
    client.predict("x", model="tagger")
    lines = client.get("/metrics").body.decode().splitlines()
    assert any(line.startswith('alembert_requests_total{route="/v1/predict",status="200"}') for line in lines)
    for line in lines:
        name, _, value = line.rpartition(" ")
        assert line.startswith("# ") or (name.startswith("alembert_") and float(value) >= 0)


# -- refusals


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ({"inputs": "x"}, 404, "Set `model` to one of: tagger"),
        ({"inputs": "x", "model": CANARY}, 404, "names a model that is not here"),
        ({"model": "tagger"}, 422, "has no `inputs`"),
        ({"inputs": [1], "model": "tagger"}, 422, "`inputs[0]` of the request is of type int; expected str | object"),
        ({"inputs": "x", "model": "tagger", CANARY: 1}, 422, "not known. The fields are inputs, model"),
        ({"inputs": [], "model": "tagger"}, 422, "has no inputs"),
        ({"inputs": ["x", " "], "model": "tagger"}, 422, "Input 2 has no text"),
        ({"inputs": [{CANARY: "x"}], "model": "tagger"}, 422, "Input 1 has a key that no task reads"),
        ({"inputs": {"question": CANARY}, "model": "tagger"}, 422, "Input 1 is an object with question"),
        ({"inputs": {"text": 3}, "model": "tagger"}, 422, "has no text as `text`"),
        ({"inputs": {"text": "x", "id": 3}, "model": "tagger"}, 422, "`id` that is no string"),
        ({"inputs": {"text": "x", "entities": CANARY}, "model": "relations"}, 422, "text, entities"),
        ({"inputs": "x", "model": "tagger", "min_score": 7}, 422, "`min_score` is 7"),
        (f'{{"{CANARY}'.encode(), 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(body: Any, status: int, part: str, client: Client) -> None:
    answer = client.post("/v1/predict", body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert part in answer.sentence
    assert CANARY not in answer.body.decode()


def test_vectors_of_a_tagger_are_refused(client: Client) -> None:
    answer = client.post("/v1/embed", {"inputs": "x", "model": "tagger"})
    assert answer.status == 422
    assert "makes no vectors" in answer.sentence


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", f"/{CANARY}", {}, 404),
        ("GET", "/page/..%2f..%2fapp.py", {}, 404),
        ("DELETE", "/v1/predict", {}, 405),
        ("OPTIONS", "/v1/predict", {"origin": "http://elsewhere.example"}, 403),
        ("POST", "/v1/predict", {"content-type": "text/plain"}, 415),
        ("POST", "/v1/predict", {}, 415),
        ("GET", "/v1/models", {"host": "elsewhere.example"}, 421),
        ("GET", "/v1/models", {"host": "127.0.0.1.elsewhere.example"}, 421),
        ("POST", "/v1/predict", {"content-type": "application/json", "origin": "http://elsewhere.example"}, 403),
        ("POST", "/v1/decisions", {"content-type": "application/json"}, 404),
        ("GET", "/v1/labels", {}, 404),
    ],
)
def test_refusals_are_json(method: str, path: str, headers: dict[str, str], status: int, client: Client) -> None:
    answer = client.ask(method, path, None, headers)
    assert answer.status == status
    assert answer.sentence
    assert CANARY not in answer.body.decode()
    assert "access-control-allow-origin" not in answer.headers


def test_every_answer_has_a_strict_policy(client: Client) -> None:
    for answer in (client.get("/"), client.get("/nowhere"), client.get("/v1/models"), client.get("/healthz")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_token_is_asked_for(tagger: Path) -> None:
    token = "0123456789abcdef0123"
    with started(tagger, token=token) as server:
        client = Client(server.url)
        assert [client.get(path).status for path in ("/", "/healthz", "/readyz", "/openapi.json")] == [200] * 4
        for wrong in (
            {},
            {"authorization": f"Bearer {token}x"},
            {"authorization": token},
            {"authorization": "Bearer "},
        ):
            refused = client.get("/v1/models", **wrong)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert client.get("/metrics", **wrong).status == 401
        assert client.post("/v1/predict", {"inputs": "x"}, authorization=f"bearer {token}").status == 200


# -- limits


def test_limits_are_checked_before_work_is_done(tagger: Path) -> None:
    with started(tagger, max_body_bytes=2000, max_characters=100, max_texts=3) as server:
        client = Client(server.url)
        assert "100" in client.predict("a" * 101).sentence
        assert "at most 3" in client.predict(["a"] * 4).sentence
        assert client.ask("POST", "/v1/predict", b'"a"\n' * 4, LINES).status == 413
        declared = client.raw(request_bytes(b"", length=5000))
        assert declared.startswith(b"HTTP/1.1 413")  # without waiting for the body
        head = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        chunked = client.raw(head + b"transfer-encoding: chunked\r\n\r\nbb8\r\n" + b"a" * 3000 + b"\r\n")
        assert chunked.startswith(b"HTTP/1.1 413")
        assert client.predict("a" * 100).status == 200


def test_the_first_vectors_find_their_graph_compiled(exports: Path) -> None:
    with started(exports / "vectors") as server:
        embedder = server._server._service.models["vectors"].embedder
        assert embedder is not None
        assert embedder.vector_engine.engine.graph._compiled


def test_a_full_queue_refuses_at_once_and_says_when_to_return(tagger: Path, gate: Gate) -> None:
    with started(tagger, max_queue_seconds=0.000001) as server:
        client = Client(server.url)
        gate.close()
        first = in_background(client.predict, "Fever.")
        gate.wait_for_batch()
        refused = client.predict("Cough.")
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "Send it again in" in refused.sentence
        assert [client.get(path).status for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
        gate.is_open.set()
        assert first.result.status == 200
        assert client.predict("Cough.").status == 200


def test_a_client_that_goes_away_frees_its_place(tagger: Path, gate: Gate) -> None:
    with started(tagger, batch_tokens=1) as server:
        client = Client(server.url)
        gate.close()
        lanes = [in_background(client.predict, "Fever.") for _ in range(2)]
        for _ in lanes:
            gate.wait_for_batch()
        with client.open() as gone:
            gone.sendall(request_bytes(b'{"inputs": ["a", "b", "c"]}'))
            wait_until(lambda: metric(client, "queue_inputs") == 3)
        wait_until(lambda: metric(client, "queue_inputs") == 0)
        gate.is_open.set()
        assert [lane.result.status for lane in lanes] == [200, 200]
        assert metric(client, "cancelled_total") == 1
        wait_until(lambda: metric(client, "queue_tokens") == 0)


def metric(client: Client, name: str) -> float:
    lines = client.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"alembert_{name} "))


def wait_until(condition: Any) -> None:
    """Ask the server until it has noticed; each question is a round trip, so that nothing depends on its speed."""
    assert any(condition() for _ in range(100_000))


def test_requests_that_wait_are_joined(tagger: Path, gate: Gate) -> None:
    with started(tagger) as server:
        client = Client(server.url)
        gate.close()
        lanes = []
        for _ in range(2):
            lanes.append(in_background(client.predict, "Fever."))
            gate.wait_for_batch()
        waiting = [in_background(client.predict, text) for text in TEXTS]
        wait_until(lambda: metric(client, "queue_inputs") == 3)
        gate.is_open.set()
        records = [each.result.json["predictions"][0] for each in waiting]
        assert sorted(gate.batches) == [1, 1, 3]
        assert is_same_answer([{**record, "id": ""} for record in records], named(client.predict(TEXTS).json))


def named(answer: Any) -> list[Any]:
    return [{**record, "id": ""} for record in answer["predictions"]]


def test_readiness_compares_a_known_answer(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembert.serve.service import Service

    services = []
    start = Service.start

    async def remember(self: Service) -> None:
        services.append(self)
        await start(self)

    monkeypatch.setattr(Service, "start", remember)
    with started(tagger, probe_seconds=0.01) as server:
        client = Client(server.url)
        assert client.get("/readyz").status == 200
        services[0].readiness._expected["tagger"] = {"something": "else"}
        wait_until(lambda: client.get("/readyz").status == 503)
        assert b"otherwise than at the start" in client.get("/readyz").body
        assert client.get("/healthz").status == 200


# -- poison and privacy


def test_poisoned_requests_leave_the_next_answers_as_they_were(tagger: Path) -> None:
    with started(tagger) as server:
        client = Client(server.url)
        before = client.predict(TEXTS).json
        poison: list[tuple[bytes, int]] = [
            (json.dumps({"inputs": "a" * 7_000_000}).encode(), 413),
            (json.dumps({"inputs": "a" * 500_000}).encode(), 200),
            (b'{"inputs": "a\\u0000b"}', 200),
            (b'{"inputs": "\\ud800"}', 400),
            (b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422),
            (b'{"inputs": {"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", 400),
            (b"\x00" * 1000, 400),
        ]
        for body, status in poison:
            assert client.post("/v1/predict", body).status == status, body[:40]
            assert is_same_answer(client.predict(TEXTS).json, before)
        assert client.raw(request_bytes(b"", length=10_000_000)).startswith(b"HTTP/1.1 413")
        assert client.get("/readyz").status == 200


def test_a_bug_in_a_model_is_an_answer_and_spoils_nothing(
    tagger: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from alembert.serve import models

    compute = models.Prediction.compute

    def fail(self: models.Prediction, examples: Any) -> Any:
        if any(CANARY in text for example in examples for each in example.values() for text in each.texts):
            raise ValueError(f"cannot compute {CANARY}")
        return compute(self, examples)

    configure_logging()
    try:
        with started(tagger) as server:
            monkeypatch.setattr(models.Prediction, "compute", fail)
            client = Client(server.url)
            refused = client.predict(["Fever.", CANARY])
            assert (refused.status, refused.sentence[:17]) == (500, "Input 2: The mode")
            good, bad = client.ask("POST", "/v1/predict", f'"Fever."\n"{CANARY}"\n'.encode(), LINES).lines
            assert (good["text"], bad["error"]["kind"]) == ("Fever.", "bug")
    finally:
        for name in ("alembert.serve", "uvicorn.error", "asyncio"):
            logging.getLogger(name).handlers.clear()
    logged = "".join(capfd.readouterr())
    assert "ValueError at" in logged
    assert CANARY not in logged + refused.body.decode()
