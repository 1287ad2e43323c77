"""Changes go up the loss and stay in their ball, document by document; what is switched off changes nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from alembert.errors import BadSetting
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import DropoutSeed
from alembert.nn.heads import HeadSpec
from alembert.nn.losses import cross_entropy, symmetric_kl
from alembert.nn.model import Model, new_model
from alembert.train.finetune.objective import regularised_loss
from alembert.train.finetune.settings import AdversarialSettings, RegulariseSettings
from alembert.train.gradients import accumulate
from alembert.train.optim import Optimiser
from alembert.train.settings import OptimiserSettings

WIDTH, LABELS = 12, 3
CONFIG = {
    "vocab_size": 40, "hidden_size": 16, "embedding_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 16, "initializer_range": 0.3,
}  # fmt: skip
DOCUMENTS = [[5, 6, 7, 8], [9], [10, 11, 12, 13], [14, 15], list(range(16, 31))]
NOISE = DropoutSeed(7)
ADVERSARIAL = {
    "fgm": AdversarialSettings(method="fgm", size=0.5),
    "pgd": AdversarialSettings(method="pgd", size=0.5, steps=4, step_size=0.3),
    "freelb": AdversarialSettings(method="freelb", size=0.5, steps=4, step_size=0.3),
}
ALL = {name: RegulariseSettings(adversarial=each) for name, each in ADVERSARIAL.items()} | {
    "r_drop": RegulariseSettings(r_drop=1.0)
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Waking a second thread for each of these tiny tensors takes far longer than the arithmetic."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model(**changes: object) -> Model:
    config = EncoderConfig(**{**CONFIG, **changes})
    return new_model(config, {"tag": HeadSpec(kind="tag", outputs=LABELS)}, seed=1).train()


class Passes:
    """A model on one batch; remembers what it was run with."""

    def __init__(self, made: Model | None = None, documents: list[list[int]] = DOCUMENTS) -> None:
        self.model = model() if made is None else made
        self.batch = Batch.packed(documents)
        self.labels = self.batch.ids_N % LABELS
        self.noises: list[DropoutSeed | None] = []
        self.added: list[Tensor | None] = []

    def run(self, noise: DropoutSeed | None, added: Tensor | None) -> Tensor:
        self.noises.append(noise)
        self.added.append(None if added is None else added.detach().clone())
        return self.model(self.batch, ["tag"], noise=noise, added_ND=added)["tag"]

    def loss(self, outputs: Tensor) -> Tensor:
        return cross_entropy(outputs, self.labels)

    def losses(self, settings: RegulariseSettings, noise: DropoutSeed | None = NOISE) -> tuple[Tensor, Tensor]:
        return regularised_loss(
            self.run, self.loss, symmetric_kl, batch=self.batch, width=WIDTH, noise=noise, settings=settings
        )

    def lengths(self, number: int) -> Tensor:
        """The length of the change of each document in one pass."""
        added = self.added[number]
        assert added is not None
        return torch.stack([part.norm() for part in self.batch.split(added)])


def plain_loss(noise: DropoutSeed = NOISE) -> Tensor:
    passes = Passes()
    return passes.loss(passes.run(noise, None))


def changed(method: str, **options: Any) -> RegulariseSettings:
    return RegulariseSettings(adversarial=AdversarialSettings(method=method, **options))


# -- what is added to the embeddings


def test_adding_zeros_changes_no_bit() -> None:
    passes = Passes()
    nothing, zeros = passes.run(NOISE, None), passes.run(NOISE, torch.zeros(len(passes.labels), WIDTH))
    assert torch.equal(nothing, zeros)


def test_what_is_added_counts_as_embeddings() -> None:
    passes, other = Passes(), Passes()
    change = torch.full((WIDTH,), 0.5)
    with torch.no_grad():
        other.model.encoder.embeddings.token.weight += change
    added = change.expand(len(passes.labels), WIDTH)
    torch.testing.assert_close(passes.run(NOISE, added), other.run(NOISE, None))


# -- fgm, pgd, freelb


def test_fgm_goes_along_the_gradient_of_each_document() -> None:
    passes = Passes()
    passes.losses(ALL["fgm"])
    at = torch.zeros(len(passes.labels), WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(passes.loss(passes.run(NOISE, at)), at)
    assert passes.added[1] is not None
    for change, slope in zip(passes.batch.split(passes.added[1]), passes.batch.split(gradient), strict=True):
        torch.testing.assert_close(change, 0.5 * slope / slope.norm())


def test_the_change_of_a_document_does_not_depend_on_its_neighbours() -> None:
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    together, alone = Passes(model(**still).eval()), Passes(model(**still).eval(), DOCUMENTS[-1:])
    together.losses(ALL["pgd"])
    alone.losses(ALL["pgd"])
    assert together.added[-1] is not None
    torch.testing.assert_close(together.batch.split(together.added[-1])[-1], alone.added[-1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ADVERSARIAL)
def test_changes_stay_in_the_ball(method: str) -> None:
    passes = Passes()
    passes.losses(ALL[method])
    assert all((passes.lengths(number) <= 0.5 * (1 + 1e-6)).all() for number in range(len(passes.added)))


@pytest.mark.parametrize("method", ADVERSARIAL)
def test_the_last_change_has_the_full_size(method: str) -> None:
    passes = Passes()
    passes.losses(ALL[method])
    torch.testing.assert_close(passes.lengths(-1), torch.full((len(DOCUMENTS),), 0.5))


def test_a_step_is_as_long_as_told() -> None:
    passes = Passes()
    passes.losses(changed("pgd", size=9.0, steps=1, step_size=0.25))
    torch.testing.assert_close(passes.lengths(1), torch.full((len(DOCUMENTS),), 0.25))


def test_fgm_is_pgd_in_one_step() -> None:
    fgm, pgd = changed("fgm", size=0.4), changed("pgd", size=0.4, steps=1, step_size=0.4)
    assert torch.equal(Passes().losses(fgm)[0], Passes().losses(pgd)[0])


@pytest.mark.parametrize("method", ["fgm", "pgd"])
def test_the_loss_is_the_plain_one_and_the_weighted_last_one(method: str) -> None:
    passes = Passes()
    total, plain = passes.losses(changed(method, size=0.5, weight=0.25))
    last = passes.loss(passes.run(NOISE, passes.added[-1]))
    torch.testing.assert_close(total, plain_loss() + 0.25 * last)
    assert torch.equal(plain, plain_loss().detach())


@pytest.mark.parametrize("method", ADVERSARIAL)
def test_changes_make_the_loss_grow(method: str) -> None:
    passes = Passes()
    passes.losses(ALL[method])
    changes = passes.added[0], passes.added[-1]
    first, last = (passes.loss(passes.run(NOISE, added)) for added in changes)
    assert last > first


def test_freelb_is_the_mean_over_its_steps() -> None:
    passes = Passes()
    total, first = passes.losses(ALL["freelb"])
    each = [passes.loss(passes.run(NOISE, added)) for added in passes.added[:4]]
    torch.testing.assert_close(total, torch.stack(each).mean())
    assert torch.equal(first, each[0].detach())


def test_freelb_of_no_size_in_one_step_is_the_plain_loss() -> None:
    total, _ = Passes().losses(changed("freelb", size=0.0, steps=1))
    assert torch.equal(total, plain_loss())


def test_a_change_of_no_size_is_no_change() -> None:
    total, _ = Passes().losses(changed("pgd", size=0.0))
    assert torch.equal(total, 2 * plain_loss())


@pytest.mark.parametrize("method", ADVERSARIAL)
def test_dropout_is_the_same_in_all_passes(method: str) -> None:
    passes = Passes()
    passes.losses(ALL[method])
    assert set(passes.noises) == {NOISE}


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("method", ADVERSARIAL)
def test_gradients_are_those_of_fixed_changes(method: str, recompute: bool) -> None:
    passes, other = Passes(), Passes()
    passes.model.encoder.recompute = recompute
    total, _ = passes.losses(ALL[method])
    ours = torch.autograd.grad(total, list(passes.model.parameters()))
    each = [other.loss(other.run(NOISE, added)) for added in passes.added]
    fixed = torch.stack(each).mean() if method == "freelb" else each[0] + each[-1]
    torch.testing.assert_close(ours, torch.autograd.grad(fixed, list(other.model.parameters())))


# -- R-Drop


def test_nothing_chosen_is_the_plain_loss() -> None:
    passes = Passes()
    total, plain = passes.losses(RegulariseSettings())
    assert (passes.added, torch.equal(total, plain_loss()), torch.equal(plain, total)) == ([None], True, True)


def test_r_drop_is_the_mean_of_two_passes_and_their_distance() -> None:
    passes = Passes()
    total, plain = passes.losses(RegulariseSettings(r_drop=3.0))
    one, other = (passes.run(noise, None) for noise in passes.noises[:2])
    mean = (passes.loss(one) + passes.loss(other)) / 2
    torch.testing.assert_close(plain, mean)
    torch.testing.assert_close(total, mean + 3 * symmetric_kl(one, other))


def test_the_two_passes_of_r_drop_differ() -> None:
    passes = Passes()
    passes.losses(ALL["r_drop"])
    one, other = (passes.run(noise, None) for noise in passes.noises[:2])
    assert not torch.equal(one, other)


# -- all of them


@pytest.mark.parametrize("name", ALL)
def test_the_same_noise_gives_the_same_loss(name: str) -> None:
    assert torch.equal(Passes().losses(ALL[name])[0], Passes().losses(ALL[name])[0])


def test_the_random_start_depends_on_the_noise() -> None:
    one, other = Passes(), Passes()
    one.losses(ALL["freelb"], DropoutSeed(1))
    other.losses(ALL["freelb"], DropoutSeed(2))
    assert not torch.equal(one.lengths(0), other.lengths(0))


@pytest.mark.parametrize("name", ALL)
def test_without_noise_masks_and_start_are_torchs(name: str) -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(Passes().losses(ALL[name], None)[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("name", ALL)
def test_any_number_of_streams_gives_the_same_bits(name: str) -> None:
    found = []
    for streams in (1, 3):
        made = model()
        jobs = [lambda n=n, made=made: Passes(made).losses(ALL[name], DropoutSeed(n))[0] for n in range(5)]
        accumulate(jobs, list(made.parameters()), streams)
        found.append([parameter.grad for parameter in made.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        RegulariseSettings(),
        RegulariseSettings(r_drop=1.0),
        changed("fgm", size=0.1),
        changed("pgd", size=0.1, steps=2),
        changed("freelb", size=0.1, steps=2),
    ],
    ids=["plain", "r_drop", "fgm", "pgd", "freelb"],
)
def test_a_tiny_model_learns_its_data(settings: RegulariseSettings) -> None:
    made = model()
    optimiser = Optimiser(made, OptimiserSettings(clip=None))
    for step in range(80):
        job = _loss_of(Passes(made), settings, DropoutSeed(step))
        accumulate([job], list(made.parameters()), 1)
        optimiser.step(step, 0.01)
    passes = Passes(made.eval())
    assert torch.equal(passes.run(None, None).argmax(-1), passes.labels)


def _loss_of(passes: Passes, settings: RegulariseSettings, noise: DropoutSeed) -> Callable[[], Tensor]:
    return lambda: passes.losses(settings, noise)[0] / len(passes.labels)


# -- settings


def test_what_is_left_out_is_as_usual() -> None:
    ascent = AdversarialSettings(method="freelb", steps=2).ascent
    assert (ascent.size, ascent.steps, ascent.step_size) == (0.3, 2, 0.1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "vat"}, "expected one of none, fgm, pgd, freelb"),
        ({"method": "pgd", "size": -1.0}, "`size` of adversarial training is -1.0"),
        ({"method": "pgd", "steps": 0}, "`steps` of adversarial training is 0"),
        ({"method": "pgd", "step_size": 0.0}, "`step_size` of adversarial training is 0.0"),
        ({"method": "pgd", "weight": 0.0}, "`weight` of adversarial training is 0.0"),
        ({"method": "fgm", "steps": 2}, "Leave `steps` out, or use pgd"),
        ({"method": "fgm", "step_size": 0.1}, "Leave `step_size` out, or use pgd"),
        ({"method": "freelb", "weight": 0.5}, "freelb has no plain loss"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        AdversarialSettings(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"r_drop": -1.0}, "`r_drop` is -1.0"),
        ({"r_drop": 1.0, "adversarial": AdversarialSettings(method="fgm")}, "Choose one of them"),
    ],
    ids=["negative", "both"],
)
def test_regularisations_that_do_not_go_together_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        RegulariseSettings(**options)
