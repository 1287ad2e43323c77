"""What the tests in a browser share: a browser, and a page over models whose answers are known."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alembert.serve import models
from browsing import answer, read, watched
from serving import started
from serving_exports import exports

__all__ = ["exports"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; the tests are skipped without it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives a browser, is missing")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Debian's package chromium is not installed (scripts/install dev installs it as root)")
    playwright.expect.set_options(timeout=120_000)
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served(exports: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server with two taggers, a classifier and a model that relates entities: its address, the file of decisions."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "other").symlink_to(exports / "tagger")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models.Prediction, "compute", answer)
        with started(
            exports / "tagger",
            folder / "other",
            exports / "relations",
            exports / "topics",
            label=folder / "labels.jsonl",
        ) as server:
            yield server.url, folder / "labels.jsonl"


@pytest.fixture
def labels(served: tuple[str, Path]) -> Path:
    """The file of decisions, empty."""
    served[1].write_bytes(b"")
    return served[1]


@pytest.fixture
def empty_page(browser: Any, served: tuple[str, Path], labels: Path) -> Iterator[Any]:
    """A page that has read nothing yet."""
    with watched(browser, served[0]) as opened:
        yield opened


@pytest.fixture
def page(empty_page: Any) -> Any:
    """A page that has read the text."""
    read(empty_page)
    return empty_page
