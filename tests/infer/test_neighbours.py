"""Neighbours are the nearest by cosine, whatever is compared; maps are the same each time."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import alembert
from alembert.errors import BadInput, BadSetting
from alembert.infer import neighbours as module
from alembert.infer.neighbours import (
    MapPoint,
    Neighbourhood,
    align_points,
    find_neighbours,
    project_to_plane,
    read_sentences,
    read_terms,
)
from alembert.inspect.neighbours_page import build_map_chart, list_neighbours, render_neighbours_page
from page_checks import check_page
from small_checkpoints import language_model

TERMS = ["床", "床前", "明月", "月光", "光"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(language_model(tmp_path_factory.mktemp("moon") / "model", "bidirectional"))


def cosines(word: np.ndarray, others: np.ndarray) -> np.ndarray:
    return others @ word / np.linalg.norm(others, axis=1) / np.linalg.norm(word)


def test_tokens_are_sorted_by_the_cosine_of_their_embeddings(model: Path) -> None:
    weights = alembert.open(model).model.encoder.embeddings.token.weight.detach().numpy()
    expected = dict(zip("前明月光", cosines(weights[5], weights[6:10]), strict=True))
    found = alembert.load(model).neighbours("床").tokens
    assert [each.text for each in found] == sorted(expected, key=expected.__getitem__, reverse=True)
    assert [each.similarity for each in found] == pytest.approx(sorted(expected.values(), reverse=True), abs=1e-5)


def test_terms_and_sentences_are_sorted_by_the_mean_of_their_states(model: Path) -> None:
    found = find_neighbours(model, "明月光", terms=TERMS, sentences=["床前。明月", "光光光"], top=3)
    vectors = alembert.load(model, pooling="mean").encode(["明月光", *TERMS])
    expected = dict(zip(TERMS, cosines(vectors[0], vectors[1:]), strict=True))
    assert [each.text for each in found.terms] == sorted(expected, key=expected.__getitem__, reverse=True)[:3]
    assert len(found.sentences) == 2


def test_a_word_in_pieces_says_so(model: Path) -> None:
    found = find_neighbours(model, "床前")
    assert found.pieces == ("床", "前")
    assert {each.text for each in found.tokens} == {"明", "月", "光"}
    assert "read as 床 前" in found.notes[0]
    assert find_neighbours(model, "床").notes == ()


@pytest.mark.parametrize("word", ["", " ", "x"])
def test_a_word_of_which_nothing_is_known_is_refused(word: str, model: Path) -> None:
    with pytest.raises(BadInput):
        find_neighbours(model, word)


def test_a_number_of_neighbours_below_one_is_refused(model: Path) -> None:
    with pytest.raises(BadSetting, match="`top` is 0"):
        find_neighbours(model, "床", top=0)


def test_an_export_has_no_tokens(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_export", lambda _: True)
    with pytest.raises(BadSetting, match="which has no embeddings of tokens"):
        find_neighbours(model, "床")
    found = find_neighbours(model, "床", terms=["月光"])
    assert (found.tokens, len(found.terms)) == ((), 1)
    assert "only terms and sentences" in found.notes[0]


def test_of_very_many_terms_some_are_compared_and_it_is_said(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TEXTS", 3)
    found = find_neighbours(model, "前", terms=TERMS)
    assert {each.text for each in found.terms} == {"床", "明月", "光"}
    assert found.notes == ("3 of 5 terms are compared, taken at equal distances.",)


def test_the_word_itself_is_no_neighbour(model: Path) -> None:
    assert [each.text for each in find_neighbours(model, "月光", terms=["月光", "明", "明"]).terms] == ["明"]


def test_progress_counts_all_texts(model: Path) -> None:
    calls: list[tuple[int, int]] = []
    find_neighbours(model, "床", terms=TERMS, sentences=["月"], on_progress=lambda *each: calls.append(each))
    assert calls[-1] == (5, 5)  # the word itself is left out


def test_the_map_is_that_of_the_principal_components() -> None:
    vectors = np.random.default_rng(1).normal(size=(20, 6)) * [9, 5, 1, 1, 1, 1]
    plane, kept = project_to_plane(vectors)
    covariance = np.cov((vectors - vectors.mean(0)).T, bias=True)
    sizes = np.linalg.eigvalsh(covariance)[::-1]
    np.testing.assert_allclose((plane**2).mean(0), sizes[:2])
    assert kept == pytest.approx(sizes[:2].sum() / sizes.sum())


def test_the_map_does_not_depend_on_the_sign_of_components() -> None:
    vectors = np.random.default_rng(2).normal(size=(8, 5))
    plane, _ = project_to_plane(vectors)
    again, _ = project_to_plane(vectors[:, ::-1])
    np.testing.assert_allclose(plane, again)


def test_one_vector_is_a_point() -> None:
    plane, kept = project_to_plane(np.ones((1, 4)))
    assert (plane.tolist(), kept) == ([[0.0, 0.0]], 1.0)


def test_a_map_is_turned_to_another_one() -> None:
    first = [MapPoint("a", 1.0, 0.0), MapPoint("b", 0.0, 2.0), MapPoint("c", -1.0, -2.0)]
    mirrored = [MapPoint(p.text, p.y, -p.x) for p in first]
    for point, expected in zip(align_points(mirrored, first), first, strict=True):
        assert (point.x, point.y) == pytest.approx((expected.x, expected.y))


def test_terms_and_sentences_are_read_from_files(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "terms.tsv.gz", "wt") as file:
        file.write("term\tid\nLeukemia, Myeloid\tD1\ngout\tD2\n")
    (tmp_path / "texts.jsonl").write_text('{"text": "No fever. He has gout."}\n{\n')
    assert read_terms(tmp_path / "terms.tsv.gz") == ["Myeloid Leukemia", "gout"]
    sentences, set_aside = read_sentences([tmp_path / "texts.jsonl"])
    assert (sentences, len(set_aside)) == (["No fever.", "He has gout."], 1)


def test_what_is_new_is_marked_beside_another_model(model: Path) -> None:
    one, other = (find_neighbours(model, word, terms=TERMS, top=2) for word in ("床", "月光"))
    known = {each.text for each in other.terms}
    assert [is_new for _, _, is_new in list_neighbours("terms", one, other)] == [
        each.text not in known for each in one.terms
    ]
    assert not any(is_new for _, _, is_new in list_neighbours("terms", one, None))


@pytest.mark.parametrize("is_compared", [True, False])
def test_the_page_is_whole_and_safe(is_compared: bool, model: Path) -> None:
    found = find_neighbours(model, "床", terms=[*TERMS, "<script>光"], sentences=["月 & 光"])
    before = find_neighbours(model, "床", terms=TERMS) if is_compared else None
    page = render_neighbours_page(found, before)
    check_page(page)
    assert page.count("<svg") == 1 + is_compared


def test_the_same_question_gives_the_same_map(model: Path) -> None:
    first, again = (find_neighbours(model, "床", terms=TERMS) for _ in range(2))
    assert isinstance(first, Neighbourhood)
    assert build_map_chart(first).svg() == build_map_chart(again).svg()
