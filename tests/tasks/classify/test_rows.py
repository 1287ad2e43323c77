"""Rows of the task classify: nothing of a text is lost, whatever its length, and windows are pooled alike everywhere."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from alembert.nn.config import preset
from alembert.nn.model import new_model
from alembert.tasks.classify.data import ClassifyExample, ClassifySettings
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.example import EncodedExample
from alembert.tasks.runtime.torch import ModelRunner, TaskBatch, collate_rows
from alembert.tasks.settings import LossSettings
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz."
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces(*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)), lowercase=True
)
SMALL = ClassifySettings(max_length=16, overlap=4)
DOCUMENT = ClassifySettings(max_length=16, overlap=4, context="document")
WORDS = st.lists(st.text("abcdef", min_size=1, max_size=9), min_size=1, max_size=60).map(" ".join)
NONE = torch.nn.Identity()


def task_of(settings: ClassifySettings, *golds: Any, pairs: bool = False) -> ClassifyTask:
    texts = ("x", "y") if pairs else ("x",)
    is_document = settings.context == "document"
    examples = [
        ClassifyExample(id=str(n), texts=texts, golds=(gold,), is_document=is_document)
        for n, gold in enumerate(golds or ("a", "b", "c"))
    ]
    return ClassifyTask.learn(examples, settings)


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


def encoded(task: ClassifyTask, *texts: str, gold: Any = "a") -> EncodedExample:
    is_document = task.is_document
    golds = (gold,) * len(texts) if is_document else (gold,)
    example = ClassifyExample(id="1", texts=texts, golds=golds, is_document=is_document)
    return task.encode([example], TOKENIZER, 512)[0]


def target_for(parts: list[EncodedExample], task: ClassifyTask) -> TaskBatch:
    rows = [(number, row) for number, each in enumerate(parts) for row in each.rows]
    count = len(parts) if task.loss_unit == "examples" else None
    return collate_rows([row for _, row in rows], [number for number, _ in rows], count)


# -- texts


@given(text=WORDS)
def test_windows_hold_every_token_of_a_text_in_order(text: str) -> None:
    rows = encoded(task_of(SMALL), text).rows
    wanted, reached = ids_of(text), 0
    for row in rows:
        inside = row.ids[1:-1].tolist()
        start = next(n for n in range(reached, -1, -1) if wanted[n : n + len(inside)] == inside)
        reached = max(reached, start + len(inside))
    assert reached == len(wanted)


@given(text=WORDS)
def test_rows_keep_the_limit_and_their_form(text: str) -> None:
    for row in encoded(task_of(SMALL), text).rows:
        assert row.length <= 16
        assert (row.ids[0], row.ids[-1]) == (TOKENIZER.cls_id, TOKENIZER.sep_id)
        assert row.positions.tolist() == [0]


def test_the_answer_stands_at_the_first_row() -> None:
    rows = encoded(task_of(SMALL), "word " * 40, gold="b").rows
    assert rows[0].labels is not None
    assert rows[0].labels.tolist() == [1]
    assert all(row.labels is None for row in rows[1:])


def test_the_model_limits_the_length_too() -> None:
    task = task_of(ClassifySettings())
    (each,) = task.encode(task.examples_from_texts(["word " * 100]), TOKENIZER, 20)
    assert max(row.length for row in each.rows) <= 20


def test_a_text_without_tokens_has_a_row() -> None:
    assert encoded(task_of(SMALL), " ").rows[0].ids.tolist() == [TOKENIZER.cls_id, TOKENIZER.sep_id]


def test_coverage_counts_what_was_read() -> None:
    coverage = encoded(task_of(SMALL), "ab 漢 " * 10).coverage
    assert (coverage.examples, coverage.characters, coverage.gold, coverage.split_examples) == (1, 50, 1, 1)
    assert coverage.unknown >= 10
    assert coverage.cut_characters == 0


def test_training_may_cut_and_counts_it() -> None:
    task = task_of(ClassifySettings(max_length=16, overlap=4, train_windows=2))
    text = "abcd " * 40
    example = ClassifyExample(id="1", texts=(text,), golds=("a",))
    (cut,) = task.for_training().encode([example], TOKENIZER, 512)
    (whole,) = task.encode([example], TOKENIZER, 512)
    assert len(cut.rows) == 2 < len(whole.rows)
    assert [cut.rows[0].ids.tolist(), cut.rows[1].ids.tolist()] == [
        whole.rows[0].ids.tolist(),
        whole.rows[-1].ids.tolist(),
    ]
    read = sum(row.length - 2 for row in cut.rows)
    assert cut.coverage.cut_characters == 160 - read


# -- pairs


@given(one=WORDS, other=WORDS)
def test_windows_hold_every_token_of_a_pair(one: str, other: str) -> None:
    found: tuple[set[int], set[int]] = (set(), set())
    sides = (ids_of(one), ids_of(other))
    for row in encoded(task_of(SMALL, pairs=True), one, other).rows:
        assert row.segments is not None
        assert row.length <= 16
        for side in (0, 1):
            part = row.ids[row.segments == side][1 - side : -1].tolist()
            found[side].update(_places(part, sides[side]))
    assert [len(each) for each in found] == [len(side) for side in sides]


def _places(part: list[int], whole: list[int]) -> set[int]:
    """Find all places of a part: letters repeat, so it may stand at several."""
    starts = [n for n in range(len(whole)) if whole[n : n + len(part)] == part]
    assert starts or not part
    return {place for start in starts for place in range(start, start + len(part))}


def test_a_pair_is_as_the_tokenizer_writes_it() -> None:
    (row,) = encoded(task_of(SMALL, pairs=True), "ab c", "d").rows
    expected = TOKENIZER.encode("ab c", "d")
    assert row.ids.tolist() == list(expected.ids)
    assert row.segments is not None
    assert row.segments.tolist() == list(expected.type_ids)


def test_the_shorter_side_is_repeated() -> None:
    for one, other, side in (("x y", "a b " * 20, 0), ("a b " * 20, "x y", 1)):
        rows = encoded(task_of(SMALL, pairs=True), one, other).rows
        assert len(rows) > 1
        for row in rows:
            assert row.segments is not None
            assert row.ids[row.segments == side][1 - side : -1].tolist() == ids_of("x y")


# -- documents


SENTENCES = st.lists(st.text("abc", min_size=0, max_size=40), min_size=1, max_size=12)


@given(sentences=SENTENCES)
def test_every_sentence_is_owned_by_one_window(sentences: list[str]) -> None:
    task = task_of(DOCUMENT)
    each = encoded(task, *sentences)
    short = [n for n, sentence in enumerate(sentences) if len(ids_of(sentence)) <= 14]
    owners = each.layout.owners.tolist()
    assert set(owners) == set(range(len(sentences)))
    assert owners == sorted(owners)
    assert all(owners.count(n) == 1 for n in short)


@given(sentences=SENTENCES)
def test_answers_stand_behind_their_sentences(sentences: list[str]) -> None:
    each = encoded(task_of(DOCUMENT), *sentences)
    owners = iter(each.layout.owners.tolist())
    for row in each.rows:
        assert row.length <= 16
        assert (row.ids[row.positions] == TOKENIZER.sep_id).all()
        for place in row.positions.tolist():
            sentence = ids_of(sentences[next(owners)])
            if len(sentence) <= 14:
                assert row.ids[place - len(sentence) : place].tolist() == sentence


@given(sentence=st.text("abc", min_size=20, max_size=80))
def test_a_long_sentence_is_read_whole(sentence: str) -> None:
    each = encoded(task_of(DOCUMENT), sentence)
    read = [row.ids[max(1, place - 14) : place].tolist() for row in each.rows for place in row.positions.tolist()]
    assert set().union(*(_places(part, ids_of(sentence)) for part in read)) == set(range(len(sentence)))


def test_a_document_that_fits_is_one_row() -> None:
    (row,) = encoded(task_of(DOCUMENT), "a b", "c").rows
    assert TOKENIZER.tokens(row.ids) == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    assert row.positions.tolist() == [3, 5]


def test_a_text_without_sentences_has_no_answer() -> None:
    task = task_of(DOCUMENT)
    (each,) = task.encode(task.examples_from_texts([" "]), TOKENIZER, 512)
    assert (each.rows, task.decode(each, []).answers) == ((), ())


# -- order and pooling


@given(texts=st.lists(WORDS, min_size=2, max_size=5))
def test_an_example_is_encoded_alike_in_any_company(texts: list[str]) -> None:
    task = task_of(SMALL)
    together = task.encode(task.examples_from_texts(texts), TOKENIZER, 512)
    for text, each in zip(texts, together, strict=True):
        (alone,) = task.encode(task.examples_from_texts([text]), TOKENIZER, 512)
        assert [row.ids.tolist() for row in each.rows] == [row.ids.tolist() for row in alone.rows]


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_training_and_decoding_pool_alike(pool: Any) -> None:
    task = task_of(ClassifySettings(max_length=16, overlap=4, pool=pool))
    each = encoded(task, "word " * 30)
    outputs = np.random.default_rng(0).normal(size=(len(each.rows), 3)).astype(np.float32)
    target = target_for([each], task)
    loss = task.loss(NONE, torch.from_numpy(outputs), target, LossSettings())
    probability = task.decode(each, list(outputs[:, None])).answer.probabilities["a"]
    assert float(loss) == pytest.approx(-np.log(probability), rel=1e-5)


def test_the_loss_is_torchs_over_the_means_of_windows() -> None:
    task = task_of(SMALL)
    parts = [encoded(task, "word " * 30, gold="b"), encoded(task, "x", gold="c")]
    target = target_for(parts, task)
    outputs = torch.randn(len(target.positions_per_row), 3, generator=torch.Generator().manual_seed(0))
    means = torch.stack([outputs[:-1].mean(0), outputs[-1]])
    expected = functional.cross_entropy(means, torch.tensor([1, 2]), reduction="sum")
    torch.testing.assert_close(task.loss(NONE, outputs, target, LossSettings()), expected)
    assert target.count == 2


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    golds = ["a"] * 6 + ["b"] * 3 + ["c"]
    task = task_of(SMALL)
    parts = [encoded(task, "x", gold=gold) for gold in golds]
    expected = compute_class_weight("balanced", classes=np.array(["a", "b", "c"]), y=np.array(golds))
    assert task.with_class_weights(parts).weights == pytest.approx(expected.tolist())


def test_balanced_weights_count_in_the_loss_only_if_asked_for() -> None:
    task = task_of(SMALL)
    parts = [encoded(task, "x", gold=gold) for gold in "aaab"]
    weighed, target = task.with_class_weights(parts), target_for(parts, task)
    outputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    plain, same, balanced = (
        float(each.loss(NONE, outputs, target, settings))
        for each, settings in (
            (task, LossSettings()),
            (weighed, LossSettings()),
            (weighed, LossSettings(class_weights="balanced")),
        )
    )
    assert plain == same != balanced


@pytest.mark.parametrize("golds", [("a", "b"), (("a",), ("a", "b")), (1.5, 2.5)])
def test_equal_passes_do_not_diverge(golds: tuple[Any, ...]) -> None:
    task = task_of(SMALL, *golds)
    target = target_for([encoded(task, "x", gold=golds[0])], task)
    outputs = torch.ones(1, task.head().columns)
    assert float(task.divergence(outputs, outputs, target)) == 0


# -- with a model


@pytest.mark.parametrize(
    ("golds", "settings"),
    [
        (("a", "b"), SMALL),
        ((("a",), ("a", "b"), ()), SMALL),
        ((1.5, 2.5, 4.0), SMALL),
        (("a", "b"), DOCUMENT),
        (("a", "b"), ClassifySettings(max_length=16, overlap=4, pooling="mean")),
    ],
)
def test_a_small_model_learns_its_examples(golds: tuple[Any, ...], settings: ClassifySettings) -> None:
    task = task_of(settings, *golds)
    spec = task.head()
    model = new_model(preset("tiny", vocab_size=TOKENIZER.vocab_size), {spec.kind: spec}).train(False)
    texts = ["ab " * 20, "cd", "ef gh"]
    parts = [encoded(task, text, gold=gold) for text, gold in zip(texts, golds, strict=False)]
    target = target_for(parts, task)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    losses = []
    for _ in range(25):
        outputs = model(target.batch, [spec.kind], positions_P=target.positions, only=True)[spec.kind]
        loss = task.loss(NONE, outputs, target, LossSettings())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 4
    found = [task.decode(*each) for each in zip(parts, ModelRunner(model, spec.kind).outputs(parts), strict=True)]
    assert len(found) == len(parts)


def test_predictions_do_not_depend_on_company() -> None:
    task = task_of(SMALL)
    spec = task.head()
    model = new_model(preset("tiny", vocab_size=TOKENIZER.vocab_size), {spec.kind: spec}).eval()
    parts = task.encode(task.examples_from_texts(["ab " * 30, "c", "d e f " * 9]), TOKENIZER, 512)
    together = ModelRunner(model, spec.kind).outputs(parts)
    for each, outputs in zip(parts, together, strict=True):
        alone = task.decode(each, ModelRunner(model, spec.kind).outputs([each])[0]).answer
        company = task.decode(each, outputs).answer
        assert alone.probabilities == pytest.approx(dict(company.probabilities), abs=1e-5)


def test_a_long_passage_is_tokenized_with_its_borders_once_for_all_its_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    run = Tokenizer.encode

    def encode(self: Tokenizer, text: str, **options: bool) -> Any:
        seen.append(text)
        return run(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", encode)
    passage = "a b. " * 20
    task = task_of(SMALL, pairs=True)
    questions = [ClassifyExample(id=text, texts=(text, passage), golds=("a",)) for text in "abc"]
    assert all(len(each.rows) > 1 for each in task.encode(questions, TOKENIZER, 512))
    assert seen == [passage]
