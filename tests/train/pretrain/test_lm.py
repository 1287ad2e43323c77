"""The lesson of pre-training: what a micro-batch holds, its loss and the held-out scores."""

from dataclasses import replace

import pytest
import torch

from alembert.corpus.shards import Shards
from alembert.data.feed import Cursor
from alembert.data.masking import MaskSettings
from alembert.nn.config import preset
from alembert.nn.model import Model, new_model
from alembert.text.tokenizer import Tokenizer
from alembert.train.objective import MicroBatch
from alembert.train.pretrain.lm import PretrainObjective
from alembert.train.pretrain.settings import HeldOutSettings, ObjectiveWeights, PretrainSettings, SequenceSettings
from alembert.train.settings import BatchSettings

ALL = ObjectiveWeights(masked_lm=1.0, next_sentence=1.0, boundaries=0.5)


def lesson(shards: Shards, tokenizer: Tokenizer, **changes: object) -> PretrainObjective:
    settings = PretrainSettings(
        steps=10,
        batch=BatchSettings(tokens=1024, micro_tokens=512),
        evaluation=HeldOutSettings(share=0.1, tokens=4000),
    )
    return PretrainObjective(shards, tokenizer, replace(settings, **changes))


def model_for(made: PretrainObjective, tokenizer: Tokenizer) -> Model:
    heads = {each.head: each.spec for each in made.objectives.values()}
    return new_model(preset("tiny", vocab_size=tokenizer.vocab_size), heads).eval()


def first_micros(made: PretrainObjective, count: int = 4, progress: float = 0.0) -> list[MicroBatch]:
    portions, _ = made.sample(Cursor(), count, progress)
    return [made.collate(portion) for portion in portions]


def counts(*micros: MicroBatch) -> dict[str, float]:
    names = {name for micro in micros for name in micro.targets}
    return {n: sum(len(m.targets[n].labels) for m in micros if n in m.targets) for n in names}


def test_the_same_portion_always_gives_the_same_micro_batch(shards: Shards, tokenizer: Tokenizer) -> None:
    one, two = (first_micros(lesson(shards, tokenizer, objectives=ALL))[2] for _ in range(2))
    assert torch.equal(one.batch.ids_N, two.batch.ids_N)
    assert all(torch.equal(one.targets[name].labels, two.targets[name].labels) for name in one.targets)


@pytest.mark.parametrize("objectives", [ALL, ObjectiveWeights(masked_lm=1.0, causal=0.5)])
def test_general_text_is_scored_beside_and_does_not_count(
    shards: Shards, tokenizer: Tokenizer, objectives: ObjectiveWeights
) -> None:
    plain = lesson(shards, tokenizer, objectives=objectives)
    both = PretrainObjective(shards, tokenizer, plain.settings, general=shards)
    model = model_for(plain, tokenizer)
    with torch.inference_mode():
        verdicts = [each.summarise([each.evaluate(model)]) for each in (plain, both)]
    assert verdicts[0].loss == verdicts[1].loss
    added = {name: scores for name, scores in verdicts[1].scores.items() if name not in verdicts[0].scores}
    expected = {f"{name}, general text" for name in ("masked_lm", "causal") if name in plain.objectives}
    assert added.keys() == expected
    assert all(scores["predictions"] > 100 for scores in added.values())


def test_padded_and_packed_have_the_same_loss(shards: Shards, tokenizer: Tokenizer) -> None:
    batches = [BatchSettings(tokens=1024, micro_tokens=512, padded=padded) for padded in (False, True)]
    losses = []
    for batch in batches:
        made = lesson(shards, tokenizer, objectives=ALL, batch=batch)
        (micro,) = first_micros(made, 1)
        losses.append(made.loss(model_for(made, tokenizer), micro, counts(micro), None)[0])
    torch.testing.assert_close(*losses)


def test_the_parts_of_a_step_add_up_to_the_weighted_mean(shards: Shards, tokenizer: Tokenizer) -> None:
    made = lesson(shards, tokenizer, objectives=ALL)
    model, micros = model_for(made, tokenizer), first_micros(made)
    totals = counts(*micros)
    found = [made.loss(model, micro, totals, None) for micro in micros]
    weights = {"masked_lm": 1.0, "next_sentence": 1.0, "boundaries": 0.5}
    means = {name: sum(sums[name] for _, sums in found) / totals[name] for name in weights}
    expected = sum(weights[name] * means[name] for name in weights)
    assert float(sum(loss for loss, _ in found).detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "weights",
    [
        ObjectiveWeights(masked_lm=1.0),
        ObjectiveWeights(masked_lm=1.0, next_sentence=1.0),
        ALL,
        ObjectiveWeights(masked_lm=0.0, causal=1.0),
    ],
)
def test_the_last_block_is_asked_for_as_many_tokens_as_are_counted(
    shards: Shards, tokenizer: Tokenizer, weights: ObjectiveWeights
) -> None:
    made = lesson(shards, tokenizer, objectives=weights)
    model, (micro,) = model_for(made, tokenizer), first_micros(made, 1)
    seen: list[int] = []
    model.encoder.blocks[-1].inner.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    made.loss(model, micro, counts(micro), None)
    assert seen == [micro.tokens_read]
    assert micro.tokens_read < micro.tokens


def test_passes_come_as_often_as_their_weights_say(shards: Shards, tokenizer: Tokenizer) -> None:
    weights = ObjectiveWeights(masked_lm=2.0, causal=1.0, prefix=1.0)
    made = lesson(shards, tokenizer, objectives=weights, batch=BatchSettings(tokens=128, micro_tokens=64))
    kinds = [micro.attention for micro in first_micros(made, 600)]
    assert kinds.count("bidirectional") == pytest.approx(300, abs=50)
    assert kinds.count("prefix") == pytest.approx(150, abs=40)


def test_sequences_grow_at_the_end_of_the_run(shards: Shards, tokenizer: Tokenizer) -> None:
    sequences = SequenceSettings(max_length=16, long_length=64, long_share=0.2)
    made = lesson(shards, tokenizer, sequences=sequences, masks=MaskSettings(max_predictions=2))
    early, late = (first_micros(made, progress=progress) for progress in (0.79, 0.8))
    assert max(micro.batch.longest for micro in early) <= 16
    assert 16 < max(micro.batch.longest for micro in late) <= 64
    most = max(len(m.targets["masked_lm"].labels) / len(m.batch.lengths) for m in late)
    assert 2 < most <= 8


def test_static_masks_come_back_with_the_copy(shards: Shards, tokenizer: Tokenizer) -> None:
    made = lesson(shards, tokenizer, sequences=SequenceSettings(static_masks=2), masks=MaskSettings())
    epochs = [made.feed.take(Cursor(epoch), 1, made.cutting(0))[0][0] for epoch in range(3)]
    address = [portion.copy for portion in epochs]
    stretch = epochs[0].spans[:1]
    rows = [made.collate(replace(epochs[0], copy=copy, spans=stretch)).batch.ids_N.tolist() for copy in address]
    assert rows[0] == rows[2] != rows[1]


def test_held_out_scores_do_not_depend_on_seed_masks_or_parts(shards: Shards, tokenizer: Tokenizer) -> None:
    made = lesson(shards, tokenizer)
    model = model_for(made, tokenizer)
    whole = made.evaluate(model)
    other = lesson(shards, tokenizer, seed=9, masks=MaskSettings(unit="entity", entity_rate=0.9)).evaluate(model)
    halves = [made.evaluate(model, part, 2) for part in range(2)]
    loss = whole["masked_lm"]["loss"]
    assert other["masked_lm"]["loss"] == pytest.approx(loss)
    assert sum(half["masked_lm"]["loss"] for half in halves) == pytest.approx(loss)


def test_masked_tokens_are_scored_inside_and_outside_of_entities(shards: Shards, tokenizer: Tokenizer) -> None:
    tallies = lesson(shards, tokenizer).evaluate(model_for(lesson(shards, tokenizer), tokenizer))
    inside, outside = (tallies[f"masked_lm, {where}"]["count"] for where in ("in entities", "elsewhere"))
    assert inside
    assert inside + outside == tallies["masked_lm"]["count"]
    assert tallies["masked_lm, whole entities"]["count"]


def test_the_verdict_weighs_the_losses(shards: Shards, tokenizer: Tokenizer) -> None:
    made = lesson(shards, tokenizer, objectives=ALL)
    verdict = made.summarise([made.evaluate(model_for(made, tokenizer))])
    losses = {name: verdict.scores[name]["loss"] for name in ("masked_lm", "next_sentence", "boundaries")}
    expected = losses["masked_lm"] + losses["next_sentence"] + 0.5 * losses["boundaries"]
    assert verdict.loss == pytest.approx(expected)
