"""Explanations: a word that causes a label comes first, features count, and what is unfaithful is called so."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import alembert
from alembert.errors import BadInput, BadSetting, UserError
from alembert.files import checkpoint as checkpoints
from alembert.infer.explain.explain import explain_decision
from alembert.infer.explain.result import Explanation, Faithfulness, WordScore, render_explanation_summary
from alembert.infer.task_model import TaskModel
from alembert.tasks.runtime.torch import collate_rows
from alembert.tasks.settings import LossSettings
from small_checkpoints import fine_tuned
from task_cases import CASES, Case

CAUSE = "zq"
WORDS = ("ab", "cd", "ef", "gh", "ij", "kl")


def caused() -> list[dict[str, Any]]:
    """Texts of six words each, of which one decides the label."""
    random = np.random.default_rng(3)
    lines = []
    for number in range(48):
        words = random.choice(WORDS, 6).tolist()
        if number % 2:
            words[int(random.integers(6))] = CAUSE
        lines.append({"text": " ".join(words), "label": ["no", "yes"][number % 2]})
    return lines


def tagged_by_case() -> list[dict[str, Any]]:
    """Texts in which a word in capitals is a gene, and the same word in small letters is none."""
    lines = []
    for number, line in enumerate(caused()):
        words = line["text"].split()
        place = number % len(words)
        words[place] = words[place].upper()
        start = len(" ".join([*words[:place], ""]))
        entity = {"id": "T1", "label": "gene", "spans": [[start, start + 2]]}
        lines.append({"id": str(number), "text": " ".join(words), "entities": [entity]})
    return lines


def train(name: str, case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> Path:
    """Write a checkpoint that has learnt a case."""
    monkeypatch.setitem(CASES, name, case)
    examples = fine_tuned(name, folder / "random", folder / "examples.jsonl")
    checkpoint, opened = checkpoints.open(folder / "random"), TaskModel.open(folder / "random")
    encoded = opened.task.encode(examples, opened.engine.tokenizer, 64)
    rows = [row for each in encoded for row in each.rows]
    target, head = collate_rows(rows, range(len(rows))), opened.task.head().kind
    model = checkpoint.model.train()
    torch.manual_seed(1)
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(steps):
        outputs = model(target.batch, [head], positions_P=target.positions, only=True)[head]
        loss = opened.task.loss(model.head(head), outputs, target, LossSettings())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    checkpoint.save(folder / "trained")
    (folder / "trained" / "task.json").write_bytes((folder / "random" / "task.json").read_bytes())
    return folder / "trained"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield alembert.load(
            train("caused", Case("classify", {}, caused), tmp_path_factory.mktemp("caused"), patch, steps=150)
        )


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    case = Case("tag", {"head": "crf", "case": True}, tagged_by_case)
    with pytest.MonkeyPatch.context() as patch:
        yield alembert.load(train("case", case, tmp_path_factory.mktemp("case"), patch, steps=150))


@pytest.mark.parametrize("method", ["gradients", "occlusion"])
@pytest.mark.parametrize("text", ["ab cd zq gh ij", "zq ef", "kl ij gh ef zq"])
def test_the_word_that_causes_a_label_comes_first(classifier: alembert.Predictor, text: str, method: Any) -> None:
    found = classifier.explain(text, method=method)
    assert found.label == "yes"
    assert found.strongest_words(1)[0].text == CAUSE


def test_what_decides_is_faithful(classifier: alembert.Predictor) -> None:
    faithfulness = classifier.explain("ab cd zq gh ij kl ef").faithfulness
    assert faithfulness.better_than_random
    assert faithfulness.comprehensiveness > faithfulness.random_comprehensiveness > 0


@pytest.mark.parametrize("method", ["gradients", "occlusion"])
def test_letter_case_counts(tagger: alembert.Predictor, method: Any) -> None:
    found = tagger.explain("ab CD ef gh", span=(3, 5), method=method)
    assert (found.question, found.label) == ('why 3:5 "CD" is gene', "gene")
    assert found.features[0].name == "letter case of CD"
    assert found.features[0].score > 0


def test_what_has_no_letter_case_has_no_such_feature(tagger: alembert.Predictor) -> None:
    found = tagger.explain("ab CD - 12, 咳 ef.", span=(3, 5), method="occlusion")
    assert [word.text for word in found.words] == ["ab", "CD", "-", "12", ",", "咳", "ef", "."]
    assert sorted(each.name[-2:] for each in found.features) == ["CD", "ab", "ef"]


def test_what_is_no_entity_is_asked_why_not(tagger: alembert.Predictor) -> None:
    found = tagger.explain("ab CD ef gh", span=(6, 8))
    assert found.question == 'why 6:8 "ef" is not gene'
    assert found.margin > 0
    assert found.strongest_words(1)[0].text == "ef"


def test_without_a_question_it_is_the_least_certain_entity(tagger: alembert.Predictor) -> None:
    text = "ab CD ef GH"
    entities = tagger.predict(text).entities
    least = min(entities, key=lambda entity: entity.score)
    found = tagger.explain(text)
    assert found.is_default
    assert found.span == (least.start, least.end)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"span": (90, 99)}, "has no word"),
        ({"label": "drug"}, "it has gene"),
        ({"method": "luck"}, "expected gradients or occlusion"),
    ],
)
def test_questions_without_an_answer_are_refused(tagger: alembert.Predictor, options: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        tagger.explain("ab CD", **options)


def test_a_text_without_an_entity_is_refused(tagger: alembert.Predictor) -> None:
    with pytest.raises(BadInput, match="finds no entity"):
        tagger.explain("ab cd")


def test_exports_have_no_gradients() -> None:
    with pytest.raises(BadSetting, match="has no gradients"):
        alembert.load("bio-fast").explain("Aspirin helps.", method="gradients")


def test_a_decision_that_costs_too_much_is_refused(tagger: alembert.Predictor) -> None:
    opened = TaskModel.open(tagger.folders[0])
    (example,) = opened.task.examples_from_texts(["ab CD"])
    with pytest.raises(BadInput, match="at most 10 are allowed"):
        explain_decision(opened.only, opened.engine, example, max_tokens=10)


def test_the_same_picture_comes_out_each_time(classifier: alembert.Predictor) -> None:
    one, other = (classifier.explain("ab cd zq gh").record() for _ in range(2))
    assert one == other


def test_a_record_is_json(classifier: alembert.Predictor) -> None:
    record = json.loads(json.dumps(classifier.explain("ab cd zq gh").record()))
    assert record["text"] == "ab cd zq gh"
    assert record["faithfulness"]["better_than_random"] is True
    assert [word["text"] for word in record["words"]] == ["ab", "cd", "zq", "gh"]


def made(comprehensiveness: float, residue: float | None = None) -> Explanation:
    faithfulness = Faithfulness(
        comprehensiveness=comprehensiveness, sufficiency=0.0, random_comprehensiveness=1.0, random_sufficiency=1.0
    )
    return Explanation(
        model="m", texts=("<b> & c",), question="why", span=None, label="", method="gradients", margin=1.0,
        words=(WordScore("<b>", 0, 3, 1.0), WordScore("c", 6, 7, -1.0)), residue=residue, steps=16, faithfulness=faithfulness,
    )  # fmt: skip


@pytest.mark.parametrize(("value", "warned"), [(0.5, True), (2.0, False)])
def test_a_picture_that_is_no_better_than_chance_says_so(value: float, warned: bool) -> None:
    found, sentence = made(value), "no better than a random order"
    assert (sentence in "\n".join(found.to_lines())) is warned
    assert (sentence in found.to_html()) is warned


@pytest.mark.parametrize(
    ("scores", "leans"),
    [((1, 3, 2, 1), True), ((1, 1, 2, 3), True), ((3, 1, 2, 1), False), ((1, 2, 3, 2), False), ((1, 1, 2, -3), False)],
)
def test_a_word_beside_the_answer_is_called_so(scores: tuple[float, ...], leans: bool) -> None:
    words = tuple(WordScore("ab", 3 * n, 3 * n + 2, score) for n, score in enumerate(scores))
    found = replace(made(2.0), texts=("ab ab ab ab",), words=words, span=(6, 8))
    assert found.leans_on_border() is leans
    assert any("beside the span" in line for line in found.to_lines()) is leans
    assert ("beside the span" in render_explanation_summary(found)) is leans


def test_scores_that_do_not_add_up_are_pointed_out() -> None:
    assert "miss 5.0%" in "\n".join(made(2.0, residue=0.05).to_lines())


def test_the_page_escapes_texts_and_needs_nothing_else() -> None:
    page = made(2.0).to_html()
    assert "<b> & c" not in page
    assert "&lt;b&gt;" in page
    assert "http" not in page
    assert "<script" not in page


def test_a_page_is_written_to_a_file(tmp_path: Path) -> None:
    made(2.0).write(tmp_path / "why.html")
    assert (tmp_path / "why.html").read_text(encoding="utf8").startswith("<!doctype html>")
