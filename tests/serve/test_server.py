"""Server processes: they finish what they admitted, share a port, and need no torch for Exports."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from alembert.errors import BadFile, BadSetting
from alembert.serve.guards import HostCheck
from alembert.serve.server import ServerConfig, bind, read_token
from serving import Client, in_background, started

SERVE = "from alembert.cli import run; import sys; sys.exit(run(['serve', *sys.argv[1:]]))"
HELD_BACK = f"""
import sys
from alembert.serve import models
compute = models.Prediction.compute
def hold(self, examples):
    if any("hold" in text for example in examples for each in example.values() for text in each.texts):
        print("computing", flush=True)
        sys.stdin.readline()
    return compute(self, examples)
models.Prediction.compute = hold
{SERVE}
"""


@contextmanager
def process(*arguments: object, script: str = SERVE) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """Start a server process, and read its address."""
    command = [sys.executable, "-c", script, *map(str, arguments), "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
        try:
            assert server.stdout is not None
            yield server, Client(server.stdout.readline().strip())
        finally:
            if server.poll() is None:
                server.kill()


def test_sigterm_finishes_what_was_admitted(tagger: Path) -> None:
    with process(tagger, script=HELD_BACK) as (server, client):
        assert server.stdin is not None
        assert server.stdout is not None
        asked = in_background(client.predict, "hold on")
        assert server.stdout.readline() == "computing\n"
        server.send_signal(signal.SIGTERM)
        # A connection that is refused, or an answer that says no, is both not ready; the work goes on meanwhile.
        assert any(not is_ready(client) for _ in range(100_000))
        server.stdin.write("\n")
        server.stdin.flush()
        assert asked.result.status == 200
        assert server.wait(60) == 0
        assert server.stderr is not None
        assert server.stderr.read() == ""


def is_ready(client: Client) -> bool:
    try:
        return client.get("/readyz").status == 200
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_with_code_0(number: signal.Signals, tagger: Path) -> None:
    with process(tagger) as (server, client):
        assert client.get("/readyz").status == 200
        server.send_signal(number)
        assert server.wait(60) == 0


def test_an_export_is_served_without_torch(tagger: Path) -> None:
    script = f"import sys; sys.modules['torch'] = None\n{SERVE}"
    with process(tagger, script=script) as (_, client):
        assert client.predict("Fever.").status == 200


@pytest.mark.slow
def test_processes_share_a_port_and_one_that_dies_is_started_again(tagger: Path) -> None:
    with process(tagger, "--processes", 2) as (server, client):
        found = {pid_of(client) for _ in range(200)}
        assert len(found) == 2
        victim = found.pop()
        os.kill(victim, signal.SIGKILL)
        assert any(pid is not None and pid not in {victim, *found} for pid in pids(client))
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def pids(client: Client) -> Iterator[int | None]:
    """Ask until it has to be given up; a process that has just died refuses."""
    for _ in range(100_000):
        try:
            yield pid_of(client)
        except OSError:
            yield None


def pid_of(client: Client) -> int:
    found = re.search(r'process_info{pid="(\d+)"}', client.get("/metrics").body.decode())
    assert found is not None
    return int(found[1])


def test_a_port_in_use_is_a_sentence() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(BadSetting, match=r"cannot be used: address already in use\. Choose another"):
            bind("127.0.0.1", taken.getsockname()[1])


def test_other_machines_need_a_token(tagger: Path) -> None:
    with pytest.raises(BadSetting, match="--token-file"):
        ServerConfig(folders={"tagger": tagger}, host="0.0.0.0")
    assert ServerConfig(folders={}, host="127.0.0.2").token is None


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"short\n", "too short"),
        (b"0123456789abcdef 0123", "spaces"),
        ("字" * 20, "not ASCII"),
        (None, "cannot be read"),
    ],
)
def test_a_token_file_that_is_no_good_is_refused(content: bytes | str | None, part: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadFile, match=part):
        read_token(path)


def test_a_token_is_read_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    assert read_token(tmp_path / "token") == "0123456789abcdef"


def test_the_host_is_one_of_ours() -> None:
    check = HostCheck(frozenset({"localhost", "::1", "127.0.0.1"}))
    assert all(map(check.allows, ("localhost", "LOCALHOST:8000", "[::1]:80", "127.0.0.1:1")))
    assert not any(map(check.allows, ("", "localhost.example", "10.0.0.1", "example:80", "[::2]")))
    everywhere = HostCheck(frozenset({"localhost"}), any_address=True)
    assert everywhere.allows("10.0.0.1:8000")
    assert not everywhere.allows("rebound.example")


def test_a_running_server_is_closed_with_its_block(tagger: Path) -> None:
    with started(tagger) as server:
        client = Client(server.url)
        assert client.predict("Fever.").status == 200
    with pytest.raises(ConnectionRefusedError):
        client.get("/healthz")
