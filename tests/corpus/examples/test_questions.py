"""Files of questions: every layout, and what is wrong in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.examples.questions import Question, QuestionFile, read_questions
from alembert.corpus.readers.contract import ReadOptions

TEXT = "Imatinib inhibits BCR-ABL. It is used in leukemia."


def written(tmp_path: Path, content: Any, name: str = "q.json") -> Path:
    path = tmp_path / name
    lines = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(lines, encoding="utf8")
    return path


def squad(*qas: dict[str, Any], **article: Any) -> dict[str, Any]:
    paragraph = {"context": TEXT, "qas": list(qas)}
    return {"version": "1.1", "data": [{"title": "Imatinib", "paragraphs": [paragraph], **article}]}


def asked(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {"id": f"q{number}", "question": "What is inhibited?", **fields}


def right(text: str, start: int) -> dict[str, Any]:
    return {"text": text, "answer_start": start}


def read(tmp_path: Path, content: Any, name: str = "q.json") -> QuestionFile:
    return read_questions(written(tmp_path, content, name))


def only(found: QuestionFile) -> Question:
    assert found.set_aside == ()
    (question,) = found.questions
    return question


def test_squad_1(tmp_path: Path) -> None:
    question = only(read(tmp_path, squad(asked(answers=[right("BCR-ABL", 18), right("BCR-ABL.", 18)]))))
    assert [TEXT[slice(*answer.spans[0])] for answer in question.answers] == ["BCR-ABL", "BCR-ABL."]
    assert (question.id, question.article, question.passage) == ("q1", "Imatinib", TEXT)
    assert question.where == f"{tmp_path / 'q.json'}, question 1 (q1)"


def test_squad_2_has_questions_without_an_answer(tmp_path: Path) -> None:
    question = only(read(tmp_path, squad(asked(answers=[], is_impossible=True, plausible_answers=[]))))
    assert (question.answers, question.label) == ((), None)


def test_a_pretty_printed_file_is_the_same(tmp_path: Path) -> None:
    content = squad(asked(answers=[right("BCR-ABL", 18)]))
    plain = read(tmp_path, content).questions
    assert read(tmp_path, json.dumps(content, indent=1)).questions == plain
    compact = json.dumps(content).replace('{"text"', '\n{"text"').replace("}]}", "}\n]}")
    assert read(tmp_path, compact).questions == plain


def test_an_article_without_a_title_has_its_id_or_number(tmp_path: Path) -> None:
    content = squad(asked(answers=[right("BCR-ABL", 18)]), title="", id="DEV_0")
    assert only(read(tmp_path, content)).article == "DEV_0"
    content["data"][0].pop("id")
    assert only(read(tmp_path, content)).article == "q-1"


def test_the_first_layout_of_cmrc(tmp_path: Path) -> None:
    asked = {"query_id": "T_0", "query_text": "谁?", "answers": ["李白", "李白"]}
    record = {"context_id": "T", "context_text": "作者是李白。", "qas": [asked]}
    question = only(read(tmp_path, [record]))
    assert (question.id, question.article, question.answers[0].spans) == ("T_0", "T", ((3, 5),))


def test_lists_of_texts_and_offsets(tmp_path: Path) -> None:
    line = asked(context=TEXT, answers={"text": ["BCR-ABL"], "answer_start": [18]})
    assert only(read(tmp_path, json.dumps(line) + "\n", "q.jsonl")).answers[0].spans == ((18, 25),)


def test_plain_lines_have_their_line_as_place(tmp_path: Path) -> None:
    lines = [
        asked(1, context=TEXT, answer="BCR-ABL"),
        asked(2, context=TEXT, answer="leukemia", answer_start=41),
    ]
    found = read(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "q.jsonl")
    assert [question.where for question in found.questions] == [
        f"{tmp_path / 'q.jsonl'}:1",
        f"{tmp_path / 'q.jsonl'}:2",
    ]
    assert found.questions[1].answers[0].spans == ((41, 49),)
    (remark,) = found.remarks
    assert (remark.count, remark.reason) == (1, "answers without an offset were found by their text")


def test_a_table(tmp_path: Path) -> None:
    rows = f"question\tcontext\tanswer\nWhat?\t{TEXT}\tleukemia\n"
    assert only(read(tmp_path, rows, "q.tsv")).answers[0].spans == ((41, 49),)


def test_each_row_of_a_table_has_its_own_line(tmp_path: Path) -> None:
    rows = f"question\tcontext\tanswer\nWhat?\t{TEXT}\tleukemia\nWho?\t{TEXT}\tleukemia\n"
    assert [each.position for each in read(tmp_path, rows, "q.tsv").questions] == ["line 2", "line 3"]


def test_offsets_of_a_table_are_used(tmp_path: Path) -> None:
    rows = "question\tcontext\tanswer\tanswer_start\nWhat?\ti saw i\ti\t6\n"
    assert only(read(tmp_path, rows, "q.tsv")).answers[0].spans == ((6, 7),)


@pytest.mark.parametrize("said", ["True", "1"])
def test_a_table_has_questions_without_an_answer(said: str, tmp_path: Path) -> None:
    rows = f"question\tcontext\tanswer\tis_impossible\nWhat?\t{TEXT}\t\t{said}\n"
    assert only(read(tmp_path, rows, "q.tsv")).answers == ()


def test_yes_and_no_are_one_label_in_any_case(tmp_path: Path) -> None:
    content = {"1": {"QUESTION": "Is it?", "CONTEXTS": [TEXT], "final_decision": "Yes"}}
    assert only(read(tmp_path, content)).label == "yes"


def test_columns_that_are_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"q": "What?", "c": TEXT, "a": "leukemia", "doc": 7}) + "\n", "q.jsonl")
    question = only(read_questions(path, ReadOptions(text=("q", "c"), label="a", id="doc")))
    assert (question.answers[0].text, question.article) == ("leukemia", "7")


def bioasq(**fields: Any) -> dict[str, Any]:
    snippets = [{"text": TEXT, "document": "1"}, {"text": TEXT}, {"text": "Gleevec is imatinib."}]
    return {"questions": [{"id": "b1", "body": "Which drug?", "type": "factoid", "snippets": snippets, **fields}]}


def test_bioasq_factoid_questions_have_names_of_one_thing(tmp_path: Path) -> None:
    question = only(read(tmp_path, bioasq(exact_answer=[["Gleevec", "STI-571"]])))
    assert question.passage == f"{TEXT}\nGleevec is imatinib."
    assert [(answer.text, len(answer.spans)) for answer in question.answers] == [
        ("Gleevec", 1),
        ("STI-571", 0),
    ]


def test_bioasq_yes_or_no_questions_have_labels(tmp_path: Path) -> None:
    assert only(read(tmp_path, bioasq(type="yesno", exact_answer="yes"))).label == "yes"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"type": "summary", "ideal_answer": "x"}, "the question is of type summary"),
        ({"snippets": [], "exact_answer": ["x"]}, "the question has no passage"),
        ({"exact_answer": ["dasatinib"]}, "an answer is not in the passage"),
    ],
)
def test_bioasq_questions_that_cannot_be_used(fields: dict[str, Any], reason: str, tmp_path: Path) -> None:
    (aside,) = read(tmp_path, bioasq(**fields)).set_aside
    assert reason in aside.reason


def test_pubmedqa(tmp_path: Path) -> None:
    record = {"QUESTION": "Is it?", "CONTEXTS": ["One.", "Two."], "final_decision": "maybe"}
    question = only(read(tmp_path, {"123": record}))
    assert (question.id, question.passage, question.label, question.article) == (
        "123",
        "One.\nTwo.",
        "maybe",
        "123",
    )


def test_an_answer_of_yes_is_a_label_unless_it_has_an_offset(tmp_path: Path) -> None:
    lines = [
        asked(1, context="Yes, it is.", answer="Yes"),
        asked(2, context="Yes, it is.", answers=[right("Yes", 0)]),
    ]
    found = read(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "q.jsonl").questions
    assert [(question.label, len(question.answers)) for question in found] == [("yes", 0), (None, 1)]


def test_an_answer_that_is_not_in_the_passage_does_not_undo_the_others(tmp_path: Path) -> None:
    found = read(tmp_path, squad(asked(answers=[right("BCR-ABL", 18), right("dasatinib", 3)])))
    (aside,) = found.set_aside
    assert aside.reason.endswith("the question is learnt from its other answers")


def test_wrong_offsets_are_mended_and_counted(tmp_path: Path) -> None:
    found = read(tmp_path, squad(asked(answers=[right("BCR-ABL", 3), right("leukemia", -1)])))
    assert [answer.spans for answer in only(found).answers] == [((18, 25),), ((41, 49),)]
    (remark,) = found.remarks
    assert (remark.count, "stated offset is wrong" in remark.reason) == (2, True)


@pytest.mark.parametrize(
    ("start", "text", "reason"),
    [
        (18, "dasatinib", "an answer is not in the passage"),
        (9999, "i", "the offset of an answer is wrong, and its text occurs several times in the passage"),
        (0, "", "an answer is empty"),
    ],
)
def test_an_answer_without_a_place_stays_and_is_reported(start: int, text: str, reason: str, tmp_path: Path) -> None:
    passage = "i saw i"
    content = squad(asked(answers=[right(text, start)]))
    content["data"][0]["paragraphs"][0]["context"] = passage
    found = read(tmp_path, content)
    (question,), (aside,) = found.questions, found.set_aside
    assert (question.answers[0].spans, aside.kind, aside.position, aside.id) == (
        (),
        "annotation",
        "question 1",
        "q1",
    )
    assert aside.reason.startswith(reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"context": TEXT}, "the question has no answer, and is not marked as unanswerable"),
        ({"answers": ["x"]}, "the question has no passage"),
        ({"context": " ", "answers": ["x"]}, "the question has no passage"),
        ({"context": TEXT, "answers": ["x"], "question": ""}, "there is no question"),
        (
            {"context": TEXT, "answers": ["It"], "is_impossible": True},
            "marked as unanswerable, and has answers",
        ),
        ({"context": TEXT, "answers": [7]}, "an answer is neither a text nor"),
        ({"context": TEXT, "answers": [right("It", 2.5)]}, "is not a whole number"),
        ({"context": TEXT, "answers": {"text": ["It"], "answer_start": []}}, "as many offsets as texts"),
        ({"context": TEXT, "label": 3}, "the label of the question is not a word"),
    ],
)
def test_a_bad_question_is_set_aside_with_its_line(fields: dict[str, Any], reason: str, tmp_path: Path) -> None:
    good = asked(2, context=TEXT, answer="leukemia")
    found = read(tmp_path, json.dumps(asked(**fields)) + "\n" + json.dumps(good) + "\n", "q.jsonl")
    (aside,), (question,) = found.set_aside, found.questions
    assert (aside.position, aside.id, question.id) == ("line 1", "q1", "q2")
    assert reason in aside.reason


def test_an_empty_list_of_answers_is_said_to_mean_none(tmp_path: Path) -> None:
    found = read(tmp_path, squad(asked(answers=[])))
    assert only(found).answers == ()
    assert "empty list" in found.remarks[0].reason


@pytest.mark.parametrize("content", ["", "[1]", '{"data": [3]}', '{"data": [{"paragraphs": [{"context": "x"}]}]}', "{"])
def test_what_holds_no_questions_is_a_sentence(content: str, tmp_path: Path) -> None:
    found = read(tmp_path, content)
    assert found.questions == ()
    assert len(found.set_aside) == 1


@pytest.mark.parametrize(
    ("path", "questions", "without", "mended", "aside"),
    [
        ("qa/squad2-halfdev/dev-v2.0.json", 6078, 3168, 0, 0),
        ("zh/cmrc2018/cmrc2018_dev.json", 3219, 0, 7, 174),
        ("zh/cmrc2018/cmrc2018_trial.json", 1000, 0, 5, 2),
    ],
)
def test_real_files(path: str, questions: int, without: int, mended: int, aside: int, shared: Path) -> None:
    found = read_questions(shared / path)
    assert len(found.questions) == questions
    assert sum(not question.answers for question in found.questions) == without
    assert sum(remark.count for remark in found.remarks) == mended
    assert len(found.set_aside) == aside


def test_real_labels(shared: Path) -> None:
    found = read_questions(shared / "qa/pubmedqa/ori_pqal.json")
    labels = [question.label for question in found.questions]
    assert [labels.count(name) for name in ("yes", "no", "maybe")] == [552, 338, 110]
