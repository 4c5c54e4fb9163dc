"""The rules of an OpenSpiel game as a model: exact steps, all legal moves alike, every position worth 0."""

import numpy as np
import pyspiel

from mcts.base import ModelOutput, RootOutput, Selection


class SimulatorModel:
    """Knows every position of `states` by its frame; an illegal action loses at once."""

    def __init__(self, states, frames):
        self._by_frame = {frames.frame(state).tobytes(): state for state in states}
        self._num_actions = frames.spec.num_actions
        self._nodes: dict[tuple[int, int], pyspiel.State | None] = {}
        self.num_roots = 0

    def roots(self, observation) -> RootOutput:
        self.num_roots += len(observation)
        self._nodes = {
            (row, 0): self._by_frame[np.ascontiguousarray(frame).tobytes()]
            for row, frame in enumerate(observation)
        }
        shape = (len(observation), self._num_actions)
        return RootOutput(np.zeros(shape, np.float32), np.zeros(shape[0], np.float32))

    def recurrent(self, selection: Selection) -> ModelOutput:
        size = len(selection.action)
        logits = np.full((size, self._num_actions), -30.0, np.float32)
        reward, discount = np.zeros(size, np.float32), np.zeros(size, np.float32)
        for place, (row, parent, action, node) in enumerate(zip(*selection, strict=True)):
            state = self._nodes[int(row), int(parent)]
            child = None
            if state is not None and int(action) not in state.legal_actions():
                reward[place] = -1.0
            elif state is not None:
                child = state.child(int(action))
                if child.is_terminal():
                    reward[place] = child.player_return(state.current_player())
                    child = None
                else:
                    discount[place] = -1.0
                    logits[place, child.legal_actions()] = 0.0
            self._nodes[int(row), int(node)] = child
        return ModelOutput(reward, discount, logits, np.zeros(size, np.float32))
