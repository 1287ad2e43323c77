"""Replaced-token detection and typed tags: labels, losses against a plain reading, and what a run keeps."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional

from alembert import hardware
from alembert.corpus.shards import ENTITY_START, Shards
from alembert.data.feed import Cursor
from alembert.data.masking import MaskSettings
from alembert.errors import BadSetting
from alembert.files.checkpoint import open as open_checkpoint
from alembert.nn.batch import Batch
from alembert.nn.config import preset
from alembert.nn.model import Model, new_model
from alembert.text.tokenizer import Tokenizer
from alembert.train.objective import MicroBatch
from alembert.train.pretrain.inputs import PretrainStart
from alembert.train.pretrain.lm import PretrainObjective
from alembert.train.pretrain.pretrain import PretrainRunResult, pretrain
from alembert.train.pretrain.replaced import EntityTypeObjective, fill_masks, sample_by_draws
from alembert.train.pretrain.settings import HeldOutSettings, ObjectiveWeights, PretrainSettings
from alembert.train.run import RunContext
from alembert.train.settings import BatchSettings, SavingSettings

USUAL = PretrainSettings(
    steps=2,
    batch=BatchSettings(tokens=512, micro_tokens=256),
    evaluation=HeldOutSettings(share=0.1, tokens=600, times=0),
    saving=SavingSettings(log_every=1),
)
RTD = ObjectiveWeights(masked_lm=0.0, rtd=50.0)
SWAP = ObjectiveWeights(masked_lm=0.0, entity_swap=50.0)
TYPES = ObjectiveWeights(masked_lm=0.0, entity_types=1.0)
BOTH = ObjectiveWeights(masked_lm=1.0, entity_swap=50.0, entity_types=0.5, boundaries=0.2)


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture
def made(shards: Shards, tokenizer: Tokenizer) -> Callable[..., PretrainObjective]:
    return lambda weights, **changes: PretrainObjective(
        shards, tokenizer, replace(USUAL, objectives=weights, **changes)
    )


def model_for(objective: PretrainObjective, seed: int = 0) -> Model:
    heads = {each.head: each.spec for each in objective.objectives.values()}
    vocab_size = objective.assembler.tokenizer.vocab_size
    return new_model(preset("tiny", vocab_size=vocab_size), heads, seed=seed).eval()


def micro_of(objective: PretrainObjective) -> MicroBatch:
    portions, _ = objective.sample(Cursor(), 1, 0.0)
    return objective.collate(portions[0])


def original_ids(objective: PretrainObjective, micro: MicroBatch) -> torch.Tensor:
    """Read the sequences of the first micro-batch as they stand in the text, in the batch's order."""
    portions, _ = objective.sample(Cursor(), 1, 0.0)
    plain = objective.assembler.micro(portions[0].spans, [], "bidirectional", (0,))
    assert plain.batch.starts_B.tolist() == micro.batch.starts_B.tolist()
    return plain.batch.ids_N


def totals_of(micro: MicroBatch) -> dict[str, float]:
    return {name: target.count for name, target in micro.targets.items()}


# -- with a generator


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([0.1, 0.5, 0.0, 0.4]).log().expand(4000, 4)
    draws = torch.from_numpy(np.random.default_rng(1).random(4000, np.float32))
    shares = torch.bincount(sample_by_draws(logits, draws), minlength=4) / 4000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.5, 0.0, 0.4]), atol=0.03, rtol=0)


def test_the_highest_draw_is_still_a_token() -> None:
    highest = torch.full((1,), float(np.nextafter(np.float32(1), np.float32(0))))
    assert sample_by_draws(torch.zeros(1, 999), highest).tolist() == [998]


def test_a_token_is_replaced_where_the_generator_has_drawn_another(made: Callable[..., PretrainObjective]) -> None:
    objective = made(RTD)
    model, micro = model_for(objective), micro_of(objective)
    _, filled = fill_masks(model, micro, None, train_embeddings=True)
    before, places = original_ids(objective, micro), filled.targets["rtd"].places
    expected = (filled.batch.ids_N != before)[places].float()
    assert torch.equal(filled.targets["rtd"].labels.squeeze(1), expected)
    masked = micro.targets["generator"].places
    outside = torch.ones(len(before), dtype=torch.bool)
    outside[masked] = False
    assert torch.equal(filled.batch.ids_N[outside], before[outside])
    assert 0 < expected.sum() <= len(masked)


def test_the_loss_is_that_of_a_plain_reading(made: Callable[..., PretrainObjective]) -> None:
    objective = made(RTD)
    model, micro = model_for(objective), micro_of(objective)
    loss, sums = objective.loss(model, micro, totals_of(micro), None)
    logits, filled = fill_masks(model, micro, None, train_embeddings=True)
    answers = model(filled.batch, ["replaced"])["replaced"][filled.targets["rtd"].places]
    found = functional.binary_cross_entropy_with_logits(answers, filled.targets["rtd"].labels)
    guessed = functional.cross_entropy(logits, micro.targets["generator"].labels)
    torch.testing.assert_close(loss, guessed + 50 * found)
    assert sums["generator"] == pytest.approx(float(guessed.detach()) * len(logits), rel=1e-4)


def test_as_many_tokens_are_masked_as_the_settings_say(made: Callable[..., PretrainObjective]) -> None:
    objective = made(RTD, masks=MaskSettings(rate=0.25, mask_share=1.0, random_share=0.0))
    micro = micro_of(objective)
    places = micro.targets["generator"].places
    assert len(places) / micro.tokens == pytest.approx(0.25, abs=0.02)
    assert (micro.batch.ids_N[places] == objective.assembler.tokenizer.mask_id).all()


def test_padded_and_packed_have_the_same_loss(made: Callable[..., PretrainObjective]) -> None:
    losses = []
    for padded in (False, True):
        objective = made(RTD, batch=replace(USUAL.batch, padded=padded))
        micro = micro_of(objective)
        losses.append(objective.loss(model_for(objective), micro, totals_of(micro), None)[0])
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize(("embeddings", "rows"), [("trained", True), ("read", False)])
def test_the_generator_trains_the_embeddings_or_reads_them(
    made: Callable[..., PretrainObjective], embeddings: str, rows: bool
) -> None:
    objective = made(RTD, generator_embeddings=embeddings)
    model, micro = model_for(objective), micro_of(objective)
    logits, _ = fill_masks(model, micro, None, train_embeddings=embeddings == "trained")
    token = model.encoder.embeddings.token.weight
    assert (torch.autograd.grad(logits.sum(), token, allow_unused=True)[0] is not None) is rows
    objective.loss(model, micro, totals_of(micro), None)[0].backward()
    # Rows of pieces that the text does not have are reached through the softmax of the generator alone.
    seen = torch.zeros(len(token), dtype=torch.bool)
    _, filled = fill_masks(model, micro, None, train_embeddings=False)
    seen[torch.cat([micro.batch.ids_N, filled.batch.ids_N]).long()] = True
    assert token.grad is not None
    assert bool(token.grad[~seen].any()) is rows


def test_the_generator_does_not_learn_from_what_the_model_finds(made: Callable[..., PretrainObjective]) -> None:
    objective = made(RTD)
    model, micro = model_for(objective), micro_of(objective)
    generator = list(model.heads["generator"].parameters())
    answers = {each.name: (each, logits, target) for each, logits, target in objective._answers(model, micro, None)}
    each, logits, target = answers["rtd"]
    gradients = torch.autograd.grad(each.loss(logits, target.labels), generator, allow_unused=True)
    assert all(gradient is None for gradient in gradients)


def test_the_generator_has_no_embedding_of_its_own(made: Callable[..., PretrainObjective]) -> None:
    model = model_for(made(RTD))
    tables = [name for name in model.state_dict() if name.endswith("token.weight")]
    assert tables == ["encoder.embeddings.token.weight"]
    narrow = model.heads["generator"].encoder.config
    assert (narrow.hidden_size, narrow.num_hidden_layers) == (32, 2)


# -- without one


def test_swapped_tokens_are_those_that_differ_from_the_text(made: Callable[..., PretrainObjective]) -> None:
    objective = made(SWAP)
    micro = micro_of(objective)
    target, before = micro.targets["entity_swap"], original_ids(objective, micro)
    differ = micro.batch.ids_N != before
    assert torch.equal(target.labels.squeeze(1), differ[target.places].float())
    assert 0.03 < float(differ.float().mean()) < 0.3
    assert int(differ.sum()) == int(target.labels.sum())


def test_masked_tokens_are_neither_swapped_nor_asked_about(made: Callable[..., PretrainObjective]) -> None:
    objective = made(BOTH)
    micro = micro_of(objective)
    masked, asked = (set(micro.targets[name].places.tolist()) for name in ("masked_lm", "entity_swap"))
    everywhere = set(micro.targets["boundaries"].places.tolist())
    assert asked == everywhere - masked
    assert micro.targets["entity_swap"].labels.any()


def test_objectives_that_ask_at_different_tokens_share_a_pass(made: Callable[..., PretrainObjective]) -> None:
    objective = made(BOTH)
    model, micro = model_for(objective), micro_of(objective)
    loss, _ = objective.loss(model, micro, totals_of(micro), None)
    outputs, expected = model(micro.batch), torch.zeros(())
    for name, target in micro.targets.items():
        each = objective.objectives[name]
        rows = outputs[each.head][target.places]
        expected = expected + each.weight * each.loss(rows, target.labels) / target.count
    torch.testing.assert_close(loss, expected)


def test_held_out_masks_do_not_see_swapped_tokens(made: Callable[..., PretrainObjective]) -> None:
    both, alone = made(BOTH), made(ObjectiveWeights())
    model = model_for(both)
    assert both.evaluate(model)["masked_lm"]["loss"] == pytest.approx(alone.evaluate(model)["masked_lm"]["loss"])


def test_held_out_tokens_are_replaced_as_often_as_in_training(made: Callable[..., PretrainObjective]) -> None:
    objective = made(RTD, masks=MaskSettings(rate=0.4))
    tallies = objective.evaluate(model_for(objective))
    assert tallies["generator"]["count"] / tallies["rtd"]["count"] == pytest.approx(0.4, abs=0.05)


# -- typed tags


def test_tags_are_those_of_the_shards(made: Callable[..., PretrainObjective], shards: Shards) -> None:
    objective = made(TYPES)
    portions, _ = objective.sample(Cursor(), 1, 0.0)
    target, batch = objective.collate(portions[0]).targets["entity_types"], objective.collate(portions[0]).batch
    tags = objective.objectives["entity_types"].tags  # type: ignore[attr-defined]
    assert tags[:3] == ("O", f"B-{shards.type_names[0]}", f"I-{shards.type_names[0]}")
    found = dict(zip(target.places.tolist(), (tags[label] for label in target.labels.tolist()), strict=True))
    for start, span in zip(batch.starts_B.tolist(), portions[0].spans, strict=True):
        for place, token in enumerate(range(*span.a), start + 1):
            kind, begins = int(shards.types[token]), bool(shards.flags[token] & ENTITY_START)
            assert found[place] == (f"{'B' if begins else 'I'}-{shards.type_names[kind - 1]}" if kind else "O")


def test_tokens_outside_of_entities_count_less() -> None:
    objective = EntityTypeObjective(types=("a", "b"), outside_weight=0.25)
    logits, labels = torch.randn(30, 5), torch.arange(30) % 5
    each = [functional.cross_entropy(row[None], label[None]) for row, label in zip(logits, labels, strict=True)]
    expected = sum(loss * (1.0 if label else 0.25) for loss, label in zip(each, labels.tolist(), strict=True))
    torch.testing.assert_close(objective.loss(logits, labels), expected)


def test_tags_are_scored_by_f1_of_those_inside() -> None:
    objective = EntityTypeObjective(types=("a",), outside_weight=1.0)
    logits, labels = torch.eye(3)[[0, 1, 2, 1, 0]], torch.tensor([0, 1, 1, 0, 2])
    scores = objective.scores(objective.tally(logits, labels))
    assert scores["accuracy"] == pytest.approx(0.4)
    assert scores["f1"] == pytest.approx(2 * 1 / (3 + 3))


# -- learning


@pytest.mark.parametrize(("weights", "name"), [(RTD, "rtd"), (SWAP, "entity_swap"), (TYPES, "entity_types")])
def test_one_micro_batch_is_learnt_by_heart(
    made: Callable[..., PretrainObjective], weights: ObjectiveWeights, name: str
) -> None:
    """Beyond how often each answer is right, which a loss that falls a little may be all about."""
    objective = made(weights, batch=BatchSettings(tokens=128, micro_tokens=128))
    model, micro = model_for(objective), micro_of(objective)
    # A generator that goes on learning would draw other tokens in each step.
    learning = [weight for name, weight in model.named_parameters() if not name.startswith("heads.generator.")]
    optimiser = torch.optim.AdamW(learning, lr=2e-3)
    for _ in range(60):
        optimiser.zero_grad()
        answers = {each.name: (each, *found) for each, *found in objective._answers(model, micro, None)}
        each, logits, target = answers[name]
        each.loss(logits, target.labels).backward()
        optimiser.step()
    scores = each.scores(each.tally(logits.detach(), target.labels))
    assert target.labels.any()
    assert scores["f1"] > 0.9


# -- runs


@pytest.mark.parametrize("other", [{"masked_lm": 1.0}, {"masked_lm": 0.0, "entity_swap": 1.0}])
def test_what_a_generator_does_not_go_with_is_refused(other: dict[str, float]) -> None:
    with pytest.raises(BadSetting, match="Set masked_lm and entity_swap to 0"):
        ObjectiveWeights(rtd=50.0, **other)


def test_a_generator_is_not_spread_over_processes(home: Path, tmp_path: Path) -> None:
    start = PretrainStart(size="tiny", tokenizer=home / "vocab")
    with pytest.raises(BadSetting, match="use entity_swap"):
        pretrain([home / "corpus"], tmp_path / "out", start, replace(USUAL, objectives=RTD), RunContext(shard=True))
    assert not (tmp_path / "out").exists()


Run = Callable[..., tuple[Path, PretrainRunResult]]


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Run:
    def ran(weights: ObjectiveWeights, name: str = "out", **changes: Any) -> tuple[Path, PretrainRunResult]:
        around, out = RunContext(cache=home / "cache", workers=1), tmp_path / name
        start = changes.pop("start", PretrainStart(size="tiny", tokenizer=home / "vocab"))
        return out, pretrain([home / "corpus"], out, start, replace(USUAL, objectives=weights, **changes), around)

    return ran


def test_the_generator_is_no_part_of_the_result(run: Run) -> None:
    folder, _ = run(RTD, keep_heads="all")
    assert set(open_checkpoint(folder).blueprint.heads) == {"replaced"}
    assert "generator of width 32" in (folder / "README.md").read_text()


def test_the_result_opens_in_transformers(run: Run) -> None:
    folder, done = run(RTD)
    assert open_checkpoint(folder).blueprint.heads == {}
    ids = torch.tensor([[2, 5, 17, 23, 3]])
    with torch.inference_mode():
        theirs = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()(ids).last_hidden_state
        ours = open_checkpoint(folder).model
        torch.testing.assert_close(ours(Batch.packed(ids.tolist()))["hidden"], theirs[0], rtol=1e-4, atol=1e-4)
    assert {"loss", "accuracy", "f1"} <= done.after["rtd"].keys()
    assert {"loss", "accuracy", "perplexity"} <= done.after["generator"].keys()


def test_tags_are_kept_with_their_names(run: Run) -> None:
    folder, done = run(TYPES, keep_heads="all")
    assert open_checkpoint(folder).blueprint.labels["entity_types"][:2] == ("O", "B-chemical")
    assert "chemical, disease, gene (weight outside 0.3)" in (folder / "README.md").read_text()
    again, more = run(TYPES, "again", keep_heads="all", start=PretrainStart(model=str(folder)))
    assert more.before["entity_types"]["loss"] == pytest.approx(done.after["entity_types"]["loss"], rel=1e-3)
    assert (again / "run" / "loss.html").read_text().count("Held-out F1")
