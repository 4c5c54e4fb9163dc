"""Layers that share along the choices of actions, against the same written as one table."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from muzero.config.networks import MLPConfig
from muzero.network import NetworkSpec, make_network
from muzero.network.factored import (
    FactoredLinear,
    FactoredRows,
    action_outputs,
    action_rows,
    choices_of,
    init_rows,
    weight_of,
)

FACTORS = (2, 3, 4)


def test_choices_are_the_digits_of_the_number() -> None:
    choices = choices_of(24, FACTORS)
    for action in range(24):
        first, second, third = np.unravel_index(action, FACTORS)
        expected = np.concatenate([np.eye(2)[first], np.eye(3)[second], np.eye(4)[third]])
        assert choices[action].tolist() == expected.tolist()


def test_factors_that_do_not_make_the_actions_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"action_factors=\(2, 3, 4\) make 24 actions, and there are 25"
    ):
        choices_of(25, FACTORS)


def test_without_factors_the_layers_are_torchs_own() -> None:
    assert type(action_rows(5, 3, ())) is torch.nn.Embedding
    assert type(action_outputs(3, 7, 5, ())) is torch.nn.Linear


def test_a_row_is_its_own_and_those_of_its_choices() -> None:
    rows = FactoredRows(24, 5, FACTORS)
    init_rows(rows, 0.5)
    with torch.no_grad():
        rows.own.normal_()
    two, three, four = rows.shared.split(FACTORS)
    for action in range(24):
        first, second, third = np.unravel_index(action, FACTORS)
        expected = rows.own[action] + two[first] + three[second] + four[third]
        torch.testing.assert_close(rows.weight[action], expected)
        torch.testing.assert_close(rows(torch.tensor([action]))[0], expected)


def test_rows_begin_as_loud_as_they_would_without_factors() -> None:
    torch.manual_seed(0)
    rows = FactoredRows(24, 4000, FACTORS)
    init_rows(rows, 0.5)
    assert rows.weight.std().item() == pytest.approx(0.5, rel=0.05)


def test_what_is_learned_of_an_action_is_learned_of_those_that_share_a_choice() -> None:
    layer = FactoredLinear(3, 26, 24, FACTORS)
    x = torch.ones(1, 3)
    before = layer(x)
    layer(x)[0, 0].backward()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += parameter.grad
    change = (layer(x) - before)[0].tolist()
    # The bias and the own row give 1 + 3, each shared choice 3.
    assert change[0] == pytest.approx(4.0 + 9.0)
    assert change[1] == pytest.approx(6.0)  # the last digit differs
    assert change[4 + 1] == pytest.approx(3.0)
    assert change[23] == change[24] == change[25] == pytest.approx(0.0)  # no digit; no action


def test_a_factored_layer_multiplies_by_its_whole_weight() -> None:
    layer = FactoredLinear(3, 26, 24, FACTORS)
    with torch.no_grad():
        layer.shared.normal_()
    x = torch.randn(7, 3)
    torch.testing.assert_close(layer(x), F.linear(x, weight_of(layer), layer.bias))
    assert torch.equal(weight_of(layer)[24:], layer.weight[24:])


@pytest.mark.parametrize("num_chance_codes", [0, 6])
def test_an_untrained_policy_is_uniform_and_the_average_of_weights_is_a_network(
    num_chance_codes: int,
) -> None:
    """Sums of rows are linear in the parameters, so averaged parameters give averaged rows."""
    config = MLPConfig(latent_size=10, hidden_sizes=[16], num_chance_codes=num_chance_codes)
    spec = NetworkSpec(observation_shape=(7,), num_actions=24, action_factors=FACTORS)
    first, second = make_network(config, spec, seed=1), make_network(config, spec, seed=2)
    output = first.initial_inference(torch.randn(3, 7))
    assert not output.policy_logits.any() and not output.value_logits.any()
    mean = {
        name: (tensor + second.state_dict()[name]) / 2
        for name, tensor in first.state_dict().items()
    }
    whole = [network.action.weight.detach() for network in (first, second)]
    first.load_state_dict(mean)
    torch.testing.assert_close(first.action.weight.detach(), sum(whole) / 2)
