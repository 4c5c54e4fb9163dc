"""Searches with chance nodes over table models, and over models whose answers are written down."""

import numpy as np

from mcts import ModelOutput, RootOutput, Search, SearchSettings, run
from mcts.chance import AfterstateOutput, AlternatingModel


def search_table(
    search_settings, model, states, legal=None, noise=None, dtype=np.float64, **options
):
    """Search the table's `states`; the search comes back with its output."""
    if legal is None:
        legal = np.ones((len(states), model.num_actions), bool)
    options = {"batch_size": len(states), **options}
    search = Search(search_settings, num_actions=model.num_actions, dtype=dtype, **options)
    root = model.root(states, search_settings.num_simulations + 1)
    return search, run(search, AlternatingModel(model, search), root, legal, noise)


class Fixed:
    """Every state and every afterstate alike; outcome `c` pays `rewards[c]` and has `discounts[c]`."""

    def __init__(self, sigma, rewards, discounts, value=0.0, afterstate_value=0.0, num_actions=1):
        with np.errstate(divide="ignore"):
            self.chance_logits = np.log(np.asarray(sigma, float))
        self.rewards = np.asarray(rewards, float)
        self.discounts = np.asarray(discounts, float)
        self.value = value
        self.afterstate_value = afterstate_value
        self.num_actions = num_actions

    def afterstates(self, selection):
        size = len(selection.row)
        return AfterstateOutput(
            np.tile(self.chance_logits, (size, 1)), np.full(size, self.afterstate_value)
        )

    def states(self, selection):
        size = len(selection.row)
        return ModelOutput(
            reward=self.rewards[selection.action],
            discount=self.discounts[selection.action],
            prior_logits=np.zeros((size, self.num_actions)),
            value=np.full(size, self.value),
        )

    def search(self, **options):
        search_settings = SearchSettings(num_chance_outcomes=len(self.rewards), **options)
        search = Search(
            search_settings, batch_size=1, num_actions=self.num_actions, dtype=np.float64
        )
        root = RootOutput(np.zeros((1, self.num_actions)), np.array([self.value]))
        legal = np.ones((1, self.num_actions), bool)
        return search, run(search, AlternatingModel(self, search), root, legal)
