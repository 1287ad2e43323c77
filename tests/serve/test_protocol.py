"""Deadlines and limits of connections, before the application sees anything."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from serving import Client, Gate, in_background, request_bytes, started


def drip(connection: socket.socket, data: bytes) -> bytes:
    """Send byte after byte until the server closes; return what it answered."""
    connection.settimeout(0.02)
    answer = b""
    for number in range(100_000):
        try:
            connection.sendall(data[number % len(data) :][:1])
            if not (part := connection.recv(65536)):
                return answer
            answer += part
        except TimeoutError:
            continue
        except OSError:
            return answer
    raise AssertionError("the server never closed the connection")


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\nx-header: ",
        request_bytes(b'{"inputs": "', length=100_000),
    ],
    ids=["nothing", "in the headers", "in the body"],
)
def test_a_request_that_arrives_byte_by_byte_is_cut_off(begun: bytes, tagger: Path) -> None:
    with started(tagger, receive_seconds=0.3) as server:
        client = Client(server.url)
        with client.open() as connection:
            connection.sendall(begun)
            answer = drip(connection, b"a") if begun else connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"did not arrive within 0.3 seconds" in answer
        assert client.predict("Fever.").status == 200


def test_an_address_has_so_many_connections(tagger: Path) -> None:
    with started(tagger, max_connections_per_address=2) as server:
        client = Client(server.url)
        with client.open(), client.open():
            assert client.raw(b"").startswith(b"HTTP/1.1 429")
        answers = (client.get("/healthz").status for _ in range(100_000))
        assert 200 in answers  # the server has noticed that they are closed


def test_headers_have_a_largest_size(tagger: Path) -> None:
    with started(tagger) as server:
        client = Client(server.url)
        head = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"a" * 40_000
        assert client.raw(head).startswith(b"HTTP/1.1 431")


def test_several_requests_share_a_connection(tagger: Path) -> None:
    with started(tagger) as server:
        body = request_bytes(b'{"inputs": "Fever."}')
        last = body.replace(b"host: localhost", b"host: localhost\r\nconnection: close")
        assert Client(server.url).raw(body + body + last).count(b"HTTP/1.1 200 OK") == 3


def test_a_connection_whose_request_was_answered_before_its_body_came_is_closed_when_idle(tagger: Path) -> None:
    with started(tagger, keep_alive_seconds=1) as server, Client(server.url).open() as connection:
        connection.sendall(request_bytes(b"", "/nowhere", length=5))
        assert read_answer(connection).startswith(b"HTTP/1.1 404")
        connection.sendall(b"12345")
        assert connection.recv(65536) == b""


# -- refused by the headers, while the queue is full

SMALL = b'{"inputs": "a"}'
LARGE = b'{"inputs": "a fever and a cough"}'


@contextmanager
def full_queue(tagger: Path, gate: Gate, **settings: Any) -> Iterator[Client]:
    """A service that computes a text for as long as the test likes, and has refused another."""
    with started(tagger, max_queue_seconds=0.000001, **settings) as server:
        client = Client(server.url)
        secret = {"authorization": f"Bearer {settings['token']}"} if "token" in settings else {}
        gate.close()
        first = in_background(client.post, "/v1/predict", SMALL, **secret)
        gate.wait_for_batch()
        assert client.post("/v1/predict", SMALL, **secret).status == 429
        yield client
        gate.is_open.set()
        assert first.result.status == 200


def read_answer(connection: socket.socket) -> bytes:
    """Read one answer with a length, and nothing after it."""
    answer = b""
    while (found := re.search(rb"content-length: (\d+).*?\r\n\r\n", answer, re.S)) is None or (
        len(answer) < found.end() + int(found[1])
    ):
        part = connection.recv(65536)
        assert part, answer
        answer += part
    return answer


def test_a_full_queue_refuses_before_the_body_is_sent_and_reads_on(tagger: Path, gate: Gate) -> None:
    with full_queue(tagger, gate) as client, client.open() as connection:
        for _ in range(2):
            connection.sendall(request_bytes(b"", length=len(LARGE)))
            refused = read_answer(connection)
            assert refused.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
            assert b"\r\nretry-after: " in refused
            assert b"\r\nx-content-type-options: nosniff\r\n" in refused
            assert b'"kind":"busy"' in refused
            connection.sendall(LARGE)
        gate.is_open.set()
        answers = (_ask(connection) for _ in range(100_000))
        assert any(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        assert 'refused_total{reason="busy"}' in client.get("/metrics").body.decode()


def _ask(connection: socket.socket) -> bytes:
    connection.sendall(request_bytes(LARGE))
    return read_answer(connection)


def test_a_full_queue_counts_what_it_refuses(tagger: Path, gate: Gate) -> None:
    with full_queue(tagger, gate) as client:
        for _ in range(3):
            assert client.post("/v1/predict?model=tagger", LARGE).status == 429
        counted = client.get("/metrics").body.decode()
        assert 'alembert_refused_total{reason="busy"} 4\n' in counted
        assert 'alembert_requests_total{route="/v1/predict",status="429"} 4\n' in counted


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"host: elsewhere.example", 421),
        (b"host: localhost\r\norigin: http://elsewhere.example", 403),
        (b"host: localhost", 401),
        (b"host: localhost\r\nauthorization: Bearer 0123456789abcdef", 429),
        (b"host: localhost\r\nauthorization: Bearer 0123456789abcdef\r\nexpect: 100-continue", 429),
    ],
    ids=["host", "origin", "no token", "token", "expects to be told"],
)
def test_a_full_queue_tells_strangers_nothing(lines: bytes, status: int, tagger: Path, gate: Gate) -> None:
    with full_queue(tagger, gate, token="0123456789abcdef") as client, client.open() as connection:
        connection.sendall(request_bytes(LARGE).replace(b"host: localhost", lines))
        assert int(read_answer(connection)[9:12]) == status


def test_what_is_refused_may_close_its_connection(tagger: Path, gate: Gate) -> None:
    with full_queue(tagger, gate) as client:
        closing = request_bytes(LARGE).replace(b"host: localhost", b"host: localhost\r\nconnection: close")
        assert client.raw(closing).count(b"HTTP/1.1") == 1
        assert client.raw(request_bytes(LARGE).replace(b"HTTP/1.1", b"HTTP/1.0")).count(b"HTTP/1.1") == 1


def test_requests_that_are_refused_share_a_connection(tagger: Path, gate: Gate) -> None:
    with full_queue(tagger, gate) as client:
        last = request_bytes(LARGE).replace(b"host: localhost", b"host: localhost\r\nconnection: close")
        assert client.raw(request_bytes(LARGE) + request_bytes(LARGE) + last).count(b"HTTP/1.1 429") == 3


@pytest.mark.parametrize("rest", [b"", LARGE], ids=["its body never comes", "it is idle"])
def test_a_connection_that_was_refused_is_not_kept_for_ever(rest: bytes, tagger: Path, gate: Gate) -> None:
    with (
        full_queue(tagger, gate, receive_seconds=0.3, keep_alive_seconds=1) as client,
        client.open() as connection,
    ):
        connection.sendall(request_bytes(b"", length=len(LARGE)))
        assert read_answer(connection).startswith(b"HTTP/1.1 429")
        connection.sendall(rest)
        assert connection.recv(65536) == b""
