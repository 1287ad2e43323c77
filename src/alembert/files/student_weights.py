"""The weights of a student: the teacher's, narrowed to its shape and averaged to its vocabulary.

In: the teacher's model, the student's `StudentShape`, and rows of text. Out: the student's weights. The teacher
reads the rows once, and its states decide what is kept:

- of the states, the coordinates that vary most, the same in all layers, so that residuals and layer norms keep their
  meaning. Matrices that write into the states lose the other rows; matrices that read them get the other coordinates
  from the kept ones, as far as these tell them (least squares);
- of each attention head, the directions in which queries and keys, or values and output, make the largest products;
  of the heads, if the student has fewer, those that write most;
- of the feed-forward part, the neurons that vary most, times the weights with which they are heard.

At the teacher's own shape nothing is lost. The alternative, a rotation to principal components (P^T W P), was clearly
worse where all layers are kept and about as good where most are left out: a layer norm after a rotation is another one.
Rows of the text that the student will read keep more than rows of random pieces, most of all where all layers are kept.

With another vocabulary, each piece begins as the mean of the teacher's pieces of it.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from alembert.files.student_shape import StudentShape
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import CONTINUATION_PREFIX

# N tokens, D and d width of teacher and student, H heads, K and k their head size, F and f inner width


MAX_TEACHER_TOKENS: Final = 8192
"""Tokens that the teacher reads at most."""
_RIDGE: Final = 1e-3
"""Share of the mean variance that keeps least squares sound where coordinates depend on each other."""
_FLOOR: Final = 1e-4
"""The same, of the root mean square, for directions in a head that nothing points to."""
StateDict = dict[str, Tensor]


@dataclass(frozen=True)
class TeacherActivations:
    """What the teacher did while it read."""

    inputs: dict[str, Tensor]
    """Module that reads the states -> what it read (N, D); `last`: the last states."""
    activity: dict[str, Tensor]
    """Module -> how much each of its F inputs varies."""

    def variance(self) -> Tensor:
        """Add up how much each coordinate of the states varies (D)."""
        return torch.stack([states_ND.var(0) for states_ND in self.inputs.values()]).sum(0)


@dataclass(frozen=True)
class StateReconstruction:
    """How the teacher's states follow from the selected coordinates: all = mix @ selected + shift."""

    mix_Dd: Tensor
    shift_D: Tensor

    @classmethod
    def of(cls, states_ND: Tensor, coordinates_d: Tensor) -> StateReconstruction:
        """Fit the dropped coordinates on the selected ones, which stay as they are."""
        width = states_ND.shape[1]
        dropped = torch.ones(width, dtype=torch.bool).index_fill(0, coordinates_d, value=False)
        mean_D = states_ND.double().mean(0)
        centred_ND = states_ND - mean_D
        selected_Nd = centred_ND[:, coordinates_d]
        gram_dd = selected_Nd.T @ selected_Nd
        gram_dd += torch.eye(len(coordinates_d)) * (_RIDGE * gram_dd.diagonal().mean() + torch.finfo().tiny)
        mix_Dd = torch.eye(width, dtype=torch.double)[:, coordinates_d]
        mix_Dd[dropped] = torch.linalg.solve(gram_dd, selected_Nd.T @ centred_ND[:, dropped]).T
        return cls(mix_Dd, mean_D - mix_Dd @ mean_D[coordinates_d])

    def apply_to(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Turn a linear layer over all coordinates into one over the selected ones."""
        wide = weight.double()
        # Where all are kept the shift is a rounding error.
        return (wide @ self.mix_Dd).to(weight), (bias + wide @ self.shift_D).to(bias)


def narrow_weights(teacher: Model, shape: StudentShape, rows: Sequence[Sequence[int]]) -> StateDict:
    """Return the weights of a student, its pooler's among them if the teacher has one."""
    old, new = teacher.config, shape.config
    blocks = map_blocks(shape, old)
    seen = _record_activations(teacher, set(blocks.values()), rows)
    state = {name: weight.detach() for name, weight in teacher.state_dict().items()}
    coordinates_d = _top_indices(seen.variance(), new.hidden_size)
    result = _narrow_embeddings(state, coordinates_d, old)
    for mine, theirs in blocks.items():
        at = f"encoder.blocks.{theirs}."
        block = _narrow_attention(
            _select_prefix(state, at), seen.inputs[f"{at}attention.qkv"], coordinates_d, (old, new)
        )
        block |= _narrow_feed_forward(_select_prefix(state, at), seen, at, coordinates_d, new.intermediate_size)
        block |= {name: state[at + name][coordinates_d] for name in _norms("attention_norm", "output_norm")}
        result |= {f"encoder.blocks.{mine}.{name}": weight for name, weight in block.items()}
    result |= {name: state[name][coordinates_d] for name in _norms("encoder.final_norm") if name in state}
    if teacher.pooler is not None:
        reading = StateReconstruction.of(seen.inputs["last"], coordinates_d)
        weight, bias = state["pooler.dense.weight"][coordinates_d], state["pooler.dense.bias"][coordinates_d]
        result["pooler.dense.weight"], result["pooler.dense.bias"] = reading.apply_to(weight, bias)
    return {name: weight.contiguous() for name, weight in result.items()}


def map_blocks(shape: StudentShape, teacher: EncoderConfig) -> dict[int, int]:
    """Map the student's stored blocks to the teacher's; where layers share one, the last of them decides."""
    inner = teacher.inner_group_num
    theirs = [block for layer in shape.layers for block in teacher.layer_order[(layer - 1) * inner : layer * inner]]
    return dict(zip(shape.config.layer_order, theirs, strict=True))


@torch.no_grad()
def _record_activations(teacher: Model, blocks: set[int], rows: Sequence[Sequence[int]]) -> TeacherActivations:
    """Let a copy of the teacher, which shares its weights and drops nothing, read the rows."""
    model = Model.skeleton(teacher.config)
    model.load_state_dict({n: w for n, w in teacher.state_dict().items() if n in model.state_dict()}, assign=True)
    inputs: dict[str, list[Tensor]] = defaultdict(list)
    activity: dict[str, list[Tensor]] = defaultdict(list)
    for number in blocks:
        at = f"encoder.blocks.{number}."
        for name in ("attention.qkv", "inner", "outer"):
            part = model.get_submodule(at + name)
            if name == "outer":
                part.register_forward_pre_hook(_ActivationHook(activity[at + name], spread=True))
            else:
                part.register_forward_pre_hook(_ActivationHook(inputs[at + name]))
    inputs["last"].append(model.eval()(Batch.packed(_limit_rows(rows)))["hidden"])
    # A block that several layers share has read several times.
    return TeacherActivations(
        {name: torch.cat(states) for name, states in inputs.items()},
        {name: torch.stack(spreads).mean(0) for name, spreads in activity.items()},
    )


@dataclass(frozen=True)
class _ActivationHook:
    """A hook that keeps what a module reads, or how much each coordinate of it varies."""

    into: list[Tensor]
    spread: bool = False

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.into.append(inputs[0].std(0) if self.spread else inputs[0])


def _limit_rows(rows: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    first_rows: list[Sequence[int]] = []
    tokens = 0
    for row in rows:
        tokens += len(row)
        if first_rows and tokens > MAX_TEACHER_TOKENS:
            break
        first_rows.append(row)
    return first_rows


def _narrow_embeddings(state: StateDict, coordinates_d: Tensor, old: EncoderConfig) -> StateDict:
    at = "encoder.embeddings."
    if old.embedding_size is not None:
        widened = {name: state[name][coordinates_d] for name in (f"{at}widen.weight", f"{at}widen.bias")}
        return {name: weight for name, weight in state.items() if name.startswith(at)} | widened
    return {name: weight[..., coordinates_d] for name, weight in state.items() if name.startswith(at)}


def _narrow_attention(
    block: StateDict, states_ND: Tensor, coordinates_d: Tensor, configs: tuple[EncoderConfig, EncoderConfig]
) -> StateDict:
    old, new = configs
    heads, size = old.num_attention_heads, old.head_size
    weight_3HKD = block["attention.qkv.weight"].double().view(3, heads, size, -1)
    bias_3HK = block["attention.qkv.bias"].double().view(3, heads, size)
    out_HdK = (
        block["attention.out.weight"][coordinates_d].double().view(len(coordinates_d), heads, size).transpose(0, 1)
    )
    qkv_ND = nn.functional.linear(states_ND, block["attention.qkv.weight"], block["attention.qkv.bias"])
    qkv_3HNK = qkv_ND.double().view(-1, 3, heads, size).permute(1, 2, 0, 3)
    writes_H = torch.stack([_output_variance(*head) for head in zip(qkv_3HNK[2], out_HdK, strict=True)])
    turns, outs = [], []
    for head in _top_indices(writes_H, new.num_attention_heads).tolist():
        turn_3kK, back_kK = _head_projections(qkv_3HNK[:, head], out_HdK[head], new.head_size)
        turns.append((turn_3kK @ weight_3HKD[:, head], (turn_3kK @ bias_3HK[:, head, :, None]).squeeze(-1)))
        outs.append(out_HdK[head] @ back_kK.T)
    weight = torch.stack([w for w, _ in turns], 1).flatten(0, 2)
    bias = torch.stack([b for _, b in turns], 1).flatten()
    weight, bias = StateReconstruction.of(states_ND, coordinates_d).apply_to(weight, bias)
    return {
        "attention.qkv.weight": weight.to(states_ND),
        "attention.qkv.bias": bias.to(states_ND),
        "attention.out.weight": torch.cat(outs, 1).to(states_ND),
        "attention.out.bias": block["attention.out.bias"][coordinates_d],
    }


def _output_variance(v_NK: Tensor, out_dK: Tensor) -> Tensor:
    """Compute how much the output of a head would vary if each token attended to itself alone."""
    return (_triangular_factor(v_NK - v_NK.mean(0)) @ out_dK.T).square().sum().sqrt()


def _head_projections(qkv_3NK: Tensor, out_dK: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the matrices that project queries, keys and values of a head to fewer dimensions, and its output back."""
    q_NK, k_NK, v_NK = qkv_3NK
    # A softmax does not see what all keys share.
    to_q, to_k = reduce_dimensions(q_NK, k_NK - k_NK.mean(0), size)
    to_out, to_v = reduce_dimensions(out_dK, v_NK, size)
    # Scores are divided by the root of the head's size, which has changed.
    scale = math.sqrt(size / q_NK.shape[1])
    return torch.stack((to_q * scale, to_k, to_v)), to_out


def reduce_dimensions(left_NK: Tensor, right_MK: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return two (k, K) matrices that keep `left @ right.T` as well as k dimensions can, and the ratio of their sizes.

    These are the leading singular vectors of the product, found from the two triangular factors.
    """
    left_KK, right_KK = _triangular_factor(left_NK), _triangular_factor(right_MK)
    u_KK, values_K, v_KK = torch.linalg.svd(left_KK @ right_KK.T)
    roots_k1 = values_K[:size, None].sqrt()
    to_left = roots_k1 * torch.linalg.solve(left_KK, u_KK[:, :size]).T
    to_right = roots_k1 * torch.linalg.solve(right_KK, v_KK[:size].T).T
    balance = (left_KK.norm() / right_KK.norm()).sqrt()
    return to_left * balance, to_right / balance


def _triangular_factor(rows_NK: Tensor) -> Tensor:
    """Factor the mean square: R with R^T R = rows^T rows / N, made invertible."""
    rows_NK = rows_NK / math.sqrt(len(rows_NK))
    size = rows_NK.shape[1]
    floor = _FLOOR * rows_NK.norm() / math.sqrt(size) + torch.finfo().tiny
    triangle_KK: Tensor = torch.linalg.qr(torch.cat((rows_NK, floor * torch.eye(size))), mode="r")[1]
    return triangle_KK


def _narrow_feed_forward(
    block: StateDict, seen: TeacherActivations, at: str, coordinates_d: Tensor, inner: int
) -> StateDict:
    outer_dF = block["outer.weight"][coordinates_d]
    neurons_f = _top_indices(seen.activity[f"{at}outer"] * outer_dF.norm(dim=0), inner)
    reading = StateReconstruction.of(seen.inputs[f"{at}inner"], coordinates_d)
    weight, bias = reading.apply_to(block["inner.weight"][neurons_f], block["inner.bias"][neurons_f])
    return {
        "inner.weight": weight,
        "inner.bias": bias,
        "outer.weight": outer_dF[:, neurons_f],
        "outer.bias": block["outer.bias"][coordinates_d],
    }


def _top_indices(strength: Tensor, count: int) -> Tensor:
    """Return the indices of the largest numbers, in rising order."""
    return strength.topk(count).indices.sort().values


def _select_prefix(state: StateDict, at: str) -> StateDict:
    return {name.removeprefix(at): weight for name, weight in state.items() if name.startswith(at)}


def _norms(*names: str) -> list[str]:
    return [f"{name}.{kind}" for name in names for kind in ("weight", "bias")]


def map_pieces(teacher: Tokenizer, student: Tokenizer) -> list[tuple[int, ...]]:
    """Map each of the student's pieces to the ids of the teacher's pieces that it stands for.

    Special pieces go by their role and shared ones by their name; others are cut by the teacher, what continues a word
    as what continues a word. Parts that the teacher does not know are left out; pieces that are nothing else begin as
    its unknown piece, and a warning counts them.
    """
    teacher_ids = teacher.vocabulary.ids
    ours, theirs = student.vocabulary.special.roles(), teacher.vocabulary.special.roles()
    special = {piece: theirs[role] for role, piece in ours.items()}
    sources = []
    for piece in student.vocabulary:
        name = special.get(piece, piece)
        sources.append((teacher_ids[name],) if name in teacher_ids else _cut(teacher, piece))
    unknown = sum(ids == (teacher.unk_id,) for ids in sources) - 1
    if unknown:
        warnings.warn(
            f"{unknown:,} of {len(sources):,} pieces are unknown to the teacher's tokenizer and begin as its unknown piece",
            stacklevel=2,
        )
    return sources


def average_rows(rows_VE: Tensor, sources: Sequence[Sequence[int]]) -> Tensor:
    """Return the mean of the rows of each list of ids."""
    flat = torch.tensor([number for ids in sources for number in ids])
    starts = torch.tensor([0, *(len(ids) for ids in sources[:-1])]).cumsum(0)
    means = torch.nn.functional.embedding_bag(flat, rows_VE.float(), starts, mode="mean")
    return means.to(rows_VE.dtype)


def _cut(tokenizer: Tokenizer, piece: str) -> tuple[int, ...]:
    bare = piece.removeprefix(CONTINUATION_PREFIX)
    if bare and bare != piece:
        text = bare.lower() if tokenizer.lowercase else bare
        if pieces := _cut_continuation(tokenizer, text):
            return pieces
    ids = tokenizer.encode(bare or piece, add_special_tokens=False).ids
    return tuple(number for number in ids if number != tokenizer.unk_id) or (tokenizer.unk_id,)


def _cut_continuation(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Cut what continues a word by longest match; empty: there is no way to."""
    vocabulary, pieces, start = tokenizer.vocabulary.ids, [], 0
    while start < len(text):
        ends = range(len(text), start, -1)
        end = next((end for end in ends if CONTINUATION_PREFIX + text[start:end] in vocabulary), None)
        if end is None:
            return ()
        pieces.append(vocabulary[CONTINUATION_PREFIX + text[start:end]])
        start = end
    return tuple(pieces)
