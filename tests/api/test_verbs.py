"""The public verbs with plain arguments, from examples to an annotated file, and what they refuse."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import alembert
from alembert.api.training import _read_finished_training
from alembert.nn.config import preset
from alembert.tasks.files import read_task
from small_checkpoints import Blueprint, Checkpoint
from task_cases import CASES, TOKENIZER


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a start model and files of examples."""
    folder = tmp_path_factory.mktemp("verbs")
    config = preset("tiny", vocab_size=TOKENIZER.vocab_size, max_position_embeddings=64)
    Checkpoint.new(Blueprint(config=config), TOKENIZER).save(folder / "start")
    for name in ("tag", "classify"):
        lines = list(map(json.dumps, CASES[name].lines()))
        (folder / f"{name}-train.jsonl").write_text("\n".join(lines[:18]) + "\n")
        (folder / f"{name}-dev.jsonl").write_text("\n".join(lines[18:]) + "\n")
    return folder


@pytest.fixture(scope="module")
def tagger(workplace: Path) -> alembert.TrainingResult:
    return alembert.finetune(
        "tag",
        model=workplace / "start",
        train=str(workplace / "tag-train.jsonl"),
        dev=workplace / "tag-dev.jsonl",
        out=workplace / "ner",
        epochs=1,
        learning_rate=1e-3,
        progress=False,
    )


def test_finetune_returns_the_scores_and_returns_them_again(tagger: alembert.TrainingResult, workplace: Path) -> None:
    assert tagger.main == "f1"
    assert tagger.score == tagger.scores["f1"] == tagger.mean
    assert json.loads(json.dumps(tagger.to_dict()))["folder"].endswith("ner")
    again = alembert.finetune(
        "tag",
        model=workplace / "start",
        train=[workplace / "tag-train.jsonl"],
        dev=[workplace / "tag-dev.jsonl"],
        out=str(workplace / "ner"),
        epochs=1,
        learning_rate=1e-3,
        progress=False,
    )
    assert again == tagger


def test_settings_are_a_dict_a_file_or_the_object(workplace: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[task]\nhead = "crf"\n')
    for number, settings in enumerate(({"task": {"head": "crf"}}, tmp_path / "s.toml", str(tmp_path / "s.toml"))):
        out = tmp_path / f"ner-{number}"
        alembert.finetune(
            "tag", model=workplace / "start", train=workplace / "tag-train.jsonl", dev=workplace / "tag-dev.jsonl",
            out=out, epochs=0.2, settings=settings, progress=False,
        )  # fmt: skip
        assert read_task(out).table["settings"]["head"] == read_task(out).head == "crf"


def test_several_tasks_have_names(workplace: Path, tmp_path: Path) -> None:
    files = {name: workplace / f"{name}-train.jsonl" for name in ("tag", "classify")}
    alembert.finetune(
        {"disease": "tag", "topic": "classify"},
        model=workplace / "start",
        train={"disease": files["tag"], "topic": files["classify"]},
        out=tmp_path / "both",
        epochs=0.2,
        progress=False,
    )
    assert sorted(alembert.load(tmp_path / "both").tasks) == ["classify", "tag"]


def test_distill_export_evaluate_and_annotate(tagger: alembert.TrainingResult, workplace: Path, tmp_path: Path) -> None:
    files = {"train": workplace / "tag-train.jsonl", "dev": workplace / "tag-dev.jsonl"}
    student = alembert.distill(
        tagger.folder, student="half", out=tmp_path / "small", epochs=0.2, progress=False, **files
    )
    export = alembert.export(
        student.folder,
        calibrate=files["train"],
        out=tmp_path / "int8",
        format="onnx",
        speed=False,
        progress=False,
    )
    scores = alembert.evaluate(export.folder, files["dev"], progress=False, rounds=10).scores
    assert set(scores.measures) >= {"precision", "recall", "f1"}
    result = alembert.annotate(export.folder, files["dev"], out=tmp_path / "out", progress=False)
    assert result.counts["written"] == 6
    texts = [document.text for document in alembert.read(files["dev"])]
    piped = list(alembert.load(export.folder).pipe(texts))
    assert sum(len(document.entities) for document in piped) == result.counts["entities"]


def test_the_teacher_may_be_a_model_of_the_hub(
    tagger: alembert.TrainingResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alembert.hub.fetch_from_hub", lambda where, *, pickles: tagger.folder)
    with pytest.raises(alembert.UserError, match="There is nothing to learn from"):
        alembert.distill("hub:clinic/tagger", student="half", out=tmp_path / "small", progress=False)


def test_texts_of_a_distillation_may_be_a_pattern(
    tagger: alembert.TrainingResult, workplace: Path, tmp_path: Path
) -> None:
    with pytest.raises(alembert.UserError, match="No file matches"):
        alembert.distill(
            tagger.folder,
            student="half",
            train=workplace / "tag-train.jsonl",
            texts=tmp_path / "*.txt",
            out=tmp_path / "small",
            progress=False,
        )


def test_seeds_of_a_complete_run_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for seed in range(11):
        run = tmp_path / "seeds" / str(seed) / "run"
        run.mkdir(parents=True)
        scores = {"seed": seed, "main": "f1", "measures": {"f1": seed / 10}}
        (run / "scores.json").write_text(json.dumps(scores))
    shutil.copytree(tmp_path / "seeds" / "10" / "run", tmp_path / "run")
    assert _read_finished_training(tmp_path).seeds == tuple(seed / 10 for seed in range(11))


def test_pretrain_adapts_a_model(workplace: Path, tmp_path: Path) -> None:
    result = alembert.pretrain(
        workplace / "tag-train.jsonl",
        model=workplace / "start",
        steps=2,
        settings={"sequences": {"max_length": 32}},
        out=tmp_path / "adapted",
        progress=False,
    )
    assert result.tokens > 0
    again = alembert.pretrain(
        workplace / "tag-train.jsonl",
        model=workplace / "start",
        steps=2,
        settings={"sequences": {"max_length": 32}},
        out=tmp_path / "adapted",
        progress=False,
    )
    assert (again.tokens, again.after.keys()) == (result.tokens, result.after.keys())
    filled = alembert.fill(tmp_path / "adapted", "aspirin [MASK]", top=2)
    assert len(filled[0].candidates) == 2
    score = alembert.score(tmp_path / "adapted", "aspirin helps")
    assert score.kind == "pseudo"
    assert score.log_probability < 0


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.pubtator", "a.xml", "a.json", "a.conll", "a"])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    entity = alembert.Entity("T1", "Disease", ((3, 8),))
    document = alembert.Document("d1", "No fever today.", entities=(entity,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = alembert.write([document], tmp_path / name)
        (found,) = alembert.read(path)
    assert [(e.text, e.label) for e in found.entities] == [("fever", "Disease")]
    assert not list(tmp_path.glob(".*"))


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    def documents() -> Any:
        yield alembert.Document("d1", "No fever.")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alembert.write(documents(), tmp_path / "a.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "1", "text": "fine"}\nbroken\n')
    with pytest.warns(UserWarning, match="1 items could not be read"):
        assert len(list(alembert.read(tmp_path / "a.jsonl"))) == 1


def test_bad_arguments_are_refused_in_sentences(workplace: Path, tmp_path: Path) -> None:
    start, train = workplace / "start", workplace / "tag-train.jsonl"
    calls: list[Any] = [
        lambda: alembert.finetune("nonsense", model=start, train=train, out=tmp_path / "x"),
        lambda: alembert.finetune(7, model=start, train=train, out=tmp_path / "x"),  # type: ignore[arg-type]
        lambda: alembert.finetune("tag", model=start, out=tmp_path / "x"),
        lambda: alembert.finetune("tag", model=start, train=[], out=tmp_path / "x"),
        lambda: alembert.finetune("tag", model=start, train=7, out=tmp_path / "x"),  # type: ignore[arg-type]
        lambda: alembert.finetune("tag", model=start, train=tmp_path / "no.tsv", out=tmp_path / "x"),
        lambda: alembert.finetune("tag", model=start, train=train, out=tmp_path / "x", settings={"epoch": 3}),
        lambda: alembert.finetune("tag", model=start, train=train, out=tmp_path / "x", settings=7),
        lambda: alembert.finetune({"a": "tag", "b": "tag"}, model=start, train=train, out=tmp_path / "x"),
        lambda: alembert.finetune("tag", model=tmp_path, train=train, out=tmp_path / "x"),
        lambda: alembert.distill(start, student="half", train=train, out=tmp_path / "x"),
        lambda: alembert.pretrain([], model=start, out=tmp_path / "x"),
        lambda: alembert.export(start, out=tmp_path / "x"),
        lambda: alembert.evaluate(start, train),
        lambda: alembert.annotate(start, train, out=tmp_path / "x"),
        lambda: alembert.read([]),
        lambda: alembert.read(tmp_path / "nowhere"),
        lambda: alembert.read(train, format="nonsense"),
        lambda: alembert.read(train, nonsense=1),
        lambda: alembert.write("text", tmp_path / "x.jsonl"),  # type: ignore[arg-type]
        lambda: alembert.write(["text"], tmp_path / "x.jsonl"),  # type: ignore[list-item]
        lambda: alembert.write([], tmp_path / "x.docx"),
        lambda: alembert.fill(start, 7),  # type: ignore[arg-type]
        lambda: alembert.score(start, "text"),
    ]
    for call in calls:
        with pytest.raises(alembert.UserError):
            call()
    assert not (tmp_path / "x").exists()


def test_a_teacher_may_come_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy-of-the-hub"
    monkeypatch.setattr("alembert.hub.fetch_from_hub", lambda name, *, pickles: copy)
    with pytest.raises(alembert.UserError, match="copy-of-the-hub"):
        alembert.distill("hub:clinic/tagger", student="1x96", train="train.tsv", out=tmp_path / "out")


def test_documents_that_could_not_be_annotated_are_counted_when_they_are_written(tmp_path: Path) -> None:
    documents = [alembert.AnnotatedDocument("d1", "text", problem="the model fails on it")]
    with pytest.warns(UserWarning, match="documents that could not be annotated: 1"):
        alembert.write(documents, tmp_path / "a.xml", format="bioc")
