"""A finished tree as a JSON-ready dictionary, a DOT graph, an indented outline, and its principal variation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mcts.base import ROOT_INDEX
from mcts.tree import Tree

ActionNames = Sequence[str] | Callable[[int], str] | None
CHANCE = "chance"


def to_dict(tree: Tree, row: int = 0, *, max_depth: int | None = None) -> dict[str, Any]:
    """Row `row` as nested records, children by falling visits; every number is a Python number.

    A record holds `node`, `visits`, `value` (mean, seen by its player to move) and `network_value`; below the root also
    `action`, `prior`, `reward`, `discount` and `q` of its edge, seen by who moved. `max_depth` cuts deeper nodes. Where the
    search has chance nodes, `kind` is `decision` or `chance`, and `action` below a chance node is an outcome.
    """
    parents, actions, depths = tree.parents[row], tree.actions[row], tree.depths[row]
    visits, values, raw_values = tree.visits[row], tree.values[row], tree.raw_values[row]
    rewards, discounts = tree.rewards[row], tree.discounts[row]
    priors, q = tree.priors[row], tree.child_q[row]
    records: dict[int, dict[str, Any]] = {}
    children: list[tuple[int, dict[str, Any]]] = []
    for node in range(tree.num_nodes):
        parent, action = int(parents[node]), int(actions[node])
        is_root = node == ROOT_INDEX
        if not is_root and (parent < 0 or (max_depth is not None and depths[node] > max_depth)):
            continue
        record: dict[str, Any] = {"node": node}
        if tree.has_chance:
            record["kind"] = CHANCE if depths[node] % 2 == 1 else "decision"
        if not is_root:
            record["action"] = action
            record["prior"] = float(priors[parent, action])
            record["reward"] = float(rewards[node])
            record["discount"] = float(discounts[node])
            record["q"] = float(q[parent, action])
        record["visits"] = int(visits[node])
        record["value"] = float(values[node])
        record["network_value"] = float(raw_values[node])
        record["children"] = []
        records[node] = record
        if not is_root:
            children.append((parent, record))
    for parent, record in children:
        records[parent]["children"].append(record)
    for record in records.values():
        record["children"].sort(key=lambda child: (-child["visits"], child["action"]))
    return records[ROOT_INDEX]


def principal_variation(tree: Tree, row: int = 0) -> list[int]:
    """The actions of row `row` that follow the most visited child from the root on (of equals the higher q).

    With chance nodes actions and outcomes take turns.
    """
    child_index, child_visits = tree.child_index[row], tree.child_visits[row]
    child_q = tree.child_q[row]
    node = ROOT_INDEX
    actions: list[int] = []
    while child_visits[node].any():
        order = np.lexsort((-child_q[node], -child_visits[node]))
        actions.append(int(order[0]))
        node = int(child_index[node, order[0]])
    return actions


def to_text(
    tree: Tree,
    row: int = 0,
    *,
    max_depth: int | None = 3,
    min_visits: int = 1,
    action_names: ActionNames = None,
    outcome_names: ActionNames = None,
) -> str:
    """An indented outline of row `row`, one node a line."""
    root = to_dict(tree, row, max_depth=max_depth)
    lines = [f"root  visits {root['visits']}  value {root['value']:+.3f}"]

    def add(record: dict[str, Any], depth: int) -> None:
        for child in record["children"]:
            if child["visits"] < min_visits:
                continue
            name = _name(record, child["action"], action_names, outcome_names)
            lines.append(
                f"{'  ' * depth}{name}  visits {child['visits']}  "
                f"q {child['q']:+.3f}  prior {child['prior']:.3f}"
            )
            add(child, depth + 1)

    add(root, 1)
    return "\n".join(lines) + "\n"


def to_dot(
    tree: Tree,
    row: int = 0,
    *,
    max_depth: int | None = 3,
    min_visits: int = 1,
    action_names: ActionNames = None,
    outcome_names: ActionNames = None,
) -> str:
    """Row `row` as a Graphviz graph: nodes show visits and value, edges action, q and prior."""
    root = to_dict(tree, row, max_depth=max_depth)
    lines = ["digraph search {", "  node [shape=box, fontname=monospace];"]

    def add(record: dict[str, Any]) -> None:
        lines.append(
            f'  n{record["node"]} [label="visits {record["visits"]}\\nvalue {record["value"]:+.3f}"];'
        )
        for child in record["children"]:
            if child["visits"] < min_visits:
                continue
            name = _name(record, child["action"], action_names, outcome_names)
            label = name.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(
                f"  n{record['node']} -> n{child['node']} "
                f'[label="{label}\\nq {child["q"]:+.3f}\\nprior {child["prior"]:.3f}"];'
            )
            add(child)

    add(root)
    lines.append("}")
    return "\n".join(lines) + "\n"


def _name(
    record: dict[str, Any], action: int, action_names: ActionNames, outcome_names: ActionNames
) -> str:
    """The name of an action, or of an outcome, at the node of a record."""
    is_outcome = record.get("kind") == CHANCE
    names = outcome_names if is_outcome else action_names
    if names is None:
        return f"outcome {action}" if is_outcome else str(action)
    return names(action) if callable(names) else names[action]
