"""Sentences with dictionary labels: which are drawn, which are left out, and what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from alembert.cli import app
from alembert.corpus.label import ExcludedText, LabelSettings, label_corpus, normalise_sentence
from alembert.errors import BadFile, BadSetting, UserError

LONG = "The patients who received aspirin for many years reported gout more often than those in the other group did."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    lines = [f"Patient number {n} had {'gout' if n % 2 else 'pain'} after {n} days of rest." for n in range(40)]
    (tmp_path / "a.txt").write_text("\n".join(lines[:20]))
    (tmp_path / "b.txt").write_text("\n".join(lines[20:]))
    (tmp_path / "disease.txt").write_text("gout\nasthma\n")
    (tmp_path / "more.txt").write_text("pain\n")
    return tmp_path


def run(place: Path, *inputs: str, out: str = "out.jsonl", exclude: tuple[str, ...] = (), **settings: Any) -> list[Any]:
    label_corpus(
        [place / name for name in inputs or ("a.txt", "b.txt")],
        place / out,
        lexicons=[("Disease", place / "disease.txt")],
        exclude=[place / name for name in exclude],
        settings=LabelSettings(**settings),
    )
    opened = gzip.open if out.endswith(".gz") else open
    with opened(place / out, "rt") as file:
        return [json.loads(line) for line in file]


def test_sentences_are_written_with_what_the_dictionary_has(place: Path) -> None:
    records = run(place, out="out.jsonl.gz")
    assert len(records) == 40
    assert sum("entities" in record for record in records) == 20
    assert all(record["meta"]["annotated_types"] == ["Disease"] for record in records)
    first = next(record for record in records if "entities" in record)
    ((start, end),) = first["entities"][0]["spans"]
    assert first["text"][start:end] == "gout"


def test_the_sample_is_the_same_whatever_the_order_of_the_files(place: Path) -> None:
    chosen = {record["text"] for record in run(place, sentences=10)}
    assert chosen == {record["text"] for record in run(place, "b.txt", "a.txt", sentences=10)}
    assert chosen != {record["text"] for record in run(place, sentences=10, seed=2)}


@pytest.mark.parametrize(("share", "matched"), [(0.8, 8), (0.0, 0), (1.0, 10)])
def test_the_share_of_sentences_with_a_match_is_kept(place: Path, share: float, matched: int) -> None:
    records = run(place, sentences=10, match_share=share)
    assert (len(records), sum("entities" in record for record in records)) == (10, matched)


def test_a_larger_sample_holds_the_smaller_one(place: Path) -> None:
    small, large = ({record["id"] for record in run(place, sentences=n)} for n in (10, 20))
    assert small < large


def test_repeated_sentences_are_written_once(place: Path) -> None:
    (place / "c.txt").write_text((place / "a.txt").read_text())
    assert len(run(place, "a.txt", "c.txt")) == 20


def test_sentences_of_labelled_files_are_left_out(place: Path) -> None:
    tokens = ["Patient", "number", "1", "had", "gout", "after", "1", "days", "of", "rest", "."]
    (place / "test.tsv").write_text("".join(f"{token}\tO\n" for token in tokens) + "\n")
    counts = label_corpus(
        [place / "a.txt"],
        place / "out.jsonl",
        lexicons=[("Disease", place / "disease.txt")],
        exclude=[place / "test.tsv"],
    ).counts
    assert (counts["excluded"], counts["written"]) == (1, 19)


@pytest.mark.parametrize(
    ("sentence", "is_excluded"),
    [
        (LONG, True),
        (LONG.upper().replace(" ", "  "), True),
        (f"In short: {LONG}", True),  # another splitter joined two sentences
        (LONG[: len(LONG) * 3 // 4], True),  # or cut one
        (LONG[:30], False),
        (LONG.replace("aspirin", "lithium"), False),
    ],
)
def test_long_sentences_are_found_wherever_they_begin_and_end(sentence: str, is_excluded: bool) -> None:
    excluded = ExcludedText()
    excluded.add(f"Methods were sound. {LONG} Nothing else was found.")
    assert excluded.has(normalise_sentence(sentence)) == is_excluded


def test_several_files_may_have_one_label(place: Path) -> None:
    lexicons = [("Disease", place / name) for name in ("disease.txt", "more.txt")]
    counts = label_corpus([place / "a.txt"], place / "out.jsonl", lexicons=lexicons).counts
    assert counts["with a match"] == 20


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sentences": 0}, "`sentences` is 0"),
        ({"match_share": 2.0}, "`match_share`"),
        ({"unknown": ("guess",)}, "the rules are short"),
        ({"out": "out.tsv"}, "another ending"),
        ({"exclude": ("nothing.txt",)}, "does not exist"),
        ({"exclude": ("empty.txt",)}, "no text that could be excluded"),
        ({"min_words": 100}, "can be used"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(place: Path, changes: dict[str, Any], sentence: str) -> None:
    (place / "empty.txt").write_text("")
    with pytest.raises(UserError, match=sentence):
        run(place, **changes)
    assert not list(place.glob("*out.*"))


def test_lexicons_are_needed(place: Path) -> None:
    with pytest.raises(BadSetting, match="No lexicon"):
        label_corpus([place / "a.txt"], place / "out.jsonl", lexicons=[])
    with pytest.raises(BadFile):
        label_corpus([place / "a.txt"], place / "out.jsonl", lexicons=[("Disease", place / "none.txt")])


def test_the_command_counts_what_it_did(place: Path) -> None:
    arguments = ["corpus", "label", str(place / "a.txt"), "--lexicon", f"Disease={place / 'disease.txt'}"]
    done = CliRunner().invoke(app, [*arguments, "--sentences", "5", "--out", str(place / "out.jsonl"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["written"] == 5
