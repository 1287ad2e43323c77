"""Building a corpus: nothing is lost, offsets are exact, and the bytes depend on the inputs and settings alone."""

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from alembert import artifact
from alembert.cli.corpus import app
from alembert.corpus.build import BuildResult, LexiconFiles, build
from alembert.corpus.chunks import ChunkProcessor
from alembert.corpus.clean import BuildSettings, CleanSettings
from alembert.corpus.readers import SetAside
from alembert.corpus.readers.contract import generalise_reason
from alembert.corpus.store import Corpus
from alembert.errors import BadFile, BadSetting, UserError
from alembert.settings import apply_changes, read_toml
from alembert.workers import pool

SMALL = BuildSettings(part_characters=2_000)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def sentence(number: int) -> str:
    names = ("aspirin", "imatinib", "BRAF", "gout", "interleukin 6", "糖尿病")
    return f"Patient {number} of trial {number * 7919 % 1000} was given {names[number % 6]} for {number} days."


def article(number: int, sentences: int = 6) -> dict[str, Any]:
    text = " ".join(sentence(number * 1000 + place) for place in range(sentences))
    return {
        "id": f"d{number}",
        "title": f"Study number {number} of the effects of a drug",
        "abstract": [text],
    }


def write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def citation(pmid: int, title: str, more: str = "") -> str:
    return (
        f"<PubmedArticle><MedlineCitation><PMID>{pmid}</PMID><Article><ArticleTitle>{title}</ArticleTitle>"
        f"<Language>eng</Language></Article>{more}</MedlineCitation></PubmedArticle>"
    )


def medline(path: Path, *records: str) -> Path:
    path.write_text(f"<PubmedArticleSet>{''.join(records)}</PubmedArticleSet>")
    return path


def deletion(pmid: int) -> str:
    return f"<DeleteCitation><PMID>{pmid}</PMID></DeleteCitation>"


@pytest.fixture
def words(tmp_path: Path) -> LexiconFiles:
    (tmp_path / "drug.tsv").write_text("term\tid\naspirin\tD1\nimatinib\tD2\n")
    (tmp_path / "disease.txt").write_text("gout\n糖尿病\n")
    return LexiconFiles(lexicons={"drug": tmp_path / "drug.tsv", "disease": tmp_path / "disease.txt"})


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    return [write_lines(tmp_path / f"{n}.jsonl", [article(n * 100 + k) for k in range(20)]) for n in range(3)]


def built(inputs: list[Path], out: Path, **options: Any) -> tuple[BuildResult, Corpus]:
    options.setdefault("workers", 1)
    return build(inputs, out, **options), Corpus.open(out)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ids(corpus: Corpus) -> list[str]:
    return [entry.document.id for entry in corpus.entries()]


def test_documents_come_in_the_order_of_the_inputs(inputs: list[Path], tmp_path: Path) -> None:
    _, corpus = built(inputs, tmp_path / "out", settings=SMALL)
    assert ids(corpus) == [f"d{n * 100 + k}" for n in range(3) for k in range(20)]
    assert len(corpus.parts) > 3


def test_sentences_and_entities_are_exact_slices(inputs: list[Path], words: LexiconFiles, tmp_path: Path) -> None:
    _, corpus = built(inputs[:1], tmp_path / "out", lexicon_files=words)
    first = next(iter(corpus.entries()))
    text = first.document.text
    expected = [article(0)["title"], *(sentence(place) for place in range(6))]
    assert [text[start:end] for start, end in first.sentences] == expected
    assert [(text[e.start : e.end], e.label, e.concepts) for e in first.entities] == [
        ("aspirin", "drug", ("D1",)),
        ("imatinib", "drug", ("D2",)),
        ("gout", "disease", ()),
        ("糖尿病", "disease", ()),
    ]


def test_cleaning_carries_annotations_along(tmp_path: Path) -> None:
    text = "Two  spaces\u00a0before BRAF\u00ad V600E in the text of this record."
    span = [text.index("BRAF"), text.index(" V600E")]
    record = {"id": "a", "text": text, "entities": [{"id": "T1", "label": "Gene", "spans": [span]}]}
    path = write_lines(tmp_path / "in.jsonl", [record])
    _, corpus = built([path], tmp_path / "out")
    (entry,) = corpus.entries()
    assert [entity.surface(entry.document.text) for entity in entry.document.entities] == ["BRAF"]
    assert [(mention.label, mention.gold) for mention in entry.entities] == [("Gene", True)]


def test_discontinuous_mentions_and_relations_survive(tmp_path: Path) -> None:
    record = {
        "id": "a",
        "text": "Breast or ovarian cancer was treated with aspirin here.",
        "entities": [
            {"id": "T1", "label": "Disease", "spans": [[0, 6], [18, 24]]},
            {"id": "T2", "label": "Drug", "spans": [[42, 49]], "concepts": ["D1"]},
        ],
        "relations": [{"id": "R1", "label": "treats", "arguments": [["drug", "T2"], ["disease", "T1"]]}],
    }
    _, corpus = built([write_lines(tmp_path / "in.jsonl", [record])], tmp_path / "out")
    (entry,) = corpus.entries()
    assert entry.document.entities[0].spans == ((0, 6), (18, 24))
    assert entry.document.relations[0].arguments == (("drug", "T2"), ("disease", "T1"))


def test_any_number_of_workers_writes_the_same_bytes(inputs: list[Path], words: LexiconFiles, tmp_path: Path) -> None:
    for workers in (1, 2, 5):
        build(inputs, tmp_path / str(workers), lexicon_files=words, settings=SMALL, workers=workers)
    assert content(tmp_path / "1") == content(tmp_path / "2") == content(tmp_path / "5")


def test_several_workers_share_one_file(tmp_path: Path) -> None:
    one = write_lines(tmp_path / "in.jsonl", [article(k) for k in range(200)])
    build([one], tmp_path / "1", settings=SMALL, workers=1)
    build([one], tmp_path / "4", settings=SMALL, workers=4)
    assert content(tmp_path / "1") == content(tmp_path / "4")


def test_a_complete_corpus_is_left_alone(inputs: list[Path], tmp_path: Path) -> None:
    build(inputs, tmp_path / "out", workers=1)
    before = (tmp_path / "out/manifest.json").stat().st_mtime_ns
    assert not build(inputs, tmp_path / "out", workers=2).fresh
    assert (tmp_path / "out/manifest.json").stat().st_mtime_ns == before


def test_counts_add_up(inputs: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(
        "\n".join(["not json", json.dumps(article(3)), json.dumps(article(5000)), '{"id": "e"}', '{"text": "Hm."}'])
    )
    result, _ = built([*inputs, bad], tmp_path / "out")
    counts = result.manifest.counts
    dropped = {name: n for name, n in counts.items() if name.startswith("dropped: ")}
    assert counts["documents read"] == counts["documents"] + sum(dropped.values()) == 63
    assert dropped == {"dropped: exact duplicate": 1, "dropped: too short": 1}
    assert counts["records read"] == counts["documents read"] + counts["records set aside"] == 65
    assert sum(n for name, n in counts.items() if name.startswith("set aside: ")) == counts["set aside"] == 2


def annotated(name: str, text: str, *spans: tuple[int, int]) -> dict[str, Any]:
    entities = [{"id": f"T{number}", "label": "Disease", "spans": [list(span)]} for number, span in enumerate(spans)]
    return {"id": name, "text": text, "entities": entities}


def test_gold_entities_add_up(tmp_path: Path) -> None:
    short = annotated("short", "Gout.", (0, 4))
    whole = annotated("whole", "The gout of the patients was treated with aspirin.", (4, 8), (16, 24))
    heading = "BODY.GOUT:\nThe fever of the patients was treated with aspirin."
    cut = annotated("cut", heading, (5, 9), (15, 20))
    german = annotated("german", "Die Gicht der Patienten wurde mit Aspirin behandelt.", (4, 9))
    path = write_lines(tmp_path / "in.jsonl", [short, whole, {**whole, "id": "twin"}, cut, german])
    only = BuildSettings(clean=CleanSettings(languages=("en",)))
    result, corpus = built([path], tmp_path / "out", settings=only)
    counts = result.manifest.counts
    assert ids(corpus) == ["short", "whole", "cut"]
    names = ("read", "dropped", "cleaned away")
    assert [counts[f"gold entities {name}"] for name in names] == [8, 3, 1]
    assert counts["gold entities"] == 8 - 3 - 1


def test_what_is_set_aside_is_counted_by_kind() -> None:
    items = [
        SetAside("in", "line 1", None, "the row has 3 columns where the first has 4"),
        SetAside("in", "line 2", "7", "annotation T12 has no place", "annotation"),
        SetAside("in", "line 3", "8", "annotation T3 has no place", "annotation"),
        SetAside("in", "after line 3", None, "the file is cut", "file"),
    ]
    counts = ChunkProcessor(CleanSettings(), None).process(items, "in", None).counts
    assert counts == {
        "set aside": 4,
        "records set aside": 1,
        "annotations set aside": 2,
        "files set aside": 1,
        "set aside: the row has N columns where the first has N": 1,
        "set aside: annotation N has no place": 2,
        "set aside: the file is cut": 1,
    }


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("the file grows more than 500-fold, like a bomb", "the file grows more than N-fold, like a bomb"),
        ("byte 12 of the line is not utf-8; see encoding=", "byte N of the line is not utf-8"),
        ("some bytes are not gb18030", "some bytes are not gb18030"),
        ("the record is longer than max_record (67108864 bytes)", "the record is longer than max_record"),
    ],
)
def test_counts_have_names_that_read_well(reason: str, kind: str) -> None:
    assert generalise_reason(reason) == kind


def test_counts_are_those_of_the_parts(inputs: list[Path], words: LexiconFiles, tmp_path: Path) -> None:
    result, corpus = built([*inputs, inputs[0]], tmp_path / "out", lexicon_files=words, settings=SMALL)
    counts = result.manifest.counts
    entries = list(corpus.entries())
    assert counts["documents"] == len(entries) == 60
    assert counts["sentences"] == sum(len(entry.sentences) for entry in entries)
    assert counts["characters"] == sum(len(entry.document.text) for entry in entries)
    assert counts["entities: drug"] == sum(mention.label == "drug" for _, mention in corpus.mentions())


def test_the_last_citation_wins_and_a_deletion_ends_it(tmp_path: Path) -> None:
    first = medline(
        tmp_path / "1.xml",
        *(citation(pmid, f"Number {pmid} was the first title of it") for pmid in (1, 2, 3)),
    )
    second = medline(tmp_path / "2.xml", citation(2, "This is the second title of number two"), deletion(3))
    result, corpus = built([first, second], tmp_path / "out")
    titles = {entry.document.id: entry.document.text for entry in corpus.entries()}
    assert titles == {
        "1": "Number 1 was the first title of it",
        "2": "This is the second title of number two",
    }
    counts = result.manifest.counts
    assert (counts["dropped: superseded"], counts["dropped: deleted"], counts["deletions read"]) == (1, 1, 1)


@pytest.mark.parametrize(
    "unusable",
    [
        citation(1, "Hm."),
        citation(1, "Die Wirkung von Aspirin auf die Gicht wurde untersucht."),
        citation(1, ""),
    ],
    ids=["too short", "another language", "no text"],
)
def test_a_revision_that_cannot_be_used_replaces_nothing(unusable: str, tmp_path: Path) -> None:
    good = medline(tmp_path / "1.xml", citation(1, "The effect of aspirin on gout was studied"))
    later = medline(tmp_path / "2.xml", unusable)
    only = BuildSettings(clean=CleanSettings(languages=("en",)))
    result, corpus = built([good, later], tmp_path / "out", settings=only)
    assert [entry.document.text for entry in corpus.entries()] == ["The effect of aspirin on gout was studied"]
    assert "dropped: superseded" not in result.manifest.counts


def test_a_translation_goes_with_its_citation(tmp_path: Path) -> None:
    other = (
        "<OtherAbstract Language='ger'><AbstractText>Die Wirkung von Aspirin auf die Gicht wurde untersucht."
        "</AbstractText></OtherAbstract>"
    )
    first = medline(tmp_path / "1.xml", citation(1, "The effect of aspirin on gout was studied", other))
    second = medline(tmp_path / "2.xml", citation(1, "A new title says that gout was studied again"))
    _, corpus = built([first], tmp_path / "one", settings=BuildSettings(part_characters=1))
    assert ids(corpus) == ["1", "1/de"]
    _, corpus = built([first, second], tmp_path / "two", settings=BuildSettings(part_characters=1))
    assert ids(corpus) == ["1"]


def test_near_duplicates_are_dropped_across_files(tmp_path: Path) -> None:
    record = article(1, sentences=40)
    twin = {
        **record,
        "id": "twin",
        "abstract": [record["abstract"][0].replace("Patient 1005", "Subject 1005")],
    }
    paths = [write_lines(tmp_path / "a.jsonl", [record]), write_lines(tmp_path / "b.jsonl", [twin])]
    result, corpus = built(paths, tmp_path / "out")
    assert ids(corpus) == ["d1"]
    assert result.manifest.counts["dropped: near duplicate"] == 1


def test_steps_can_be_switched_off(inputs: list[Path], tmp_path: Path) -> None:
    off = BuildSettings(clean=CleanSettings(exact_duplicates=False, near_duplicates=False))
    again = tmp_path / "again.jsonl"
    again.write_bytes(inputs[0].read_bytes())
    _, corpus = built([inputs[0], again], tmp_path / "out", settings=off)
    assert len(ids(corpus)) == 40


def test_a_truncated_file_gives_what_it_has(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"{json.dumps(article(k))}\n" for k in range(50)).encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.jsonl").touch()
    result, corpus = built([tmp_path / "cut.jsonl.gz", tmp_path / "empty.jsonl"], tmp_path / "out")
    assert 0 < result.manifest.counts["documents"] < 50
    assert [(row["file"], row["reason"]) for row in corpus.set_aside()] == [
        ("cut.jsonl.gz", "the gzip stream ends too early: the file is truncated"),
        ("empty.jsonl", "the file is empty"),
    ]


def test_nothing_to_keep_is_still_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    _, corpus = built([tmp_path / "empty.jsonl"], tmp_path / "out")
    assert ids(corpus) == []


def test_inputs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        paths.append(write_lines(tmp_path / str(number) / "same.jsonl", [article(number)]))
    _, corpus = built(paths, tmp_path / "out")
    assert [entry.source for entry in corpus.entries()] == ["1/same.jsonl", "2/same.jsonl"]


def test_a_stopped_build_goes_on_with_what_is_staged(
    inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(inputs, tmp_path / "whole", settings=SMALL, workers=1)
    with monkeypatch.context() as stopped:
        stopped.setattr("alembert.corpus.build.write_parts", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        with pytest.raises(UserError, match="run the same command again"):
            build(inputs, tmp_path / "out", settings=SMALL, workers=1)
    monkeypatch.setattr("alembert.corpus.build.stage_chunks", None)  # nothing may be staged again
    build(inputs, tmp_path / "out", settings=SMALL, workers=1)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_another_configuration_does_not_go_on(
    inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alembert.corpus.build.write_parts", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(UserError):
        build(inputs, tmp_path / "out", workers=1)
    with pytest.raises(BadFile, match="part_characters"):
        build(inputs, tmp_path / "out", settings=SMALL, workers=1)


def refuse() -> None:
    raise BadFile("The disk is full.")


def test_the_refusal_of_a_worker_is_that_of_the_build() -> None:
    with pytest.raises(UserError, match="The disk is full"):
        pool.run_processes(refuse, 2, lambda: None)


def test_a_missing_input_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="does not exist"):
        build([tmp_path / "nowhere.jsonl"], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(BadFile, match="save it to a file first"):
        build([tmp_path / "pipe.jsonl"], tmp_path / "out")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("path", ["/dev/stdin", "/dev/null", "/dev/fd/0"])
def test_a_device_is_refused(path: str, tmp_path: Path) -> None:
    if not Path(path).exists():
        pytest.skip(f"this system has no {path}")
    with pytest.raises(BadFile, match="a pipe or a device"):
        build([path], tmp_path / "out")


def test_settings_from_a_file_are_those_of_the_dataclass(tmp_path: Path) -> None:
    (tmp_path / "corpus.toml").write_text(
        'part_documents = 10\n[clean]\nlanguages = ["en"]\nsimilarity = 1\n[read]\nid = "pmid"\n'
    )
    settings = apply_changes(BuildSettings(), read_toml(tmp_path / "corpus.toml"), "corpus.toml")
    assert (settings.part_documents, settings.clean.languages, settings.read.id) == (10, ("en",), "pmid")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"clean": {"min_word": 3}}, "nearest known key is `min_words`."),
        ({"min_words": 3}, r"`min_words` belongs under \[clean\]"),
        ({"min_word": 3}, r"nearest known key is `min_words`, under \[clean\]"),
        ({"part_characters": "many"}, "not a whole number"),
        ({"clean": {"form": "NFD"}}, "one of 'NFC', 'NFKC'"),
        ({"clean": {"languages": [1]}}, "not a list of strings"),
        ({"format": "word"}, "which no reader has"),
    ],
)
def test_a_bad_setting_is_named(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        apply_changes(BuildSettings(), table, "corpus.toml")


def test_the_manifest_says_how_it_was_built(inputs: list[Path], words: LexiconFiles, tmp_path: Path) -> None:
    build(inputs, tmp_path / "out", lexicon_files=words, workers=1)
    manifest = artifact.verify(tmp_path / "out")
    assert manifest.config["clean"]["min_words"] == 4
    assert manifest.config["lexicons"][0] == {"label": "drug", "file": "drug.tsv"}
    assert [each.name for each in manifest.inputs] == [
        "0.jsonl",
        "1.jsonl",
        "2.jsonl",
        "drug.tsv",
        "disease.txt",
    ]


def command(*arguments: object) -> int:
    return int(app(args=list(map(str, arguments)), prog_name="corpus", standalone_mode=False) or 0)


def test_the_command_prints_counts_as_json(
    inputs: list[Path], words: LexiconFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lexicon = f"drug={words.lexicons['drug']}"
    code = command("build", *inputs, "--out", tmp_path / "out", "--lexicon", lexicon, "--json", "--language", "en,zh")
    assert code == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 60


def test_the_command_says_that_a_corpus_is_complete(
    inputs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("build", *inputs, "--out", tmp_path / "out")
    assert command("build", *inputs, "--out", tmp_path / "out") == 0
    assert "already complete" in capsys.readouterr().err


def test_the_command_ends_with_3_if_something_was_set_aside(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [article(1), "a bare string"])
    assert command("build", path, "--out", tmp_path / "out") == 3


def test_a_second_run_says_so_too(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [article(1), "a bare string"])
    assert [command("build", path, "--out", tmp_path / "out") for _ in range(2)] == [3, 3]


def test_a_corpus_of_other_settings_is_replaced_only_on_request(inputs: list[Path], tmp_path: Path) -> None:
    command("build", *inputs, "--out", tmp_path / "out")
    with pytest.raises(BadFile, match="out"):
        command("build", inputs[0], "--out", tmp_path / "out")
    assert command("build", inputs[0], "--out", tmp_path / "out", "--overwrite") == 0
    assert Corpus.open(tmp_path / "out").counts["documents"] == 20


def test_the_same_corpus_is_not_built_again_on_request(inputs: list[Path], tmp_path: Path) -> None:
    build(inputs, tmp_path / "out", workers=1)
    assert not build(inputs, tmp_path / "out", workers=1, overwrite=True).fresh


def test_the_command_notes_a_guessed_encoding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "糖尿病患者的治疗方法和药物选择以及护理要点，医生建议患者每天按时服药。"
    for number in range(2):
        (tmp_path / f"{number}.txt").write_bytes(f"{text}第{number}次。".encode("gb18030"))
    command("build", tmp_path / "0.txt", tmp_path / "1.txt", "--out", tmp_path / "out")
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1
    assert "guessed: gb18030 (2)" in notes[0]


def test_real_annotations_survive(shared: Path, tmp_path: Path) -> None:
    files = sorted((shared / "ner/NCBI-disease-pubtator").glob("*.txt"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    off = BuildSettings(clean=CleanSettings(exact_duplicates=False, near_duplicates=False))
    result, corpus = built(files, tmp_path / "out", settings=off)
    assert result.manifest.counts["documents"] == sum("|t|" in line[:12] for line in lines)
    marked = [line.split("\t")[3] for line in lines if line.count("\t") >= 4]
    assert sorted(surface for surface, _ in corpus.mentions()) == sorted(" ".join(each.split()) for each in marked)


@pytest.mark.slow
def test_real_medline_file_is_whole(shared: Path, tmp_path: Path) -> None:
    result, _ = built([shared / "corpus/pubmed21n1298.xml.gz"], tmp_path / "out", workers=2)
    counts = result.manifest.counts
    assert (counts["records read"], counts["deletions read"]) == (20_788, 20)
    dropped = sum(number for name, number in counts.items() if name.startswith("dropped: "))
    assert counts["documents"] + dropped == counts["documents read"]


def test_a_file_name_that_is_not_unicode_is_read(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt"))
    file.write_text(" ".join(sentence(n) for n in range(6)))
    _, corpus = built([file], tmp_path / "out")
    assert ids(corpus) == [r"caf\udce9"]
    json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [article(1)])
    result = build([source, tmp_path / "a.jsonl"], tmp_path / "out", workers=1)
    assert result.manifest.counts["documents read"] == 1
    assert any("each document is read once" in note for note in result.notes)


def test_documents_of_files_with_one_name_have_ids_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "letter.txt").write_text(f"The letter of patient {name} says that all is well today.")
    _, corpus = built([tmp_path / "in"], tmp_path / "out")
    assert ids(corpus) == ["a/letter", "b/letter"]


def test_terms_that_were_never_found_are_counted_and_named(tmp_path: Path) -> None:
    texts = [
        "The gout of the first patient came back.",
        "Acute myeloid leukemia was found in another patient.",
    ]
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)))
    (tmp_path / "d.txt").write_text("gout\nLeukemia, Myeloid, Acute\nlupus\nscurvy\n")
    (tmp_path / "e.txt").write_text("lupus\n")
    words = LexiconFiles(lexicons={"disease": tmp_path / "d.txt", "other": tmp_path / "e.txt"})
    result = build([source], tmp_path / "out", lexicon_files=words, workers=2)
    counts = result.manifest.counts
    assert (counts["terms not found: disease"], counts["terms not found: other"]) == (2, 1)
    assert "disease: 2 of 4 terms were not found, such as lupus, scurvy" in result.notes
    assert "other: 1 of 1 terms were not found, such as lupus" in result.notes
