"""Reports in a browser: axe-core finds nothing, nothing is wider than the window, and the contents lead to their sections."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from alembert import sample
from alembert.charts import Curve, format_percent
from alembert.corpus.build import LexiconFiles, build
from alembert.corpus.statistics import compute_statistics, sample_documents
from alembert.corpus.store import Corpus
from alembert.infer.evaluate import evaluate
from alembert.inspect.corpus_page import render_corpus_page
from alembert.inspect.errors import find_errors, render_errors_page
from alembert.inspect.report_pages import render_evaluation_page
from alembert.inspect.tokens import render_vocab_page, report_vocabulary
from alembert.text.extend import add_vocabulary_terms
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary
from alembert.text.word_counts import TextSample
from alembert.train.curves import Panel, render_curves_page
from scripted_models import tagger, write_tagged

playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives a browser, is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed")

TEXTS: dict[str, Any] = {
    str(number): (f"breast cancer and aspirin, {number} times", [(0, 13, "Disease"), (18, 25, "Drug")])
    for number in range(12)
}
GUESSES: dict[str, Any] = {
    number: [(7, 13, "Disease", 0.9), (18, 25, "Disease" if int(number) % 2 else "Drug", 0.8)] for number in TEXTS
}


def errors_page(folder: Path) -> str:
    return render_errors_page(find_errors(tagger(GUESSES), [write_tagged(folder / "test.jsonl", TEXTS)]))


def evaluation_page(folder: Path) -> str:
    return render_evaluation_page(evaluate(tagger(GUESSES), [write_tagged(folder / "test.jsonl", TEXTS)], rounds=20))


def corpus_page(folder: Path) -> str:
    lines = (json.dumps({"id": p.id, "text": p.text}) for p in sample.load_passages("en"))
    (folder / "in.jsonl").write_text("\n".join(lines))
    (folder / "drug.txt").write_text("aspirin\npenicillamine\n")
    lexicons = LexiconFiles(lexicons={"drug": folder / "drug.txt"})
    build([folder / "in.jsonl"], folder / "corpus", lexicon_files=lexicons, workers=1)
    corpus = Corpus.open(folder / "corpus")
    return render_corpus_page(compute_statistics(corpus), sample_documents(corpus, 4, seed=0))


def vocabulary_page(folder: Path) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = (*SpecialTokens().roles().values(), *letters, *(f"##{letter}" for letter in letters))
    old = Tokenizer.from_vocabulary(Vocabulary(pieces), lowercase=True)
    texts = [
        TextSample(p.text, tuple((e.label, p.text[e.start : e.end]) for e in p.entities))
        for p in sample.load_passages("en")
    ]
    new = add_vocabulary_terms(old, ["patients", "warfarin"])
    return render_vocab_page(report_vocabulary(old, texts, name="old", against=("new", new)))


def training_page(folder: Path) -> str:
    curves = (Curve("f1", [(1.0, 0.2), (2.0, 0.5)]), Curve("recall", [(1.0, 0.3), (2.0, 0.4)], 1))
    return render_curves_page([Panel("Scores on dev", curves, format_percent, max)], "A run", "Step 2.")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("render", [errors_page, evaluation_page, corpus_page, vocabulary_page, training_page])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(
    render: Callable[[Path], str], width: int, theme: str, browser: Any, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(render(tmp_path), encoding="utf8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    assert requests == [(tmp_path / "page.html").as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [found["id"] for found in axe.Axe().run(page).response["violations"]] == []
    context.close()


@pytest.mark.parametrize("width", [400, 1200])
def test_a_link_of_the_contents_leads_to_its_section_below_the_list(width: int, browser: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(errors_page(tmp_path), encoding="utf8")
    page = browser.new_page(viewport={"width": width, "height": 400})
    page.goto((tmp_path / "page.html").as_uri())
    page.click("nav a[href='#the-worst-examples']")
    heading, contents = (page.locator(each).bounding_box() for each in ("#the-worst-examples h2", "nav"))
    assert 0 <= heading["y"] < 300
    assert width > 1000 or heading["y"] >= contents["y"] + contents["height"]
    page.close()
