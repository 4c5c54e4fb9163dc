"""Write the golden trees of the search with chance nodes, grown by the naive search, as JSON.

    python -m tests.oracles.make_chance_goldens

A node holds what a model has to answer there (logits, value, and the reward and discount of the edge that leads to it),
so that a replay needs neither this code nor its random numbers. null is a logit of minus infinity.
"""

import json
import math
from pathlib import Path

import numpy as np

from mcts import SearchSettings
from tests.oracles.chance_table import ChanceTable
from tests.oracles.plain_chance import PlainChanceSearch

FOLDER = Path(__file__).parents[1] / "mcts" / "golden"

CASES = {
    "chance_puct.json": {
        "seed": 7,
        "legal": [True, True, True, True],
        "settings": {"kind": "puct", "num_simulations": 60, "normalization": "siblings"},
        "model": {"num_actions": 4, "num_outcomes": 3},
    },
    "chance_puct_two_players.json": {
        "seed": 7,
        "legal": [True, False, True],
        "settings": {"kind": "puct", "num_simulations": 80, "max_depth": 6},
        "model": {
            "num_actions": 3,
            "num_outcomes": 6,
            "players": "mixed",
            "terminal_fraction": 0.2,
            "absent_actions": 0.2,
            "absent_outcomes": 0.3,
        },
    },
    "chance_gumbel.json": {
        "seed": 3,
        "legal": [True, True, False, True, True],
        "settings": {"kind": "gumbel", "num_simulations": 60, "max_num_considered_actions": 3},
        "model": {
            "num_actions": 5,
            "num_outcomes": 2,
            "players": 2,
            "zero_reward": True,
            "discount": 1.0,
            "absent_actions": 0.2,
        },
    },
}


def grow(case):
    """One case's naive search, and the smallest lead of a best score over the second best."""
    rng = np.random.default_rng(case["seed"])
    model = ChanceTable.draw(rng, **case["model"])
    settings = settings_of(case)
    state = int(rng.integers(len(model.value)))
    root = model.root([state], 1)
    search = PlainChanceSearch(
        settings,
        model.plain_afterstate,
        model.plain_outcome,
        state,
        root.prior_logits[0].tolist(),
        float(root.value[0]),
        case["legal"],
    ).run()
    return search, root.prior_logits[0].tolist(), min(search.margins)


def settings_of(case):
    return SearchSettings(**case["settings"], num_chance_outcomes=case["model"]["num_outcomes"])


def record(node):
    children = {
        str(branch): {"reward": reward, "discount": discount, **record(child)}
        for branch, (reward, discount, child) in sorted(node.edges.items())
    }
    return {
        "node": node.index,
        "kind": node.state[0],
        "visits": node.visits,
        "value": node.value,
        "network_value": node.network_value,
        "logits": [logit if math.isfinite(logit) else None for logit in node.logits],
        "children": children,
    }


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, case in CASES.items():
        search, root_logits, margin = grow(case)
        tree = record(search.root)
        tree["logits"] = root_logits
        golden = {
            **case,
            "smallest_margin": margin,
            "policy": search.policy(),
            "best_action": search.best_action(),
            "tree": tree,
        }
        (FOLDER / name).write_text(json.dumps(golden, separators=(",", ":")) + "\n")
        print(f"{name}: smallest margin {margin:.2g}")


if __name__ == "__main__":
    main()
