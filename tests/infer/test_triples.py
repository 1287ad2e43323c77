"""Text in, triples out: exact offsets, the scores of the marked sentences on gold entities, and who can open the model."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from alembert import hardware
from alembert.cli import run
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.task_model import TaskModel
from alembert.infer.triples import TripleFilter, TripleModel, predict_relations
from alembert.nn.config import preset
from alembert.tasks.relate.data import RelateSettings, example_from_entities, find_marked_pair
from alembert.tasks.relate.task import RelateTask
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, finetune
from alembert.train.finetune.settings import FinetuneSettings
from scripted_models import Engine, tagger

CHEMPROT = Path(__file__).resolve().parents[3] / "shared/data/relation/chemprot/test.txt"
DRUGS, GENES = ("aspirin", "imatinib", "statin-a"), ("cox-2", "bcr-abl1", "ras", "raf")
VERBS = {"inhibits": "inhibits", "activates": "activates", "none": "is given without"}
TEXT = "Imatinib inhibits BCR-ABL1, and ras."


def sentences() -> list[dict[str, Any]]:
    return [
        {"text": f"Case {n}: << {drug} >> {VERBS[label]} [[ {gene} ]]-like, in mice.", "label": label}
        for n, (drug, gene, label) in enumerate((d, g, v) for d in DRUGS for g in GENES for v in VERBS)
    ]


def documents() -> list[dict[str, Any]]:
    """The same sentences as documents with types; pairs that were called none have no relation."""
    found = []
    for n, line in enumerate(sentences()):
        text, spans = plain(line["text"])
        entities = [
            {"id": f"T{k}", "label": label, "spans": [list(span)]}
            for k, (span, label) in enumerate(zip(spans, ("Drug", "Gene"), strict=True))
        ]
        relation = {"id": "R1", "label": line["label"], "arguments": [["Arg1", "T0"], ["Arg2", "T1"]]}
        relations = [relation] if line["label"] != "none" else []
        found.append({"id": str(n), "text": text, "entities": entities, "relations": relations})
    return found


def plain(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Take the marks out, and keep the offsets."""
    pair = find_marked_pair(text)
    assert pair is not None
    kept, spans, at = "", [], 0
    for mark in (pair.first, pair.second):
        kept += text[at : mark.outer_start]
        spans.append((len(kept), len(kept) + mark.end - mark.start))
        kept += text[mark.start : mark.end]
        at = mark.outer_end
    return kept + text[at:], spans


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Fine-tune a tiny model for relations, once for each name."""
    place = tmp_path_factory.mktemp("relate")
    tokenizer = Engine().tokenizer
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    Checkpoint.new(Blueprint(config=config), tokenizer, seed=3).save(place / "model")
    made: dict[str, Path] = {}

    def train(name: str, lines: list[dict[str, Any]], **settings: Any) -> Path:
        if name not in made:
            path = place / f"{name}.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            model, of_task = str(place / "model"), RelateSettings(**settings)
            job = FinetuneJob(
                model=model, tasks={"relate": TaskSpec(task="relate", data=DataFiles(train=(path,)), settings=of_task)}
            )
            finetune(job, place / name, FinetuneSettings(epochs=1))
            made[name] = place / name
        return made[name]

    return train


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.mark.parametrize("reads", ["first", "markers"])
def test_gold_entities_score_as_the_marked_sentences_do(
    reads: str, trained: Callable[..., Path], tmp_path: Path
) -> None:
    model = TaskModel.open(trained(reads, sentences(), pooling=reads))
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in sentences()))
    examples = model.read([path], ReadOptions()).examples
    marked = model.predict(examples)
    stripped = [plain(example.text) for example in examples]
    texts, entities = zip(*stripped, strict=True)
    typed = [[(*span, "x") for span in spans] for spans in entities]
    found = predict_relations(model, texts, typed, are_sentences=True)
    assert [each.answers for each in found] == [each.answers for each in marked]
    assert len({repr(each.answers) for each in marked}) > 9


@pytest.mark.skipif(not CHEMPROT.is_file(), reason="needs ../shared/data/relation/chemprot")
def test_the_entities_of_chemprot_give_the_rows_of_its_marked_sentences(trained: Callable[..., Path]) -> None:
    model = TaskModel.open(trained("markers", sentences(), pooling="markers"))
    examples = model.read([CHEMPROT], ReadOptions()).examples
    stripped = [
        example_from_entities(text, [(*span, "x") for span in spans], is_sentence=True)
        for text, spans in (plain(example.text) for example in examples)
    ]
    tokenizer, task = model.engine.tokenizer, model.task
    encoded = (
        task.encode([replace(each, links=None) for each in part], tokenizer, 512) for part in (examples, stripped)
    )
    for one, other in zip(*encoded, strict=True):
        assert [row.ids.tolist() for row in one.rows] == [row.ids.tolist() for row in other.rows]
        assert [row.positions.tolist() for row in one.rows] == [row.positions.tolist() for row in other.rows]


def test_transformers_gives_the_same_logits(trained: Callable[..., Path]) -> None:
    folder = trained("first", sentences(), pooling="first")
    model = TaskModel.open(folder)
    (example,) = model.task.examples_from_texts(["Case: << aspirin >> inhibits [[ cox-2 ]]-like"])
    (encoded,) = model.task.encode([example], model.engine.tokenizer, 128)
    ((ours,),) = model.only.runner.outputs([encoded])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer("Case: [E1] aspirin [/E1] inhibits [E2] cox-2 [/E2]-like", return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == encoded.rows[0].ids.tolist()
    with torch.no_grad():
        torch.testing.assert_close(theirs(**inputs).logits, torch.from_numpy(ours), atol=1e-5, rtol=1e-4)
    assert theirs.config.id2label == dict(enumerate(model.task.labels))


def test_triples_have_exact_offsets_and_leave_out_what_is_no_relation(trained: Callable[..., Path]) -> None:
    relater = TaskModel.open(trained("documents", documents()))
    entities = [(0, 8, "Drug", 0.9), (18, 26, "Gene", 0.8), (32, 35, "Gene", 0.7)]
    model = TripleModel(tagger({"1": entities}, types=("Drug", "Gene")), relater)
    (found,) = model.extract([TEXT])
    record = found.to_dict()
    (pairs,) = predict_relations(relater, [TEXT], [[each[:3] for each in entities]])
    labels = [answer.label for answer in pairs.answers]
    assert record["coverage"]["pairs"] == 2
    assert [each["relation"] for each in record["triples"]] == [each for each in labels if each != "none"]
    for side in (triple[end] for triple in record["triples"] for end in ("head", "tail")):
        assert TEXT[side["start"] : side["end"]] == side["text"]
    assert len(found.lines()) == len(found.triples)


def test_a_model_of_marked_sentences_can_be_asked_about_some_types_and_sure_answers_alone(
    trained: Callable[..., Path],
) -> None:
    relater = TaskModel.open(trained("first", sentences(), pooling="first"))
    entities = [(0, 8, "Drug", 0.9), (18, 26, "Gene", 0.8), (32, 35, "Gene", 0.7)]
    finder = tagger({"1": entities}, types=("Drug", "Gene"))

    def found(**wanted: Any) -> list[tuple[str, str]]:
        (one,) = TripleModel(finder, relater, TripleFilter(**wanted)).extract([TEXT])
        return [(each["head"]["label"], each["tail"]["label"]) for each in one.triples]

    assert ("Gene", "Gene") in found()
    assert found(types=(("gene", "drug"),)) == [("Drug", "Gene")] * 2
    assert not found(min_score=1.0)


@pytest.mark.parametrize("how", ["least", "threshold"])
def test_triples_of_which_the_model_is_not_sure_are_counted(how: str, trained: Callable[..., Path]) -> None:
    relater = TaskModel.open(trained("first", sentences(), pooling="first"))
    finder = tagger({"1": [(0, 8, "Drug", 0.9), (18, 26, "Gene", 0.8)]}, types=("Drug", "Gene"))
    plain = TripleModel(finder, relater)
    (everything,) = plain.extract([TEXT])
    sure = (
        TripleModel(finder, relater, TripleFilter(min_score=1.0))
        if how == "least"
        else plain.with_threshold(min_score=1.0)
    )
    (found,) = sure.extract([TEXT])
    assert (found.triples, found.withheld) == ((), len(everything.triples))
    assert found.to_dict()["coverage"]["withheld"] == found.withheld > 0
    assert "withheld" not in everything.to_dict()["coverage"]


def test_types_that_the_tagger_does_not_find_are_a_sentence(trained: Callable[..., Path]) -> None:
    relater = TaskModel.open(trained("first", sentences(), pooling="first"))
    with pytest.raises(BadSetting, match="type 'Planet' were asked for; the tagger finds Drug, Gene"):
        TripleModel(tagger({}, types=("Drug", "Gene")), relater, TripleFilter(types=(("Drug", "Planet"),)))


def test_pairs_keep_the_types_of_training(trained: Callable[..., Path]) -> None:
    relater = TaskModel.open(trained("documents", documents()))
    (found,) = predict_relations(relater, [TEXT], [[(0, 8, "gene"), (18, 26, "DRUG"), (32, 35, "other")]])
    assert [(each.head, each.tail) for each in found.pairs] == [(1, 0)]


@pytest.mark.parametrize("found", ["Disease", "Gene"])
def test_types_that_make_no_pair_are_a_sentence(found: str, trained: Callable[..., Path]) -> None:
    relater = TaskModel.open(trained("documents", documents()))
    with pytest.raises(BadSetting, match=r"relates Drug to Gene: there is no pair"):
        TripleModel(tagger({}, types=(found,)), relater)


def test_two_models_of_one_task_are_a_sentence(trained: Callable[..., Path]) -> None:
    folder = trained("documents", documents())
    with pytest.raises(BadSetting, match=r"these are for relate \(.*documents\), relate \("):
        TripleModel.open(folder, folder)


@pytest.mark.parametrize("is_turned", [False, True])
def test_the_command_takes_both_folders_in_any_order(
    is_turned: bool, trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relater = trained("documents", documents())
    path = tmp_path / "ner.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in documents()))
    job = FinetuneJob(
        model=str(relater.parent / "model"), tasks={"tag": TaskSpec(task="tag", data=DataFiles(train=(path,)))}
    )
    finetune(job, tmp_path / "ner", FinetuneSettings(epochs=1))
    folders = [str(tmp_path / "ner"), str(relater)][:: -1 if is_turned else 1]
    assert run(["predict", *folders, TEXT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == TEXT
    assert run(["predict", *folders, TEXT]) == 0
    assert capsys.readouterr().out.startswith(TEXT)


def test_a_relation_model_alone_asks_for_marks(
    trained: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(trained("first", sentences(), pooling="first"))
    assert run(["predict", folder, TEXT]) == 2
    assert "alembert predict TAGGER MODEL TEXT" in capsys.readouterr().err
    assert run(["predict", folder, "<< Aspirin >> and [[ ras ]].", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["head"] == {"start": 3, "end": 10, "text": "Aspirin"}
    assert record["relation"] in VERBS


NO_ENTITIES = "1|t|Imatinib inhibits BCR-ABL1.\n1|a|\n"
NOTHING = ("no two entities that", "TAGGER")
"""What a sentence about documents without entities says."""


def said(command: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(command)
    return code, capsys.readouterr().err


def test_texts_without_entities_are_predicted_with_a_note(
    trained: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained("documents", documents())
    one = {"id": "T1", "label": "Drug", "spans": [[0, 8]]}
    texts = [json.dumps({"text": TEXT, "entities": entities}) for entities in ([], [one, {**one, "id": "T2"}])]
    code, err = said(["predict", str(model), *texts], capsys)
    assert code == 0
    assert all(part in err for part in ("2 of 2", "Drug to Gene", *NOTHING))


def test_documents_without_entities_are_annotated_with_a_note(
    trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs.txt").write_text(NO_ENTITIES)
    command = ["annotate", str(trained("documents", documents())), str(tmp_path / "docs.txt")]
    code, err = said([*command, "--out", str(tmp_path / "out")], capsys)
    assert code == 0
    assert all(part in err for part in ("1 of 1", *NOTHING))


def test_documents_with_entities_to_relate_have_no_note(
    trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs.jsonl").write_text(json.dumps(documents()[0]) + "\n")
    command = ["annotate", str(trained("documents", documents())), str(tmp_path / "docs.jsonl")]
    assert "TAGGER" not in said([*command, "--out", str(tmp_path / "out")], capsys)[1]


def test_documents_without_entities_are_refused_by_evaluate_with_advice(
    trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test.txt").write_text(NO_ENTITIES)
    code, err = said(["evaluate", str(trained("documents", documents())), str(tmp_path / "test.txt")], capsys)
    assert code == 2
    assert all(part in err for part in ("1 of 1", *NOTHING))


def test_documents_without_entities_are_refused_by_finetune_with_advice() -> None:
    examples = [example_from_entities(TEXT, [(0, 8, "Drug")])]
    with pytest.raises(BadInput, match=r"No document has two entities.*alembert annotate TAGGER"):
        RelateTask.learn(examples, RelateSettings())
