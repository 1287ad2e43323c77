"""Tiny Exports that tests of the service share: fixtures, made once for all workers."""

from pathlib import Path

import pytest

from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.files import checkpoint as checkpoints
from shared_folders import SharedFolders
from small_checkpoints import fine_tuned

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
