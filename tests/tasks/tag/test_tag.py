"""Entities as tags of words and back, through windows, whatever the length of the document."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.document import Document, Section
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile, BadSetting
from alembert.tasks.tag.crf import CrfDecoder
from alembert.tasks.tag.data import TagExample, TagSettings
from alembert.tasks.tag.tags import (
    LabelledSpan,
    find_words_of_texts,
    from_tags,
    tag_names,
    to_tags,
    to_word_ranges,
)
from alembert.tasks.tag.task import TagTask
from alembert.text.tokenizer import StackedPieces, Tokenizer
from alembert.text.vocabulary import Vocabulary

SHARED = Path(__file__).resolve().parents[4] / "shared"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces(
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS), ".", "-"
    ),
    lowercase=True,
)
TYPES = ("drug", "gene")


def task(**settings: object) -> TagTask:
    return TagTask(TYPES, TagSettings(**settings))  # type: ignore[arg-type]


def example(text: str, *entities: LabelledSpan, **more: object) -> TagExample:
    return TagExample(id="1", texts=(text,), entities=entities, **more)  # type: ignore[arg-type]


@st.composite
def documents(draw: st.DrawFn) -> TagExample:
    """Texts of random words with entities over some of them."""
    words = draw(st.lists(st.text(LETTERS, min_size=1, max_size=6), min_size=1, max_size=120))
    text, starts = "", []
    for word in words:
        text += " " * bool(text)
        starts.append(len(text))
        text += word + draw(st.sampled_from(["", "", "", "."]))
    entities: list[LabelledSpan] = []
    place = 0
    while place < len(words):
        end = min(len(words), place + draw(st.integers(1, 4)))
        if draw(st.booleans()):
            stop = starts[end - 1] + len(words[end - 1])
            entities.append((starts[place], stop, draw(st.sampled_from(TYPES))))
        place = end
    return TagExample(id="1", texts=(text,), entities=tuple(entities))


def perfect(learner: TagTask, each: TagExample, longest: int = 512) -> list[LabelledSpan]:
    """Decode outputs that put all weight on the right tags."""
    (encoded,) = learner.encode([each], TOKENIZER, longest)
    outputs = [10 * np.eye(len(learner.labels), dtype=np.float32)[row.labels] for row in encoded.rows]
    return learner.decode(encoded, outputs).spans


@given(documents(), st.sampled_from(["bio", "bioes"]), st.integers(16, 64))
def test_right_tags_give_the_entities_back_through_any_windows(each: TagExample, scheme: str, length: int) -> None:
    learner = task(scheme=scheme, max_length=length, overlap=length // 4)
    assert perfect(learner, each) == list(each.entities or ())


@given(documents(), st.integers(16, 64))
def test_every_word_is_asked_once_and_in_order(each: TagExample, length: int) -> None:
    (encoded,) = task(max_length=length, overlap=length // 4).encode([each], TOKENIZER, 512)
    (words,) = find_words_of_texts(StackedPieces.of([TOKENIZER.encode(each.text, add_special_tokens=False)]))
    assert sum(len(row.positions) for row in encoded.rows) == len(words)
    first_pieces = [int(row.ids[place]) for row in encoded.rows for place in row.positions]
    ids = TOKENIZER.encode(each.text, add_special_tokens=False).ids
    assert first_pieces == [ids[piece] for piece in words.pieces_W]


@given(documents(), st.integers(16, 64))
def test_windows_keep_the_limit_and_are_counted(each: TagExample, length: int) -> None:
    (encoded,) = task(max_length=length, overlap=length // 4).encode([each], TOKENIZER, 512)
    assert all(row.length <= length for row in encoded.rows)
    assert encoded.coverage.windows == len(encoded.rows)
    assert encoded.coverage.characters == len(each.text)
    assert encoded.coverage.gold == len(each.entities or ())


def test_merging_changes_no_label_inside_a_safe_zone() -> None:
    """The answer for a word is that of its own window, whatever the neighbouring windows say about it."""
    learner = task(max_length=32, overlap=8)
    each = example(" ".join(LETTERS * 10))
    (encoded,) = learner.encode([each], TOKENIZER, 512)
    rng = np.random.default_rng(1)
    legal = rng.choice([0, 1, 3], sum(len(row.positions) for row in encoded.rows)).tolist()
    put = iter(legal)
    outputs = [np.eye(5, dtype=np.float32)[[next(put) for _ in row.positions]] * 9 for row in encoded.rows]
    assert learner.decode(encoded, outputs).spans == [
        (2 * word, 2 * word + 1, TYPES[(tag - 1) // 2]) for word, tag in enumerate(legal) if tag
    ]


@st.composite
def texts_of_sentences(draw: st.DrawFn) -> TagExample:
    """Documents put together from others, which say where their sentences begin."""
    parts = draw(st.lists(documents(), min_size=1, max_size=5))
    starts, text, entities = [], "", []
    for part in parts:
        text += " " * bool(text)
        starts.append(len(text))
        entities += [(len(text) + start, len(text) + end, label) for start, end, label in part.entities or ()]
        text += part.text
    return TagExample(id="1", texts=(text,), entities=tuple(entities), sentences=tuple(starts))


@given(texts_of_sentences(), st.sampled_from(["softmax", "crf"]), st.integers(16, 64))
def test_a_document_read_by_sentences_has_the_entities_of_its_sentences(
    each: TagExample, head: str, length: int
) -> None:
    count = len(tag_names(TYPES, "bio"))
    scores = np.random.default_rng(0).normal(size=(3, count, count)).astype(np.float32)
    crf = CrfDecoder(scores[0], scores[1, 0], scores[2, 0]) if head == "crf" else None
    settings = TagSettings(context="sentence", head=head, max_length=length)  # type: ignore[arg-type]
    learner = TagTask(TYPES, settings, crf_decoder=crf)
    (encoded,) = learner.encode([each], TOKENIZER, 512)
    outputs = [np.random.default_rng(row.ids.tolist()).normal(size=(len(row.positions), count)) for row in encoded.rows]
    spans = learner.decode(encoded, outputs).spans
    rows = iter(zip(encoded.rows, outputs, strict=True))
    borders = [*each.sentences, len(each.text)]
    alone = []
    for start, end in pairwise(borders):
        (read,) = learner.encode([TagExample(id="2", texts=(each.text[start:end],))], TOKENIZER, 512)
        own = [next(rows) for _ in read.rows]
        assert [row.ids.tolist() for row, _ in own] == [row.ids.tolist() for row in read.rows]
        found = learner.decode(read, [output for _, output in own]).spans
        alone += [(start + first, start + last, label) for first, last, label in found]
    assert spans == alone


@given(texts_of_sentences(), st.sampled_from(["bio", "bioes"]), st.integers(16, 64))
def test_right_tags_give_the_entities_of_all_sentences_back(each: TagExample, scheme: str, length: int) -> None:
    assert perfect(task(context="sentence", scheme=scheme, max_length=length), each) == list(each.entities or ())


def test_an_entity_across_two_sentences_is_counted_and_not_learnt() -> None:
    across = example("a drug. B gene", (2, 9, "drug"), (10, 14, "gene"), sentences=(0, 8))
    learner = task(context="sentence")
    assert perfect(learner, across) == [(10, 14, "gene")]
    assert learner.encode([across], TOKENIZER, 512)[0].coverage.unreachable == 1


@pytest.mark.parametrize(
    ("text", "context"), [("one drug is here.", "sentence"), ("One drug is here. The gene is not.", "document")]
)
def test_a_tagger_reads_sentences_if_it_learns_from_single_ones(text: str, context: str) -> None:
    examples = [example(text, (4, 8, "drug"))] * 9
    assert TagTask.learn(examples, TagSettings()).settings.context == context
    assert TagTask.learn(examples, TagSettings(context="document")).settings.context == "document"


def test_ten_thousand_words_are_tagged_whole() -> None:
    text = " ".join(["abc"] * 10_000)
    gold = [(4 * n, 4 * n + 7, "gene") for n in range(0, 9_998, 50)]
    assert perfect(task(), example(text, *gold)) == gold


def test_entities_that_no_word_border_fits_are_counted_and_missed() -> None:
    each = example("abcdef xy", (0, 3, "drug"), (7, 9, "gene"))
    learner = task()
    (encoded,) = learner.encode([each], TOKENIZER, 512)
    assert encoded.coverage.unreachable == 1
    found = learner.decode(encoded, [10 * np.eye(5, dtype=np.float32)[encoded.rows[0].labels]])
    assert learner.score([each], [found]).measures["recall"] == 0.5


def test_entities_with_a_gap_count_as_missed() -> None:
    each = example("a b c", (4, 5, "gene"), discontinuous=((0, 5, "drug"),))
    learner = task()
    (encoded,) = learner.encode([each], TOKENIZER, 512)
    found = learner.decode(encoded, [10 * np.eye(5, dtype=np.float32)[encoded.rows[0].labels]])
    scores = learner.score([each], [found])
    assert encoded.coverage.unreachable == 1
    assert scores.measures["recall"] == 0.5
    assert scores.by_label["drug"]["support"] == 1


def test_of_overlapping_entities_the_longest_is_learnt_and_the_others_are_counted() -> None:
    each = example("a b c", (0, 5, "drug"), (2, 3, "gene"))
    (encoded,) = task().encode([each], TOKENIZER, 512)
    assert encoded.rows[0].labels is not None
    assert [task().labels[tag] for tag in encoded.rows[0].labels] == ["B-drug", "I-drug", "I-drug"]
    assert encoded.coverage.unreachable == 1


def test_a_span_head_learns_nested_entities() -> None:
    each = example("a b c", (0, 5, "drug"), (2, 3, "gene"))
    (encoded,) = task(head="span").encode([each], TOKENIZER, 512)
    assert encoded.coverage.unreachable == 0
    assert encoded.rows[0].labels is not None
    assert sorted(encoded.rows[0].labels.tolist()) == [[0, 2, 0], [1, 1, 1]]


def test_where_a_type_is_not_annotated_outside_may_be_that_type() -> None:
    learner = replace(task(), partial=True)
    each = example("a b", (0, 1, "drug"), types=frozenset({"drug"}))
    (encoded,) = learner.encode([each], TOKENIZER, 512)
    allowed = encoded.rows[0].labels
    assert allowed is not None
    assert [[learner.labels[n] for n in np.flatnonzero(row)] for row in allowed] == [
        ["B-drug"],
        ["O", "B-gene", "I-gene"],
    ]


def test_guesses_of_types_that_were_not_annotated_are_not_counted() -> None:
    learner = task()
    each = example("a b", (0, 1, "drug"), (2, 3, "gene"))
    (encoded,) = learner.encode([each], TOKENIZER, 512)
    found = learner.decode(encoded, [10 * np.eye(5, dtype=np.float32)[encoded.rows[0].labels]])
    gold = example("a b", (0, 1, "drug"), types=frozenset({"drug"}))
    assert learner.score([gold], [found]).value == 1


def test_an_empty_text_has_no_rows_and_no_entities() -> None:
    (encoded,) = task().encode([example("")], TOKENIZER, 512)
    assert encoded.rows == ()
    assert task().decode(encoded, []).entities == ()


@given(st.lists(st.integers(1, 3), max_size=8), st.sampled_from(["bio", "bioes"]))
def test_tags_and_ranges_are_the_same(lengths: list[int], scheme: str) -> None:
    ranges, place = [], 0
    for number, length in enumerate(lengths):
        ranges.append((place, place + length, TYPES[number % 2]))
        place += length + number % 2
    names = tag_names(TYPES, scheme)  # type: ignore[arg-type]
    assert from_tags(to_tags(ranges, place, names).tolist(), names) == ranges


def test_ranges_need_word_borders() -> None:
    (words,) = find_words_of_texts(StackedPieces.of([TOKENIZER.encode("ab cd-ef", add_special_tokens=False)]))
    found, lost = to_word_ranges([(0, 2, "a"), (3, 8, "b"), (1, 2, "c"), (2, 3, "d")], words)
    assert (found, lost) == ([(0, 1, "a"), (1, 4, "b")], 2)


@pytest.mark.parametrize(
    "settings", [{"head": "lstm"}, {"scheme": "iob"}, {"max_length": 4}, {"overlap": 200}, {"partial": "maybe"}]
)
def test_bad_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(BadSetting, match=next(iter(settings))):
        task(**settings)


def test_unknown_types_are_named_with_their_place() -> None:
    with pytest.raises(BadFile, match=r"'planet' \(test\.tsv, document 7\); it knows drug, gene"):
        task().check([example("a", (0, 1, "planet"), where="test.tsv, document 7")])


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared data sets")
def test_long_chinese_records_keep_every_entity() -> None:
    reading = TagTask.read([SHARED / "data/zh/cMedQANER/train.txt"], TagSettings(), ReadOptions())
    learner = TagTask.learn(reading.examples, TagSettings())
    long = [each for each in reading.examples if len(each.text) > 600]
    assert long
    chinese = Tokenizer.from_vocabulary(
        Vocabulary.from_pieces(
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            *sorted({c for e in long for c in e.text if c.strip()}),
        ),
        lowercase=True,
    )
    for each, encoded in zip(long, learner.encode(long, chinese, 512), strict=True):
        outputs = [10 * np.eye(len(learner.labels), dtype=np.float32)[row.labels] for row in encoded.rows]
        found = set(learner.decode(encoded, outputs).spans)
        assert len(set(each.entities or ()) - found) == encoded.coverage.unreachable


def test_a_crf_that_errs_becomes_less_sure_of_the_same_entities() -> None:
    untrained = task(head="crf")
    shapes = dict(zip(untrained.decoding_weights, [(5, 5), (5,), (5,)], strict=True))
    learner = untrained.with_decoding_weights({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    texts = [example("ab cd ef", (0, 2, "drug"))] * 40
    encoded = learner.encode(texts, TOKENIZER, 64)
    noise = np.random.default_rng(1).normal(size=(40, 3, 5)) * 6
    right = [np.concatenate([row.labels for row in each.rows]) for each in encoded]
    outputs = [[8 * np.eye(5)[tags] + wrong] for tags, wrong in zip(right, noise, strict=True)]
    tuned = learner.tune(texts, encoded, outputs)
    before, after = (
        [entity for each, found in zip(encoded, outputs, strict=True) for entity in one.decode(each, found).entities]
        for one in (learner, tuned)
    )
    assert [(e.start, e.end, e.label) for e in before] == [(e.start, e.end, e.label) for e in after]
    assert tuned.temperature > 1.2
    assert np.mean([e.score for e in after]) < np.mean([e.score for e in before])


def test_entities_of_corpora_with_other_types_are_as_sure_as_they_are_right() -> None:
    generator = np.random.default_rng(0)
    examples = [example("a b c", (0, 1, "drug"), types=frozenset({"drug"})) for _ in range(400)]
    learner = replace(task(), partial=True)
    encoded = learner.encode(examples, TOKENIZER, 512)
    outputs = []
    for read in encoded:  # the first word is a drug with a score of 6, and so is the second in every fourth text
        scores = np.zeros((3, len(learner.labels)), np.float32)
        scores[0, learner.labels.index("B-drug")] = 6
        scores[:, learner.labels.index("O")] = 3
        scores[1, learner.labels.index("B-drug")] = 6 * (generator.random() < 0.25)
        outputs.append([scores[: len(read.rows[0].positions)]])
    tuned = learner.tune(examples, encoded, outputs)
    before, after = (each.decode_batch(encoded, outputs) for each in (learner, tuned))
    assert [each.spans for each in after] == [each.spans for each in before]
    judged = [each for pair in zip(examples, after, strict=True) for each in tuned.confidences(*pair)]
    sure, right = np.array(judged).T
    assert abs(sure.mean() - right.mean()) < 0.02
    assert tuned.temperature > 1.2


def test_a_span_head_is_as_sure_of_its_entities_as_they_are_often_right() -> None:
    learner = task(head="span")
    right, wrong = example("ab cd", (0, 2, "drug")), example("ab cd", (3, 5, "gene"))
    texts = [*[right] * 14, *[wrong] * 6, replace(wrong, types=frozenset({"gene"}))]
    encoded = learner.encode(texts, TOKENIZER, 64)
    vectors = np.full((2, 8), -9.0)  # two for queries, two for keys, then first and last words of both types
    vectors[:, :4] = 0
    vectors[0, [4, 6]] = 3  # the first word alone is a drug: 6
    tuned = learner.tune(texts, encoded, [[vectors]] * len(texts))
    before, after = (one.decode(encoded[0], [vectors]).entities for one in (learner, tuned))
    assert [(e.start, e.end, e.label) for e in before] == [(0, 2, "drug")]
    assert [(e.start, e.end, e.label) for e in after] == [(0, 2, "drug")]
    assert before[0].score > 0.99
    assert after[0].score == pytest.approx(0.7)
    assert learner.tune([], [], []).temperature == 1


def test_no_sentence_goes_on_from_the_title_to_the_abstract() -> None:
    text = "Resistance in lung adenocarcinoma\nOsimertinib is given. It works."
    sections = (Section(0, 33, "title"), Section(34, len(text), "text"))
    (read,) = TagTask.examples_from_documents([Document("1", text, sections=sections)])
    assert [text[start:].split(maxsplit=1)[0] for start in read.sentence_starts] == ["Resistance", "Osimertinib", "It"]
