"""From a config to the objects of a run: the one place that knows all sections."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from mcts import Search, SearchSettings
from mcts.pipeline import SearchPair, split_rows
from muzero.config.schema import Config, SearchConfig
from muzero.envs.base import EnvSpec
from muzero.envs.registry import make_env, make_rules, make_spec
from muzero.evaluation.agent import Agent
from muzero.inference.local import LocalModel
from muzero.inference.pair import ModelPair
from muzero.inference.precision import choose_bfloat16
from muzero.inference.rules import NetworkRulesModel, RulesModel, SearchModel
from muzero.inference.stochastic import StochasticLocalModel
from muzero.learner.learner import Learner
from muzero.network.base import MuZeroNetwork, NetworkSpec
from muzero.network.factory import make_network
from muzero.network.stochastic import StochasticNetwork
from muzero.replay.augment import SymmetryAugmenter
from muzero.replay.buffer import ReplayBuffer
from muzero.replay.segments import head_length, tail_length
from muzero.selfplay import SelfPlay
from reanalyze import Refresher


class Role(IntEnum):
    """Branches of a run's seed; a role's number never changes, so adding one leaves the others' randomness alone."""

    NETWORK = 0
    SELFPLAY = 1
    REPLAY = 2
    EVALUATION = 3
    AUGMENTATION = 4
    WORKER = 5
    SHARD = 6
    GATEKEEPING = 7


def role_seed(config: Config, role: Role, *branch: int) -> np.random.SeedSequence:
    """The seed of a role: all are branches of the run's one seed. A fleet's roles branch on, by index and incarnation."""
    return np.random.SeedSequence(config.seed, spawn_key=(int(role), *branch))


def configure_torch(num_threads: int) -> None:
    """Set torch up in this process, before it computes: CPU threads, and denormal numbers as zero.

    Weight decay and Adam's averages drive the weights of dead units into the denormal range, where an x86 core takes
    about a hundred cycles per operation; a learner step then takes ten times as long. Threads started later inherit
    the mode.
    """
    torch.set_num_threads(num_threads)
    torch.set_flush_denormal(True)


def choose_device(name: str) -> torch.device:
    """The device that `runtime.device` asks for.

    Raises:
        ValueError: If CUDA is asked for where there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"runtime.device={name} needs CUDA, which torch {torch.__version__} does not find on this machine; "
            "use runtime.device=cpu, or auto to take what is there"
        )
    return device


def network_spec(config: Config, spec: EnvSpec) -> NetworkSpec:
    """What the network has to know of the environment.

    Raises:
        ValueError: If the game needs a turn head and the config refuses it.
    """
    needs_turn_head = spec.turn_order == "repeated"
    if needs_turn_head and config.network.turn_head is False:
        raise ValueError(
            f"network.turn_head=false cannot play {spec.name}: a player may move twice in a row there, so the "
            "network has to predict who moves next; set it to null or true"
        )
    return NetworkSpec(
        observation_shape=spec.observation_shape,
        observation_scale=1.0 / 255.0 if spec.frame_dtype == np.uint8 else 1.0,
        num_actions=spec.num_actions,
        action_factors=spec.action_factors,
        chance_channels=spec.newest_chance_channels,
        num_players=spec.num_players,
        has_turn_head=needs_turn_head or bool(config.network.turn_head),
        return_bounds=spec.return_bounds,
    )


def search_settings(
    search: SearchConfig,
    num_simulations: int | None,
    *,
    num_chance_codes: int = 0,
    forced_playouts: float = 0.0,
    stop_early: bool = False,
) -> SearchSettings:
    """The search's own record, with a role's number of simulations if it sets one, and chance nodes if the network has codes.

    Forced playouts explore and early stops leave policies unfinished: the one is for self-play, the other for evaluation.
    """
    return SearchSettings(
        kind=search.kind,
        num_simulations=search.num_simulations if num_simulations is None else num_simulations,
        max_depth=search.max_depth,
        num_chance_outcomes=num_chance_codes,
        normalization=search.normalization,
        value_min=search.value_min,
        value_max=search.value_max,
        min_value_range=search.min_value_range,
        pb_c_init=search.pb_c_init,
        pb_c_base=search.pb_c_base,
        first_play_urgency=search.first_play_urgency,
        root_dirichlet_alpha=search.root_dirichlet_alpha,
        root_exploration_fraction=search.root_exploration_fraction,
        max_num_considered_actions=search.max_num_considered_actions,
        gumbel_scale=search.gumbel_scale,
        value_scale=search.value_scale,
        maxvisit_init=search.maxvisit_init,
        use_mixed_value=search.use_mixed_value,
        forced_playouts=forced_playouts,
        stop_early=stop_early,
    )


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes the roles of one run.

    Example:
        >>> builder = Builder.of(config)
        >>> learner, replay = builder.learner(), builder.replay()
    """

    config: Config
    spec: EnvSpec
    network_spec: NetworkSpec
    device: torch.device

    @classmethod
    def of(cls, config: Config) -> "Builder":
        """A builder for `config`; looks at the environment once.

        Raises ValueError if the environment cannot be had, or not with the config's network or search.
        """
        spec = make_spec(config.env)
        if config.search.dynamics == "rules":
            make_rules(config.env)  # tells at once why not
        return cls(config, spec, network_spec(config, spec), choose_device(config.runtime.device))

    def network(self) -> MuZeroNetwork:
        """The untrained network of this run's seed."""
        seed = int(role_seed(self.config, Role.NETWORK).generate_state(1)[0])
        return make_network(self.config.network, self.network_spec, seed)

    def learner(self) -> Learner:
        """The learner with an untrained network."""
        config, bfloat16 = self.config.learner, self.config.learner.bfloat16
        if bfloat16 is None:
            # Fully connected networks have a backward pass of their own on the CPU, which is faster in float32.
            pays = self.device.type != "cpu" or self.config.network.kind == "resnet"
            bfloat16 = pays and choose_bfloat16(None, self.device)
        return Learner(
            self.network(),
            replace(config, bfloat16=bfloat16),
            device=self.device,
            uses_target_network=self.config.targets.bootstrap == "target_network",
        )

    def replay(
        self, *, insert_quantum: int | None = None, seed: np.random.SeedSequence | None = None
    ) -> ReplayBuffer:
        """An empty replay buffer.

        Args:
            insert_quantum: Most positions inserted at once; None takes a move of all games.
            seed: None takes the run's.
        """
        config = self.config
        return ReplayBuffer(
            self.spec,
            config.replay,
            config.targets,
            num_unroll_steps=config.learner.num_unroll_steps,
            with_next_observation=config.learner.consistency_loss_weight > 0.0
            or config.network.num_chance_codes > 0,
            batch_size=config.learner.batch_size,
            insert_quantum=insert_quantum or config.selfplay.num_games,
            generator=np.random.default_rng(seed or role_seed(config, Role.REPLAY)),
        )

    def augmenter(self, *branch: int) -> SymmetryAugmenter | None:
        """What turns samples by symmetries of the board; None if it is off or the environment declares none.

        Args:
            branch: Of the role's seed; none is the run's own.
        """
        if not self.config.replay.use_symmetries or self.spec.symmetries is None:
            return None
        seed = role_seed(self.config, Role.AUGMENTATION, *branch)
        return SymmetryAugmenter(self.spec.symmetries, np.random.default_rng(seed))

    def selfplay(
        self,
        *,
        num_games: int | None = None,
        model: SearchModel | None = None,
        seed: np.random.SeedSequence | None = None,
    ) -> SelfPlay:
        """Self-play with the untrained network.

        Args:
            num_games: None takes the config's.
            model: Is searched with in its place, and has room for the games.
            seed: None takes the run's.
        """
        config = self.config
        settings = self._search_settings(
            config.selfplay.num_simulations, forced_playouts=config.search.forced_playouts
        )
        num_games = num_games or config.selfplay.num_games
        searcher: tuple[SearchModel | ModelPair, Search | SearchPair]
        if model is None:
            searcher = self.searcher(num_games, settings)
        else:
            searcher = model, self.search(num_games, settings)
        return SelfPlay(
            make_env(config.env, num_games),
            *searcher,
            settings,
            config.selfplay,
            head=head_length(self.spec.num_stacked_frames),
            tail=tail_length(config.learner.num_unroll_steps, config.targets.td_steps),
            root_value=config.search.root_value,
            seed=seed or role_seed(config, Role.SELFPLAY),
        )

    def searcher(
        self, num_games: int, settings: SearchSettings
    ) -> tuple[SearchModel | ModelPair, Search | SearchPair]:
        """Model and search of self-play: pairs of them if it is pipelined."""
        if not self.config.search.pipelined:
            return self.model(num_games, settings.num_simulations), self.search(num_games, settings)
        first = split_rows(num_games)
        halves = (
            self.network_model(number, settings.num_simulations + 1)
            for number in (first, num_games - first)
        )
        search = SearchPair(
            settings,
            batch_size=num_games,
            num_actions=self.spec.num_actions,
            num_threads=self.config.search.num_threads,
        )
        return ModelPair(*halves), search

    def refresher(self, model: SearchModel | None = None) -> Refresher | None:
        """Reanalyze's searches, with the untrained network; None if reanalyze is off.

        Args:
            model: Is searched with in its place, and has room for a batch.
        """
        config = self.config.reanalyze
        if config.fresh_fraction <= 0.0:
            return None
        settings = self._search_settings(config.num_simulations)
        model = model or self.model(config.batch_size, settings.num_simulations)
        if isinstance(model, RulesModel):
            raise ValueError(
                f"reanalyze.fresh_fraction={config.fresh_fraction:g} cannot be had with search.dynamics=rules: replay holds "
                "observations, no states"
            )
        return Refresher(
            model,
            self.search(config.batch_size, settings),
            root_value=self.config.search.root_value,
        )

    def agent(self, batch_size: int, num_simulations: int | None = None) -> Agent:
        """An agent for evaluation and play, with the untrained network; its model takes weights by `load`.

        Args:
            num_simulations: None takes `evaluation.num_simulations`, or else the search's; 0 plays by the network alone.
        """
        if num_simulations is None:
            num_simulations = self.config.evaluation.num_simulations
        settings = None
        if num_simulations != 0:
            settings = self._search_settings(
                num_simulations, stop_early=self.config.evaluation.stop_early
            )
        return Agent(
            self.model(batch_size, 0 if settings is None else settings.num_simulations),
            settings,
            num_actions=self.spec.num_actions,
            batch_size=batch_size,
            num_threads=self.config.search.num_threads,
        )

    def model(self, batch_size: int, num_simulations: int) -> SearchModel:
        """The network as the search sees it, with room for `batch_size` trees."""
        plays_rules = self.config.search.dynamics == "rules" and num_simulations > 0
        network = self.network_model(batch_size, 1 if plays_rules else num_simulations + 1)
        if not plays_rules:
            return network
        rules = make_rules(self.config.env)
        return NetworkRulesModel(rules, network, num_nodes=num_simulations + 1)

    def network_model(self, batch_size: int, num_nodes: int) -> LocalModel:
        """The network with its own dynamics."""
        search, network = self.config.search, self.network()
        options: dict[str, Any] = {
            "batch_size": batch_size,
            "num_nodes": num_nodes,
            "discount": self.config.targets.discount,
            "device": self.device,
            "bfloat16": choose_bfloat16(search.bfloat16, self.device),
            "cuda_graph": search.cuda_graph,
            "num_threads": search.num_threads,
        }
        if isinstance(network, StochasticNetwork):
            return StochasticLocalModel(network, **options)
        return LocalModel(network, **options)

    def _search_settings(self, num_simulations: int | None, **options: Any) -> SearchSettings:
        """`search_settings` of this run's search and network."""
        codes = self.config.network.num_chance_codes
        return search_settings(
            self.config.search, num_simulations, num_chance_codes=codes, **options
        )

    def search(self, batch_size: int, settings: SearchSettings) -> Search:
        """A search with room for `batch_size` trees."""
        return Search(
            settings,
            batch_size=batch_size,
            num_actions=self.spec.num_actions,
            num_threads=self.config.search.num_threads,
        )
