"""Which files a command reads: each once, under a name and with ids of its own, never its own result."""

from pathlib import Path

import pytest

from alembert.corpus.inputs import InputFiles, list_input_files
from alembert.corpus.readers import SetAside, read
from alembert.errors import BadFile


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return folder


def names(found: InputFiles) -> list[str]:
    return [file.name for file in found.files]


def ids(found: InputFiles) -> dict[str, str]:
    return {f"{file.name}: {name}": new for file in found.files for name, new in file.ids.items()}


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "a/x.txt", "a/y.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a/x.txt")
    found = list_input_files([tmp_path / "a/x.txt", tmp_path / "a", tmp_path / "link.txt", tmp_path / "a/../a/y.txt"])
    assert names(found) == ["a/x.txt", "a/y.txt"]
    assert found.repeated == 3
    assert any("brat pair: 3;" in note for note in found.notes())


def test_the_two_files_of_a_brat_pair_are_one_input(tmp_path: Path) -> None:
    write(tmp_path, "x.txt", "x.ann", "y.txt.gz", "y.ann", "lonely.ann", "alone.txt")
    found = list_input_files(sorted(tmp_path.iterdir()))
    assert names(found) == ["alone.txt", "lonely.ann", "x.txt", "y.txt.gz"]
    assert [path.name for path in found.contents][2:] == ["x.txt", "x.ann", "y.txt.gz", "y.ann"]


def test_files_of_a_pair_are_read_one_by_one_where_the_format_says_so(tmp_path: Path) -> None:
    write(tmp_path, "x.txt", "x.ann")
    assert len(list_input_files(sorted(tmp_path.iterdir()), format="text").files) == 2


def test_a_pair_beside_its_folder_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "pairs/x.txt", "pairs/x.ann")
    found = list_input_files([tmp_path / "pairs/x.txt", tmp_path / "pairs"])
    assert (names(found), found.repeated) == (["pairs"], 1)


def test_files_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    write(tmp_path, "a/letter.txt", "b/c/letter.txt", "b/other.txt")
    found = list_input_files([tmp_path])
    assert ids(found) == {"a/letter.txt: letter": "a/letter", "b/c/letter.txt: letter": "b/c/letter"}
    assert ids(list_input_files([tmp_path / "b", tmp_path / "a"])) == ids(found)


def test_files_that_differ_in_their_ending_alone_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, "notes.csv", "notes.jsonl", "notes.csv.txt")
    assert set(ids(list_input_files([tmp_path])).values()) >= {"notes.jsonl"}
    found = list_input_files([tmp_path])
    given = [file.ids.get(file.path.name.rsplit(".", 1)[0], file.path.name.rsplit(".", 1)[0]) for file in found.files]
    assert len(set(given)) == 3


def test_pairs_of_brat_folders_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    write(tmp_path, "a/x.txt", "a/x.ann", "b/x.txt", "b/x.ann", "b/y.txt")
    assert ids(list_input_files([tmp_path])) == {"a: x": "a/x", "b: x": "b/x"}


def test_two_pairs_of_one_id_in_a_folder_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, "x.txt", "x.ann", "x%~2.txt", "x%~2.ann")
    (file,) = list_input_files([tmp_path]).files
    assert set(file.ids) == {"x", "x%~2"}
    assert len(set(file.ids.values())) == 2


def test_a_result_is_no_input_of_its_own_command(tmp_path: Path) -> None:
    write(
        tmp_path,
        "x.txt",
        "out/part.jsonl",
        "out.partial/part.jsonl",
        "other.partial/.draft.json",
        "z.partial/a.txt",
    )
    found = list_input_files([tmp_path, tmp_path / "out/part.jsonl"], out=tmp_path / "out")
    assert names(found) == ["x.txt", "z.partial/a.txt"]
    assert found.unfinished == 1


def test_an_empty_folder_among_others_is_said(tmp_path: Path) -> None:
    write(tmp_path, "a/x.txt")
    (tmp_path / "b").mkdir()
    found = list_input_files([tmp_path])
    assert (names(found), found.empty) == (["a/x.txt"], 1)


def test_folders_without_any_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    with pytest.raises(BadFile, match="no file to read"):
        list_input_files([tmp_path])


def test_objects_of_a_store_are_named_by_their_addresses(tmp_path: Path) -> None:
    write(tmp_path, "1/files/p/a.txt", "2/files/p/a.txt")
    addresses = {"1": "s3://bucket/x/p", "2": "s3://bucket/y/p"}

    def called(path: Path) -> str:
        number, _, *rest = path.relative_to(tmp_path).parts
        return "/".join([addresses[number], *rest[1:]])

    found = list_input_files([tmp_path / "1/files/p", tmp_path / "2/files/p"], get_display_name=called)
    assert names(found) == ["x/p/a.txt", "y/p/a.txt"]


def test_a_folder_of_another_program_inside_a_brat_folder_is_said(tmp_path: Path) -> None:
    write(tmp_path, "x.txt", "x.ann", "theirs/manifest.json", "ours.partial/.draft.json")
    (tmp_path / "x.ann").write_text("")
    aside = [item.source for item in read(tmp_path) if isinstance(item, SetAside)]
    assert [Path(source).name for source in aside] == ["theirs"]


def relative(paths: list[Path], folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in paths]


def test_files_of_examples_are_found_in_folders_of_any_depth(tmp_path: Path) -> None:
    write(tmp_path, "b/x.ann", "b/x.txt", "a/deep/y.tsv", "a/z.jsonl.gz", ".hidden/w.tsv")
    assert relative(list_input_files([tmp_path]).paths, tmp_path) == ["a/deep/y.tsv", "a/z.jsonl.gz", "b"]


def test_a_pattern_stands_for_the_files_that_it_matches(tmp_path: Path) -> None:
    write(tmp_path, "b.tsv", "a.tsv", "deep/c.tsv", "d.txt")
    assert relative(list_input_files([tmp_path / "*.tsv"]).paths, tmp_path) == ["a.tsv", "b.tsv"]
    assert relative(list_input_files([tmp_path / "**/*.tsv"]).paths, tmp_path) == ["a.tsv", "b.tsv", "deep/c.tsv"]
    assert list_input_files([tmp_path / "**"]).repeated == 0


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    write(tmp_path, "a[1].tsv", "a1.tsv")
    assert relative(list_input_files([tmp_path / "a[1].tsv"]).paths, tmp_path) == ["a[1].tsv"]


def test_a_pattern_that_matches_nothing_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"No file matches .*\*\.tsv"):
        list_input_files([tmp_path / "*.tsv"])


def test_the_settings_of_brat_above_folders_of_pairs_are_no_documents(tmp_path: Path) -> None:
    write(tmp_path, "annotation.conf", "visual.conf", "Train/x.txt", "Train/x.ann", "Dev/y.txt", "Dev/y.ann")
    assert relative(list_input_files([tmp_path]).paths, tmp_path) == ["Dev", "Train"]


def test_settings_of_brat_are_no_document_when_all_files_are_named(tmp_path: Path) -> None:
    for name, content in {"a.txt": "No fever.", "a.ann": "", "annotation.conf": "[entities]\n"}.items():
        (tmp_path / name).write_text(content)
    assert [file.path.name for file in list_input_files(sorted(tmp_path.iterdir())).files] == ["a.txt"]
