"""Which numbers the networks of searches multiply, and by what."""

from typing import Literal

import torch

from muzero.inference.amx import has_amx
from muzero.inference.panels import has_avx512_bf16

Unit = Literal["float32", "amx", "avx512_bf16"]
"""What multiplies in compiled networks: vectors of float32, or one of two units for bfloat16."""


def bfloat16_unit() -> Unit | None:
    """The faster unit for bfloat16 that compiled networks may use on this processor; None if it has none."""
    if has_amx():
        return "amx"
    return "avx512_bf16" if has_avx512_bf16() else None


def choose_bfloat16(setting: bool | None, device: torch.device) -> bool:
    """What `search.bfloat16` comes to on a device; null asks what the processor is, and measures nothing.

    So a run computes the same numbers whenever it is started on a machine.
    """
    if setting is not None:
        return setting
    if device.type == "cpu":
        return bfloat16_unit() is not None
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
