"""`alembert serve` against a plain web service around transformers' pipeline, over HTTP on this machine.

    python benchmarks/serve.py [--quick] [--seconds 20] [--clients 16]

Both sides serve the same tagger (MiniLM, 6x384): alembert its int8 Export, the peer the checkpoint in float32 with the
pipeline `token-classification` in a starlette route, called in a thread, as its documentation shows. Every request has one
text. Measured for both, in the same run and in turns: one client that asks again and again, many clients at once, and five
times as many requests as the service answered before, sent at a steady pace whatever comes back. Goodput is what was
answered within the time limit of the service; refusals count by how fast they come.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from annotate_material import exported, new_tagger, told
from harness import parser

from alembert import sample

LIMIT = 4.0
"""Seconds within which an answer is of use: `max_queue_seconds` of the service, and the patience of the clients."""
PEER = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route
from transformers import pipeline
find = pipeline("token-classification", model=sys.argv[1], aggregation_strategy="simple", device="cpu")
async def predict(request):
    text = (await request.json())["inputs"]
    found = await run_in_threadpool(find, text)
    return JSONResponse([{**each, "score": float(each["score"])} for each in found])
app = Starlette(routes=[Route("/v1/predict", predict, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


@dataclass
class Outcome:
    """What clients saw: seconds of answers and of refusals, and requests without either."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    failed: int = 0
    seconds: float = 0.0

    @property
    def goodput(self) -> float:
        """Answers a second that came in time."""
        return sum(seconds <= LIMIT for seconds in self.answered) / self.seconds

    def figures(self) -> dict[str, float]:
        ordered = sorted(self.answered) or [float("nan")]
        return {
            "goodput": round(self.goodput, 2),
            "p50_ms": round(1000 * median(ordered), 1),
            "p99_ms": round(1000 * ordered[int(0.99 * (len(ordered) - 1))], 1),
            "refused": len(self.refused),
            "refused_p50_ms": round(1000 * median(self.refused), 1) if self.refused else 0.0,
            "failed": self.failed,
        }


@dataclass(frozen=True)
class Target:
    """A service that runs, and the texts that it is asked."""

    port: int
    texts: Sequence[str]

    async def ask(self, number: int, outcome: Outcome) -> None:
        """Send a request on a connection of its own, and note what came of it."""
        body = json.dumps({"inputs": self.texts[number % len(self.texts)]}).encode()
        head = (
            f"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        begun = time.perf_counter()
        try:
            status = await asyncio.wait_for(self._exchange(head.encode() + body), 3 * LIMIT)
        except (OSError, TimeoutError, IndexError, ValueError):
            outcome.failed += 1
            return
        (outcome.answered if status == 200 else outcome.refused).append(time.perf_counter() - begun)

    async def _exchange(self, request: bytes) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            answer = await reader.read()
            return int(answer.split(b" ", 2)[1])
        finally:
            writer.close()

    async def closed_loop(self, clients: int, seconds: float) -> Outcome:
        """Let clients ask again as soon as they are answered."""
        outcome, begun = Outcome(), time.perf_counter()

        async def client(number: int) -> None:
            while time.perf_counter() - begun < seconds:
                await self.ask(number, outcome)
                number += clients

        await asyncio.gather(*map(client, range(clients)))
        outcome.seconds = time.perf_counter() - begun
        return outcome

    async def open_loop(self, rate: float, seconds: float) -> Outcome:
        """Send requests at a pace, whatever comes back."""
        outcome, begun, asked = Outcome(), time.perf_counter(), []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            asked.append(asyncio.create_task(self.ask(number, outcome)))
        await asyncio.gather(*asked)
        outcome.seconds = time.perf_counter() - begun
        return outcome


@contextmanager
def service(command: Sequence[str], port: int) -> Iterator[None]:
    """Run a server process until it listens, and end it."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.2)
            yield
        finally:
            process.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def make_models(folder: Path, rows: int) -> None:
    exported(new_tagger(folder / "checkpoint"), folder / "export", rows, "onnx")


def measure(target: Target, arguments: argparse.Namespace) -> dict[str, Outcome]:
    """Measure a service that runs, after a warm-up."""
    seconds, clients = arguments.seconds, arguments.clients
    asyncio.run(target.closed_loop(1, min(1.0, seconds)))
    alone = asyncio.run(target.closed_loop(1, seconds))
    together = asyncio.run(target.closed_loop(clients, seconds))
    overload = asyncio.run(target.open_loop(5 * max(alone.goodput, together.goodput, 0.2), seconds))
    return {"one client": alone, f"{clients} clients": together, "5x overload": overload}


def main() -> None:
    arguments = _arguments()
    texts = [passage.text[:400] for passage in sample.load_passages("en")]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        told("making the models")
        maker = multiprocessing.get_context("spawn").Process(target=make_models, args=(folder, 50))
        maker.start()
        maker.join()
        ports = {name: free_port() for name in ("alembert", "transformers")}
        settings = ["--set", f"max_queue_seconds={LIMIT / 2}", "--set", "max_connections_per_address=5000"]
        commands = {
            "alembert": [
                *(sys.executable, "-m", "alembert", "serve", str(folder / "export")),
                *("--port", str(ports["alembert"]), *settings),
            ],
            "transformers": [sys.executable, "-c", PEER, str(folder / "checkpoint"), str(ports["transformers"])],
        }
        outcomes = {}
        for name, command in commands.items():
            told(f"measuring {name}")
            with service(command, ports[name]):
                outcomes[name] = measure(Target(ports[name], texts), arguments)
    report(outcomes)


def report(outcomes: dict[str, dict[str, Outcome]]) -> None:
    figures = {name: {load: each.figures() for load, each in loads.items()} for name, loads in outcomes.items()}
    for name, loads in figures.items():
        for load, each in loads.items():
            print(f"{name:13} {load:12} " + ", ".join(f"{key} {value:g}" for key, value in each.items()))
    ours, theirs = (list(outcomes[name].values()) for name in ("alembert", "transformers"))
    ratios = {
        "batching": _ratio(ours[1].goodput, ours[0].goodput),
        "goodput_alone": _ratio(ours[0].goodput, theirs[0].goodput),
        "goodput_together": _ratio(ours[1].goodput, theirs[1].goodput),
        "goodput_overload": _ratio(ours[2].goodput, theirs[2].goodput),
        "overload_kept": _ratio(ours[2].goodput, ours[1].goodput),
    }
    print(json.dumps({"ratios": ratios, **figures}))


def _ratio(one: float, other: float) -> float | None:
    return round(one / other, 2) if other else None


def _arguments() -> argparse.Namespace:
    made = parser(__doc__, quick="three seconds for each load instead of twenty")
    made.add_argument("--seconds", type=float, default=20.0, help="seconds for each load")
    made.add_argument("--clients", type=int, default=16, help="clients that ask at once")
    arguments = made.parse_args()
    if arguments.quick:
        arguments.seconds = 3.0
    return arguments


if __name__ == "__main__":
    main()
