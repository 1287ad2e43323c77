"""The page of the service in a browser: what people do with the keyboard and the mouse, and what comes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from browsing import TEXT, download, rows, select, states


def stored(page: Any, labels: Path, count: int) -> list[dict[str, Any]]:
    """The decisions on the disk, once there are so many."""
    page.wait_for_selector(f"#saved[data-count='{count}']")
    return list(map(json.loads, labels.read_text().splitlines()))


def test_text_and_labels_are_shown_and_run_nothing(page: Any) -> None:
    assert page.evaluate("document.getElementById('text').textContent") == TEXT
    assert [row[0] for row in rows(page)] == ["aspirin", "aspirin", "fever"]
    assert page.evaluate("window.bad") is None
    assert page.query_selector("#text script, #text b, img") is None


def test_offsets_of_decisions_count_code_points(page: Any, labels: Path) -> None:
    select(page, "咳嗽 ")
    page.keyboard.press("2")
    assert len(rows(page)) == 4
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
    record = json.loads(download(page, tmp_path / "downloaded.jsonl").read_text())
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
