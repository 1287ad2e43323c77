"""Vectors of the task `compare`, from the head's outputs, without torch; and the cosines between them."""

# R rows, T texts, D width
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alembert.tasks.compare_pooling import Name
from alembert.tasks.compare_rows import Layout
from alembert.tasks.example import Coverage
from alembert.tasks.runner import Outputs

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Compared:
    """The vectors of an example's texts."""

    vectors: Vectors
    """One line a text."""
    coverage: Coverage

    @property
    def similarities(self) -> list[float]:
        """Cosines between the first text and each of the others."""
        units_TD = units(self.vectors)
        found: list[float] = (units_TD[1:] @ units_TD[0]).tolist()
        return found


def vectors_of(outputs: Sequence[Outputs], layout: Layout, pooling: Name, *, normalise: bool) -> Vectors:
    """Put the rows of each text together; a layer that is for training alone is left out."""
    rows_RD = np.concatenate(outputs)
    if pooling == "cls_train_layer":
        rows_RD = rows_RD[:, rows_RD.shape[1] // 2 :]
    weights_R = layout.weights / np.bincount(layout.owners, layout.weights)[layout.owners]
    means_TD = np.zeros((layout.texts, rows_RD.shape[1]))
    np.add.at(means_TD, layout.owners, rows_RD * weights_R[:, None])
    return (units(means_TD) if normalise else means_TD).astype(np.float32)


def units(vectors_TD: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Scale vectors to length 1; one of zeros stays as it is."""
    values_TD = vectors_TD.astype(np.float64)
    lengths_T = np.linalg.norm(values_TD, axis=-1, keepdims=True)
    scaled: npt.NDArray[np.float64] = values_TD / np.where(lengths_T > 0, lengths_T, 1.0)
    return scaled
