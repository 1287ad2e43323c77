"""How the states of tokens become one vector for a document.

`first` is BERT's: the first token, [CLS], through a trained pooler. `mean` takes all tokens of the last layer, `layers`
all tokens of all layers (without the embeddings); they need no pooler, which many checkpoints do not have.

Vectors that are compared with each other are the `mean`, or the last state of the first token: as it is (`cls`), through
a linear layer and tanh (`cls_layer`), or through such a layer in training and as it is afterwards (`cls_train_layer`),
as SimCSE (Gao et al. 2021) does without supervision.
"""

# N tokens, B documents, T tokens of a document, D width
from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from alembert.nn.batch import Batch, Group

POOLINGS: Final = ("first", "mean", "layers")
EMBEDDINGS: Final = ("cls", "cls_layer", "cls_train_layer", "mean")
LAYERED: Final = ("cls_layer", "cls_train_layer")
"""Those of `EMBEDDINGS` that have a layer of their own."""


class LayerMean:
    """Adds up the states after each layer of one forward pass, so that none of them has to be kept."""

    def __init__(self) -> None:
        self._sum_ND: Tensor | None = None
        self._count = 0

    def add(self, states_ND: Tensor) -> None:
        """Take the states of one more layer."""
        self._sum_ND = states_ND if self._sum_ND is None else self._sum_ND + states_ND
        self._count += 1

    def value(self) -> Tensor:
        """Return the mean of what was added."""
        assert self._sum_ND is not None
        return self._sum_ND / self._count


def mean_of_documents(states_ND: Tensor, batch: Batch) -> Tensor:
    """Return the mean (B, D) over the real tokens of each document, in the caller's order."""
    means_BD = torch.cat([_means(states_ND[group.start : group.stop], group) for group in batch.groups])
    documents = [document for group in batch.groups for document in group.documents]
    return means_BD[torch.tensor(documents, device=means_BD.device).argsort()]


def _means(states_ND: Tensor, group: Group) -> Tensor:
    states_BTD = torch.unflatten(states_ND, 0, (group.rows, group.length))
    if group.real_BT is None:
        return states_BTD.mean(1)
    real_BT1 = group.real_BT[:, :, None]
    return states_BTD.masked_fill(~real_BT1, 0).sum(1) / real_BT1.sum(1)
