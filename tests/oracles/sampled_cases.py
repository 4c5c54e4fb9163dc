"""Draws of one node and whole searches, for the tests of sampled actions."""

import numpy as np

from mcts import ModelOutput, Search, draw_noise, run
from mcts.counter_random import draw_keys
from mcts.sampled import SampledModel
from mcts.sampling import Samples
from mcts.threads import RowThreads


def draw(
    sampler, parameters, keys, legal=None, *, node=0, rows=None, threads=None, dtype=np.float64
):
    """Samples of one node of every row (or of `rows` among as many keys), and the logits of the slots."""
    rows = np.arange(len(parameters), dtype=np.int32) if rows is None else rows
    samples = Samples(sampler, batch_size=len(keys), num_nodes=node + 1, dtype=dtype)
    samples.keys = keys
    samples.actions.fill(-99)  # whatever an earlier search has left
    samples.log_weights.fill(7.0)
    logits = np.full((len(rows), sampler.num_samples), 7.0, dtype)
    sampler.draw(
        threads or RowThreads(1),
        samples,
        rows,
        np.full(len(rows), node, np.int32),
        np.ascontiguousarray(parameters, dtype),
        legal,
        logits,
    )
    return samples.actions[rows, node], samples.log_weights[rows, node], logits


def keys_of(seed, num_rows):
    return draw_keys(np.random.default_rng(seed), num_rows)


def normalised(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def spread(actions, weights, num_actions):
    """`[B, A]`: the weight of every action, over the slots that hold it."""
    table = np.zeros((len(actions), num_actions))
    np.add.at(table, (np.arange(len(actions))[:, None], actions[..., 0]), weights)
    return table


def search_sampled(
    search_settings, model, sampler, root, keys, legal=None, noise_seed=None, *, dtype=np.float64,
    num_threads=1, **options,
):  # fmt: skip
    """A whole search; the model's roots stand already."""
    size = {"batch_size": len(root.value), "dtype": dtype, "num_threads": num_threads}
    size["min_rows_per_thread"] = 2
    num_nodes = search_settings.num_simulations + 1
    sampled = SampledModel(model, sampler, num_nodes=num_nodes, **size)
    search = Search(search_settings, num_actions=sampler.num_samples, **size)
    roots, slots = sampled.roots(root, keys, legal)
    noise = None
    if noise_seed is not None:
        noise = draw_noise(search_settings, slots, np.random.default_rng(noise_seed), dtype)
    return sampled, search, run(search, sampled, roots, slots, noise, **options)


def by_action(sampled, per_slot, num_actions):
    """`[B, A]`: what the slots `[B, K]` say, at the actions they stand for."""
    table = np.zeros((len(per_slot), num_actions), per_slot.dtype)
    np.add.at(
        table,
        (np.arange(len(per_slot))[:, None], sampled.actions[:, 0]),
        np.where(sampled.is_sampled[:, 0], per_slot, 0),
    )
    return table


class Indifferent:
    """Every action leads to the same: reward and value 0, and one policy everywhere."""

    def __init__(self, policy):
        self.policy = policy

    def recurrent(self, selection):
        zeros = np.zeros(len(selection.row))
        return ModelOutput(zeros, zeros + 1, np.tile(self.policy, (len(zeros), 1)), zeros)
