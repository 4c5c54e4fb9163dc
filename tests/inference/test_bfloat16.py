"""Networks in bfloat16 on a CPU: which unit multiplies, and every step against torch modules that round where it does."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from numba.core.registry import cpu_target
from torch import Tensor, nn

from mcts.base import Selection
from muzero.config.networks import MLPConfig, NetworkConfig, ResNetConfig
from muzero.inference import functions as compiled
from muzero.inference import local, precision
from muzero.inference.evaluators import ModuleEvaluator
from muzero.inference.functions import functions
from muzero.inference.fused import FusedMLP
from muzero.inference.fused_resnet import FusedResNet
from muzero.inference.precision import bfloat16_unit, choose_bfloat16
from muzero.network import MuZeroNetwork, NetworkSpec
from muzero.network.layers import ResidualBlock
from tests.inference.test_local import (
    BOARD,
    FLAT,
    MLP,
    RESNET,
    SMALL,
    TURNS,
    model_of,
    observations,
    trained,
)

needs_unit = pytest.mark.skipif(
    bfloat16_unit() is None, reason="this processor has neither AMX nor AVX512_BF16"
)
CONNECT_FOUR = NetworkSpec(observation_shape=(3, 6, 7), num_actions=7, num_players=2)
NETWORKS = [
    pytest.param(ResNetConfig(**RESNET), BOARD, id="8-channels"),
    pytest.param(ResNetConfig(**{**RESNET, "num_channels": 21}), TURNS, id="21-channels"),
    pytest.param(ResNetConfig(**RESNET, norm="none"), BOARD, id="no-norm"),
    pytest.param(
        ResNetConfig(num_channels=33, num_blocks=2, head_channels=3, head_hidden_size=17, **SMALL),
        CONNECT_FOUR,
        id="33-channels",
    ),
    pytest.param(ResNetConfig(**RESNET, downsample=2), TURNS, id="shrinks"),
    pytest.param(MLPConfig(**MLP), FLAT, id="mlp"),
    pytest.param(
        MLPConfig(**{**MLP, "hidden_sizes": [24, 15]}, residual_dynamics=True),
        TURNS,
        id="mlp-turns",
    ),
]
ULP = 2.0**-7
"""Of a bfloat16 in [1, 2); a latent lies in [0, 1]."""


def rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def rounding(network: MuZeroNetwork) -> MuZeroNetwork:
    """Rounds its weights and the inputs of every layer, and for images what blocks give; computes in float32."""
    network.prepare_inference()
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.weight.data = rounded(module.weight.data)
            module.register_forward_pre_hook(lambda _, inputs: rounded(inputs[0]))
        if isinstance(module, ResidualBlock):
            module.register_forward_pre_hook(lambda _, inputs: rounded(inputs[0]))
            module.register_forward_hook(lambda _, inputs, output: rounded(output))
    return network


def to_tensor(latents: np.ndarray, is_image: bool) -> Tensor:
    """What `LocalModel.latents` gives -> float32, channels first."""
    if not is_image:
        return torch.from_numpy(latents)
    return torch.from_numpy(latents).view(torch.bfloat16).float().permute(0, 3, 1, 2)


@needs_unit
@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 12, 13, 33, 70])
@pytest.mark.parametrize(("config", "spec"), NETWORKS)
def test_a_step_rounds_where_bfloat16_is_kept_and_nowhere_else(
    config: NetworkConfig, spec: NetworkSpec, num_rows: int
):
    """Sums in another order may round the other way: seldom, and by a unit or two."""
    network = trained(config, spec)
    is_image = config.kind == "resnet"
    model = model_of(network, num_rows, bfloat16=True)
    assert type(model._evaluator) is (FusedResNet if is_image else FusedMLP)
    observation = observations(spec, num_rows)
    model.roots(observation)
    nodes = np.arange(num_rows), np.zeros(num_rows, np.int64)
    parents = to_tensor(model.read_nodes(*nodes), is_image)
    rows = np.arange(num_rows, dtype=np.int32)
    actions = (rows % spec.num_actions).astype(np.int32)
    output = model.recurrent(Selection(rows, rows * 0, actions, rows * 0 + 1))
    latents = to_tensor(model.read_nodes(nodes[0], nodes[1] + 1), is_image)

    action = torch.from_numpy(actions).long()
    with torch.no_grad():
        exact = network.recurrent_inference(parents, action)
        expected = rounding(network).recurrent_inference(parents, action)
    assert expected.reward_logits is not None
    kept = rounded(expected.latent) if is_image else expected.latent
    error, unrounded = (latents - kept).abs(), (latents - exact.latent).abs()
    assert error.max() <= 2 * ULP
    # Far below what the roundings themselves do.
    assert 10 * error.mean() < unrounded.mean()
    for found, logits, support in (
        (output.value, expected.value_logits, network.value_support),
        (output.reward, expected.reward_logits, network.reward_support),
    ):
        np.testing.assert_allclose(found, support.decode(logits), atol=0.02, rtol=0.02)
    np.testing.assert_allclose(output.prior_logits, expected.policy_logits, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    ("amx", "avx512_bf16", "unit"),
    [
        (True, True, "amx"),
        (True, False, "amx"),
        (False, True, "avx512_bf16"),
        (False, False, None),
    ],
)
def test_the_unit_is_chosen_by_what_the_processor_is(monkeypatch, amx, avx512_bf16, unit):
    cpu = torch.device("cpu")
    monkeypatch.setattr(precision, "has_amx", lambda: amx)
    monkeypatch.setattr(precision, "has_avx512_bf16", lambda: avx512_bf16)
    assert bfloat16_unit() == unit
    assert choose_bfloat16(None, cpu) == (unit is not None)
    assert choose_bfloat16(True, cpu) and not choose_bfloat16(False, cpu)


def test_the_log_says_what_multiplies(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    model_of(trained(MLPConfig(**MLP), FLAT), bfloat16=False)
    assert caplog.messages == []
    monkeypatch.setattr(local, "bfloat16_unit", lambda: None)
    model = model_of(trained(MLPConfig(**MLP), FLAT), bfloat16=True)
    assert isinstance(model._evaluator, ModuleEvaluator)
    assert "neither AMX nor AVX512_BF16" in caplog.messages.pop()
    monkeypatch.undo()
    caplog.set_level(logging.INFO)
    unit = bfloat16_unit()
    if unit is not None:
        model_of(trained(MLPConfig(**MLP), FLAT), bfloat16=True)
        assert caplog.messages.pop() == f"search.bfloat16: networks run compiled, on {unit.upper()}"
        grouped = trained(ResNetConfig(**RESNET, norm="group"), TURNS)
        assert isinstance(model_of(grouped, bfloat16=True)._evaluator, ModuleEvaluator)
        assert "this network cannot be compiled" in caplog.messages.pop()


CHECK = """
import pytest
from muzero.inference.functions import functions
from muzero.inference.layers import Precision
from muzero.inference.precision import bfloat16_unit
assert bfloat16_unit() is None
for unit in ("amx", "avx512_bf16"):
    with pytest.raises(RuntimeError, match="this processor has no"):
        functions(unit)
with pytest.raises(RuntimeError, match="search.bfloat16=true"):
    Precision.of(True)
"""


@pytest.mark.parametrize("name", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"])
def test_a_processor_that_numba_is_told_to_compile_for_has_no_unit(name):
    given = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2"}[name]
    subprocess.run([sys.executable, "-c", CHECK], env={**os.environ, name: given}, check=True)


@needs_unit
def test_compiled_code_is_kept_for_processors_with_the_same_features():
    """Numba's cache finds it by the processor's name and features: another one compiles anew, or is refused."""
    unit = bfloat16_unit()
    run_layer = functions(unit).run_layer
    function = next(each for each in compiled._COMPILED if each.address == run_layer)
    codegen = cpu_target.target_context.codegen()
    assert codegen.magic_tuple() in function._cache._index_key(function._sig, codegen)
    features = codegen.magic_tuple()[2].split(",")
    assert {"amx": "+amx-bf16", "avx512_bf16": "+avx512bf16"}[unit] in features
