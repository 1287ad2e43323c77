"""The model card: `README.md` of a Checkpoint, the same for the same model and training."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from alembert.files.family import Blueprint
from alembert.nn.heads import HeadSpec
from alembert.nn.tag_outputs import POINTER_WIDTH

_MEANING = {
    "masked_lm": "fills masked tokens",
    "copy_lm": "writes texts, and copies tokens of the source",
    "next_sentence": "tells whether the second sentence follows the first (0: yes, 1: no)",
    "classify": "classifies texts",
    "choice": "scores one choice of several",
    "tag": "labels tokens",
    "crf": "labels tokens, each in the light of its neighbours (CRF)",
    "pointer": "finds spans of tokens, which may nest and overlap",
    "relation": "says how two marked entities are related",
    "boundary": "tells for each token whether an entity begins or ends there",
    "replaced": "tells for each token whether it was replaced (above 0: yes)",
    "generator": "fills masked tokens by a small encoder of its own, for training alone",
    "span": "finds the start and end of an answer",
    "embed": "gives one vector a text: ",
}
_POOLING = {
    "first": "",
    "mean": ", from the mean of all tokens of the last layer, without a pooler",
    "layers": ", from the mean of all tokens of all layers (without the embeddings), without a pooler",
}
_VECTOR = {
    "cls": "the last state of the first token",
    "cls_layer": "tanh(linear layer(last state of the first token)); the layer is `embed.layer`",
    "cls_train_layer": "the last state of the first token, without the layer `embed.layer` that it was trained through",
    "mean": "the mean of the last states of all tokens",
}
"""Of heads of the kind embed."""
_CRF = (
    "the logits are emissions. The labels of a text are the path that maximises start[first label] + the logits of its "
    "labels + transitions[label, next label] for each step + end[last label] (Viterbi), over the first pieces of its "
    "words, without moves that the labelling scheme forbids (I-x comes after B-x or I-x alone). The weights are "
    "`{0}transitions` (from, to), `{0}start` and `{0}end`."
)
_CRF_ELSEWHERE = (
    " transformers opens the model for token classification with the same logits and reports these three as unused; "
    "the best label of each token by itself is then an approximation."
)
_POINTER = (
    "the vector of a token is a query q and a key k ({0} numbers each), both turned by the token's position (rotary), "
    "then a score for each type as the first token, and one for each type as the last. The score of the span from i to "
    "j as type t is q_i . k_j / {1} + first_i[t] + last_j[t]. Spans above 0 are entities; i and j are first pieces of words."
)


_RELATION = (
    "there are two columns for each label. The score of a label is the first one at [E1], the marker before the head, plus "
    "the second at [E2], the marker before the tail (words such as @GENE$ stand for both where entities are replaced); "
    "columns come in the order of the labels, first all first ones."
)


_COPY = (
    "the probability of a token w is (1 - g) softmax(logits)[w] + g (the sum of a_i over the tokens i of the source that "
    "are w), with g = sigmoid({0}gate(h) + {0}bias) and a = softmax({0}query(h) . {0}key(h_i) / {1}), where h is the "
    "last state of the token before w and h_i that of a token of the source, without [CLS] and [SEP]."
)
_COPY_ELSEWHERE = (
    " transformers opens the model for masked LM with the same logits and reports the weights of `copy` as unused."
)
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""What Markdown would obey; inside a word it takes `_` as it is."""


def build_model_card(blueprint: Blueprint, model_type: str, training: Mapping[str, str] | None = None) -> str:
    """Return the text of the card; `training` is what a reader should know of the run, in the order to tell it."""
    config = blueprint.config
    opening = (
        "; transformers cannot read this form."
        if model_type == "alembert"
        else ", or with the Auto classes of Hugging Face transformers."
    )
    lines = [
        "---",
        "library_name: transformers" if model_type != "alembert" else "library_name: alembert",
        "---",
        f"# {config.num_hidden_layers} x {config.hidden_size} {model_type} encoder",
        "",
        *_table(_model(blueprint)),
        "",
        *_explain_heads(blueprint, model_type),
        *(("## Training", "", *_table(_training_rows(training)), "") if training else ()),
        f"Open it with `alembert.open(folder)`{opening}",
        "",
    ]
    return "\n".join(lines)


def _model(blueprint: Blueprint) -> Iterator[tuple[str, str]]:
    config = blueprint.config
    yield "layers", str(config.num_hidden_layers)
    yield "width", str(config.hidden_size)
    yield "attention heads", str(config.num_attention_heads)
    yield "vocabulary", f"{config.vocab_size:,} pieces"
    yield "longest input", f"{config.max_position_embeddings} tokens"
    for name, spec in sorted(blueprint.heads.items()):
        pooling = _VECTOR if spec.kind == "embed" else _POOLING
        yield f"head `{name}`", _MEANING.get(spec.kind, "answers for its task") + pooling[spec.pooling]
    for head, labels in sorted(blueprint.labels.items()):
        yield f"labels of `{head}`", escape_markdown(", ".join(labels))


def _training_rows(training: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((escape_markdown(name), escape_markdown(value)) for name, value in training.items())


def _explain_heads(blueprint: Blueprint, model_type: str) -> Iterator[str]:
    """Explain how to read the answers of heads whose outputs do not show it."""
    explanations = {
        name: text
        for name, spec in sorted(blueprint.heads.items())
        if (text := _how_to_read(name, spec, model_type, blueprint.config.hidden_size))
    }
    if explanations:
        yield from ("## How the answers are read", "")
        for name, text in explanations.items():
            yield from (f"`{name}`: {text}", "")


def _how_to_read(name: str, spec: HeadSpec, model_type: str, width: int) -> str:
    is_native = model_type == "alembert"
    if spec.kind == "pointer":
        return _POINTER.format(POINTER_WIDTH, f"{math.sqrt(POINTER_WIDTH):g}")
    if spec.kind == "relation":
        return _RELATION
    if spec.kind == "crf":
        return _CRF.format(f"heads.{name}.crf.") if is_native else _CRF.format("crf.") + _CRF_ELSEWHERE
    if spec.kind == "copy_lm":
        text = _COPY.format(f"heads.{name}.copy." if is_native else "copy.", f"{math.sqrt(width):.4g}")
        return text if is_native else text + _COPY_ELSEWHERE
    return ""


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for name, value in rows:
        yield f"| {name} | {value} |"


def escape_markdown(text: str) -> str:
    r"""Write a text of others, such as a label, so that Markdown shows it as it is, inside a cell of a table too.

    >>> print(escape_markdown("a|b\n<i> `c` snake_case _d_"))
    a\|b &lt;i&gt; \`c\` snake_case \_d\_
    """
    line = " ".join(text.split())
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
    return _MARKUP.sub(r"\\\g<0>", shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
