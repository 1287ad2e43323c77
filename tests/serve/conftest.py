"""Tiny Exports that the tests of the service share, and a server over them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from alembert.compress.export import export
from alembert.compress.settings import ExportSettings
from alembert.files import checkpoint as checkpoints
from serving import Client, gate, started
from shared_folders import SharedFolders
from small_checkpoints import fine_tuned

assert gate
CASES = {
    "tagger": "tag, crf",
    "topics": "classify",
    "pairs": "classify, pairs",
    "vectors": "compare",
    "relations": "relate, documents",
}


def make_exports(place: Path) -> None:
    for name, case in CASES.items():
        fine_tuned(case, place / f"{name}-checkpoint", place / f"{name}.jsonl")
        export(
            checkpoints.open(place / f"{name}-checkpoint"),
            place / name,
            ExportSettings(format="onnx", precision="fp32"),
        )


@pytest.fixture(scope="session")
def exports(shared_folders: SharedFolders) -> Path:
    """A folder with an Export for each case."""
    return shared_folders.make("serve-exports", make_exports)


@pytest.fixture(scope="session")
def tagger(exports: Path) -> Path:
    return exports / "tagger"


@pytest.fixture(scope="module")
def client(exports: Path) -> Iterator[Client]:
    """A client of a server with all models and the usual limits."""
    with started(*(exports / name for name in CASES)) as server:
        yield Client(server.url)
