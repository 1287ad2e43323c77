"""Models in one pass: what each adds to a document, what of the input stays, and which models are refused."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.document import Document, Entity, Relation, find_problems
from alembert.corpus.readers import ReadOptions, read
from alembert.errors import BadInput, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.annotate_pipeline import LexiconMatcher, Pipeline
from alembert.infer.task_model import TaskExamples, TaskModel
from alembert.infer.triples import TripleModel
from alembert.nn.config import preset
from alembert.tasks.choose.task import ChooseTask
from alembert.tasks.classify.data import ClassifySettings
from alembert.tasks.classify.scores import ClassifyAnswer, ClassifyPrediction
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.relate.data import RelateSettings
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, finetune
from alembert.train.finetune.settings import FinetuneSettings
from scripted_models import Engine, answer, classifier, scripted, tagger
from small_checkpoints import fine_tuned, fine_tuned_together

TEXT = "Aspirin helps against breast cancer. The patient has it."
FOUND = {"a": [(0, 7, "Drug", 0.98765), (22, 35, "Disease", 0.5)]}
OLD = Document(
    "a",
    TEXT,
    entities=(Entity("T1", "Old", ((8, 13),), ("C1",)), Entity("T2", "Old", ((14, 21),))),
    relations=(Relation("R1", "old", (("Arg1", "T1"), ("Arg2", "T2"))),),
    labels=("old",),
    meta={"year": 2020},
)


def annotated(document: Document, *models: Any, **options: Any) -> Document:
    (found,) = Pipeline.from_models(models, **options).annotate([document])
    assert list(find_problems(found.document)) == []
    assert (found.document.id, found.document.text) == (document.id, document.text)
    return found.document


def test_a_tagger_gives_entities_with_scores_in_place_of_those_of_the_input() -> None:
    document = annotated(OLD, tagger(FOUND))
    assert document.entities == (
        Entity("T1", "Drug", ((0, 7),), attributes=(("score", "0.9877"),)),
        Entity("T2", "Disease", ((22, 35),), attributes=(("score", "0.5000"),)),
    )
    assert (document.relations, document.labels, document.meta) == ((), ("old",), {"year": 2020})


def test_relations_that_the_input_could_not_link_make_way_too() -> None:
    loose = replace(OLD, unlinked_relations=(Relation("R2", "old", (("Arg1", "T1"), ("Arg2", "T9"))),))
    assert annotated(loose, tagger(FOUND)).unlinked_relations == ()
    assert annotated(loose, tagger(FOUND), keep=True).unlinked_relations == loose.unlinked_relations


def test_texts_are_documents_without_anything() -> None:
    pipeline = Pipeline.from_models([tagger({"text-2": [(0, 7, "Drug", 0.9)]})])
    found = [each.document for each in pipeline.annotate(["Nothing.", "Aspirin."])]
    assert [(each.id, each.text, len(each.entities)) for each in found] == [
        ("text-1", "Nothing.", 0),
        ("text-2", "Aspirin.", 1),
    ]


@pytest.mark.parametrize("wrong", ["Aspirin.", [1], [b"Aspirin"]])
def test_what_is_neither_text_nor_document_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInput, match="list of documents"):
        Pipeline.from_models([tagger(FOUND)]).annotate(wrong)


@pytest.mark.parametrize("folder", ["ner", Path("ner")])
def test_one_folder_is_a_model(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(
        "alembert.infer.annotate_pipeline.TaskModel.open", lambda each, *_: opened.append(each) or tagger(FOUND)
    )
    assert Pipeline.open(folder).tasks == ("tag",)
    assert opened == [folder]


def test_what_the_input_had_can_be_kept_beside_it() -> None:
    document = annotated(OLD, tagger(FOUND), keep=True)
    assert [(entity.id, entity.label) for entity in document.entities] == [
        ("T3", "Drug"),
        ("T1", "Old"),
        ("T2", "Old"),
        ("T4", "Disease"),
    ]
    assert document.relations == OLD.relations


def test_a_classifier_gives_a_label_with_its_score() -> None:
    document = annotated(OLD, classifier({"a": answer("yes", 0.81234)}))
    assert (document.labels, document.entities) == (("yes",), OLD.entities)
    assert document.meta == {"year": 2020, "label_scores": {"yes": 0.8123}}


def test_scores_go_with_the_labels_that_made_way() -> None:
    before = annotated(OLD, classifier({"a": answer("no", 0.9)}))
    after = annotated(before, classifier({"a": answer("yes", 0.8)}))
    assert (after.labels, after.meta["label_scores"]) == (("yes",), {"yes": 0.8})


def test_labels_of_several_classifiers_go_together() -> None:
    several = ClassifyAnswer(labels=("x", "z"), probabilities={"x": 0.9, "y": 0.1, "z": 0.6}, score=0.6)
    models = [
        classifier({"a": several}, labels=("x", "y", "z"), kind="multi"),
        classifier({"a": answer("yes", 0.8)}),
    ]
    document = annotated(OLD, *models, keep=True)
    assert document.labels == ("old", "x", "z", "yes")
    assert document.meta["label_scores"] == {"x": 0.9, "z": 0.6, "yes": 0.8}


def test_a_number_goes_into_meta() -> None:
    document = annotated(OLD, classifier({"a": ClassifyAnswer(value=2.5)}, kind="number"))
    assert (document.labels, document.meta["value"]) == ((), 2.5)


def test_sentences_that_are_classified_are_stretches_of_the_text() -> None:
    task = ClassifyTask(ClassifySettings(context="document"), "single", ("claim", "fact"))
    script = {"a": (answer("claim", 0.7), answer("fact", 0.9))}
    model = scripted(task, Path("cls"), script=script, say=ClassifyPrediction)
    document = annotated(OLD, model)
    surfaces = [(entity.label, entity.surface(TEXT)) for entity in document.entities]
    assert surfaces == [("claim", "Aspirin helps against breast cancer."), ("fact", "The patient has it.")]


def test_two_taggers_add_up_in_the_order_of_the_text() -> None:
    models = [tagger({"a": [FOUND["a"][1]]}, types=("Disease",)), tagger({"a": [FOUND["a"][0]]})]
    document = annotated(OLD, *models)
    assert [(entity.label, entity.start) for entity in document.entities] == [("Drug", 0), ("Disease", 22)]


@dataclass(frozen=True)
class Together(TaskModel):
    """Several tasks that say what their scripts say."""

    models: Mapping[str, TaskModel] = field(default_factory=dict)

    def predict_all(self, examples: Sequence[TaskExamples]) -> Iterator[dict[str, Any]]:
        for example in examples:
            yield {name: model.predict([example[name]])[0] for name, model in self.models.items()}


def test_a_model_of_several_tasks_gives_all_of_them() -> None:
    models = {"ner": tagger(FOUND), "good": classifier({"a": answer("yes", 0.8)})}
    parts = {name: model.only for name, model in models.items()}
    document = annotated(OLD, Together(Path("several"), Engine(), parts, models))  # type: ignore[arg-type]
    assert (len(document.entities), document.labels) == (2, ("yes",))


@pytest.mark.parametrize("tasks", [{}, {"a": "tag", "b": "classify"}])
def test_windows_are_those_of_evaluation_where_a_file_says_where_sentences_begin(
    tasks: dict[str, str], tmp_path: Path
) -> None:
    folder, file = tmp_path / "ner", tmp_path / "sentences.jsonl"
    if tasks:
        fine_tuned_together(tasks, folder, tmp_path)
    else:
        fine_tuned("tag", folder, tmp_path / "train.jsonl")
    text = " ".join("krasnixdet" * 20)
    sections = [{"start": at, "end": at + 13, "kind": "sentence"} for at in range(0, 380, 14)]
    file.write_text(json.dumps({"id": "a", "text": text, "sections": sections}) + "\n", encoding="utf8")
    model = TaskModel.open(folder, task="a" if tasks else None)
    expected = model.predict(model.read([file], ReadOptions()).examples)
    documents = [each for each in read(file, ReadOptions()) if isinstance(each, Document)]
    (found,) = Pipeline.open([folder], task="a" if tasks else None).annotate(documents)
    assert found.coverage.tokens == expected[0].coverage.tokens
    assert [(each.start, each.end, each.score) for each in found.document.entities] == [
        (each.start, each.end, round(each.score, 4)) for each in expected[0].entities
    ]


def test_coverage_counts_characters_once_and_tokens_of_all_models() -> None:
    one = Pipeline.from_models([tagger(FOUND)]).annotate([OLD])[0].coverage
    two = Pipeline.from_models([tagger(FOUND), tagger(FOUND)]).annotate([OLD])[0].coverage
    assert (two.characters, two.examples) == (one.characters, one.examples) == (len(TEXT), 1)
    assert two.tokens == 2 * one.tokens > 0


@pytest.fixture(scope="module")
def relater(tmp_path_factory: pytest.TempPathFactory) -> TaskModel:
    """A tiny relation model that was trained on documents, for a moment."""
    place, tokenizer = tmp_path_factory.mktemp("relate"), Engine().tokenizer
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    Checkpoint.new(Blueprint(config=config), tokenizer, seed=3).save(place / "model")
    lines = []
    for n in range(12):
        entities = [
            {"id": f"T{k}", "label": label, "spans": [list(span)]}
            for k, (label, span) in enumerate([("Drug", (0, 7)), ("Disease", (22, 35))])
        ]
        arguments = [["Arg1", "T0"], ["Arg2", "T1"]]
        relations = [{"id": "R1", "label": ("treats", "causes")[n % 2], "arguments": arguments}]
        lines.append({"id": str(n), "text": f"{TEXT} {n}", "entities": entities, "relations": relations})
    (place / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    job = FinetuneJob(
        model=str(place / "model"),
        tasks={
            "relate": TaskSpec(task="relate", data=DataFiles(train=(place / "train.jsonl",)), settings=RelateSettings())
        },
    )
    finetune(job, place / "relater", FinetuneSettings(epochs=1))
    return TaskModel.open(place / "relater")


def test_relations_are_those_that_predict_finds(relater: TaskModel) -> None:
    finder = tagger(FOUND)
    document = annotated(OLD, relater, finder)
    (expected,) = TripleModel(finder, relater).extract([TEXT], ["a"])
    by_id = {entity.id: entity for entity in document.entities}
    triples = [
        (by_id[head].start, relation.label, by_id[tail].start, relation.attributes)
        for relation in document.relations
        for (_, head), (_, tail) in [relation.arguments]
    ]
    assert triples == [
        (each["head"]["start"], each["relation"], each["tail"]["start"], (("score", f"{each['score']:.4f}"),))
        for each in expected.triples
    ]
    assert triples


def test_without_a_tagger_the_entities_of_the_input_are_related(relater: TaskModel) -> None:
    known = annotated(OLD, tagger(FOUND))
    document = annotated(known, relater)
    assert document.entities == known.entities
    assert [relation.arguments for relation in document.relations] == [(("Arg1", "T1"), ("Arg2", "T2"))]


def test_a_tagger_and_a_relation_model_without_common_types_are_refused(relater: TaskModel) -> None:
    with pytest.raises(BadSetting, match="there is no pair of which both are found"):
        Pipeline.from_models([tagger(FOUND, types=("Gene",)), relater])


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (ChooseTask.__new__(ChooseTask), "whose answers are no annotations"),
        (ClassifyTask(ClassifySettings(), "single", ("no", "yes"), pairs=True), "classifies pairs of texts"),
        (ClassifyTask(ClassifySettings(context="document"), "number"), "gives each sentence a number"),
    ],
)
def test_models_whose_answers_are_no_annotations_are_refused(task: Any, sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        Pipeline.from_models([scripted(task, Path("model"))])


def test_models_that_were_trained_on_other_columns_are_refused_unless_one_is_named() -> None:
    models = [tagger(FOUND, facts={"reading": {"text": [column]}}) for column in ("letter", "note")]
    with pytest.raises(BadSetting, match=r"read\.text"):
        Pipeline.from_models(models).read_options(ReadOptions())
    assert Pipeline.from_models(models).read_options(ReadOptions(text=("x",))).text == ("x",)
    assert Pipeline.from_models(models[:1]).read_options(ReadOptions()).text == ("letter",)


def test_terms_that_are_not_looked_for_are_said(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("protein\ngout\n")
    (note,) = LexiconMatcher.from_lexicons({"Term": tmp_path / "words.txt"}).notes
    assert note.endswith("not looked for: 1 of 2")


def test_labelled_sentences_hide_no_term_of_a_lexicon(tmp_path: Path) -> None:
    (tmp_path / "drugs.txt").write_text("aspirin\n")
    document = Document("1", "Take aspirin.", entities=(Entity("T1", "RESULT", ((0, 13),)),))
    matching = LexiconMatcher.from_lexicons({"Drug": tmp_path / "drugs.txt"}, sentence_labels=frozenset({"RESULT"}))
    (found,) = matching.annotate([document])
    assert [each.label for each in found.document.entities] == ["RESULT", "Drug"]
    (hidden,) = LexiconMatcher.from_lexicons({"Drug": tmp_path / "drugs.txt"}).annotate([document])
    assert hidden.document == document


def test_a_task_is_named_for_one_model_alone() -> None:
    with pytest.raises(BadSetting, match="Name a task for one model alone"):
        Pipeline.open(["one", "two"], task="tag")
