"""Probabilities of attention against what the fused kernel made of them."""

from typing import Any

import torch

from alembert.infer.attention import AttentionMaps
from alembert.nn.attention import LayerRecorder
from alembert.nn.batch import Batch


def fused_outputs(model: Any, batch: Batch) -> list[torch.Tensor]:
    """What each layer's attention gives to its output projection, from the fused kernel, without any trace."""
    found: list[torch.Tensor] = []
    hooks = [
        block.attention.out.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        for block in model.encoder.blocks
    ]
    with torch.inference_mode():
        model.encoder(batch)
    for hook in hooks:
        hook.remove()
    return found


def values(model: Any, batch: Batch) -> list[torch.Tensor]:
    trace = LayerRecorder(layers=range(model.config.num_hidden_layers))
    with torch.inference_mode():
        model.encoder(batch, trace=trace)
    return [trace.qkv[layer][:, 2].transpose(0, 1) for layer in sorted(trace.qkv)]


def assert_equals_fused(model: Any, ids: list[int], maps: AttentionMaps, tolerance: float = 1e-5) -> None:
    """Probabilities times values are what the fused kernel returned."""
    batch = Batch.packed([ids])
    for layer, (fused, values_HTK) in enumerate(zip(fused_outputs(model, batch), values(model, batch), strict=True)):
        mixed = torch.from_numpy(maps.weights_LHTT[layer]) @ values_HTK
        torch.testing.assert_close(mixed.transpose(0, 1).flatten(1), fused, atol=tolerance, rtol=0)
