"""What holds for every page: nothing is fetched, elements are closed, headings in order, charts and tables labelled.

Links lead to places of the page itself, and no two boxes that scroll have the same name. Nothing is run either, but for a
page that says so and has one script of its own.
"""

from html.parser import HTMLParser
from itertools import pairwise

VOID = {"meta", "br", "input"}
FOREIGN = {"script", "link", "img", "iframe", "object", "base"}


class _Page(HTMLParser):
    def __init__(self, text: str, *, may_run: bool = False) -> None:
        super().__init__()
        self.foreign = FOREIGN - {"script"} if may_run else FOREIGN
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.places: list[str | None] = []
        self.links: list[str] = []
        self.labels: list[str | None] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        table = dict(attrs)
        assert tag not in self.foreign
        assert not [name for name in table if name == "src" or name.startswith("on")]
        if tag == "image":  # pictures inside of charts
            assert (table["href"] or "").startswith("data:image/png;base64,")
        elif "href" in table:
            assert (tag, (table["href"] or "")[:1]) == ("a", "#")
            self.links.append((table["href"] or "")[1:])
        if "id" in table:
            self.places.append(table["id"])
        if table.get("role") == "region":
            self.labels.append(table["aria-label"])
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


def check_page(text: str, *, may_run: bool = False) -> None:
    """Fail if a page breaks one of the rules; `may_run`: it has a script."""
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert not [word for word in ("http:", "https:", "@import", "url(") if word in text]
    page = _Page(text, may_run=may_run)
    headings = page.headings
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    assert set(page.links) <= set(page.places)
    for names in (page.places, page.links, page.labels):
        assert len(set(names)) == len(names)
