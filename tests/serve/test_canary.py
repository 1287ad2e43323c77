"""Text of users: a canary goes through every route and every refusal and shows in no answer that refuses, no log, no metric.

Script tags in texts, labels and names of folders come back as data that no browser runs.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from alembert.serve import models
from alembert.serve.server import configure_logging
from serving import JSON, LINES, Answer, Client, Gate, in_background, request_bytes, started

CANARY = "Zanzibarococcus"
SCRIPT = "<script>alert(1)</script>"
ENTITY = {"start": 0, "end": 3, "label": CANARY}
DECISION = {
    "id": CANARY,
    "text": f"{CANARY} {SCRIPT}",
    "entities": [ENTITY],
    "state": "reviewed",
    "decision": {**ENTITY, "action": "accept"},
    "by": CANARY,
}


@contextmanager
def everything_said(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Collect what any logger says, and what is written to stdout and stderr; as a server process sets its logs up."""
    said: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(logging.Formatter().format(record))

    collector = Collector()
    root = logging.getLogger()
    level = root.level
    configure_logging()
    root.addHandler(collector)
    root.setLevel(logging.DEBUG)
    try:
        yield lambda: "\n".join([*said, *capfd.readouterr()]).lower()
    finally:
        root.removeHandler(collector)
        root.setLevel(level)
        for name in ("alembert.serve", "uvicorn.error", "asyncio"):
            logging.getLogger(name).handlers.clear()
            logging.getLogger(name).propagate = True


def shown_by(answer: Answer) -> str:
    return (json.dumps(answer.headers) + answer.body.decode()).lower()


def list_routes(client: Client) -> list[tuple[str, str]]:
    paths = client.get("/openapi.json").json["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


# -- a canary through every route

WRONG_BODIES: list[Any] = [
    {CANARY: CANARY},
    {"inputs": {CANARY: CANARY}},
    {"inputs": [CANARY, 1]},
    {"inputs": CANARY, "model": CANARY},
    {"inputs": CANARY, "model": "tagger", CANARY: 1},
    {"inputs": CANARY, "model": "tagger", "min_score": CANARY},
    {"inputs": {"question": CANARY, "passage": CANARY}, "model": "pairs"},
    {"inputs": {"text": CANARY, "entities": [{"label": CANARY}]}, "model": "relations"},
    {"inputs": {"text": CANARY, "entities": CANARY}, "model": "relations"},
    {"inputs": {"text": CANARY, "id": [CANARY]}, "model": "tagger"},
    {**DECISION, "state": CANARY},
    {**DECISION, "decision": {**DECISION["decision"], "action": CANARY}},
    {**DECISION, "entities": [{**ENTITY, "end": 10_000}]},
    {**DECISION, "entities": [{**ENTITY, "label": " ", CANARY: CANARY}]},
    {"inputs": CANARY, "model": "tagger", "label": CANARY, "task": CANARY},
    {"inputs": CANARY, "model": "tagger", "method": CANARY},
    {"inputs": CANARY, "model": "tagger", "span": [500, 600]},
    {"documents": [{CANARY: CANARY}]},
    {"documents": [{"id": CANARY, "text": CANARY, "entities": [{"id": CANARY, "label": CANARY, "spans": [[3, 999]]}]}]},
    {"documents": [{"id": CANARY, "text": CANARY}], "format": CANARY},
    [CANARY],
    CANARY,
]
RIGHT_BODIES: dict[str, Any] = {
    "/v1/predict": {"inputs": {"id": CANARY, "text": CANARY}, "model": "tagger"},
    "/v1/embed": {"inputs": CANARY, "model": "vectors"},
    "/v1/explain": {"inputs": CANARY, "model": "tagger", "span": [0, 5]},
    "/v1/decisions": DECISION,
    "/v1/convert": {"documents": [{"id": CANARY, "text": CANARY}], "format": "conll"},
}


@pytest.mark.parametrize("headers", [JSON, LINES, {}], ids=["json", "lines", "no type"])
def test_no_route_repeats_what_it_refuses(
    headers: dict[str, str], exports: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = [exports / name for name in ("tagger", "pairs", "relations", "vectors")]
    with everything_said(capfd) as said, started(*folders, label=tmp_path / "labels.jsonl") as server:
        client = Client(server.url)
        bodies = [json.dumps(each).encode() for each in WRONG_BODIES]
        bodies += [CANARY.encode(), f'{{"{CANARY}'.encode(), b"\xff" + CANARY.encode()]
        for method, path in list_routes(client):
            for body in bodies if method == "POST" else [None]:
                address = f"{path}?model={CANARY}&min_score={CANARY}&{CANARY}={CANARY}"
                answer = client.ask(method, address, body, {**headers, "cookie": CANARY, "x-note": CANARY})
                assert answer.status < 500, (path, body)
                assert CANARY.lower() not in shown_by(answer), (path, body)
        assert CANARY.lower() not in shown_by(client.get("/metrics")) + said()


def test_what_is_answered_is_in_no_log_and_no_metric(
    exports: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = [exports / name for name in ("tagger", "vectors")]
    with everything_said(capfd) as said, started(*folders, label=tmp_path / "labels.jsonl") as server:
        client = Client(server.url)
        assert {path for method, path in list_routes(client) if method == "POST"} == RIGHT_BODIES.keys()
        for path, body in RIGHT_BODIES.items():
            assert client.post(f"{path}?{CANARY}={CANARY}", body).status == 200, path
        assert CANARY in client.get("/v1/labels").body.decode()
        assert CANARY.lower() not in shown_by(client.get("/metrics")) + said()


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("models.Embedding.compute", "/v1/embed"),
        ("models.Explaining.prepare", "/v1/explain"),
        ("models.Explaining.compute", "/v1/explain"),
        ("labels.LabelFile.append", "/v1/decisions"),
        ("labels.LabelFile.read_reviewed", "/v1/labels"),
        ("app.export_records", "/v1/convert"),
        ("app.decode", "/v1/predict"),
    ],
)
def test_a_bug_behind_any_route_repeats_nothing(
    place: str,
    path: str,
    exports: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: Any, **more: Any) -> Any:
        raise ValueError(f"cannot compute {CANARY}") from KeyError(CANARY)

    folders = [exports / name for name in ("tagger", "vectors")]
    with everything_said(capfd) as said:
        with started(*folders, label=tmp_path / "labels.jsonl") as server:
            monkeypatch.setattr(f"alembert.serve.{place}", fail)
            client = Client(server.url)
            refused = client.get(path) if path == "/v1/labels" else client.post(path, RIGHT_BODIES[path])
            assert refused.status == 500, refused.body
            shown = shown_by(refused) + shown_by(client.get("/metrics"))
        everything = said()
        assert "valueerror at" in everything
        assert CANARY.lower() not in everything + shown


def test_no_refusal_repeats_the_request(tagger: Path, capfd: pytest.CaptureFixture[str]) -> None:
    limits = {"max_body_bytes": 2000, "max_characters": 100, "max_texts": 2, "receive_seconds": 0.3}
    with everything_said(capfd) as said, started(tagger, token=f"{CANARY}-is-secret", **limits) as server:
        client = Client(server.url)
        pass_on = {"authorization": f"Bearer {CANARY}-is-secret", **JSON}
        lines = [
            f"POST /v1/predict?{CANARY} HTTP/1.1",
            "host: localhost",
            *(": ".join(each) for each in pass_on.items()),
        ]
        head = "".join(f"{line}\r\n" for line in lines).encode()
        refused = [
            client.get(f"/{CANARY}", **pass_on),
            client.get("/v1/models", authorization=f"Bearer {CANARY}"),
            client.get("/v1/models", authorization=CANARY),
            client.get("/v1/models", host=f"{CANARY}.example"),
            client.get("/v1/models", origin=f"http://{CANARY}.example", **pass_on),
            client.ask("DELETE", f"/v1/predict?{CANARY}", None, pass_on),
            client.ask("POST", "/v1/predict", CANARY, {**pass_on, "content-type": CANARY}),
            client.post("/v1/predict", {"inputs": f"{CANARY} " * 100}, **pass_on),
            client.post("/v1/predict", {"inputs": f"{CANARY} " * 10}, **pass_on),
            client.post("/v1/predict", {"inputs": [CANARY] * 3}, **pass_on),
            client.post("/v1/decisions", DECISION, **pass_on),
            client.get("/v1/labels", **pass_on),
        ]
        raw = [
            client.raw(head + b"content-length: 100\r\n\r\n" + CANARY.encode()),  # too slow
            client.raw(head + b"x-long: " + CANARY.encode() * 4000),
            client.raw(f"{CANARY} {CANARY}\r\n\r\n".encode()),
        ]
        assert [each.status for each in refused] == [404, 401, 401, 421, 403, 405, 415, 413, 413, 413, 404, 404]
        assert [int(each[9:12]) for each in raw] == [408, 431, 400]
        shown = "".join(map(shown_by, [*refused, client.get("/metrics", **pass_on)]))
        assert CANARY.lower() not in shown + b"".join(raw).decode().lower() + said()


def test_a_bug_a_full_queue_and_a_stop_repeat_nothing(
    tagger: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    compute = models.Prediction.compute

    def fail(self: models.Prediction, examples: Any) -> Any:
        compute(self, examples)
        if any(CANARY in text for example in examples for each in example.values() for text in each.texts):
            raise ValueError(f"cannot compute {CANARY}") from KeyError(CANARY)
        return compute(self, examples)

    with everything_said(capfd) as said:
        with started(tagger, max_queue_seconds=0.000001) as server:
            monkeypatch.setattr(models.Prediction, "compute", fail)
            client = Client(server.url)
            refused = [client.predict(CANARY), client.ask("POST", "/v1/predict", json.dumps(CANARY).encode(), LINES)]
            assert refused[0].status == 500
            assert refused[1].lines[0]["error"]["kind"] == "bug"
            gate.close()
            first = in_background(client.predict, CANARY)
            gate.wait_for_batch()
            refused.append(client.predict(CANARY))
            assert refused[-1].status == 429
            with client.open() as gone:
                gone.sendall(request_bytes(json.dumps({"inputs": CANARY}).encode()))
            service = server._server._service
            service.is_stopping = True
            refused.append(client.predict(CANARY))
            assert refused[-1].status == 503
            service.is_stopping = False
            refused.append(client.get("/metrics"))
            gate.is_open.set()
            refused.append(first.result)
        everything = said()
        assert "valueerror at" in everything
        assert CANARY.lower() not in everything + "".join(map(shown_by, refused))


def test_labels_that_cannot_be_saved_are_refused_without_them(
    tagger: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "labels.jsonl"
    with everything_said(capfd) as said, started(tagger, label=file) as server:
        file.unlink()
        file.mkdir()
        client = Client(server.url)
        refused = [client.post("/v1/decisions", DECISION), client.get("/v1/labels")]
        assert [each.json["error"]["kind"] for each in refused] == ["bad_input", "bad_input"]
        assert CANARY.lower() not in "".join(map(shown_by, refused)) + said()


# -- script tags


@pytest.fixture
def scripted(tagger: Path, tmp_path: Path) -> Iterator[Client]:
    """A service whose model is in a folder with a tag in its name, and keeps a label that is one."""
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    shutil.copytree(tagger, folder)
    with started(folder, label=tmp_path / "labels.jsonl") as server:
        client = Client(server.url)
        entity = {**ENTITY, "label": SCRIPT}
        saved = {**DECISION, "id": SCRIPT, "entities": [entity], "decision": {**entity, "action": "add"}}
        assert client.post("/v1/decisions", saved).status == 200
        yield client


@pytest.mark.parametrize(
    ("ask", "tag"),
    [
        (lambda client: client.predict(SCRIPT), SCRIPT),
        (lambda client: client.predict({"id": SCRIPT, "text": "Fever."}), SCRIPT),
        (lambda client: client.ask("POST", "/v1/predict", json.dumps(SCRIPT).encode(), LINES), SCRIPT),
        (lambda client: client.post("/v1/explain", {"inputs": SCRIPT, "span": [0, 7]}), SCRIPT),
        (lambda client: client.get("/v1/labels"), SCRIPT),
        (lambda client: client.get("/v1/models"), "<img"),
    ],
    ids=["text", "id", "line", "why", "labels", "folder"],
)
def test_tags_come_back_as_data(ask: Callable[[Client], Answer], tag: str, scripted: Client) -> None:
    answer = ask(scripted)
    assert tag in answer.body.decode()
    assert re.fullmatch(r"application/(json|x-ndjson)(; charset=utf-8)?", answer.headers["content-type"])
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


SCRIPTED = {"id": SCRIPT, "text": SCRIPT, "entities": [{"id": "T1", "label": SCRIPT, "spans": [[0, 3]]}]}


@pytest.mark.parametrize("name", ["jsonl", "brat", "pubtator", "conll", "label-studio", "bioc-json", "bioc-xml"])
def test_files_with_tags_are_saved_and_not_shown(name: str, scripted: Client) -> None:
    for answer in (
        scripted.post("/v1/convert", {"documents": [SCRIPTED], "format": name}),
        scripted.get(f"/v1/labels?format={name}"),
    ):
        assert answer.status == 200, answer.body
        assert "html" not in answer.headers["content-type"]
        assert answer.headers["content-disposition"].startswith("attachment; ")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "<" not in json.dumps(answer.headers)


def test_no_page_holds_what_users_sent(scripted: Client) -> None:
    for path in ("/", f"/{SCRIPT}", f"/page/{SCRIPT}", f"/?q={SCRIPT}"):
        answer = scripted.get(path.replace(" ", "%20"))
        assert SCRIPT not in answer.body.decode()
