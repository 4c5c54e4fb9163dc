"""mctx's searches of a table model, and what to say of trees that differ from them."""

import functools
from dataclasses import dataclass

import numpy as np

from mcts import RootOutput, SearchSettings
from tests.oracles.plain_search import PlainSearch

RULES = ("puct", "stock puct", "gumbel")
"""PUCT without the random tie break of the stock policy and without noise; `muzero_policy`; `gumbel_muzero_policy`."""


def settings_of(rule, *, rescale=True, **options):
    """Our settings of a rule, mctx's defaults where `options` say nothing."""
    return SearchSettings(
        kind="gumbel" if rule == "gumbel" else "puct",
        normalization="siblings" if rescale else "none",
        min_value_range=0.0,
        **options,
    )


def compiled(rule, settings):
    """The search `(key, table, states, legal) -> (tree, action, action weights)`; compiles once per shape and precision."""
    import jax
    import jax.numpy as jnp
    import mctx

    def choose(key, tree, node, depth):
        visits = tree.node_visits[node]
        bonus = 1.25 + jnp.log((visits + 19652.0 + 1) / 19652.0)
        priors = jax.nn.softmax(tree.children_prior_logits[node])
        explore = jnp.sqrt(visits) * bonus * priors / (tree.children_visits[node] + 1)
        scores = mctx.qtransform_by_parent_and_siblings(tree, node) + explore
        return jnp.argmax(jnp.where((depth == 0) & tree.root_invalid_actions, -jnp.inf, scores))

    def search(key, table, states, legal):
        def recurrent(params, key, action, state):
            following = table["successor"][state, action]
            output = mctx.RecurrentFnOutput(
                reward=table["reward"][state, action],
                discount=table["discount"][state, action],
                prior_logits=table["logits"][following],
                value=table["value"][following],
            )
            return output, following

        logits, value = table["logits"][states], table["value"][states]
        common = {
            "num_simulations": settings.num_simulations,
            "max_depth": settings.max_depth,
            "invalid_actions": ~legal,
        }
        if rule == "puct":
            masked = jnp.where(legal, logits, jnp.finfo(logits.dtype).min)
            tree = mctx.search(
                params=(),
                rng_key=key,
                root=mctx.RootFnOutput(prior_logits=masked, value=value, embedding=states),
                recurrent_fn=recurrent,
                root_action_selection_fn=lambda key, tree, node: choose(key, tree, node, 0),
                interior_action_selection_fn=choose,
                **common,
            )
            return tree, None, None
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=states)
        if rule == "stock puct":
            output = mctx.muzero_policy((), key, root, recurrent, **common)
            # What it plays is sampled from the visits.
            return output.search_tree, None, output.action_weights
        transform = functools.partial(
            mctx.qtransform_completed_by_mix_value,
            value_scale=settings.value_scale,
            maxvisit_init=settings.maxvisit_init,
            rescale_values=settings.normalization == "siblings",
            use_mixed_value=settings.use_mixed_value,
        )
        output = mctx.gumbel_muzero_policy(
            (),
            key,
            root,
            recurrent,
            max_num_considered_actions=settings.max_num_considered_actions,
            gumbel_scale=settings.gumbel_scale,
            qtransform=transform,
            **common,
        )
        return output.search_tree, output.action, output.action_weights

    return jax.jit(search)


def same_start(rule, tree, root):
    """Root and noise that give our search the random numbers that mctx has drawn, read back from its tree."""
    if rule == "gumbel":
        return root, np.array(tree.extra_data.root_gumbel)
    if rule == "stock puct":  # priors with Dirichlet noise, masked
        return RootOutput(np.array(tree.children_prior_logits[:, 0]), root.value), None
    return root, None


FIELDS = (
    ("node_visits", "visits"),
    ("parents", "parents"),
    ("action_from_parent", "actions"),
    ("children_index", "child_index"),
    ("children_visits", "child_visits"),
)


@dataclass(frozen=True)
class Comparison:
    """Rows by what is equal in them: all indices and visits of the tree, the visits of the root."""

    whole_tree: np.ndarray
    root_visits: np.ndarray
    value_error: float
    """Largest difference of node values in equal trees."""
    parted: np.ndarray
    """`[B]` first simulation whose new node differs; the last one where none does."""


def compare(ours, theirs):
    """Our tree against mctx's."""
    num_rows, num_nodes = ours.visits.shape
    whole = np.ones(num_rows, bool)
    for their_name, our_name in FIELDS:
        differs = getattr(ours, our_name) != np.asarray(getattr(theirs, their_name))
        whole &= ~differs.reshape(num_rows, -1).any(axis=1)
    roots = (ours.child_visits[:, 0] == np.asarray(theirs.children_visits[:, 0])).all(axis=1)
    new_node = (ours.parents != np.asarray(theirs.parents)) | (
        ours.actions != np.asarray(theirs.action_from_parent)
    )
    parted = np.where(new_node.any(axis=1), np.argmax(new_node, axis=1), num_nodes - 1) - 1
    used = (ours.visits > 0) & whole[:, None]
    errors = np.abs(ours.values - np.asarray(theirs.node_values))[used]
    return Comparison(whole, roots, float(errors.max(initial=0.0)), parted)


def margin(settings, model, state, root, row, legal, noise, until):
    """The smallest lead of a chosen action over the next best, in simulations 0 to `until` of the plain search."""

    def step(state, action):
        following = model.successor[state, action]
        return (
            float(model.reward[state, action]),
            float(model.discount[state, action]),
            model.logits[following].tolist(),
            float(model.value[following]),
            following,
        )

    search = PlainSearch(
        settings,
        step,
        state,
        root.prior_logits[row].tolist(),
        float(root.value[row]),
        legal[row].tolist(),
        None if noise is None else noise[row].tolist(),
    )
    for simulation in range(until + 1):
        search.simulate(simulation)
    return min(search.margins)
