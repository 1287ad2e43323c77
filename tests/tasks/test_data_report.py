"""The data doctor counts right, names what is wrong, and fits on a screen."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from rich.cells import cell_len

from alembert.corpus.examples.tag_check import TagProblem
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.data.windows import Row
from alembert.tasks.data_report import (
    MAX_ISSUES,
    EncodedSplit,
    LengthStatistics,
    OverlapReport,
    SplitReport,
    Truncation,
    build_data_report,
)
from alembert.tasks.data_screen import format_data_report
from alembert.tasks.example import Coverage, EncodedExample, Example, ReadResult
from alembert.tasks.relate.data import RelateSettings
from alembert.tasks.relate.task import RelateTask
from alembert.tasks.tag.data import TagSettings
from alembert.tasks.tag.task import TagTask
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fever", "high", "no", "head", "##ache", "the")


@dataclass(frozen=True, kw_only=True)
class Labelled(Example):
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class FakeTask:
    """Only what the report may use of a task."""

    labels: tuple[str, ...] = ("a", "b")
    name: str = "fake"

    def gold_answers(self, example: Labelled) -> list[str]:
        return list(example.names)

    def advice(self, examples: object, encoded: object) -> list[str]:
        return []

    def describe(self) -> list[str]:
        return ["one label an example"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocabulary(Vocabulary.from_pieces(*PIECES), lowercase=True)


def part_of(name: str, *rows: tuple[str, str], coverage: Coverage | None = None, **reading: object) -> EncodedSplit:
    """Make a part of texts and their answers, which commas divide."""
    examples = tuple(
        Labelled(id=str(place), texts=tuple(text.split("|")), names=tuple(filter(None, names.split(","))))
        for place, (text, names) in enumerate(rows)
    )
    encoded = [EncodedExample((), coverage or Coverage(examples=1)) for _ in examples]
    return EncodedSplit(name, ReadResult(examples, **reading), encoded)  # type: ignore[arg-type]


@pytest.fixture
def report(tokenizer):
    def run(*parts: EncodedSplit, task: object = FakeTask(), **given: object):
        return build_data_report(task, parts, tokenizer, **{"longest": 256, **given})  # type: ignore[arg-type]

    return run


@pytest.fixture
def first(report):
    """Report on one part alone."""

    def run(*rows: tuple[str, str], **given: object) -> SplitReport:
        return report(part_of("train", *rows, **given)).parts[0]

    return run


def test_sizes_are_counted_in_whole_texts(first):
    found = first(("High headache", "a"), ("the xyz", "b"))
    assert (found.examples, found.characters, found.tokens, found.words) == (2, 20, 5, 4)
    assert found.pieces_per_word == 5 / 4


@pytest.mark.parametrize(("text", "warned"), [("xyz fever", True), ("the fever", False)])
def test_a_model_that_does_not_know_the_language_is_doubted(tokenizer, text, warned):
    found = build_data_report(FakeTask(), [part_of("train", (text, "a"))], tokenizer, longest=512)  # type: ignore[arg-type]
    assert any("does not know 50 % of the tokens" in line for line in found.decided) == warned


def test_unknown_tokens_are_counted(first):
    assert first(("the xyz", "a"), ("xyz xyz fever", "a")).unknown == 3


def test_a_text_that_examples_share_is_tokenized_once(tokenizer, monkeypatch):
    seen: list[str] = []
    run = Tokenizer.encode_batch

    def encode_batch(self: Tokenizer, texts: list[str], **options: bool) -> object:
        seen.extend(texts)
        return run(self, texts, **options)

    monkeypatch.setattr(Tokenizer, "encode_batch", encode_batch)
    part = part_of("train", ("no|high fever", "a"), ("the|high fever", "b"))
    found = build_data_report(FakeTask(), [part], tokenizer, longest=512).parts[0]  # type: ignore[arg-type]
    assert sorted(seen) == ["high fever", "no", "the"]
    assert found.tokens == 6


def test_lengths_have_special_tokens_and_all_texts_of_an_example(first):
    rows = [("fever", "a")] * 8 + [("high fever|no headache", "a"), ("fever " * 600, "a")]
    assert first(*rows).lengths == LengthStatistics(median=3, ninetieth=8, longest=602)


def test_cuts_say_what_would_be_lost(first):
    found = first(("fever", "a"), ("fever " * 254, "a"), ("fever " * 600, "a"))
    assert found.cuts == (
        Truncation(limit=128, examples=2, tokens=128 + 474),
        Truncation(limit=256, examples=1, tokens=346),
        Truncation(limit=512, examples=1, tokens=90),
    )


def test_coverage_is_added_up(first):
    coverage = Coverage(examples=1, gold=5, unreachable=2, split_examples=1)
    found = first(("fever", "a"), ("high", "b"), coverage=coverage)
    assert (found.gold, found.unreachable, found.windowed) == (10, 4, 2)


def test_answers_are_counted_the_most_frequent_first(first):
    found = first(("fever", "b,a,b"), ("high", ""), ("no", "c,c,c"))
    assert list(found.answers.items()) == [("c", 3), ("b", 2), ("a", 1)]
    assert found.without_answers == 1


def test_answers_without_names_have_no_balance(report):
    found = report(part_of("train", ("fever", "0.3")), part_of("dev", ("no", "0.7")), task=FakeTask(labels=()))
    assert (found.parts[0].answers, found.single, found.unseen) == ({}, (), {"dev": ()})


def test_labels_that_occur_once_or_never_in_training_are_named(report):
    found = report(part_of("train", ("fever", "a,a,b")), part_of("dev", ("no", "a,c")), part_of("test", ("high", "b")))
    assert (found.single, found.unseen) == (("b",), {"dev": ("c",), "test": ()})


def test_repeated_texts_and_contradictions_are_counted(first):
    found = first(("High fever", "a"), ("high  FEVER", "a"), ("high fever", "b"), ("no", "a,b"), ("no", "b,a"))
    assert (found.repeated, found.contradictions) == (3, 1)


def test_texts_that_parts_share_are_counted(report):
    found = report(
        part_of("train", ("fever", "a"), ("no", "a")),
        part_of("dev", ("Fever", "a"), ("NO", "b"), ("high", "a")),
        part_of("test", ("head", "a")),
    )
    assert found.shared == (
        OverlapReport(first="train", second="dev", examples=2, contradictions=1),
        OverlapReport(first="train", second="test", examples=0, contradictions=0),
        OverlapReport(first="dev", second="test", examples=0, contradictions=0),
    )


def test_malformed_tags_are_all_counted_and_the_first_kept(report):
    problems = (TagProblem("a.tsv", line, "I-x follows O") for line in range(1, 101))
    found = report(part_of("train", ("no", "a")), tag_problems=problems).tag_problems
    assert (found.count, len(found.first), found.first[0].where) == (100, MAX_ISSUES, "a.tsv:1")


def test_rows_that_were_set_aside_have_file_line_and_reason(report):
    part = part_of("train", ("no", "a"), set_aside=(SetAside("a.csv", "line 7", None, "no label"),))
    (found,) = report(part).set_aside.first
    assert (found.where, found.reason) == ("a.csv, line 7", "no label")


def test_remarks_are_kept(report):
    part = part_of("train", ("no", "a"), remarks=(Remark("a.tsv", "read as IOB2", 1),))
    assert report(part).remarks == ("a.tsv: read as IOB2 (1)",)


def test_decisions_are_the_tasks_the_callers_and_windows(report):
    part = part_of("train", ("no", "a"), remarks=(Remark("a.tsv", "the text is in column 2", 1),))
    rows = tuple(Row(ids=np.zeros(size, np.int64), positions=np.zeros(1, np.int64)) for size in (100, 128))
    part = replace(part, encoded=[EncodedExample(rows, Coverage(split_examples=1))])
    assert report(part, decided=["split 90/10"], longest=512).decided == (
        "one label an example",
        "split 90/10",
        "longer texts are read in overlapping windows of up to 128 tokens: 1 in train",
        "a.tsv: the text is in column 2",
    )


def test_examples_with_numbers_are_not_said_to_have_no_answer(report):
    assert report(part_of("train", ("no", "")), task=FakeTask(labels=())).parts[0].without_answers == 0


def test_parts_without_examples_are_reported_too(report):
    found = report(part_of("train", ("no", "a")), part_of("dev")).parts[1]
    assert (found.examples, found.tokens, found.lengths.longest) == (0, 0, 0)


def test_the_table_is_json(report):
    found = report(part_of("train", ("no", "a")), part_of("dev", ("high", "b")))
    table = json.loads(json.dumps(found.to_table()))
    assert table["parts"][1]["answers"] == {"b": 1}


def crowded(report):
    """Make a report that has more of everything than a screen has room for."""
    rows = [(f"fever {'high ' * number}", f"标签 {number}") for number in range(300)]
    asides = tuple(SetAside("a" * 90 + ".csv", f"line {number}", None, "no\nlabel") for number in range(50))
    coverage = Coverage(gold=3, unreachable=1, split_examples=1)
    parts = [
        part_of("train", *rows, *rows[:9], coverage=coverage, set_aside=asides),
        part_of("dev", *rows, ("no", "new"), coverage=coverage),
        part_of("test", *rows, ("no", "newer"), coverage=coverage),
    ]
    problems = [TagProblem("b.tsv", line, "I-x follows O") for line in range(99)]
    return report(*parts, tag_problems=problems, decided=["a long sentence " * 9] * 9)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_any_report_fits_on_a_screen(report, width):
    shown = format_data_report(crowded(report), width)
    assert len(shown) <= 45
    assert max(map(cell_len, shown)) <= width


def test_all_decisions_are_shown_where_there_is_room(report):
    found = crowded(report)
    shown = " ".join("\n".join(format_data_report(found, whole=True)).split())
    assert shown.count("a long sentence") == sum(each.count("a long sentence") for each in found.decided) == 81


def test_decisions_take_the_room_that_the_rest_of_the_screen_leaves(report):
    shown = format_data_report(report(part_of("train", ("no", "a")), decided=["a long sentence " * 9] * 9))
    assert " ".join(" ".join(shown).split()).count("a long sentence") == 81
    assert len(shown) <= 45


def test_what_has_no_room_is_counted(report):
    shown = "\n".join(format_data_report(crowded(report)))
    for sentence in ("and 297 more, less frequent", "and 97 more", "and 48 more", "and 6 more"):
        assert sentence in shown


def test_the_screen_of_a_small_report(report):
    found = report(
        part_of("train", ("High fever", "a"), ("the headache", "b,a")),
        part_of("dev", ("high fever", "c"), ("xyz", "")),
        tag_problems=[TagProblem("a.tsv", 3, "I-x follows O")],
    )
    assert format_data_report(found, 70) == [
        "Data for fake                                  train               dev",
        "  examples                                         2                 2",
        "  characters                                      22                13",
        "  tokens                                           5                 3",
        "  pieces per word                               1.25              1.00",
        "  unknown tokens                                   0        1 (33.3 %)",
        "  length: median / 90 % / longest          4 / 5 / 5         3 / 4 / 4",
        "  examples that need windows                       0                 0",
        "  tokens lost if cut at 128                        0                 0",
        "  tokens lost if cut at 256                        0                 0",
        "  tokens lost if cut at 512                        0                 0",
        "  examples without answers                         0        1 (50.0 %)",
        "  answers out of reach                             0                 0",
        "  texts that came before                           0                 0",
        "  texts with different answers                     0                 0",
        "Answers                                            3                 1",
        "  a                                       2 (66.7 %)                 0",
        "  b                                       1 (33.3 %)                 0",
        "  c                                                0       1 (100.0 %)",
        "Once in train: 1 (b)",
        "In dev and never in train: 1 (c)",
        "Texts of dev that are in train too: 1, 1 with other answers",
        "Malformed tags: 1",
        "  a.tsv:3: I-x follows O",
        "Decided",
        "  one label an example",
    ]


def test_small_shares_are_not_shown_as_nothing(report):
    found = report(part_of("train", ("no", "a")))
    large = replace(found, parts=(replace(found.parts[0], tokens=10**6, unknown=3),))
    assert any(line.split("  ")[-1] == "3 (<0.1 %)" for line in format_data_report(large))


def test_a_real_task_can_be_reported(tmp_path, tokenizer):
    path = tmp_path / "train.tsv"
    path.write_text("high\tB-x\nfever\tI-x\nno\tO\n\nhead\tB-y\n", encoding="utf-8")
    reading = TagTask.read([path], TagSettings(), ReadOptions())
    task = TagTask.learn(reading.examples, TagSettings())
    part = EncodedSplit("train", reading, task.encode(reading.examples, tokenizer, 64))
    found = build_data_report(task, [part], tokenizer, longest=64).parts[0]
    assert (found.answers, found.gold, found.examples) == ({"x": 1, "y": 1}, 2, 2)


def test_the_report_loads_no_torch():
    check = "import sys; import alembert.tasks.data_screen; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)


def test_marks_of_entities_in_a_file_are_no_unknown_tokens(tmp_path, tokenizer):
    path = tmp_path / "train.tsv"
    path.write_text("<< fever >> the [[ headache ]]\tyes\nhigh << fever >> no [[ headache ]]\tno\n")
    reading = RelateTask.read([path], RelateSettings(), ReadOptions())
    task = RelateTask.learn(reading.examples, RelateSettings())
    knowing = tokenizer.with_markers(task.special_tokens)
    part = EncodedSplit("train", reading, task.encode(reading.examples, knowing, 128))
    found = build_data_report(task, [part], knowing, longest=128)
    assert found.parts[0].unknown == 0
    assert not any("is it a model for this language?" in sentence for sentence in found.decided)
