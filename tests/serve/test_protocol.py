"""Deadlines and limits of connections, before the application sees anything."""

import socket
from pathlib import Path

import pytest

from serving import Client, request_bytes, started


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
