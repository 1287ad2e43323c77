"""Generation: equal to transformers where it can be, and with the properties that we promise."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadInput, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.engine_torch import TorchEngine
from alembert.infer.language_model import generate, generate_batch
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.tasks.generate.decoding import DecodeSettings, LogitsProcessor, TokenSampler
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NEVER = [0, 1, 2, 4]
POEM = "床前明月光，疑是地上霜。举头望明月，低头思故乡。"
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces(*SPECIAL, *sorted(set(POEM)), *"abcdefghijklmnop"), lowercase=True
)
# Weights this large prefer some tokens clearly.
SIZES = {"vocab_size": TOKENIZER.vocab_size, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32, "initializer_range": 0.5}  # fmt: skip
OURS = {"no_repeat_ngram_size": "no_repeat_ngram"}
PROMPTS = ["a", "b c d", "床前", "", "a b a b a", "月 p o n m"]


def checkpoint(**changes: object) -> Checkpoint:
    config = EncoderConfig(**{**SIZES, "attention": "causal", **changes})
    return Checkpoint.new(Blueprint(config=config, heads={"masked_lm": HeadSpec(kind="masked_lm")}), TOKENIZER)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> tuple[transformers.BertLMHeadModel, Path]:
    folder = tmp_path_factory.mktemp("foreign")
    torch.manual_seed(5)
    model = transformers.BertLMHeadModel(transformers.BertConfig(**SIZES, is_decoder=True)).eval()
    model.cls.predictions.bias.data[3] += 2.0  # so that some texts end
    model.save_pretrained(folder)
    TOKENIZER.save(folder)
    return model, folder


@pytest.fixture(scope="module")
def engine(foreign: tuple[transformers.BertLMHeadModel, Path]) -> TorchEngine:
    return TorchEngine.open(foreign[1])


def theirs(model: transformers.BertLMHeadModel, prompt: str, count: int = 1, **options: object) -> list[list[int]]:
    """The new tokens of transformers, up to and with [SEP]."""
    ids = torch.tensor([[2, *TOKENIZER.encode(prompt, add_special_tokens=False).ids]])
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        eos_token_id=3,
        pad_token_id=0,
        suppress_tokens=NEVER,
        num_return_sequences=count,
        **options,
    )
    rows = made[:, ids.shape[1] :].tolist()
    return [row[: row.index(3) + 1] if 3 in row else row for row in rows]


def ours(engine: TorchEngine, prompt: str, **options: object) -> list[list[int]]:
    found = generate(engine, prompt, DecodeSettings(**options))
    return [[*made.ids, 3] if made.finished else list(made.ids) for made in found]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 1.7},
        {"repetition_penalty": 0.8},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2},
        {"min_new_tokens": 9},
    ],
    ids=str,
)
def test_greedy_equals_transformers(
    prompt: str,
    options: dict[str, float],
    foreign: tuple[transformers.BertLMHeadModel, Path],
    engine: TorchEngine,
) -> None:
    mine = {OURS.get(name, name): value for name, value in options.items()}
    assert ours(engine, prompt, max_new_tokens=15, **mine) == theirs(foreign[0], prompt, max_new_tokens=15, **options)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"length_penalty": 0.0},
        {"length_penalty": 2.5},
        {"length_penalty": -1.0},
        {"no_repeat_ngram_size": 2},
        {"repetition_penalty": 1.4},
        {"min_new_tokens": 7},
    ],
    ids=str,
)
def test_beams_equal_transformers(
    prompt: str,
    options: dict[str, float],
    foreign: tuple[transformers.BertLMHeadModel, Path],
    engine: TorchEngine,
) -> None:
    mine = {OURS.get(name, name): value for name, value in options.items()}
    found = ours(engine, prompt, method="beam", beams=5, count=3, max_new_tokens=12, **mine)
    assert found == theirs(foreign[0], prompt, 3, max_new_tokens=12, num_beams=5, **options)


def test_the_reference_has_finished_and_unfinished_texts(engine: TorchEngine) -> None:
    found = generate_batch(engine, PROMPTS, DecodeSettings(max_new_tokens=15, method="beam", count=4))
    assert {made.finished for texts in found for made in texts} == {True, False}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_one_beam_is_greedy(prompt: str, engine: TorchEngine) -> None:
    assert ours(engine, prompt, method="beam", beams=1) == ours(engine, prompt)


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}], ids=str)
def test_sampling_without_a_choice_is_greedy(options: dict[str, float], engine: TorchEngine) -> None:
    for prompt in PROMPTS:
        assert ours(engine, prompt, method="sample", **options) == ours(engine, prompt)


def test_samples_depend_on_seed_prompt_and_number_alone(engine: TorchEngine) -> None:
    settings = DecodeSettings(method="sample", count=3, seed=4, max_new_tokens=20)
    together = list(generate_batch(engine, PROMPTS, settings))
    assert [[made.ids for made in generate(engine, prompt, settings)] for prompt in reversed(PROMPTS)] == [
        [made.ids for made in texts] for texts in reversed(together)
    ]
    assert len({made.ids for made in together[0]}) == 3
    other = generate(engine, PROMPTS[0], DecodeSettings(method="sample", count=3, seed=5, max_new_tokens=20))
    assert [made.ids for made in other] != [made.ids for made in together[0]]


def test_samples_follow_the_probabilities(engine: TorchEngine) -> None:
    seeds, count = range(4), 1000
    runs = [
        DecodeSettings(method="sample", count=count, max_new_tokens=1, seed=seed, temperature=2.0) for seed in seeds
    ]
    drawn = [made.ids[0] if made.ids else 3 for settings in runs for made in generate(engine, "a b", settings)]
    batch = Batch.packed([[2, *TOKENIZER.encode("a b", add_special_tokens=False).ids]])
    logits = engine.model(batch, ["masked_lm"])["masked_lm"][-1].detach().numpy()
    logits[NEVER] = -np.inf
    expected = len(drawn) * torch.tensor(logits / 2.0).double().softmax(-1).numpy()
    seen = np.bincount(drawn, minlength=len(logits))
    assert not seen[NEVER].any()
    common = expected >= 5
    assert common.sum() >= 10
    chi_square = ((seen - expected)[common] ** 2 / expected[common]).sum()
    assert chi_square < common.sum() + 4 * np.sqrt(2 * common.sum())  # four deviations


@given(
    st.integers(0, 2**32),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.floats(0.05, 0.95)),
    st.floats(0.3, 3.0),
)
def test_probabilities_equal_those_of_transformers(
    seed: int, top_k: int | None, top_p: float | None, temperature: float
) -> None:
    logits = torch.tensor(np.random.default_rng(seed).normal(0, 2, (1, 30)))
    steps: list[transformers.LogitsProcessor] = [transformers.TemperatureLogitsWarper(temperature)]
    steps += [transformers.TopKLogitsWarper(top_k)] if top_k else []
    steps += [transformers.TopPLogitsWarper(top_p)] if top_p else []
    expected = transformers.LogitsProcessorList(steps)(torch.tensor([[1]]), logits.clone()).softmax(-1)[0]
    sampler = TokenSampler(rng=np.random.default_rng(), temperature=temperature, top_k=top_k, top_p=top_p)
    np.testing.assert_allclose(sampler.probabilities(logits[0].numpy()), expected.numpy(), atol=1e-9)


@given(st.lists(st.integers(5, 9), min_size=1, max_size=30), st.integers(1, 4), st.floats(0.5, 2.0))
def test_rules_equal_those_of_transformers(ids: list[int], n: int, penalty: float) -> None:
    logits = torch.tensor(np.random.default_rng(len(ids)).normal(0, 2, (1, 12)))
    steps = transformers.LogitsProcessorList(
        [
            transformers.RepetitionPenaltyLogitsProcessor(penalty),
            transformers.NoRepeatNGramLogitsProcessor(n),
            transformers.SuppressTokensLogitsProcessor(NEVER),
        ]
    )
    rules = LogitsProcessor(eos_id=3, banned_ids=np.array(NEVER), repetition_penalty=penalty, no_repeat=n)
    np.testing.assert_allclose(
        rules.apply(logits[0].numpy(), ids), steps(torch.tensor([ids]), logits.clone())[0].numpy()
    )


@pytest.mark.parametrize("shortest", [0, 99])
def test_a_text_can_always_end(shortest: int) -> None:
    rules = LogitsProcessor(eos_id=3, banned_ids=np.array(NEVER), no_repeat=1, shortest=shortest)
    assert np.flatnonzero(np.isfinite(rules.apply(np.zeros(8), range(8)))).tolist() == [3]


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_the_score_is_the_log_probability_of_the_new_tokens(method: str, engine: TorchEngine) -> None:
    settings = DecodeSettings(method=method, max_new_tokens=9, repetition_penalty=1.3, no_repeat_ngram=2)
    for prompt in PROMPTS:
        made = generate(engine, prompt, settings)[0]
        begun = [2, *TOKENIZER.encode(prompt, add_special_tokens=False).ids]
        ids = [*begun, *made.ids, *([3] if made.finished else [])]
        logits = engine.model(Batch.packed([ids[:-1]]), ["masked_lm"])["masked_lm"].detach().log_softmax(-1)
        rows = torch.arange(len(begun) - 1, len(ids) - 1)
        expected = float(logits[rows, torch.tensor(ids[len(begun) :])].sum())
        assert made.score == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
def test_prompts_together_equal_prompts_alone(
    method: str, engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = DecodeSettings(method=method, max_new_tokens=12)
    alone = [generate(engine, prompt, settings)[0].ids for prompt in PROMPTS]
    for rows in (64, 9, 1):
        monkeypatch.setattr("alembert.tasks.generate.writing.MAX_PARALLEL_HYPOTHESES", rows)
        assert [texts[0].ids for texts in generate_batch(engine, PROMPTS, settings)] == alone


def test_no_prompts_give_no_texts(engine: TorchEngine) -> None:
    assert list(generate_batch(engine, [])) == []


def test_the_end_of_the_model_is_a_limit(engine: TorchEngine) -> None:
    settings = DecodeSettings(method="sample", count=30, max_new_tokens=1000, temperature=5.0)
    found = generate(engine, "a b c", settings)
    unfinished = [made for made in found if not made.finished]
    assert unfinished
    assert {len(made.ids) for made in unfinished} == {SIZES["max_position_embeddings"] - 4}


def test_a_prompt_that_leaves_no_room_is_refused(engine: TorchEngine) -> None:
    assert len(generate(engine, "a " * 30)[0].ids) <= 1
    with pytest.raises(BadInput, match=r"32 tokens with \[CLS\], and the model reads 32"):
        generate(engine, "a " * 31)


def test_rows_without_a_piece_are_never_generated() -> None:
    made = TorchEngine(checkpoint(vocab_size=TOKENIZER.vocab_size + 9))
    made.model.head("masked_lm").bias.data[-9:] = 100.0
    assert max(generate(made, "a")[0].ids) < TOKENIZER.vocab_size


def test_a_model_that_sees_both_sides_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"bidirectional attention.*alembert pretrain --objective causal"):
        generate(TorchEngine(checkpoint(attention="bidirectional")), "a")


def test_a_model_without_the_head_is_refused() -> None:
    blueprint = Blueprint(config=EncoderConfig(**SIZES, attention="causal"))
    with pytest.raises(BadSetting, match=r"cannot continue texts: it has no `masked_lm` head \(its heads: none\)"):
        generate(TorchEngine(Checkpoint.new(blueprint, TOKENIZER)), "a")


def test_prefix_attention_sees_the_whole_prompt() -> None:
    made = TorchEngine(checkpoint(attention="prefix"))
    written = generate(made, "a b c", DecodeSettings(max_new_tokens=6, no_repeat_ngram=1))[0].ids
    begun = [2, *TOKENIZER.encode("a b c", add_special_tokens=False).ids]
    batch = Batch.packed([[*begun, *written[:-1]]], prefixes=[len(begun)])
    logits = {
        attention: made.model(batch, ["masked_lm"], attention=attention)["masked_lm"].detach()
        for attention in ("prefix", "causal")
    }
    for ids in ([0, 1, 2, 4], begun):  # what the rules forbid at every place
        for each in logits.values():
            each[:, ids] = -torch.inf
    assert logits["prefix"][len(begun) - 1].argmax() == written[0]
    assert (logits["prefix"][len(begun) - 1] - logits["causal"][len(begun) - 1]).nan_to_num().abs().max() > 0.01


@pytest.mark.parametrize("attention", ["causal", "prefix"])
def test_a_model_that_learnt_a_poem_recites_it(attention: str) -> None:
    made = checkpoint(attention=attention, hidden_size=32, initializer_range=0.02)
    ids = torch.tensor(TOKENIZER.encode(POEM).ids)
    # Every prefix from 1 to 5 is a training text of its own.
    batch = Batch.packed([ids[:-1].tolist()] * 5, prefixes=range(1, 6))
    targets = ids[1:].repeat(5, 1)
    for row, prefix in enumerate(range(1, 6)):
        targets[row, : prefix - 1] = -100  # inside the prefix, the next token is seen
    optimiser = torch.optim.Adam(made.model.parameters(), lr=0.01)
    for _ in range(60):
        logits = made.model(batch, ["masked_lm"], attention=attention)["masked_lm"]
        loss = torch.nn.functional.cross_entropy(logits, targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for method in ("greedy", "beam"):
        recited = generate(TorchEngine(made), "床前", DecodeSettings(method=method))[0]
        assert (recited.text, recited.finished) == (POEM, True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "guess"}, "`method` is 'guess'; expected one of greedy, sample, beam"),
        ({"max_new_tokens": 0}, "`max_new_tokens` is 0; expected a whole number from 1"),
        ({"max_new_tokens": 2.0}, "`max_new_tokens` is 2.0"),
        ({"method": "sample", "temperature": 0}, "`temperature` is 0; expected a number above 0"),
        ({"method": "sample", "temperature": float("nan")}, "`temperature` is nan"),
        ({"method": "sample", "top_p": 1.5}, "`top_p` is 1.5; expected a number above 0, at most 1"),
        ({"method": "sample", "top_k": 0}, "`top_k` is 0"),
        ({"method": "beam", "length_penalty": float("inf")}, "`length_penalty` is inf"),
        ({"repetition_penalty": -1.0}, "`repetition_penalty` is -1.0"),
        ({"no_repeat_ngram": 0}, "`no_repeat_ngram` is 0"),
        ({"seed": -1}, "`seed` is -1"),
        ({"top_k": 5}, "`top_k` is a setting of the method `sample`, and the method is `greedy`"),
        ({"method": "sample", "beams": 2}, "`beams` is a setting of the method `beam`"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "`min_new_tokens` is 9, and `max_new_tokens` is 8"),
        ({"count": 2}, "`count` is 2, and the method `greedy` finds 1"),
        ({"method": "beam", "beams": 3, "count": 4}, "the method `beam` finds 3"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadSetting) as problem:
        DecodeSettings(**options)
    assert sentence in str(problem.value)
