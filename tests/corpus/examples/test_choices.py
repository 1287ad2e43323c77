"""Questions with choices: every layout, and a sentence with file and place for whatever cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.examples.choices import (
    ChoiceQuestion,
    parse_choice_question,
    read_choice_questions,
)
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput

SHARED = Path(__file__).resolve().parents[4] / "shared"
HEAD_QA = SHARED / "data/choice/head-qa-en"
FOUR = ["BRAF", "imatinib", "asthma", "fever"]


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf8")
    return path


def exam(**questions: dict[str, Any]) -> dict[str, Any]:
    return {"version": "1.0", "exams": {"E1": {"name": "E1", "data": list(questions.values())}}}


def answers(*texts: str) -> list[dict[str, Any]]:
    return [{"aid": number, "atext": text} for number, text in enumerate(texts, start=1)]


def reasons(path: Path) -> list[tuple[str, str]]:
    return [(item.position, item.reason) for item in read_choice_questions(path).set_aside]


# -- layouts


def test_head_qa_counts_from_one_and_may_mix_four_and_five_choices(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "train.json",
        exam(
            a={"qid": "1", "qtext": "Which?", "ra": "5", "answers": answers(*"vwxyz")},
            b={"qid": "2", "qtext": "Who?", "ra": "1", "answers": answers(*"wxyz")},
        ),
    )
    first, second = read_choice_questions(path).questions
    assert (first.answer_index, first.choices, second.answer_index, len(second.choices)) == (4, tuple("vwxyz"), 0, 4)
    assert (first.id, first.where) == ("E1-1", f"{path}, exam E1, question 1")


def test_a_pretty_printed_exam_is_the_same(tmp_path: Path) -> None:
    question = {"qid": "7", "qtext": "Which?", "ra": 2, "answers": answers("x", "y")}
    (tmp_path / "a.json").write_text(json.dumps(exam(a=question), indent=2))
    (found,) = read_choice_questions(tmp_path / "a.json").questions
    assert (found.id, found.answer_index) == ("E1-7", 1)


def test_images_are_counted(tmp_path: Path) -> None:
    question = {"qid": "1", "qtext": "See image.", "ra": "1", "answers": answers("x", "y"), "image": "i.png"}
    found = read_choice_questions(lines(tmp_path / "a.json", exam(a=question)))
    assert [(remark.reason, remark.count) for remark in found.remarks] == [
        ("the question has an image, which is not read", 1)
    ]


def test_swag_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "swag.csv"
    path.write_text(
        ",video-id,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
        '0,v,"He sits, she","He sits, calm.",She,gold,stands.,falls.,"runs, fast.",sings.,2\n'
    )
    (found,) = read_choice_questions(path).questions
    assert (found.passage, found.question, found.answer_index) == ("He sits, calm.", "She", 2)
    assert found.choices == ("stands.", "falls.", "runs, fast.", "sings.")
    assert found.where == f"{path}, line 2"


def test_a_table_may_have_rows_with_fewer_choices(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text("question,ending0,ending1,ending2,label\nWhich?,a,b,c,2\nWho?,d,e,,1\n")
    found = read_choice_questions(path)
    assert [question.choices for question in found.questions] == [("a", "b", "c"), ("d", "e")]
    assert [(remark.reason, remark.count) for remark in found.remarks] == [
        ("the row has fewer choices than the table has columns for them", 1)
    ]


@pytest.mark.parametrize(
    "record",
    [
        {"question": "Which?", "choices": FOUR, "answer": 1},
        {"question": "Which?", "choices": FOUR, "answer": "B"},
        {"question": "Which?", "choices": FOUR, "answer": "b"},
        {"question": "Which?", "choices": FOUR, "answer": "imatinib"},
        {"question": "Which?", "choices": FOUR, "answer": "1"},
        {"ctx": "Which?", "endings": FOUR, "label": 1},
        {"question": "Which?", "options": dict(zip("ABCD", FOUR, strict=True)), "answer_idx": "B"},
        {"question": "Which?", "options": dict(zip("ABCD", FOUR, strict=True)), "answer": 1},
        {"question": "Which?", "choices": {"text": FOUR, "label": ["1", "2", "3", "4"]}, "answerKey": "2"},
        {
            "question": {
                "stem": "Which?",
                "choices": [{"text": t, "label": n} for t, n in zip(FOUR, "ABCD", strict=True)],
            },
            "answerKey": "B",
        },
        {"qtext": "Which?", "ra": 2, "answers": answers(*FOUR)},
    ],
)
def test_layouts_of_json_mean_the_same(record: dict[str, Any]) -> None:
    assert parse_choice_question(record) == ChoiceQuestion("Which?", tuple(FOUR), answer_index=1)


def test_a_passage_goes_with_its_question() -> None:
    found = parse_choice_question({"article": "Long ago.", "question": "When?", "options": ["now", "then"]})
    assert (found.passage, found.question, found.answer_index) == ("Long ago.", "When?", None)


def test_columns_can_be_named() -> None:
    options = ReadOptions(text=("case", "ask"), label="key")
    record = {"case": "A man coughs.", "ask": "Why?", "key": "B", "choices": ["flu", "fun"], "answer": 0}
    found = parse_choice_question(record, options)
    assert (found.passage, found.question, found.answer_index) == ("A man coughs.", "Why?", 1)


def test_a_number_with_a_point_is_a_number() -> None:
    assert parse_choice_question({"question": "Which?", "choices": FOUR, "answer": 2.0}).answer_index == 2


# -- what cannot be used


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"answer": 4}, "the answer is number 4, out of range: the 4 choices are counted from 0"),
        ({"answer": -1}, "the answer is number -1, out of range"),
        ({"answer": "E"}, "the answer is number 4, out of range"),
        ({"answer": "aspirin"}, "the answer is none of the 4 choices; expected its number from 0"),
        ({"answer": None}, "the question has no answer; expected its number from 0, its letter or its text"),
        ({"answer": True}, "the answer is neither a whole number nor a text"),
        ({"choices": ["2", "1", "0"], "answer": "0"}, "the answer could mean choice 1 or 3 of 3"),
        ({"choices": ["x", "x", "y"], "answer": "x"}, "the answer could mean choice 1 or 2 of 3"),
        ({"choices": ["only"]}, "the question has 1 choice; expected two or more in choices, options"),
        ({"choices": []}, "the question has no choices"),
        ({"choices": {"A": "a", "B": "b"}, "answer": "C"}, "none of the 2 choices, which are called A, B"),
        ({"answer": 0.5}, "the answer is neither a whole number nor a text"),
        ({"choices": ["a", " ", "c"]}, "choice 2 of 3 is empty, or no text"),
        ({"choices": ["a", None, "c"]}, "choice 2 of 3 is empty, or no text"),
        ({"question": " "}, "there is no question, or it is empty"),
    ],
)
def test_a_bad_question_is_set_aside_with_its_line(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    good = {"question": "Which?", "choices": FOUR, "answer": 0}
    path = lines(tmp_path / "q.jsonl", good, {**good, **change}, good)
    found = read_choice_questions(path)
    ((position, reason),) = reasons(path)
    assert (len(found.questions), position) == (2, "line 2")
    assert sentence in reason


@pytest.mark.parametrize("right", ["6", "0", 9])
def test_an_exam_answer_out_of_range_names_exam_and_question(right: str | int, tmp_path: Path) -> None:
    question = {"qid": "3", "qtext": "Which?", "ra": right, "answers": answers(*"vwxyz")}
    assert reasons(lines(tmp_path / "a.json", exam(a=question))) == [
        (
            "exam E1, question 3",
            "the answer is none of the 5 choices, which are called 1, 2, 3, 4, 5",
        )
    ]


def test_an_empty_file_is_set_aside_whole(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text("")
    (item,) = read_choice_questions(tmp_path / "dev.json").set_aside
    assert (item.kind, item.reason) == ("file", "the file is empty")


def test_no_sentence_quotes_the_text() -> None:
    record = {"question": "Has Ms Jones asthma?", "choices": ["yes of course", "no"], "answer": "perhaps so"}
    with pytest.raises(BadInput) as wrong:
        parse_choice_question(record)
    assert not any(word in str(wrong.value) for word in ("Jones", "course", "perhaps"))


@pytest.mark.skipif(not HEAD_QA.exists(), reason="needs ../shared/data/choice/head-qa-en")
@pytest.mark.parametrize(("part", "count", "choices"), [("train", 2657, 5), ("dev", 1366, 4), ("test", 2742, 4)])
def test_head_qa_is_read_whole(part: str, count: int, choices: int) -> None:
    found = read_choice_questions(HEAD_QA / f"{part}.json")
    assert (len(found.questions), found.set_aside) == (count, ())
    assert {len(question.choices) for question in found.questions} == {choices}
    assert len({question.id for question in found.questions}) == count
