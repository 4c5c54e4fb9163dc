"""Which numbers the networks of searches multiply."""

import torch

from muzero.inference.amx import has_amx


def choose_bfloat16(setting: bool | None, device: torch.device) -> bool:
    """What `search.bfloat16` comes to on a device; null asks what the processor is, and measures nothing.

    So a run computes the same numbers whenever it is started on a machine.
    """
    if setting is not None:
        return setting
    if device.type == "cpu":
        return has_amx()
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
