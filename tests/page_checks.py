"""What holds for every page: nothing is fetched or run, elements are closed, headings in order, charts and tables labelled."""

from html.parser import HTMLParser
from itertools import pairwise

VOID = {"meta", "br"}
FOREIGN = {"script", "link", "img", "iframe", "object", "base"}


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        table = dict(attrs)
        assert tag not in FOREIGN
        assert not [name for name in table if name in ("href", "src") or name.startswith("on")]
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag == "svg":
            assert (table["role"], bool(table["aria-label"])) == ("img", True)
        if tag == "table":
            parent = self.open[-1][1]
            assert (parent["class"], parent["tabindex"], bool(parent["aria-label"])) == ("scroll", "0", True)
        if tag not in VOID:
            self.open.append((tag, table))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag


def check_page(text: str) -> None:
    """Fail if a page breaks one of the rules."""
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert not [word for word in ("http:", "https:", "@import", "url(") if word in text]
    headings = _Page(text).headings
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
