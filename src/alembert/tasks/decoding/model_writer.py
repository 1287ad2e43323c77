"""A torch model that writes: prompts are read once, and each new token costs one token."""

# P prompts or lines, V vocabulary
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from alembert.data.windows import Row
from alembert.nn.kv_cache import KVCache, Prefill
from alembert.nn.model import Model
from alembert.tasks.batches import in_batches
from alembert.tasks.decoding.search import Logits
from alembert.tasks.runner import check_finite
from alembert.tasks.targets import target_of


class ModelWriter:
    """A model in evaluation mode, whose masked-LM head says what comes next."""

    def __init__(self, model: Model, head: str, attention: str | None = None, segment: int = 0) -> None:
        """Write with causal or prefix attention (none: the model's own); new tokens are of this segment."""
        self.model = model
        self.head = head
        self.attention = attention or model.config.attention
        self.segment = segment
        self._memory: KVCache | None = None

    def read(self, prompts: Sequence[Row]) -> Logits:
        """Read prompts, short ones first; their last token is where each is asked."""
        weight = next(self.model.parameters())
        memory = KVCache(self.model.config, [row.length for row in prompts], weight)

        def compute(numbers: list[int]) -> tuple[list[int], Logits]:
            target = target_of([prompts[number] for number in numbers], numbers).to(weight.device)
            asked = {"places_P": target.places, "attention": self.attention}
            with torch.inference_mode():
                found = self.model(target.batch, [self.head], **asked, only=True, memory=Prefill(memory, numbers))
            return numbers, found[self.head].float().cpu().numpy()

        logits_PV = np.empty((len(prompts), self.model.config.vocab_size), np.float32)
        for numbers, found in in_batches(compute, [row.length for row in prompts], weight.device):
            logits_PV[numbers] = found
        check_finite(logits_PV, f"Outputs of the head `{self.head}`")
        self._memory = memory
        return logits_PV

    @torch.inference_mode()
    def write(self, parents: Sequence[int], tokens: Sequence[int]) -> Logits:
        """Write a token after lines of the last call."""
        assert self._memory is not None
        batch = self._memory.next(parents, tokens, self.segment)
        # A line sees all that stands before its new token, whatever the attention inside the prompt was.
        found = self.model(batch, [self.head], only=True, attention="causal", memory=self._memory)
        logits_PV: Logits = found[self.head].float().cpu().numpy()
        check_finite(logits_PV, f"Outputs of the head `{self.head}`")
        return logits_PV
