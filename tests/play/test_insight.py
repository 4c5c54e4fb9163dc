"""What the agent thought: lines, drift, trees and blunders, against the network itself and against the rules."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from muzero.play.insight import compare_lines, losses, mark_of, root_moves, tree_children
from muzero.play.refusal import Refusal
from muzero.play.view import view
from tests.play.games import HEX, TIC_TAC_TOE, make_session


@pytest.fixture(scope="module")
def session():
    session = make_session(*TIC_TAC_TOE, side="both", num_simulations=40)
    session.new_game(session.version, [4, 0, 1, 7, 2])
    for ply in range(6):
        session.analyse(session.version, ply)
    return session


def test_the_played_line_is_the_network_unrolled_without_looking(session):
    """Against the torch module itself, called by hand."""
    told = compare_lines(session, session.version, 1)
    network = session.analyst.builder.network().eval()
    player = session.analyst._player
    observation = torch.as_tensor(player.observations([session.positions[1].state]))
    sign = 1.0
    with torch.no_grad():
        latent = network.initial_inference(observation.float()).latent
        for stage in told["played"]:
            output = network.recurrent_inference(latent, torch.tensor([stage["action"]]))
            latent = output.latent
            value = float(network.value_support.decode(output.value_logits)[0])
            sign = -sign
            assert stage["network_value"] == pytest.approx(sign * value, abs=1e-4)
    assert [stage["action"] for stage in told["played"]] == [0, 1, 7, 2]


def test_drift_is_the_difference_to_the_networks_value_of_the_true_position(session):
    told = compare_lines(session, session.version, 0)
    for depth, stage in enumerate(told["played"], 1):
        position = session.positions[depth]
        sign = 1.0 if position.to_play == 0 else -1.0
        assert stage["real_value"] == pytest.approx(sign * position.network_value, abs=1e-5)
        assert stage["drift"] == pytest.approx(stage["network_value"] - stage["real_value"])
        assert stage["real_reward"] == 0.0
    assert len(told["played"]) == 5


def test_the_end_of_the_game_has_its_reward_and_the_value_zero():
    session = make_session(*TIC_TAC_TOE, side="both", num_simulations=8)
    session.new_game(session.version, [0, 3, 1, 4, 2])
    last = compare_lines(session, session.version, 1)["played"][-1]
    assert (last["real_value"], last["real_reward"]) == (0.0, -1.0)  # seen by the one who loses


def test_with_the_rules_nothing_drifts():
    """Where the model plays the true rules, it sees what is there: an oracle for signs and places."""
    session = make_session(*HEX, "search.dynamics=rules", "reanalyze.fresh_fraction=0", side="both")
    session.new_game(session.version, [0, 1, 4, 2, 8, 3])
    for ply in (0, 1, 2):
        session.analyse(session.version, ply)
        told = compare_lines(session, session.version, ply)
        assert len(told["played"]) == 6 - ply
        for stage in told["played"] + told["imagined"]:
            assert stage["drift"] == pytest.approx(0.0, abs=1e-5)
            assert stage["real_reward"] == stage["reward"]
        assert {stage["status"] for stage in told["imagined"]} <= {"legal", "over"}


def test_an_imagined_move_that_the_rules_do_not_have_is_said_to_be_one():
    """Untrained dynamics know no occupied cells, and near the end of a game they soon meet one."""
    session = make_session(*TIC_TAC_TOE, side="both", num_simulations=60)
    session.new_game(session.version, [4, 0, 1, 7, 2, 6])
    session.analyse(session.version)
    found = set()
    for move in root_moves(session, session.position):
        state = session.position.state
        for step in move.get("line", []):
            is_legal = (
                state is not None
                and not state.is_terminal()
                and step["action"] in state.legal_actions()
            )
            assert (step["status"] == "legal") == is_legal
            assert step["name"] == (
                state.action_to_string(step["action"]) if is_legal else f"#{step['action']}"
            )
            if state is None:
                expected = "unknown"
            elif state.is_terminal():
                expected = "over"
            else:
                expected = "legal" if is_legal else "impossible"
                state = state.child(step["action"]) if is_legal else None
            assert step["status"] == expected
            found.add(expected)
    assert found >= {"legal", "impossible"}


def test_the_tree_is_opened_node_by_node_and_adds_up(session):
    analysis = session.positions[1].analysis
    top = tree_children(session, 1, 0)["children"]
    assert sum(child["visits"] for child in top) == 40
    for child in top:
        assert child["visits"] == analysis.visits[child["action"]]
        assert child["q"] == analysis.qvalues[child["action"]]
        assert child["prior"] == analysis.prior[child["action"]]
    seen = 1
    pending = [child["node"] for child in top]
    while pending:
        seen += 1
        below = tree_children(session, 1, pending.pop())["children"]
        pending += [child["node"] for child in below]
    assert seen == (analysis.tree.visits > 0).sum()


@pytest.mark.parametrize(("ply", "node"), [(1, -1), (1, 10**6), (-1, 0), (7, 0)])
def test_nodes_and_positions_that_are_not_there_are_refused(session, ply, node):
    with pytest.raises(Refusal, match=r"no such node|has 0 to"):
        tree_children(session, ply, node)


def test_root_moves_are_all_legal_ones_with_the_searchs_numbers(session):
    position = session.positions[3]
    moves = root_moves(session, position)
    assert {move["action"] for move in moves} == set(position.state.legal_actions())
    assert moves[0]["best"] and moves[0]["action"] == position.analysis.best_action
    assert sum(move["visits"] for move in moves) == 40
    assert sum(move["prior"] for move in moves) == pytest.approx(1.0, abs=1e-5)
    first = moves[0]["line"][0]
    assert first["visits"] == moves[0]["visits"]


def test_a_line_of_alternating_players_flips_values_once_a_move(session):
    position = session.positions[0]
    analysis = position.analysis
    line = root_moves(session, position)[0]["line"]
    for depth, step in enumerate(line, 1):
        assert step["value"] == (-1) ** depth * analysis.tree.value[step["node"]]
        assert step["reward"] == (-1) ** (depth - 1) * analysis.tree.reward[step["node"]]


def test_losses_are_what_a_move_gave_away():
    session = make_session(*TIC_TAC_TOE, side="both", num_simulations=4)
    session.new_game(session.version, [0, 3, 1, 4, 2])
    for ply in range(5):
        analysis = session.analyse(session.version, ply)
        session.positions[ply].analysis = replace(
            analysis, best_value=(0.0, 0.1, 0.8, -0.9, 1.0)[ply]
        )
    gamma = session.analyst.discount
    expected = [
        0.0 - gamma * -0.1,
        0.1 - gamma * -0.8,
        0.8 - gamma * 0.9,
        -0.9 - gamma * -1.0,
        1.0 - 1.0,  # wins: the reward is all
    ]
    assert losses(session) == pytest.approx(expected)
    marks = [mark_of(session, loss) for loss in losses(session)]
    assert marks == ["", "blunder", "", "", ""]
    session.positions[2].analysis = None
    assert [loss is None for loss in losses(session)] == [False, True, True, False, False]
    assert [move["mark"] for move in view(session)["moves"]] == [""] * 5


def test_the_view_tells_values_for_the_first_player(session):
    values = view(session)["values"]
    for position, told in zip(session.positions, values, strict=True):
        sign = 1.0 if position.to_play == 0 else -1.0
        assert told["value"] == pytest.approx(sign * position.analysis.best_value)
        assert told["source"] == "search"
    assert np.isfinite([told["value"] for told in values]).all()
