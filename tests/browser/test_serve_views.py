"""Every view of the page: accessible, no wider than the window, in both languages; and long texts that stay quick."""

from pathlib import Path
from typing import Any

import pytest

from browsing import drop, read, rows, with_explanations

VIEWS = ("entities", "why", "compare", "relations", "documents")
WORDS = "Patients had aspirin once and after ten days no further fever was seen. "


def find_violations(page: Any) -> list[str]:
    """What axe-core finds that is serious."""
    package = pytest.importorskip(
        "axe_playwright_python", reason="axe-playwright-python, which carries axe-core, is missing"
    )
    axe = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf8")
    report = page.evaluate(f"{axe}\naxe.run()")
    assert len(report["passes"]) > 20
    return [
        f"{each['id']}: {[node['target'] for node in each['nodes']]}"
        for each in report["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def open_views(page: Any) -> None:
    """Read a queue, decide, and ask why, so that every view has content."""
    with_explanations(page)
    drop(page, {"texts.jsonl": '"aspirin <b>fever</b>"\n"aspirin and fever 咳嗽"\n"fever"\n'})
    page.wait_for_selector("#documents li")
    page.click("h1")
    for key in "jaw":
        page.keyboard.press(key)
    page.wait_for_selector(".word")
    page.click("#tab-relations")
    page.click("#relate")
    page.wait_for_selector("#relation-table td")
    page.click("#tab-compare")
    page.wait_for_selector("#compare-list button")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(scheme: str, empty_page: Any) -> None:
    empty_page.emulate_media(color_scheme=scheme)
    assert find_violations(empty_page) == []
    open_views(empty_page)
    for language in ("en", "zh"):
        empty_page.select_option("#language", language)
        for view in VIEWS:
            empty_page.click(f"#tab-{view}")
            assert find_violations(empty_page) == [], (view, language)


def test_no_view_is_wider_than_the_window(empty_page: Any) -> None:
    open_views(empty_page)
    for width in (400, 800, 1200, 1600):
        empty_page.set_viewport_size({"width": width, "height": 900})
        for view in VIEWS:
            empty_page.click(f"#tab-{view}")
            assert empty_page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_tabs_are_walked_with_the_arrow_keys(page: Any) -> None:
    page.focus("#tab-entities")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-why", "aria-selected") == "true"
    assert page.is_visible("#why-panel")
    assert page.evaluate("document.activeElement.id") == "tab-why"


COUNT_CHANGES = """() => {
    window.changed = 0;
    new MutationObserver((all) => { for (const each of all) window.changed += each.addedNodes.length; })
        .observe(document.body, { childList: true, subtree: true });
}"""


@pytest.fixture
def long_page(empty_page: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A page that has read 20,000 words with 2,000 entities."""
    monkeypatch.setattr("browsing.KNOWN", [("aspirin", "chemical", 0.9), ("fever", "disease", 0.3)] * 1000)
    empty_page.evaluate("(text) => { document.getElementById('input').value = text; }", WORDS * 1540)
    empty_page.click("#ask button")
    empty_page.wait_for_selector("#text mark")
    empty_page.click("h1")
    return empty_page


def test_a_key_in_a_long_text_changes_few_elements(long_page: Any) -> None:
    assert long_page.text_content("#count") == "2000 of 2000"
    assert long_page.evaluate("document.querySelectorAll('*').length") < 3000
    long_page.evaluate(COUNT_CHANGES)
    for key in "jaj2jru":
        long_page.keyboard.press(key)
    assert long_page.evaluate("window.changed") / 7 < 1500


def test_an_entity_far_down_is_drawn_when_it_is_chosen(long_page: Any) -> None:
    long_page.keyboard.press("k")
    assert long_page.evaluate("document.querySelector('mark.chosen').textContent") == "fever"
    assert long_page.evaluate("document.querySelector('#text').scrollTop") > 1000
    assert rows(long_page)[-1][0] == "fever"
    assert long_page.text_content(".pager .dim") == "1901–2000 / 2000"


def test_a_long_text_is_whole(long_page: Any) -> None:
    assert long_page.evaluate("document.getElementById('text').textContent") == WORDS * 1540
    read(long_page, "aspirin")
    assert long_page.evaluate("document.getElementById('text').textContent") == "aspirin"
