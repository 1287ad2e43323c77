"""How a student begins: the teacher's layers, its narrowed weights, or nothing; and what cannot be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import alembert
from alembert.errors import BadFile, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.files.student import make_student
from alembert.files.student_shape import StudentSettings, StudentShape
from alembert.files.student_weights import narrow_weights, reduce_dimensions
from alembert.files.surgery import TOKEN_EMBEDDING, with_heads, with_markers
from alembert.nn.attention import ForwardTrace
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary

SPECIAL = tuple(SpecialTokens().roles().values())
PIECES = (*SPECIAL, "br", "##af", "im", "##atin", "##ib", "treats", "a", "##a", "##b")
CONFIG = EncoderConfig(
    vocab_size=len(PIECES),
    hidden_size=24,
    num_hidden_layers=6,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=20,
    layer_norm_eps=1e-7,
    hidden_act="gelu_new",
    initializer_range=0.3,
)
BATCH = Batch.packed([[2, 5, 6, 7, 3], [2, 8, 9, 10, 11, 12, 3]], segments=[[0] * 5, [0] * 4 + [1] * 3])
AUTO = StudentSettings()
TEACHER = StudentSettings(start="teacher")
SCRATCH = StudentSettings(start="scratch")
SHARED = {"embedding_size": 10, "num_hidden_groups": 1}


def cutter(*pieces: str, lowercase: bool = True) -> Tokenizer:
    return Tokenizer.from_vocabulary(Vocabulary((*SPECIAL, *pieces)), lowercase=lowercase)


def teacher(*, pooler: bool = True, **changes: Any) -> Checkpoint:
    """A teacher whose norms and biases are no longer as they were drawn, with a head that no student takes over."""
    blueprint = Blueprint(
        config=replace(CONFIG, **changes),
        heads={"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)},
        pooler=pooler,
    )
    made = Checkpoint.new(blueprint, cutter(*PIECES[5:]), seed=3)
    generator = torch.Generator().manual_seed(4)
    for weight in made.model.parameters():
        weight.data += 0.1 * torch.randn(weight.shape, generator=generator)
    made.model.eval()
    return made


@torch.no_grad()
def states(model: Model) -> torch.Tensor:
    return model.eval()(BATCH, heads=())["hidden"]


def config_of(student: Checkpoint) -> EncoderConfig:
    assert student.blueprint.config == student.model.config
    return student.model.config


# sizes


@pytest.mark.parametrize("wanted", ["4", "4x", "x312", "4*312", "0x12", "four", "", "-4x12", "4x12x2"])
def test_what_is_no_size_and_no_folder_is_named(wanted: str) -> None:
    with pytest.raises(BadSetting, match="no size of a student and no folder"):
        make_student(teacher(), wanted or "''", AUTO)


def test_a_student_of_the_teachers_width_has_its_heads_and_inner_width() -> None:
    config = config_of(make_student(teacher(), "half", AUTO))
    assert config == replace(CONFIG, num_hidden_layers=3)


def test_inner_and_heads_can_be_given() -> None:
    config = config_of(make_student(teacher(), "2x12", StudentSettings(heads=2, inner=20)))
    assert (config.num_attention_heads, config.intermediate_size) == (2, 20)


def test_a_student_has_its_teachers_activation_or_another() -> None:
    assert config_of(make_student(teacher(), "2x12", AUTO)).hidden_act == CONFIG.hidden_act
    assert (
        config_of(make_student(teacher(), "2x12", StudentSettings(activation="relu"))).hidden_act
        == "relu"
        != CONFIG.hidden_act
    )


def test_what_is_no_size_comes_from_the_teacher() -> None:
    config = config_of(make_student(teacher(), "2x12", AUTO))
    same = ("max_position_embeddings", "layer_norm_eps", "hidden_act", "type_vocab_size", "vocab_size")
    assert [getattr(config, name) for name in same] == [getattr(CONFIG, name) for name in same]


# the teacher's layers


@pytest.mark.parametrize(
    ("wanted", "given_layers", "taken"),
    [("half", (), (2, 4, 6)), ("4x24", (), (1, 3, 4, 6)), ("2x24", (1, 2), (1, 2))],
)
def test_layers_are_the_teachers(wanted: str, given_layers: tuple[int, ...], taken: tuple[int, ...]) -> None:
    old = teacher()
    new = make_student(old, wanted, StudentSettings(layers=given_layers))
    assert len(new.model.encoder.blocks) == len(taken)
    for block, layer in zip(new.model.encoder.blocks, taken, strict=True):
        theirs = old.model.encoder.blocks[layer - 1].state_dict()
        assert all(torch.equal(weight, theirs[name]) for name, weight in block.state_dict().items())


def test_embeddings_and_pooler_are_the_teachers() -> None:
    old = teacher()
    new, state = make_student(old, "half", AUTO).model.state_dict(), old.model.state_dict()
    names = [name for name in new if not name.startswith("encoder.blocks.")]
    assert "pooler.dense.weight" in names
    assert all(torch.equal(new[name], state[name]) for name in names)


def test_a_student_of_all_layers_is_the_teacher() -> None:
    old = teacher()
    assert torch.equal(states(make_student(old, "6x24", AUTO).model), states(old.model))


def test_training_a_student_does_not_change_its_teacher() -> None:
    old = teacher()
    before = states(old.model)
    for weight in make_student(old, "half", AUTO).model.parameters():
        weight.data.zero_()
    assert torch.equal(states(old.model), before)


@pytest.mark.parametrize("wanted", ["half", "2x12"])
def test_a_student_has_no_heads_and_a_pooler_if_its_teacher_has_one(wanted: str) -> None:
    with_one, without = (make_student(teacher(pooler=has), wanted, AUTO) for has in (True, False))
    assert with_one.blueprint.heads == without.blueprint.heads == {}
    assert (with_one.model.pooler is not None, without.model.pooler is not None) == (True, False)


@pytest.mark.parametrize("wanted", ["half", "2x12"])
@pytest.mark.parametrize("changes", [{}, SHARED], ids=["bert", "albert"])
def test_a_student_comes_back_from_its_folder_and_takes_heads(
    wanted: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    student = make_student(teacher(**changes), wanted, AUTO)
    with_heads(student, {"tag": HeadSpec(kind="tag", outputs=3)}).save(tmp_path / "student")
    again = alembert.open(tmp_path / "student")
    assert again.tokenizer is not None
    assert again.tokenizer.vocabulary.pieces == PIECES
    torch.testing.assert_close(states(again.model), states(student.model), rtol=0, atol=0)


def test_the_keys_of_others_and_the_id_of_padding_are_kept() -> None:
    old = replace(teacher(), extra={"pad_token_id": 7, "note": "kept"})
    assert make_student(old, "half", AUTO).extra == {"pad_token_id": 0, "note": "kept"}


# shared layers


def test_a_student_of_shared_layers_shares_them() -> None:
    old = teacher(num_hidden_groups=1, inner_group_num=2)
    new = make_student(old, "half", AUTO)
    assert config_of(new).layer_order == (0, 1) * 3
    mine, theirs = new.model.encoder.blocks.state_dict(), old.model.encoder.blocks.state_dict()
    assert all(torch.equal(weight, theirs[name]) for name, weight in mine.items())


def test_groups_become_one_a_layer_where_layers_are_fewer() -> None:
    old = teacher(num_hidden_groups=3)
    new = make_student(old, "third", AUTO)
    assert config_of(new).layer_order == (0, 1)
    theirs = [old.model.encoder.blocks[number].inner.weight for number in (1, 2)]
    assert all(torch.equal(b.inner.weight, w) for b, w in zip(new.model.encoder.blocks, theirs, strict=True))


def test_factorised_embeddings_keep_their_width() -> None:
    old = teacher(**SHARED)
    new = make_student(old, "2x12", AUTO)
    assert config_of(new).embedding_size == 10
    assert torch.equal(new.model.state_dict()[TOKEN_EMBEDDING], old.model.state_dict()[TOKEN_EMBEDDING])


# narrowed weights

ROWS = [[2, *row, 3] for row in torch.randint(5, len(PIECES), (60, 12), generator=torch.Generator().manual_seed(1)).tolist()]  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        SHARED,
        {"layer_norm_position": "pre"},
        {"num_hidden_groups": 2, "inner_group_num": 2},
        {"position_embedding_type": "sinusoidal"},
    ],
    ids=["bert", "albert", "pre-norm", "groups", "sinusoidal"],
)
def test_at_the_teachers_own_shape_nothing_is_lost(changes: dict[str, Any]) -> None:
    old = teacher(**changes).model
    state = narrow_weights(old, StudentShape(old.config, tuple(range(1, 7))), ROWS)
    new = Model.skeleton(old.config, pooler=True)
    new.load_state_dict(state, assign=True)
    with torch.no_grad():
        for name in ("hidden", "pooled"):
            ours, theirs = (model.eval()(BATCH, heads=())[name] for model in (new, old))
            torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3)


def shrunk(model: Model, **changes: int) -> Model:
    config = replace(model.config, **changes)
    new = Model.skeleton(config, pooler=model.pooler is not None)
    new.load_state_dict(narrow_weights(model, StudentShape(config, tuple(range(1, 7))), ROWS), assign=True)
    return new


def test_neurons_that_are_not_heard_are_the_first_to_go() -> None:
    model = teacher().model
    for block in model.encoder.blocks:
        block.outer.weight.data[:, ::3] = 0
    torch.testing.assert_close(states(shrunk(model, intermediate_size=32)), states(model), rtol=0, atol=2e-3)


def without_writing(head: int) -> Model:
    """A teacher in which a head of each layer is not heard."""
    model = teacher().model
    for block in model.encoder.blocks:
        block.attention.out.weight.data.view(24, 4, 6)[:, head] = 0
    return model


def test_heads_that_write_nothing_are_the_first_to_go() -> None:
    fewer = shrunk(without_writing(1), hidden_size=18, num_attention_heads=3)
    for block in fewer.encoder.blocks:
        assert (block.attention.out.weight.view(18, 3, 6).norm(dim=(0, 2)) > 0).all()


def test_heads_that_write_nothing_may_stay() -> None:
    model = without_writing(1)
    torch.testing.assert_close(states(shrunk(model)), states(model), rtol=0, atol=2e-3)


def test_coordinates_that_never_vary_are_the_first_to_go() -> None:
    model = teacher().model
    for name, weight in model.state_dict().items():
        if "norm.weight" in name:
            weight[::4] = 0
    fewer = shrunk(model, hidden_size=18, num_attention_heads=3)
    kept = [number for number in range(24) if number % 4]
    assert torch.equal(fewer.state_dict()[TOKEN_EMBEDDING], model.state_dict()[TOKEN_EMBEDDING][:, kept])


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.integers(1, 30), st.integers(0, 999))
def test_fewer_dimensions_are_the_best_there_are(size: int, rows: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(n, 6, dtype=torch.double, generator=generator) for n in (rows, 40))
    to_left, to_right = reduce_dimensions(left, right, size)
    product = left @ right.T
    error = (product - (left @ to_left.T) @ (right @ to_right.T).T).norm()
    best = torch.linalg.svdvals(product)[size:].norm()
    torch.testing.assert_close(error, best, rtol=1e-3, atol=1e-2)


def test_a_narrow_student_is_nearer_to_its_teacher_than_one_from_scratch() -> None:
    """Attention of the first layer, which reads the embeddings alone."""
    old = teacher(initializer_range=0.05)

    def attention(model: Model) -> torch.Tensor:
        trace = ForwardTrace(documents=(1,))
        with torch.no_grad():
            model.eval()(BATCH, heads=(), trace=trace)
        return trace.probabilities(0, 1)

    settings_of = {"narrow": StudentSettings(layers=(1, 6)), "scratch": SCRATCH}
    far = {
        name: (attention(make_student(old, "2x20", given).model) - attention(old.model)).abs().sum()
        for name, given in settings_of.items()
    }
    assert far["narrow"] < 0.7 * far["scratch"]


TEXTS = ("Mutations of the BRAF gene cause melanoma.", "Aspirin inhibits platelet aggregation in adults.")


@pytest.mark.slow
@torch.no_grad()
def test_a_real_teacher_that_is_narrowed_attends_nearly_as_before(minilm: Path) -> None:
    old = alembert.open(minilm)
    assert old.tokenizer is not None
    batch = Batch.packed([encoding.ids for encoding in old.tokenizer.encode_batch(TEXTS)])

    def attention(checkpoint: Checkpoint) -> torch.Tensor:
        trace = ForwardTrace(documents=(0, 1))
        checkpoint.model(batch, heads=(), trace=trace)
        return torch.cat([trace.probabilities(layer, n).flatten() for layer in range(6) for n in (0, 1)])

    whole = attention(old)
    shared = {
        start: torch.minimum(whole, attention(make_student(old, "6x312", StudentSettings(start=start)))).sum()
        for start in ("teacher", "scratch")
    }
    rows = 6 * 12 * sum(batch.lengths)
    assert shared["teacher"] / rows > 0.7
    assert shared["scratch"] / rows < 0.6


def test_the_text_decides_what_is_kept_and_the_seed_only_without_it() -> None:
    old = teacher()
    named = [make_student(old, "2x12", AUTO, rows=ROWS, seed=seed) for seed in (1, 2)]
    drawn = [make_student(old, "2x12", AUTO, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(*(states(each.model) for each in named))
    assert torch.equal(states(drawn[0].model), states(drawn[1].model))
    assert not torch.equal(states(drawn[0].model), states(drawn[2].model))


def test_a_teacher_in_training_mode_is_read_without_dropout() -> None:
    old = teacher()
    calm = make_student(old, "2x12", AUTO)
    old.model.train()
    assert torch.equal(states(make_student(old, "2x12", AUTO).model), states(calm.model))


# from scratch


def test_a_student_from_scratch_follows_from_the_seed() -> None:
    old = teacher()
    one, same, other = (make_student(old, "half", SCRATCH, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(states(one.model), states(same.model))
    assert not torch.equal(states(one.model), states(other.model))
    assert one.model.pooler is None


def test_a_wider_student_begins_from_scratch_unless_it_must_not() -> None:
    assert config_of(make_student(teacher(), "2x48", AUTO)).hidden_size == 48
    with pytest.raises(BadSetting, match="48 wide and its teacher 24"):
        make_student(teacher(), "2x48", TEACHER)


# another vocabulary


def test_a_piece_begins_as_the_mean_of_the_teachers_pieces_of_it() -> None:
    old = teacher()
    small = cutter("treats", "braf", "imatinib", "##atinib", "##afa")
    new = make_student(old, "half", AUTO, tokenizer=small)
    rows, before = new.model.state_dict()[TOKEN_EMBEDDING], old.model.state_dict()[TOKEN_EMBEDDING]
    ids = old.tokenizer.vocabulary.ids  # type: ignore[union-attr]
    parts = [["treats"], ["br", "##af"], ["im", "##atin", "##ib"], ["##atin", "##ib"], ["##af", "##a"]]
    assert len(rows) == config_of(new).vocab_size == 10
    assert torch.equal(rows[:5], before[:5])
    for row, names in zip(rows[5:], parts, strict=True):
        expected = before[[ids[name] for name in names]].mean(0)
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-6)


def test_another_vocabulary_from_scratch_has_its_rows() -> None:
    assert config_of(make_student(teacher(), "half", SCRATCH, tokenizer=cutter("a"))).vocab_size == 6


def test_another_vocabulary_needs_the_teachers_tokenizer() -> None:
    with pytest.raises(BadFile, match="has no tokenizer"):
        make_student(replace(teacher(), tokenizer=None), "half", AUTO, tokenizer=cutter("a"))


# a student that is there


@pytest.fixture
def general(tmp_path: Path) -> str:
    make_student(teacher(), "2x12", AUTO).save(tmp_path / "general")
    return str(tmp_path / "general")


@pytest.mark.parametrize("start", ["auto", "scratch", "teacher"])
def test_a_student_that_is_there_is_opened_however_others_begin(general: str, start: Any) -> None:
    opened = make_student(teacher(), general, StudentSettings(start=start))
    assert torch.equal(states(opened.model), states(alembert.open(general).model))


def test_markers_of_the_teachers_task_are_added_to_a_student_that_is_there(general: str) -> None:
    old = teacher()
    assert old.tokenizer is not None
    marked = with_markers(old, old.tokenizer, {"[a]": "braf"})
    opened = make_student(marked, general, AUTO)
    assert opened.tokenizer is marked.tokenizer
    rows = opened.model.state_dict()[TOKEN_EMBEDDING]
    assert torch.equal(rows[: len(PIECES)], alembert.open(general).model.state_dict()[TOKEN_EMBEDDING])
    assert torch.equal(rows[len(PIECES) :], rows[[PIECES.index("a")]])


def test_a_student_with_another_tokenizer_is_refused(general: str) -> None:
    other = replace(teacher(), tokenizer=cutter(*reversed(PIECES[5:])))
    with pytest.raises(BadFile, match="another tokenizer than its teacher"):
        make_student(other, general, AUTO)


def test_a_student_that_keeps_case_is_refused_by_a_teacher_that_does_not(general: str) -> None:
    other = replace(teacher(), tokenizer=cutter(*PIECES[5:], lowercase=False))
    with pytest.raises(BadFile, match="another tokenizer than its teacher"):
        make_student(other, general, AUTO)


def test_a_student_that_is_there_and_deeper_is_refused(general: str) -> None:
    with pytest.raises(BadSetting, match="2 layers and its teacher 1"):
        make_student(teacher(num_hidden_layers=1), general, AUTO)


def test_a_student_that_reads_less_is_refused(general: str) -> None:
    with pytest.raises(BadFile, match="up to 20 tokens and its teacher 30"):
        make_student(teacher(max_position_embeddings=30), general, AUTO)


def test_a_student_that_is_there_has_its_shape(general: str) -> None:
    with pytest.raises(BadSetting, match="has its shape and vocabulary"):
        make_student(teacher(), general, StudentSettings(inner=8))


# what cannot be


@pytest.mark.parametrize(
    ("wanted", "given_settings", "sentence"),
    [
        ("7x24", AUTO, "7 layers and its teacher 6"),
        ("2x24", StudentSettings(layers=(1, 2, 3)), "expected 2 rising numbers from 1 to 6"),
        ("2x24", StudentSettings(layers=(3, 7)), "expected 2 rising numbers from 1 to 6"),
        ("2x20", StudentSettings(heads=3), "3, which does not divide its width of 20. Use 4 heads"),
        ("2x12", StudentSettings(start="teacher", heads=1), "1 heads of 12 and its teacher 4 of 6"),
        ("2x12", StudentSettings(start="teacher", heads=6), "6 heads of 2 and its teacher 4 of 6"),
        ("2x12", StudentSettings(start="teacher", inner=99), "99 wide inside its feed-forward part"),
        ("2x48", StudentSettings(layers=(1, 2)), "48 wide and its teacher 24"),
        ("2x23", TEACHER, "Use a width of 20 with 4 heads"),
    ],
)
def test_what_cannot_be_is_said_at_once(wanted: str, given_settings: StudentSettings, sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        make_student(teacher(), wanted, given_settings)


@pytest.mark.parametrize("kind", ["rotary", "sinusoidal"])
def test_positions_that_change_with_the_width_keep_it(kind: str) -> None:
    old = teacher(position_embedding_type=kind)
    with pytest.raises(BadSetting, match=f"{kind} positions, which change with the width"):
        make_student(old, "2x12", TEACHER) if kind == "sinusoidal" else make_student(old, "2x16", TEACHER)
    assert torch.isfinite(states(make_student(old, "half", TEACHER).model)).all()
