"""How fast the page of `alembert serve` answers a key in a long text, in Debian's Chromium.

    python benchmarks/page.py [--quick] [--words 20000] [--entities 2000]

The page reads a text with entities at even distances (the model is replaced by one that knows where they are), and then
gets keys as a person presses them: next, accept, next, change the type, next, reject, undo, the last entity, all equal.
Printed for each key: milliseconds from the event to the end of the frame that shows its effect, median and largest, and the
milliseconds of the CPU that the page's main thread used for it, which other work on the machine hardly changes.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from harness import parser
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from alembert.hub import model_folder
from alembert.serve import models
from serving import started

KEYS = {
    "next": "j", "accept": "a", "change type": "2", "reject": "r", "undo": "u", "last": "k", "all equal": "e",
}  # fmt: skip
WAIT_FOR_FRAME = """() => {
    window.times = [];
    addEventListener("keydown", (event) => {
        const begun = event.timeStamp;
        requestAnimationFrame(() => {
            const channel = new MessageChannel();
            channel.port1.onmessage = () => window.times.push(performance.now() - begun);
            channel.port2.postMessage(null);
        });
    }, { capture: true });
}"""


@contextmanager
def opened_page(folder: Path, text: str, found: list[dict[str, Any]]) -> Iterator[Any]:
    """Serve a tagger that finds what we say, and open the page with a text."""
    record = {"id": "1", "text": text, "entities": found, "coverage": {"characters": 1, "tokens": 1, "windows": 1}}

    def compute(self: models.Prediction, examples: Any) -> models.BatchAnswer:
        return models.BatchAnswer([record] * len(examples))

    with patch.object(models.Prediction, "compute", compute), started(folder) as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(server.url)
        page.wait_for_selector("#model option", state="attached")
        page.evaluate("(text) => { document.getElementById('input').value = text; }", text)
        page.click("#ask button")
        page.wait_for_selector("#text mark")
        page.click("h1")
        yield page
        browser.close()


def measure(page: Any, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Press each key several times; return the milliseconds of each, by the clock and of the CPU."""
    page.evaluate(WAIT_FOR_FRAME)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    names = ["next", "accept", "next", "change type", "next", "reject", "undo", "last", "all equal", "undo"] * rounds
    used = []
    for count, name in enumerate(names, 1):
        before = cpu_milliseconds(session)
        page.keyboard.press(KEYS[name])
        while page.evaluate("window.times.length") < count:
            pass
        used.append(cpu_milliseconds(session) - before)
    taken: dict[str, list[tuple[float, float]]] = {}
    for name, *milliseconds in zip(names, page.evaluate("window.times"), used, strict=True):
        taken.setdefault(name, []).append((milliseconds[0], milliseconds[1]))
    return taken


def cpu_milliseconds(session: Any) -> float:
    """Read how long the main thread of the page has computed."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(each["value"] for each in metrics if each["name"] == "TaskDuration")


def main() -> None:
    arguments = parser(__doc__, quick="three rounds in place of thirty")
    arguments.add_argument("--words", type=int, default=20_000)
    arguments.add_argument("--entities", type=int, default=2000)
    asked = arguments.parse_args()
    every = asked.words // asked.entities
    words = [
        "imatinib" if n % every == 0 else "sample" + ("." if n % every == every - 1 else "") for n in range(asked.words)
    ]
    text = " ".join(words)
    starts = [at for at in range(len(text)) if text.startswith("imatinib", at)]
    found = [
        {"start": at, "end": at + 8, "label": "Chemical", "score": 0.5 + n % 50 / 100} for n, at in enumerate(starts)
    ]
    with opened_page(model_folder("bio-fast"), text, found) as page:
        taken = measure(page, 3 if asked.quick else 30)
        elements = page.evaluate("document.querySelectorAll('*').length")
    for name, times in taken.items():
        clock, cpu = zip(*times, strict=True)
        line = f"{name:12} median {median(clock):6.1f} ms   largest {max(clock):6.1f} ms"
        print(f"{line}   CPU median {median(cpu):6.1f} ms   of {len(times)}")
    largest, largest_cpu = (max(each[side] for times in taken.values() for each in times) for side in (0, 1))
    facts = {"words": len(words), "entities": len(found), "elements": elements}
    print(json.dumps({**facts, "largest_ms": round(largest, 1), "largest_cpu_ms": round(largest_cpu, 1)}))


if __name__ == "__main__":
    main()
