"""The comparison of two precisions: its figures by hand, and what it says of networks."""

import numpy as np
import pytest

from mcts import SearchOutput, SearchSettings
from muzero.inference.calibration import calibrate, compare_outputs
from tests.inference.test_local import CASES, model_of, observations, trained


def output_of(visits, policy, value, best_action) -> SearchOutput:
    visits = np.array(visits, np.int32)
    return SearchOutput(
        visits=visits,
        policy=np.array(policy, np.float32),
        value=np.array(value, np.float32),
        qvalues=np.zeros(visits.shape, np.float32),
        best_action=np.array(best_action, np.int32),
        best_value=np.zeros(len(visits), np.float32),
        depth=np.zeros(len(visits), np.float32),
        num_simulations=visits.sum(axis=1),
    )


def test_figures_are_means_over_the_roots_that_have_a_choice():
    legal = np.array([[True, True, True], [True, True, False], [False, True, False]])
    first = output_of(
        [[4, 4, 0], [2, 6, 0], [0, 8, 0]],
        [[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.0, 1.0, 0.0]],
        [0.5, -0.5, 9.0],
        [1, 1, 1],
    )
    second = output_of(
        [[2, 4, 2], [4, 4, 0], [0, 8, 0]],
        [[0.5, 0.25, 0.25], [0.25, 0.75, 0.0], [0.0, 1.0, 0.0]],
        [0.75, -0.5, 0.0],
        [1, 0, 1],
    )
    found = compare_outputs(first, second, legal)
    assert found.roots == 2
    assert found.same_most_visited == 0.0  # 0 against 1, and 1 against 0, the first of two equals
    assert found.same_choice == 0.5
    assert found.visit_variation == pytest.approx((0.25 + 0.25) / 2)
    assert found.policy_variation == pytest.approx((0.25 + 0.0) / 2)
    assert found.value_difference == pytest.approx(0.125)
    with pytest.raises(ValueError, match="more than one legal action"):
        compare_outputs(first, second, legal[[2, 2, 2]])


@pytest.mark.parametrize(("config", "spec"), [CASES[0], CASES[3]])
def test_bfloat16_changes_little_and_another_network_much(config, spec):
    num_rows, settings = 200, SearchSettings(kind="puct", num_simulations=16)
    observation = observations(spec, num_rows)
    legal = np.ones((num_rows, spec.num_actions), np.bool_)

    def model(seed: int, bfloat16: bool):
        network = trained(config, spec, seed)
        return model_of(network, num_rows, num_nodes=17, bfloat16=bfloat16)

    alike = calibrate(model(0, False), model(0, False), settings, observation, legal)
    assert (alike.same_most_visited, alike.visit_variation) == (1.0, 0.0)
    rough = calibrate(model(0, False), model(0, True), settings, observation, legal)
    other = calibrate(model(0, False), model(7, False), settings, observation, legal)
    assert rough.same_most_visited > 0.9 and 0.0 < rough.visit_variation < 0.05
    assert other.same_most_visited < 0.9 and other.visit_variation > 0.2
