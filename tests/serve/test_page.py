"""The files of the page: shipped, whole, and without anything that fetches or runs text."""

import re
from pathlib import Path

import pytest

from alembert.serve.app import PAGE
from serving import Client

SCRIPTS = sorted(PAGE.glob("*.js"))


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_nothing_is_fetched_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?:|//\w+\.\w+/|@import|url\(", text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_text_is_never_read_as_html_or_code(path: Path) -> None:
    text = path.read_text(encoding="utf8")
    assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|\.srcdoc", text) == []
    assert len(text.splitlines()) <= 400


def test_nothing_in_the_page_is_inline() -> None:
    page = (PAGE / "index.html").read_text(encoding="utf8")
    assert re.findall(r"<style|style=|\son\w+=|<script(?![^>]*src=)", page) == []


def test_both_languages_have_all_words() -> None:
    english, chinese = re.findall(
        r"^  \w\w: \{(.*?)^  \},", (PAGE / "words.js").read_text(encoding="utf8"), re.M | re.S
    )
    keys = [re.findall(r"(?:^|, )\s*(\w+): ", part, re.M) for part in (english, chinese)]
    assert sorted(keys[0]) == sorted(keys[1])
    used = set(re.findall(r'data-words="(\w+)"', (PAGE / "index.html").read_text(encoding="utf8")))
    assert used <= set(keys[0])


def test_every_file_is_served(client: Client) -> None:
    kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for path in PAGE.iterdir():
        answer = client.get(f"/page/{path.name}")
        assert (answer.status, answer.body) == (200, path.read_bytes())
        assert answer.headers["content-type"].startswith(kinds[path.suffix])
    assert client.get("/").body == (PAGE / "index.html").read_bytes()
