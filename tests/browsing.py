"""What the tests in a browser share: a model that finds known words, and what people see and do on the page."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembert.serve import models
from alembert.serve.models import BatchAnswer

TEXT = "😀 aspirin 咳嗽 and aspirin, 👩‍⚕️ <b>fever</b> <script>window.bad = 1</script>."
KNOWN = [("aspirin", "chemical", 0.9), ("fever", "<img src=x onerror=alert(1)>", 0.3), ("aspirin", "chemical", 0.6)]
ELSEWHERE = [("aspirin", "chemical", 0.8), ("咳嗽", "disease", 0.7)]
"""What the second model knows."""
TOPIC = {"label": "drug", "probabilities": {"drug": 0.8, "<b>sign": 0.2}, "coverage": {"characters": 1, "tokens": 1}}
PATIENCE = int(os.environ.get("PATIENCE", "120000"))
COVERAGE = {"characters": 1, "tokens": 1, "windows": 1}
EXPLANATION = {
    "question": "Why “aspirin” is chemical and nothing else <b>",
    "label": "chemical",
    "method": "occlusion",
    "margin": 4.0,
    "faithfulness": {
        "comprehensiveness": 3.0,
        "sufficiency": 0.5,
        "random_comprehensiveness": 1.0,
        "random_sufficiency": 2.0,
        "better_than_random": False,
    },
}


def found(text: str, known: list[tuple[str, str, float]]) -> list[dict[str, Any]]:
    """Entities at the words that a model knows, with scores that differ."""
    starts: dict[str, int] = {}
    entities = []
    for word, label, score in known:
        start = text.find(word, starts.get(word, -1) + 1)
        if start >= 0:
            starts[word] = start
            entities.append({"start": start, "end": start + len(word), "label": label, "score": score, "text": word})
    return entities


def answer(self: models.Prediction, examples: Any) -> BatchAnswer:
    """Stand in for the models: two taggers, of which `other` knows other words, and one that relates two entities."""
    if self.key[0] == "relations":
        return BatchAnswer([relate(each["relate"]) for each in examples])
    if self.key[0] == "topics":
        return BatchAnswer([{**TOPIC, "text": each["classify"].texts[0]} for each in examples])
    known = ELSEWHERE if self.key[0] == "other" else KNOWN
    texts = [example["tag"].text for example in examples]
    return BatchAnswer(
        [{"id": "1", "text": text, "entities": found(text, known), "coverage": COVERAGE} for text in texts]
    )


def relate(example: Any) -> dict[str, Any]:
    """Relate the first two entities of a document; the sentence with marks that readiness asks has no relation."""
    if example.form == "marked" or len(example.mentions) < 2:
        return {"triples": [], "coverage": COVERAGE}
    head, tail = ({"start": each.start, "end": each.end} for each in example.mentions[:2])
    return {"triples": [{"head": head, "relation": "treats <b>", "tail": tail, "score": 0.8}], "coverage": COVERAGE}


@contextmanager
def watched(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    """Open the page; errors of it and requests to elsewhere fail the test."""
    page = browser.new_context(**{"locale": "en-US", "accept_downloads": True, **options}).new_page()
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("dialog", lambda dialog: (wrong.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: request.url.startswith((url, "blob:")) or wrong.append(request.url))
    page.goto(url)
    page.wait_for_selector("#model option", state="attached")
    yield page
    assert wrong == []
    page.context.close()


def read(page: Any, text: str = TEXT) -> None:
    page.fill("#input", text)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#text mark")
    page.click("h1")


def rows(page: Any, of: str = "#list") -> list[list[str]]:
    """What each button of a list says."""
    return page.evaluate(
        "(of) => [...document.querySelectorAll(`${of} li > button:first-child`)].map((b) => [...b.children].map((c) => c.textContent))",
        of,
    )


def states(page: Any) -> list[str]:
    return [row[2].rpartition("· ")[2] for row in rows(page)]


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


def drop(page: Any, files: Mapping[str, str]) -> None:
    """Drop files on the page."""
    page.evaluate(
        """(files) => {
            const dataTransfer = new DataTransfer();
            for (const [name, text] of Object.entries(files)) dataTransfer.items.add(new File([text], name));
            document.getElementById("input").dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        files,
    )


def download(page: Any, file: Path) -> Path:
    """Press the button and save the file."""
    with page.expect_download() as waiting:
        page.click("#download")
    waiting.value.save_as(file)
    return file


def explain(route: Any) -> None:
    """Answer /v1/explain: the words of the text, of which the first speaks against the decision."""
    asked = json.loads(route.request.post_data)
    text = asked["inputs"]["text"] if isinstance(asked["inputs"], dict) else asked["inputs"]
    words = [(word, text.index(word)) for word in dict.fromkeys(text.split())]
    scored = [
        {"text": word, "start": at, "end": at + len(word), "score": [-1.0, 2.0, 0.5][min(number, 2)]}
        for number, (word, at) in enumerate(words)
    ]
    explanation = {
        **EXPLANATION,
        "text": text,
        "span": asked.get("span"),
        "words": scored,
        "margin": 4.0 - ("edited" in text),
    }
    route.fulfill(json={"model": asked["model"], "explanation": explanation})


def with_explanations(page: Any) -> None:
    """Answer /v1/explain in the browser, and load the page again."""
    page.route("**/openapi.json", lambda route: route.fulfill(json={"paths": {"/v1/explain": {}}}))
    page.route("**/v1/explain", explain)
    page.reload()
    page.wait_for_selector("#why", state="attached")
    page.wait_for_selector("#model option", state="attached")
