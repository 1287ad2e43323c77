"""What the tests of the service share: Exports, a gate before predictions, and a server over all Exports."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import Client, gate, started
from serving_exports import CASES, exports, tagger

__all__ = ["exports", "gate", "tagger"]


@pytest.fixture(scope="module")
def client(exports: Path) -> Iterator[Client]:
    """A client of a server with all models and the usual limits."""
    with started(*(exports / name for name in CASES)) as server:
        yield Client(server.url)
