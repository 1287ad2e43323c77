"""An encoder and its heads as a graph, described once in operations that each format provides.

In: a torch `Model`, the names of heads, and the operations of a format (`Operations`, which `openvino` and `onnx`
implement). Out: an output for each head, called as the head: (B, T, C) of one that answers for tokens, (B, C) of one that
answers once a document. Nothing is traced, so the graph is what we want and no more: one encoder for all
heads, one product for queries, keys and values, tables of positions as long as the model reads, and, if only the first
token of a document is asked for, a last layer that computes no other. The attention is bidirectional.

A format is some twenty small operations that every inference library has had for years, and a test compares each with
torch. Tracing (`torch.onnx.export`) would need none of it, but a second, traceable way through the encoder, which packs
texts without padding, and a chain of packages (onnxscript, onnx-ir) that follows torch from version to version.
"""

# B documents, T tokens, D width, E embedding width, H heads, K head size, C outputs
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from alembert.errors import BadSetting
from alembert.nn.heads import LANGUAGE_MODEL_KINDS
from alembert.nn.tag_outputs import POINTER_WIDTH

if TYPE_CHECKING:
    from alembert.nn.heads import HeadSpec
    from alembert.nn.model import Model

FloatArray = npt.NDArray[np.float32]
Node = Any
"""A value of the graph, in the form that the format has for it."""
INPUT_NAMES: Final = ("ids", "segments", "lengths", "features", "input_ids", "attention_mask", "token_type_ids")
"""Names of inputs in one format or the other, which no output can have."""
Gelu = Literal["erf", "tanh"]
GELU: Final[dict[str, Gelu]] = {"gelu": "erf", "gelu_new": "tanh"}


class Operations(Protocol):
    """What a format must offer. Constants of the same name are the same."""

    ids: Node
    """Token ids (B, T), an input of the graph."""
    segments: Node
    """Segments (B, T), an input of the graph."""
    token_axis: int
    """The axis of tokens in states between `enter_blocks` and `leave_blocks`."""

    def constant(self, name: str, values: FloatArray) -> Node: ...

    def add(self, one: Node, other: Node) -> Node: ...

    def multiply(self, one: Node, other: Node) -> Node: ...

    def negative(self, states: Node) -> Node: ...

    def relu(self, states: Node) -> Node: ...

    def tanh(self, states: Node) -> Node: ...

    def gelu(self, states: Node, form: Gelu) -> Node: ...

    def concat(self, parts: Sequence[Node]) -> Node:
        """Put parts side by side, on the last axis."""

    def split(self, states: Node, sizes: Sequence[int]) -> list[Node]:
        """Cut the last axis."""

    def rows(self, table: Node, numbers: Node) -> Node:
        """Look up rows of a table."""

    def sum_of_features(self, table: Node) -> Node:
        """Look up the rows of each token's features, an input (B, T, F) of the graph, and add them up."""

    def first_rows(self, table: Node) -> Node:
        """Take as many rows of a table of positions as the batch is long."""

    def linear(self, states: Node, prefix: str, weight_CD: FloatArray, bias_C: FloatArray, name: str) -> Node:
        """Multiply with weights and add a bias; `prefix` begins the names of the two, `name` is the product's."""

    def norm(self, states: Node, scale: Node, bias: Node, eps: float) -> Node:
        """Bring the last axis to mean 0 and variance 1, and then to scale and bias."""

    def enter_blocks(self, states_BTD: Node) -> Node:
        """Bring states into the layout in which blocks are computed: (B, T, D) or (T, B, D)."""

    def leave_blocks(self, states: Node) -> Node:
        """Bring states of blocks into the form (B, T, D)."""

    def split_heads(self, states: Node, heads: int, size: int) -> Node:
        """Bring states of blocks into the form (B, H, T, K)."""

    def merge_heads(self, states_BHTK: Node, width: int) -> Node:
        """Bring (B, H, T, K) into the layout of blocks."""

    def attention(self, query: Node, key: Node, value: Node, size: int) -> Node:
        """Let queries see the real tokens; `size` is that of a head."""

    def first(self, states: Node, axis: int) -> Node:
        """Take what is first on an axis, and keep the axis."""

    def without_tokens(self, states_B1D: Node) -> Node:
        """Leave out the axis of tokens, of which there is one."""

    def mean(self, states_BTD: Node) -> Node:
        """Average the real tokens of each document."""

    def output(self, name: str, states: Node, *, per_token: bool) -> None:
        """Make something an output of the graph."""


def build_network(model: Model, heads: Sequence[str], operations: Operations) -> None:
    """Put the encoder and some of its heads together, in the operations of a format."""
    check_exportable(model, heads)
    _Network(model, heads, operations).describe()


def check_exportable(model: Model, heads: Sequence[str]) -> None:
    """Refuse what a graph cannot be made of."""
    if reserved := [head for head in heads if head in INPUT_NAMES]:
        raise BadSetting(
            f"A task is called {reserved[0]}, as an input of the graph is. Export another one (--task NAME), or fine-tune with "
            "another name."
        )
    if any(model.spec(head).kind in LANGUAGE_MODEL_KINDS for head in heads):
        raise BadSetting(
            "Models that fill masks or write texts cannot be exported: they need the whole vocabulary at every token, "
            "again and again. Use the checkpoint itself."
        )
    if model.config.attention != "bidirectional":
        raise BadSetting(
            f"The model reads with {model.config.attention} attention, and an Export reads with bidirectional attention "
            "alone. Use the checkpoint itself."
        )


class _Network:
    """The description; `layer` in names counts applied layers, which may share their weights."""

    def __init__(self, model: Model, heads: Sequence[str], operations: Operations) -> None:
        self.ops = operations
        self.config = model.config
        self.specs = {head: model.spec(head) for head in heads}
        self.weights: dict[str, FloatArray] = {
            name: weight.detach().float().cpu().numpy() for name, weight in model.state_dict().items()
        }
        self.pooled: dict[str, Node] = {}

    def describe(self) -> None:
        """Make the outputs of all heads."""
        states = self.ops.enter_blocks(self._embed())
        after = []
        for layer, block in enumerate(self.config.layer_order):
            is_last = layer == len(self.config.layer_order) - 1
            first = is_last and all(map(_reads_first_token, self.specs.values()))
            states = self._block(states, layer, f"encoder.blocks.{block}", first=first)
            after.append(self.ops.leave_blocks(states))
        last = self._normalise_last(after[-1])
        for name, spec in self.specs.items():
            read = [*map(self._normalise_last, after[:-1]), last] if spec.pooling == "layers" else [last]
            self.ops.output(name, self._answers(name, spec, read), per_token=spec.per_token)

    # -- encoder

    def _embed(self) -> Node:
        ops, prefix = self.ops, "encoder.embeddings"
        states = ops.add(
            ops.rows(self._weight(f"{prefix}.token.weight"), ops.ids),
            ops.rows(self._weight(f"{prefix}.segment.weight"), ops.segments),
        )
        if self.config.token_features is not None:
            states = ops.add(states, ops.sum_of_features(self._weight(f"{prefix}.features.weight")))
        if self.config.position_embedding_type == "absolute":
            states = ops.add(states, ops.first_rows(self._weight(f"{prefix}.position.weight")))
        elif self.config.position_embedding_type == "sinusoidal":
            states = ops.add(states, ops.first_rows(ops.constant("sinusoids", self._sinusoids())))
        states = self._norm(states, f"{prefix}.norm")
        return states if self.config.embedding_size is None else self._linear(states, f"{prefix}.widen", "widen")

    def _block(self, states: Node, layer: int, prefix: str, *, first: bool) -> Node:
        """Apply a block; `first`: only the first token of each document leaves it."""
        read = self._norm(states, f"{prefix}.attention_norm") if self._is_pre_norm else states
        seen = self._attend(read, layer, f"{prefix}.attention", first=first)
        states = self.ops.add(self.ops.first(states, self.ops.token_axis) if first else states, seen)
        if self._is_pre_norm:
            fed = self._feed_forward(self._norm(states, f"{prefix}.output_norm"), layer, prefix)
            return self.ops.add(states, fed)
        states = self._norm(states, f"{prefix}.attention_norm")
        return self._norm(self.ops.add(states, self._feed_forward(states, layer, prefix)), f"{prefix}.output_norm")

    def _attend(self, states: Node, layer: int, prefix: str, *, first: bool) -> Node:
        config, ops = self.config, self.ops
        qkv = self._linear(states, f"{prefix}.qkv", f"layer.{layer}.qkv")
        query, key, value = (
            ops.split_heads(part, config.num_attention_heads, config.head_size)
            for part in ops.split(qkv, [config.hidden_size] * 3)
        )
        if config.position_embedding_type == "rotary":
            query, key = (self._rotate(vectors, config.head_size) for vectors in (query, key))
        if first:
            query = ops.first(query, 2)
        mixed = ops.merge_heads(ops.attention(query, key, value, config.head_size), config.hidden_size)
        return self._linear(mixed, f"{prefix}.out", f"layer.{layer}.out")

    def _feed_forward(self, states: Node, layer: int, prefix: str) -> Node:
        inner = self._linear(states, f"{prefix}.inner", f"layer.{layer}.inner")
        form = GELU.get(self.config.hidden_act)
        active = self.ops.relu(inner) if form is None else self.ops.gelu(inner, form)
        return self._linear(active, f"{prefix}.outer", f"layer.{layer}.outer")

    @property
    def _is_pre_norm(self) -> bool:
        return self.config.layer_norm_position == "pre"

    def _normalise_last(self, states: Node) -> Node:
        return self._norm(states, "encoder.final_norm") if self._is_pre_norm else states

    # -- heads

    def _answers(self, name: str, spec: HeadSpec, states: list[Node]) -> Node:
        prefix, product = f"heads.{name}", "head" if len(self.specs) == 1 else f"head.{name}"
        if not spec.per_token:
            return self._of_documents(prefix, product, spec, states)
        outputs = self._linear(states[-1], f"{prefix}.linear", product)
        return self._pointer(outputs, spec) if spec.kind == "pointer" else outputs

    def _of_documents(self, prefix: str, product: str, spec: HeadSpec, states: list[Node]) -> Node:
        pooled = self._pool(spec, states)
        if spec.kind != "embed":
            return self._linear(pooled, f"{prefix}.linear", product)
        if f"{prefix}.layer.weight" not in self.weights:
            return pooled
        layered = self.ops.tanh(self._linear(pooled, f"{prefix}.layer", product))
        return layered if spec.pooling == "cls_layer" else self.ops.concat([layered, pooled])

    def _pool(self, spec: HeadSpec, states: list[Node]) -> Node:
        """Make one vector of each document, which all heads share that read it."""
        way = "pooler" if spec.needs_pooler else "first" if _reads_first_token(spec) else spec.pooling
        if way not in self.pooled:
            self.pooled[way] = self._first(spec, states[-1]) if _reads_first_token(spec) else self._mean(states)
        return self.pooled[way]

    def _first(self, spec: HeadSpec, states: Node) -> Node:
        pooled = self.ops.without_tokens(self.ops.first(states, 1))
        return self.ops.tanh(self._linear(pooled, "pooler.dense", "pooler")) if spec.needs_pooler else pooled

    def _mean(self, states: list[Node]) -> Node:
        total = states[0]
        for layer_states in states[1:]:
            total = self.ops.add(total, layer_states)
        share = np.array(1 / len(states), np.float32)
        return self.ops.multiply(self.ops.mean(total), self.ops.constant(f"1/{len(states)}", share))

    def _pointer(self, vectors: Node, spec: HeadSpec) -> Node:
        """Turn the queries and keys of token vectors by their positions, as `nn.pointer.rotate_queries_and_keys` does."""
        query, key, rest = self.ops.split(vectors, [POINTER_WIDTH, POINTER_WIDTH, 2 * spec.columns])
        return self.ops.concat([self._rotate(query, POINTER_WIDTH), self._rotate(key, POINTER_WIDTH), rest])

    # -- positions

    def _rotate(self, states: Node, width: int) -> Node:
        """Turn vectors (..., T, width) by an angle that grows with the position."""
        ops = self.ops
        angles = np.concatenate([self._angles(width)] * 2, -1)
        left, right = ops.split(states, [width // 2] * 2)
        across = ops.concat([ops.negative(right), left])
        cos, sin = (
            ops.first_rows(ops.constant(f"{name} {width}", function(angles)))
            for name, function in (("cos", np.cos), ("sin", np.sin))
        )
        return ops.add(ops.multiply(states, cos), ops.multiply(across, sin))

    def _sinusoids(self) -> FloatArray:
        angles = self._angles(self.config.embedding_width)
        both = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(angles), -1)
        return both[:, : self.config.embedding_width]

    def _angles(self, width: int) -> FloatArray:
        steps = np.arange(0, width, 2, dtype=np.float32)
        positions = np.arange(self.config.max_position_embeddings, dtype=np.float32)
        return positions[:, None] * np.float32(10_000) ** (-steps / np.float32(width))

    # -- weights

    def _linear(self, states: Node, prefix: str, name: str) -> Node:
        weight, bias = self.weights[f"{prefix}.weight"], self.weights[f"{prefix}.bias"]
        return self.ops.linear(states, prefix, weight, bias, name)

    def _norm(self, states: Node, prefix: str) -> Node:
        scale, bias = self._weight(f"{prefix}.weight"), self._weight(f"{prefix}.bias")
        return self.ops.norm(states, scale, bias, self.config.layer_norm_eps)

    def _weight(self, name: str) -> Node:
        return self.ops.constant(name, self.weights[name])


def _reads_first_token(spec: HeadSpec) -> bool:
    """Whether the first token of a document is all that a head reads of the last layer."""
    return not spec.per_token and (spec.needs_pooler or spec.pooling.startswith("cls"))


def relative_error(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the squared error of an output over all rows, as a share of its size: so all outputs count alike."""
    size = sum(float(np.square(row).sum()) for row in expected)
    return sum(float(np.square(a - b).sum()) for a, b in zip(outputs, expected, strict=True)) / (size or 1.0)
