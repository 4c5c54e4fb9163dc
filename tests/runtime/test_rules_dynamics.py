"""`search.dynamics=rules`: self-play, evaluation and agents that search with the game's own rules."""

import json
from pathlib import Path

import numpy as np
import pyspiel
import pytest

from muzero import evaluate as evaluate_command
from muzero import inspect_run as inspect_command
from muzero.config.compose import compose
from muzero.config.store import save_config
from muzero.evaluation.exact import solve
from muzero.inference import LocalModel, NetworkRulesModel
from muzero.runtime.build import Builder
from muzero.runtime.evaluation import RunEvaluator
from muzero.runtime.local import LocalRuntime
from muzero.runtime.memory import memory_need
from muzero.runtime.players import agent_player, load_agent

BOARD = ("experiment=tictactoe", "debug=smoke", "runtime.overlap=false", "runtime.device=cpu")
RULES = "search.dynamics=rules"


def builder_of(*overrides):
    recipe = [part for part in overrides if part.startswith(("env=", "network="))]
    rest = [part for part in overrides if part not in recipe]
    return Builder.of(compose([BOARD[0], *recipe, *BOARD[1:], *rest]))


@pytest.mark.parametrize("overrides", [(), ("env.num_stacked_frames=2",)], ids=["one", "stacked"])
@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_selfplay_searches_the_games_that_it_plays(kind, overrides):
    selfplay = builder_of(
        RULES,
        f"search.kind={kind}",
        "search.num_simulations=30",
        "selfplay.num_games=5",
        *overrides,
    ).selfplay()
    assert isinstance(selfplay.model, NetworkRulesModel)
    depths = set()
    for _ in range(12):
        searched = np.flatnonzero(~selfplay._openings.running)
        positions = [state.clone() for state in selfplay.env.states(searched.tolist())]
        selfplay.play(0)
        if not len(searched):
            continue
        tree = selfplay.search.tree
        assert tree.num_rows == len(positions)
        for row, root in enumerate(positions):
            at = {0: root}
            for node in np.flatnonzero(tree.parents[row] >= 0).tolist():
                before, action = at[int(tree.parents[row, node])], int(tree.actions[row, node])
                at[node] = None
                if before is None:
                    continue
                assert action in before.legal_actions()
                child, reward = before.child(action), tree.rewards[row, node]
                assert reward == child.player_return(before.current_player())
                if not child.is_terminal():
                    at[node] = child
                    depths.add(len(child.history()) - len(root.history()))
    assert max(depths) >= 3


def wins_now(state):
    children = {action: state.child(action) for action in state.legal_actions()}
    mover = state.current_player()
    return [action for action, child in children.items() if child.player_return(mover) > 0]


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_an_untrained_network_takes_every_win(kind):
    builder = builder_of(RULES, f"search.kind={kind}", "search.max_num_considered_actions=9")
    player = agent_player(builder, builder.agent(64, 100))
    states = list(solve(pyspiel.load_game("tic_tac_toe")).positions)[::7]
    states = [state for state in states if wins_now(state)]
    assert len(states) > 300
    for state, action in zip(states, player.select(states, [0] * len(states)), strict=True):
        assert action in wins_now(state)


def test_the_rules_bring_an_untrained_network_near_perfect_play():
    reports = {}
    for dynamics in ("rules", "learned"):
        builder = builder_of(
            f"search.dynamics={dynamics}",
            "evaluation.num_simulations=100",
            "evaluation.games=2",
            "evaluation.exhaustive=true",
        )
        (reports[dynamics],) = RunEvaluator(builder).evaluate(builder.network().state_dict(), 0)
    assert reports["rules"]["optimal_move_rate"] > 0.9
    assert reports["learned"]["optimal_move_rate"] < 0.75
    assert reports["rules"]["losing_lines"] < reports["learned"]["losing_lines"] / 5


def test_without_simulations_the_rules_are_not_asked_for():
    agents = [
        builder_of(f"search.dynamics={dynamics}").agent(4, 0) for dynamics in ("rules", "learned")
    ]
    assert isinstance(agents[0].model, LocalModel)
    rng = np.random.default_rng(0)
    observation, legal = rng.random((9, 4, 3, 3)) < 0.5, np.ones((9, 9), bool)
    assert np.array_equal(*(agent.act(observation, legal) for agent in agents))


def test_one_player_is_evaluated_through_the_environments_states():
    """Walks along the cliff: one more step than needed costs 1, the cliff costs 100."""
    config = compose(
        [
            "env=open_spiel",
            "debug=smoke",
            "env.game=cliff_walking",
            "+env.parameters.height=2",
            "+env.parameters.width=3",
            "+env.parameters.horizon=8",
            "targets.discount=1.0",
            RULES,
            "evaluation.games=3",
            "evaluation.num_simulations=300",
            "runtime.device=cpu",
        ]
    )
    builder = Builder.of(config)
    (report,) = RunEvaluator(builder).evaluate(builder.network().state_dict(), 0)
    assert report["scores"] == [-4.0] * 3  # up, right, right, down


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A finished run that searched its learned dynamics, with reanalyze."""
    run_dir = tmp_path_factory.mktemp("learned") / "run"
    run_dir.mkdir()
    config = compose(
        [*BOARD, "reanalyze.fresh_fraction=0.5", "logger.progress=none"], run_dir=str(run_dir)
    )
    save_config(config, run_dir)
    LocalRuntime(config, run_dir).train()
    return run_dir


def report_of(capsys, run_dir, *overrides):
    arguments = evaluate_command.EvaluateArguments(
        run=str(run_dir), opponent="perfect", games=20, simulations=100
    )
    evaluate_command.evaluate(arguments, list(overrides))
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_a_network_of_the_learned_way_is_evaluated_with_the_rules(trained, capsys):
    learned = report_of(capsys, trained)
    rules = report_of(capsys, trained, RULES)
    assert rules["games"] == learned["games"] == 20
    assert rules["losses"] < learned["losses"]
    assert rules == report_of(capsys, trained, RULES)


def test_a_run_that_plays_the_rules_trains_and_is_looked_into(tmp_path, capsys):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    config = compose([*BOARD, RULES, "logger.progress=none"], run_dir=str(run_dir))
    save_config(config, run_dir)
    metrics = LocalRuntime(config, run_dir).train()
    assert metrics["evaluation/perfect/loss_rate"] <= 1.0
    agent = load_agent(run_dir, num_simulations=200, device="cpu")
    player = agent_player(Builder.of(config), agent)
    solution = solve(pyspiel.load_game("tic_tac_toe"))
    states = [state for state in solution.positions if len(state.legal_actions()) == 3][:20]
    observation, legal = player.observations(states), player.legal(states)
    with pytest.raises(ValueError, match=r"pass `states`, or set search.dynamics=learned"):
        agent.act(observation, legal)
    actions = agent.act(observation, legal, states)
    for state, action in zip(states, actions.tolist(), strict=True):
        assert action in solution.optimal_actions(state)
    capsys.readouterr()
    arguments = inspect_command.InspectArguments(
        run=str(run_dir), show="tree", moves=[4, 1, 2, 6, 8, 5], simulations=40
    )
    inspect_command.inspect(arguments, [])
    assert capsys.readouterr().out.splitlines()[-1].startswith("principal variation: x(0,0)")


def test_what_does_not_go_with_the_rules_is_refused():
    with pytest.raises(ValueError, match=r"reanalyze.fresh_fraction is 0.5.*dynamics to learned"):
        compose([*BOARD, RULES, "reanalyze.fresh_fraction=0.5"])
    with pytest.raises(ValueError, match=r"env.kind is 'gym'.*set search.dynamics to learned"):
        compose(["experiment=cartpole", RULES])
    with pytest.raises(ValueError, match=r"pig: it has chance events.*dynamics=learned"):
        builder_of("env=open_spiel", "env.game=pig", "env.frame_shape=[303]", RULES)
    builder = builder_of(RULES)
    builder.config.reanalyze.fresh_fraction = 0.5  # behind the back of the checks
    with pytest.raises(ValueError, match=r"search.dynamics=rules: replay holds observations"):
        builder.refresher()


def test_states_take_no_latents():
    learned, rules = (memory_need(builder_of(*part)) for part in ((), (RULES,)))
    assert learned.replay == rules.replay
    assert rules.latents * 5 == learned.latents  # 4 simulations and the root
