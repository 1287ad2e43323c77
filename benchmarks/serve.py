"""`alembert serve` under load, beside a plain service of FastAPI and transformers' pipeline, over HTTP on this machine.

    python benchmarks/serve.py [--quick] [--seconds 60] [--minutes 10] [--only load|alone]

Both sides serve the same tagger (MiniLM, 6x384, with a head of random weights): alembert its int8 Export with one process, the
peer (`serve_peer.py`) the checkpoint in float32 with `pipeline("token-classification")` in FastAPI's threads. The models are
made once, in `--cache`. A request is one abstract of NCBI-disease, or, for `batching`, one sentence. The load generator
(`serve_load.py`) is a process of its own.

Both are measured in turns: one client; 8, 32 and 128 clients, of which the best is the peak; and five times the peak as an
open loop, while another process asks /healthz. Then, of alembert alone: sentences from one client and from many, 500 slow
connections beside usual clients, bodies of 200 MB, clients that leave, poisoned requests, SIGTERM under load, and `--minutes`
of mixed load for the memory. Goodput is what was answered within 4 s; the service refuses what would wait for more than 2 s.
The last line is JSON: `ratios` (over 1 is better than the peer; `overload_cpu` is the work of the server for an answer at the
peak by that at five times the peak, which a busy machine changes least), `holds` for each claim, and all figures; the exit code is 1
if a claim does not hold. The peer needs `pip install fastapi`.
"""

import argparse
import json
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from annotate_material import TEST, exported, fitting, new_tagger, sentences, texts_of, told
from harness import parser
from serve_faults import (
    huge_body,
    leaving_clients,
    memory,
    overload,
    poison,
    slow_connections,
    stop_under_load,
)
from serve_load import LIMIT, Load, Outcome

LEVELS = (8, 32, 128)
COMPARED = 32
"""Clients at which the times of both sides are compared."""
QUEUE = ("--set", f"max_queue_seconds={LIMIT / 2}", "--set", "max_connections_per_address=5000")
ROOMY = ("--set", "max_body_bytes=12_000_000", "--set", "max_characters=11_000_000", "--set", "drain_seconds=3")
"""So that a word of 10 MB is read rather than refused, and clients hear that the server stops."""


def make_models(folder: Path) -> None:
    checkpoint = new_tagger(folder / "checkpoint")
    exported(checkpoint, folder / "export", 100, "onnx")


def models_in(folder: Path) -> Path:
    """Make the models of both sides, once."""
    if not (folder / "export" / "manifest.json").is_file():
        told("making the models")
        folder.mkdir(parents=True, exist_ok=True)
        maker = multiprocessing.get_context("spawn").Process(target=make_models, args=(folder,))
        maker.start()
        maker.join()
    return folder


def allow_many_connections() -> None:
    """Let this process, and those that it starts, have as many open sockets as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


class Service:
    """A server process."""

    def __init__(self, name: str, command: Callable[[int], Sequence[str]]) -> None:
        self.name = name
        self.port = free_port()
        self.process = subprocess.Popen(command(self.port), stdout=subprocess.DEVNULL)

    def wait_until_started(self) -> None:
        while True:
            if self.process.poll() is not None:
                sys.exit(f"error: the service {self.name} ended with code {self.process.returncode}")
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.1)

    @property
    def cpu_seconds(self) -> float:
        """Seconds of cores that the process has taken, all threads together."""
        times = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it at once: the peer would first work through all that clients have given up."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running(name: str, command: Callable[[int], Sequence[str]]) -> Iterator[Service]:
    service = Service(name, command)
    try:
        service.wait_until_started()
        yield service
    finally:
        service.stop()


def alembert(export: Path, *settings: str) -> Callable[[int], list[str]]:
    return lambda port: [*(sys.executable, "-m", "alembert", "serve", str(export), "--port", str(port)), *settings]


def peer(checkpoint: Path) -> Callable[[int], list[str]]:
    script = Path(__file__).with_name("serve_peer.py")
    return lambda port: [sys.executable, str(script), str(checkpoint), str(port)]


def measure_load(
    ours: Service, theirs: Service, bodies: Sequence[bytes], seconds: float
) -> tuple[dict[str, dict[str, Outcome]], dict[str, float]]:
    """Load both services in turns, step by step; the peer ends after its overload, whose backlog would last for minutes."""
    found: dict[str, dict[str, Outcome]] = {ours.name: {}, theirs.name: {}}
    for service in (ours, theirs):
        Load(service.port, bodies).closed_loop(8, min(2.0, seconds))
    for clients in (1, *LEVELS):
        for service in (ours, theirs):
            told(f"{service.name}: {clients} clients")
            before = service.cpu_seconds
            found[service.name][str(clients)] = outcome = Load(service.port, bodies).closed_loop(clients, seconds)
            outcome.server_cpu = service.cpu_seconds - before
    health = {}
    for service in (ours, theirs):
        rate = 5 * max(0.2, peak(found[service.name]).goodput)
        told(f"{service.name}: {rate:.0f} requests a second")
        before = service.cpu_seconds
        found[service.name]["overload"], health[service.name] = overload(service.port, bodies, rate, seconds)
        found[service.name]["overload"].server_cpu = service.cpu_seconds - before
    theirs.stop()
    return found, health[ours.name]


def peak(outcomes: Mapping[str, Outcome]) -> Outcome:
    return max((outcomes[str(level)] for level in LEVELS), key=lambda outcome: outcome.goodput)


def judge_load(
    outcomes: Mapping[str, Outcome], health: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, bool]]:
    """Compare what alembert did with what docs/serve.md promises."""
    over = outcomes["overload"]
    kept = round(over.goodput / max(peak(outcomes).goodput, 0.01), 3)
    figures = over.figures()
    holds = {
        "overload_kept": kept >= 0.95,
        "refused_within_100_ms": 0 < figures["refused_p99_ms"] < 100,
        "healthz_within_50_ms": health["p99_ms"] < 50 and health["failed"] == 0,
        "no_5xx": not any(each.server_errors for each in outcomes.values()),
        "none_lost": not any(each.lost + each.given_up for each in outcomes.values()),
    }
    return {"overload_kept": kept, "overload_cpu": compare_cpu(outcomes)}, holds


def compare_cpu(outcomes: Mapping[str, Outcome]) -> float:
    """Return what an answer takes of the cores at the peak, by what it takes with the refusals beside it."""
    return round(peak(outcomes).cpu_ms_an_answer / max(outcomes["overload"].cpu_ms_an_answer, 0.001), 3)


def batching(port: int, texts: Sequence[str], seconds: float) -> dict:
    """Compare single sentences from many clients with those that one client asks one after another."""
    outcomes = {str(clients): Load(port, to_bodies(texts)).closed_loop(clients, seconds) for clients in (1, *LEVELS)}
    ratio = round(peak(outcomes).goodput / max(outcomes["1"].goodput, 0.01), 2)
    return {**{name: each.figures() for name, each in outcomes.items()}, "ratio": ratio, "holds": ratio >= 3}


def compare(ours: Mapping[str, Outcome], theirs: Mapping[str, Outcome]) -> dict[str, float]:
    p99 = [side[str(COMPARED)].figures()["p99_ms"] for side in (theirs, ours)]
    return {
        "throughput": round(peak(ours).goodput / max(peak(theirs).goodput, 0.01), 2),
        "p99": round(p99[0] / max(p99[1], 0.1), 2),
        "one_client": round(ours["1"].goodput / max(theirs["1"].goodput, 0.01), 2),
        "goodput_overload": round(ours["overload"].goodput / max(theirs["overload"].goodput, 0.01), 2),
    }


def check_alone(
    ours: Service, export: Path, texts: Sequence[str], before: Outcome, seconds: float, minutes: float
) -> dict[str, Any]:
    """Check what concerns alembert alone: batches, and what breaks services."""
    bodies, short = to_bodies(texts), sentences(texts)[:400]
    found: dict[str, Any] = {}

    def check(name: str, run: Callable[..., dict], *arguments: Any, **more: Any) -> None:
        told(f"alembert: {name.replace('_', ' ')}")
        found[name] = run(*arguments, **more)
        told(f"  {json.dumps(found[name])}")

    check("batching", batching, ours.port, short, seconds)
    check("slow_connections", slow_connections, ours.port, bodies, COMPARED, seconds, before)
    check("huge_body", huge_body, ours.port, ours.process.pid, chunked=False)
    check("huge_body_chunked", huge_body, ours.port, ours.process.pid, chunked=True)
    check("leaving_clients", leaving_clients, ours.port, short)
    with running("alembert", alembert(export, *QUEUE, *ROOMY)) as roomy:
        check("poison", poison, roomy.port, texts[:20])
        check("sigterm", stop_under_load, roomy.process, roomy.port, to_bodies(short))
    check("memory", memory, ours.port, ours.process.pid, [*texts, *short], 60 * minutes)
    return found


def to_bodies(texts: Sequence[str]) -> list[bytes]:
    return [json.dumps({"inputs": text}).encode() for text in texts]


def main() -> None:
    arguments = _arguments()
    allow_many_connections()
    folder = models_in(arguments.cache)
    texts = fitting(folder / "checkpoint", texts_of(TEST)).texts
    bodies, seconds = to_bodies(texts), arguments.seconds
    report: dict[str, Any] = {"ratios": {}, "holds": {}, "seconds": seconds, "minutes": arguments.minutes}
    with running("alembert", alembert(folder / "export", *QUEUE)) as ours:
        if arguments.only != "alone":
            with running("fastapi", peer(folder / "checkpoint")) as theirs:
                outcomes, report["healthz"] = measure_load(ours, theirs, bodies, seconds)
            report |= {name: {load: each.figures() for load, each in side.items()} for name, side in outcomes.items()}
            shares, report["holds"] = judge_load(outcomes["alembert"], report["healthz"])
            report["ratios"] = compare(outcomes["alembert"], outcomes["fastapi"]) | shares
            before = outcomes["alembert"][str(COMPARED)]
        else:
            before = Load(ours.port, bodies).closed_loop(COMPARED, seconds)
        if arguments.only != "load":
            report["alone"] = check_alone(ours, folder / "export", texts, before, seconds, arguments.minutes)
            report["ratios"]["batching"] = report["alone"]["batching"]["ratio"]
            report["holds"] |= {name: each["holds"] for name, each in report["alone"].items()}
    show(report)
    sys.exit(not all(report["holds"].values()))


def show(report: Mapping[str, Any]) -> None:
    for name in ("alembert", "fastapi"):
        for load, figures in report.get(name, {}).items():
            print(f"{name:10} {load:9} " + ", ".join(f"{key} {value:g}" for key, value in figures.items()))
    for name, holds in report["holds"].items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {name}")
    print(json.dumps(report))


def _arguments() -> argparse.Namespace:
    made = parser(__doc__, quick="2 s for each load and a minute of mixed load, less than two minutes in all")
    made.add_argument("--seconds", type=float, default=60.0, help="seconds for each load")
    made.add_argument("--minutes", type=float, default=10.0, help="minutes of mixed load for the memory")
    made.add_argument("--only", choices=("load", "alone"), help="one half alone")
    made.add_argument("--cache", type=Path, default=Path("work/benchmarks/serve"), help="where the models are kept")
    arguments = made.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.minutes = min(2.0, arguments.seconds), min(1.0, arguments.minutes)
    return arguments


if __name__ == "__main__":
    main()
