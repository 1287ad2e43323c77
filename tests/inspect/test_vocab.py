"""The vocabulary report: tables that agree with the numbers, and a page that is whole, safe and needs nothing else."""

import json
from html.parser import HTMLParser

import pytest

from alembert import sample
from alembert.charts import Chart, Curve, build_bar_chart, build_curve_chart
from alembert.inspect.tokens import VocabReport, render_vocab_page, report_vocabulary
from alembert.text.extend import add_vocabulary_terms
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary
from alembert.text.word_counts import TextSample
from page_checks import check_page

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
OLD = Tokenizer.from_vocabulary(
    Vocabulary((*SpecialTokens().roles().values(), *LETTERS, *(f"##{letter}" for letter in LETTERS))),
    lowercase=True,
)
NEW = add_vocabulary_terms(OLD, ["patients", "warfarin"])
SAMPLES = [
    TextSample(p.text, tuple((e.label, p.text[e.start : e.end]) for e in p.entities))
    for p in sample.load_passages("en")
]


class Elements(HTMLParser):
    """Keeps every element and attribute of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.attributes += attrs


@pytest.fixture(scope="module")
def single() -> VocabReport:
    return report_vocabulary(OLD, SAMPLES, name="old")


@pytest.fixture(scope="module")
def both() -> VocabReport:
    return report_vocabulary(OLD, SAMPLES, name="old", against=("new <b>", NEW))


def test_every_part_of_the_fit_is_a_table(single: VocabReport) -> None:
    titles = [table.title for table in single.tables()]
    assert titles == [
        "Fit",
        "Pieces per word",
        "Pieces per entity",
        "Words that cost most (old)",
        "Unknown words (old)",
        "What adding terms to old would save",
    ]


def test_rows_are_as_wide_as_their_header(both: VocabReport) -> None:
    assert all(len(row) == len(table.header) for table in both.tables() for row in table.rows)


def test_two_tokenizers_stand_side_by_side(both: VocabReport) -> None:
    summary, words, entities, *_ = both.tables()
    assert summary.header == ("", "old", "new <b>")
    assert words.header == ("pieces", "old", "new <b>", "")
    assert "fewer pieces" in summary.note
    assert [row[:2] for row in entities.rows[:2]] == [("chemical", "old"), ("chemical", "new <b>")]


def test_json_has_both(both: VocabReport) -> None:
    record = json.loads(json.dumps(both.as_json()))
    assert record["pieces"] > record["against"]["pieces"]
    assert (record["name"], record["against"]["name"]) == ("old", "new <b>")


def test_tokenizers_of_another_case_are_measured_on_words_of_their_own() -> None:
    cased = Tokenizer.from_vocabulary(OLD.vocabulary, lowercase=False)
    found = report_vocabulary(OLD, SAMPLES, against=("cased", cased))
    assert found.fits[0].distinct_words < found.fits[1].distinct_words
    assert found.fits[0].unknown < found.fits[1].unknown


def test_the_page_fetches_and_runs_nothing(both: VocabReport) -> None:
    check_page(render_vocab_page(both))
    elements = Elements(render_vocab_page(both))
    assert not {"script", "link", "img", "iframe"} & set(elements.opened)
    assert "new <b>" not in render_vocab_page(both)
    assert not [name for name, _ in elements.attributes if name == "src" or name.startswith("on")]


def test_the_page_draws_every_histogram(both: VocabReport) -> None:
    elements = Elements(render_vocab_page(both))
    # Words, entities split, one for each of three kinds, what adding saves.
    assert elements.opened.count("svg") == 6
    assert elements.opened.count("table") == len(both.tables())


def test_names_of_users_are_escaped(both: VocabReport) -> None:
    assert "new &lt;b&gt;" in render_vocab_page(both)


def test_a_corpus_without_entities_has_a_page_too() -> None:
    assert "Pieces per entity" not in render_vocab_page(report_vocabulary(OLD, [TextSample("aspirin and water")]))


@pytest.mark.parametrize(
    "chart",
    [
        build_bar_chart("t", ["1"], {"a": [0.0]}),
        build_bar_chart("t", [], {}, counts=True),
        build_curve_chart("t", [Curve("c", [(0.0, 0.0), (1.0, 0.0)])], str),
    ],
)
def test_plots_of_nothing_are_drawn(chart: Chart) -> None:
    assert chart.svg().startswith("<svg")
    assert "nan" not in chart.svg()
