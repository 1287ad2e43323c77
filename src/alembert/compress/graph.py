"""The OpenVINO model of an encoder and one head, built operation by operation from our weights.

In: a torch `Model` and the name of a head. Out: an `openvino.Model` with the inputs `ids` and `segments` (B, T) and `lengths` (B),
and one output: (B, T, C) of a head that answers for tokens, (B, C) of one that answers once a document. Nothing is traced,
so the graph is what we want and no more: one product for queries, keys and values, one attention a layer, tables of
positions as long as the model reads, and, if only the first token of a document is asked for, a last layer that computes
no other. The attention is bidirectional and knows padding by the lengths.
"""

# B documents, T tokens, D width, E embedding width, H heads, K head size, C outputs
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from alembert.errors import BadSetting
from alembert.hardware.openvino_settings import import_openvino
from alembert.nn.pointer import WIDTH

if TYPE_CHECKING:
    from openvino import Model as Graph
    from openvino import Node

    from alembert.nn.model import Model

IDS: Final = "ids"
SEGMENTS: Final = "segments"
LENGTHS: Final = "lengths"
OUTPUT: Final = "output"
GELU: Final = {"gelu": "erf", "gelu_new": "tanh"}

Numbers = npt.NDArray[np.float32]


def build_graph(model: Model, head: str) -> Graph:
    """Build the OpenVINO model of the encoder with one of its heads."""
    spec = model.spec(head)
    if spec.kind == "masked_lm":
        raise BadSetting(
            "Models that fill masks or write texts cannot be exported: they need the whole vocabulary at every token, "
            "again and again. Use the checkpoint itself."
        )
    if model.config.attention != "bidirectional":
        raise BadSetting(
            f"The model reads with {model.config.attention} attention, and an Export reads with bidirectional attention "
            "alone. Use the checkpoint itself."
        )
    return _Builder(model, head).graph()


class _Builder:
    """Makes nodes of weights; `layer` in names counts applied layers, which may share their weights."""

    def __init__(self, model: Model, head: str) -> None:
        self.openvino = import_openvino()
        self.ops: Any = self.openvino.opset13
        self.config = model.config
        self.spec = model.spec(head)
        self.head = f"heads.{head}"
        self.weights = {
            name: each.detach().float().cpu().numpy() for name, each in model.state_dict().items()
        }
        self.constants: dict[str, Node] = {}
        whole = self.openvino.PartialShape([-1, -1])
        self.ids = self._input(IDS, whole)
        self.segments = self._input(SEGMENTS, whole)
        self.lengths = self._input(LENGTHS, self.openvino.PartialShape([-1]))
        size = self.ops.shape_of(self.ids, "i32")
        self.tokens = self.ops.gather(size, self._whole([1]), self._whole(0))
        self.real_BT = self._real()

    def graph(self) -> Graph:
        """Put encoder and head together."""
        states = self._embedded()
        after = []
        for layer, block in enumerate(self.config.layer_order):
            is_last = layer == len(self.config.layer_order) - 1
            states = self._block(
                states, layer, f"encoder.blocks.{block}", first=is_last and self._reads_first
            )
            after.append(states)
        output = self._answers(
            [self._finished(each) for each in (after if self._reads_layers else after[-1:])]
        )
        output.set_friendly_name(OUTPUT)
        output.output(0).set_names({OUTPUT})
        return _named(self.openvino.Model([output], [self.ids, self.segments, self.lengths], "alembert"))

    # -- what the head reads

    @property
    def _reads_layers(self) -> bool:
        return self.spec.pooling == "layers"

    @property
    def _reads_first(self) -> bool:
        """Whether the first token of a document is all that the head reads of the last layer."""
        return not self.spec.per_token and (self.spec.needs_pooler or self.spec.pooling.startswith("cls"))

    # -- encoder

    def _embedded(self) -> Node:
        place = "encoder.embeddings"
        states = self.ops.add(
            self._rows(f"{place}.token.weight", self.ids),
            self._rows(f"{place}.segment.weight", self.segments),
        )
        if self.config.position_embedding_type == "absolute":
            states = self.ops.add(states, self._so_far(self._weight(f"{place}.position.weight")))
        elif self.config.position_embedding_type == "sinusoidal":
            states = self.ops.add(states, self._so_far(self._table("sinusoids", self._sinusoids())))
        states = self._norm(states, f"{place}.norm")
        return (
            states if self.config.embedding_size is None else self._linear(states, f"{place}.widen", "widen")
        )

    def _block(self, states: Node, layer: int, place: str, *, first: bool) -> Node:
        """Apply a block; `first`: only the first token of each document leaves it."""
        read = self._norm(states, f"{place}.attention_norm") if self._is_pre_norm else states
        seen = self._attended(read, layer, f"{place}.attention", first=first)
        states = self.ops.add(self._first(states) if first else states, seen)
        if self._is_pre_norm:
            fed = self._fed_forward(self._norm(states, f"{place}.output_norm"), layer, place)
            return self.ops.add(states, fed)
        states = self._norm(states, f"{place}.attention_norm")
        return self._norm(
            self.ops.add(states, self._fed_forward(states, layer, place)), f"{place}.output_norm"
        )

    def _attended(self, states: Node, layer: int, place: str, *, first: bool) -> Node:
        ops = self.ops
        qkv = self._linear(states, f"{place}.qkv", f"layer.{layer}.qkv")
        query, key, value = (self._by_head(part) for part in ops.split(qkv, self._whole(-1), 3).outputs())
        if self.config.position_embedding_type == "rotary":
            query, key = (self._turned(each, self.config.head_size) for each in (query, key))
        if first:
            query = self._first(query, axis=2)
        mask = ops.unsqueeze(self.real_BT, self._whole([1, 2]))
        mixed = ops.scaled_dot_product_attention(query, key, value, mask)
        joined = ops.reshape(
            ops.transpose(mixed, self._whole([0, 2, 1, 3])),
            self._whole([0, 0, self.config.hidden_size]),
            True,
        )
        return self._linear(joined, f"{place}.out", f"layer.{layer}.out")

    def _by_head(self, states: Any) -> Node:
        """Bring (B, T, D) into the form (B, H, T, K)."""
        sizes = self._whole([0, 0, self.config.num_attention_heads, self.config.head_size])
        return self.ops.transpose(self.ops.reshape(states, sizes, True), self._whole([0, 2, 1, 3]))

    def _fed_forward(self, states: Node, layer: int, place: str) -> Node:
        inner = self._linear(states, f"{place}.inner", f"layer.{layer}.inner")
        shape = GELU.get(self.config.hidden_act)
        active = self.ops.relu(inner) if shape is None else self.ops.gelu(inner, shape)
        return self._linear(active, f"{place}.outer", f"layer.{layer}.outer")

    @property
    def _is_pre_norm(self) -> bool:
        return self.config.layer_norm_position == "pre"

    def _finished(self, states: Node) -> Node:
        return self._norm(states, "encoder.final_norm") if self._is_pre_norm else states

    # -- head

    def _answers(self, states: list[Node]) -> Node:
        if not self.spec.per_token:
            return self._of_documents(states)
        found = self._linear(states[-1], f"{self.head}.linear", "head")
        return self._pointer(found) if self.spec.kind == "pointer" else found

    def _of_documents(self, states: list[Node]) -> Node:
        if self._reads_first:
            pooled = self.ops.squeeze(self._first(states[-1]), self._whole([1]))
        else:
            total = states[0]
            for each in states[1:]:
                total = self.ops.add(total, each)
            pooled = self._mean(self.ops.divide(total, self._float(len(states))))
        if self.spec.needs_pooler:
            pooled = self.ops.tanh(self._linear(pooled, "pooler.dense", "pooler"))
        if self.spec.kind != "embed":
            return self._linear(pooled, f"{self.head}.linear", "head")
        if f"{self.head}.layer.weight" not in self.weights:
            return self.ops.add(pooled, self._float(0))
        layered = self.ops.tanh(self._linear(pooled, f"{self.head}.layer", "head"))
        return layered if self.spec.pooling == "cls_layer" else self.ops.concat([layered, pooled], -1)

    def _mean(self, states: Node) -> Node:
        """Average the real tokens (B, T, D) of each document."""
        ops = self.ops
        weight_BT1 = ops.unsqueeze(ops.convert(self.real_BT, "f32"), self._whole([-1]))
        total_BD = ops.reduce_sum(ops.multiply(states, weight_BT1), self._whole([1]))
        return ops.divide(total_BD, ops.unsqueeze(ops.convert(self.lengths, "f32"), self._whole([-1])))

    def _pointer(self, vectors: Node) -> Node:
        """Turn the queries and keys of token vectors by their positions, as `nn.pointer.turned` does."""
        sizes = self._whole([WIDTH, WIDTH, 2 * self.spec.columns])
        query, key, rest = self.ops.variadic_split(vectors, self._whole(-1), sizes).outputs()
        return self.ops.concat([self._turned(query, WIDTH), self._turned(key, WIDTH), rest], -1)

    # -- positions

    def _so_far(self, table: Node) -> Node:
        """Take as many rows of a table of positions as the batch is long."""
        zero, one = self._whole([0]), self._whole([1])
        return self.ops.slice(table, zero, self.tokens, one, zero)

    def _turned(self, states: Any, width: int) -> Node:
        """Turn vectors (..., T, width) by an angle that grows with the position."""
        ops = self.ops
        angles = np.concatenate([self._angles(width)] * 2, -1)
        left, right = ops.split(states, self._whole(-1), 2).outputs()
        across = ops.concat([ops.negative(right), left], -1)
        cos, sin = (
            self._so_far(self._table(f"{name} {width}", function(angles)))
            for name, function in (("cos", np.cos), ("sin", np.sin))
        )
        return ops.add(ops.multiply(states, cos), ops.multiply(across, sin))

    def _sinusoids(self) -> Numbers:
        angles = self._angles(self.config.embedding_width)
        both = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(angles), -1)
        return both[:, : self.config.embedding_width]

    def _angles(self, width: int) -> Numbers:
        steps = np.arange(0, width, 2, dtype=np.float32)
        positions = np.arange(self.config.max_position_embeddings, dtype=np.float32)
        return positions[:, None] * np.float32(10_000) ** (-steps / np.float32(width))

    # -- small parts

    def _input(self, name: str, shape: Any) -> Node:
        node: Node = self.ops.parameter(shape, np.int32, name=name)
        node.output(0).set_names({name})
        return node

    def _real(self) -> Node:
        """Say which tokens (B, T) are real."""
        ops = self.ops
        length = ops.squeeze(self.tokens, self._whole([0]))
        positions_T = ops.range(self._whole(0), length, self._whole(1), "i32")
        return ops.less(positions_T, ops.unsqueeze(self.lengths, self._whole([-1])))

    def _first(self, states: Node, axis: int = 1) -> Node:
        """Take the first token, and keep the axis."""
        return self.ops.gather(states, self._whole([0]), self._whole(axis))

    def _linear(self, states: Any, weights: str, name: str) -> Node:
        product = self.ops.matmul(states, self._weight(f"{weights}.weight"), False, True)
        product.set_friendly_name(name)
        return self.ops.add(product, self._weight(f"{weights}.bias"))

    def _norm(self, states: Any, weights: str) -> Node:
        even = self.ops.mvn(states, self._whole([-1]), True, self.config.layer_norm_eps, "inside_sqrt")
        scaled = self.ops.multiply(even, self._weight(f"{weights}.weight"))
        return self.ops.add(scaled, self._weight(f"{weights}.bias"))

    def _rows(self, weights: str, numbers: Node) -> Node:
        return self.ops.gather(self._weight(weights), numbers, self._whole(0))

    def _weight(self, name: str) -> Node:
        return self._table(name, self.weights[name])

    def _table(self, name: str, values: Numbers) -> Node:
        if name not in self.constants:
            node = self.ops.constant(np.ascontiguousarray(values, np.float32))
            node.set_friendly_name(name)
            self.constants[name] = node
        return self.constants[name]

    def _whole(self, values: int | list[int]) -> Node:
        node: Node = self.ops.constant(np.array(values, np.int32))
        return node

    def _float(self, value: float) -> Node:
        node: Node = self.ops.constant(np.float32(value))
        return node


def _named(graph: Graph) -> Graph:
    """Number the nodes that have no name of ours: OpenVINO counts over the whole process, and files would differ."""
    for number, node in enumerate(graph.get_ordered_ops()):
        if node.get_friendly_name() == node.get_name():
            node.set_friendly_name(f"{node.get_type_name()}.{number}")
    return graph
