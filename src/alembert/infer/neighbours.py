"""What is nearest to a word in a model: tokens by their input embeddings, terms and sentences by their vectors.

In: an opened model, a word or a term, and lists of terms and sentences. Out: the nearest of each by cosine
similarity, and the terms as points of a plane (the first two principal components). Input embeddings are compared
before any layer has read them; terms and sentences are read alone, and their vector is the one that the model's folder
states, or the mean of the last states. So a word and its neighbours can be compared before and after a model was
adapted.
"""

# V vocabulary, N texts, D width
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from alembert.corpus.chunks import split_into_sentences
from alembert.corpus.document import Document
from alembert.corpus.inputs import list_input_files
from alembert.corpus.readers import ReadOptions, SetAside
from alembert.errors import BadInput, BadSetting
from alembert.infer.embedder import Embedder
from alembert.infer.engines import open_torch_engine
from alembert.infer.stream import StreamPosition, open_input_stream
from alembert.tasks.compare.pooling import read_pooling
from alembert.tasks.compare.scores import normalise_vectors
from alembert.tasks.runtime.export_files import is_export
from alembert.text.language import detect_language
from alembert.text.lexicon import list_spellings, read_lexicon
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from alembert.infer.engine_torch import TorchEngine

MAX_TEXTS: Final = 10_000
"""Terms or sentences that are compared, at most: of more, as many are taken at equal distances."""
MAP_TERMS: Final = 100
"""Terms of the map, the nearest."""
_DIGITS: Final = 6
_PART: Final = 1024
"""Texts between two calls of `on_progress`."""

VectorArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A token, a term or a sentence, and its cosine similarity to the word."""

    text: str
    similarity: float


@dataclass(frozen=True, slots=True)
class MapPoint:
    """A term on the map."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """What is nearest to a word in a model, the nearest first."""

    model: str
    word: str
    pieces: tuple[str, ...]
    """The tokens that the word is read as; one if the vocabulary has it."""
    tokens: tuple[Neighbour, ...] = ()
    terms: tuple[Neighbour, ...] = ()
    sentences: tuple[Neighbour, ...] = ()
    points: tuple[MapPoint, ...] = ()
    """The word, then the nearest terms (tokens, if no terms were given), in a plane that keeps as much variance as it can."""
    variance: float = 0.0
    """The share of the variance of the points that the plane keeps."""
    notes: tuple[str, ...] = ()
    """What must be known with the result."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Ranking:
    """Texts by their similarity to a word, the nearest first."""

    word_D: VectorArray
    names: list[str]
    similarities_N: VectorArray
    vectors_ND: VectorArray

    @classmethod
    def of(cls, word_D: npt.NDArray[Any], names: Sequence[str], vectors_ND: npt.NDArray[Any]) -> _Ranking:
        """Rank texts by the cosine of their vectors with that of the word; equal ones keep their order."""
        unit_D, units_ND = normalise_vectors(word_D), normalise_vectors(vectors_ND)
        order = np.argsort(-(units_ND @ unit_D), kind="stable")
        return cls(unit_D, [names[number] for number in order], (units_ND @ unit_D)[order], units_ND[order])

    def nearest(self, top: int) -> tuple[Neighbour, ...]:
        pairs = zip(self.names[:top], self.similarities_N[:top].tolist(), strict=True)
        return tuple(Neighbour(name, round(similarity, _DIGITS)) for name, similarity in pairs)

    def draw_map(self, word: str) -> tuple[tuple[MapPoint, ...], float]:
        """Project the word and its nearest texts to a plane; return the points and the share of the variance kept."""
        plane_N2, kept = project_to_plane(np.vstack((self.word_D, self.vectors_ND[:MAP_TERMS])))
        names = (word, *self.names[:MAP_TERMS])
        points = (MapPoint(name, *place) for name, place in zip(names, plane_N2.tolist(), strict=True))
        return tuple(points), kept


def project_to_plane(vectors_ND: VectorArray) -> tuple[VectorArray, float]:
    """Return the first two principal components of vectors (N, 2), and the share of the variance that they keep.

    Signs are those that make the component with the largest number positive, so that the result is the same everywhere.
    """
    centred_ND = vectors_ND - vectors_ND.mean(0)
    _, sizes, axes_DD = np.linalg.svd(centred_ND, full_matrices=False)
    axes_2D = axes_DD[:2] * np.sign(axes_DD[:2][range(len(axes_DD[:2])), abs(axes_DD[:2]).argmax(1)])[:, None]
    plane_N2 = np.zeros((len(vectors_ND), 2))
    plane_N2[:, : len(axes_2D)] = centred_ND @ axes_2D.T
    total = float((sizes**2).sum())
    return plane_N2, float((sizes[:2] ** 2).sum()) / total if total > 0 else 1.0


def align_points(points: Sequence[MapPoint], reference: Sequence[MapPoint]) -> tuple[MapPoint, ...]:
    """Turn and mirror a map so that the terms of both maps are as near as they can be to where they are in the other."""
    places = {point.text: (point.x, point.y) for point in reference}
    common = [point for point in points if point.text in places]
    if len(common) < 2:
        return tuple(points)
    own_N2, other_N2 = np.array([(p.x, p.y) for p in common]), np.array([places[p.text] for p in common])
    left, _, right = np.linalg.svd(own_N2.T @ other_N2)
    turned_N2 = np.array([(p.x, p.y) for p in points]) @ (left @ right)
    return tuple(MapPoint(p.text, *place) for p, place in zip(points, turned_N2.tolist(), strict=True))


def find_neighbours(
    folder: Path,
    word: str,
    *,
    terms: Sequence[str] = (),
    sentences: Sequence[str] = (),
    top: int = 10,
    device: str = "cpu",
    on_progress: Callable[[int, int], None] = lambda _, __: None,
) -> Neighbourhood:
    """Find what is nearest to a word in the model of a folder; `on_progress` is called with texts done and of how many."""
    _check(word, top)
    tokenizer = Tokenizer.open(folder)
    pieces = tuple(tokenizer.tokens(list(tokenizer.encode(word, add_special_tokens=False).ids)))
    notes = list(_note_pieces(word, pieces, tokenizer))
    rankings: dict[str, _Ranking] = {}
    if not is_export(folder):
        rankings["tokens"] = _rank_tokens(open_torch_engine(folder, device), pieces)
    elif terms or sentences:
        notes.append(
            f"{folder} is an Export, which has no embeddings of tokens: only terms and sentences are compared."
        )
    else:
        raise BadSetting(
            f"{folder} is an Export, which has no embeddings of tokens. Use the Checkpoint that it was made of."
        )
    given = {"terms": terms, "sentences": sentences}
    texts = {name: _choose_texts(listed, word) for name, listed in given.items()}
    if terms or sentences:
        notes += [_sample_note(name, given[name]) for name, listed in texts.items() if len(listed) == MAX_TEXTS]
        rankings |= _rank_texts(_open_embedder(folder, device), word, texts, on_progress)
    points, variance = rankings["terms" if texts["terms"] else next(iter(rankings))].draw_map(word)
    found = {name: ranking.nearest(top) for name, ranking in rankings.items()}
    return Neighbourhood(
        model=str(folder), word=word, pieces=pieces, points=points, variance=variance, notes=tuple(notes), **found
    )


def _check(word: str, top: int) -> None:
    if top < 1:
        raise BadSetting(f"`top` is {top}; expected 1 or more.")
    if not word.strip():
        raise BadInput("The word is empty. Give a word or a term.")


def _note_pieces(word: str, pieces: Sequence[str], tokenizer: Tokenizer) -> Iterator[str]:
    """Yield how a word that is no token is read; refuse one of which nothing is known."""
    unknown = tokenizer.vocabulary.special.unk
    if not pieces or set(pieces) == {unknown}:
        raise BadInput(
            f"{word!r} has no piece that the vocabulary knows, so there is nothing to compare. Check the spelling."
        )
    if len(pieces) > 1:
        mean = "mean of their embeddings stands for it among tokens"
        yield f"{word!r} is not in the vocabulary as one token: it is read as {' '.join(pieces)}, and the {mean}."
    if unknown in pieces:
        yield f"A part of {word!r} is unknown to the vocabulary."


def _rank_tokens(engine: TorchEngine, pieces: Sequence[str]) -> _Ranking:
    """Rank the tokens of the vocabulary, without special and unused ones and the pieces of the word."""
    vectors_VD, tokenizer = engine.token_embedding, engine.tokenizer
    names = tokenizer.tokens(range(tokenizer.vocab_size))
    own = [tokenizer.id_of(piece) for piece in pieces]
    left_out = {*pieces, *tokenizer.vocabulary.special.roles().values()}
    kept = [number for number, name in enumerate(names) if name not in left_out and not name.startswith("[unused")]
    return _Ranking.of(vectors_VD[own].mean(0), [names[number] for number in kept], vectors_VD[kept])


def _choose_texts(texts: Sequence[str], word: str) -> list[str]:
    """Return distinct texts other than the word; of very many, some at equal distances."""
    distinct = [text for text in dict.fromkeys(texts) if text.strip() and text.casefold() != word.casefold()]
    if len(distinct) <= MAX_TEXTS:
        return distinct
    return [distinct[number] for number in np.linspace(0, len(distinct) - 1, MAX_TEXTS).astype(int)]


def _sample_note(name: str, given: Sequence[str]) -> str:
    return f"{MAX_TEXTS:,} of {len(given):,} {name} are compared, taken at equal distances."


def _open_embedder(folder: Path, device: str) -> Embedder:
    """Open the model for vectors: as its folder states, else the mean of the last states."""
    return Embedder.open(folder, mode=None if read_pooling(folder) else "mean", device=device)


def _rank_texts(
    embedder: Embedder, word: str, texts: Mapping[str, Sequence[str]], on_progress: Callable[[int, int], None]
) -> dict[str, _Ranking]:
    word_D = embedder.embed([word]).vectors_ND[0]
    total, done = sum(map(len, texts.values())), 0
    rankings = {}
    for name, listed in texts.items():
        parts = []
        for start in range(0, len(listed), _PART):
            parts.append(embedder.embed(listed[start : start + _PART]).vectors_ND)
            done += len(parts[-1])
            on_progress(done, total)
        if parts:
            rankings[name] = _Ranking.of(word_D, listed, np.concatenate(parts))
    return rankings


def read_terms(path: str | Path) -> list[str]:
    """Read the terms of a lexicon, inverted ones in their natural order."""
    return [list_spellings(term)[-1] for term, _ in read_lexicon(path, "terms").terms]


def read_sentences(files: Iterable[str | Path]) -> tuple[list[str], list[str]]:
    """Read the sentences of documents in files of any known format; return them, and what was set aside."""
    sentences, set_aside = [], []
    for entry in open_input_stream(list_input_files([Path(each) for each in files]), ReadOptions(), None).read_from(
        StreamPosition()
    ):
        if isinstance(entry.item, Document):
            document = entry.item
            language = document.language or detect_language(document.text)
            sentences += [document.text[start:end] for start, end in split_into_sentences(document, language)]
        elif isinstance(entry.item, SetAside):
            set_aside.append(entry.item.describe())
    return sentences, set_aside
