"""Sessions with untrained agents, shared by the tests of play."""

import random
from collections.abc import Mapping

import torch
from torch import Tensor

from muzero.config.compose import compose
from muzero.play.analyst import Analyst
from muzero.play.session import Session
from muzero.runtime.build import Builder


class TwoCheckpoints:
    """The untrained weights as step 0; the same, a little changed, as step 5; step 9 is listed and cannot be loaded."""

    def __init__(self, builder: Builder) -> None:
        first = builder.network().state_dict()
        generator = torch.Generator().manual_seed(0)
        second = {
            name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
            if tensor.is_floating_point()
            else tensor
            for name, tensor in first.items()
        }
        self._weights = {0: first, 5: second}

    def steps(self) -> list[int]:
        return [0, 5, 9]

    def load(self, step: int) -> tuple[Mapping[str, Tensor], int]:
        if step not in self._weights:
            raise ValueError(f"checkpoint {step} is damaged")
        return self._weights[step], step


def make_builder(*arguments: str) -> Builder:
    return Builder.of(compose(list(arguments)))


def make_session(*arguments: str, side: str = "first", num_simulations: int = 12, **options):
    """A session of the game that hydra's `arguments` name; further options are the analyst's."""
    builder = make_builder(*arguments)
    analyst = Analyst(builder, TwoCheckpoints(builder), **options)
    return Session(
        analyst, builder.config.env, side=side, step=0, num_simulations=num_simulations, seed=3
    )


TIC_TAC_TOE = ("experiment=tictactoe",)
CONNECT_FOUR = ("env=connect_four", "network=mlp")
HEX = ("env=open_spiel", "env.game=hex", "env.parameters.board_size=3", "network=mlp")


def random_game(game, *, seed: int, most: int):
    """(state, action) of a random game, a clone each, chance's moves left out."""
    rng = random.Random(seed)
    state = game.new_initial_state()
    for _ in range(most):
        while state.is_chance_node():
            state.apply_action(state.legal_actions()[0])
        if state.is_terminal():
            return
        action = rng.choice(state.legal_actions())
        yield state.clone(), action
        state.apply_action(action)
