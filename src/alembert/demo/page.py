"""The page of the demo.

In: what the steps left in their folders, and what they printed. Out: the page. What came out stands first: annotated text,
and the models in one table and one plot; then how they learnt, what was done, and where to go next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from alembert import sample
from alembert.charts import render_figure
from alembert.demo import DemoFolders, DemoStep
from alembert.demo.text_steps import entity_marks, read_annotated
from alembert.html import colour_by_label, render_legend, render_list, render_page, render_table, render_text
from alembert.inspect.comparison_plot import build_comparison_chart
from alembert.inspect.reports import comparison_sentences, model_table
from alembert.inspect.tables import render_excerpts
from alembert.train.curves import Panel, build_panels, render_panels
from alembert.train.runlog import RunLog

if TYPE_CHECKING:
    from alembert.corpus.document import Document
    from alembert.inspect.comparison import ComparisonReport

LANGUAGES: Final = {"en": "English", "zh": "Chinese"}
SHOWN_DOCUMENTS: Final = 2
"""Annotated documents of each language."""
GUIDES: Final = {
    "docs/index.md": "all pages",
    "docs/corpus.md": "your own files",
    "docs/pretrain.md": "adapt a model to your text",
    "docs/finetune.md": "your own labels, seven tasks",
    "docs/distill.md": "smaller models",
    "docs/export.md": "int8, without torch",
    "docs/annotate.md": "millions of documents",
}
_HIDDEN_PANELS: Final = ("Learning rate", "Norm of the gradient", "Tokens a second")
"""Panels that the page of each run has, and that say little here."""


def render_demo_page(folders: DemoFolders, steps: Sequence[DemoStep], next_commands: Sequence[str]) -> str:
    comparison = next(step.comparison for step in steps if step.comparison)
    body = [
        f"<p>{escape(_summary(steps))}</p>",
        *_annotated_texts(folders),
        *_models(comparison),
        *_curves(folders),
        *_steps(steps),
        *_next_steps(next_commands),
    ]
    return render_page("alembert demo", "From raw text to an annotating model", "\n".join(body))


def _summary(steps: Sequence[DemoStep]) -> str:
    minutes, seconds = divmod(round(sum(step.seconds for step in steps)), 60)
    return (
        f"alembert has run its whole chain on the embedded sample, {len(sample.load_passages())} short made-up passages, in "
        f"{minutes} min {seconds} s on this machine. The models are tiny and have read little, so scores are low: it is "
        "the way that counts, and it is the same for your documents."
    )


def _annotated_texts(folders: DemoFolders) -> Iterator[str]:
    yield "<h2>Annotated text</h2>"
    yield (
        "<p>What the last model found in texts of the test part: pre-training has read them as plain text, but no training "
        "knew their labels. A line above: found by the model; a line below: right. Both lines: a hit.</p>"
    )
    yield render_legend({label: number for number, label in enumerate(sample.LABELS)})
    colour = colour_by_label(sample.LABELS)
    documents = sorted(read_annotated(folders), key=_language)
    for language, group in groupby(documents, key=_language):
        for document in islice(group, SHOWN_DOCUMENTS):
            yield f"<h3>{escape(document.id)}, {LANGUAGES[language]}</h3>"
            yield render_text(render_excerpts(document.text, entity_marks(document), colour), language)


def _language(document: Document) -> str:
    return document.id.split("-")[0]


def _models(comparison: ComparisonReport) -> Iterator[str]:
    yield f"<h2>The models on the way</h2>\n{model_table(comparison).html()}"
    caption = f"{comparison.measure} with its 95 % interval, size and speed"
    yield render_figure(build_comparison_chart(comparison), caption, whole=True)
    yield from (f"<p>{escape(sentence)}</p>" for sentence in comparison_sentences(comparison, brief=True))


def _curves(folders: DemoFolders) -> Iterator[str]:
    yield "<h2>How they learnt</h2>"
    runs = {
        "Pre-training": folders.pretrained,
        "The tagger": folders.tagger,
        "The classifier": folders.classifier,
        "The student": folders.student,
    }
    for name, folder in runs.items():
        yield f"<h3>{name}</h3>\n{render_panels(_shown_panels(folder))}"


def _shown_panels(folder: Path) -> list[Panel]:
    return [panel for panel in build_panels(RunLog(folder / "run")) if panel.title not in _HIDDEN_PANELS]


def _steps(steps: Sequence[DemoStep]) -> Iterator[str]:
    yield "<h2>What was done</h2>"
    yield "<p>Each command does its step again, from the folder in which the demo was started.</p>"
    for step in steps:
        yield f"<h3>{escape(step.title)} <small>({step.seconds:.0f} s)</small></h3>"
        if step.comparison is None:  # its table is above
            yield render_list(step.lines)
        yield _shell(step.commands)


def _shell(commands: Sequence[str]) -> str:
    lines = escape("\n".join(commands), quote=False)
    return f"<pre>{lines}</pre>" if commands else ""


def _next_steps(commands: Sequence[str]) -> Iterator[str]:
    yield f"<h2>Where to go next</h2>\n{_shell(commands)}"
    yield render_table(("page", "what it is about"), GUIDES.items(), {0, 1})
