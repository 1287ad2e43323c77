"""Compare: each part of SimCSE and of cosine regression equals a plain computation; vectors, scores and rows."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from alembert.errors import BadFile, BadInput, BadSetting
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import Dropout, DropoutSeed
from alembert.nn.heads import HEAD_KINDS, HeadSpec
from alembert.nn.model import Model, new_model
from alembert.tasks.compare.columns import CompareKind, CompareSettings
from alembert.tasks.compare.data import CompareExample
from alembert.tasks.compare.pooling import Pooling, PoolingName, build_sentence_transformers_files
from alembert.tasks.compare.scores import ComparePrediction, build_sample_metric, compute_metrics
from alembert.tasks.compare.task import CompareTask
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.files import read_task, write_tasks
from alembert.tasks.losses import contrastive_loss, score_loss
from alembert.tasks.runtime.torch import ModelRunner, collate_rows
from alembert.tasks.settings import LossSettings
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

WORDS = ("a", "man", "is", "dancing", "statin", "pain", ".")
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), lowercase=True
)
CONFIG = EncoderConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=40,
)
PLAIN = LossSettings()
UNIT = Coverage(examples=1)


def example(*texts: str, kind: CompareKind | None = None, score: float | None = None) -> CompareExample:
    return CompareExample(id="x", texts=texts, where="file:1", kind=kind, score=score)


def task(kind: CompareKind = "unsupervised", pooling: PoolingName = "cls_train_layer", **more: object) -> CompareTask:
    return CompareTask(CompareSettings(pooling=pooling, **more), kind, pooling)


def model_for(spec: HeadSpec) -> Model:
    model = new_model(CONFIG, {"embed": spec}, seed=3)
    for parameter in model.heads.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(5))
    return model.eval()


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / math.sqrt((one @ one) * (other @ other)))


def vectors(count: int, width: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


# -- losses


def plain_loss(anchors: np.ndarray, partners: np.ndarray, negatives: np.ndarray, temperature: float) -> float:
    """-log softmax of the own partner among all partners and negatives, by its definition."""
    total = 0.0
    for number, anchor in enumerate(anchors):
        logits = [cosine(anchor, each) / temperature for each in [*partners, *negatives]]
        total += math.log(sum(map(math.exp, logits))) - logits[number]
    return total


@pytest.mark.parametrize("temperature", [0.05, 0.5, 2.0])
def test_the_unsupervised_loss_is_that_of_finding_oneself(temperature: float) -> None:
    found = vectors(8)
    roles = torch.tensor([0, 1] * 4)
    loss = contrastive_loss(torch.from_numpy(found), roles, temperature, PLAIN)
    wanted = plain_loss(found[0::2], found[1::2], found[:0], temperature)
    assert float(loss) == pytest.approx(wanted, rel=1e-5)


def test_hard_negatives_of_all_examples_are_candidates_of_each() -> None:
    found = vectors(12)
    loss = contrastive_loss(torch.from_numpy(found), torch.tensor([0, 1, 2] * 4), 0.05, PLAIN)
    wanted = plain_loss(found[0::3], found[1::3], found[2::3], 0.05)
    assert float(loss) == pytest.approx(wanted, rel=1e-5)


def test_the_loss_looks_in_one_direction_alone() -> None:
    found = torch.from_numpy(vectors(6))
    turned = found.unflatten(0, (3, 2)).flip(1).flatten(0, 1)
    roles = torch.tensor([0, 1] * 3)
    one, other = (contrastive_loss(each, roles, 0.05, PLAIN) for each in (found, turned))
    assert float(one) != pytest.approx(float(other))


def test_the_loss_of_scores_is_the_squared_distance_from_the_cosine() -> None:
    found, scores = vectors(6), [0.1, 0.9, 0.4]
    loss = score_loss(torch.from_numpy(found), torch.tensor(scores))
    pairs = zip(found[0::2], found[1::2], scores, strict=True)
    assert float(loss) == pytest.approx(sum((cosine(a, b) - s) ** 2 for a, b, s in pairs), rel=1e-5)


@settings(deadline=None)
@given(st.floats(0.1, 10))
def test_losses_do_not_depend_on_the_length_of_vectors(factor: float) -> None:
    found, roles = torch.from_numpy(vectors(8)), torch.tensor([0, 1] * 4)
    one, other = (contrastive_loss(each, roles, 0.05, PLAIN) for each in (found, factor * found))
    assert float(one) == pytest.approx(float(other), rel=1e-4)


def test_the_task_trains_the_layered_half_alone() -> None:
    half, whole = vectors(8), vectors(8, seed=1)
    outputs = torch.from_numpy(np.concatenate([half, whole], axis=1)).requires_grad_()
    learner = task(temperature=0.5)
    encoded = learner.for_training().encode([example("a man", kind="unsupervised")] * 4, TOKENIZER, 40)
    target = collate_rows([row for each in encoded for row in each.rows], [0, 0, 1, 1, 2, 2, 3, 3], 4)
    loss = learner.loss(torch.nn.Identity(), outputs, target, PLAIN)
    (slope,) = torch.autograd.grad(loss, outputs)
    wanted = plain_loss(half[0::2], half[1::2], half[:0], 0.5)
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-5)
    assert slope[:, 5:].abs().max() == 0


# -- the head


@pytest.mark.parametrize("pooling", HEAD_KINDS["embed"].poolings)
@pytest.mark.parametrize("training", [False, True])
def test_a_vector_is_what_its_pooling_says(pooling: str, training: bool) -> None:
    rows = [[2, 5, 6, 7, 3], [2, 9, 3]]
    model = model_for(HeadSpec(kind="embed", pooling=pooling, dropout=0.0)).train(training)
    model.encoder.eval()  # without dropout the mode must make no difference
    batch = Batch.packed(rows)
    with torch.inference_mode():
        found = model(batch, ["embed"], only=True)["embed"]
        states = batch.split(model.encoder(batch))
    first = torch.stack([each[0] for each in states])
    layer = model.head("embed").layer
    layered = None if layer is None else torch.tanh(first @ layer.weight.T + layer.bias)
    wanted = {
        "cls": first,
        "cls_layer": layered,
        "cls_train_layer": None if layered is None else torch.cat([layered, first], dim=1),
        "mean": torch.stack([each.mean(0) for each in states]),
    }[pooling]
    torch.testing.assert_close(found, wanted)


def test_the_settings_name_the_poolings_of_the_head() -> None:
    for pooling in HEAD_KINDS["embed"].poolings:
        assert CompareSettings(pooling=pooling).pooling == pooling
    with pytest.raises(BadSetting, match="cls_train_layer, mean"):
        HeadSpec(kind="embed")


def test_the_layer_that_is_for_training_is_left_out_of_vectors() -> None:
    reader = task()
    model = model_for(reader.head())
    (encoded,) = reader.encode([example("a man is dancing .")], TOKENIZER, 40)
    bound = reader.with_head_weights(model.head("embed"))
    (outputs,) = bound.run(ModelRunner(model, "embed"), [encoded])
    with torch.inference_mode():
        (states,) = Batch.packed([encoded.rows[0].ids]).split(model.encoder(Batch.packed([encoded.rows[0].ids])))
    np.testing.assert_allclose(bound.decode(encoded, outputs).vectors[0], states[0].numpy(), atol=1e-6)


# -- dropout


def test_a_text_that_is_read_twice_is_dropped_out_independently() -> None:
    kept = Dropout(0.1)(torch.ones(2, 50_000), DropoutSeed(7)) != 0
    # Independent masks differ in 2 p (1 - p) of their elements; one and the same mask in none.
    assert (kept[0] != kept[1]).float().mean() == pytest.approx(0.18, abs=0.01)


@pytest.mark.parametrize("rates", [(0.1, 0.0), (0.0, 0.1)], ids=["states", "attention"])
def test_the_two_readings_of_a_text_differ_in_training_alone(rates: tuple[float, float]) -> None:
    hidden, attention = rates
    config = replace(CONFIG, hidden_dropout_prob=hidden, attention_probs_dropout_prob=attention)
    model = new_model(config, {"embed": HeadSpec(kind="embed", pooling="cls", dropout=0.0)}, seed=3)
    (encoded,) = task().for_training().encode([example("a man is dancing .")], TOKENIZER, 40)
    batch = Batch.packed([row.ids for row in encoded.rows])
    one, other = model.train()(batch, ["embed"], only=True, noise=DropoutSeed(1))["embed"]
    assert not torch.allclose(one, other, atol=1e-4)
    one, other = model.eval()(batch, ["embed"], only=True, noise=DropoutSeed(1))["embed"]
    torch.testing.assert_close(one, other)


# -- rows


def test_a_training_text_is_cut_and_the_rest_is_counted() -> None:
    text = "a man is dancing ."
    (encoded,) = task(max_length=8).for_training().encode([example(text + text * 2)], TOKENIZER, 40)
    one, other = encoded.rows
    assert one.ids.tolist() == other.ids.tolist()
    assert TOKENIZER.tokens(one.ids) == ["[CLS]", "a", "man", "is", "dancing", ".", "a", "[SEP]"]
    assert encoded.coverage.cut_characters == len(" man is dancing .a man is dancing .")


def test_a_long_text_is_read_in_windows_and_their_vectors_are_averaged_by_tokens() -> None:
    reader = task(pooling="mean")
    (encoded,) = replace(reader, window=8).encode([example("a man is dancing . statin pain a")], TOKENIZER, 40)
    lengths = [row.length for row in encoded.rows]
    assert (len(lengths), sum(lengths)) == (2, 8 + 4)
    assert encoded.coverage.cut_characters == 0
    outputs = [np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 1.0]], np.float32)]
    found = reader.decode(encoded, outputs).vectors[0]
    np.testing.assert_allclose(found, np.array(lengths) / sum(lengths), atol=1e-6)


def test_scores_are_moved_to_0_and_1() -> None:
    examples = [example("a", "man", kind="scores", score=score) for score in (0.0, 5.0, 2.0)]
    learnt = CompareTask.learn(examples, CompareSettings())
    encoded = learnt.for_training().encode(examples, TOKENIZER, 40)
    first = [each.rows[0].labels for each in encoded]
    assert np.concatenate(first).tolist() == pytest.approx([0.0, 1.0, 0.4])


def test_normalised_vectors_have_length_1() -> None:
    reader = replace(task(pooling="mean"), normalise=True)
    (encoded,) = reader.encode([example("a", "man")], TOKENIZER, 40)
    found = reader.decode(encoded, [np.array([[3.0, 4.0]], np.float32), np.zeros((1, 2), np.float32)])
    np.testing.assert_allclose(found.vectors, [[0.6, 0.8], [0, 0]], atol=1e-6)


# -- scores


def predicted(*each: np.ndarray) -> list[ComparePrediction]:
    return [ComparePrediction(found, UNIT) for found in each]


def test_correlations_are_those_of_scipy() -> None:
    found = [vectors(2, seed=seed) for seed in range(40)]
    gold = [float(seed % 7) for seed in range(40)]
    examples = [example("a", "b", kind="scores", score=score) for score in gold]
    guess = [cosine(*each.astype(np.float64)) for each in found]
    measures = compute_metrics(examples, predicted(*found))
    assert list(measures) == ["spearman", "pearson"]
    assert measures["spearman"] == pytest.approx(stats.spearmanr(gold, guess).statistic)
    assert measures["pearson"] == pytest.approx(stats.pearsonr(gold, guess).statistic)


def test_accuracy_is_the_share_of_partners_that_are_nearest() -> None:
    found = [np.array([[1, 0], [0.9, 0.1], [0, 1]]), np.array([[0, 1], [0.8, 0.2], [0.1, 0.9]])]
    examples = [example("a", "b", "c", kind="triples")] * 2
    assert compute_metrics(examples, predicted(*found)) == {"accuracy": 0.5}
    assert build_sample_metric(examples, predicted(*found))(np.array([1, 1])) == 0


def test_uniformity_is_that_of_wang_and_isola() -> None:
    found = [vectors(1, seed=seed) for seed in range(5)]
    units = [each[0] / np.linalg.norm(each[0]) for each in found]
    near = [math.exp(-2 * float((a - b) @ (a - b))) for i, a in enumerate(units) for j, b in enumerate(units) if i != j]
    examples = [example("a", kind="unsupervised")] * 5
    measures = compute_metrics(examples, predicted(*found))
    assert measures["uniformity"] == pytest.approx(-math.log(sum(near) / len(near)), rel=1e-6)


@pytest.mark.parametrize("count", [1, 64, 65, 130])
def test_every_example_is_measured_once(count: int) -> None:
    found = predicted(*(vectors(2, seed=seed) for seed in range(count)))
    examples = [example("a", "b", kind="pairs")] * count
    everything = build_sample_metric(examples, found)(np.arange(count))
    assert everything == pytest.approx(compute_metrics(examples, found)["accuracy"])


# -- learning


def test_a_tiny_model_learns_to_find_partners() -> None:
    pairs = [("a", "man"), ("is", "dancing"), ("statin", "pain")]
    examples = [example(*texts, kind="pairs") for texts in pairs]
    learner = task("pairs", "cls_layer")
    model = new_model(replace(CONFIG, initializer_range=0.2), {"embed": learner.head()}, seed=3).train()
    encoded = learner.for_training().encode(examples, TOKENIZER, 40)
    rows = [(number, row) for number, each in enumerate(encoded) for row in each.rows]
    target = collate_rows([row for _, row in rows], [number for number, _ in rows], len(encoded))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(80):
        outputs = model(target.batch, ["embed"], only=True, noise=DropoutSeed(step))["embed"]
        loss = learner.loss(model.head("embed"), outputs, target, PLAIN)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    answers = learner.run(ModelRunner(model.eval(), "embed"), encoded)
    found = [learner.decode(each, outputs) for each, outputs in zip(encoded, answers, strict=True)]
    assert learner.score(examples, found).value == 1


# -- the pooling is stated, and a wrong one is refused


@pytest.mark.parametrize(("stated", "made"), [("mean", "cls"), ("cls", "cls_layer"), ("cls_layer", "mean")])
def test_a_task_whose_pooling_is_not_that_of_the_model_is_refused(
    stated: PoolingName, made: PoolingName, tmp_path: Path
) -> None:
    write_tasks(tmp_path, {"compare": (replace(task(pooling=stated), dimension=16), {})})
    head = model_for(HeadSpec(kind="embed", pooling=made, dropout=0.0)).head("embed")
    with pytest.raises(BadFile, match=f"made by {stated} .* makes it by {made}"):
        read_task(tmp_path).open().with_head_weights(head)


def test_a_task_with_vectors_of_another_size_is_refused() -> None:
    head = model_for(HeadSpec(kind="embed", pooling="mean", dropout=0.0)).head("embed")
    with pytest.raises(BadFile, match="has 8 numbers"):
        replace(task(pooling="mean"), dimension=8).with_head_weights(head)


def test_a_layer_that_is_kept_goes_into_the_files_of_sentence_transformers() -> None:
    learner = task("triples", "cls_layer")
    head = model_for(learner.head()).head("embed")
    files = learner.with_head_weights(head).extra_files()
    from safetensors.numpy import load

    weights = load(files["2_Dense/model.safetensors"])
    np.testing.assert_array_equal(weights["linear.weight"], head.layer.weight.detach().numpy())
    assert files == build_sentence_transformers_files(
        Pooling(mode="cls", dimension=16, layer=True), learner.with_head_weights(head).layer
    )


def test_the_folder_of_the_model_decides_where_the_settings_do_not(tmp_path: Path) -> None:
    stated = Pooling(mode="mean", dimension=16, normalise=True, length=24)
    for path, content in build_sentence_transformers_files(stated).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    learnt = CompareTask.learn([example("a", kind="unsupervised")] * 2, CompareSettings())
    assert learnt.adopt_model_settings(tmp_path).vector == replace(stated, dimension=0)
    assert "as the model's folder states" in " ".join(learnt.adopt_model_settings(tmp_path).describe())
    assert task().adopt_model_settings(tmp_path).pooling == "cls_train_layer"
    assert learnt.adopt_model_settings(tmp_path / "1_Pooling").pooling == "cls_train_layer"


# -- what is refused


def test_data_of_another_kind_are_refused_with_their_place() -> None:
    learnt = task("triples", "cls_layer")
    learnt.check([example("a", "b", kind="scores", score=1.0)])
    with pytest.raises(BadInput, match="file:1 is of kind unsupervised"):
        learnt.check([example("a", kind="unsupervised")])
    with pytest.raises(BadInput, match="Some examples have a score"):
        learnt.check([example("a", "b", kind="scores", score=1.0), example("a", "b", "c", kind="triples")])
    with pytest.raises(BadInput, match="empty text"):
        learnt.check(learnt.examples_from_texts(["a\t"]))


def test_training_data_are_of_one_kind() -> None:
    mixed = [example("a", kind="unsupervised"), example("a", "b", kind="pairs")]
    with pytest.raises(BadInput, match=r"unsupervised \(file:1\); pairs \(file:1\)"):
        CompareTask.learn(mixed, CompareSettings())
    with pytest.raises(BadInput, match="kind triples, as `kind` asks"):
        CompareTask.learn(mixed[:1], CompareSettings(kind="triples"))
    with pytest.raises(BadInput, match="no examples"):
        CompareTask.learn([example("a")], CompareSettings())
    with pytest.raises(BadInput, match="All pairs have the score 1"):
        CompareTask.learn([example("a", "b", kind="scores", score=1.0)] * 2, CompareSettings())


@pytest.mark.parametrize(
    "only", [example("a", kind="unsupervised"), example("a", "b", kind="pairs")], ids=["text", "pair"]
)
def test_one_example_cannot_be_told_apart_from_others(only: CompareExample) -> None:
    with pytest.raises(BadInput, match="1 example to train on"):
        CompareTask.learn([only], CompareSettings())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"kind": "quads"}, "expected one of auto, unsupervised"),
        ({"temperature": 0.0}, "0.001 to 10"),
        ({"batch_size": 1}, "2 or more"),
        ({"max_length": 3}, "at least 8 tokens"),
    ],
)
def test_a_setting_that_cannot_work_is_a_sentence(setting: dict[str, object], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        CompareSettings(**setting)


# -- what comes out


def decoded(count: int) -> tuple[CompareTask, CompareExample, ComparePrediction]:
    reader = task(pooling="mean")
    (given_texts,) = reader.examples_from_texts(["\t".join(["a man"] * count)])
    (encoded,) = reader.encode([given_texts], TOKENIZER, 40)
    assert isinstance(encoded, EncodedExample)
    outputs = [np.array([[1.0, float(n)]], np.float32) for n in range(count)]
    return reader, given_texts, reader.decode(encoded, outputs)


def test_a_text_has_a_vector_and_texts_have_similarities() -> None:
    reader, one, alone = decoded(1)
    assert reader.to_record(one, alone)["vector"] == [1.0, 0.0]
    assert "2 numbers" in reader.to_lines(one, alone)[0]
    reader, two, pair = decoded(2)
    assert reader.to_record(two, pair)["similarity"] == pytest.approx(math.sqrt(0.5))
    reader, three, several = decoded(3)
    assert reader.to_record(three, several)["similarities"] == pytest.approx([math.sqrt(0.5), math.sqrt(0.2)])
    assert len(reader.to_lines(three, several)) == 2
