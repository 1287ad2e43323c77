"""A student made of a teacher: its shape, and the weights that it begins with.

In: the teacher's Checkpoint, and a size (`4x312`), a part of the teacher's layers (`half`), or the folder of an
existing student. Out: a Checkpoint without heads, which `surgery.with_heads` adds. A student of the teacher's shape
begins as its layers, bit for bit; a narrower one as its narrowed weights (`student_weights`); one from scratch with
fresh weights. With another tokenizer, a piece begins as the mean of the teacher's pieces of it. A student from a folder
keeps its heads and weights; only markers that a task has added to the teacher's vocabulary are added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from alembert.errors import BadFile, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.files.student_shape import StudentSettings, StudentShape, check_depth, is_size, parse_size, resolve_shape
from alembert.files.student_weights import StateDict, average_rows, map_blocks, map_pieces, narrow_weights
from alembert.files.surgery import TOKEN_EMBEDDING, with_added_pieces
from alembert.hub import is_hub_id
from alembert.nn.config import EncoderConfig
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer

_RANDOM_ROWS: Final = 128
_RANDOM_LENGTH: Final = 32


def make_student(
    teacher: Checkpoint,
    size_or_folder: str,
    settings: StudentSettings,
    *,
    tokenizer: Tokenizer | None = None,
    rows: Sequence[Sequence[int]] = (),
    seed: int = 1,
) -> Checkpoint:
    """Make the student, or open it.

    `rows` are rows of the text that it will read, as ids of the teacher's pieces with its special ones: a few thousand
    tokens, by which weights are narrowed; empty: rows of random pieces, which keep less.
    """
    if not is_size(size_or_folder) and (is_hub_id(size_or_folder) or Path(size_or_folder).exists()):
        return _open_student(teacher, size_or_folder, settings, tokenizer)
    config = teacher.blueprint.config
    shape = resolve_shape(parse_size(size_or_folder, config), config, settings)
    own = tokenizer or teacher.tokenizer
    if not shape.layers:
        size = config.vocab_size if tokenizer is None else tokenizer.vocab_size
        blueprint = Blueprint(config=replace(shape.config, vocab_size=size))
        return _inherit_extra_config(teacher, Checkpoint.new(blueprint, own, seed=seed))
    state = _initial_weights(teacher, shape, rows, seed)
    if tokenizer is not None:
        sources = map_pieces(teacher.require_tokenizer(), tokenizer)
        state[TOKEN_EMBEDDING] = average_rows(state[TOKEN_EMBEDDING], sources)
    sized = replace(shape.config, vocab_size=len(state[TOKEN_EMBEDDING]))
    blueprint = Blueprint(config=sized, pooler=teacher.model.pooler is not None)
    model = Model.skeleton(sized, pooler=blueprint.pooler)
    model.load_state_dict({name: weight.clone() for name, weight in state.items()}, assign=True)
    return _inherit_extra_config(teacher, Checkpoint(model=model, blueprint=blueprint, tokenizer=own))


def _inherit_extra_config(teacher: Checkpoint, student: Checkpoint) -> Checkpoint:
    """Take over what others have written into the teacher's configuration."""
    student.model.eval()
    extra = dict(teacher.extra)
    if student.tokenizer is not None and "pad_token_id" in extra:
        extra["pad_token_id"] = student.tokenizer.pad_id
    return replace(student, extra=extra)


def _initial_weights(teacher: Checkpoint, shape: StudentShape, rows: Sequence[Sequence[int]], seed: int) -> StateDict:
    old, new = teacher.blueprint.config, shape.config
    parts = ("hidden_size", "num_attention_heads", "intermediate_size")
    if all(getattr(old, part) == getattr(new, part) for part in parts):
        return _copy_layers(teacher.model, shape)
    return narrow_weights(teacher.model, shape, rows or _random_rows(teacher, seed))


def _copy_layers(teacher: Model, shape: StudentShape) -> StateDict:
    state = {n: w for n, w in teacher.state_dict().items() if not n.startswith(("encoder.blocks.", "heads."))}
    for mine, theirs in map_blocks(shape, teacher.config).items():
        block = teacher.encoder.blocks[theirs].state_dict()
        state |= {f"encoder.blocks.{mine}.{name}": weight for name, weight in block.items()}
    return state


def _random_rows(teacher: Checkpoint, seed: int) -> list[list[int]]:
    """Draw rows of the teacher's pieces, between its special ones if it has a tokenizer."""
    config, tokenizer = teacher.blueprint.config, teacher.tokenizer
    length = min(_RANDOM_LENGTH, config.max_position_embeddings - 2)
    size = config.vocab_size if tokenizer is None else tokenizer.vocab_size
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(size, (_RANDOM_ROWS, max(1, length)), generator=generator).tolist()
    ends = ([], []) if tokenizer is None or length < 1 else ([tokenizer.cls_id], [tokenizer.sep_id])
    return [[*ends[0], *row, *ends[1]] for row in rows]


def _open_student(
    teacher: Checkpoint, folder: str, settings: StudentSettings, tokenizer: Tokenizer | None
) -> Checkpoint:
    if tokenizer is not None or settings != StudentSettings(start=settings.start):
        raise BadSetting(
            f"The student {folder} is there and has its shape and vocabulary; `heads`, `inner`, `layers` and another "
            "tokenizer are for one that is made. Leave them out."
        )
    student = open_checkpoint(folder)
    _check_limits(student.blueprint.config, teacher.blueprint.config, folder)
    return _with_vocabulary_of(teacher, student, folder)


def _check_limits(student: EncoderConfig, teacher: EncoderConfig, folder: str) -> None:
    check_depth(student.num_hidden_layers, teacher)
    for name, what in (("max_position_embeddings", "tokens"), ("type_vocab_size", "segments")):
        ours, theirs = getattr(student, name), getattr(teacher, name)
        if ours < theirs:
            raise BadFile(
                f"The student {folder} reads up to {ours} {what} and its teacher {theirs} (`{name}`). Use a student that "
                "was made of this teacher."
            )


def _with_vocabulary_of(teacher: Checkpoint, student: Checkpoint, folder: str) -> Checkpoint:
    """Check that both cut text alike; what a task has added to the teacher's vocabulary is added to the student's."""
    theirs, ours = teacher.require_tokenizer(), student.tokenizer
    if ours is None or not _begins_as(theirs, ours):
        described = "none" if ours is None else repr(ours)
        raise BadFile(
            f"The student {folder} has another tokenizer than its teacher ({described}, and the teacher {theirs!r}); they must "
            "read the same pieces. Use a student that was made of this teacher."
        )
    if theirs.vocab_size == ours.vocab_size:
        return replace(student, tokenizer=theirs)
    sources = map_pieces(ours, theirs)
    fresh = {number: sources[number] for number in range(ours.vocab_size, theirs.vocab_size)}
    return with_added_pieces(student, theirs, fresh)


def _begins_as(longer: Tokenizer, shorter: Tokenizer) -> bool:
    """Whether one tokenizer equals another, apart from pieces after those of it."""
    one, other = (replace(tokenizer.parts.settings, model_max_length=None) for tokenizer in (longer, shorter))
    return one == other and longer.vocabulary.pieces[: shorter.vocab_size] == shorter.vocabulary.pieces
