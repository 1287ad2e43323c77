"""The recipe of Ray Serve: two replicas on this machine answer as the model does, and refuse what is no text."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import alembert
from alembert.serve.models import is_same_answer
from serving import Client

pytestmark = pytest.mark.slow
pytest.importorskip("ray")
pytest.importorskip("fastapi", reason="ray is installed without ray[serve]")

RECIPE = Path(__file__).parents[2] / "recipes" / "ray-serve"
TEXTS = [f"Imatinib inhibits BCR-ABL1, and aspirin {number} fevers." for number in range(60)]


@pytest.fixture(scope="module")
def replicas(tagger: Path) -> Iterator[Client]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    command = [sys.executable, str(RECIPE), str(tagger), "--replicas", "2", "--cpus", "0.5", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        assert service.stdout is not None
        yield Client(next(line.strip() for line in service.stdout if line.startswith("http")))
        service.send_signal(signal.SIGTERM)
        assert service.wait(120) == 0


def test_two_replicas_answer_as_the_model_does(replicas: Client, tagger: Path) -> None:
    with ThreadPoolExecutor(20) as clients:
        answers = [*clients.map(lambda text: replicas.post("/", {"inputs": text}), TEXTS)]
    assert {answer.status for answer in answers} == {200}
    assert len({answer.headers["x-replica"] for answer in answers}) == 2
    expected = [document.to_dict() for document in alembert.load(tagger).predict(TEXTS)]
    for answer, document in zip(answers, expected, strict=True):
        (record,) = answer.json["predictions"]
        assert is_same_answer({**record, "id": ""}, {**document, "id": ""})


@pytest.mark.parametrize(
    "body", [b"{", b'{"inputs": []}', b'{"inputs": " "}', b'{"inputs": ["a", 1]}', b'{"inputs": "\\ud800"}']
)
def test_what_is_no_text_is_refused(body: bytes, replicas: Client) -> None:
    refused = replicas.post("/", body)
    assert refused.status == 422
    assert "inputs" in refused.sentence
