"""What a tagger reads beside its pieces: letter case, and matches of lexicons that may grow after training."""

import gzip
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import alembert
from alembert.cli.annotate import _open_pipeline
from alembert.compress import ExportSettings
from alembert.compress.export import ExportData, export
from alembert.errors import BadFile, BadSetting, UserError
from alembert.files import checkpoint as checkpoints
from alembert.files.surgery import with_token_features
from alembert.infer.annotate import annotate
from alembert.infer.annotate_chunks import RayExecutor
from alembert.infer.annotate_pipeline import Pipeline
from alembert.infer.task_model import TaskModel
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.model import new_model
from alembert.tasks.files import read_task
from alembert.tasks.runtime.export_files import ExportFormat
from alembert.tasks.runtime.torch import collate_rows
from alembert.tasks.tag.data import TagExample, TagSettings
from alembert.tasks.tag.features import TagLexicons
from alembert.tasks.tag.task import TagTask
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import Lexicon
from alembert.text.surface import MATCH_TAGS, SHAPES, PieceOffsets, SurfaceFeatures
from alembert.workers.ray import RayCluster
from small_checkpoints import fine_tuned
from task_cases import LEXICONS, TOKENIZER

TEXT = "Type 2 diabetes, mRNA; melanoma."


def surface_of(case: bool = False, **lexicons: Sequence[str]) -> SurfaceFeatures:
    listed = [Lexicon(label, [(term, "") for term in terms]) for label, terms in lexicons.items()]
    return SurfaceFeatures(case, Gazetteer.from_lexicons(listed) if listed else None)


def write_terms(path: Path, *terms: str) -> Path:
    path.write_text("".join(f"{term}\n" for term in terms), encoding="utf8")
    return path


def task_of(*options: str, **settings: Any) -> TagTask:
    return TagTask(("disease",), TagSettings(**settings), lexicons=TagLexicons.read(options))


def features_of(task: TagTask, *texts: str, longest: int = 512) -> list[np.ndarray]:
    examples = [TagExample(id=str(number), texts=(text,)) for number, text in enumerate(texts)]
    return [row.features.rows_TF for each in task.encode(examples, TOKENIZER, longest) for row in each.rows]


# -- which features


def test_pieces_have_the_tags_of_matches_and_the_shapes_of_words(tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "terms.txt", "type 2 diabetes", "melanoma")
    task = task_of(f"d={terms}", case=True)
    rows = features_of(task, TEXT)[0] - task.surface.nothing_F
    encoding = TOKENIZER.encode_batch([TEXT], add_special_tokens=False)[0]
    tags = [{row[2] for row, word in zip(rows[1:-1], encoding.word_ids, strict=True) if word == n} for n in range(8)]
    expected = ["begin", "inside", "end", None, None, None, "single", None]
    assert tags == [{0 if tag is None else 1 + MATCH_TAGS.index(tag)} for tag in expected]
    assert rows[0].tolist() == rows[-1].tolist() == [0, 0, 0]
    assert rows[1][0] == 1 + SHAPES.index("title")


def test_a_word_may_be_a_term_of_several_lexicons() -> None:
    matches = surface_of(a=["breast cancer"], b=["cancer"]).find_matches(["breast cancer"])
    assert matches == [[(0, 13, 0), (7, 13, 1)]]


def test_two_matches_that_touch_one_word_stay_inside_the_table() -> None:
    surface = surface_of(a=["TNF", "IL6"])
    whole = PieceOffsets(np.array([0]), np.array([7]), np.array([0]))
    assert surface.compute(["TNF/IL6"], [whole])[0].rows_NF.max() < sum(surface.blocks.values())


@given(
    st.lists(st.sampled_from(["gout", "asthma", "Sepsis", "(TNF)", "tumor", "necrosis", "factor", "TNF"]), max_size=9)
)
def test_terms_that_are_added_change_no_other_word(words: list[str]) -> None:
    text = " ".join(words)
    before = surface_of(a=["gout"]).find_matches([text])[0]
    after = surface_of(a=["gout", "asthma"]).find_matches([text])[0]
    assert set(before) <= set(after)
    assert {text[start:end] for start, end, _ in set(after) - set(before)} <= {"asthma"}


# -- abbreviations

DEFINED = "He has acute lymphoblastic leukemia (ALL). ALL is rare, and BALL is not ALL."


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("acute lymphoblastic leukemia", ["acute lymphoblastic leukemia", "ALL", "ALL", "ALL"]),
        ("leukemia", ["leukemia"]),
        ("asthma", []),
    ],
)
def test_a_match_of_the_long_form_counts_for_the_short_form(term: str, found: list[str]) -> None:
    matches = surface_of(a=[term]).find_matches([DEFINED])[0]
    assert [DEFINED[start:end] for start, end, _ in matches] == found


def test_a_match_of_the_short_form_counts_for_the_long_form() -> None:
    text = "Hereditary nonpolyposis colorectal cancer (HNPCC): hereditary nonpolyposis colorectal cancer"
    matches = surface_of(a=["HNPCC"]).find_matches([text])[0]
    assert sorted((start, end) for start, end, _ in matches) == [(0, 41), (43, 48), (51, 92)]


def test_abbreviations_hold_in_their_own_document_and_in_all_of_its_windows(tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "terms.txt", "acute lymphoblastic leukemia")
    long = DEFINED + " and so on" * 9 + " of ALL"
    task = task_of(f"d={terms}", max_length=48, overlap=8)
    windows = features_of(task, long, "ALL")
    assert len(windows) > 3
    nothing = task.surface.nothing_F
    assert (windows[-2] != nothing).any()
    assert (windows[-1] == nothing).all()


def test_abbreviations_can_be_left_out(tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "terms.txt", "acute lymphoblastic leukemia")
    with_them, without = (features_of(task_of(f"d={terms}", abbreviations=on), DEFINED)[0] for on in (True, False))
    assert (with_them != without).any()


# -- training


def test_matches_are_dropped_in_training_alone_by_the_seed_alone(tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "terms.txt", "melanoma", "sepsis")
    task = task_of(f"d={terms}", lexicon_dropout=0.5, known_lexicon_dropout=1.0)
    text = "melanoma " + "sepsis " * 20
    example = TagExample(id="1", texts=(text,), entities=((0, 8, "disease"),))
    plain, trained = (
        each.encode([example], TOKENIZER, 512)[0].rows[0].features for each in (task, task.for_training())
    )
    assert len(plain.matches_K3) == 0
    assert trained.dropout_K.tolist() == [1.0, *[0.5] * 20]
    assert (plain.rows_TF == trained.rows_TF).all()
    one, same, other = (trained.drop_matches(seed).rows_TF for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    assert (one[1:9] == task.surface.nothing_F).all()
    assert (plain.drop_matches(3).rows_TF == plain.rows_TF).all()


def test_windows_drop_the_part_of_a_match_that_they_have(tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "terms.txt", "acute lymphoblastic leukemia of the older child")
    task = task_of(f"d={terms}", max_length=24, overlap=4, lexicon_dropout=1.0).for_training()
    example = TagExample(id="1", texts=("an acute lymphoblastic leukemia of the older child",), entities=())
    rows = task.encode([example], TOKENIZER, 64)[0].rows
    assert len(rows) > 1
    assert all((row.features.drop_matches(1).rows_TF == task.surface.nothing_F).all() for row in rows)


def test_a_table_of_zeros_changes_no_bit() -> None:
    shape = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    spec = {"tag": TagTask(("x",), TagSettings()).head()}
    plain = new_model(EncoderConfig(**shape, intermediate_size=24), spec, seed=1).eval()
    reading = new_model(EncoderConfig(**shape, intermediate_size=24, token_features=9), spec, seed=1).eval()
    reading.load_state_dict(plain.state_dict(), strict=False)
    ids = [[3, 4, 5, 6], [7, 8]]
    features = [np.full((len(row), 2), 5) for row in ids]
    with torch.inference_mode():
        one = plain(Batch.packed(ids), ["tag"])["tag"]
        other = reading(Batch.packed(ids, features=features), ["tag"])["tag"]
    assert torch.equal(one, other)


def test_padded_and_packed_batches_agree() -> None:
    config = EncoderConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        token_features=9,
    )
    model = new_model(config, {}, seed=1).eval()
    torch.nn.init.normal_(model.get_parameter("encoder.embeddings.features.weight"))
    ids, features = [[3, 4, 5], [7, 8]], [np.array([[1, 5], [2, 6], [3, 7]]), np.array([[4, 8], [1, 5]])]
    padded_ids = torch.tensor([[3, 4, 5], [7, 8, 0]])
    padded = torch.tensor([features[0].tolist(), [*features[1].tolist(), [0, 0]]])
    with torch.inference_mode():
        packed_ND = model(Batch.packed(ids, features=features))["hidden"]
        batch = Batch.padded(padded_ids, padded_ids != 0, features_BTF=padded)
        padded_ND = model(batch)["hidden"]
    starts = Batch.packed(ids).starts_B.tolist()
    torch.testing.assert_close(packed_ND[starts[0] : starts[0] + 3], padded_ND[:3], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(packed_ND[starts[1] : starts[1] + 2], padded_ND[3:5], atol=1e-5, rtol=1e-5)


# -- what a model begins with


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Any, ...]]:
    folder = tmp_path_factory.mktemp("tagger")
    return folder / "model", fine_tuned("tag, features", folder / "model", folder / "examples.jsonl")


def test_a_student_reads_no_lexicon_unless_it_is_told_to(tagger: Any) -> None:
    task = read_task(tagger[0]).open()
    assert list(task.token_features) == ["none", "case of pieces", "case of words", "lexicon disease", "lexicon drug"]
    assert list(task.for_student().token_features) == ["none", "case of pieces", "case of words"]
    assert task.for_student(lexicons=True).token_features == task.token_features


def test_features_that_both_read_keep_their_rows(tagger: Any) -> None:
    made = checkpoints.open(tagger[0])
    old = read_task(tagger[0]).open().token_features
    turned = {"none": 1, "lexicon drug": 5, "lexicon gene": 5, "case of words": 33}
    table = made.model.get_parameter("encoder.embeddings.features.weight")
    changed = with_token_features(made, turned, old).model.get_parameter("encoder.embeddings.features.weight")
    assert torch.equal(changed[1:6], table[-5:])
    assert not changed[6:11].any()
    assert torch.equal(changed[11:], table[10:43])
    assert with_token_features(made, {}, old).model.encoder.embeddings.features is None
    assert with_token_features(made, old, old) is made


def test_a_checkpoint_without_features_is_written_without_the_key(tmp_path: Path) -> None:
    fine_tuned("tag", tmp_path / "model", tmp_path / "examples.jsonl")
    assert "token_features" not in (tmp_path / "model" / "config.json").read_text()
    table = json.loads((tmp_path / "model" / "task.json").read_bytes())["tasks"]["tag"]
    for name in ("case", "lexicons", "abbreviations", "lexicon_dropout", "known_lexicon_dropout"):
        del table["settings"][name]  # as the last version wrote it
    task = TagTask.from_table(table).load_resources(tmp_path, table)
    assert not task.token_features


# -- folders


def test_a_folder_is_complete_by_itself(tagger: Any, tmp_path: Path) -> None:
    terms = [Path(shutil.copy(option.partition("=")[2], tmp_path)) for option in LEXICONS]
    task = task_of(*(f"lexicon{number}={path}" for number, path in enumerate(terms)))
    saved = task.to_table()
    for name, content in task.resource_files().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for path in terms:
        path.unlink()
    again = TagTask.from_table(saved).load_resources(tmp_path, saved)
    assert again.lexicons.terms == task.lexicons.terms
    assert str(tmp_path) not in json.dumps(saved)
    for one, other in zip(features_of(task, TEXT), features_of(again, TEXT), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("fault", ["missing", "changed", "cut", "no gzip"])
def test_a_folder_whose_terms_were_changed_is_refused(tagger: Any, tmp_path: Path, fault: str) -> None:
    shutil.copytree(tagger[0], tmp_path / "model")
    path = sorted((tmp_path / "model" / "lexicons").iterdir())[0]
    content = path.read_bytes()
    path.unlink()
    if fault != "missing":
        changed = gzip.compress(b"term\nother\n")
        path.write_bytes({"changed": changed, "cut": content[:-9], "no gzip": b"term\n"}[fault])
    with pytest.raises(BadFile, match="Restore the f"):
        TaskModel.open(tmp_path / "model")


# -- terms that are added


def test_added_terms_change_the_features_at_once_and_are_noted(tagger: Any, tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "new.txt", "melanoma", "zebra fever", "the", "x")
    model = TaskModel.open(tagger[0])
    grown = model.with_lexicons([f"disease={terms}"])
    before, after = (features_of(each.task, "zebra fever, melanoma, aspirin")[0] for each in (model, grown))
    assert (before[1:12] != after[1:12]).any()
    assert (before[12:] == after[12:]).all()
    assert grown.lexicon_notes() == [
        "lexicon disease: 5 terms of training + 3 added",
        "terms of the lexicons that are ordinary words, single characters or bare numbers, and are not looked for: 2 of 3",
    ]
    assert model.lexicon_notes() == []


def test_a_loaded_model_takes_terms(tagger: Any, tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "new.txt", "zebra fever")
    plain, grown = alembert.load(tagger[0]), alembert.load(tagger[0], lexicons={"disease": terms})
    assert len(grown.predict(["zebra fever"])) == len(plain.predict(["zebra fever"])) == 1
    with pytest.raises(
        BadSetting, match="No model was trained with a lexicon 'Disease'; lexicons that the models read: d"
    ):
        alembert.load(tagger[0], lexicons={"Disease": terms})


def test_annotating_hands_terms_to_the_tagger_and_counts_them(tagger: Any, tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "new.txt", "zebra fever")
    write_terms(tmp_path / "in.txt", "A zebra fever of the pony.")
    lexicons = {"disease": terms, "animal": write_terms(tmp_path / "animal.txt", "pony")}
    run = annotate(Pipeline.open(tagger[0], lexicons=lexicons), [tmp_path / "in.txt"], tmp_path / "out")
    sentence = "lexicon disease: 5 terms of training + 1 added"
    assert run.manifest.config["added_terms"] == [sentence]
    assert sentence in run.notes
    assert not any("lexicon disease (" in note for note in run.notes)


def test_workers_of_a_cluster_open_the_model_with_the_same_terms(tagger: Any, tmp_path: Path) -> None:
    lexicons = {"disease": write_terms(tmp_path / "new.txt", "zebra fever")}
    pipeline, executor = _open_pipeline([tagger[0]], {"device": "cpu", "lexicons": lexicons}, RayCluster(workers=1))
    assert isinstance(executor, RayExecutor)
    for opened in (pipeline, executor.open_pipeline()):
        assert [part.task.lexicon_notes() for part in opened.models] == [
            ["lexicon disease: 5 terms of training + 1 added"]
        ]


@pytest.mark.parametrize("form", ["openvino", "onnx"])
def test_int8_exports_read_features(tagger: Any, tmp_path: Path, form: ExportFormat) -> None:
    folder, examples = tagger
    settings = ExportSettings(format=form, calibration_rows=6)
    export(checkpoints.open(folder), tmp_path / "export", settings, ExportData(calibration=examples))
    terms = write_terms(tmp_path / "new.txt", *(word for word in examples[0].text.split() if len(word) > 5))
    one, other = TaskModel.open(folder), TaskModel.open(tmp_path / "export")
    assert other.engine.name.endswith("int8")
    scores = [model.task.score(examples, model.predict(examples)).value for model in (one, other)]
    assert scores[0] == pytest.approx(scores[1], abs=0.2)
    assert other.task.lexicons.terms == one.task.lexicons.terms
    read = other.encode(examples[:1])[0]
    grown = other.with_lexicons([f"disease={terms}"]).encode(examples[:1])[0]
    outputs = [other.only.runner.outputs([each])[0][0] for each in (read, grown)]
    assert not np.allclose(*outputs, atol=1e-3)


# -- bad lexicons


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no terms"),
        ("a\tb\tc\nd\ne\nf\n", "rows cannot be used"),
        ("\x00\n\x01\n", "rows cannot be used"),
    ],
)
def test_files_that_are_no_lexicons_are_refused_in_a_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "bad.tsv").write_text(content)
    with pytest.raises(UserError, match=sentence):
        task_of(f"disease={tmp_path / 'bad.tsv'}")


def test_missing_files_and_bad_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        task_of(f"disease={tmp_path / 'none.tsv'}")
    with pytest.raises(UserError, match="LABEL=PATH"):
        task_of(str(tmp_path))


def test_terms_that_are_not_looked_for_are_counted(tmp_path: Path) -> None:
    terms = write_terms(tmp_path / "terms.txt", "melanoma", "a", "7", "with", "and", "?!")
    described = task_of(f"disease={terms}", f"Drug={terms}").describe()
    assert "matches of the lexicon disease are read beside the pieces: 5 terms" in described
    assert "Drug: read as evidence; the tagger has no type of this name" in described
    assert not any(line.startswith("disease: read as evidence") for line in described)
    assert any("ordinary words" in line and "8 of 10" in line for line in described)
    assert any("no letter or digit" in line for line in described)


def test_a_model_without_lexicons_takes_none(tmp_path: Path) -> None:
    fine_tuned("tag", tmp_path / "model", tmp_path / "examples.jsonl")
    terms = write_terms(tmp_path / "terms.txt", "melanoma")
    with pytest.raises(BadSetting, match="its lexicons are: none"):
        TaskModel.open(tmp_path / "model").with_lexicons([f"disease={terms}"])


def test_several_files_of_a_label_are_one_lexicon(tmp_path: Path) -> None:
    one, other = write_terms(tmp_path / "1.txt", "asthma", "gout"), write_terms(tmp_path / "2.txt", "gout", "sepsis")
    assert TagLexicons.read([f"d={one}", f"d={other}"]).terms["d"].read() == ("asthma", "gout", "sepsis")


@pytest.mark.slow
def test_a_million_terms_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALEMBERT_CACHE", str(tmp_path / "cache"))  # they are kept compiled: 108 MB
    terms = write_terms(tmp_path / "terms.txt", *(f"asthma of kind {number}" for number in range(1_000_000)))
    task = task_of(f"disease={terms}")
    assert (features_of(task, "asthma of kind 999999")[0] != task.surface.nothing_F).any()


def test_rows_without_features_stand_beside_rows_with_them(tagger: Any) -> None:
    model = TaskModel.open(tagger[0])
    (read,) = model.encode(tagger[1][:1])
    rows = [read.rows[0], replace(read.rows[0], features=None)]
    batch = collate_rows(rows, [0, 1]).batch
    assert batch.features_NF is not None
    assert len(batch.features_NF) == len(batch.ids_N)
