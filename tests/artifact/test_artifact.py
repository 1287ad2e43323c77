"""Artefacts are whole or absent, say what they are, and fail in sentences."""

import errno
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alembert import artifact
from alembert.artifact import disk as lock_module
from alembert.artifact import writing
from alembert.errors import BadFile, BadSetting, FolderBusy, UserError
from alembert.tasks.files import read_tasks

CONFIG = {"hidden_size": 8, "name": "小", "optimizer": {"lr": 0.1}}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


def write(folder: Path | str, content: str = "one", kind: str = "Corpus", **options: Any) -> None:
    with artifact.create(folder, kind, config=CONFIG, **options) as draft:
        (draft.path / "a.txt").write_text(content)
        draft.counts["documents"] = 1


def interrupt(folder: Path, **options: Any) -> None:
    """Leave an unfinished, resumable draft with one file and some scratch."""

    def work(path: Path) -> None:
        (path / "done.txt").write_text("kept")
        (path / ".state").mkdir(exist_ok=True)
        raise KeyboardInterrupt

    options = {"config": CONFIG, **options}
    with pytest.raises(KeyboardInterrupt), artifact.create(folder, "Corpus", resume=True, **options) as draft:
        work(draft.path)


def put(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("x")


def fill_the_disk(folder: Path) -> None:
    put(folder, "done.txt")
    Path("/dev/full").write_bytes(b"x")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestWriting:
    def test_manifest_records_the_work(self, tmp_path: Path) -> None:
        source = tmp_path / "source.txt"
        source.write_text("text")
        with artifact.create(tmp_path / "out", "Corpus", config=CONFIG, inputs=[source], seed=7) as draft:
            (draft.path / "deep").mkdir()
            (draft.path / "deep" / "词.txt").write_bytes(b"abc")
            draft.counts["documents"] = 3
        manifest = artifact.open_artifact(tmp_path / "out", "Corpus")
        assert (manifest.kind, manifest.seed, manifest.counts) == ("Corpus", 7, {"documents": 3})
        assert manifest.config == CONFIG
        assert manifest.inputs == (artifact.ManifestInput("source.txt", artifact.hash_file(source)),)
        assert manifest.versions.keys() >= {"alembert", "python"}
        # The digest of "abc" is the example of FIPS 180-2.
        sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        assert manifest.files == {"deep/词.txt": artifact.FileDigest(sha, 3)}

    def test_nothing_else_stays_behind(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        assert names(tmp_path) == ["out"]
        assert names(tmp_path / "out") == ["a.txt", "manifest.json"]

    def test_target_is_absent_while_written(self, tmp_path: Path) -> None:
        with artifact.create(tmp_path / "out", "Corpus", config={}) as draft:
            assert not (tmp_path / "out").exists()
            assert draft.path == tmp_path / "out.partial"

    def test_same_work_gives_the_same_bytes(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            write(tmp_path / name)
        first, second = ((tmp_path / name / "manifest.json").read_bytes() for name in ("one", "two"))
        assert first == second

    def test_key_order_does_not_change_the_bytes(self, tmp_path: Path) -> None:
        for name, config in (("one", {"a": 1, "b": 2}), ("two", {"b": 2, "a": 1})):
            with artifact.create(tmp_path / name, "Corpus", config=config):
                pass
        assert (tmp_path / "one/manifest.json").read_bytes() == (tmp_path / "two/manifest.json").read_bytes()

    def test_scratch_is_deleted_at_the_end(self, tmp_path: Path) -> None:
        with artifact.create(tmp_path / "out", "Corpus", config={}) as draft:
            (draft.path / ".state").mkdir()
            (draft.path / ".state" / "optimizer").write_text("x")
            (draft.path / "deep").mkdir()
            (draft.path / "deep" / ".left.tmp").write_text("x")
        assert sorted(p.name for p in (tmp_path / "out").rglob("*")) == ["deep", "manifest.json"]

    def test_an_error_removes_the_draft(self, tmp_path: Path) -> None:
        with (
            pytest.raises(ZeroDivisionError),
            artifact.create(tmp_path / "out", "Corpus", config={}) as draft,
        ):
            (draft.path / str(1 // 0)).write_text("x")
        assert names(tmp_path) == []

    def test_an_error_keeps_the_old_artefact(self, tmp_path: Path) -> None:
        write(tmp_path / "out", "old")
        with (
            pytest.raises(ZeroDivisionError),
            artifact.create(tmp_path / "out", "Corpus", config={}, overwrite=True),
        ):
            raise ZeroDivisionError
        artifact.verify(tmp_path / "out")
        assert (tmp_path / "out" / "a.txt").read_text() == "old"

    def test_overwrite_replaces_everything(self, tmp_path: Path) -> None:
        write(tmp_path / "out", "old")
        with artifact.create(tmp_path / "out", "Corpus", config={}, overwrite=True) as draft:
            (draft.path / "b.txt").write_text("new")
        artifact.verify(tmp_path / "out")
        assert names(tmp_path / "out") == ["b.txt", "manifest.json"]
        assert names(tmp_path) == ["out"]

    @pytest.mark.parametrize("kind_of_path", ["plain", "slash", "relative", "empty folder", "deep", "tilde"])
    def test_ways_to_name_the_target(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind_of_path: str) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "empty").mkdir()
        given_path, expected = {
            "plain": (str(tmp_path / "out"), "out"),
            "slash": (f"{tmp_path}/out/", "out"),
            "relative": ("out", "out"),
            "empty folder": ("empty", "empty"),
            "deep": ("x/y/out", "x/y/out"),
            "tilde": ("~/out", "~/out"),
        }[kind_of_path]
        write(given_path)
        artifact.verify(tmp_path / expected)

    def test_changing_the_working_directory_is_harmless(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "elsewhere").mkdir()
        with artifact.create("out", "Corpus", config={}):
            monkeypatch.chdir(tmp_path / "elsewhere")
        artifact.verify(tmp_path / "out")

    def test_a_linked_target_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "big").mkdir()
        (tmp_path / "out").symlink_to(tmp_path / "big")
        write(tmp_path / "out")
        assert (tmp_path / "out").is_symlink()
        artifact.verify(tmp_path / "big")

    def test_names_that_are_not_unicode(self, tmp_path: Path) -> None:
        with artifact.create(tmp_path / "out", "Corpus", config={}) as draft:
            Path(os.fsdecode(os.fsencode(draft.path) + b"/\xff.txt")).write_text("x")
        assert list(artifact.verify(tmp_path / "out").files) == ["\udcff.txt"]
        assert r"\udcff.txt" in (tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")

    def test_a_link_in_a_draft_is_a_bug(self, tmp_path: Path) -> None:
        with (
            pytest.raises(ValueError, match=r"link\.txt"),
            artifact.create(tmp_path / "out", "Corpus", config={}) as draft,
        ):
            (draft.path / "link.txt").symlink_to("/dev/null")
        assert names(tmp_path) == []


class TestRefusedTargets:
    def refuse(self, folder: Path | str, words: str, **options: Any) -> None:
        with pytest.raises(BadFile, match=words):
            write(folder, **options)

    def test_complete_artefact(self, tmp_path: Path) -> None:
        write(tmp_path / "out", "old")
        self.refuse(tmp_path / "out", "complete Corpus already")
        assert (tmp_path / "out" / "a.txt").read_text() == "old"

    def test_other_kind(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        self.refuse(tmp_path / "out", "is a Corpus; an Export will not", kind="Export", overwrite=True)

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_folder_of_others(self, tmp_path: Path, overwrite: bool) -> None:
        put(tmp_path / "out", "thesis.txt")
        self.refuse(tmp_path / "out", "left alone", overwrite=overwrite)
        assert names(tmp_path / "out") == ["thesis.txt"]

    def test_file_of_others_in_an_artefact(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        (tmp_path / "out" / "notes.md").write_text("x")
        self.refuse(tmp_path / "out", "would delete: notes.md", overwrite=True)

    def test_partial_folder_of_others(self, tmp_path: Path) -> None:
        put(tmp_path / "out.partial", "thesis.txt")
        self.refuse(tmp_path / "out", "no draft of alembert")
        assert names(tmp_path / "out.partial") == ["thesis.txt"]

    def test_file(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("x")
        self.refuse(tmp_path / "out", "is a file")

    def test_parent_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        self.refuse(tmp_path / "file" / "out", "file is a file")
        self.refuse(tmp_path / "file" / "deep" / "out", "Not a directory")

    def test_current_folder_and_mount_point(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        self.refuse(".", "current folder or a mount point")
        self.refuse("/", "current folder or a mount point")

    def test_name_of_unfinished_work(self, tmp_path: Path) -> None:
        self.refuse(tmp_path / "out.partial", r"ends in \.partial")

    def test_target_that_appears_meanwhile(self, tmp_path: Path) -> None:
        with (
            pytest.raises(BadFile, match=r"left alone.*kept in .*out\.partial"),
            artifact.create(tmp_path / "out", "Corpus", config={}),
        ):
            put(tmp_path / "out", "thesis.txt")
        assert names(tmp_path / "out") == ["thesis.txt"]
        artifact.verify(tmp_path / "out.partial")


class TestResuming:
    def test_the_same_call_continues(self, tmp_path: Path) -> None:
        interrupt(tmp_path / "out", seed=1)
        with artifact.create(tmp_path / "out", "Corpus", config=CONFIG, seed=1, resume=True) as draft:
            assert draft.resumed
            assert names(draft.path) == [".draft.json", ".state", "done.txt"]
        assert list(artifact.verify(tmp_path / "out").files) == ["done.txt"]

    def test_a_first_run_is_not_resumed(self, tmp_path: Path) -> None:
        with artifact.create(tmp_path / "out", "Corpus", config={}, resume=True) as draft:
            assert not draft.resumed

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                {"config": {**CONFIG, "optimizer": {"lr": 0.2}}},
                r"`config\.optimizer\.lr` was 0\.1 and is now 0\.2",
            ),
            ({"config": {}}, "`config.hidden_size` was 8 and is now absent"),
            ({"config": {**CONFIG, "hidden_size": 8.0}}, "was 8 and is now 8.0"),
            ({"seed": 3}, "`seed` was null and is now 3"),
            ({"kind": "Export"}, '`kind` was "Corpus" and is now "Export"'),
            ({"resume": False}, "holds unfinished work"),
        ],
    )
    def test_other_work_is_refused(self, tmp_path: Path, change: dict[str, Any], words: str) -> None:
        interrupt(tmp_path / "out")
        options = {"kind": "Corpus", "config": CONFIG, "resume": True, **change}
        with pytest.raises(BadFile, match=words), artifact.create(tmp_path / "out", **options):
            pass
        assert "done.txt" in names(tmp_path / "out.partial")

    def test_changed_input_is_refused(self, tmp_path: Path) -> None:
        source = tmp_path / "source.txt"
        source.write_text("before")
        interrupt(tmp_path / "out", inputs=[source])
        source.write_text("after")
        with pytest.raises(BadFile, match=r"`inputs\.1` was"):
            interrupt(tmp_path / "out", inputs=[source])

    def test_dotted_keys_are_not_nested_keys(self, tmp_path: Path) -> None:
        interrupt(tmp_path / "out", config={"a": {"b": 1}})
        with pytest.raises(BadFile, match=r"`config\.a\.b`"):
            interrupt(tmp_path / "out", config={"a.b": 1})

    def test_both_versions_are_recorded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in ("1.0", "1.0", "2.0", "2.0"):
            monkeypatch.setattr(writing, "get_library_versions", lambda number=number: {"torch": number})
            interrupt(tmp_path / "out")
        write(tmp_path / "out", resume=True)
        assert artifact.open_artifact(tmp_path / "out").versions == {"torch": "1.0, then 2.0"}

    def test_finished_knows_this_very_artefact(self, tmp_path: Path) -> None:
        work = {"config": CONFIG, "seed": 1}
        assert artifact.find_finished(tmp_path / "out", "Corpus", **work) is None
        write(tmp_path / "out", seed=1)
        assert artifact.find_finished(tmp_path / "out", "Corpus", **work) == artifact.open_artifact(tmp_path / "out")
        assert artifact.find_finished(tmp_path / "out", "Corpus", config=CONFIG, seed=2) is None
        assert names(tmp_path) == ["out"]


class TestOpening:
    def refuse(self, folder: Path, words: str, kind: str = "Corpus") -> None:
        with pytest.raises(BadFile, match=words):
            artifact.open_artifact(folder, kind)

    def edit(self, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
        write(folder)
        record = json.loads((folder / "manifest.json").read_bytes())
        change(record)
        (folder / "manifest.json").write_text(json.dumps(record))
        return folder

    def test_missing(self, tmp_path: Path) -> None:
        self.refuse(tmp_path / "out", "does not exist")

    def test_file(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("x")
        self.refuse(tmp_path / "out", "is a file")

    def test_folder_without_manifest(self, tmp_path: Path) -> None:
        self.refuse(tmp_path, r"has no manifest\.json")

    def test_unfinished(self, tmp_path: Path) -> None:
        interrupt(tmp_path / "out")
        self.refuse(tmp_path / "out", r"not finished: .*out\.partial is there\..*run the command")

    def test_other_kind(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        self.refuse(tmp_path / "out", "out is a Corpus, and a Checkpoint was expected", "Checkpoint")

    @pytest.mark.parametrize("data", [b"", b"[]", b'{"kind": ', b"\xff\xff", b"[" * 100_000])
    def test_damaged_json(self, tmp_path: Path, data: bytes) -> None:
        write(tmp_path / "out")
        (tmp_path / "out" / "manifest.json").write_bytes(data)
        self.refuse(tmp_path / "out", "not readable as JSON|no JSON object")

    @pytest.mark.parametrize(
        "record", [{}, {"name": "a web page"}, {"format": 1}, {"format": 1, "files": [], "inputs": []}]
    )
    def test_manifest_of_others(self, tmp_path: Path, record: object) -> None:
        write(tmp_path / "out")
        (tmp_path / "out" / "manifest.json").write_text(json.dumps(record))
        self.refuse(tmp_path / "out", "not written by alembert")

    @pytest.mark.parametrize(
        "change",
        [
            {"format": True},
            {"format": 0},
            {"seed": "7"},
            {"kind": ["Corpus"]},
            {"counts": {"documents": -1}},
            {"files": {"a.txt": {"sha256": "", "size": True}}},
            {"files": {"a.txt": {"sha256": "", "size": -3}}},
        ],
        ids=str,
    )
    def test_values_of_other_types(self, change: dict[str, Any], tmp_path: Path) -> None:
        self.refuse(self.edit(tmp_path / "out", lambda r: r.update(change)), "not written by alembert")

    def test_an_empty_list_of_files(self, tmp_path: Path) -> None:
        folder = self.edit(tmp_path / "out", lambda r: r.update(files={}))
        self.refuse(folder, r"not listed in manifest\.json: a\.txt")

    def test_newer_format(self, tmp_path: Path) -> None:
        self.refuse(self.edit(tmp_path / "out", lambda r: r.update(format=99)), "Install a newer alembert")

    @pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret", "a\0b"])
    def test_file_outside_of_the_folder(self, tmp_path: Path, name: str) -> None:
        entry = {name: {"sha256": "", "size": 0}}
        self.refuse(self.edit(tmp_path / "out", lambda r: r.update(files=entry)), "not written by alembert")

    def test_missing_file(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        (tmp_path / "out" / "a.txt").unlink()
        self.refuse(tmp_path / "out", r"missing or of another size.*: a\.txt\.")

    def test_truncated_file(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        (tmp_path / "out" / "a.txt").write_text("o")
        self.refuse(tmp_path / "out", r"missing or of another size.*: a\.txt\.")

    def test_huge_manifest_is_not_read(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        os.truncate(tmp_path / "out" / "manifest.json", 1 << 40)
        self.refuse(tmp_path / "out", "expected at most 268,435,456")

    def test_verify_names_changed_files(self, tmp_path: Path) -> None:
        write(tmp_path / "out", "one")
        (tmp_path / "out" / "a.txt").write_text("two")
        artifact.open_artifact(tmp_path / "out")
        with pytest.raises(BadFile, match=r"not what was written: a\.txt\."):
            artifact.verify(tmp_path / "out")


class TestFileSystemErrors:
    def test_full_disk_keeps_resumable_work(self, tmp_path: Path) -> None:
        with (
            pytest.raises(BadFile, match=r"(?s)No space left.*Free some space.*kept in .*out\.partial"),
            artifact.create(tmp_path / "out", "Corpus", config={}, resume=True) as draft,
        ):
            fill_the_disk(draft.path)
        assert "done.txt" in names(tmp_path / "out.partial")

    @pytest.mark.parametrize("call", ["fsync", "rename"])
    def test_failure_at_commit_keeps_the_old(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        write(tmp_path / "out", "old")
        with (
            pytest.raises(UserError, match="No space left"),
            artifact.create(tmp_path / "out", "Corpus", config={}, overwrite=True),
        ):
            monkeypatch.setattr(*((os, "fsync", fail) if call == "fsync" else (Path, "rename", fail)))
        monkeypatch.undo()
        artifact.verify(tmp_path / "out")
        assert (tmp_path / "out" / "a.txt").read_text() == "old"
        write(tmp_path / "out", "new", overwrite=True)
        assert names(tmp_path) == ["out"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
    def test_forbidden_folder(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(BadFile, match=r"Permission denied.*Check the permissions"):
            write(tmp_path / "out")

    def test_other_errors_stay_bugs(self, tmp_path: Path) -> None:
        with (
            pytest.raises(FileNotFoundError),
            artifact.create(tmp_path / "out", "Corpus", config={}) as draft,
        ):
            (draft.path / "no" / "such").read_text()

    def test_too_long_a_name(self, tmp_path: Path) -> None:
        with pytest.raises(BadFile, match="File name too long"):
            write(tmp_path / ("x" * 255))


class TestLock:
    def test_second_writer_in_this_process_is_told_who(self, tmp_path: Path) -> None:
        with artifact.create(tmp_path / "out", "Corpus", config={}):
            with pytest.raises(FolderBusy, match=rf"process {os.getpid()} on .* since \d\d\d\d-"):
                write(tmp_path / "out")
            with pytest.raises(FolderBusy):
                artifact.find_finished(tmp_path / "out", "Corpus", config={})
        artifact.verify(tmp_path / "out")

    def test_second_writer_in_another_thread(self, tmp_path: Path) -> None:
        caught: list[Exception] = []

        def attempt() -> None:
            try:
                write(tmp_path / "out")
            except FolderBusy as error:
                caught.append(error)

        with artifact.create(tmp_path / "out", "Corpus", config={}):
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
        assert len(caught) == 1

    def test_other_folders_are_free(self, tmp_path: Path) -> None:
        with artifact.create(tmp_path / "one", "Corpus", config={}):
            write(tmp_path / "two")
        artifact.verify(tmp_path / "two")

    def test_stale_lock_file_does_not_block(self, tmp_path: Path) -> None:
        (tmp_path / ".out.lock").write_text("{}")
        write(tmp_path / "out")
        assert names(tmp_path) == ["out"]

    def test_lock_deleted_between_open_and_lock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The previous holder deletes its file after we opened it: we must lock the one that counts."""
        answers = iter([False, True])
        monkeypatch.setattr(lock_module, "_is_at", lambda path, descriptor: next(answers))
        write(tmp_path / "out")
        assert list(answers) == []

    def test_without_locks_the_user_is_warned(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fcntl", None)
        with pytest.warns(RuntimeWarning, match="no file locks"):
            write(tmp_path / "out")
        artifact.verify(tmp_path / "out")


class TestSingleFiles:
    def test_atomic_write_replaces(self, tmp_path: Path) -> None:
        for data in (b"old", b"new"):
            artifact.atomic_write(tmp_path / "a", data)
        assert (tmp_path / "a").read_bytes() == b"new"
        assert names(tmp_path) == ["a"]

    def test_atomic_write_obeys_the_umask(self, tmp_path: Path) -> None:
        (tmp_path / "plain").touch()
        artifact.atomic_write(tmp_path / "a", b"")
        assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_failed_write_keeps_the_old(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        artifact.atomic_write(tmp_path / "a", b"old")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(BadFile, match=r"No space left on device\. Free some space"):
            artifact.atomic_write(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        assert names(tmp_path) == ["a"]

    def test_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(BadFile, match="No such file or directory"):
            artifact.atomic_write(tmp_path / "no" / "a", b"")


class TestHashes:
    def test_file_digest_is_sha256(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"")
        expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        assert artifact.hash_file(tmp_path / "a") == artifact.hash_text("") == expected

    @settings(max_examples=50)
    @given(st.dictionaries(st.text(), JSON), st.randoms())
    def test_order_of_keys_does_not_matter(self, config: dict[str, Any], random: Any) -> None:
        items = list(config.items())
        random.shuffle(items)
        assert artifact.hash_config(dict(items)) == artifact.hash_config(config)

    @settings(max_examples=50)
    @given(st.dictionaries(st.text(st.characters()), JSON))
    def test_json_round_trip_keeps_the_hash(self, config: dict[str, Any]) -> None:
        assert artifact.hash_config(json.loads(json.dumps(config, ensure_ascii=False))) == artifact.hash_config(config)

    @settings(max_examples=50)
    @given(st.dictionaries(st.text(), JSON), st.text(), JSON)
    def test_any_change_changes_the_hash(self, config: dict[str, Any], key: str, value: Any) -> None:
        changed = {**config, key: [value, config.get(key)]}
        assert artifact.hash_config(changed) != artifact.hash_config(config)

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    def test_numbers_without_json_are_refused(self, tmp_path: Path, number: float) -> None:
        with pytest.raises(BadSetting, match="finite"):
            artifact.hash_config({"lr": number})

    def test_input_artefact_is_hashed_by_its_manifest(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        assert artifact.hash_input(tmp_path / "out") == artifact.hash_file(tmp_path / "out" / "manifest.json")

    def test_input_folder_is_hashed_by_names_and_content(self, tmp_path: Path) -> None:
        (tmp_path / "raw").mkdir()
        (tmp_path / "raw" / "a").write_text("x")
        before = artifact.hash_input(tmp_path / "raw")
        (tmp_path / "raw" / "a").rename(tmp_path / "raw" / "b")
        assert artifact.hash_input(tmp_path / "raw") != before

    def test_missing_input(self, tmp_path: Path) -> None:
        with pytest.raises(BadFile, match="does not exist"):
            artifact.hash_input(tmp_path / "no")

    def test_input_link_to_a_folder_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "raw").mkdir()
        (tmp_path / "raw" / "link").symlink_to(tmp_path)
        with pytest.raises(BadFile, match="link"):
            artifact.hash_input(tmp_path / "raw")


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ("model", None),
        ("model.partial/x", r"model is not finished: .*model\.partial is there"),
        ("other", "model does not exist"),
    ],
)
def test_a_folder_that_is_missing_has_a_reason(made: str, sentence: str | None, tmp_path: Path) -> None:
    (tmp_path / made).mkdir(parents=True)
    found = artifact.explain_missing(tmp_path / "model")
    assert found is None if sentence is None else re.search(sentence, found or "")
    if sentence is not None:
        with pytest.raises(BadFile, match=sentence):
            read_tasks(tmp_path / "model")


def test_a_folder_that_takes_no_files_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("alembert.artifact.disk.os.open", refuse)
    with pytest.raises(BadFile, match="takes no files"), artifact.create(tmp_path / "out", "Test", config={}):
        pass
