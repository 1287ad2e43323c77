"""Looking at a corpus: the numbers are those of its documents, and the page is whole, safe and self-contained."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.cli.corpus import app
from alembert.corpus.build import LexiconFiles, build
from alembert.corpus.statistics import Histogram, compute_statistics, sample_documents
from alembert.corpus.store import Corpus
from alembert.errors import BadFile
from alembert.inspect.corpus_page import render_corpus_page
from page_checks import check_page

TEXTS = [
    "Aspirin was given to the first patient. Gout did not return to her.",
    "The patients had <b>gout</b> & fever, says the second report. Aspirin helped them.",
    "Der Patient wurde mit Aspirin behandelt und hatte keine Gicht mehr.",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("show")
    gold = [{"id": "T1", "label": "Disease", "spans": [[40, 44]]}]
    records = [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)]
    records[0]["entities"] = gold
    lines = [json.dumps(record) for record in records]
    (folder / "in.jsonl").write_text("\n".join([*lines, "not json", '{"text": "Hm."}']))
    (folder / "drug.txt").write_text("aspirin\n")
    (folder / "disease.txt").write_text("gout\n")
    lexicons = {"drug": folder / "drug.txt", "disease": folder / "disease.txt"}
    build([folder / "in.jsonl"], folder / "out", lexicon_files=LexiconFiles(lexicons=lexicons), workers=1)
    return Corpus.open(folder / "out")


def show(corpus: Corpus, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    app(args=["show", str(corpus.folder), *options], prog_name="corpus", standalone_mode=False)
    return capsys.readouterr().out


def test_the_survey_counts_what_is_there(corpus: Corpus) -> None:
    found = compute_statistics(corpus)
    assert found.languages == {"en": 2, "de": 1}
    assert found.sources == {"in.jsonl": 3}
    assert dict(found.per_document.bins())["2"] == 2
    assert {(label.name, label.gold): label.count for label in found.labels} == {
        ("Disease", True): 1,
        ("disease", False): 2,
        ("drug", False): 3,
    }


def test_surfaces_come_most_frequent_first(corpus: Corpus) -> None:
    drug = next(label for label in compute_statistics(corpus).labels if label.name == "drug")
    assert drug.top == [("Aspirin", 3)]


def test_tables_name_what_was_dropped_and_why(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    printed = show(corpus, capsys)
    assert re.search(r"too short +1\n", printed)
    assert re.search(r"the line is not JSON +1\n", printed)


def test_json_is_one_object(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(show(corpus, capsys, "--json", "--sample", "2"))
    assert record["counts"]["documents"] == 3
    assert len(record["sample"]) == 2


def test_a_sample_depends_on_the_seed_alone(corpus: Corpus) -> None:
    assert sample_documents(corpus, 2, seed=1) == sample_documents(corpus, 2, seed=1)
    assert {tuple(e.document.id for e in sample_documents(corpus, 1, seed=seed)) for seed in range(20)} == {
        ("0",),
        ("1",),
        ("2",),
    }


def test_a_sample_larger_than_the_corpus_is_all_of_it(corpus: Corpus) -> None:
    assert [entry.document.text for entry in sample_documents(corpus, 10, seed=0)] == TEXTS


def test_sampled_documents_are_printed(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    assert TEXTS[2] in show(corpus, capsys, "--sample", "3")


class _Checker(HTMLParser):
    """Collects texts and marks, and whatever would fetch or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.foreign += [name for name, _ in attrs if name == "src" or name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        if tag in ("small", "sub"):
            self.text.pop()  # the label behind an entity

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_needs_nothing_else_and_escapes_texts(corpus: Corpus) -> None:
    checker = _Checker()
    page = render_corpus_page(compute_statistics(corpus), sample_documents(corpus, 3, seed=0))
    check_page(page)
    checker.feed(page)
    assert checker.foreign == []
    assert not {"script", "link", "img", "iframe"} & set(checker.tags)
    assert checker.tags.count("svg") == 4  # three lengths, and the entities
    assert TEXTS[1] in "".join(checker.text)


def test_the_page_is_written(corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(corpus, capsys, "--html", str(tmp_path / "report.html"))
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_folder_of_the_page_is_made(corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(corpus, capsys, "--html", str(tmp_path / "new/folder/report.html"))
    assert (tmp_path / "new/folder/report.html").is_file()


def test_a_page_that_cannot_be_written_is_refused(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadFile, match="cannot be written"):
        show(corpus, capsys, "--html", str(tmp_path / "file/report.html"))


@given(st.lists(st.integers(0, 2000)))
def test_every_value_is_in_one_bin(values: list[int]) -> None:
    histogram = Histogram((1, 2, 5, 10, 1000))
    histogram.add(np.array(values, dtype=np.int64))
    assert sum(count for _, count in histogram.bins()) == len(values)
    assert dict(histogram.bins())["5-9"] == sum(5 <= value <= 9 for value in values)
