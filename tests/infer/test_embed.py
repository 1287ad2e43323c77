"""`embed encode`: what the folder holds, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from alembert import artifact
from alembert.errors import BadFile, BadSetting
from alembert.infer.embed import EncodeSettings, encode, open_embedder
from alembert.infer.embedder import ModelOrigin
from alembert.infer.index import VectorIndex
from scripted_embedder import WIDTH, Scripted

TEXTS = [f"Text number {n}. It has two sentences." for n in range(10)] + ["\ud800 咳嗽"]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(f"{json.dumps({'id': f'd{n}', 'text': text})}\n" for n, text in enumerate(TEXTS)))
    return path


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("chunk", [1, 70, 10_000])
def test_each_row_has_the_vector_and_the_text_of_its_unit(docs: Path, tmp_path: Path, dtype: str, chunk: int) -> None:
    encode(Scripted(), [docs], tmp_path / "v", EncodeSettings(dtype=dtype, chunk_characters=chunk))
    index = VectorIndex.open(tmp_path / "v")
    units = [index.read_unit(row) for row in range(len(index))]
    assert [unit.id for unit in units] == [f"d{n}" for n in range(len(TEXTS))]
    expected = Scripted().embed([unit.text for unit in units]).vectors_ND.astype(dtype)
    np.testing.assert_array_equal(np.load(tmp_path / "v/vectors.npy"), expected)


def test_the_size_of_chunks_changes_no_file(docs: Path, tmp_path: Path) -> None:
    for chunk in (1, 10_000):
        settings = EncodeSettings(unit="sentence", int8_copy=True, chunk_characters=chunk)
        encode(Scripted(), [docs], tmp_path / str(chunk), settings)
    files = [artifact.open_artifact(tmp_path / str(chunk)).files for chunk in (1, 10_000)]
    assert files[0] == files[1]


def test_the_copy_is_int8_and_near(docs: Path, tmp_path: Path) -> None:
    encode(Scripted(), [docs], tmp_path / "v", EncodeSettings(int8_copy=True))
    index = VectorIndex.open(tmp_path / "v")
    assert index.copy is not None
    assert index.copy.dtype == np.int8
    np.testing.assert_allclose(index.copy * index.rows["scale"][:, None], index.matrix, atol=0.02)


def test_counts_say_what_became_of_everything(docs: Path, tmp_path: Path) -> None:
    docs.write_text(docs.read_text() + "not json\n")
    result = encode(Scripted(), [docs], tmp_path / "v", EncodeSettings(unit="sentence"))
    counts = result.manifest.counts
    assert (counts["documents"], counts["units"], counts["set aside"]) == (11, 21, 1)
    assert json.loads((tmp_path / "v/set-aside.jsonl").read_text())["position"] == "line 12"
    assert result.added["units"] == 21


def test_nothing_to_encode_is_an_empty_index(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    encode(Scripted(), [tmp_path / "empty.jsonl"], tmp_path / "v", EncodeSettings(int8_copy=True))
    index = VectorIndex.open(tmp_path / "v")
    assert (len(index), index.matrix.shape, index.facts.dimension) == (0, (0, WIDTH), WIDTH)


def test_the_same_again_has_nothing_to_do_and_another_is_refused(docs: Path, tmp_path: Path) -> None:
    assert encode(Scripted(), [docs], tmp_path / "v").fresh
    assert not encode(Scripted(), [docs], tmp_path / "v").fresh
    other = Scripted(origin=ModelOrigin("elsewhere", "0" * 64))
    with pytest.raises(BadFile, match="complete Vectors already"):
        encode(other, [docs], tmp_path / "v")
    assert encode(other, [docs], tmp_path / "v", overwrite=True).fresh


def test_vectors_that_are_not_numbers_are_refused(docs: Path, tmp_path: Path) -> None:
    broken = Scripted({TEXTS[3]: [np.nan] * WIDTH})
    with pytest.raises(BadFile, match="weights are damaged"):
        encode(broken, [docs], tmp_path / "v")


def test_a_damaged_folder_is_refused(docs: Path, tmp_path: Path) -> None:
    encode(Scripted(), [docs], tmp_path / "v")
    facts = json.loads((tmp_path / "v/embed.json").read_text())
    size = (tmp_path / "v/embed.json").stat().st_size
    (tmp_path / "v/embed.json").write_text(json.dumps(facts | {"dimension": 9}).ljust(size)[:size])
    with pytest.raises(BadFile, match="no sound vectors"):
        VectorIndex.open(tmp_path / "v")


def test_a_model_that_is_gone_or_another_is_a_sentence(docs: Path, tmp_path: Path) -> None:
    encode(Scripted(), [docs], tmp_path / "v")
    index = VectorIndex.open(tmp_path / "v")
    with pytest.raises(BadFile, match=r"was at nowhere, and there is no folder now\. Say where it is with --model"):
        open_embedder(index)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadFile, match="is not the model that made the vectors"):
        open_embedder(index, tmp_path / "other")


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadSetting, match="adds nothing"):
        EncodeSettings(dtype="int8", int8_copy=True)
    with pytest.raises(BadSetting, match="no reader"):
        EncodeSettings(format="word")
