"""Fine-tuning with the rows of the embedding that the data need.

A few thousand labelled texts hold a few thousand of a vocabulary's pieces. The rows of all others never get a gradient,
yet their gradient would be filled with zeros, added up and measured, and their moments moved, in every small step.
So a run trains a model that has the rows of its own pieces alone, and the others are put back, untouched, when it is
written. In: a Checkpoint and encoded examples; out: both with other numbers for the same pieces. Weight decay does not
reach the rows that are left out, which is what one wants of them.
"""

# V pieces of the vocabulary, K own pieces, E embedding width
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import TOKEN_EMBEDDING
from alembert.nn.model import Model
from alembert.tasks.example import EncodedExample


@dataclass(frozen=True, eq=False)
class VocabularySubset:
    """The pieces of a run, as ids of the vocabulary in rising order: their places are their numbers in the run."""

    ids_K: npt.NDArray[np.int64]

    @classmethod
    def of(cls, encoded: Iterable[EncodedExample]) -> VocabularySubset:
        """Collect the pieces of examples."""
        ids = [np.unique(row.ids) for example in encoded for row in example.rows]
        return cls(np.unique(np.concatenate(ids)))

    @classmethod
    def all(cls, size: int) -> VocabularySubset:
        """Take all pieces of a vocabulary."""
        return cls(np.arange(size))

    def remap(self, encoded: Sequence[EncodedExample]) -> list[EncodedExample]:
        """Return the examples with the numbers of the run."""
        return [
            replace(example, rows=tuple(replace(row, ids=np.searchsorted(self.ids_K, row.ids)) for row in example.rows))
            for example in encoded
        ]

    def shrink(self, checkpoint: Checkpoint) -> Model:
        """Make a model with the rows of the run alone; a checkpoint with a head over the vocabulary needs all."""
        old = checkpoint.model
        config = replace(old.config, vocab_size=len(self.ids_K))
        model = Model.skeleton(config, old.specs, pooler=old.pooler is not None)
        state = dict(old.state_dict())
        state[TOKEN_EMBEDDING] = state[TOKEN_EMBEDDING][torch.from_numpy(self.ids_K)]
        model.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
        return model

    def restore(self, trained: Model, checkpoint: Checkpoint) -> Model:
        """Put the trained rows back among those of the checkpoint."""
        state = dict(trained.state_dict())
        rows_VE = checkpoint.model.state_dict()[TOKEN_EMBEDDING].clone()
        rows_VE[torch.from_numpy(self.ids_K)] = state[TOKEN_EMBEDDING].to(rows_VE)
        model = Model.skeleton(checkpoint.model.config, trained.specs, pooler=trained.pooler is not None)
        model.load_state_dict({**state, TOKEN_EMBEDDING: rows_VE}, assign=True)
        return model.eval()
