"""Augmentation: which words stand in for others, what chance decides, and what becomes of labels."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting, UserError
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.batch import Batch
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec
from alembert.tasks.classify.data import ClassifyExample, ClassifySettings
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.tag.data import TagExample, TagSettings
from alembert.tasks.tag.task import TagTask
from alembert.text.lexicon import Lexicon
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from alembert.train.augment import AugmentSettings
from alembert.train.augment.augment import AugmentResult, augment, write_augmented
from alembert.train.augment.candidates import CandidateFinder, NearestWords, SubstituteWords

LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789-.,()%/'"]
WORDS = [
    "gene",
    "protein",
    "tumour",
    "kidney",
    "patient",
    "mouse",
    "disease",
    "aspirin",
    "growth",
    "cancer",
    "therapy",
    "dose",
    "serum",
    "clinical",
]
CHINESE = [*"患者有糖尿病和高血压肾头痛发热的"]
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces(
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "the", "xy"),
        *(*WORDS, *CHINESE, *LETTERS, *(f"##{letter}" for letter in LETTERS)),
    ),
    lowercase=True,
)
TEXTS = (
    "Serum p53 and IL-6 in the kidney of a mouse.",
    "Growth of cancer, a disease of IL-8 therapy.",
    "患者有糖尿病和高血压",
    "头痛发热的患者",
)


def checkpoint(*, has_head: bool = True, longest: int = 128, tokenizer: Tokenizer = TOKENIZER) -> Checkpoint:
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=longest)
    heads = {"masked_lm": HeadSpec(kind="masked_lm")} if has_head else {}
    found = Checkpoint.new(Blueprint(config=config, heads=heads), tokenizer, seed=3)
    found.model.eval()
    torch.nn.init.normal_(found.model.encoder.embeddings.token.weight, generator=torch.Generator().manual_seed(1))
    return found


def labelled(*texts: str | tuple[str, str]) -> list[ClassifyExample]:
    return [
        ClassifyExample(id=f"e{number}", texts=(text,) if isinstance(text, str) else text, golds=(str(number % 2),))
        for number, text in enumerate(texts)
    ]


CLASSIFY = ClassifyTask(ClassifySettings(), "single", ("0", "1"))
TAG = TagTask(("Disease", "Gene"), TagSettings())


def augmented(examples: Sequence[Any] = (), **changes: Any) -> AugmentResult:
    return augment(checkpoint(), CLASSIFY, examples or labelled(*TEXTS), AugmentSettings(**changes))


def word_candidates(source: Checkpoint, text: str, *spans: tuple[int, int], count: int = 5) -> list[tuple[str, ...]]:
    words = {text[start:end]: 1 for start, end in spans}
    (slots,) = CandidateFinder(source, TOKENIZER, words, count).slots([text], [list(spans)])
    return [slot.candidates for slot in slots]


# -- candidates


def test_a_masked_lm_fills_as_a_plain_computation_does() -> None:
    """The sentence with the word masked, [SEP], the sentence: the likeliest whole words, other than the word."""
    source, text = checkpoint(), "the gene of a mouse"
    (found,) = word_candidates(source, text, (4, 8))
    inside = list(TOKENIZER.encode(text, add_special_tokens=False).ids)
    hidden = [TOKENIZER.mask_id if piece == TOKENIZER.id_of("gene") else piece for piece in inside]
    row = [TOKENIZER.cls_id, *hidden, TOKENIZER.sep_id, *inside, TOKENIZER.sep_id]
    segments = [0] * (len(inside) + 2) + [1] * (len(inside) + 1)
    batch = Batch.padded(torch.tensor([row]), segments_BT=torch.tensor([segments]))
    with torch.inference_mode():
        logits = source.model(batch)["masked_lm"][row.index(TOKENIZER.mask_id)]
    ranked = [TOKENIZER.vocabulary.pieces[number] for number in logits.argsort(descending=True).tolist()]
    assert list(found) == sorted([piece for piece in ranked if piece in WORDS and piece != "gene"][:5])


def test_several_words_are_hidden_at_a_time_and_each_has_its_own_candidates() -> None:
    text = " ".join(WORDS)
    spans = [(text.index(word), text.index(word) + len(word)) for word in WORDS]
    found = word_candidates(checkpoint(), text, *spans, count=50)
    assert [set(each) | {word} for word, each in zip(WORDS, found, strict=True)] == [set(WORDS)] * len(WORDS)
    few = word_candidates(checkpoint(), text, *spans, count=3)
    assert len(set(few)) > 1


def test_texts_that_are_read_together_have_the_candidates_that_each_has_alone() -> None:
    texts = [" ".join(WORDS[:size]) for size in (9, 2, 14, 5)]
    source = CandidateFinder(checkpoint(), TOKENIZER, dict.fromkeys(WORDS, 1), 3)
    together = source.slots(texts, [_spans(text) for text in texts])
    assert together == [source.slots([text], [_spans(text)])[0] for text in texts]


def test_neighbours_are_those_of_a_plain_computation() -> None:
    """Cosine between means of rows, from which the mean of all rows that are words is taken."""
    source = checkpoint(has_head=False)
    rows = source.model.encoder.embeddings.token.weight.detach().numpy()
    pieces = TOKENIZER.vocabulary.pieces
    mean = rows[[any(letter.isalnum() for letter in piece) for piece in pieces]].mean(0)

    def direction(*names: str) -> Any:
        vector = rows[[TOKENIZER.id_of(name) for name in names]].mean(0) - mean
        return vector / np.linalg.norm(vector)

    likeness = {word: direction("p", "##5", "##3") @ direction(word) for word in WORDS}
    (found,) = word_candidates(source, "p53", (0, 3))
    assert list(found) == sorted(sorted(WORDS, key=likeness.__getitem__, reverse=True)[:5])


def test_candidates_are_whole_words_other_than_the_word() -> None:
    for found in word_candidates(checkpoint(), "gene IL-6", (0, 4), (5, 9), count=50):
        assert {word.lower() for word in found} <= {*WORDS, "il-6"}
    assert "gene" not in word_candidates(checkpoint(), "gene IL-6", (0, 4), (5, 9), count=50)[0]


def test_a_word_is_not_replaced_by_its_own_beginning() -> None:
    substitutes = SubstituteWords.of(TOKENIZER, {"genes": 1, "gene": 1})
    neighbours = NearestWords(substitutes, checkpoint().model.encoder.embeddings.token.weight, 50)
    neighbours.find(["genes", "gene"])
    assert "gene" not in neighbours.of("genes")
    assert "genes" in neighbours.of("gene")


def test_candidates_take_over_case() -> None:
    found = word_candidates(checkpoint(), "Gene GENE gene", (0, 4), (5, 9), (10, 14))
    assert [all(map(check, each)) for check, each in zip((str.istitle, str.isupper, str.islower), found, strict=True)]


@pytest.mark.parametrize("has_head", [True, False])
def test_chinese_words_stand_in_for_words_of_their_length(has_head: bool) -> None:
    words = {"头痛": 2, "发热": 1, "糖尿病": 1, "高血压": 1, "患者": 3}
    slots = CandidateFinder(checkpoint(has_head=has_head), TOKENIZER, words, 5).slots(
        ["患者有糖尿病和头痛"], [[(0, 2), (3, 6), (7, 9)]]
    )
    assert [sorted(slot.candidates) for slot in slots[0]] == [["发热", "头痛"], ["高血压"], ["发热", "患者"]]
    assert {slot.is_filled for slot in slots[0]} == {has_head}


def test_a_text_longer_than_the_model_reads_has_candidates_to_its_end() -> None:
    text = " ".join(WORDS * 20)
    spans = _spans(text)
    source = CandidateFinder(checkpoint(longest=32), TOKENIZER, dict.fromkeys(WORDS, 1), 5)
    (slots,) = source.slots([text], [spans])
    assert [(slot.start, slot.end) for slot in slots] == spans
    assert all(slot.is_filled for slot in slots)


def _spans(text: str) -> list[tuple[int, int]]:
    ends = [place for place, letter in enumerate(text) if letter == " "] + [len(text)]
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))


def test_a_word_without_known_pieces_has_no_neighbours_and_can_be_filled() -> None:
    assert word_candidates(checkpoint(has_head=False), "gene ψψψ", (5, 8)) == []
    assert word_candidates(checkpoint(), "gene ψψψ", (5, 8))


# -- copies


def test_words_with_digits_and_hyphens_are_replaced() -> None:
    texts = [copy.texts[0] for copy in augmented(labelled(TEXTS[0])).examples]
    assert any("p53" not in text for text in texts)
    assert any("IL-6" not in text for text in texts)
    assert all(" and " in text and " in the " in text for text in texts)


def test_order_and_company_change_no_copy() -> None:
    examples = labelled(*TEXTS)
    shuffled = random.Random(4).sample(examples, len(examples))
    one, other = augmented(examples).examples, augmented(shuffled).examples
    assert {copy.id: copy for copy in one} == {copy.id: copy for copy in other}
    assert one == augmented(examples).examples


def test_another_seed_gives_other_copies() -> None:
    assert augmented(seed=1).examples != augmented(seed=2).examples


def test_every_text_of_a_pair_is_made_from_its_own_original() -> None:
    """A word of a copy is the original's, or one of its candidates: nothing adds up over copies."""
    pair = (" ".join(WORDS[:7]), " ".join(WORDS[7:]))
    made = augmented(labelled(pair), copies=40, candidates=2)
    source = CandidateFinder(checkpoint(), TOKENIZER, dict.fromkeys(WORDS, 1), 2)
    slots = source.slots(pair, [_spans(text) for text in pair])
    for copy in made.examples:
        for text, own in zip(copy.texts, slots, strict=True):
            for word, slot, original in zip(text.split(), own, pair[copy.texts.index(text)].split(), strict=True):
                assert word in (original, *slot.candidates)
    changed = [[copy.texts[side] != pair[side] for copy in made.examples] for side in (0, 1)]
    assert all(map(any, changed))


def test_words_are_replaced_as_often_as_asked_for() -> None:
    made = augmented(labelled(" ".join(WORDS * 20)), copies=10)
    assert made.counts["replaced"] / (20 * len(WORDS) * 10) == pytest.approx(0.4, abs=0.04)


def test_copies_are_no_originals_and_differ() -> None:
    examples = labelled(*TEXTS)
    made = augmented(examples, copies=30, replace_probability=0.1)
    for number, example in enumerate(examples):
        texts = [copy.texts for copy, origin in zip(made.examples, made.origins, strict=True) if origin == number]
        assert len({example.texts, *texts}) == len(texts) + 1
    counts = made.counts
    assert counts["same"] > 0
    assert counts["copies"] + counts["same"] + counts["lost"] == 30 * len(examples)


def test_a_model_without_a_masked_lm_says_so() -> None:
    made = augment(checkpoint(has_head=False), CLASSIFY, labelled(*TEXTS))
    assert made.counts["filled"] == 0
    assert "no masked-LM head" in made.notes[0]
    assert augmented().counts["filled"] > 0


def test_examples_without_words_are_a_sentence() -> None:
    with pytest.raises(BadInput, match="a word that may be replaced"):
        augmented(labelled("1, 2, 3", "of the"))


@pytest.mark.parametrize(
    "wrong",
    [{"copies": -1}, {"copies": 2.5}, {"replace_probability": 1.5}, {"candidates": 0}, {"replace_probability": 0.0}],
)
def test_wrong_settings_are_a_sentence(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=f"`{next(iter(wrong))}`"):
        AugmentSettings(**wrong)


# -- entities


def tagged() -> list[TagExample]:
    texts = {"Cancer of kidney by p53.": (0, 6, "Disease"), "The disease of IL-6.": (4, 11, "Disease")}
    genes = [(20, 23, "Gene"), (15, 19, "Gene")]
    return [
        TagExample(id=f"t{n}", texts=(text,), entities=(disease, gene))
        for n, ((text, disease), gene) in enumerate(zip(texts.items(), genes, strict=True))
    ]


def surfaces(examples: Sequence[TagExample]) -> list[list[str]]:
    return [[each.text[start:end] for start, end, _ in each.entities or ()] for each in examples]


def test_entities_are_replaced_by_others_of_their_type() -> None:
    made = augment(
        checkpoint(), TAG, tagged(), AugmentSettings(copies=1, replace_probability=0.0, entity_probability=1.0)
    )
    assert surfaces(made.examples) == [["disease", "IL-6"], ["Cancer", "p53"]]
    assert [each.text for each in made.examples] == ["disease of kidney by IL-6.", "The Cancer of p53."]


def test_entities_are_replaced_by_those_of_a_dictionary() -> None:
    lexicon = Lexicon("disease", [("Leukemia, Acute", "1")])
    made = augment(
        checkpoint(),
        TAG,
        tagged(),
        AugmentSettings(copies=1, replace_probability=0.0, entity_probability=1.0),
        lexicons=[lexicon],
    )
    assert surfaces(made.examples) == [["Acute Leukemia", "IL-6"], ["Acute Leukemia", "p53"]]


def test_words_are_replaced_beside_whole_entities() -> None:
    made = augment(
        checkpoint(), TAG, tagged(), AugmentSettings(copies=20, replace_probability=1.0, entity_probability=0.5)
    )
    found = {surface for each in surfaces(made.examples) for surface in each}
    assert {"disease", "Cancer", "p53", "IL-6"} < found


@pytest.mark.parametrize(
    ("examples", "lexicons", "sentence"),
    [
        (tagged(), [Lexicon("drug", [("aspirin", "")])], "type 'drug'"),
        ([replace(each, entities=()) for each in tagged()], [], "no entities"),
    ],
)
def test_entities_that_cannot_be_replaced_are_a_sentence(
    examples: list[TagExample], lexicons: list[Lexicon], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        augment(checkpoint(), TAG, examples, AugmentSettings(entity_probability=0.5), lexicons=lexicons)


# -- real data


@pytest.mark.parametrize("name", ["ner/NCBI-disease/train.tsv", "zh/cMedQANER/train.txt"])
def test_labels_of_real_data_stay_on_their_words_and_originals_untouched(
    name: str, shared: Path, tmp_path: Path
) -> None:
    reading = TagTask.read([shared / name], TagSettings(), ReadOptions())
    examples = [each for each in reading.examples if each.entities][:150]
    task = TagTask.learn(examples, TagSettings())
    pieces = sorted({letter.lower() for each in examples for letter in each.text if not letter.isspace()})
    known = {"[PAD]": 0, "[UNK]": 0, "[CLS]": 0, "[SEP]": 0, "[MASK]": 0}
    vocabulary = Vocabulary.from_pieces(*dict.fromkeys((*known, *pieces, *(f"##{each}" for each in pieces), *WORDS)))
    tokenizer = Tokenizer.from_vocabulary(vocabulary, lowercase=True)
    before = list(examples)
    made = augment(checkpoint(tokenizer=tokenizer), task, examples, AugmentSettings(copies=2))
    assert examples == before
    assert made.counts["copies"] > 200
    write_augmented(tmp_path / "augmented.jsonl", task, [*examples, *made.examples])
    again = TagTask.read([tmp_path / "augmented.jsonl"], TagSettings(), ReadOptions())
    assert [replace(each, where="") for each in again.examples] == [
        replace(each, where="") for each in (*examples, *made.examples)
    ]
    for copy, origin in zip(made.examples, made.origins, strict=True):
        check_labels(copy, examples[origin])


def check_labels(copy: TagExample, original: TagExample) -> None:
    """What stands between two borders of entities has as many parts, parted by the same signs, as in the original."""
    assert [label for *_, label in copy.entities or ()] == [label for *_, label in original.entities or ()]
    for (start, end, _), (first, last, _) in zip(copy.entities or (), original.entities or (), strict=True):
        assert signs(copy.text[start:end]) == signs(original.text[first:last])
        assert signs(copy.text[:start]) == signs(original.text[:first])


def signs(text: str) -> list[str]:
    """What augmentation never touches: white space, brackets and commas."""
    return [letter for letter in text if letter.isspace() or letter in ",.;()[]%，。、？"]
