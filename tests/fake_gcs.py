"""A store of objects on this machine that speaks as much of Google Cloud Storage as pyarrow asks for."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

OBJECTS = "/storage/v1/b/bucket/o"


@contextmanager
def serving_google(objects: Mapping[str, bytes]) -> Iterator[int]:
    """Answer requests for the objects of one bucket, `bucket`; give the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"objects": objects}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Mapping[str, bytes]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query, key = parse_qs(url.query), unquote(url.path.removeprefix(f"{OBJECTS}/"))
        if url.path == OBJECTS:
            names = [name for name in self.objects if name.startswith(query.get("prefix", [""])[0])]
            self._answer(200, json.dumps({"items": [self._record(name) for name in names]}).encode())
        elif key not in self.objects:
            self._answer(404, b"{}")
        elif "alt" in query:
            self._answer(200, self.objects[key])
        else:
            self._answer(200, json.dumps(self._record(key)).encode())

    def _record(self, name: str) -> dict[str, str]:
        size, time = str(len(self.objects[name])), "2024-01-02T03:04:05.678Z"
        return {"name": name, "bucket": "bucket", "generation": "1", "size": size, "updated": time}

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""
