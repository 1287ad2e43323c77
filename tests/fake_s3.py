"""A store of objects on this machine that speaks as much of S3 as pyarrow asks for: list, head, and ranges."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

CHANGED = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class FakeS3:
    """One bucket, `bucket`; what is in it, what was asked, and what goes wrong."""

    objects: dict[str, bytes] = field(default_factory=dict)
    changed: dict[str, datetime] = field(default_factory=dict)
    """When objects were changed, if not at the usual time."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Requests: method and key."""
    denied: set[str] = field(default_factory=set)
    """Keys that may not be read."""
    before_reading: Callable[[str], None] = lambda _: None
    """Called with the key before the bytes of an object are sent."""
    page: int = 2
    """Most objects in one answer to a listing."""
    port: int = 0

    def put(self, folder: Path, prefix: str = "") -> None:
        """Take over the files of a folder."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.objects[prefix + path.relative_to(folder).as_posix()] = path.read_bytes()

    def read(self) -> list[str]:
        """Name the objects whose bytes were asked for, once each."""
        return sorted({key for method, key in self.asked if method == "GET" and key})


@contextmanager
def serving(store: FakeS3) -> Iterator[FakeS3]:
    """Answer requests on a port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    store.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: FakeS3

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        self.store.asked.append((self.command, key))
        if bucket != "bucket":
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self._list({name: values[0] for name, values in parse_qs(url.query).items()})
        elif key in self.store.denied:
            self._refuse(403, "AccessDenied")
        elif key not in self.store.objects:
            self._refuse(404, "NoSuchKey")
        else:
            self._give(key)

    do_HEAD = do_GET

    def _list(self, query: dict[str, str]) -> None:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        if prefix.rstrip("/") in self.store.denied:
            self._refuse(403, "AccessDenied")
            return
        keys = sorted(key for key in self.store.objects if key.startswith(prefix) and key > after)
        shown = keys[: self.store.page]
        rest = len(keys) > len(shown)
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if rest else ""
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[key])}</Size>"
            f"<LastModified>{self._time(key):%Y-%m-%dT%H:%M:%S}.678Z</LastModified></Contents>"
            for key in shown
        )
        self._answer(
            200,
            f"<ListBucketResult><KeyCount>{len(shown)}</KeyCount><IsTruncated>{str(rest).lower()}</IsTruncated>"
            f"{token}{rows}</ListBucketResult>".encode(),
        )

    def _give(self, key: str) -> None:
        content = self.store.objects[key]
        wanted = self.headers.get("Range")
        first, last = (int(each) for each in wanted.removeprefix("bytes=").split("-")) if wanted else (0, 0)
        part = content[first : last + 1] if wanted else content
        headers = {
            "Last-Modified": format_datetime(self._time(key), usegmt=True),
            "ETag": f'"{md5(content).hexdigest()}"',
        }
        if self.command == "GET":
            self.store.before_reading(key)
        self._answer(206 if wanted else 200, part, headers)

    def _time(self, key: str) -> datetime:
        return self.store.changed.get(key, CHANGED)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>of the store</Message></Error>".encode())

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/xml", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""
