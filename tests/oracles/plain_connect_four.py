"""Connect four, searched naively: exact scores of late positions, with OpenSpiel's rules and no other knowledge."""

import pyspiel


def plain_scores(state: pyspiel.State) -> dict[int, int]:
    """Column -> 22 minus the winner's stones at the end, negative if the opponent wins; by listing every line of play."""
    memory: dict[str, int] = {}
    return {
        action: _score(state.child(action), memory, state.current_player())
        for action in state.legal_actions()
    }


def _score(state: pyspiel.State, memory: dict[str, int], viewer: int) -> int:
    """Score seen by `viewer`, whatever side is to move."""
    key = str(state)
    if key not in memory:
        if state.is_terminal():
            result = state.returns()[0]
            stones = (state.move_number() + 1) // 2
            memory[key] = 0 if result == 0 else int(result) * (22 - stones)
        else:
            player = state.current_player()
            scores = [
                _score(state.child(action), memory, player) for action in state.legal_actions()
            ]
            memory[key] = max(scores) * (1 if player == 0 else -1)
    return memory[key] if viewer == 0 else -memory[key]
