"""A model that counts what the search asks of it."""

from mcts import Model, ModelOutput
from mcts.base import Selection


class CountedModel:
    """Passes the search's questions on to `model`; one of these for each thread that asks."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.num_calls = 0
        """Calls since `clear`."""
        self.num_rows = 0
        """Positions evaluated by them."""

    def recurrent(self, selection: Selection) -> ModelOutput:
        """See `mcts.Model`."""
        self.note(len(selection.row))
        return self._model.recurrent(selection)

    def note(self, num_rows: int) -> None:
        """Count a call of so many rows that was made elsewhere."""
        self.num_calls += 1
        self.num_rows += num_rows

    def clear(self) -> None:
        """Count from 0."""
        self.num_calls = self.num_rows = 0
