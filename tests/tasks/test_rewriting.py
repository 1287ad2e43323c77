"""Rewriting examples of every task: answers stay where their words are, and what is written is read again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.tasks import TASKS
from alembert.tasks.answer.data import AnswerRewriter
from alembert.tasks.relate.files import RelateRewriter
from alembert.tasks.tag.data import TagExample, TagRewriter
from alembert.tasks.task import AnyTask, Task, get_task_class
from alembert.text.replacement import TextEdit, find_replaceable_words
from alembert.text.words import Dictionary, DictionarySegmenter

SEGMENTER = DictionarySegmenter(Dictionary(["糖尿病"]))
TEXT = "Mutant BRCA1-linked breast cancer in 12 women. 糖尿病 and IL-6 were found."


def entity(name: str, surface: str, text: str = TEXT, label: str = "Disease", **more: Any) -> dict[str, Any]:
    start = text.index(surface)
    return {"id": name, "label": label, "spans": [[start, start + len(surface)]], **more}


TAGGED = {
    "id": "a",
    "text": TEXT,
    "sections": [
        {"start": 0, "end": 46, "kind": "sentence"},
        {"start": 47, "end": len(TEXT), "kind": "sentence"},
    ],
    "entities": [entity("T1", "BRCA1", label="Gene"), entity("T2", "breast cancer"), entity("T3", "糖尿病")],
}
NESTED = {**TAGGED, "entities": [*TAGGED["entities"], entity("T4", "BRCA1-linked breast cancer")]}
PARTED = {**TAGGED, "entities": [{"id": "T1", "label": "Disease", "spans": [[0, 6], [20, 33]]}]}
RELATED = {
    **TAGGED,
    "entities": [
        entity("T1", "BRCA1", label="Gene", concepts=["G1"]),
        entity("T2", "breast cancer"),
        entity("T3", "IL-6", label="Gene"),
    ],
    "relations": [
        {"id": "R1", "label": "causes", "arguments": [["Arg1", "T1"], ["Arg2", "T2"]]},
        {"id": "R2", "label": "causes", "arguments": [["Arg1", "T3"], ["Arg2", "T2"]]},
    ],
}
PASSAGE = "Breast cancer is caused by mutant genes. Diet has no influence on breast cancer."
ASKED = {"id": "q", "question": "Which genes cause cancer?", "context": PASSAGE, "title": "cancer"}


@dataclass(frozen=True)
class Case:
    task: str
    lines: list[dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)


CASES = {
    "tag": Case("tag", [TAGGED]),
    "tag, nested": Case("tag", [NESTED], {"head": "span"}),
    "tag, in parts": Case("tag", [PARTED, TAGGED]),
    "tag, partial": Case("tag", [{**TAGGED, "meta": {"annotated_types": ["Disease"]}}]),
    "classify": Case(
        "classify", [{"id": "1", "text": TEXT, "label": "on"}, {"id": "2", "text": PASSAGE, "label": "off"}]
    ),
    "classify, several": Case("classify", [{"text": TEXT, "label": ["a", "b"]}, {"text": PASSAGE, "label": []}]),
    "classify, number": Case("classify", [{"text": TEXT, "label": 1.5}, {"text": PASSAGE, "label": 2}]),
    "classify, pairs": Case(
        "classify",
        [
            {"sentence1": TEXT, "sentence2": PASSAGE, "label": "yes", "document_id": "d"},
            {"sentence1": PASSAGE, "sentence2": TEXT, "label": "no", "document_id": "d"},
        ],
    ),
    "classify, document": Case(
        "classify",
        [
            {"text": TEXT, "label": "aim", "doc_id": "d1"},
            {"text": PASSAGE, "label": "result", "doc_id": "d1"},
            {"text": PASSAGE, "label": "aim", "doc_id": "d2"},
        ],
        {"context": "document"},
    ),
    "relate, marked": Case(
        "relate",
        [
            {"text": "<< Mutant BRCA1 >> causes [[ breast cancer ]] in women.", "label": "causes"},
            {"text": "Mutant <e1>BRCA1</e1> or <e2>IL-6</e2> genes.", "label": ["a", "b"]},
        ],
    ),
    "relate, anonymised": Case("relate", [{"text": "Mutant @GENE$ causes severe @DISEASE$.", "label": "1"}]),
    "relate, documents": Case("relate", [RELATED]),
    "choose": Case(
        "choose",
        [{"id": "c", "question": "Which drug helps?", "choices": ["aspirin tablets", "none"], "answer": 0}],
    ),
    "choose, passage": Case(
        "choose",
        [{"passage": PASSAGE, "question": "What is caused?", "choices": ["cancer", "diet"], "answer": "A"}],
    ),
    "answer": Case("answer", [{**ASKED, "answers": [{"text": "mutant genes", "answer_start": 27}]}]),
    "answer, spaces": Case("answer", [{**ASKED, "answers": [{"text": " mutant genes", "answer_start": 26}]}]),
    "answer, mended": Case("answer", [{**ASKED, "answers": [{"text": "MUTANT genes", "answer_start": 3}]}]),
    "answer, several places": Case("answer", [{**ASKED, "answers": ["cancer", "mutant genes"]}]),
    "answer, absent": Case("answer", [{**ASKED, "answers": ["smoking", "mutant genes"]}]),
    "answer, unclear": Case(
        "answer", [{**ASKED, "answers": [{"text": "cancer", "answer_start": 999}, "mutant genes"]}]
    ),
    "answer, none": Case("answer", [{**ASKED, "answers": [], "is_impossible": True}]),
    "answer, label": Case("answer", [{**ASKED, "label": "maybe"}]),
    "compare": Case("compare", [{"text": TEXT}]),
    "compare, pairs": Case("compare", [{"anchor": TEXT, "positive": PASSAGE}]),
    "compare, triples": Case("compare", [{"anchor": TEXT, "positive": PASSAGE, "negative": "Other things."}]),
    "compare, scores": Case("compare", [{"sentence1": TEXT, "sentence2": PASSAGE, "score": 2.5}]),
}


@dataclass(frozen=True)
class Ready:
    task: AnyTask
    """Without labels: rewriting needs none."""
    examples: tuple[Any, ...]
    folder: Path

    def read(self, records: Sequence[dict[str, Any]], name: str = "again.jsonl") -> tuple[Any, ...]:
        path = self.folder / name
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        path.write_text("".join(lines), encoding="utf8")
        return type(self.task).read([path], self.task.settings, ReadOptions()).examples


def ready_for(case: Case, folder: Path) -> Ready:
    kind = get_task_class(case.task)
    task = object.__new__(kind)
    object.__setattr__(task, "settings", kind.settings_class(**case.settings))
    empty = Ready(task, (), folder)
    return replace(empty, examples=empty.read(case.lines, "examples.jsonl"))


@pytest.fixture(params=CASES, scope="module")
def ready(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ready:
    return ready_for(CASES[request.param], tmp_path_factory.mktemp("rewriting"))


def every_word(ready: Ready, example: Any, fresh: str = "zebra") -> list[list[TextEdit]]:
    """Replace all words that may be, by words of another length."""
    return [
        [
            TextEdit(*span, fresh * (1 + number % 3))
            for number, span in enumerate(
                span for stretch in stretches for span in find_replaceable_words(text, stretch, SEGMENTER)
            )
        ]
        for text, stretches in zip(example.texts, ready.task.rewriter().editable_spans(example), strict=True)
    ]


def bare(example: Any) -> Any:
    """An example without what depends on the file that it stands in."""
    names = {"classify": ("lines",), "compare": ("id", "group")}
    kind = type(example).__name__.removesuffix("Example").lower()
    blank = {"lines": (), "id": "", "group": None}
    return replace(example, where="", **{name: blank[name] for name in names.get(kind, ())})


def copies(ready: Ready) -> list[Any]:
    return [
        ready.task.rewriter().rewrite(example, every_word(ready, example), f"{example.id}#1")
        for example in ready.examples
    ]


def test_every_task_is_rewritten_or_refuses() -> None:
    refusing = [get_task_class(name) for name in TASKS.keys() - {case.task for case in CASES.values()}]
    assert all(task.rewriter is Task.rewriter for task in refusing)


def test_originals_and_copies_are_read_again_as_they_were(ready: Ready) -> None:
    examples = [*ready.examples, *copies(ready)]
    again = ready.read([record for each in examples for record in ready.task.rewriter().records(each)])
    assert [bare(each) for each in again] == [bare(each) for each in examples]


def test_copies_have_other_words_and_a_name_of_their_own(ready: Ready) -> None:
    for example, copy in zip(ready.examples, copies(ready), strict=True):
        assert copy.id == f"{example.id}#1"
        assert copy.texts != example.texts
        assert any("zebra" in text for text in copy.texts)


def test_no_edits_change_nothing_but_the_name(ready: Ready) -> None:
    for example in ready.examples:
        copy = ready.task.rewriter().rewrite(example, [[] for _ in example.texts], example.id)
        assert bare(copy) == bare(example)


def rewritten(case: str, tmp_path: Path) -> tuple[Any, Any]:
    """The first example of a case, and a copy in which all words are replaced."""
    ready = ready_for(CASES[case], tmp_path)
    return ready.examples[0], copies(ready)[0]


def test_the_words_of_an_entity_are_replaced_inside_its_borders(tmp_path: Path) -> None:
    _, copy = rewritten("tag", tmp_path)
    surfaces = [copy.text[start:end] for start, end, _ in copy.entities]
    assert surfaces == ["zebrazebra", "zebra zebrazebra", "zebra"]
    assert copy.text.startswith("zebra zebrazebra-zebrazebrazebra zebra zebrazebra in 12 zebrazebrazebra. zebra")
    assert copy.text[copy.sentences[1] :].startswith("zebra and")


def test_nested_entities_stay_nested(tmp_path: Path) -> None:
    _, copy = rewritten("tag, nested", tmp_path)
    inner, outer = copy.entities[1], copy.entities[3]
    assert outer[0] < inner[0] < inner[1] == outer[1]


def test_only_entities_that_stand_alone_are_replaced_as_a_whole(tmp_path: Path) -> None:
    example, _ = rewritten("tag, nested", tmp_path)
    (found,) = TagRewriter().entities(example)
    assert [example.text[start:end] for start, end, _ in found] == ["糖尿病"]


def test_an_entity_that_stands_for_a_concept_is_not_replaced_as_a_whole(tmp_path: Path) -> None:
    example, _ = rewritten("relate, documents", tmp_path)
    (found,) = RelateRewriter().entities(example)
    assert [example.text[start:end] for start, end, _ in found] == ["breast cancer", "IL-6"]


def test_marks_and_stand_ins_stay(tmp_path: Path) -> None:
    _, marked = rewritten("relate, marked", tmp_path)
    assert marked.text == "<< zebra zebrazebra >> zebrazebrazebra [[ zebra zebrazebra ]] in zebrazebrazebra."
    assert [marked.text[each.start : each.end] for each in marked.mentions] == ["zebra zebrazebra"] * 2
    _, anonymous = rewritten("relate, anonymised", tmp_path)
    assert anonymous.text == "zebra @GENE$ zebrazebra zebrazebrazebra @DISEASE$."


def test_answers_and_choices_stay(tmp_path: Path) -> None:
    _, asked = rewritten("answer", tmp_path)
    (answer,) = asked.answers
    (span,) = answer.spans
    assert asked.passage[slice(*span)] == answer.text == "mutant genes"
    example, chosen = rewritten("choose", tmp_path)
    assert chosen.choices == example.choices


def test_a_copy_in_which_an_answer_would_stand_in_new_places_is_not_used(tmp_path: Path) -> None:
    example, _ = rewritten("answer, several places", tmp_path)
    edit = TextEdit(example.passage.index("Diet"), example.passage.index("Diet") + 4, "cancer")
    assert AnswerRewriter().rewrite(example, [[], [edit]], "copy") is None


def test_generation_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadSetting, match="generate cannot be augmented"):
        object.__new__(get_task_class("generate")).rewriter()


@given(st.data())
def test_any_words_leave_every_label_around_its_own(data: st.DataObject) -> None:
    """Words are marked by the entity that they stand in, and come out in the same."""
    words = data.draw(st.lists(st.sampled_from(["breast", "IL-6", "糖尿病", "of"]), min_size=1, max_size=12))
    text, starts = "", []
    for word in words:
        starts.append(len(text))
        text += word + data.draw(st.sampled_from([" ", "", ", "]))
    bounds = sorted(data.draw(st.sets(st.sampled_from([*starts, len(text)]), min_size=2, max_size=4)) | {len(text)})
    entities = [(start, end, f"E{start}") for start, end in pairwise(bounds)]
    example = TagExample(id="x", texts=(text,), entities=tuple(entities))
    rewriter = TagRewriter()
    spans = [
        span
        for stretch in rewriter.editable_spans(example)[0]
        for span in find_replaceable_words(text, stretch, SEGMENTER)
    ]
    owner = {span: label for span in spans for start, end, label in entities if start <= span[0] < end}
    copy = rewriter.rewrite(example, [[TextEdit(*span, f"<{owner.get(span)}>") for span in spans]], "y")
    for start, end, label in copy.entities or ():
        inside = copy.text[start:end]
        assert inside.count("<") == inside.count(f"<{label}>") == list(owner.values()).count(label)
