"""The page of the service in a browser: what people do with the keyboard and the mouse, and what comes of it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alembert.serve import models
from alembert.serve.models import BatchAnswer
from serving import started

playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives a browser, is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed")
TEXT = "😀 aspirin 咳嗽 and aspirin, 👩‍⚕️ <b>fever</b> <script>window.bad = 1</script>."


def found(text: str) -> list[dict[str, Any]]:
    """Entities at the words that the tests know, with scores that differ."""
    known = [("aspirin", "chemical", 0.9), ("fever", "<img src=x onerror=alert(1)>", 0.3), ("aspirin", "chemical", 0.6)]
    starts: dict[str, int] = {}
    entities = []
    for word, label, score in known:
        start = text.find(word, starts.get(word, -1) + 1)
        if start >= 0:
            starts[word] = start
            entities.append({"start": start, "end": start + len(word), "label": label, "score": score, "text": word})
    return entities


def answer(self: models.Prediction, examples: Any) -> BatchAnswer:
    texts = [example["tag"].text for example in examples]
    coverage = {"characters": 1, "tokens": 1, "windows": 1}
    return BatchAnswer([{"id": "1", "text": text, "entities": found(text), "coverage": coverage} for text in texts])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return tmp_path / "labels.jsonl"


@pytest.fixture
def page(browser: Any, tagger: Path, labels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A page that has read the text; errors of it and requests to elsewhere fail the test."""
    monkeypatch.setattr(models.Prediction, "compute", answer)
    with started(tagger, label=labels) as server:
        opened = browser.new_context(locale="en-US", accept_downloads=True).new_page()
        wrong: list[str] = []
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda message: wrong.append(message.text))
        opened.on("dialog", lambda dialog: (wrong.append("dialog"), dialog.dismiss()))
        opened.on("request", lambda request: request.url.startswith((server.url, "blob:")) or wrong.append(request.url))
        opened.goto(server.url)
        opened.fill("#input", TEXT)
        opened.keyboard.press("Control+Enter")
        opened.wait_for_selector("#text mark")
        opened.click("h1")
        yield opened
        assert wrong == []
        opened.context.close()


def rows(page: Any) -> list[list[str]]:
    return page.evaluate(
        "[...document.querySelectorAll('#list button')].map((b) => [...b.children].map((c) => c.textContent))"
    )


def states(page: Any) -> list[str]:
    return [row[2].rpartition("· ")[2] for row in rows(page)]


def stored(page: Any, labels: Path, count: int) -> list[dict[str, Any]]:
    """The decisions on the disk, once there are so many."""
    playwright.expect(page.locator("#status")).to_have_text("Decision saved.", timeout=60_000)
    for _ in range(100_000):
        if len(lines := labels.read_text().splitlines()) >= count:
            return list(map(json.loads, lines))
    raise AssertionError("the decisions were not saved")


def select(page: Any, word: str) -> None:
    """Select a word in the text, as with a mouse."""
    page.evaluate(
        """(word) => {
            const walker = document.createTreeWalker(document.getElementById("text"), NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
                const start = walker.currentNode.data.indexOf(word);
                if (start >= 0) getSelection().setBaseAndExtent(walker.currentNode, start, walker.currentNode, start + word.length);
            }
        }""",
        word,
    )


def test_text_and_labels_are_shown_and_run_nothing(page: Any) -> None:
    assert page.evaluate("document.getElementById('text').textContent") == TEXT
    assert [row[0] for row in rows(page)] == ["aspirin", "aspirin", "fever"]
    assert page.evaluate("window.bad") is None
    assert page.query_selector("#text script, #text b, img") is None


def test_offsets_of_decisions_count_code_points(page: Any, labels: Path) -> None:
    select(page, "咳嗽 ")
    page.keyboard.press("2")
    playwright.expect(page.locator("#list button")).to_have_count(4)
    select(page, "👩‍⚕️")
    page.keyboard.press("1")
    first, second = stored(page, labels, 2)
    assert [TEXT[each["decision"]["start"] : each["decision"]["end"]] for each in (first, second)] == ["咳嗽", "👩‍⚕️"]
    assert first["decision"]["action"] == "add"
    assert first["decision"]["label"] == "disease"


def test_keys_accept_reject_change_and_undo(page: Any, labels: Path) -> None:
    page.keyboard.press("j")
    page.keyboard.press("a")
    page.keyboard.press("j")
    page.keyboard.press("3")
    page.keyboard.press("j")
    page.keyboard.press("r")
    assert states(page) == ["accepted", "accepted", "rejected"]
    assert rows(page)[1][1] == "gene"
    assert [each["decision"]["action"] for each in stored(page, labels, 3)] == ["accept", "relabel", "reject"]
    page.keyboard.press("u")
    page.keyboard.press("u")
    assert states(page) == ["accepted", "undecided", "undecided"]
    assert rows(page)[1][1] == "chemical"


def test_one_key_decides_all_equal_surfaces(page: Any) -> None:
    page.keyboard.press("j")
    page.keyboard.press("r")
    page.keyboard.press("e")
    assert states(page) == ["rejected", "rejected", "undecided"]


def test_the_list_is_sorted_and_filtered(page: Any) -> None:
    page.select_option("#sort", "doubt")
    assert [row[2][:4] for row in rows(page)] == ["30 %", "60 %", "90 %"]
    page.fill("#filter-score", "0.5")
    assert len(rows(page)) == 2
    page.select_option("#filter-type", "gene")
    assert rows(page) == []


def test_reviewed_texts_are_downloaded_as_training_data(page: Any, tmp_path: Path) -> None:
    page.click("#download")
    assert "undecided" in page.text_content("#status")
    page.keyboard.press("Shift+A")
    with page.expect_download() as waiting:
        page.click("#download")
    waiting.value.save_as(tmp_path / "downloaded.jsonl")
    record = json.loads((tmp_path / "downloaded.jsonl").read_text())
    surfaces = [record["text"][start:end] for each in record["entities"] for start, end in each["spans"]]
    assert surfaces == ["aspirin", "aspirin", "fever"]


def test_text_is_selected_with_the_keyboard(page: Any, labels: Path) -> None:
    page.focus("#text")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("2")
    (record, *_) = stored(page, labels, 1)
    span = record["decision"]
    assert TEXT[span["start"] : span["end"]].strip() == TEXT[span["start"] : span["end"]] != ""


def test_the_interface_is_chinese_too(page: Any) -> None:
    page.select_option("#language", "zh")
    assert page.text_content("#accept span") == "接受"
    assert page.get_attribute("html", "lang") == "zh"
    assert states(page) == ["未决定"] * 3


@pytest.mark.parametrize("width", [400, 800, 1600])
def test_nothing_is_wider_than_the_window(width: int, page: Any) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name(page: Any) -> None:
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, input, select, textarea")].filter((each) =>
            !each.closest("[hidden]") && !each.textContent.trim() && !each.labels?.length && !each.getAttribute("aria-label")
        ).map((each) => each.id)"""
    )
    assert unnamed == []
