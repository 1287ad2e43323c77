import pytest

from alembert.errors import BadSetting
from alembert.nn.config import PRESETS, EncoderConfig, preset


def test_presets_have_the_published_sizes() -> None:
    sizes = {name: preset(name, vocab_size=100) for name in PRESETS}
    assert {
        n: (c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.intermediate_size) for n, c in sizes.items()
    } == {
        "tiny": (2, 128, 2, 512),
        "mini": (4, 256, 4, 1024),
        "small": (4, 512, 8, 2048),
        "base": (12, 768, 12, 3072),
        "large": (24, 1024, 16, 4096),
        "4x312": (4, 312, 12, 1200),
        "6x768": (6, 768, 12, 3072),
    }


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(BadSetting, match="Did you mean `small`"):
        preset("smal", vocab_size=100)


def test_width_that_does_not_fit_the_heads_says_what_to_do() -> None:
    with pytest.raises(BadSetting, match=r"770.*12.*Use a width of 768, or 11 heads"):
        EncoderConfig(vocab_size=100, hidden_size=770)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"vocab_size": 0}, "vocab_size"),
        ({"vocab_size": 10**12}, "10,000,000"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"hidden_size": "768"}, "hidden_size"),
        ({"hidden_size": 768.0}, "hidden_size"),
        ({"hidden_act": "gelo"}, "Did you mean `gelu`"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob"),
        ({"hidden_dropout_prob": float("nan")}, "hidden_dropout_prob"),
        ({"layer_norm_eps": 0}, "layer_norm_eps"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"num_hidden_groups": 13}, "num_hidden_groups"),
        ({"hidden_size": 12, "position_embedding_type": "rotary"}, "even head size"),
    ],
)
def test_settings_that_cannot_work_are_named(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        EncoderConfig(**{"vocab_size": 100, **change})
