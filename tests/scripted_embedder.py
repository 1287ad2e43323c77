"""Embedders that need no model: vectors that a test gives, or that depend on a text alone."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from alembert.infer.embedder import EmbeddedTexts, ModelOrigin
from alembert.tasks.compare.pooling import Pooling
from alembert.tasks.example import Coverage

WIDTH = 8


@dataclass(frozen=True)
class Scripted:
    """Gives the vectors of a script; a text that is not in it gets random numbers of its own."""

    script: Mapping[str, Sequence[float]] = field(default_factory=dict)
    width: int = WIDTH
    origin: ModelOrigin = field(default_factory=lambda: ModelOrigin("nowhere", "f" * 64))
    length: int = 16

    @property
    def pooling(self) -> Pooling:
        return Pooling(mode="mean", dimension=self.width)

    def embed(self, texts: Sequence[str]) -> EmbeddedTexts:
        vectors = np.array([self._vector(text) for text in texts], np.float32)
        counts = {"examples": len(texts), "characters": sum(map(len, texts)), "windows": len(texts)}
        return EmbeddedTexts(vectors.reshape(-1, self.width), Coverage(**counts))

    def _vector(self, text: str) -> Sequence[float]:
        drawn = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(self.width)
        return self.script.get(text, drawn)
