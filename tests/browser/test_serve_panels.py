"""The panels of the page: why, comparison, relations, documents in a queue, and files in the formats of the field."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import alembert
from alembert.corpus.readers.contract import ReadOptions
from alembert.nn.config import preset
from alembert.tasks.task import get_task_class
from browsing import KNOWN, TEXT, download, drop, read, rows, select, states, with_explanations
from small_checkpoints import Blueprint, Checkpoint
from task_cases import TOKENIZER

QUEUE = {
    "one.txt": "aspirin and fever",
    "<img src=x onerror=alert(1)>.txt": "fever",
    "more.jsonl": '{"id": "two", "text": "aspirin, aspirin 咳嗽"}\n"no entity 😀"\n[]\n',
}


def press(page: Any, keys: str) -> None:
    for key in keys:
        page.keyboard.press(f"Shift+{key}" if key.isupper() else key)


def read_answer(page: Any) -> None:
    page.fill("#input", "aspirin and fever")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".answer")
    page.click("h1")


def wait_for_status(page: Any, text: str) -> None:
    page.get_by_role("status").filter(has_text=text).first.wait_for()


# -- why


def test_words_are_shaded_by_what_they_did(empty_page: Any) -> None:
    with_explanations(empty_page)
    read(empty_page)
    press(empty_page, "jw")
    empty_page.wait_for_selector(".word")
    sides = empty_page.evaluate(
        "[...document.querySelectorAll('.word')].slice(0, 3).map((w) => w.className.split(' ')[1])"
    )
    assert sides == ["against", "for", "for"]
    assert "No better than random words" in empty_page.text_content("#why-body")


def test_numbers_of_words_are_read_with_the_keyboard(empty_page: Any) -> None:
    with_explanations(empty_page)
    read(empty_page)
    press(empty_page, "jw")
    empty_page.focus(".word")
    empty_page.keyboard.press("ArrowRight")
    assert empty_page.evaluate("document.activeElement.getAttribute('aria-label')") == "aspirin +2.00"
    wait_for_status(empty_page, "aspirin: +2.00")


def test_a_word_is_changed_to_see_what_changes(empty_page: Any) -> None:
    with_explanations(empty_page)
    read(empty_page)
    press(empty_page, "jw")
    empty_page.fill("#edited", TEXT.replace("😀", "edited 😀😀"))
    empty_page.click("#why-body button")
    wait_for_status(empty_page, "Now: aspirin: chemical, 90 %.")
    wait_for_status(empty_page, "was +4.00 and is +3.00")


def test_without_the_route_there_is_no_button(empty_page: Any) -> None:
    empty_page.route("**/openapi.json", lambda route: route.fulfill(json={"paths": {}}))
    empty_page.reload()
    read(empty_page)
    assert empty_page.is_hidden("#why")
    assert empty_page.is_hidden("#tab-why")


def test_why_a_text_has_its_class_and_why_not_another_one(empty_page: Any) -> None:
    with_explanations(empty_page)
    empty_page.select_option("#model", "topics")
    read_answer(empty_page)
    for name, question, label in (
        ("Why? drug", "Why: drug", "drug"),
        ("Why not? <b>sign", "Why not: <b>sign", "<b>sign"),
    ):
        with empty_page.expect_request("**/v1/explain") as asked:
            empty_page.get_by_role("button", name=name, exact=True).click()
        assert json.loads(asked.value.post_data) == {"inputs": "aspirin and fever", "model": "topics", "label": label}
        empty_page.locator(".explained .headline", has_text=question).wait_for()
        assert empty_page.locator(".explained .word").all_text_contents() == ["aspirin", "and", "fever"]
        assert "No better than random words" in empty_page.text_content(".explained")


def test_w_asks_why_where_there_are_no_entities(empty_page: Any) -> None:
    with_explanations(empty_page)
    empty_page.select_option("#model", "topics")
    read_answer(empty_page)
    empty_page.keyboard.press("w")
    empty_page.locator(".explained .headline", has_text="Why: drug").wait_for()


def test_without_the_route_an_answer_has_no_button(empty_page: Any) -> None:
    empty_page.route("**/openapi.json", lambda route: route.fulfill(json={"paths": {}}))
    empty_page.reload()
    empty_page.wait_for_selector("#model option", state="attached")
    empty_page.select_option("#model", "topics")
    read_answer(empty_page)
    assert empty_page.query_selector("button.why") is None


def test_why_two_entities_are_related(empty_page: Any) -> None:
    with_explanations(empty_page)
    read(empty_page)
    empty_page.click("#tab-relations")
    empty_page.click("#relate")
    with empty_page.expect_request("**/v1/explain") as asked:
        empty_page.get_by_role("button", name="Why? aspirin → treats <b> → aspirin").click()
    question = json.loads(asked.value.post_data)
    assert (question["model"], question["label"]) == ("relations", "treats <b>")
    assert [TEXT[slice(*each["spans"][0])] for each in question["inputs"]["entities"]] == ["aspirin", "aspirin"]
    empty_page.locator("#relation-why .headline", has_text="Why: aspirin → treats <b> → aspirin").wait_for()
    press(empty_page, "ja")
    assert empty_page.is_visible("#relation-why .word")


# -- two models


def test_two_models_are_compared(page: Any) -> None:
    page.click("#tab-compare")
    wait_for_status(page, "Both: 1. Only tagger: 2. Only other: 1.")
    page.select_option("#compare-side", "b")
    assert rows(page, "#compare-list") == [["咳嗽", "disease", "only the second · 70 %"]]
    assert page.text_content("mark.side-b") == "咳嗽"


def test_what_the_other_model_found_is_taken_over(page: Any) -> None:
    page.click("#tab-compare")
    page.get_by_role("button", name="Add", exact=True).click()
    page.click("#tab-entities")
    assert rows(page)[1] == ["咳嗽", "disease", "100 % · accepted"]


def test_decisions_stay_when_the_model_changes(page: Any) -> None:
    press(page, "jrja")
    page.select_option("#model", "other")
    wait_for_status(page, "Read.")
    assert [row[0] for row in rows(page)] == ["aspirin", "咳嗽", "aspirin"]
    assert states(page) == ["rejected", "undecided", "accepted"]


# -- relations


def test_relations_are_arcs_and_a_table(page: Any) -> None:
    page.click("#tab-relations")
    page.click("#relate")
    page.wait_for_selector(".arcs path", state="attached")
    assert page.evaluate("document.querySelector('.arc-label').dataset.label") == "treats <b>"
    cells = page.evaluate("[...document.querySelectorAll('#relation-table td')].map((cell) => cell.textContent)")
    assert cells == ["aspirin", "treats <b>", "aspirin", "80 %", "AcceptRejectWhy?"]
    assert page.evaluate("document.getElementById('text').textContent") == TEXT


@pytest.mark.parametrize(("button", "states"), [(None, ["open"]), ("Accept", ["accepted"]), ("Reject", [])])
def test_relations_are_in_the_files(button: str | None, states: list[str], page: Any, tmp_path: Path) -> None:
    press(page, "A")
    page.click("#tab-relations")
    page.click("#relate")
    page.wait_for_selector("#relation-table td")
    if button:
        page.get_by_role("button", name=f"{button} aspirin → treats <b> → aspirin").click()
    record = json.loads(download(page, tmp_path / "labels.jsonl").read_text())
    spans = {each["id"]: TEXT[slice(*each["spans"][0])] for each in record["entities"]}
    found = [[spans[end] for _, end in each["arguments"]] + [each["label"]] for each in record.get("relations", [])]
    assert found == [["aspirin", "aspirin", "treats <b>"]] * len(states)
    assert [dict(each["attributes"])["state"] for each in record.get("relations", [])] == states
    for name, suffix in {"label-studio": "json", "brat": "zip"}.items():
        page.select_option("#format", name)
        file = download(page, tmp_path / f"labels.{suffix}")
        if name == "brat":
            with zipfile.ZipFile(file) as archive:
                content = "".join(archive.read(each).decode() for each in archive.namelist() if each.endswith(".ann"))
            assert content.count("Arg1:T1 Arg2:T2") == len(states)
        else:
            (task,) = json.loads(file.read_text())
            links = [each for each in task["annotations"][0]["result"] if each["type"] == "relation"]
            assert [(each["from_id"], each["to_id"]) for each in links] == [("T1", "T2")] * len(states)


def test_relations_of_rejected_entities_disappear(page: Any) -> None:
    page.click("#tab-relations")
    page.click("#relate")
    page.wait_for_selector("#relation-table td")
    press(page, "jr")
    assert page.query_selector("#relation-table td") is None


# -- documents


def test_dropped_files_are_a_queue(empty_page: Any) -> None:
    drop(empty_page, QUEUE)
    wait_for_status(empty_page, "4 documents read")
    wait_for_status(empty_page, '1 lines were neither a text nor an object with "text".')
    names = [row[0] for row in rows(empty_page, "#documents")]
    assert names == ["one.txt", "<img src=x onerror=alert(1)>.txt", "two", "more.jsonl 2"]
    assert empty_page.query_selector("img") is None


def test_the_next_document_is_the_most_useful_one(empty_page: Any) -> None:
    empty_page.fill("#audit-share", "0", force=True)
    drop(empty_page, QUEUE)
    wait_for_status(empty_page, "4 documents read")
    empty_page.click("h1")
    empty_page.keyboard.press("n")
    assert "two" in empty_page.text_content("#where")


def test_one_key_decides_equal_entities_of_all_documents(empty_page: Any) -> None:
    drop(empty_page, QUEUE)
    wait_for_status(empty_page, "4 documents read")
    empty_page.click("h1")
    press(empty_page, "jrE")
    assert [row[2] for row in rows(empty_page, "#documents")] == [
        "1 undecided · 0.5",
        "1 undecided · 0.2",
        "reviewed ✓",
        "0 undecided · 0.0",
    ]
    press(empty_page, "u")
    assert rows(empty_page, "#documents")[2][2] == "2 undecided · 0.8"


def test_undo_takes_back_the_step_that_was_made_here(empty_page: Any) -> None:
    drop(empty_page, QUEUE)
    wait_for_status(empty_page, "4 documents read")
    empty_page.click("h1")
    press(empty_page, "jrE")
    empty_page.click("#documents li:nth-child(3) button")
    select(empty_page, "咳嗽")
    press(empty_page, "2")
    empty_page.click("#documents li:first-child button")
    press(empty_page, "u")
    empty_page.click("#documents li:nth-child(3) button")
    assert states(empty_page) == ["undecided", "undecided", "accepted"]


def test_sure_entities_of_all_documents_are_accepted(empty_page: Any) -> None:
    drop(empty_page, QUEUE)
    wait_for_status(empty_page, "4 documents read")
    empty_page.fill("#sure", "0.6")
    empty_page.click("#accept-sure")
    wait_for_status(empty_page, "3 entities")
    assert empty_page.text_content("#progress-words") == "1 of 4 reviewed"


def test_f1_is_estimated_from_audited_documents(empty_page: Any) -> None:
    empty_page.evaluate("document.getElementById('audit-share').value = 100")
    drop(empty_page, {"texts.jsonl": "\n".join(json.dumps(f"aspirin and fever {n}") for n in range(4))})
    wait_for_status(empty_page, "4 documents read")
    empty_page.click("h1")
    for _ in range(4):
        press(empty_page, "jajrn")
    assert "F1 of the model: 66.7 %" in empty_page.text_content("#estimate")
    assert "from 4 audited documents" in empty_page.text_content("#estimate")


# -- files


def test_every_format_has_the_offsets_of_code_points(page: Any, tmp_path: Path) -> None:
    press(page, "A")
    at = TEXT.index("aspirin", 3)
    for name, suffix in {"pubtator": "txt", "label-studio": "json", "conll": "conll", "brat": "zip"}.items():
        page.select_option("#format", name)
        file = download(page, tmp_path / f"labels.{suffix}")
        if name == "brat":
            with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as archive:
                (annotations,) = (archive.read(each).decode() for each in archive.namelist() if each.endswith(".ann"))
            assert f"chemical {at} {at + 7}\taspirin" in annotations
        elif name == "label-studio":
            (task,) = json.loads(file.read_text())
            values = [each["value"] for each in task["annotations"][0]["result"]]
            assert [task["data"]["text"][each["start"] : each["end"]] for each in values] == [
                "aspirin",
                "aspirin",
                "fever",
            ]
        elif name == "pubtator":
            assert f"\t{at}\t{at + 7}\taspirin\tchemical" in file.read_text()
        else:
            assert "aspirin\tB-chemical" in file.read_text()


def test_the_file_has_states_and_what_was_rejected(page: Any, tmp_path: Path) -> None:
    press(page, "jaj2jr")
    select(page, "咳嗽")
    press(page, "2")
    record = json.loads(download(page, tmp_path / "labels.jsonl").read_text())
    states = {TEXT[slice(*each["spans"][0])]: dict(each["attributes"])["state"] for each in record["entities"]}
    assert states == {"aspirin": "changed", "咳嗽": "added"}
    assert [TEXT[each["start"] : each["end"]] for each in record["meta"]["rejected"]] == ["fever"]


def test_a_person_corrects_ten_spans_and_trains_on_the_download(empty_page: Any, tmp_path: Path) -> None:
    texts = [f"Case {n}: aspirin, aspirin and fever, 咳嗽 😀." for n in range(4)]
    drop(empty_page, {"cases.jsonl": "".join(json.dumps(text) + "\n" for text in texts)})
    wait_for_status(empty_page, "4 documents read")
    empty_page.click("h1")
    for _ in texts:
        press(empty_page, "jajrj2n")
    press(empty_page, "ua")
    file = download(empty_page, tmp_path / "labels.jsonl")
    tag = get_task_class("tag")
    examples = tag.read([file], tag.settings_class(), ReadOptions()).examples
    assert [[label for _, _, label, *_ in each.entities] for each in examples] == [["chemical", "disease"]] * 3 + [
        ["chemical", KNOWN[1][1]]
    ]
    start, dev = tmp_path / "start", tmp_path / "dev.jsonl"
    dev.write_text(
        '{"id": "d", "text": "aspirin", "entities": [{"id": "T1", "label": "chemical", "spans": [[0, 7]]}]}\n'
    )
    config = preset("tiny", vocab_size=TOKENIZER.vocab_size, max_position_embeddings=64)
    Checkpoint.new(Blueprint(config=config), TOKENIZER).save(start)
    result = alembert.finetune("tag", model=start, train=file, dev=dev, out=tmp_path / "ner", epochs=1, progress=False)
    assert alembert.load(result.folder).predict(texts[0]).text == texts[0]
