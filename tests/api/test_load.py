"""`alembert.load`: every kind of model predicts from plain inputs, alone and together, and refuses in sentences."""

import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers

import alembert
from alembert.infer.task_model import TaskModel
from small_checkpoints import fine_tuned, fine_tuned_together
from task_cases import TOKENIZER

TEXT = "Imatinib inhibits BCR-ABL1 in chronic myeloid leukemia."


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Make a tiny fine-tuned checkpoint of a case once."""
    made: dict[str, Path] = {}

    def make(case: str) -> Path:
        if case not in made:
            folder = tmp_path_factory.mktemp("models") / case.replace(", ", "-")
            fine_tuned(case, folder, folder.with_suffix(".jsonl"))
            made[case] = folder
        return made[case]

    return make


def test_a_tagger_gives_a_document_with_entities(models: Any) -> None:
    model = alembert.load(models("tag"))
    assert model.tasks == ("tag",)
    document = model.predict(TEXT)
    assert isinstance(document, alembert.AnnotatedDocument)
    assert document.entities
    for entity in document.entities:
        assert TEXT[entity.start : entity.end] == entity.text
        assert entity.label
        assert entity.score is not None
        assert 0 <= entity.score <= 1
    assert document.coverage.characters == len(TEXT)


def test_predictions_equal_those_of_the_task_model(models: Any) -> None:
    folder = models("tag, crf")
    task_model = TaskModel.open(folder)
    expected = task_model.predict(task_model.task.examples_from_texts([TEXT]))[0].entities
    entities = alembert.load(folder).predict(TEXT).entities
    assert [(e.start, e.end, e.label, e.score) for e in entities] == [
        (e.start, e.end, e.label, round(e.score, 4)) for e in expected
    ]


def test_a_list_gives_a_list_in_order_and_documents_keep_their_ids(models: Any) -> None:
    model = alembert.load(models("tag"))
    inputs = [TEXT, {"text": "No fever.", "id": "note-7"}, alembert.Document("d1", "Aspirin helps.")]
    predictions = model.predict(inputs)
    assert [each.id for each in predictions] == ["1", "note-7", "d1"]
    assert [each.text for each in predictions] == [TEXT, "No fever.", "Aspirin helps."]
    assert predictions[0].entities == model.predict(TEXT).entities


def test_a_classifier_gives_label_and_probabilities(models: Any) -> None:
    prediction = alembert.load(models("classify")).predict([TEXT])[0]
    assert prediction.label in prediction.probabilities
    assert sum(prediction.probabilities.values()) == pytest.approx(1)
    assert prediction.probabilities[prediction.label] == max(prediction.probabilities.values())


def test_a_regression_model_gives_a_value(models: Any) -> None:
    prediction = alembert.load(models("classify, number")).predict(TEXT)
    assert isinstance(prediction.value, float)
    assert prediction.label is None


def test_a_classifier_of_pairs_takes_a_tuple(models: Any) -> None:
    model = alembert.load(models("classify, pairs"))
    one = model.predict(("first text", "second text"))
    assert one == model.predict([{"texts": ["first text", "second text"]}])[0]
    assert one.texts == ("first text", "second text")
    assert one.label in one.probabilities
    with pytest.raises(alembert.UserError, match="Input 1 is no pair"):
        model.predict("a text alone")


def test_a_question_with_its_passage_is_answered(models: Any) -> None:
    passage = "Aspirin inhibits platelet aggregation. It was given daily."
    model = alembert.load(models("answer"))
    answer = model.predict({"question": "What inhibits platelets?", "passage": passage})
    assert answer.text == passage[answer.start : answer.end]
    assert answer.candidates[0].text == answer.text
    assert answer == model.predict([{"question": "What inhibits platelets?", "context": passage}])[0]
    with pytest.raises(alembert.UserError, match="without `passage`"):
        model.predict({"question": "What?"})


def test_a_question_with_a_label_for_an_answer(models: Any) -> None:
    answer = alembert.load(models("answer, label")).predict({"question": "Does it?", "passage": TEXT})
    assert answer.label in answer.probabilities
    assert answer.text is None


def test_one_of_some_choices_is_taken(models: Any) -> None:
    choices = ["imatinib", "asthma", "kras", "warfarin"]
    prediction = alembert.load(models("choose")).predict({"question": "Which drug?", "choices": choices})
    assert prediction.choice == choices[prediction.index]
    assert prediction.probabilities[prediction.index] == max(prediction.probabilities) == prediction.score


def test_vectors_and_similarities(models: Any) -> None:
    model = alembert.load(models("compare"))
    vectors = model.encode([TEXT, "No fever.", TEXT])
    assert vectors.shape[0] == 3
    assert vectors.dtype == np.float32
    assert model.encode(TEXT).shape == vectors.shape[1:]
    assert model.similarity(TEXT, TEXT) == pytest.approx(1, abs=1e-5)
    assert model.similarity([TEXT], ["No fever.", TEXT]).shape == (1, 2)
    pair = model.predict((TEXT, "No fever."))
    assert pair.similarity == pytest.approx(model.similarity(TEXT, "No fever."), abs=1e-5)


def test_vectors_are_written_and_searched(models: Any, tmp_path: Path) -> None:
    texts = ["Fever after aspirin.", "No change of KRAS was seen.", TEXT]
    alembert.write([alembert.Document(f"d{n}", text) for n, text in enumerate(texts)], tmp_path / "a.jsonl")
    result = alembert.embed(models("compare"), tmp_path / "a.jsonl", out=tmp_path / "vectors", progress=False)
    assert result.counts["units"] == 3
    model = alembert.load(models("compare"))
    first, *_ = model.search(result.folder, TEXT, top=2)
    assert (first.id, first.text) == ("d2", TEXT)
    assert first.score == pytest.approx(1, abs=1e-5)
    assert [hits[0].id for hits in model.search(result.folder, texts)] == ["d0", "d1", "d2"]
    with pytest.raises(alembert.UserError, match="made by another model"):
        alembert.load(models("compare, mean")).search(result.folder, TEXT)


def test_inputs_of_vectors_are_copied_beside_the_result(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Copies in a temporary folder would be made anew in each run, and be called by their paths.
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=BytesIO(b'{"id": "d1", "text": "No fever."}\n')))
    alembert.embed(models("compare"), "-", out=tmp_path / "vectors", progress=False)
    assert (tmp_path / ".alembert-cache" / "inputs" / "vectors").is_dir()


def test_a_text_is_written_for_a_source(models: Any) -> None:
    prediction = alembert.load(models("generate")).predict(TEXT)
    assert isinstance(prediction, alembert.GenerationPrediction)


def test_a_relation_model_alone_reads_marked_texts_and_documents_with_entities(models: Any) -> None:
    marked = alembert.load(models("relate")).predict("<< KRAS >>, not [[ B-A ]].")
    assert [entity.text for entity in marked.entities] == ["KRAS", "B-A"]
    document = {"text": "Aaa and Bbb met.", "entities": [
        {"id": "T1", "label": "drug", "spans": [[0, 3]]}, {"id": "T2", "label": "gene", "spans": [[8, 11]]},
    ]}  # fmt: skip
    related = alembert.load(models("relate, documents")).predict(document)
    assert [entity.id for entity in related.entities] == ["T1", "T2"]


def test_models_work_together(models: Any) -> None:
    both = alembert.load(models("tag"), models("classify"))
    document = both.predict(TEXT)
    assert document.entities == alembert.load(models("tag")).predict(TEXT).entities
    assert document.label == alembert.load(models("classify")).predict(TEXT).label


def test_a_multi_task_model_is_used_whole_or_by_task(tmp_path: Path) -> None:
    fine_tuned_together({"disease": "tag", "topic": "classify"}, tmp_path / "m", tmp_path)
    document = alembert.load(tmp_path / "m").predict(TEXT)
    assert document.label
    assert alembert.load(tmp_path / "m", task="topic").predict(TEXT).entities == ()
    with pytest.raises(alembert.UserError, match="several tasks"):
        alembert.load(tmp_path / "m", task="nonsense")


def test_triples_have_the_entities_of_the_document() -> None:
    entities = (alembert.Entity("T1", "drug", ((0, 8),)), alembert.Entity("T2", "gene", ((18, 26),)))
    relation = alembert.Relation("R1", "inhibits", (("Arg1", "T1"), ("Arg2", "T2")), (("score", "0.9"),))
    document = alembert.AnnotatedDocument("1", TEXT, entities=entities, relations=(relation,))
    (triple,) = document.triples
    assert (triple.head.text, triple.relation, triple.tail.text) == ("Imatinib", "inhibits", "BCR-ABL1")
    assert triple.score == pytest.approx(0.9)


def test_predictions_are_plain_values_and_notebook_html(models: Any) -> None:
    document = alembert.load(models("tag")).predict("<b>Imatinib</b> & BCR-ABL1")
    table = json.loads(json.dumps(document.to_dict()))
    assert table["text"] == "<b>Imatinib</b> & BCR-ABL1"
    assert {"text", "label", "start", "end", "score"} <= table["entities"][0].keys()
    html = document._repr_html_()
    assert "<b>" not in html
    assert "&lt;" in html
    assert "<mark" in html


# -- streams


def test_pipe_is_lazy_ordered_and_equal_to_predict(models: Any) -> None:
    model = alembert.load(models("tag"))
    taken = 0

    def texts() -> Any:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield alembert.Document(f"d{number}", f"Case {number} of asthma.")

    stream = model.pipe(texts(), batch_characters=200)
    first = next(stream)
    assert first.id == "d0"
    assert taken < 200
    rest = list(stream)
    assert [each.id for each in rest] == [f"d{number}" for number in range(1, 1000)]
    assert rest[41].entities == model.predict("Case 42 of asthma.").entities


def test_what_was_read_before_an_error_of_the_source_is_predicted(models: Any) -> None:
    def source() -> Iterator[str]:
        yield from ("one", "two", "three")
        raise ZeroDivisionError

    found: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(alembert.load(models("tag")).pipe(source(), batch_characters=6))
    assert [each.id for each in found] == ["1", "2", "3"]


def test_a_bad_input_does_not_end_a_stream(models: Any) -> None:
    model = alembert.load(models("tag"))
    inputs = ["fine", "", {"no text": 1}, 7, "fine again"]
    found = list(model.pipe(inputs))  # type: ignore[arg-type]
    assert [each.problem is None for each in found] == [True, False, False, False, True]
    assert "Input 3 is a dict without `text`" in found[2].problem
    questions = [{"question": "What?", "passage": TEXT}, {"question": "What?"}]
    found = list(alembert.load(models("answer")).pipe(questions))
    assert "without `passage`" in found[1].problem


def test_every_prediction_has_the_id_of_its_input(models: Any) -> None:
    tagger = alembert.load(models("tag"))
    named = [{"id": "a", "text": "fine"}, {"id": "b", "text": ""}, {"id": None, "text": "fine"}, {"id": "d"}]
    assert [(each.id, each.text) for each in tagger.pipe(named)] == [
        ("a", "fine"),
        ("b", ""),
        ("3", "fine"),
        ("d", ""),
    ]
    pairs = [{"id": "a", "texts": ("one", "two")}, {"id": "b", "texts": "one"}]
    assert [each.id for each in alembert.load(models("classify, pairs")).pipe(pairs)] == ["a", "b"]
    assert [each.id for each in alembert.load(models("compare")).pipe(pairs)] == ["a", "b"]
    sources = [alembert.Document("a", TEXT), {"id": "b", "text": TEXT}]
    assert [each.id for each in alembert.load(models("generate, extract")).pipe(sources)] == ["a", "b"]


def test_a_document_that_was_put_together_wrongly_is_refused(models: Any) -> None:
    outside = alembert.Entity("T1", "gene", ((0, 99),))
    empty = alembert.Entity("T1", "gene", ())
    wrong = [
        alembert.Document(5, "kras"),  # type: ignore[arg-type]
        alembert.Document("d", None),  # type: ignore[arg-type]
        alembert.Document("d", "kras", entities=(outside,)),
        alembert.Document("d", "kras", entities=(empty,)),
    ]
    for case in ("tag", "classify", "relate, documents"):
        problems = [each.problem for each in alembert.load(models(case)).pipe(wrong)]
        assert [problem[:21] for problem in problems] == [f"Input {number} is a Document" for number in (1, 2, 3, 4)]


def test_a_document_on_which_the_model_fails_is_reported(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = alembert.load(models("tag"))
    predict = TaskModel.predict_all

    def fail(self: TaskModel, examples: Any) -> Any:
        if any("poison" in example["tag"].text for example in examples):
            raise ZeroDivisionError
        return predict(self, examples)

    monkeypatch.setattr(TaskModel, "predict_all", fail)
    found = list(model.pipe(["fine", "poison", "fine"]))
    assert [each.problem is None for each in found] == [True, False, True]
    assert "ZeroDivisionError" in found[1].problem
    assert "poison" not in found[1].problem


# -- confidence


def test_answers_below_a_score_are_withheld_and_counted(models: Any) -> None:
    model = alembert.load(models("tag"))
    everything = model.predict(TEXT)
    middle = sorted(entity.score for entity in everything.entities)[len(everything.entities) // 2]
    some = model.predict(TEXT, min_score=middle)
    assert {entity.start for entity in some.entities} < {entity.start for entity in everything.entities}
    assert some.coverage.withheld == len(everything.entities) - len(some.entities) > 0
    assert model.predict(TEXT, min_score=1.0).coverage.withheld > 0
    label = alembert.load(models("classify")).predict(TEXT, min_score=1.0)
    assert (label.label, label.coverage.withheld) == (None, 1)


@pytest.mark.parametrize("options", [{"min_score": 1.5}, {"min_precision": -1}, {"min_score": "0.5"}])
def test_a_threshold_is_a_share(models: Any, options: dict[str, Any]) -> None:
    with pytest.raises(alembert.UserError, match="from 0 to 1"):
        alembert.load(models("tag")).predict(TEXT, **options)


def test_similarities_are_not_withheld(models: Any) -> None:
    with pytest.raises(alembert.UserError, match="no confidence"):
        alembert.load(models("compare")).predict(("one", "two"), min_score=0.5)


def test_a_precision_needs_what_was_measured_in_training(models: Any) -> None:
    with pytest.raises(alembert.UserError, match="does not say which score reached which precision"):
        alembert.load(models("tag")).predict(TEXT, min_precision=0.9)


# -- what is refused


def test_bad_inputs_are_refused_in_sentences(models: Any, tmp_path: Path) -> None:
    model = alembert.load(models("tag"))
    for bad in ([], 7, b"bytes", [7], {"id": "1"}, {"text": 7}, "  ", None):
        with pytest.raises(alembert.UserError):
            model.predict(bad)  # type: ignore[arg-type]
    for call in (
        alembert.load,
        lambda: alembert.load(7),  # type: ignore[arg-type]
        lambda: alembert.load(tmp_path / "nowhere"),
        lambda: alembert.load(tmp_path),
        lambda: alembert.load(models("choose"), models("tag")),
        lambda: alembert.load(models("tag"), models("classify"), task="tag"),
        lambda: model.pipe("text"),  # type: ignore[arg-type]
        lambda: model.pipe(b"text"),  # type: ignore[arg-type]
        lambda: model.pipe(["text"], batch_characters="9"),  # type: ignore[arg-type]
        lambda: model.encode([]),
        lambda: model.encode([7]),  # type: ignore[list-item]
    ):
        with pytest.raises(alembert.UserError):
            call()


# -- threads and processes


def test_a_model_may_be_used_from_several_threads(models: Any) -> None:
    model = alembert.load(models("tag"))
    texts = [f"{TEXT} Case {number}." for number in range(40)]
    expected = [each.entities for each in model.predict(texts)]
    with ThreadPoolExecutor(8) as pool:
        assert [each.entities for each in pool.map(model.predict, texts)] == expected


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told_to_load_again(models: Any) -> None:
    model = alembert.load(models("tag"))
    reader, writer = os.pipe()

    def child() -> None:
        try:
            model.predict(TEXT)
        except alembert.UserError as problem:
            os.write(writer, str(problem).encode())

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert "before this process was forked" in pipe.read()


def test_a_classifier_from_elsewhere_reads_texts_and_pairs(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=TOKENIZER.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1},
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "nli")
    TOKENIZER.save(tmp_path / "nli")
    with pytest.warns(UserWarning, match="a classifier"):
        model = alembert.load(tmp_path / "nli")
    one, pair = model.predict([TEXT, ("first text", "second text")])
    assert one.label in ("no", "yes")
    assert isinstance(pair, alembert.PairPrediction)
    assert pair.label in ("no", "yes")
