"""Inputs in an object store: read like files here, copied once, and a sentence for each thing that can be wrong."""

import gzip
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import alembert
from alembert import artifact
from alembert.cli import run
from alembert.corpus.build import build
from alembert.corpus.clean import BuildSettings, CleanSettings
from alembert.corpus.fetch import (
    CACHE_FOLDER,
    LocalInputs,
    fetch_inputs,
    fetch_to_temporary_folder,
    is_object_address,
)
from alembert.corpus.jobs import Progress
from alembert.corpus.object_store import ObjectAddress
from alembert.corpus.store import Corpus
from alembert.errors import BadFile, BadSetting, FolderBusy, UserError
from alembert.infer.annotate import AnnotateSettings, annotate
from alembert.infer.annotate_pipeline import Pipeline
from alembert.workers import pool

sys.path.append(str(Path(__file__).parents[1]))
from fake_gcs import serving_google
from fake_s3 import CHANGED, FakeS3, serving
from finding_models import finder

TEXTS = [f"Case {n}: aspirin against breast cancer, and {'long ' * (n % 7)}more." for n in range(30)]
PATIENCE = 120
SMALL = AnnotateSettings(part_characters=400)
LOOSE = BuildSettings(clean=CleanSettings(min_words=1, near_duplicates=False))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving(FakeS3()) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
        yield store


@pytest.fixture
def notes(tmp_path: Path, store: FakeS3) -> Path:
    """A folder with files of several kinds, which are in the store too, below `data/notes/`."""
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(TEXTS[:10]), mtime=0))
    (folder / "b.jsonl").write_bytes(lines(TEXTS[10:20], first=10) + b"{broken\n")
    (folder / "deep/c d.jsonl").write_bytes(lines(TEXTS[20:], first=20))
    (folder / "deep/e.txt").write_text("A text with aspirin in it.")
    (folder / "empty.txt").write_text("")
    (folder / ".hidden").write_text("nobody reads this")
    store.put(folder, "data/notes/")
    store.objects["data/notes/"] = b""  # as the consoles of stores mark a folder
    return folder


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline.from_models([finder(tmp_path / "model")])


def lines(texts: list[str], first: int = 0) -> bytes:
    records = [{"id": f"d{n}", "text": text} for n, text in enumerate(texts, first)]
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def content(folder: Path) -> dict[str, bytes]:
    """All files of a result but the manifest, which names the inputs."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del files[artifact.MANIFEST]
    return files


def inputs_of(folder: Path) -> dict[str, str]:
    return {each.name: each.sha256 for each in artifact.open_artifact(folder).inputs}


@pytest.mark.parametrize("address", ["s3://bucket/data/notes/", "s3://bucket/data/notes"])
def test_objects_are_annotated_like_files(address: str, notes: Path, pipeline: Pipeline, tmp_path: Path) -> None:
    annotate(pipeline, [notes], tmp_path / "local", SMALL)
    result = annotate(pipeline, [address], tmp_path / "out", SMALL)
    assert content(tmp_path / "out") == content(tmp_path / "local")
    assert result.manifest.counts == artifact.open_artifact(tmp_path / "local").counts
    assert result.manifest.counts["set aside"] == 2


def test_the_manifest_has_addresses_and_the_hashes_of_the_files(
    notes: Path, pipeline: Pipeline, tmp_path: Path
) -> None:
    annotate(pipeline, ["s3://bucket/data/notes/"], tmp_path / "out", SMALL)
    names = ["a.jsonl.gz", "b.jsonl", "deep/c d.jsonl", "deep/e.txt", "empty.txt"]
    found = inputs_of(tmp_path / "out")
    del found["model"]
    assert found == {f"s3://bucket/data/notes/{name}": artifact.hash_file(notes / name) for name in names}


def test_a_corpus_of_objects_is_that_of_the_files(notes: Path, tmp_path: Path) -> None:
    build([notes], tmp_path / "local", settings=LOOSE, workers=1)
    build(["s3://bucket/data/notes/"], tmp_path / "out", settings=LOOSE, workers=1)
    assert content(tmp_path / "out") == content(tmp_path / "local")
    assert {entry.source for entry in Corpus.open(tmp_path / "out").entries()} == {
        "a.jsonl.gz",
        "b.jsonl",
        "deep/c d.jsonl",
        "deep/e.txt",
    }


@pytest.mark.parametrize("key", ["a.jsonl.gz", "b.jsonl", "deep/c%20d.jsonl", "deep/c d.jsonl"])
def test_one_object_is_read_like_its_file(key: str, notes: Path, store: FakeS3, tmp_path: Path) -> None:
    name = key.replace("%20", " ")
    build([notes / name], tmp_path / "local", settings=LOOSE, workers=1)
    build([f"s3://bucket/data/notes/{key}"], tmp_path / "out", settings=LOOSE, workers=1)
    assert content(tmp_path / "out") == content(tmp_path / "local")
    assert list(inputs_of(tmp_path / "out")) == [f"s3://bucket/data/notes/{name}"]
    assert store.read() == [f"data/notes/{name}"]


def test_objects_of_one_name_are_told_apart_by_their_addresses(store: FakeS3, tmp_path: Path) -> None:
    store.objects |= {"x/n.jsonl": lines(TEXTS[:3]), "y/n.jsonl": lines(TEXTS[3:6])}
    build(["s3://bucket/x/", "s3://bucket/y/n.jsonl"], tmp_path / "out", settings=LOOSE, workers=1)
    sources = {entry.source for entry in Corpus.open(tmp_path / "out").entries()}
    assert sources == {"s3://bucket/x/n.jsonl", "s3://bucket/y/n.jsonl"}


def test_files_and_objects_go_together_in_the_order_given(
    notes: Path, store: FakeS3, pipeline: Pipeline, tmp_path: Path
) -> None:
    store.objects["far.jsonl"] = lines(TEXTS[:2])
    annotate(pipeline, [notes / "b.jsonl", "s3://bucket/far.jsonl"], tmp_path / "out")
    assert list(inputs_of(tmp_path / "out")) == ["model", "b.jsonl", "s3://bucket/far.jsonl"]


def test_a_corpus_and_a_brat_folder_in_a_store_are_taken_whole(
    notes: Path, store: FakeS3, pipeline: Pipeline, tmp_path: Path
) -> None:
    build([notes], tmp_path / "corpus", settings=LOOSE, workers=1)
    store.put(tmp_path / "corpus", "corpus/")
    annotate(pipeline, ["s3://bucket/corpus/"], tmp_path / "of-corpus")
    assert artifact.open_artifact(tmp_path / "of-corpus").counts["written"] == 31
    store.objects |= {"brat/1.txt": b"Aspirin helps.", "brat/1.ann": b"T1\tDrug 0 7\tAspirin\n"}
    build(["s3://bucket/brat/"], tmp_path / "of-brat", settings=LOOSE, workers=1)
    assert Corpus.open(tmp_path / "of-brat").counts["gold entities"] == 1
    assert list(inputs_of(tmp_path / "of-brat")) == ["s3://bucket/brat"]


def test_the_endpoint_may_stand_in_the_address(
    notes: Path, store: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    options = f"?scheme=http&endpoint_override=127.0.0.1:{store.port}&region=here"
    build([f"s3://me:secret@bucket/data/notes/b.jsonl{options}"], tmp_path / "out", settings=LOOSE, workers=1)
    assert list(inputs_of(tmp_path / "out")) == ["s3://bucket/data/notes/b.jsonl"]
    assert "secret" not in (tmp_path / "out" / artifact.MANIFEST).read_text()


def test_progress_counts_bytes(notes: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    build(["s3://bucket/data/notes/"], tmp_path / "out", settings=LOOSE, workers=1, on_progress=told.append)
    copying = [each for each in told if each.phase == "copying the input"]
    assert copying
    assert copying[-1].done == copying[-1].total > 0


def test_without_an_address_no_store_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "run_processes", lambda *_: pytest.fail("a process was started"))
    with fetch_inputs([str(tmp_path), tmp_path / "s3:/bucket"], tmp_path / "out") as given:
        assert given == LocalInputs([tmp_path, tmp_path / "s3:/bucket"])
    assert list(tmp_path.iterdir()) == []
    assert not is_object_address(Path("s3://bucket/key"))


def test_google_cloud_storage_is_read_in_the_same_way(tmp_path: Path) -> None:
    objects = {"p/a.txt.gz": gzip.compress(b"Aspirin helps.", mtime=0), "p/deep/b.txt": b"No fever."}
    with serving_google(objects) as port:
        options = f"scheme=http&endpoint_override=127.0.0.1:{port}"
        with fetch_inputs([f"gs://anonymous@bucket/p?{options}"], tmp_path / "out") as given:
            copy = given.paths[0]
            assert (copy / "a.txt.gz").read_bytes() == objects["p/a.txt.gz"]
            assert (copy / "deep/b.txt").read_bytes() == b"No fever."
            assert given.get_display_name(copy / "deep/b.txt") == "gs://bucket/p/deep/b.txt"
        with (
            pytest.raises(UserError, match=r"There is nothing at gs://bucket/q\."),
            fetch_inputs([f"gs://anonymous@bucket/q?{options}"], tmp_path / "out"),
        ):
            pass
    with (
        pytest.raises(UserError, match=r"gs://bucket/p cannot be reached \(UNAVAILABLE\)"),
        fetch_inputs([f"gs://anonymous@bucket/p?{options}&retry_limit_seconds=1"], tmp_path / "out"),
    ):
        pass


def test_the_command_ends_in_silence(notes: Path, tmp_path: Path) -> None:
    arguments = ["corpus", "build", "s3://bucket/data/notes/a.jsonl.gz", "--out", str(tmp_path / "out")]
    result = subprocess.run(
        [sys.executable, "-m", "alembert", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


# Going on.


def test_the_same_command_again_copies_nothing(notes: Path, store: FakeS3, tmp_path: Path) -> None:
    build(["s3://bucket/data/notes/"], tmp_path / "out", settings=LOOSE, workers=1)
    store.asked.clear()
    assert not build(["s3://bucket/data/notes/"], tmp_path / "out", settings=LOOSE, workers=1).fresh
    assert store.read() == []


def test_annotation_that_was_stopped_goes_on_to_the_same_bytes(
    notes: Path, store: FakeS3, pipeline: Pipeline, tmp_path: Path
) -> None:
    def stop(progress: Progress) -> None:
        if progress.documents > 8:
            raise KeyboardInterrupt

    annotate(pipeline, [notes], tmp_path / "local", SMALL)
    with pytest.raises(KeyboardInterrupt):
        annotate(pipeline, ["s3://bucket/data/notes/"], tmp_path / "out", SMALL, on_progress=stop)
    store.asked.clear()
    result = annotate(pipeline, ["s3://bucket/data/notes/"], tmp_path / "out", SMALL)
    assert 0 < result.added["written"] < 31
    assert content(tmp_path / "out") == content(tmp_path / "local")
    assert store.read() == []


def test_copying_that_was_refused_goes_on_behind_what_is_there(
    notes: Path, store: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alembert.corpus.fetch._PARALLEL_COPIES", 1)
    store.denied.add("data/notes/deep/e.txt")
    with pytest.raises(UserError, match=r"s3://bucket/data/notes/deep/e\.txt cannot be read"):
        build(["s3://bucket/data/notes/"], tmp_path / "out", settings=LOOSE, workers=1)
    assert [path.name for path in tmp_path.glob("out*")] == []
    store.denied.clear()
    store.asked.clear()
    build(["s3://bucket/data/notes/"], tmp_path / "out", settings=LOOSE, workers=1)
    build([notes], tmp_path / "local", settings=LOOSE, workers=1)
    assert "data/notes/a.jsonl.gz" not in store.read()
    assert content(tmp_path / "out") == content(tmp_path / "local")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
def test_copying_that_was_killed_goes_on(notes: Path, store: FakeS3, tmp_path: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def wait(key: str) -> None:
        if key.endswith("e.txt"):
            reached.set()
            go_on.wait(PATIENCE)

    store.before_reading = wait
    arguments: Any = {"settings": LOOSE, "workers": 1}
    process = multiprocessing.get_context("fork").Process(
        target=build, args=(["s3://bucket/data/notes/"], tmp_path / "out"), kwargs=arguments
    )
    process.start()
    assert reached.wait(PATIENCE)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    go_on.set()
    until_free(tmp_path / "out", arguments)
    build([notes], tmp_path / "local", settings=LOOSE, workers=1)
    assert content(tmp_path / "out") == content(tmp_path / "local")
    assert not list((tmp_path / CACHE_FOLDER).rglob("incoming"))


def until_free(out: Path, arguments: Any) -> None:
    """Build as soon as the workers of the killed process have ended, too."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            build(["s3://bucket/data/notes/"], out, **arguments)
        except FolderBusy:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


def test_an_object_that_was_changed_is_copied_again(notes: Path, store: FakeS3, tmp_path: Path) -> None:
    with fetch_inputs(["s3://bucket/data/notes/"], tmp_path / "out"):
        store.asked.clear()
    key = "data/notes/deep/e.txt"
    store.objects[key] = b"x" * len(store.objects[key])
    store.changed[key] = CHANGED + timedelta(seconds=1)
    del store.objects["data/notes/b.jsonl"]
    with fetch_inputs(["s3://bucket/data/notes/"], tmp_path / "out") as given:
        copy = given.paths[0]
        assert (copy / "deep/e.txt").read_bytes() == store.objects[key]
        assert not (copy / "b.jsonl").exists()
    assert store.read() == [key]


def test_work_on_objects_that_were_changed_is_not_continued(
    notes: Path, store: FakeS3, pipeline: Pipeline, tmp_path: Path
) -> None:
    def stop(progress: Progress) -> None:
        if progress.documents:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        annotate(pipeline, ["s3://bucket/data/notes/"], tmp_path / "out", SMALL, on_progress=stop)
    store.objects["data/notes/b.jsonl"] += b"\n"
    with pytest.raises(BadFile, match="unfinished work"):
        annotate(pipeline, ["s3://bucket/data/notes/"], tmp_path / "out", SMALL)


def test_an_object_that_changes_meanwhile_is_a_sentence(store: FakeS3, tmp_path: Path) -> None:
    store.objects["a.txt"] = b"one"

    def change(key: str) -> None:
        store.objects[key] = b"two"

    store.before_reading = change
    with (
        pytest.raises(UserError, match=r"s3://bucket/a\.txt was changed while"),
        fetch_inputs(["s3://bucket/a.txt"], tmp_path / "out"),
    ):
        pass


def test_a_second_run_for_the_same_result_is_refused(notes: Path, tmp_path: Path) -> None:
    with (
        fetch_inputs(["s3://bucket/data/notes/"], tmp_path / "out"),
        pytest.raises(FolderBusy, match="is being written by process"),
    ):
        build(["s3://bucket/data/notes/"], tmp_path / "out", settings=LOOSE, workers=1)


# What is wrong.


def refusal(address: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run both commands; give the sentence that both end with, and see that they leave nothing."""
    finder(folder / "model")
    before = sorted(folder.rglob("*"))
    sentences = set()
    assert run(["corpus", "build", address, "--out", str(folder / "new/corpus")]) == 2
    sentences.add(capsys.readouterr().err)
    with pytest.raises(UserError) as caught:
        annotate(Pipeline.from_models([finder(folder / "model")]), [address], folder / "new/annotated")
    sentences.add(f"error: {caught.value}\n")
    assert sorted(folder.rglob("*")) == before
    assert len(sentences) == 1
    return sentences.pop()


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("s3://bucket/data/nothing.jsonl", "There is nothing at s3://bucket/data/nothing.jsonl. Check"),
        ("s3://bucket/data/nothing/", "There is nothing at s3://bucket/data/nothing/. Check"),
        ("s3://elsewhere/a.txt", "There is nothing at s3://elsewhere/a.txt. Check bucket"),
        ("s3://elsewhere/", "There is nothing at s3://elsewhere/. Check bucket"),
        (
            "s3://bucket/closed.txt",
            "s3://bucket/closed.txt cannot be read (ACCESS_DENIED). Check",
        ),
        ("s3://bucket/closed/", "s3://bucket/closed/ cannot be read (ACCESS_DENIED). Check"),
        ("s3://bucket/a.txt?colour=red", "The address s3://bucket/a.txt is not understood."),
        ("s3://me:secret@bucket/x?colour=red", "The address s3://bucket/x is not understood."),
        ("s3://me:sec/ret@bucket/x", "An input that begins with s3:// is not understood."),
        ("s3://", "An input that begins with s3:// is not understood."),
        ("s3://bucket/only-hidden/", "There is nothing at s3://bucket/only-hidden/."),
        ("s3://bucket/both/", "s3://bucket/both/ has an object a and objects below a/"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    address: str, sentence: str, store: FakeS3, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.objects |= {"a.txt": b"x", "only-hidden/.x": b"x", "both/a": b"x", "both/a/b": b"x"}
    store.denied |= {"closed", "closed.txt"}
    found = refusal(address, tmp_path, capsys)
    assert found.startswith(f"error: {sentence}")
    assert "secret" not in found
    assert "sec/ret" not in found


def test_no_network_is_one_sentence(
    store: FakeS3, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import fs

    # As pyarrow makes it of the address, but without the six seconds in which it tries again.
    impatient = fs.S3FileSystem(
        endpoint_override="127.0.0.1:9",
        scheme="http",
        region="here",
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": lambda uri: (impatient, uri[5:])}))
    found = refusal("s3://bucket/a.txt", tmp_path, capsys)
    assert found.startswith("error: s3://bucket/a.txt cannot be reached (NETWORK_CONNECTION). Check the network")


def test_a_pyarrow_without_stores_is_one_sentence(
    store: FakeS3, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from pyarrow import fs

    def lacking(uri: str) -> None:
        raise pa.ArrowNotImplementedError(f"Got S3 URI but Arrow compiled without S3 support: {uri}")

    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": lacking}))
    found = refusal("s3://bucket/a.txt", tmp_path, capsys)
    assert found.startswith("error: s3://bucket/a.txt cannot be read: this pyarrow was built without")


def test_other_verbs_say_that_they_take_no_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["pretrain", "s3://bucket/a.txt", "--size", "tiny", "--tokens", "1M", "--out", "new"]) == 2
    assert "takes no objects in a store" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_address_shows_bucket_and_key_alone() -> None:
    address = ObjectAddress.parse("s3://name:se%2Fcret@bucket/a%20b/咳?region=x&endpoint_override=host")
    assert (address.display_name, address.name, address.options) == (
        "s3://bucket/a b/咳",
        "咳",
        "region=x&endpoint_override=host",
    )
    assert address.uri.isascii()
    assert ObjectAddress.parse("s3://bucket").is_folder
    with pytest.raises(BadSetting):
        ObjectAddress.parse("s3://bucket/a#b")
    assert replace(address, uri="").get_object_name("c") == "s3://bucket/a b/咳/c"


# -- standard input, and commands without a result


def pipe(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_standard_input_is_annotated_like_a_file(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stdin").write_bytes(lines(TEXTS))
    annotate(pipeline, [tmp_path / "stdin"], tmp_path / "local", SMALL)
    pipe(lines(TEXTS), monkeypatch)
    annotate(pipeline, ["-"], tmp_path / "out", SMALL)
    assert content(tmp_path / "out") == content(tmp_path / "local")
    assert "stdin" in inputs_of(tmp_path / "out")
    assert not list(tmp_path.rglob(f"{CACHE_FOLDER}/inputs/out/*"))


def test_a_stopped_run_goes_on_with_the_same_standard_input(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(lines(TEXTS), monkeypatch)
    annotate(pipeline, ["-"], tmp_path / "quiet", SMALL)

    def stop(progress: Progress) -> None:
        if progress.done > 500:
            raise KeyboardInterrupt

    pipe(lines(TEXTS), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        annotate(pipeline, ["-"], tmp_path / "out", SMALL, on_progress=stop)
    pipe(lines(TEXTS), monkeypatch)
    annotate(pipeline, ["-"], tmp_path / "out", SMALL)
    assert content(tmp_path / "out") == content(tmp_path / "quiet")


def test_nothing_on_standard_input_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(b"", monkeypatch)
    with pytest.raises(UserError, match="nothing on standard input"):
        fetch_to_temporary_folder(["-"])


def test_objects_are_copied_for_commands_without_a_result(notes: Path) -> None:
    (folder, single) = fetch_to_temporary_folder(["s3://bucket/data/notes/", notes / "b.jsonl"])
    assert single == notes / "b.jsonl"
    assert (folder / "deep/e.txt").read_bytes() == (notes / "deep/e.txt").read_bytes()


def test_documents_are_read_from_a_store_and_by_a_pattern(notes: Path) -> None:
    there = [document.id for document in alembert.read("s3://bucket/data/notes/deep/")]
    assert there == [document.id for document in alembert.read(notes / "deep")] != []
    some = [document.id for document in alembert.read(str(notes / "*.gz"))]
    assert some == [f"d{number}" for number in range(10)]
