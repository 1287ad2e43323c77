"""The task answer: rows, losses, decoding, thresholds, scores, and what is refused."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from alembert.corpus.examples.questions import GoldAnswer
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.tasks.answer.data import AnswerExample, AnswerSettings
from alembert.tasks.answer.scores import SpanAnswerPrediction
from alembert.tasks.answer.task import AnswerTask
from alembert.tasks.example import EncodedExample
from alembert.tasks.losses import span_divergence, span_loss
from alembert.tasks.reading import parse_split, split_examples
from alembert.tasks.runtime.torch import TaskBatch, collate_rows
from alembert.tasks.settings import LossSettings
from alembert.text import sentences
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?"
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces(
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)
    ),
    lowercase=True,
)
WORDS = "Aa bb cc dd ee ff gg hh ii jj kk ll mm nn oo pp. Qq rr ss tt uu vv ww xx yy zz."
SMALL = AnswerSettings(max_length=32, overlap=8, max_question_length=6)


def example(passage: str, *spans: tuple[int, int], question: str = "a b?", **more: Any) -> AnswerExample:
    answers = tuple(GoldAnswer(passage[slice(*span)], (span,)) for span in spans)
    return AnswerExample(**{"id": "q", "texts": (question, passage), "where": "f.json:1", "answers": answers} | more)


def at(passage: str, text: str) -> tuple[int, int]:
    start = passage.index(text)
    return start, start + len(text)


def test_answers_longer_than_may_be_given_are_counted_with_what_to_set() -> None:
    spans = ["bb", "bb cc dd", "bb cc dd ee"]
    examples = [example(WORDS, at(WORDS, span)) for span in spans] + [example(WORDS)]
    short = task(max_answer_length=5)
    (sentence,) = short.advice(examples, short.encode(examples, TOKENIZER, 512))
    assert sentence == (
        "2 of 3 answers to train on (66.7 %) are longer than `max_answer_length` (5 tokens) and can never be given whole; "
        "max_answer_length = 8 under [task] is enough for all of them"
    )
    assert not list(task(max_answer_length=8).advice(examples, short.encode(examples, TOKENIZER, 512)))


def task(has_none: bool = True, threshold: float = 0.0, **changes: Any) -> AnswerTask:
    settings = replace(SMALL, **changes)
    return AnswerTask(settings, has_none, "squad2" if has_none else "squad1", threshold)


def encoded(one: AnswerExample, of: AnswerTask | None = None) -> EncodedExample:
    return (of or task()).encode([one], TOKENIZER, 512)[0]


def outputs_for(each: EncodedExample, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    chance = np.random.default_rng(seed)
    return [chance.normal(size=(len(row.positions), 2)).astype(np.float32) for row in each.rows]


# -- rows


def test_a_row_is_question_and_passage_with_segments() -> None:
    (row,) = encoded(example("c d", (2, 3))).rows
    assert TOKENIZER.tokens(row.ids) == ["[CLS]", "a", "b", "?", "[SEP]", "c", "d", "[SEP]"]
    assert row.segments is not None
    assert row.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert row.positions.tolist() == [0, 5, 6]
    assert row.labels is not None
    assert row.labels.tolist() == [[2, 2]]


def test_each_row_that_holds_the_whole_answer_points_at_it_and_the_others_at_none() -> None:
    each = encoded(example(WORDS, at(WORDS, "Qq rr")))
    assert len(each.rows) > 2
    for row, window in zip(each.rows, each.layout.windows, strict=True):
        assert row.labels is not None
        ((first, last),) = row.labels.tolist()
        tokens = TOKENIZER.tokens(row.ids[row.positions])[first : last + 1]
        holds = window.start <= each.layout.passage.find_tokens(at(WORDS, "Qq rr"))[0]
        assert tokens in (["q", "##q", "r", "##r"], ["[CLS]"])
        assert tokens != ["[CLS]"] or not holds or window.end < len(each.layout.passage)


def test_rows_keep_to_the_limit_and_a_long_question_is_cut_and_counted() -> None:
    each = encoded(example(WORDS, (0, 2), question="abc def ghi"))
    assert all(row.length <= 32 for row in each.rows)
    assert each.coverage.cut_characters == 3


def test_of_several_people_the_answer_that_most_gave_is_learnt() -> None:
    one = example("aa bb cc", (0, 2), (3, 5), (3, 5))
    assert one.training_answer() == GoldAnswer("bb", ((3, 5),))


def test_an_answer_in_several_places_is_learnt_at_the_first_that_a_row_holds() -> None:
    one = replace(example(WORDS), answers=(GoldAnswer("x", ((0, 2), at(WORDS, "zz"))),))
    found = [row.labels.tolist()[0] for row in encoded(one).rows if row.labels is not None]
    assert found[0] == [1, 2]
    assert found[-1] != [0, 0]


def test_a_question_whose_answer_has_no_place_is_not_learnt_from_and_counts() -> None:
    one = replace(example("aa bb"), answers=(GoldAnswer("cc", ()),))
    assert encoded(one, task().for_training()).rows == ()
    each = encoded(one)
    assert (len(each.rows), each.rows[0].labels) == (1, None)
    assert (each.coverage.gold, each.coverage.unreachable) == (1, 1)


def test_answers_that_cannot_be_given_word_for_word_are_counted() -> None:
    assert encoded(example(WORDS, at(WORDS, "bb cc dd")), task(max_answer_length=5)).coverage.unreachable == 1
    assert encoded(example(WORDS, at(WORDS, "bb cc dd"))).coverage.unreachable == 0
    assert encoded(example("北京.", (0, 1)), task()).coverage.unreachable == 0
    assert encoded(example("The 1980s.", (4, 8))).coverage.unreachable == 1
    assert encoded(example("The 1980s.", (4, 9))).coverage.unreachable == 0


def test_a_passage_without_tokens_has_a_row_and_no_answer() -> None:
    each = encoded(example("\u200b"))
    answered = task(has_none=False).decode(each, outputs_for(each))
    assert (len(each.rows), answered.answer, answered.text) == (1, None, "")


def test_the_sentences_of_a_passage_are_found_once_for_all_its_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split_texts: list[str] = []

    def split_sentences(text: str) -> Any:
        split_texts.append(text)
        return sentences.split_sentences(text)

    monkeypatch.setattr("alembert.tasks.answer.rows.split_sentences", split_sentences)
    asked = [example(WORDS, at(WORDS, "cc"), id=str(number)) for number in range(5)]
    assert len({tuple(each.layout.windows) for each in task().encode(asked, TOKENIZER, 512)}) == 1
    assert split_texts == [WORDS]


# -- losses


def target(*examples: AnswerExample) -> tuple[TaskBatch, torch.Tensor]:
    rows = [row for each in task().encode(examples, TOKENIZER, 512) for row in each.rows]
    found = collate_rows(rows, range(len(rows)), len(rows))
    outputs = torch.randn(len(found.positions), 2, generator=torch.Generator().manual_seed(1))
    return found, outputs.requires_grad_()


PAIR = (example(WORDS, at(WORDS, "ss tt")), example("aa bb", (3, 5)), example("cc dd"))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_mean_of_start_and_end_summed_over_rows(smoothing: float) -> None:
    asked, outputs = target(*PAIR)
    parts = zip(asked.split_by_row(outputs), asked.labels_by_row(), strict=True)
    expected = sum(functional.cross_entropy(part.T, labels[0], label_smoothing=smoothing) for part, labels in parts)
    found = span_loss(outputs, asked, LossSettings(label_smoothing=smoothing))
    torch.testing.assert_close(found, expected)
    mine, theirs = (torch.autograd.grad(loss, outputs, retain_graph=True)[0] for loss in (found, expected))
    torch.testing.assert_close(mine, theirs)


def test_focal_loss_counts_sure_answers_less() -> None:
    asked, outputs = target(example("aa bb", (3, 5)))
    logs = outputs.log_softmax(0).gather(0, asked.labels)[0]
    expected = (-logs * (1 - logs.exp()) ** 2).mean()
    torch.testing.assert_close(span_loss(outputs, asked, LossSettings(focal=2)), expected)


def test_the_divergence_is_that_of_the_rows() -> None:
    asked, one = target(*PAIR)
    other = torch.randn_like(one)
    expected = torch.zeros(())
    for pair in zip(asked.split_by_row(one), asked.split_by_row(other), strict=True):
        p, q = (part.log_softmax(0) for part in pair)
        expected = expected + functional.kl_div(p, q, reduction="sum", log_target=True)
        expected = expected + functional.kl_div(q, p, reduction="sum", log_target=True)
    torch.testing.assert_close(span_divergence(one, other, asked), expected / 4)


# -- decoding


def is_border(text: str, at: int) -> bool:
    return re.fullmatch(r"\w\w", text[max(at - 1, 0) : at + 1]) is None


def plain_best(each: EncodedExample, outputs: Sequence[Any], count: int, longest: int) -> list[tuple[str, float]]:
    """Answers as the published code finds them, but of whole words: loops over the best starts and ends of each window."""
    found: list[tuple[float, str]] = []
    passage = each.layout.passage
    starts_whole = {n for n, at in enumerate(passage.starts_T) if is_border(passage.text, at)}
    ends_whole = {n for n, at in enumerate(passage.ends_T) if is_border(passage.text, at)}
    for window, part in zip(each.layout.windows, outputs, strict=True):
        own = range(window.own_start - window.start, window.own_end - window.start)
        inside = [place for place in range(window.end - window.start) if place + window.start in ends_whole]
        own = [place for place in own if place + window.start in starts_whole]
        starts = sorted(own, key=lambda place: -part[1 + place, 0])[:count]
        ends = sorted(inside, key=lambda place: -part[1 + place, 1])[:count]
        for start in starts:
            for end in ends:
                if start <= end < start + longest:
                    text = passage.text_of(window.start + start, window.start + end)
                    found.append((float(part[1 + start, 0]) + float(part[1 + end, 1]), text))
    kept: dict[str, float] = {}
    for score, text in sorted(found, key=lambda pair: -pair[0]):
        kept.setdefault(text, score)
    return list(kept.items())[:count]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(1, 12))
def test_answers_are_those_of_plain_loops(seed: int, count: int, longest: int) -> None:
    each = encoded(example(WORDS))
    outputs = outputs_for(each, seed)
    answered = task(n_best=count, max_answer_length=longest).decode(each, outputs)
    expected = plain_best(each, outputs, count, longest)
    assert [answer.text for answer in answered.best] == [text for text, _ in expected]
    null = min(float(part[0, 0]) + float(part[0, 1]) for part in outputs)
    if expected:
        assert answered.null_score == pytest.approx(null - expected[0][1], abs=1e-5)
        logits = np.array([*(score for _, score in expected), null])
        sure = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        assert [answer.score for answer in answered.best] == pytest.approx(sure[:-1], abs=1e-6)
        assert answered.null_probability == pytest.approx(sure[-1], abs=1e-6)


def test_no_answer_begins_or_ends_inside_a_word() -> None:
    each = encoded(example(WORDS))
    answered = task(n_best=25).decode(each, outputs_for(each))
    assert len(answered.best) == 25
    for answer in answered.best:
        assert is_border(WORDS, answer.start)
        assert is_border(WORDS, answer.end)


@pytest.mark.parametrize(("passage", "text"), [("북한에서 왔다", "북"), ("ประเทศไทย", "ประเทศ"), ("东京は", "京")])
def test_where_words_are_not_parted_by_spaces_an_answer_ends_anywhere(passage: str, text: str) -> None:
    letters = sorted(set(passage) - {" "})
    pieces = (*letters, *(f"##{letter}" for letter in letters))
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "?")
    tokenizer = Tokenizer.from_vocabulary(Vocabulary.from_pieces(*special, *pieces), lowercase=False)
    one = example(passage, at(passage, text), question="?")
    each = task(has_none=False).encode([one], tokenizer, 512)[0]
    found = each.layout.passage.find_tokens(one.answers[0].spans[0])
    assert task(has_none=False).decode(each, scripted(each, *found)).text == text
    assert each.coverage.unreachable == 0


def scripted(each: EncodedExample, first: int, last: int, null: float = -9.0) -> list[np.ndarray[Any, Any]]:
    """Outputs that speak for the tokens from first to last of the passage."""
    found = []
    for row, window in zip(each.rows, each.layout.windows, strict=True):
        part = np.full((len(row.positions), 2), -5, np.float32)
        part[0] = null / 2
        for column, token in enumerate((first, last)):
            if window.start <= token < window.end:
                part[1 + token - window.start, column] = 5
        found.append(part)
    return found


def test_a_passage_of_30000_characters_is_answered_at_its_end_with_exact_offsets() -> None:
    passage = "".join(f"Line {n} is Long. " for n in range(1900)) + "Péter  took Q7 then."
    assert len(passage) > 30_000
    of = AnswerTask(AnswerSettings(), False, "squad1")
    one = example(passage, at(passage, "Péter  took Q7"))
    each = of.encode([one], TOKENIZER, 512)[0]
    first, last = each.layout.passage.find_tokens(one.answers[0].spans[0])
    answer = of.decode(each, scripted(each, first, last)).answer
    assert answer is not None
    assert (answer.start, answer.end) == one.answers[0].spans[0]
    assert passage[answer.start : answer.end] == answer.text == "Péter  took Q7"
    assert each.coverage.unreachable == 0


@pytest.mark.parametrize(("null", "threshold", "is_null"), [(9, 0, False), (11, 0, True), (11, 2, False)])
def test_none_is_given_if_it_is_better_by_more_than_the_threshold(null: float, threshold: float, is_null: bool) -> None:
    each = encoded(example("aa bb"))
    answered = task(threshold=threshold).decode(each, scripted(each, 0, 1, null))
    assert (answered.is_null, answered.text) == (is_null, "" if is_null else "aa")
    assert not task(has_none=False).decode(each, scripted(each, 0, 1, null)).is_null


def test_the_null_score_is_the_least_of_all_windows() -> None:
    each = encoded(example(WORDS))
    outputs = scripted(each, 0, 1)
    outputs[1][0] = -50
    assert task().decode(each, outputs).null_score == -110


# -- thresholds and scores


def answered(of: AnswerTask, examples: Sequence[AnswerExample], nulls: Sequence[float]) -> list[Any]:
    each = of.encode(examples, TOKENIZER, 512)
    return [scripted(one, 0, 1, null) for one, null in zip(each, nulls, strict=True)]


MIXED = [example("aa bb", (0, 2)), example("cc dd", (0, 2)), example("ee ff"), example("gg hh")]


def predicted(of: AnswerTask, examples: Sequence[AnswerExample], outputs: Sequence[Any]) -> list[SpanAnswerPrediction]:
    each = of.encode(examples, TOKENIZER, 512)
    return [of.decode(*pair) for pair in zip(each, outputs, strict=True)]


def test_the_threshold_is_chosen_on_development_data() -> None:
    outputs = answered(task(), MIXED, [12, 8, 14, 16])
    tuned = task().tune(MIXED, task().encode(MIXED, TOKENIZER, 512), outputs)
    assert tuned.threshold == 2
    assert tuned.score(MIXED, predicted(tuned, MIXED, outputs)).value == 1


def test_a_threshold_that_was_asked_for_is_kept() -> None:
    of = AnswerTask.learn(MIXED, replace(SMALL, null_threshold=-3.0))
    assert isinstance(of, AnswerTask)
    outputs = answered(of, MIXED, [12, 8, 14, 16])
    assert of.tune(MIXED, of.encode(MIXED, TOKENIZER, 512), outputs).threshold == -3


@pytest.mark.parametrize(("asked", "rank"), [(None, 0.75), (0.0, 0.5)])
def test_steps_are_compared_as_the_threshold_that_is_chosen_later_will_have_it(
    asked: float | None, rank: float
) -> None:
    of = task(null_threshold=asked)
    found = of.score(MIXED, predicted(of, MIXED, answered(of, MIXED, [12, 8, 14, 8])))
    assert (found.value, found.selection_score) == pytest.approx((0.5, rank))


def test_scores_by_hand() -> None:
    outputs = answered(task(), MIXED, [12, 8, 14, 8])
    found = task().score(MIXED, predicted(task(), MIXED, outputs)).measures
    assert found == pytest.approx(
        {
            "exact": 0.5,
            "f1": 0.5,
            "has_answer_exact": 0.5,
            "has_answer_f1": 0.5,
            "no_answer_exact": 0.5,
            "best_exact": 0.75,
            "best_f1": 0.75,
            "best_f1_threshold": 2.0,
            "strict_accuracy": 1.0,
            "lenient_accuracy": 1.0,
            "mrr": 1.0,
        }
    )


def test_a_model_that_does_no_better_than_silence_is_said_to() -> None:
    silent = predicted(task(), MIXED, answered(task(), MIXED, [30, 30, 30, 30]))
    (note,) = task().score(MIXED, silent).notes
    assert "leaving all questions unanswered gives f1 0.5000" in note
    good = predicted(task(), MIXED, answered(task(), MIXED, [0, 0, 30, 30]))
    assert task().score(MIXED, good).notes == ()


def test_ranks_of_right_answers() -> None:
    passage = "aa bb cc"
    each = encoded(example(passage, at(passage, "bb")))
    (part,) = scripted(each, 0, 1)
    part[1 + 2, 0] = part[1 + 3, 1] = 4
    found = task().decode(each, [part])
    scores = task().score([example(passage, at(passage, "bb"))], [found]).measures
    rank = [answer.text for answer in found.best].index("bb") + 1
    assert rank > 1
    assert (scores["strict_accuracy"], scores["lenient_accuracy"]) == (0, 1)
    assert scores["mrr"] == pytest.approx(1 / rank)


@pytest.mark.parametrize("main", ["f1", "exact", "mrr", "strict_accuracy", "lenient_accuracy"])
def test_the_measure_of_all_examples_is_the_score(main: str) -> None:
    of = task(main=main)
    found = predicted(of, MIXED, answered(of, MIXED, [12, 8, 14, 8]))
    assert of.sample_metric(MIXED, found)(np.arange(4)) == pytest.approx(of.score(MIXED, found).value)


def test_a_record_has_offsets_of_the_passage() -> None:
    of = task()
    (found,) = predicted(of, MIXED[:1], answered(of, MIXED[:1], [0]))
    record = of.to_record(MIXED[0], found)
    assert (record["text"], record["start"], record["end"]) == ("aa", 0, 2)
    assert all(record["passage"][each["start"] : each["end"]] == each["text"] for each in record["best"])
    (none,) = predicted(of, MIXED[:1], answered(of, MIXED[:1], [30]))
    assert (of.to_record(MIXED[0], none)["start"], of.to_lines(MIXED[0], none)[0]) == (None, "1.00  (no answer)")


# -- what is told from data, and what is refused


def test_what_is_told_from_the_data() -> None:
    first = AnswerTask.learn(MIXED[:2], AnswerSettings())
    second = AnswerTask.learn(MIXED, AnswerSettings())
    assert isinstance(first, AnswerTask)
    assert isinstance(second, AnswerTask)
    assert (first.has_none, first.script_name, second.has_none, second.script_name) == (
        False,
        "squad1",
        True,
        "squad2",
    )
    chinese = AnswerTask.learn([example("北京是首都", (0, 2), question="首都是哪里?")], AnswerSettings())
    assert isinstance(chinese, AnswerTask)
    assert chinese.script_name == "cmrc"


def test_labels_make_a_task_that_classifies_pairs() -> None:
    examples = [example("aa bb", answers=None, label=label, id=label) for label in ("yes", "no", "maybe")]
    of = AnswerTask.learn(examples, AnswerSettings())
    assert (of.labels, of.head().kind, of.name) == (("maybe", "no", "yes"), "classify", "answer")
    with pytest.raises(BadInput, match=r"f\.json:1 has an answer in its passage"):
        of.check(MIXED)
    with pytest.raises(BadInput, match="answered with 'perhaps'"):
        of.check([replace(examples[0], label="perhaps")])
    with pytest.raises(BadInput, match=r"f\.json:1 has a label"):
        task().check(examples)


def test_a_file_with_both_kinds_says_which_were_left_out(tmp_path: Path) -> None:
    lines = [
        {"id": "1", "question": "q?", "context": "aa bb", "answers": [{"text": "aa", "answer_start": 0}]},
        {"id": "2", "question": "q?", "context": "aa bb", "answer": "yes"},
    ]
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for kind, kept in (("auto", "1"), ("span", "1"), ("label", "2")):
        found = AnswerTask.read([path], AnswerSettings(kind=kind), ReadOptions())  # type: ignore[arg-type]
        assert [each.id for each in found.examples] == [kept]
        assert [each.position for each in found.set_aside] == [f"line {3 - int(kept)}"]


def test_nothing_to_learn_is_a_sentence() -> None:
    with pytest.raises(BadInput, match="None of the 2 training questions"):
        AnswerTask.learn(MIXED[2:], AnswerSettings())


@pytest.mark.parametrize("text", ["only a question?", "question?\t ", "\tpassage", '{"question": "a?"}'])
def test_a_text_without_a_passage_is_a_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="parted by a tab"):
        task().check(AnswerTask.examples_from_texts([text]))


def test_texts_are_questions_with_passages() -> None:
    plain, record = AnswerTask.examples_from_texts(["who?\ta\tb", '{"query": "who?", "passage": "a b"}'])
    assert (plain.texts, record.texts) == (("who?", "a\tb"), ("who?", "a b"))
    task().check([plain, record])


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "number"},
        {"script": "glue"},
        {"main": "bleu"},
        {"kind": "label", "main": "f1"},
        {"max_length": 8},
        {"overlap": 300},
        {"n_best": 0},
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="of the task is"):
        AnswerSettings(**changes)


def test_a_split_keeps_articles_together(shared: Path) -> None:
    path = shared / "qa/squad2-halfdev/dev-v2.0.json"
    examples = AnswerTask.read([path], AnswerSettings(), ReadOptions()).examples
    parts = split_examples(examples, parse_split("70/10/20"), seed=1)
    articles = [{each.article for each in part} for part in parts]
    assert [len(part) for part in articles] == [11, 2, 3]
    assert len(set().union(*articles)) == 16


def test_questions_on_one_passage_stay_together_without_an_article() -> None:
    assert example("aa", question="a?").group_id == example("aa", question="b?").group_id != example("bb").group_id
