"""Lexicons are compiled once, and what is mapped finds exactly what was compiled."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert.errors import BadFile
from alembert.text import lexicon_cache
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import Lexicon, read_lexicon
from alembert.text.lexicon_cache import LexiconFile, StopLists, get_lexicon_folder, open_lexicons

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
TEXT = "The WAS gene, BRAF and acute abdomen; abdomen, acute and gout."


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, which keeps the smallest lexicons."""
    monkeypatch.setenv("ALEMBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(lexicon_cache, "MIN_CACHED_TERMS", 0)
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many lexicons were compiled together, each time."""
    counts: list[int] = []
    build = Gazetteer.from_lexicons

    def count(lexicons, **options):  # type: ignore[no-untyped-def]
        counts.append(len(lexicons))
        return build(lexicons, **options)

    monkeypatch.setattr(Gazetteer, "from_lexicons", count)
    return counts


@pytest.fixture
def genes(tmp_path: Path) -> LexiconFile:
    return write(tmp_path / "genes.tsv", "WAS\tH:1", "BRAF\tH:2", "BRAF\tH:3")


@pytest.fixture
def diseases(tmp_path: Path) -> LexiconFile:
    return write(tmp_path / "diseases.tsv", "Abdomen, Acute\tD:1", "gout\tD:2")


def write(path: Path, *rows: str) -> LexiconFile:
    path.write_text("".join(f"{row}\n" for row in rows))
    return LexiconFile(path.stem, path)


def kept() -> list[Path]:
    return sorted(get_lexicon_folder().glob("*"))


# -- the same matches


def compare(one: Gazetteer, other: Gazetteer, texts: list[str]) -> None:
    seen: tuple[set[int], set[int]] = (set(), set())
    assert one.find_all(texts, seen[0]) == other.find_all(texts, seen[1])
    assert one.find_all(texts, apart=True) == other.find_all(texts, apart=True)
    assert seen[0] == seen[1]
    assert one.list_unmatched(seen[0], 3) == other.list_unmatched(seen[1], 3)
    assert (one.labels, one.counts) == (other.labels, other.counts)


WORDS = st.sampled_from(
    ["BRAF", "IL-6", "il6", "Gout", "gout", "TNFα", "Abdomen, Acute", "acute abdomen", "糖尿病", "WAS"]
)
ROWS = st.lists(st.tuples(WORDS, st.sampled_from(["", "D:1", "Δ:2", "3"])), min_size=1, max_size=9)


@dataclass(frozen=True)
class Listed:
    """Rows with a name of their own."""

    label: str
    rows: tuple[tuple[str, str], ...]
    path: Path | None = None

    def identify(self) -> str:
        return repr(self.rows)

    def read(self) -> Lexicon:
        return Lexicon(self.label, list(self.rows))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROWS, max_size=3), st.lists(st.lists(WORDS).map(" ".join), max_size=4))
def test_what_is_mapped_finds_what_was_compiled(rows: list[list[tuple[str, str]]], texts: list[str]) -> None:
    sources = [Listed(f"x{number}", tuple(each)) for number, each in enumerate(rows)]
    open_lexicons(sources)
    mapped = open_lexicons(sources).gazetteer
    compare(mapped, Gazetteer.from_lexicons([source.read() for source in sources]), texts)


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
def test_real_lexicons_find_the_same() -> None:
    files = [LexiconFile(name, SHARED / f"lexicon/{name}.tsv.gz") for name in ("drug", "phenotype")]
    plain = Gazetteer.from_lexicons([read_lexicon(file.path, file.label) for file in files])
    open_lexicons(files)
    text = (SHARED / "ner/NCBI-disease-pubtator/NCBItestset_corpus.txt").read_text()
    compare(open_lexicons(files).gazetteer, plain, text.splitlines())


# -- when lexicons are compiled


def test_lexicons_are_compiled_once(compiled: list[int], genes: LexiconFile, diseases: LexiconFile) -> None:
    found = [open_lexicons([genes, diseases]).gazetteer.find(TEXT) for _ in range(2)]
    assert compiled == [2]
    assert found[0] == found[1]
    assert [match.concepts for match in found[1]] == [("H:2", "H:3"), ("D:1",), ("D:1",), ("D:2",)]


def test_the_same_file_elsewhere_is_not_compiled_again(compiled: list[int], genes: LexiconFile) -> None:
    open_lexicons([genes])
    copy = genes.path.rename(genes.path.with_name("copy.tsv"))
    open_lexicons([LexiconFile("genes", copy)])
    assert compiled == [1]


def test_whatever_decides_about_matches_is_compiled_anew(
    compiled: list[int], genes: LexiconFile, diseases: LexiconFile
) -> None:
    def find(*files: LexiconFile, **lists: list[str]) -> list[str]:
        matches = open_lexicons(files, StopLists(**lists)).gazetteer.find(TEXT)
        return [f"{TEXT[match.start : match.end]} {match.label}" for match in matches]

    open_lexicons([diseases, genes])
    assert find(genes) == ["BRAF genes"]
    assert find(LexiconFile("names", genes.path)) == ["BRAF names"]
    assert find(genes, keep=["was"]) == ["WAS genes", "BRAF genes"]
    assert find(genes, stop=["braf"]) == ["WAS genes"]
    assert find(genes, ordinary=["braf"]) == []
    write(genes.path, "gout")
    assert find(genes) == ["gout genes"]
    assert find(genes, diseases)[-1] == "gout genes"
    assert find(diseases, genes)[-1] == "gout diseases"
    assert compiled == [2, 1, 1, 1, 1, 1, 1, 2, 2]


def test_a_file_that_is_read_as_csv_by_its_name_is_another(compiled: list[int], tmp_path: Path) -> None:
    for name in ("a.txt", "a.csv"):
        file = write(tmp_path / name, "gout,podagra", "asthma,wheeze")
        assert len(open_lexicons([file]).gazetteer.find("gout")) == (name == "a.csv")
    assert compiled == [1, 1]


def test_other_code_compiles_anew(compiled: list[int], genes: LexiconFile, monkeypatch: pytest.MonkeyPatch) -> None:
    open_lexicons([genes])
    monkeypatch.setattr(lexicon_cache, "_hash_code", lambda: "of another version")
    open_lexicons([genes])
    assert compiled == [1, 1]


def test_a_file_that_changes_meanwhile_is_not_kept(genes: LexiconFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_late(path: Path, label: str) -> Lexicon:
        lexicon = read_lexicon(path, label)
        write(path, "gout")
        return lexicon

    monkeypatch.setattr(lexicon_cache, "read_lexicon", read_late)
    assert open_lexicons([genes]).gazetteer.find("BRAF")
    assert kept() == []


def test_bad_rows_are_named_again_with_the_file_of_this_run(genes: LexiconFile) -> None:
    write(genes.path, "BRAF\tH:2", "bad", "TP53\tH:3")
    first = open_lexicons([genes])
    moved = LexiconFile("genes", genes.path.rename(genes.path.with_name("moved.tsv")))
    again = open_lexicons([moved])
    assert first.bad == again.bad
    assert again.bad_count == 1
    assert again.warnings()[0].startswith(f"{moved.path}, line 2: ")


def test_a_missing_file_is_refused_as_ever(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.tsv cannot be read"):
        open_lexicons([LexiconFile("x", tmp_path / "none.tsv")])


# -- the files


@pytest.mark.parametrize("size", [0, 10, 100, -1])
def test_a_truncated_file_is_compiled_anew(compiled: list[int], genes: LexiconFile, size: int) -> None:
    open_lexicons([genes])
    (path,) = kept()
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    assert open_lexicons([genes]).gazetteer.find("BRAF")
    assert compiled == [1, 1]
    assert path.read_bytes() == whole


def test_a_file_of_other_lexicons_is_compiled_anew(
    compiled: list[int], genes: LexiconFile, diseases: LexiconFile
) -> None:
    open_lexicons([diseases])
    (other,) = kept()
    open_lexicons([genes])
    (path,) = set(kept()) - {other}
    path.write_bytes(other.read_bytes())
    assert open_lexicons([genes]).gazetteer.find("BRAF")
    assert len(compiled) == 3


def test_a_folder_that_cannot_be_written_costs_time_alone(compiled: list[int], genes: LexiconFile, cache: Path) -> None:
    cache.write_text("no folder")
    assert all(open_lexicons([genes]).gazetteer.find("BRAF") for _ in range(2))
    assert compiled == [1, 1]


def test_a_few_are_kept_those_used_lately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon_cache, "MAX_CACHE_FILES", 2)
    files = [write(tmp_path / f"{number}.tsv", f"BRAF{number}") for number in range(3)]
    for age, file in zip((30, 20), files, strict=False):
        open_lexicons([file])
        newest = max(kept(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (newest.stat().st_atime, newest.stat().st_mtime - age))
    open_lexicons([files[0]])  # which makes it the newest
    open_lexicons([files[2]])
    assert len(kept()) == 2
    with pytest.raises(AssertionError, match="compiled"):
        refuse_to_compile(monkeypatch, files[1])
    refuse_to_compile(monkeypatch, files[0])


def refuse_to_compile(monkeypatch: pytest.MonkeyPatch, file: LexiconFile) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled")

    with monkeypatch.context() as patch:
        patch.setattr(Gazetteer, "from_lexicons", refuse)
        open_lexicons([file])


def test_large_ones_are_not_kept(genes: LexiconFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon_cache, "MAX_CACHE_BYTES", 100)
    assert open_lexicons([genes]).gazetteer.find("BRAF")
    assert kept() == []


def test_small_ones_are_not_kept(genes: LexiconFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon_cache, "MIN_CACHED_TERMS", 4)
    assert open_lexicons([genes]).gazetteer.find("BRAF")
    assert kept() == []
