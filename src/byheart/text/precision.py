"""Arithmetic in bf16: whether a device has it, and how a network's layers are set to it.

Owns both. Products of layers are bf16 then; sums, norms and what comes after stay fp32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def is_half(wanted: str, device: str) -> bool:
    """Return whether a network is to multiply in bf16.

    Args:
        wanted: `bf16`, `fp32` or `auto`: bf16 where the device has it.
        device: torch device.

    Returns:
        The choice.
    """
    return wanted == "bf16" or (wanted == "auto" and has_bf16(device))


def has_bf16(device: str) -> bool:
    """Return whether a device multiplies in bf16 by itself, so that it is faster and not slower than fp32."""
    if torch.device(device).type == "cuda":
        return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False))
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # private, and not in every release
    return torch.device(device).type == "cpu" and any(getattr(torch.cpu, name, lambda: False)() for name in asked)


def halve(layers: nn.Module) -> None:
    """Turn the weights of linear layers to bf16, once, not in every pass."""
    for layer in layers.modules():
        if isinstance(layer, nn.Linear):
            layer.to(torch.bfloat16)


def multiplying(in_half: bool, device: str) -> AbstractContextManager[object]:
    """Return the context in which a network runs: bf16 where `in_half`, else as it is."""
    return torch.autocast(torch.device(device).type, torch.bfloat16) if in_half else nullcontext()
