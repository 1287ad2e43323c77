"""BERT's training data in the plainest words, to compare with: slow, on lists, one token at a time.

A document is a list of sentences, a sentence a list of tokens; tokens are anything, and strings when words matter
(`##` continues a word). Nothing of alembert is imported.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

SPECIAL = ("[CLS]", "[SEP]")

Sentence = list[Any]
Pair = tuple[list[Any], list[Any], bool]


def pairs(
    documents: Sequence[Sequence[Sentence]], own: int, length: int, short_share: float, rng: Random
) -> list[Pair]:
    """Make (A, B, whether B is random) from one document."""
    room = length - 3
    target = rng.randint(2, room) if rng.random() < short_share else room
    waiting = list(documents[own])
    made = []
    while waiting:
        chunk = []
        while waiting and len(joined(chunk)) < target:
            chunk.append(waiting.pop(0))
        split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        a, b = joined(chunk[:split]), joined(chunk[split:])
        is_random = len(chunk) == 1 or rng.random() < 0.5
        if is_random:
            waiting = chunk[split:] + waiting
            b = stranger(documents, own, target - len(a), rng)
        truncate(a, b, room, rng)
        made.append((a, b, is_random))
    return made


def stranger(documents: Sequence[Sequence[Sentence]], own: int, target: int, rng: Random) -> list[Any]:
    """Take sentences of another document from a random one on."""
    tries = 1
    other = rng.randrange(len(documents))
    while other == own and tries < 10:
        other = rng.randrange(len(documents))
        tries += 1
    at = rng.randrange(len(documents[other]))
    taken = list(documents[other][at])
    for sentence in documents[other][at + 1 :]:
        if len(taken) >= target:
            break
        taken += sentence
    return taken


def truncate(a: list[Any], b: list[Any], room: int, rng: Random) -> None:
    """Drop tokens from the longer side until both fit."""
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        del longer[0 if rng.random() < 0.5 else -1]


def joined(sentences: Sequence[Sentence]) -> list[Any]:
    """Put sentences after each other."""
    return [token for sentence in sentences for token in sentence]


def count(length: int, rate: float, most: int) -> int:
    """Say how many tokens of a sequence are predicted."""
    return min(most, max(1, round(rate * length)))


def words(tokens: Sequence[str], whole: bool) -> list[list[int]]:
    """Group positions into what is masked together."""
    groups: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token in SPECIAL:
            continue
        if whole and groups and token.startswith("##"):
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def chosen(tokens: Sequence[str], rate: float, most: int, whole: bool, rng: Random) -> list[int]:
    """Choose the positions to predict."""
    groups = words(tokens, whole)
    rng.shuffle(groups)
    wanted = count(len(tokens), rate, most)
    positions: list[int] = []
    for group in groups:
        if len(positions) + len(group) <= wanted:
            positions += group
    return sorted(positions)


def corrupted(token: Any, vocabulary: Sequence[Any], rng: Random) -> Any:
    """Say what stands in the place of a token that is predicted."""
    if rng.random() < 0.8:
        return "[MASK]"
    return token if rng.random() < 0.5 else rng.choice(vocabulary)


def spans(tokens: Sequence[str], rate: float, stop: float, longest: int, rng: Random) -> list[tuple[int, ...]]:
    """Choose spans of whole words in a single sequence, as SpanBERT does, without breaking the last word."""
    groups = words(tokens, whole=True)
    left = count(len(tokens), rate, len(tokens))
    lengths = range(1, longest + 1)
    weights = [stop * (1 - stop) ** (length - 1) for length in lengths]
    taken: set[int] = set()
    found = []
    while anchors := [
        number for number, group in enumerate(groups) for _ in group if number not in taken and len(group) <= left
    ]:
        anchor = rng.choice(anchors)
        span: list[int] = []
        for number in range(anchor, min(anchor + rng.choices(lengths, weights)[0], len(groups))):
            if number in taken:
                continue
            if len(groups[number]) > left:
                break
            taken.add(number)
            left -= len(groups[number])
            span += groups[number]
        found.append(tuple(span))
    return sorted(found)
