"""`alembert annotate`: what it prints, exit codes, and a sentence for each thing that can be wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from alembert.cli import run
from alembert.cli.annotate import _open_pipeline
from alembert.corpus.document import Document
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import ReadOptions, read
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.annotate_chunks import RayExecutor
from alembert.nn.config import preset
from alembert.tasks.classify.data import ClassifySettings
from alembert.tasks.files import read_task
from alembert.tasks.metrics.calibration import find_threshold
from alembert.tasks.tag.data import TagSettings
from alembert.terminal import format_progress
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, finetune
from alembert.train.finetune.settings import FinetuneSettings
from alembert.workers.ray import RayCluster
from fake_s3 import FakeS3, serving
from scripted_models import Engine, write_labelled, write_tagged

TEXTS = {"1": "aspirin helps against cancer", "2": "the patient has cancer", "3": "aspirin helps " * 200}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tagger, a classifier and documents."""
    folder, tokenizer = tmp_path_factory.mktemp("annotate"), Engine().tokenizer
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=64)
    Checkpoint.new(Blueprint(config=config), tokenizer, seed=3).save(folder / "model")
    tagged = {str(n): (f"aspirin helps patient {n}", [(0, 7, "Drug")]) for n in range(20)}
    labelled = {str(n): (f"aspirin helps patient {n}", "yes" if n % 2 else "no") for n in range(20)}
    jobs = {
        "tag": (write_tagged(folder / "tag.jsonl", tagged), TagSettings(max_length=32, overlap=8)),
        "classify": (write_labelled(folder / "classify.jsonl", labelled), ClassifySettings(max_length=64)),
    }
    for task, (data, settings) in jobs.items():
        job = FinetuneJob(
            model=str(folder / "model"),
            tasks={task: TaskSpec(task=task, data=DataFiles(train=(data,)), settings=settings)},
        )
        finetune(job, folder / task, FinetuneSettings(epochs=3))
    write_labelled(folder / "docs.jsonl", {name: (text, "old") for name, text in TEXTS.items()})
    return folder


def command(work: Path, out: str, *options: str, models: tuple[str, ...] = ("tag",)) -> list[str]:
    paths = [str(work / name) for name in (*models, "docs.jsonl")]
    return ["annotate", *paths, "--out", str(work / out), *options]


def test_it_says_how_many_and_how_fast(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "said")) == 0
    out, _ = capsys.readouterr()
    assert "3 of 3 documents in 1 parts" in out
    assert "documents/s" in out
    assert "tokens/s" in out


def test_an_object_in_a_store_is_annotated_like_a_file(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeS3({"docs.jsonl": (work / "docs.jsonl").read_bytes()})) as store:
        address = f"s3://me:secret@bucket/docs.jsonl?scheme=http&endpoint_override=127.0.0.1:{store.port}"
        assert run(["annotate", str(work / "tag"), address, "--out", str(work / "far")]) == 0
    out, err = capsys.readouterr()
    assert "3 of 3 documents in 1 parts" in out
    assert "secret" not in out + err
    assert run(command(work, "near")) == 0
    for name in ("part-00000.jsonl.gz", "parts.jsonl", "set-aside.jsonl"):
        assert (work / "far" / name).read_bytes() == (work / "near" / name).read_bytes()


def test_progress_has_rates_and_the_time_left() -> None:
    shown = format_progress(Progress("annotating", 50, 100, documents=30, tokens=6000), 50, 6.0, cells=0)
    assert shown == "annotating  50%  5.0 documents/s, 1,000 tokens/s, 0:06 left"


def test_the_same_again_has_nothing_to_do(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "again")) == 0
    capsys.readouterr()
    assert run(command(work, "again", "--json")) == 0
    out, err = capsys.readouterr()
    assert "already complete" in err
    assert json.loads(out)["written"] == 3


def test_other_settings_are_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "other")) == 0
    assert run(command(work, "other", "--format", "brat")) == 2
    assert "complete Annotations already" in capsys.readouterr().err
    assert run(command(work, "other", "--format", "brat", "--overwrite")) == 0


def test_answers_below_a_threshold_are_withheld_and_counted(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "all", "--json", models=("classify",))) == 0
    everything, notes = capsys.readouterr()
    assert "withheld" not in notes
    assert (json.loads(everything)["labels"], json.loads(everything)["withheld"]) == (3, 0)
    assert run(command(work, "sure", "--json", "--min-score", "1", models=("classify",))) == 0
    sure, notes = capsys.readouterr()
    assert (json.loads(sure)["labels"], json.loads(sure)["withheld"]) == (0, 3)
    assert "3 answers below 1.00 were withheld" in notes


def test_another_threshold_is_another_run(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "threshold", "--min-score", "0.5")) == 0
    assert run(command(work, "threshold", "--min-score", "0.5")) == 0
    assert run(command(work, "threshold")) == 2
    assert run(command(work, "threshold", "--min-score", "0.6")) == 2
    assert "complete Annotations already" in capsys.readouterr().err


def test_a_precision_is_looked_up_in_what_training_measured(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = read_task(work / "classify").training
    threshold = find_threshold(0.0, training, "")
    assert threshold > 0
    assert run(command(work, "precise", "--min-precision", "0", models=("classify",))) == 0
    capsys.readouterr()
    assert run(command(work, "precise", "--min-score", str(threshold), models=("classify",))) == 0
    assert "already complete" in capsys.readouterr().err


def test_workers_of_a_cluster_withhold_as_well(work: Path) -> None:
    options = {"device": "cpu", "min_score": 0.7, "min_precision": None}
    pipeline, executor = _open_pipeline([work / "tag"], options, RayCluster(workers=1))
    assert isinstance(executor, RayExecutor)
    assert [model.min_score for model in (*pipeline.models, *executor.open_pipeline().models)] == [0.7, 0.7]


def test_models_that_come_first_annotate_in_one_pass(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "both", "--json", models=("tag", "classify"))) == 0
    out, err = capsys.readouterr()
    counts = json.loads(out)
    assert (counts["labels"], counts["labels of the input left out"]) == (3, 3)
    assert "3 labels of the input made way" in err
    documents = [item for item in read(work / "both/part-00000.jsonl.gz") if isinstance(item, Document)]
    assert {document.id: document.text for document in documents} == TEXTS
    assert all(document.labels in (("yes",), ("no",)) for document in documents)


def test_labels_of_the_input_can_be_kept(work: Path) -> None:
    assert run(command(work, "kept", "--keep", models=("classify",))) == 0
    (first, *_) = read(work / "kept/part-00000.jsonl.gz")
    assert isinstance(first, Document)
    assert first.labels[0] == "old"


@pytest.mark.parametrize("form", ["bioc", "bioc-json", "pubtator", "brat", "parquet"])
def test_every_format_has_the_documents(work: Path, form: str) -> None:
    assert run(command(work, f"as {form}", "--format", form)) == 0
    (part,) = (work / f"as {form}").glob("part-*")
    texts = {item.id: item.text for item in read(part) if isinstance(item, Document)}
    assert texts == TEXTS


def test_documents_that_are_set_aside_are_exit_code_3(work: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "text": "Fever."}\nnot json\n')
    arguments = [str(work / "tag"), str(tmp_path / "bad.jsonl"), "--out", str(tmp_path / "out")]
    assert run(["annotate", *arguments]) == 3
    assert run(["annotate", *arguments]) == 0


def test_the_first_reasons_are_printed(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "text": "Fever."}\nno json\n{"id": "2"}\nsecret\n')
    arguments = [str(work / "tag"), str(tmp_path / "bad.jsonl"), "--out", str(tmp_path / "out")]
    for _ in range(2):
        run(["annotate", *arguments])
        err = capsys.readouterr().err
        assert "bad.jsonl, line 2 is set aside: the line is not JSON" in err
        assert "(2 such cases)" in err
        assert "bad.jsonl, line 3 is set aside: The record has no text" in err
        assert "secret" not in err


@pytest.fixture(scope="module")
def trained_on_notes(work: Path) -> Path:
    """A classifier whose texts were in a column of an unusual name."""
    rows = [f"{n}\taspirin helps patient {n}\t{'yes' if n % 2 else 'no'}" for n in range(20)]
    (work / "notes.tsv").write_text("number\tletter\tanswer\n" + "\n".join(rows) + "\n")
    data = DataFiles(train=(work / "notes.tsv",), options=ReadOptions(text=("letter",), label="answer"))
    job = FinetuneJob(
        model=str(work / "model"),
        tasks={"classify": TaskSpec(task="classify", data=data, settings=ClassifySettings(max_length=64))},
    )
    finetune(job, work / "by letter", FinetuneSettings(epochs=1))
    return work / "by letter"


def test_columns_of_the_training_are_remembered(
    trained_on_notes: Path, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(trained_on_notes), str(work / "notes.tsv")]
    assert run(["annotate", *files, "--out", str(tmp_path / "out")]) == 0
    assert "text is read from letter, as in training" in capsys.readouterr().err
    (first, *_) = read(tmp_path / "out/part-00000.jsonl.gz")
    assert isinstance(first, Document)
    assert first.text == "aspirin helps patient 0"


def test_another_column_can_be_named(trained_on_notes: Path, work: Path, tmp_path: Path) -> None:
    files = [str(trained_on_notes), str(work / "notes.tsv")]
    assert run(["annotate", *files, "--set", "read.text=answer", "--out", str(tmp_path / "out")]) == 0
    (first, *_) = read(tmp_path / "out/part-00000.jsonl.gz")
    assert isinstance(first, Document)
    assert first.text == "no"


def test_a_lexicon_adds_its_terms(work: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("patient\n")
    assert run(command(work, "with words", "--lexicon", f"Person={tmp_path / 'words.txt'}")) == 0
    documents = [item for item in read(work / "with words/part-00000.jsonl.gz") if isinstance(item, Document)]
    assert "Person" in {entity.label for document in documents for entity in document.entities}


def test_a_file_of_settings_says_the_rest(work: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('format = "pubtator"\nmax_characters = 100\n[read]\nid = "id"\n')
    assert run(command(work, "by file", "--config", str(tmp_path / "s.toml"))) == 3
    assert [path.name for path in (work / "by file").glob("part-*")] == ["part-00000.pubtator"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tag", "docs.jsonl", "--format", "word"], "`format` is 'word'"),
        (["tag", "nowhere"], "does not exist"),
        (["model", "docs.jsonl"], "has no task.json"),
        (["tag", "classify"], "No input was given"),
        (["tag", "docs.jsonl", "--task", "other"], "alone, not for 'other'"),
    ],
)
def test_what_it_refuses(work: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [word if word.startswith("--") or word in ("word", "other") else str(work / word) for word in arguments]
    assert run(["annotate", *paths, "--out", str(work / "refused")]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(work.glob("refused*"))


def test_the_help_loads_no_torch() -> None:
    check = "import sys; from alembert.cli import run; run(['annotate', '--help']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)


def test_the_verb_itself_loads_no_torch() -> None:
    modules = ["annotate", "annotate_pipeline", "annotate_chunks", "stream", "stream_job"]
    loads = "; ".join(f"import alembert.infer.{name}" for name in modules)
    check = f"import sys; {loads}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)
