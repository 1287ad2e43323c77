"""The shape of an encoder with the keys of a BERT `config.json`, usual presets, and its cost.

No torch here: a configuration is checked before anything heavy is loaded or allocated. The cost is counted in
multiplications, to compare models apart from any machine; matrix products alone count, since they are nearly all the
work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from alembert.errors import BadSetting

ACTIVATIONS: Final = ("gelu", "gelu_new", "relu")
"""`gelu` is the erf form, `gelu_new` the tanh form of the original BERT."""
POSITIONS: Final = ("absolute", "sinusoidal", "rotary")
NORMS: Final = ("post", "pre")
ATTENTIONS: Final = ("bidirectional", "causal", "prefix")

# No encoder comes near these; a file that claims more is damaged or hostile.
MAX_SIZES: Final = {
    "vocab_size": 10_000_000,
    "hidden_size": 65_536,
    "embedding_size": 65_536,
    "num_hidden_layers": 1_000,
    "num_attention_heads": 1_024,
    "intermediate_size": 1_000_000,
    "max_position_embeddings": 1_000_000,
    "type_vocab_size": 1_024,
    "num_hidden_groups": 1_000,
    "inner_group_num": 100,
    "token_features": 1_000_000,
}


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Everything that fixes the weights' shapes and the mathematics of an encoder."""

    vocab_size: int
    """Rows of the token embedding."""
    hidden_size: int = 768
    """Width of the hidden states."""
    num_hidden_layers: int = 12
    """How many times a layer is applied."""
    num_attention_heads: int = 12
    """Attention heads of a layer; divides `hidden_size`."""
    intermediate_size: int = 3072
    """Width inside the feed-forward part."""
    hidden_act: str = "gelu"
    """Activation: `gelu` (erf), `gelu_new` (tanh) or `relu`."""
    hidden_dropout_prob: float = 0.1
    """Dropout on embeddings and on each sub-layer's output."""
    attention_probs_dropout_prob: float = 0.1
    """Dropout on the attention probabilities."""
    max_position_embeddings: int = 512
    """Longest input, in tokens."""
    type_vocab_size: int = 2
    """Number of segments (sentence A, sentence B)."""
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal that new weights are drawn from."""
    layer_norm_eps: float = 1e-12
    """Added to the variance in layer normalisation."""
    position_embedding_type: str = "absolute"
    """`absolute` (learned, as in BERT), `sinusoidal` or `rotary`."""
    layer_norm_position: str = "post"
    """`post` (after each sub-layer, as in BERT) or `pre`."""
    attention: str = "bidirectional"
    """Who sees whom: `bidirectional` (BERT), `causal`, or `prefix` (UniLM)."""
    embedding_size: int | None = None
    """Width of the embeddings when it differs from `hidden_size` (ALBERT)."""
    num_hidden_groups: int | None = None
    """Groups of layers that share their weights (ALBERT); none: each layer has its own."""
    inner_group_num: int = 1
    """Layers applied in turn inside one group (ALBERT)."""
    token_features: int | None = None
    """Rows of the embedding of token features, which the model reads beside the pieces; none: it reads pieces alone."""

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_choices()
        self._check_rates()
        if self.hidden_size % self.num_attention_heads:
            raise BadSetting(
                f"`hidden_size` is {self.hidden_size}, which is not a multiple of `num_attention_heads` "
                f"({self.num_attention_heads}). {self._nearest_width()}"
            )
        if self.position_embedding_type == "rotary" and self.head_size % 2:
            raise BadSetting(f"Rotary positions need an even head size, and it is {self.head_size}.")
        if self.num_hidden_groups is not None and self.num_hidden_groups > self.num_hidden_layers:
            raise BadSetting(
                f"`num_hidden_groups` is {self.num_hidden_groups}, more than the {self.num_hidden_layers} layers. "
                "Use at most one group per layer."
            )

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def layer_order(self) -> tuple[int, ...]:
        """Which stored block each step of the forward pass uses.

        >>> EncoderConfig(vocab_size=9, num_hidden_layers=4).layer_order
        (0, 1, 2, 3)
        >>> EncoderConfig(vocab_size=9, num_hidden_layers=4, num_hidden_groups=2).layer_order
        (0, 0, 1, 1)
        """
        groups = self.num_hidden_groups or self.num_hidden_layers
        inner = range(self.inner_group_num)
        return tuple(
            layer * groups // self.num_hidden_layers * self.inner_group_num + i
            for layer in range(self.num_hidden_layers)
            for i in inner
        )

    def _nearest_width(self) -> str:
        heads = self.num_attention_heads
        width = max(1, round(self.hidden_size / heads)) * heads
        divisors = [n for n in range(1, heads + 1) if self.hidden_size % n == 0]
        return f"Use a width of {width}, or {divisors[-1]} heads."

    def _check_sizes(self) -> None:
        for name, largest in MAX_SIZES.items():
            value = getattr(self, name)
            if value is None and name in ("embedding_size", "num_hidden_groups", "token_features"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
                raise BadSetting(f"`{name}` is {value!r}; expected a whole number from 1 to {largest:,}.")

    def _check_choices(self) -> None:
        for name, choices in (
            ("hidden_act", ACTIVATIONS),
            ("position_embedding_type", POSITIONS),
            ("layer_norm_position", NORMS),
            ("attention", ATTENTIONS),
        ):
            value = getattr(self, name)
            if value not in choices:
                hint = suggest(str(value), choices)
                raise BadSetting(f"`{name}` is {value!r}; expected one of {', '.join(choices)}.{hint}")

    def _check_rates(self) -> None:
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value < 1:
                raise BadSetting(f"`{name}` is {value!r}; expected a number from 0 up to, not including, 1.")
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value <= 1:
                raise BadSetting(f"`{name}` is {value!r}; expected a number above 0, at most 1.")


def suggest(name: str, choices: Sequence[str]) -> str:
    """Return a sentence with the choice that is nearest to a name; empty: none is near."""
    return "".join(f" Did you mean `{near}`?" for near in get_close_matches(name, choices, n=1))


def is_number(value: object) -> bool:
    """Whether a value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


# name: layers, width, heads, inner width
_SIZES: Final = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
    "4x312": (4, 312, 12, 1200),
    "6x768": (6, 768, 12, 3072),
}
PRESETS: Final = tuple(_SIZES)
"""`tiny` to `large` are BERT's sizes; `4x312` and `6x768` are TinyBERT's students."""


def preset(name: str, *, vocab_size: int, **changes: Any) -> EncoderConfig:
    """Return the configuration of a usual size, with changes.

    >>> preset("4x312", vocab_size=30522).intermediate_size
    1200
    """
    if name not in _SIZES:
        hint = suggest(name, PRESETS)
        raise BadSetting(f"There is no model size `{name}`; expected one of {', '.join(PRESETS)}.{hint}")
    layers, width, heads, inner = _SIZES[name]
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": inner,
    }
    return EncoderConfig(vocab_size=vocab_size, **{**sizes, **changes})


def narrow_config(config: EncoderConfig, share: float) -> EncoderConfig:
    """Return a configuration of this share of the width, with as many layers and the same width of embeddings.

    Heads become fewer rather than narrower.

    >>> narrow = narrow_config(preset("base", vocab_size=30522), 0.25)
    >>> narrow.hidden_size, narrow.num_attention_heads, narrow.intermediate_size, narrow.embedding_width
    (192, 3, 768, 768)
    """
    heads = max(1, round(config.num_attention_heads * share))
    return replace(
        config,
        hidden_size=max(1, round(config.hidden_size * share / heads / 2)) * 2 * heads,
        num_attention_heads=heads,
        intermediate_size=max(1, round(config.intermediate_size * share)),
        embedding_size=config.embedding_width,
        token_features=None,
    )


def count_multiplications_per_token(config: EncoderConfig, tokens: int = 128) -> int:
    """Count multiplications for each token of a text of `tokens`, the products of attention among them.

    >>> from alembert.nn.config import preset
    >>> teacher, student = (count_multiplications_per_token(preset(name, vocab_size=30522)) for name in ("base", "4x312"))
    >>> f"{teacher / student:.1f}x fewer"
    '17.9x fewer'
    """
    return count_multiplications(config, [tokens]) // tokens


def count_multiplications(config: EncoderConfig, lengths: Sequence[int], selected: int | None = None) -> int:
    """Count those of documents of these lengths; `selected`: how many tokens leave the last block (none: all).

    If these alone attend there, they are assumed to be spread evenly over all tokens.
    """
    width, tokens, layers = config.hidden_size, sum(lengths), len(config.layer_order)
    widen = 0 if config.embedding_size is None else tokens * config.embedding_size * width
    leaving = tokens if selected is None else selected
    looking = leaving if should_subset_queries(leaving, tokens) else tokens
    # Keys and values are two squares, and so is the query of each token that looks; scores and mixing: every token that
    # looks with every token of its document, twice.
    seen = tokens * 2 * width * width
    look = tokens * width * width + 2 * width * sum(length * length for length in lengths)
    # The output of attention is a square; the two sides of the feed-forward part are equal.
    after = width * width + 2 * width * config.intermediate_size
    finished = tokens * (layers - 1) + leaving
    return widen + layers * seen + (layers - 1) * look + look * looking // max(tokens, 1) + finished * after


def should_subset_queries(selected: int, tokens: int) -> bool:
    """Whether so few tokens leave the last block that it pays to compute their queries alone."""
    return 2 * selected <= tokens
