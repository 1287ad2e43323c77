"""The model card: what a reader needs to know, the same for the same model."""

from alembert.files.card import build_model_card
from alembert.files.family import Blueprint
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec

HEADS = {"lm": HeadSpec(kind="masked_lm"), "topic": HeadSpec(kind="classify", outputs=2)}
BLUEPRINT = Blueprint(config=preset("tiny", vocab_size=30522), heads=HEADS, labels={"topic": ("yes|no", "other")})
TRAINING = {"tokens": "32,768,000", "corpus": "1,200 documents", "accuracy": "12 % before, 48 % after"}


def rows(card: str) -> list[list[str]]:
    """The cells of every table row, by the rules of GitHub's tables."""
    lines = [line for line in card.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.replace(r"\|", "\0").split("|")[1:-1]] for line in lines]


def test_a_card_says_what_the_model_is() -> None:
    card = build_model_card(BLUEPRINT, "bert")
    assert ["layers", "2"] in rows(card)
    assert ["head `lm`", "fills masked tokens"] in rows(card)
    assert "Training" not in card


def test_training_is_told_in_the_order_given() -> None:
    told = rows(build_model_card(BLUEPRINT, "bert", TRAINING).partition("## Training\n")[2])
    assert told[1:] == [list(row) for row in TRAINING.items()]


def test_no_text_leaves_its_cell() -> None:
    card = build_model_card(BLUEPRINT, "bert", {"a|b": "one\n\n# two|three"})
    assert all(len(row) == 2 for row in rows(card))
    assert [line for line in card.splitlines() if line.startswith("#")] == [
        "# 2 x 128 bert encoder",
        "## Training",
    ]


def card_of(spec: HeadSpec, model_type: str = "bert") -> str:
    return build_model_card(Blueprint(config=preset("tiny", vocab_size=99), heads={"mine": spec}), model_type)


def test_a_crf_says_how_it_is_read() -> None:
    card = card_of(HeadSpec(kind="crf", outputs=3))
    assert "`mine`: the logits are emissions." in card
    assert "`crf.transitions` (from, to)" in card
    assert "reports these three as unused" in card


def test_a_crf_in_our_own_form_names_the_weights_of_that_form() -> None:
    card = card_of(HeadSpec(kind="crf", outputs=3), "alembert")
    assert "`heads.mine.crf.transitions` (from, to)" in card
    assert "unused" not in card


def test_a_head_that_copies_says_how_it_is_read() -> None:
    copying = HeadSpec(kind="copy_lm")
    assert "sigmoid(copy.gate(h) + copy.bias)" in card_of(copying)
    assert "the weights of `copy` as unused" in card_of(copying)
    assert "sigmoid(heads.mine.copy.gate(h) + heads.mine.copy.bias)" in card_of(copying, "alembert")


def test_a_span_head_says_how_it_is_read() -> None:
    card = card_of(HeadSpec(kind="pointer", outputs=2), "alembert")
    assert "a query q and a key k (64 numbers each)" in card
    assert "q_i . k_j / 8 + first_i[t] + last_j[t]" in card


def test_a_pooling_of_our_own_is_told() -> None:
    spec = HeadSpec(kind="classify", outputs=2, pooling="layers")
    assert any("mean of all tokens of all layers" in cell for row in rows(card_of(spec, "alembert")) for cell in row)


def test_heads_that_explain_themselves_need_no_section() -> None:
    assert "How the answers are read" not in build_model_card(BLUEPRINT, "bert")


def test_the_card_says_who_can_open_it() -> None:
    assert "Hugging Face" in build_model_card(BLUEPRINT, "bert", TRAINING)
    assert "transformers cannot read" in build_model_card(BLUEPRINT, "alembert", TRAINING)


HOSTILE = ("<script>alert(1)</script>", "`a` **b** _c_ [d](e) &amp; ~f~ \\|", "snake_case\x1b\udcff")
SHOWN = (
    "&lt;script&gt;alert(1)&lt;/script&gt;, "
    r"\`a\` \*\*b\*\* \_c\_ \[d\](e) &amp;amp; \~f\~ \\\|, snake_case\\x1b\\udcff"
)


def test_labels_are_text_not_markup() -> None:
    heads = {"topic": HeadSpec(kind="classify", outputs=3)}
    blueprint = Blueprint(config=preset("tiny", vocab_size=99), heads=heads, labels={"topic": HOSTILE})
    card = build_model_card(blueprint, "bert", {"classes": ", ".join(HOSTILE)})
    assert f"| labels of `topic` | {SHOWN} |" in card
    assert f"| classes | {SHOWN} |" in card
    card.encode()
