"""The search written down naively: objects, lists and definitions, one root at a time, in double precision.

It keeps every return of every node and takes means over them, keeps every q ever seen and takes their extremes, and
scans all actions at every node. It shares no code with the package.
"""

import math


class PlainNode:
    def __init__(self, state, logits, value, index):
        self.state = state
        self.logits = list(logits)
        self.present = [action for action, logit in enumerate(logits) if logit > -math.inf]
        self.network_value = value
        self.returns = [value]
        self.index = index
        self.edges = {}  # action -> (reward, discount, child)

    @property
    def visits(self):
        return len(self.returns)

    @property
    def value(self):
        return math.fsum(self.returns) / len(self.returns)

    def edge_visits(self, action):
        return self.edges[action][2].visits if action in self.edges else 0

    def q(self, action):
        reward, discount, child = self.edges[action]
        return reward + discount * child.value


def softmax(logits):
    highest = max(logits)
    weights = [math.exp(logit - highest) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def first_argmax(scores):
    best = None
    for action, score in scores.items():
        if best is None or score > scores[best]:
            best = action
    return best


class PlainSearch:
    """`step(state, action)` gives (reward, discount, logits, value, next state).

    `kept` is the node of an earlier search that the position has become; the simulations in it count.
    """

    def __init__(
        self,
        settings,
        step,
        state,
        logits,
        value,
        legal,
        noise=None,
        *,
        num_simulations=None,
        is_explored=True,
        kept=None,
    ):
        self.settings = settings
        self.step = step
        self.root = PlainNode(state, logits, value, 0)
        self.legal = [action for action in self.root.present if legal[action]]
        self.seen = [value]
        self.kept_visits = [0] * len(logits)
        self.num_planned = num_simulations or settings.num_simulations
        if kept is not None:
            self.keep(kept)
        self.forced_playouts = settings.forced_playouts if is_explored else 0.0
        self.depths = []
        self.margins = []
        """Of each simulation, the smallest lead of a chosen action over the next best."""
        self.num_actions = len(logits)
        highest = max(logits[action] for action in self.legal)
        self.root.logits = [
            logits[action] - highest if action in self.legal else -math.inf
            for action in range(self.num_actions)
        ]
        self.gumbel = [0.0] * self.num_actions
        self.root_priors = self.priors(self.root)
        if noise is not None and is_explored and settings.kind == "puct":
            share = settings.root_exploration_fraction
            any_absent = len(self.legal) < sum(legal)
            total = sum(noise[action] for action in self.legal) if any_absent else 1.0
            for action in self.legal:
                draw = noise[action] / total
                self.root_priors[action] = (1 - share) * self.root_priors[action] + share * draw
        if noise is not None and is_explored and settings.kind == "gumbel":
            self.gumbel = [settings.gumbel_scale * draw for draw in noise]

    @staticmethod
    def priors(node):
        return softmax(node.logits)

    def keep(self, kept):
        """Hang the children of `kept` that are legal under the root: with every return that came through them."""
        root = self.root
        root.edges = {action: kept.edges[action] for action in kept.edges if action in self.legal}
        for reward, discount, child in root.edges.values():
            root.returns.extend(reward + discount * value for value in child.returns)
        self.kept_visits = self.visit_counts()
        self.num_planned = max(1, self.num_planned - sum(self.kept_visits))
        for node, _, _ in self.nodes():
            self.seen.extend(node.q(action) for action in node.edges)

    def run(self):
        for simulation in range(self.num_planned):
            self.simulate(simulation)
        return self

    def simulate(self, simulation):
        limit = self.settings.max_depth or self.settings.num_simulations
        path = []
        node = self.root
        self.margins.append(math.inf)
        while True:
            action = self.choose(node)
            path.append((node, action))
            if action not in node.edges or len(path) >= limit:
                break
            node = node.edges[action][2]
        parent, action = path[-1]
        reward, discount, logits, value, state = self.step(parent.state, action)
        if action in parent.edges:
            leaf = parent.edges[action][2]
            leaf.returns.append(value)
        else:
            leaf = PlainNode(state, logits, value, simulation + 1)
            parent.edges[action] = (reward, discount, leaf)
        self.depths.append(len(path))
        # The return of a node on the path, by definition: rewards and value behind it, discounted and signed.
        for position, (ancestor, _) in enumerate(path):
            total, factor = 0.0, 1.0
            for node, taken in path[position:]:
                edge_reward, edge_discount, _ = node.edges[taken]
                total += factor * edge_reward
                factor *= edge_discount
            ancestor.returns.append(total + factor * value)
        self.seen.extend(node.q(taken) for node, taken in path)

    def choose(self, node):
        if self.settings.kind == "puct":
            return self.choose_puct(node)
        return self.choose_gumbel(node)

    def decide(self, scores):
        """The first of the best scores; its lead over the next best is noted."""
        best = first_argmax(scores)
        others = [score for action, score in scores.items() if action != best]
        if others:
            self.margins[-1] = min(self.margins[-1], scores[best] - max(others))
        return best

    # PUCT

    def choose_puct(self, node):
        if node is self.root:
            for action in self.legal:
                if 0 < node.edge_visits(action) < self.num_forced(action):
                    return action
        actions = self.legal if node is self.root else node.present
        return self.decide(
            {action: self.puct(node, action, node.edge_visits(action)) for action in actions}
        )

    def puct(self, node, action, edge_visits):
        """The score of an action if it had so many visits, and else were as it is."""
        settings = self.settings
        priors = self.root_priors if node is self.root else self.priors(node)
        base = settings.pb_c_base
        bonus = settings.pb_c_init + math.log((node.visits + base + 1) / base)
        explore = priors[action] * math.sqrt(node.visits) / (1 + edge_visits)
        return self.normalised_q(node, action) + explore * bonus

    def num_forced(self, action):
        """KataGo's `(k * P(c) * sum of N)^(1/2)`."""
        total = sum(self.visit_counts())
        return math.sqrt(self.forced_playouts * self.root_priors[action] * total)

    def pruned_counts(self):
        """KataGo's policy target pruning, section 3.2 of arXiv 1902.10565, sentence by sentence."""
        counts = self.visit_counts()
        # "We identify the child c* with the most playouts,
        best = self.best_action()
        highest = self.puct(self.root, best, counts[best])
        for action in self.legal:
            if action == best or counts[action] == 0:
                continue
            # and from each other child c, we subtract up to n_forced playouts
            subtracted = 0
            while counts[action] > 0 and subtracted + 1 <= self.num_forced(action):
                # so long as it does not cause PUCT(c) >= PUCT(c*),
                if self.puct(self.root, action, counts[action] - 1) >= highest:
                    break
                counts[action] -= 1
                subtracted += 1
            # Additionally, we outright prune children that are reduced to a single playout."
            if subtracted > 0 and counts[action] == 1:
                counts[action] = 0
        return counts

    def normalised_q(self, node, action):
        settings = self.settings
        visited = [node.q(other) for other in node.edges]
        unvisited = {
            "minimum": None,
            "parent": node.value,
            "mean": sum(visited) / len(visited) if visited else node.value,
        }[settings.first_play_urgency]
        q = node.q(action) if action in node.edges else unvisited
        if settings.normalization == "none":
            return min([node.value, *visited]) if q is None else q
        if q is None:
            return 0.0
        if settings.normalization == "bounds":
            return (q - settings.value_min) / (settings.value_max - settings.value_min)
        if settings.normalization == "siblings":
            return self.stretched(q, [node.value, *visited])
        return min(max(self.stretched(q, self.seen), 0.0), 1.0)

    def stretched(self, q, values):
        low, high = min(values), max(values)
        if high <= low:
            return 0.0
        return (q - low) / max(high - low, self.settings.min_value_range or 1e-8)

    # Gumbel

    def sigma(self, node):
        settings = self.settings
        counts = [node.edge_visits(action) for action in range(self.num_actions)]
        value = node.network_value
        if settings.use_mixed_value and node.edges:
            prior = self.priors(node)
            mass = sum(prior[action] for action in node.edges)
            mean = sum(prior[action] * node.q(action) for action in node.edges) / mass
            # The sum of the counts; more where a leaf at the depth limit was evaluated again before it was kept.
            value = (value + (node.visits - 1) * mean) / node.visits
        completed = [
            node.q(action) if action in node.edges else value for action in range(self.num_actions)
        ]
        if settings.normalization == "siblings":
            existing = [completed[action] for action in node.present]
            completed = [self.stretched(q, existing) for q in completed]
        elif settings.normalization == "bounds":
            span = settings.value_max - settings.value_min
            completed = [(q - settings.value_min) / span for q in completed]
        elif settings.normalization == "tree":
            completed = [min(max(self.stretched(q, self.seen), 0.0), 1.0) for q in completed]
        scale = (settings.maxvisit_init + max(counts)) * settings.value_scale
        return [scale * q for q in completed]

    def improved_policy(self, node):
        return softmax(
            [logit + shift for logit, shift in zip(node.logits, self.sigma(node), strict=True)]
        )

    def choose_gumbel(self, node):
        if node is self.root:
            return self.choose_halving()
        policy = self.improved_policy(node)
        return self.decide(
            {
                action: policy[action] - node.edge_visits(action) / node.visits
                for action in node.present
            }
        )

    def choose_halving(self):
        size = min(self.settings.max_num_considered_actions, len(self.legal))
        schedule = halving_schedule(size, self.num_planned)
        return self.decide(self.scores_among(schedule[sum(self.new_visit_counts())]))

    def scores_among(self, count):
        """Scores of the root actions with so many visits from this search."""
        new = self.new_visit_counts()
        sigma = self.sigma(self.root)
        return {
            action: self.gumbel[action] + self.root.logits[action] + sigma[action]
            for action in self.legal
            if new[action] == count
        }

    # Results

    def visit_counts(self):
        return [self.root.edge_visits(action) for action in range(len(self.root.logits))]

    def new_visit_counts(self):
        return [
            count - kept for count, kept in zip(self.visit_counts(), self.kept_visits, strict=True)
        ]

    def policy(self):
        if self.settings.kind == "gumbel":
            return self.improved_policy(self.root)
        counts = self.pruned_counts() if self.forced_playouts > 0 else self.visit_counts()
        return [count / sum(counts) for count in counts]

    def best_action(self):
        if self.settings.kind == "gumbel":
            return first_argmax(self.scores_among(max(self.new_visit_counts())))
        most = max(self.visit_counts())
        return first_argmax(
            {a: self.root.q(a) for a, count in enumerate(self.visit_counts()) if count == most}
        )

    def nodes(self):
        """Every node with the index of its parent and the action that leads to it."""
        found = [(self.root, -1, -1)]
        for node, _, _ in found:
            found.extend((edge[2], node.index, action) for action, edge in node.edges.items())
        return found


def halving_schedule(size, num_simulations):
    """Considered visit counts by playing sequential halving with real counters."""
    if size <= 1:
        return list(range(num_simulations))
    rounds = math.ceil(math.log2(size))
    counts = [0] * size
    schedule = []
    survivors = size
    while len(schedule) < num_simulations:
        extra = max(1, int(num_simulations / (rounds * survivors)))
        for _ in range(extra):
            for contender in range(survivors):
                schedule.append(counts[contender])
            for contender in range(survivors):
                counts[contender] += 1
        survivors = max(2, survivors // 2)
    return schedule[:num_simulations]
