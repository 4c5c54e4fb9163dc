"""The search with chance nodes written down naively, on top of the naive search.

A state is a pair: `("decision", state)` or `("chance", afterstate)`. An afterstate's branches are its outcomes.
"""

from tests.oracles.plain_search import PlainSearch


class PlainChanceSearch(PlainSearch):
    """`afterstate(state, action)` gives (chance logits, value, afterstate); `outcome(afterstate, c)` what `step` gives."""

    def __init__(self, settings, afterstate, outcome, state, *rest, **options):
        def step(kind_and_state, branch):
            kind, state = kind_and_state
            if kind == "decision":
                chance_logits, afterstate_value, following = afterstate(state, branch)
                return 0.0, 1.0, chance_logits, afterstate_value, ("chance", following)
            reward, discount, action_logits, state_value, following = outcome(state, branch)
            return reward, discount, action_logits, state_value, ("decision", following)

        super().__init__(settings, step, ("decision", state), *rest, **options)

    # Only the q of actions are compared with each other, so only they make the range of the tree.

    def keep(self, kept):
        before = len(self.seen)
        super().keep(kept)
        self.seen[before:] = [
            node.q(action)
            for node, _, _ in self.nodes()
            if node.state[0] == "decision"
            for action in node.edges
        ]

    def simulate(self, simulation):
        before = len(self.seen)
        super().simulate(simulation)
        # One q for each edge of the path, from the root on.
        self.seen[before:] = self.seen[before::2]

    def choose(self, node):
        if node.state[0] == "decision":
            return super().choose(node)
        probabilities = self.priors(node)
        return self.decide(
            {
                outcome: probabilities[outcome] / (1 + node.edge_visits(outcome))
                for outcome in node.present
            }
        )
