"""What `inspect masks` shows is what training does, its counts are right, and its page is whole and safe."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from alembert import artifact, sample
from alembert.corpus.chunks import split_into_sentences
from alembert.corpus.document import Document
from alembert.corpus.excerpt import ExcerptLimit, read_excerpt
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shard_tokenizer import WordSettings
from alembert.corpus.shards import Shards, TokenArrays
from alembert.corpus.store import (
    KIND,
    PARTS_FOLDER,
    Corpus,
    CorpusDocument,
    CorpusEntity,
    to_bytes,
    to_table,
)
from alembert.data.feed import Cursor, SequenceSpec
from alembert.data.masking import MaskSettings
from alembert.errors import BadSetting
from alembert.inspect.masks import (
    MaskedSequence,
    MaskedToken,
    MaskingPlan,
    MaskReport,
    report_masks,
)
from alembert.inspect.masks_page import group_segments, render_masks_page
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary
from alembert.train.objective import MicroBatch
from alembert.train.pretrain.lm import PretrainObjective
from alembert.train.pretrain.settings import ObjectiveWeights, PretrainSettings
from page_checks import check_page

MARKS = sorted({m for passage in sample.load_passages() for m in passage.text.lower() if not m.isspace()})
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary(
        (
            *SpecialTokens().roles().values(),
            *MARKS,
            *(f"##{m}" for m in MARKS),
            "patients",
            "<b>",
            "the",
            "##in",
        )
    ),
    lowercase=True,
)
TERM = "急性髓系白血病"
ALL = 10**9


def entry(passage: sample.SamplePassage) -> CorpusDocument:
    document = Document(passage.id, passage.text)
    mentions = tuple(CorpusEntity(each.start, each.end, each.label) for each in passage.entities)
    sentences = tuple(split_into_sentences(document, passage.language))
    return CorpusDocument(document, "sample", passage.language, sentences, mentions)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The sample with its gold entities."""
    entries = [entry(passage) for passage in sample.load_passages()]
    folder = tmp_path_factory.mktemp("masks") / "corpus"
    with artifact.create(folder, KIND, config={}) as draft:
        (draft.path / PARTS_FOLDER).mkdir()
        (draft.path / PARTS_FOLDER / "part-00000.parquet").write_bytes(to_bytes(to_table(entries)))
        draft.counts["documents"] = len(entries)
    return Corpus.open(folder)


@pytest.fixture(scope="module")
def shards(corpus: Corpus) -> Shards:
    return open_or_build_shards(corpus, TOKENIZER, corpus.folder.parent, words=WordSettings(), workers=1)


def plan_of(settings: PretrainSettings) -> MaskingPlan:
    cutting = SequenceSpec(length=settings.sequences.max_length, pairs=settings.objectives.pairs)
    return MaskingPlan(
        cutting=cutting,
        masks=settings.masks,
        seed=settings.seed,
        micro_tokens=settings.batch.micro_tokens,
        held_out=settings.evaluation.share,
    )


def survey_of(tokens: TokenArrays, unit: str = "word", count: int = ALL, **objectives: float) -> MaskReport:
    masks = MaskSettings(unit=unit)  # type: ignore[arg-type]
    settings = PretrainSettings(masks=masks, objectives=ObjectiveWeights(**objectives))
    return report_masks(tokens, TOKENIZER, plan_of(settings), count=count)


def rows(given: list[MicroBatch], lengths: list[int]) -> list[list[int]]:
    """The ids of each sequence of some micro-batches, which may hold them in another order."""
    places = [(micro.batch.ids_N.tolist(), start) for micro in given for start in micro.batch.starts_B.tolist()]
    return [ids[start : start + length] for (ids, start), length in zip(places, lengths, strict=True)]


@pytest.mark.parametrize("unit", ["piece", "word", "span", "entity"])
@pytest.mark.parametrize("pairs", [{}, {"next_sentence": 1.0}, {"sentence_order": 1.0}], ids=str)
def test_sequences_are_those_of_training(shards: Shards, unit: str, pairs: dict[str, float]) -> None:
    settings = PretrainSettings(
        seed=7,
        masks=MaskSettings(unit=unit),  # type: ignore[arg-type]
        objectives=ObjectiveWeights(boundaries=0.5, **pairs),
    )
    lesson = PretrainObjective(shards, TOKENIZER, settings)
    portions, _ = lesson.sample(Cursor(), 3, 0.0)
    given = [lesson.collate(portion) for portion in portions]
    lengths = [stretch.length for portion in portions for stretch in portion.spans]
    shown = report_masks(shards, TOKENIZER, plan_of(settings), count=len(lengths)).sequences
    assert [[TOKENIZER.id_of(p.seen) for p in sequence.pieces] for sequence in shown] == rows(given, lengths)
    labels = [n for micro in given for n in micro.targets["masked_lm"].labels.tolist()]
    assert [TOKENIZER.id_of(p.text) for sequence in shown for p in sequence.pieces if p.mark] == labels


def test_an_excerpt_has_the_masks_of_the_whole(corpus: Corpus, shards: Shards) -> None:
    part = read_excerpt(corpus, TOKENIZER, WordSettings(), ExcerptLimit(documents=40))
    full = survey_of(shards)
    few = survey_of(part.tokens).sequences
    assert few
    assert set(few) <= set(full.sequences)


def by_word(sequence: MaskedSequence) -> list[list[MaskedToken]]:
    """Group the pieces by words, plainly."""
    words: list[list[MaskedToken]] = []
    for piece in sequence.pieces:
        if piece.special or piece.word or words[-1][-1].special:
            words.append([])
        words[-1].append(piece)
    return [word for word in words if not word[0].special]


def by_entity(sequence: MaskedSequence) -> list[list[MaskedToken]]:
    entities: list[list[MaskedToken]] = []
    before = None
    for piece in sequence.pieces:
        if piece.entity == "first" or (piece.entity and not before):
            entities.append([])
        if piece.entity:
            entities[-1].append(piece)
        before = piece.entity
    return entities


def parts(groups: list[list[MaskedToken]]) -> tuple[int, int, int]:
    hits = [sum(piece.mark is not None for piece in group) / len(group) for group in groups]
    return len(hits), hits.count(1.0), sum(0 < hit < 1 for hit in hits)


@pytest.mark.parametrize("unit", ["piece", "word", "span", "entity"])
def test_counts_are_those_of_a_plain_reading(shards: Shards, unit: str) -> None:
    found = survey_of(shards, unit, next_sentence=1.0)
    pieces = [piece for sequence in found.sequences for piece in sequence.pieces]
    marks = Counter(piece.mark for piece in pieces)
    units = Counter((n, p.unit) for n, s in enumerate(found.sequences) for p in s.pieces if p.mark)
    counts, sequences = found.statistics, found.sequences
    assert (counts.masked, counts.replaced, counts.kept) == (marks["mask"], marks["random"], marks["kept"])
    assert (counts.tokens, counts.chosen) == (len(pieces), len(pieces) - marks[None])
    assert counts.unit_sizes == Counter(units.values())
    assert counts.in_entities == sum(piece.entity is not None for piece in pieces)
    assert counts.chosen_in_entities == sum(bool(piece.entity and piece.mark) for piece in pieces)
    words, entities = counts.words, counts.entities
    assert (words.total, words.whole, words.partly) == parts([w for s in sequences for w in by_word(s)])
    assert (entities.total, entities.whole, entities.partly) == parts([e for s in sequences for e in by_entity(s)])
    assert counts.labels == Counter(sequence.label for sequence in sequences)
    assert counts.lengths == Counter(len(sequence.pieces) for sequence in sequences)


def test_words_are_whole(shards: Shards) -> None:
    shares = survey_of(shards, "word").statistics.shares()
    assert shares["chosen_words_whole"] == 1
    assert shares["chosen"] == pytest.approx(0.15, abs=0.01)


def test_entities_are_whole(shards: Shards) -> None:
    shares = survey_of(shards, "entity").statistics.shares()
    assert (shares["entities_partly"], shares["chosen_entities_whole"]) == (0, 1)
    assert shares["entities_whole"] == pytest.approx(0.5, abs=0.05)


def test_pieces_break_words(shards: Shards) -> None:
    assert survey_of(shards, "piece").statistics.shares()["chosen_words_whole"] < 0.5


def test_a_term_of_the_user_is_masked_as_one(tmp_path: Path) -> None:
    texts = [f"患者{number}岁，诊断为{TERM}。" for number in range(20, 60)]
    entries = [CorpusDocument(Document(text, text), "s", "zh", ((0, len(text)),)) for text in texts]
    with artifact.create(tmp_path / "corpus", KIND, config={}) as draft:
        (draft.path / PARTS_FOLDER).mkdir()
        (draft.path / PARTS_FOLDER / "part-00000.parquet").write_bytes(to_bytes(to_table(entries)))
        draft.counts["documents"] = len(entries)
    (tmp_path / "terms").write_text(f"{TERM}\n", encoding="utf-8")
    words = WordSettings(segmenter="jieba", dictionary=tmp_path / "terms")
    tokens = read_excerpt(Corpus.open(tmp_path / "corpus"), TOKENIZER, words).tokens
    plan = MaskingPlan(cutting=SequenceSpec(length=128), masks=MaskSettings(unit="word", rate=0.5))
    found = report_masks(tokens, TOKENIZER, plan, count=ALL).sequences
    fates = [{p.mark is None for p in word} for s in found for word in by_word(s) if len(word) == len(TERM)]
    assert len(fates) == len(found)
    assert {True} in fates
    assert {False} in fates
    assert {True, False} not in fates


def piece(text: str, **changes: object) -> MaskedToken:
    plain = MaskedToken(text, text, None, None, word=not text.startswith("##"), entity=None, segment=0, special=False)
    return replace(plain, **changes)  # type: ignore[arg-type]


def texts_of(*pieces: MaskedToken) -> list[list[str]]:
    (side,) = group_segments(MaskedSequence(0, None, pieces))
    return [[run.text for run in group.runs] for group in side]


def test_neighbours_of_one_fate_are_put_together() -> None:
    masked = [piece("im", mark="mask", unit=3), piece("##at", mark="mask", unit=3)]
    assert texts_of(piece("the"), *masked, piece("drug"), piece("was")) == [["the", "im##at", "drug was"]]


def test_pieces_of_different_units_stand_alone() -> None:
    assert texts_of(piece("im", mark="mask", unit=1), piece("##at", mark="mask", unit=2)) == [["im", "##at"]]


def test_replaced_pieces_stand_alone() -> None:
    assert texts_of(*(piece(text, mark="random", unit=1) for text in ("im", "##at"))) == [["im", "##at"]]


def test_each_entity_is_a_group() -> None:
    first = [piece("a", entity="first"), piece("b", entity="inside")]
    assert texts_of(piece("x"), *first, piece("c", entity="first"), piece("y")) == [
        ["x"],
        ["a b"],
        ["c"],
        ["y"],
    ]


def test_nothing_of_a_sequence_is_left_out(shards: Shards) -> None:
    for sequence in islice(survey_of(shards, "entity", next_sentence=1.0).sequences, 50):
        shown = "".join(run.text for side in group_segments(sequence) for group in side for run in group.runs)
        assert shown.replace(" ", "") == "".join(p.text for p in sequence.pieces if not p.special)


def test_no_training_document_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"id": "1", "text": "the patients"}\n')
    tokens = read_excerpt([tmp_path / "one.jsonl"], TOKENIZER, WordSettings()).tokens
    with pytest.raises(BadSetting, match="Of the 1 document"):
        survey_of(tokens)


def test_the_page_is_well_formed_and_marks_each_run(shards: Shards) -> None:
    found = survey_of(shards, "entity", count=4, next_sentence=1.0)
    page = render_masks_page(found, "Masks", "a note")
    check_page(page)
    runs = [run for s in found.sequences for side in group_segments(s) for group in side for run in group.runs]
    assert page.count("<mark ") == sum(run.mark is not None for run in runs)


def test_pieces_are_escaped_on_the_page(shards: Shards) -> None:
    found = survey_of(shards, count=0)
    bad = MaskedSequence(0, None, (piece("<b>", seen="<b>", mark="random", unit=0), piece("<b>")))
    assert "<b>" not in render_masks_page(replace(found, sequences=(bad,)), "Masks", "<b>")
