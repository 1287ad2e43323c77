"""A smaller (or just another) vocabulary for a student: each piece begins as the mean of the teacher's pieces of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import CONTINUATION


def piece_sources(teacher: Tokenizer, student: Tokenizer) -> list[tuple[int, ...]]:
    """Give, for each of the student's pieces, the ids of the teacher's pieces that it stands for.

    Special pieces go by their role and shared ones by their name; others are cut by the teacher, what continues a word
    as what continues a word. Parts that the teacher does not know are left out; pieces that are nothing else begin as
    its unknown piece, and a warning counts them.
    """
    known = teacher.vocabulary.ids
    ours, theirs = student.vocabulary.special.roles(), teacher.vocabulary.special.roles()
    special = {piece: theirs[role] for role, piece in ours.items()}
    sources = []
    for piece in student.vocabulary:
        name = special.get(piece, piece)
        sources.append((known[name],) if name in known else _cut(teacher, piece))
    unknown = sum(each == (teacher.unk_id,) for each in sources) - 1
    if unknown:
        warnings.warn(
            f"{unknown:,} of {len(sources):,} pieces are unknown to the teacher's tokenizer and begin as its unknown piece",
            stacklevel=2,
        )
    return sources


def mean_rows(rows_VE: Tensor, sources: Sequence[Sequence[int]]) -> Tensor:
    """Give the mean of the rows of each list of ids."""
    places = torch.tensor([number for each in sources for number in each])
    starts = torch.tensor([0, *(len(each) for each in sources[:-1])]).cumsum(0)
    means = torch.nn.functional.embedding_bag(places, rows_VE.float(), starts, mode="mean")
    return means.to(rows_VE.dtype)


def _cut(tokenizer: Tokenizer, piece: str) -> tuple[int, ...]:
    bare = piece.removeprefix(CONTINUATION)
    if bare and bare != piece:
        text = bare.lower() if tokenizer.lowercase else bare
        if found := _continued(tokenizer, text):
            return found
    ids = tokenizer.encode(bare or piece, add_special_tokens=False).ids
    return tuple(number for number in ids if number != tokenizer.unk_id) or (tokenizer.unk_id,)


def _continued(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Cut what continues a word by longest match; empty: there is no way to."""
    known, found, start = tokenizer.vocabulary.ids, [], 0
    while start < len(text):
        ends = range(len(text), start, -1)
        end = next((end for end in ends if CONTINUATION + text[start:end] in known), None)
        if end is None:
            return ()
        found.append(known[CONTINUATION + text[start:end]])
        start = end
    return tuple(found)
