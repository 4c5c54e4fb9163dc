"""What a server's network says to requests of one kind, of several clients at once.

Letters: `n` rows of a client's request, `b` rows of a batch.
"""

import numpy as np

from mcts.base import Selection
from muzero.inference.local import LocalModel
from muzero.inference.messages import Kind, ServerInfo
from muzero.inference.questions import Question, are_nodes, take_edges


class Answerer:
    """Answers questions with `model`, in which client `c` has the rows from `c * rows_per_client` on.

    A question that is out of range is refused; it harms nobody else.

    Args:
        max_rows: Most rows of a batch.
    """

    def __init__(self, model: LocalModel, info: ServerInfo, max_rows: int) -> None:
        self.model, self.info = model, info
        self._edges = np.zeros((4, max_rows), np.int32)
        self._selections: dict[int, Selection] = {}
        self._planted: set[int] = set()

    def answer(self, questions: list[Question]) -> list[Question]:
        """Answer questions of one kind; returns those that the network had to do with."""
        match questions[0].kind:
            case Kind.ROOTS | Kind.PREDICT:
                self._answer_observations(questions)
                return questions
            case Kind.RECURRENT:
                return self._answer_edges(questions)
        for question in questions:
            self._answer_alone(question)
        return []

    def forget(self, client: int) -> None:
        """The client's trees are gone: it, or who comes after it, has to plant roots."""
        self._planted.discard(client)

    def compile(self) -> None:
        """Compile all kernels now: a client's first request shall not have to wait for it."""
        observation = np.zeros((1, *self.info.spec.observation_shape), self.info.observation_dtype)
        self.model.roots(observation, np.zeros(1, np.int64))
        edges = np.zeros((4, 1), np.int32)
        take_edges(edges, 0, 1, self.info.num_nodes, 1, 0, self._edges)
        self.model.recurrent(Selection(*edges))

    def _answer_observations(self, questions: list[Question]) -> None:
        parts = [question.arrays[0] for question in questions]
        observation = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if questions[0].kind == Kind.ROOTS:
            size = self.info.rows_per_client
            places = [q.client * size + np.arange(q.num_rows) for q in questions]
            output = self.model.roots(observation, np.concatenate(places))
            self._planted.update(question.client for question in questions)
        else:
            output = self.model.predict(observation)
        start = 0
        for question in questions:
            rows = slice(start, start + question.num_rows)
            logits, value = question.replies
            logits[:], value[:] = output.prior_logits[rows], output.value[rows]
            question.finish(self.model.version)
            start = rows.stop

    def _answer_edges(self, questions: list[Question]) -> list[Question]:
        """Answer those whose edges are in range, and return them."""
        info, together = self.info, self._edges
        good: list[Question] = []
        num_rows = 0
        for question in questions:
            edges = question.arrays[0]
            size, num_actions = info.rows_per_client, info.spec.num_actions
            first_row = question.client * size
            if question.client not in self._planted:
                question.refuse("a step before its roots: call roots first")
            elif take_edges(
                edges, first_row, size, info.num_nodes, num_actions, num_rows, together
            ):
                good.append(question)
                num_rows += question.num_rows
            else:
                question.refuse(
                    f"a selection is out of range: this server has {size} rows, {info.num_nodes} nodes and {num_actions} "
                    "actions for a client"
                )
        if not good:
            return good
        selection = self._selections.get(num_rows)
        if selection is None:
            selection = self._selections[num_rows] = Selection(*together[:, :num_rows])
        output = self.model.recurrent(selection)
        start = 0
        for question in good:
            rows = slice(start, start + question.num_rows)
            logits, numbers = question.replies
            logits[:], numbers[0] = output.prior_logits[rows], output.value[rows]
            numbers[1], numbers[2] = output.reward[rows], output.discount[rows]
            question.finish(self.model.version)
            start = rows.stop
        return good

    def _answer_alone(self, question: Question) -> None:
        """What is of one client and not of the network: its latents."""
        info, model = self.info, self.model
        if question.kind != Kind.HELLO:
            places = question.arrays[0]
            if not are_nodes(places, info.rows_per_client, info.num_nodes):
                question.refuse(
                    f"nodes out of range: this server has {info.rows_per_client} rows and {info.num_nodes} nodes for a client"
                )
                return
            rows = places[0].astype(np.int64) + question.client * info.rows_per_client
            if question.kind == Kind.MOVE:
                model.copy_nodes(rows, places[1], places[2])
            elif question.kind == Kind.READ:
                question.replies[0][:] = model.read_nodes(rows, places[1])
            else:
                model.write_nodes(rows, places[1], question.arrays[1])
                self._planted.add(question.client)
        question.finish(model.version)
