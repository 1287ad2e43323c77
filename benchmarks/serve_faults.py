"""What `serve.py` does to the service beside plain load: slow clients, huge bodies, clients that leave, poison, SIGTERM, ten minutes.

Each check returns its figures, with `holds` saying whether the service did what docs/serve.md promises. Whatever must not
share the event loop of the load generator runs in a process of its own (`hold_slowly`, `probe_health`).
"""

import asyncio
import json
import multiprocessing
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from serve_load import Load, Outcome, percentile, request_bytes

from alembert.serve.models import is_same_answer

SLOW_CONNECTIONS = 500
HUGE = 200_000_000
_BLOCK = b"a" * 1_000_000


def open_sockets(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), 30) for _ in range(count)]


def predict(port: int, texts: Sequence[str]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/predict",
        json.dumps({"inputs": list(texts)}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["predictions"]


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = re.search(rf"^alembert_{name} (\S+)$", answer.read().decode(), re.M)
    return float(found[1])


def resident_megabytes(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024


# -- in a process of their own


@contextmanager
def another_process() -> Iterator[ProcessPoolExecutor]:
    """Start a process that does what it is handed, and wait until it can."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(time.time).result()
        yield pool


def probe_health(port: int, seconds: float) -> dict[str, float]:
    """Ask /healthz twenty times a second, each time on a new connection."""
    times, failed, end = [], 0, time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                failed += not connection.recv(4096).startswith(b"HTTP/1.1 200")
            times.append(time.perf_counter() - begun)
        except OSError:
            failed += 1
        time.sleep(max(0.0, begun + 0.05 - time.perf_counter()))
    return {"p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99), "asked": len(times), "failed": failed}


def hold_slowly(port: int, count: int, seconds: float) -> dict[str, float]:
    """Hold connections that send a byte of their headers a second; one that the server ends is opened again."""
    head = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\nx-slow: "
    held = open_sockets(port, count)
    for connection in held:
        connection.sendall(head)
    ended, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        time.sleep(min(1.0, seconds / 10))
        closed = {id(each) for each in select.select(held, [], [], 0)[0]}  # 408, or the end
        for number, connection in enumerate(held):
            if id(connection) in closed:
                connection.close()
                held[number] = open_sockets(port, 1)[0]
                held[number].sendall(head)
            with suppress(OSError):  # ended meanwhile: the next round opens another
                held[number].sendall(b"a")
        ended += len(closed)
    for connection in held:
        connection.close()
    return {"held": len(held), "ended_by_server": ended}


# -- checks


def slow_connections(port: int, bodies: Sequence[bytes], clients: int, seconds: float, before: Outcome) -> dict:
    """Compare the goodput of other clients with and without slow connections."""
    with another_process() as pool:
        slow = pool.submit(hold_slowly, port, SLOW_CONNECTIONS, seconds + 2)
        time.sleep(1.0)
        outcome = Load(port, bodies).closed_loop(clients, seconds)
        held = slow.result()
    kept = round(outcome.goodput / max(before.goodput, 0.01), 3)
    answered = outcome.server_errors == outcome.lost == outcome.given_up == 0
    return {**held, **outcome.figures(), "kept": kept, "holds": kept >= 0.9 and answered}


def huge_body(port: int, pid: int, *, chunked: bool) -> dict:
    """Send a body of 200 MB until the server refuses it, and see how much of it went out and what it cost."""
    before, sent, answer, begun = resident_megabytes(pid), 0, b"", time.perf_counter()
    extra = "transfer-encoding: chunked\r\n"
    head = request_bytes(b"", length=HUGE)
    if chunked:
        head = re.sub(rb"content-length: \d+\r\n", extra.encode(), head)
    block = b"%x\r\n%s\r\n" % (len(_BLOCK), _BLOCK) if chunked else _BLOCK
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(head)
        try:
            while sent < HUGE and not answer:
                readable, _, _ = select.select([connection], [], [], 0.2 if sent == 0 else 0)
                if readable:
                    answer = connection.recv(65536)
                else:
                    connection.sendall(block)
                    sent += len(_BLOCK)
        except OSError:
            pass  # closed while we were sending; the answer may have come before
        status = _status(answer or _read_rest(connection))
    grown = round(resident_megabytes(pid) - before, 1)
    figures = {"status": status, "megabytes_sent": sent / 1e6, "megabytes_grown": grown}
    return {
        **figures,
        "seconds": round(time.perf_counter() - begun, 2),
        "holds": status == 413 and sent <= 20_000_000 and grown < 40,
    }


def _read_rest(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _status(answer: bytes) -> int:
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


def leaving_clients(port: int, texts: Sequence[str]) -> dict:
    """Let clients ask much and leave; what they asked for must leave the queue, not be computed."""
    much = json.dumps({"inputs": [texts[n % len(texts)] for n in range(200)]}).encode()
    cancelled = metric(port, "cancelled_total")
    leavers = open_sockets(port, 20)
    for connection in leavers:
        connection.sendall(request_bytes(much))
    queued = _wait(lambda: metric(port, "queue_inputs") > 200, 10) and metric(port, "queue_tokens")
    speed = metric(port, "drain_tokens_per_second")
    begun = time.perf_counter()
    for connection in leavers:
        connection.close()
    is_free = _wait(lambda: metric(port, "queue_tokens") == 0, 60)
    seconds = time.perf_counter() - begun
    expected = queued / speed
    return {
        "queued_tokens": queued,
        "seconds_of_work": round(expected, 2),
        "seconds_until_free": round(seconds, 2),
        "cancelled": metric(port, "cancelled_total") - cancelled,
        "holds": bool(queued) and is_free and seconds < expected / 2,
    }


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.perf_counter() + seconds
    while not (came := condition()) and time.perf_counter() < end:
        time.sleep(0.01)
    return came


def poison(port: int, texts: Sequence[str]) -> dict:
    """Send what breaks services; the same texts must be answered as before, each time."""
    deep = b"[" * 100_000 + b"]" * 100_000
    bodies = {
        "word_of_10_mb": json.dumps({"inputs": "a" * 10_000_000}).encode(),
        "nul": b'{"inputs": "a\\u0000b"}',
        "raw_nul": b'{"inputs": "a\x00b"}',
        "unpaired_surrogate": b'{"inputs": "fever \\ud800 cough"}',
        "surrogates_as_bytes": b'{"inputs": "\xed\xa0\x80"}',
        "deep_json": b'{"inputs": ' + deep + b"}",
        "deep_object": b'{"inputs": {"text": ' + deep + b"}}",
        "deep_entities": b'{"inputs": {"text": "a", "entities": ' + deep + b"}}",
        "cut_off": b'{"inputs": "',
        "no_json": b"\x00\xff" * 1000,
        "numbers": b'{"inputs": "a", "min_score": 1e999}',
    }
    before, statuses, changed = predict(port, texts), {}, []
    for name, body in bodies.items():
        with socket.create_connection(("127.0.0.1", port), 120) as connection:
            connection.sendall(request_bytes(body, headers="connection: close\r\n"))
            statuses[name] = _status(b"".join(iter(lambda: connection.recv(65536), b"")))
        if not is_same_answer(predict(port, texts), before):
            changed.append(name)
    fine = all(200 <= status < 500 for status in statuses.values())
    return {"statuses": statuses, "changed": changed, "holds": fine and not changed}


def stop_under_load(process: subprocess.Popen, port: int, bodies: Sequence[bytes]) -> dict:
    """Send SIGTERM while clients ask; until they hear that the server stops, each request must have an answer."""
    threading.Timer(2.0, process.send_signal, (signal.SIGTERM,)).start()
    outcome = Load(port, bodies, stop_at_status=503).closed_loop(64, 20.0)
    code = process.wait(90)
    without = outcome.lost + outcome.given_up
    figures = {"statuses": dict(outcome.statuses), "without_answer": without, "exit_code": code}
    heard = outcome.statuses[503] > 0 and outcome.statuses[200] > 0
    return {**figures, "holds": heard and without == 0 and code == 0}


def memory(port: int, pid: int, texts: Sequence[str], seconds: float) -> dict:
    """Watch the memory of the server under mixed load: texts of all sizes, bad requests, and clients that leave."""
    bodies = [json.dumps({"inputs": text}).encode() for text in texts]
    bodies += [json.dumps({"inputs": [*texts[start : start + 8]]}).encode() for start in range(0, len(texts), 8)]
    bodies += [b'{"inputs": []}', b"{", b'{"inputs": "x", "model": "nowhere"}'] * 10
    samples: list[float] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.5):
            samples.append(resident_megabytes(pid))
            leaver = open_sockets(port, 1)[0]
            leaver.sendall(request_bytes(bodies[len(samples) % len(bodies)]))
            leaver.close()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        outcome = Load(port, bodies).closed_loop(64, seconds)
    finally:
        is_over.set()
        watcher.join()
    # The first tenth warms up: allocators grow to the largest batch.
    tenth = max(1, len(samples) // 10)
    first, last = median(samples[tenth : 3 * tenth]), median(samples[-2 * tenth :])
    growth = round(last / first, 3)
    return {
        "megabytes_first": round(first, 1),
        "megabytes_last": round(last, 1),
        "megabytes_peak": round(max(samples), 1),
        "growth": growth,
        "requests": sum(outcome.statuses.values()),
        "errors_5xx": outcome.server_errors,
        "holds": growth <= 1.05 and outcome.server_errors == 0,
    }


def overload(port: int, bodies: Sequence[bytes], rate: float, seconds: float) -> tuple[Outcome, dict[str, float]]:
    """Send at a pace while another process asks /healthz."""
    with another_process() as pool:
        health = pool.submit(probe_health, port, seconds)
        outcome = asyncio.run(Load(port, bodies).run_open(rate, seconds))
        return outcome, health.result()
