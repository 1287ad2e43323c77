"""Models that transformers saved: our predictions are those of its pipelines, for every kind of head."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from alembert.cli import run
from alembert.infer.engine_torch import TorchEngine
from alembert.infer.language_model import fill_mask
from alembert.infer.task_model import TaskModel
from alembert.tasks.runtime.export_files import read_export_metadata
from foreign_models import BIO, SENTIMENT, real_sentences, save_foreign

FAMILIES = ["Bert", "Albert"]
COUNT = 1000


@pytest.fixture(scope="module")
def sentences(shared: Path) -> list[str]:
    return real_sentences(shared, COUNT)


def predicted(folder: Path, texts: list[str]) -> list[Any]:
    model = TaskModel.open(folder)
    return model.predict(model.task.examples_from_texts(texts))


def piped(task: str, folder: Path, texts: list[str], **options: Any) -> list[Any]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = {
        "token-classification": transformers.AutoModelForTokenClassification,
        "text-classification": transformers.AutoModelForSequenceClassification,
    }[task]
    pipeline = transformers.pipeline(task, model=kind.from_pretrained(folder), tokenizer=tokenizer, **options)
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    answers = pipeline([texts[number] for number in order], batch_size=64)
    return [answer for _, answer in sorted(zip(order, answers, strict=True), key=lambda pair: pair[0])]


def assert_same_entities(folder: Path, texts: list[str]) -> int:
    """Compare entities and their scores; give how many there are."""
    found = [
        (number, entity.start, entity.end, entity.label, entity.score)
        for number, tagged in enumerate(predicted(folder, texts))
        for entity in tagged.entities
    ]
    expected = [
        (number, each["start"], each["end"], each["entity_group"], each["score"])
        for number, entities in enumerate(piped("token-classification", folder, texts, aggregation_strategy="first"))
        for each in entities
    ]
    assert [each[:4] for each in found] == [each[:4] for each in expected]
    np.testing.assert_allclose([each[4] for each in found], [each[4] for each in expected], atol=1e-4)
    return len(found)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "labels",
    [BIO, {0: "O", 1: "Gene", 2: "Disease"}, {0: "I-x", 1: "O"}, None],
    ids=["bio", "io", "i", "nameless"],
)
def test_taggers(family: str, labels: dict[int, str] | None, tmp_path: Path, sentences: list[str]) -> None:
    save_foreign(tmp_path, f"{family}ForTokenClassification", labels=labels)
    assert assert_same_entities(tmp_path, sentences[: COUNT if labels is BIO else 100])


@pytest.mark.parametrize("family", FAMILIES)
def test_classifiers_of_one_label(family: str, tmp_path: Path, sentences: list[str]) -> None:
    save_foreign(tmp_path, f"{family}ForSequenceClassification", labels=SENTIMENT)
    answers = [each.answer for each in predicted(tmp_path, sentences)]
    expected = piped("text-classification", tmp_path, sentences)
    assert [answer.label for answer in answers] == [each["label"] for each in expected]
    assert len({answer.label for answer in answers}) > 1
    np.testing.assert_allclose([answer.score for answer in answers], [each["score"] for each in expected], atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_classifiers_of_several_labels(family: str, tmp_path: Path, sentences: list[str]) -> None:
    kind = {"problem_type": "multi_label_classification"}
    save_foreign(tmp_path, f"{family}ForSequenceClassification", labels=SENTIMENT, **kind)
    answers = [each.answer for each in predicted(tmp_path, sentences)]
    expected = [
        {each["label"]: each["score"] for each in scores}
        for scores in piped("text-classification", tmp_path, sentences, top_k=None)
    ]
    for answer, scores in zip(answers, expected, strict=True):
        assert dict(answer.probabilities) == pytest.approx(scores, abs=1e-4)
    assert len({answer.labels for answer in answers}) > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_regression(family: str, tmp_path: Path, sentences: list[str]) -> None:
    save_foreign(tmp_path, f"{family}ForSequenceClassification", labels={0: "LABEL_0"}, problem_type="regression")
    values = [each.answer.value for each in predicted(tmp_path, sentences)]
    expected = [each["score"] for each in piped("text-classification", tmp_path, sentences)]
    np.testing.assert_allclose(values, expected, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_pairs(family: str, tmp_path: Path, sentences: list[str]) -> None:
    model = save_foreign(tmp_path, f"{family}ForSequenceClassification", labels=SENTIMENT)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pairs = list(zip(sentences[:50], sentences[50:100], strict=True))
    logits = [model(**tokenizer(*pair, return_tensors="pt")).logits[0].argmax().item() for pair in pairs]
    answers = predicted(tmp_path, ["\t".join(pair) for pair in pairs])
    assert [each.answer.label for each in answers] == [SENTIMENT[int(each)] for each in logits]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_questions(family: str, tmp_path: Path, sentences: list[str]) -> None:
    """The best start and end of the passage, as the example scripts of transformers choose them, among those of whole words."""
    model = save_foreign(tmp_path, f"{family}ForQuestionAnswering")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    asked = [(question[:30], passage[:300]) for question, passage in pairwise(sentences[:100])]
    found = predicted(tmp_path, ["\t".join(pair) for pair in asked])
    for (question, passage), answer in zip(asked, found, strict=True):
        inputs = tokenizer(question, passage, return_tensors="pt", return_offsets_mapping=True)
        offsets = inputs.pop("offset_mapping")[0].tolist()
        outputs = model(**inputs)
        inside = [place for place, side in enumerate(inputs.sequence_ids(0)) if side == 1]
        starts, ends = outputs.start_logits[0][inside].numpy(), outputs.end_logits[0][inside].numpy()
        for place, (first, last) in enumerate(offsets[each] for each in inside):
            if re.fullmatch(r"\w\w", passage[max(first - 1, 0) : first + 1]):
                starts[place] = -np.inf
            if re.fullmatch(r"\w\w", passage[last - 1 : last + 1]):
                ends[place] = -np.inf
        pairs = [
            (starts[start] + ends[end], start, end)
            for start in np.argsort(-starts)[:20].tolist()
            for end in np.argsort(-ends)[:20].tolist()
            if start <= end < start + 30
        ]
        _, start, end = max(pairs)
        assert (answer.best[0].start, answer.best[0].end) == (
            offsets[inside[start]][0],
            offsets[inside[end]][1],
        )


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_choices(family: str, tmp_path: Path, sentences: list[str]) -> None:
    model = save_foreign(tmp_path, f"{family}ForMultipleChoice")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    asked = [sentences[start : start + 4] for start in range(0, 200, 4)]
    found = predicted(tmp_path, ["\t".join(each) for each in asked])
    for (question, *choices), prediction in zip(asked, found, strict=True):
        inputs = tokenizer([question] * 3, choices, return_tensors="pt", padding=True)
        logits = model(**{name: each[None] for name, each in inputs.items()}).logits[0]
        assert prediction.choice == logits.argmax().item()


@pytest.fixture(scope="module")
def minilm_tagger(minilm: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM with a tag head that was fitted to the states of some hundred sentences, saved by transformers."""
    folder = tmp_path_factory.mktemp("minilm") / "tagger"
    labels = ["O", "B-Disease", "I-Disease"]
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        minilm, id2label=dict(enumerate(labels)), label2id={name: n for n, name in enumerate(labels)}
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    blocks = (shared / "ner/NCBI-disease/devel.tsv").read_text(encoding="utf8").strip().split("\n\n")[:300]
    rows = [[line.split("\t") for line in block.splitlines()] for block in blocks]
    states, tags = [], []
    with torch.no_grad():
        for row in rows:
            inputs = tokenizer([word for word, _ in row], is_split_into_words=True, return_tensors="pt")
            words = inputs.word_ids(0)
            first = [n for n, word in enumerate(words) if word is not None and word != words[n - 1]]
            states.append(model.bert(**inputs).last_hidden_state[0][first])
            tags += [labels.index(tag) for _, tag in row][: len(first)]
    states_ND, tags_N = torch.cat(states), torch.tensor(tags)
    optimiser = torch.optim.LBFGS(model.classifier.parameters(), max_iter=40)

    def loss() -> Any:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(model.classifier(states_ND), tags_N)
        value.backward()
        return value

    optimiser.step(loss)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_a_trained_tagger(minilm_tagger: Path, sentences: list[str]) -> None:
    assert assert_same_entities(minilm_tagger, sentences) > 500


@pytest.mark.slow
def test_a_trained_tagger_is_exported_annotates_and_teaches(minilm_tagger: Path, shared: Path, tmp_path: Path) -> None:
    blocks = (shared / "ner/NCBI-disease/train.tsv").read_text(encoding="utf8").split("\n\n")
    (tmp_path / "train.tsv").write_text("\n\n".join(blocks[:300]) + "\n\n", encoding="utf8")
    (tmp_path / "test.tsv").write_text("\n\n".join(blocks[300:500]) + "\n\n", encoding="utf8")
    (tmp_path / "brief.toml").write_text("[intermediate]\nskip = true\n[prediction]\nsteps = 2\n")
    model, train, test = str(minilm_tagger), str(tmp_path / "train.tsv"), str(tmp_path / "test.tsv")
    exported = [
        "export",
        model,
        "--calibrate",
        train,
        "--dev",
        test,
        "--set",
        "calibration_rows=60",
        "--set",
        "run.speed=false",
    ]
    assert run([*exported, "--out", str(tmp_path / "int8")]) == 0
    assert read_export_metadata(tmp_path / "int8").precision == "int8"
    assert run(["annotate", str(tmp_path / "int8"), test, "--out", str(tmp_path / "annotated")]) == 0
    distilled = ["distill", model, "--student", "2x96", "--train", train, "--dev", test]
    config = ["--config", str(tmp_path / "brief.toml")]
    assert run([*distilled, *config, "--out", str(tmp_path / "student")]) == 0
    assert TaskModel.open(tmp_path / "student").task.labels == ("O", "B-Disease", "I-Disease")


@pytest.mark.parametrize("family", FAMILIES)
def test_masks(family: str, tmp_path: Path, sentences: list[str]) -> None:
    save_foreign(tmp_path, f"{family}ForMaskedLM")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    pipeline = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=5)
    engine = TorchEngine.open(tmp_path)
    for text in (f"{sentence[:60]} [MASK] {sentence[60:120]}" for sentence in sentences[:50]):
        (mask,) = fill_mask(engine, text, 5)
        expected = pipeline(text)
        assert [each.token for each in mask.candidates] == [each["token_str"] for each in expected]
        np.testing.assert_allclose(
            [each.score for each in mask.candidates], [each["score"] for each in expected], atol=1e-4
        )
