"""Hidden states follow the nodes of kept trees, and can be saved."""

import numpy as np
import pytest

from mcts import Search, SearchSettings, Selection, run
from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.inference import LocalModel
from tests.inference.test_local import BOARD, CASES, MLP, RESNET, model_of, observations, trained

KINDS = [(MLPConfig(**MLP), BOARD, False), (ResNetConfig(**RESNET), BOARD, False)]
KINDS += [(config, spec, True) for config, spec, _ in KINDS]


def grown(config, spec, bfloat16: bool) -> LocalModel:
    """Six rows with the nodes 0 to 4, each below the one before."""
    model = model_of(trained(config, spec), bfloat16=bfloat16)
    model.roots(observations(spec, 6))
    for node in range(1, 5):
        model.recurrent(step(np.arange(6), np.full(6, node - 1), node))
    return model


def step(rows, parents, node: int) -> Selection:
    rows, parents = np.asarray(rows, np.int32), np.asarray(parents, np.int32)
    return Selection(rows, parents, (rows + node) % 3, np.full(len(rows), node, np.int32))


@pytest.mark.parametrize(("config", "spec", "bfloat16"), KINDS)
def test_a_moved_node_answers_as_it_did(config, spec, bfloat16):
    model = grown(config, spec, bfloat16)
    source = np.full((6, 5), -1, np.int32)
    num_nodes = np.array([3, 0, 1, 2, 4, 5], np.int32)
    kept = {0: [2, 3, 4], 2: [4], 3: [1, 3], 4: [1, 2, 3, 4], 5: [0, 1, 2, 3, 4]}
    for row, nodes in kept.items():
        source[row, : len(nodes)] = nodes
    last = np.array([source[row, len(nodes) - 1] for row, nodes in kept.items()])
    rows = np.array(list(kept))
    # To an existing node, so that the answers are all that the questions change.
    before = model.recurrent(step(rows, last, 4)).value.copy()
    fresh = grown(config, spec, bfloat16)
    fresh.move_nodes(source, num_nodes)
    after = fresh.recurrent(step(rows, num_nodes[rows] - 1, 4)).value
    np.testing.assert_array_equal(after, before)
    unmoved = grown(config, spec, bfloat16).recurrent(step(rows, num_nodes[rows] - 1, 4)).value
    assert (unmoved != before)[:-1].all() and unmoved[-1] == before[-1]


@pytest.mark.parametrize(("config", "spec", "bfloat16"), KINDS)
def test_saved_hidden_states_come_back_bit_for_bit(config, spec, bfloat16):
    model = grown(config, spec, bfloat16)
    num_nodes = np.array([3, 1, 5, 2, 4, 5], np.int32)
    saved = model.latents(num_nodes)
    assert len(saved) == num_nodes.sum() and saved.dtype in (np.float32, np.int16)
    other = model_of(trained(config, spec), bfloat16=bfloat16)
    other.restore_latents(num_nodes, saved)
    np.testing.assert_array_equal(other.latents(num_nodes), saved)
    selection = step(np.arange(6), num_nodes - 1, 4)
    ours, theirs = model.recurrent(selection), other.recurrent(selection)
    np.testing.assert_array_equal(ours.value, theirs.value)
    np.testing.assert_array_equal(ours.prior_logits, theirs.prior_logits)


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_rows_that_still_search_may_be_any(config, spec):
    """A search whose rows end one after the other asks for fewer and fewer of them."""
    network = trained(config, spec)
    whole, ragged = model_of(network), model_of(network)
    observation = observations(spec, 6)
    for model in (whole, ragged):
        model.roots(observation)
    rows = np.arange(6)
    for node in range(1, 5):
        rows = rows[rows != (4, 1, 5, 0)[node - 1]]
        expected = whole.recurrent(step(np.arange(6), np.full(6, node - 1), node))
        output = ragged.recurrent(step(rows, np.full(len(rows), node - 1), node))
        for name in ("reward", "discount", "prior_logits", "value"):
            ours, theirs = getattr(output, name), getattr(expected, name)[rows]
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
@pytest.mark.parametrize(("config", "spec", "bfloat16"), KINDS)
def test_a_chain_of_searches_carries_every_latent_along(config, spec, bfloat16, kind):
    network = trained(config, spec)
    model = LocalModel(network, batch_size=6, num_nodes=21, discount=0.9, bfloat16=bfloat16)
    settings = SearchSettings(kind=kind, num_simulations=20)
    search = Search(settings, batch_size=6, num_actions=spec.num_actions)
    rng = np.random.default_rng(0)
    everything = np.full(6, 21)
    num_kept = 0
    for move in range(5):
        legal = rng.random((6, spec.num_actions)) < 0.6
        legal[:, move] = True
        root = model.roots(observations(spec, 6, seed=move))
        output = run(search, model, root, legal, kept=move > 0)
        actions = output.best_action.copy()
        actions[move] = -1
        before = model.latents(everything).reshape(6, 21, -1)
        kept = search.keep_subtrees(actions)
        model.move_nodes(kept.source, kept.num_nodes)
        after = model.latents(everything).reshape(6, 21, -1)
        for row, count in enumerate(kept.num_nodes):
            np.testing.assert_array_equal(after[row, :count], before[row, kept.source[row, :count]])
            np.testing.assert_array_equal(after[row, count:], before[row, count:])
        num_kept += (kept.source > np.arange(21)).sum()
    assert num_kept > 50
