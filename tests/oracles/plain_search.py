"""The search written down naively: objects, lists and definitions, one root at a time, in double precision.

It keeps every return of every node and takes means over them, keeps every q ever seen and takes their extremes, and
scans all actions at every node. It shares no code with the package.
"""

import math


class PlainNode:
    def __init__(self, state, logits, value, index):
        self.state = state
        self.logits = list(logits)
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
    """`step(state, action)` gives (reward, discount, logits, value, next state)."""

    def __init__(self, settings, step, state, logits, value, legal, noise=None):
        self.settings = settings
        self.step = step
        self.legal = [action for action in range(len(legal)) if legal[action]]
        self.root = PlainNode(state, logits, value, 0)
        self.seen = [value]
        self.depths = []
        self.num_actions = len(logits)
        highest = max(logits[action] for action in self.legal)
        self.root.logits = [
            logits[action] - highest if action in self.legal else -math.inf
            for action in range(self.num_actions)
        ]
        self.gumbel = [0.0] * self.num_actions
        self.root_priors = self.priors(self.root)
        if noise is not None and settings.kind == "puct":
            share = settings.root_exploration_fraction
            self.root_priors = [
                (1 - share) * prior + share * draw
                for prior, draw in zip(self.root_priors, noise, strict=True)
            ]
        if noise is not None and settings.kind == "gumbel":
            self.gumbel = [settings.gumbel_scale * draw for draw in noise]

    @staticmethod
    def priors(node):
        return softmax(node.logits)

    def run(self):
        for simulation in range(self.settings.num_simulations):
            self.simulate(simulation)
        return self

    def simulate(self, simulation):
        limit = self.settings.max_depth or self.settings.num_simulations
        path = []
        node = self.root
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

    # PUCT

    def choose_puct(self, node):
        settings = self.settings
        actions = self.legal if node is self.root else range(self.num_actions)
        priors = self.root_priors if node is self.root else self.priors(node)
        base = settings.pb_c_base
        bonus = settings.pb_c_init + math.log((node.visits + base + 1) / base)
        scores = {}
        for action in actions:
            explore = priors[action] * math.sqrt(node.visits) / (1 + node.edge_visits(action))
            scores[action] = self.normalised_q(node, action) + explore * bonus
        return first_argmax(scores)

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
            value = (value + sum(counts) * mean) / (1 + sum(counts))
        completed = [
            node.q(action) if action in node.edges else value for action in range(self.num_actions)
        ]
        if settings.normalization == "siblings":
            completed = [self.stretched(q, completed) for q in completed]
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
        return first_argmax(
            {
                action: policy[action] - node.edge_visits(action) / node.visits
                for action in range(self.num_actions)
            }
        )

    def choose_halving(self):
        size = min(self.settings.max_num_considered_actions, len(self.legal))
        schedule = halving_schedule(size, self.settings.num_simulations)
        return self.best_among(schedule[self.root.visits - 1])

    def best_among(self, count):
        sigma = self.sigma(self.root)
        return first_argmax(
            {
                action: self.gumbel[action] + self.root.logits[action] + sigma[action]
                for action in self.legal
                if self.root.edge_visits(action) == count
            }
        )

    # Results

    def visit_counts(self):
        return [self.root.edge_visits(action) for action in range(self.num_actions)]

    def policy(self):
        if self.settings.kind == "gumbel":
            return self.improved_policy(self.root)
        total = sum(self.visit_counts())
        return [count / total for count in self.visit_counts()]

    def best_action(self):
        if self.settings.kind == "gumbel":
            return self.best_among(max(self.visit_counts()))
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
