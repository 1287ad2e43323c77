"""The recipe of Ray Serve: two replicas on this machine answer as the model does, refuse what is no text, and outlive a kill."""

import os
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
pytest.importorskip("ray", reason="ray is not installed: pip install 'ray[serve]'")
pytest.importorskip("fastapi", reason="ray is installed without ray[serve]")

RECIPE = Path(__file__).parents[2] / "recipes" / "ray-serve"
PATIENT = {"RAY_worker_register_timeout_seconds": "600", "RAY_raylet_start_wait_time_s": "600"}
"""Ray gives up after a minute otherwise, in which a busy machine may not have started its processes."""
TEXTS = [f"Imatinib inhibits BCR-ABL1, and aspirin {number} fevers." for number in range(60)]


@pytest.fixture(scope="module")
def service(tagger: Path) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    command = [sys.executable, str(RECIPE), str(tagger), "--replicas", "2", "--cpus", "0.5", "--port", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | PATIENT
    ) as process:
        assert process.stdout is not None
        address = next((line.strip() for line in process.stdout if line.startswith("http")), None)
        assert address is not None, "the recipe ended before it served; run it to see why"
        yield process, Client(address)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


@pytest.fixture
def replicas(service: tuple[subprocess.Popen[str], Client]) -> Client:
    return service[1]


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


def test_answers_go_on_when_a_replica_is_killed(service: tuple[subprocess.Popen[str], Client], tagger: Path) -> None:
    process, client = service
    first, second = replica_processes(process.pid)
    os.kill(first, signal.SIGKILL)
    (document,) = alembert.load(tagger).predict(TEXTS[:1])
    seen = set()
    for _ in range(100_000):
        answer = client.post("/", {"inputs": TEXTS[0]})
        if answer.status == 200:  # a request that the dead replica had is an error, which its client repeats
            seen.add(answer.headers["x-replica"])
            (record,) = answer.json["predictions"]
            assert is_same_answer({**record, "id": ""}, {**document.to_dict(), "id": ""})
        if len(seen) >= 2 and len(now := replica_processes(process.pid)) == 2:
            assert second in now
            assert first not in now
            return
    raise AssertionError("no replica was started in place of the one that was killed")


def replica_processes(root: int) -> list[int]:
    """Return the processes of replicas below a process."""
    numbers = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    return [number for number in numbers if is_below(number, root) and b"ServeReplica" in read(number, "cmdline")]


def is_below(number: int, root: int) -> bool:
    while number > 1:
        if number == root:
            return True
        status = read(number, "status").decode()
        number = int(status.partition("PPid:")[2].split()[0]) if status else 0
    return False


def read(number: int, name: str) -> bytes:
    """Read what the system says of a process; nothing if it has ended."""
    try:
        return Path(f"/proc/{number}/{name}").read_bytes()
    except OSError:
        return b""
