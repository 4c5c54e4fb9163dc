"""The captured step: on the CPU with a recorder that repeats operations at fixed addresses, on CUDA with the real thing."""

import numpy as np
import pytest
import torch

from mcts import Search, SearchSettings, run
from mcts.base import Selection
from mcts.pipeline import SearchPair, run_pipelined
from muzero.inference import LocalModel
from muzero.inference.evaluators import ModuleEvaluator
from muzero.inference.graph import GraphEvaluator, row_counts
from muzero.inference.pair import ModelPair
from tests.inference.recorded import Recordings
from tests.inference.test_local import BOARD, CASES, observations, selections, trained

CPU = torch.device("cpu")
BATCH_SIZE = 20


def models_of(network, capture=None):
    """A model with a captured step, and one that runs the same modules."""
    models = []
    for evaluator in (
        GraphEvaluator(network, CPU, torch.float32, batch_size=BATCH_SIZE, capture=capture),
        ModuleEvaluator(network, CPU, torch.float32),
    ):
        model = LocalModel(network, batch_size=BATCH_SIZE, num_nodes=5, discount=0.9)
        model._evaluator = evaluator
        shape = (BATCH_SIZE * 5 + evaluator.num_spare_rows, *evaluator.memory_shape)
        model._slab = torch.zeros(shape)
        models.append(model)
    return models


def assert_same(mine, expected) -> None:
    for name in ("reward", "discount", "prior_logits", "value"):
        np.testing.assert_allclose(
            getattr(mine, name), getattr(expected, name), rtol=1e-4, atol=1e-5, err_msg=name
        )


def first_rows(selection: Selection, count: int) -> Selection:
    return Selection(*(part[:count] for part in selection))


def test_sizes_halve_down_to_eight():
    assert row_counts(256) == [8, 16, 32, 64, 128, 256]
    assert row_counts(20) == [5, 10, 20]
    assert row_counts(3) == [3]


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_a_replayed_step_says_what_the_modules_say(config, spec):
    recordings = Recordings()
    graph, plain = models_of(trained(config, spec), recordings.capture)
    observation = observations(spec, BATCH_SIZE)
    for model in (graph, plain):
        model.roots(observation)
    for selection, count in zip(selections(spec, BATCH_SIZE), (20, 13, 9, 20), strict=True):
        # A step of 9 rows is one of 10 with a row that nobody reads.
        mine, expected = (model.recurrent(first_rows(selection, count)) for model in (graph, plain))
        assert mine.value.shape == (count,)
        assert_same(mine, expected)
    assert recordings.num_captures == 2
    assert recordings.num_replays == 4
    torch.testing.assert_close(graph._slab[:-1], plain._slab, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_new_weights_are_used_without_another_capture(config, spec):
    recordings = Recordings()
    old, new = trained(config, spec, 0), trained(config, spec, 5)
    graph, _ = models_of(old, recordings.capture)
    _, fresh = models_of(new)
    observation, selection = observations(spec, BATCH_SIZE), selections(spec, BATCH_SIZE)[0]
    graph.roots(observation)
    before = graph.recurrent(selection).prior_logits.copy()
    graph.load(new.state_dict(), 3)
    for model in (graph, fresh):
        model.roots(observation)
    after, expected = graph.recurrent(selection), fresh.recurrent(selection)
    assert not np.allclose(before, after.prior_logits, atol=1e-3)
    assert_same(after, expected)
    assert recordings.num_captures == 1


def test_rows_without_a_call_touch_the_spare_row_only():
    config, spec = CASES[0]
    graph, _ = models_of(trained(config, spec), Recordings().capture)
    graph._slab.fill_(7.0)
    graph.recurrent(first_rows(selections(spec, BATCH_SIZE)[0], 3))
    changed = (graph._slab != 7.0).any(dim=1).nonzero().flatten().tolist()
    assert changed == [1, 6, 11, BATCH_SIZE * 5]


def test_a_step_that_cannot_be_captured_is_an_error_and_no_slow_run():
    """Capture runs on a stream; without CUDA there is none."""
    config, spec = CASES[0]

    def fail(step):
        raise RuntimeError("search.cuda_graph=true: no")

    graph, _ = models_of(trained(config, spec), fail)
    with pytest.raises(RuntimeError, match=r"search\.cuda_graph=true"):
        graph.recurrent(selections(spec, BATCH_SIZE)[0])


@pytest.mark.gpu
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize(("config", "spec"), CASES)
def test_on_cuda_graphs_say_what_the_modules_say(config, spec, bfloat16):
    network = trained(config, spec)
    models = [
        LocalModel(
            network,
            batch_size=BATCH_SIZE,
            num_nodes=5,
            discount=0.9,
            device="cuda",
            bfloat16=bfloat16,
            cuda_graph=cuda_graph,
        )
        for cuda_graph in (True, False)
    ]
    assert isinstance(models[0]._evaluator, GraphEvaluator)
    assert type(models[1]._evaluator) is ModuleEvaluator
    tolerance = {"rtol": 0.1, "atol": 0.3} if bfloat16 else {"rtol": 1e-3, "atol": 1e-3}
    for weights in (network, trained(config, spec, 5)):
        for model in models:
            model.load(weights.state_dict(), 1)
            model.roots(observations(spec, BATCH_SIZE))
        for selection, count in zip(selections(spec, BATCH_SIZE), (20, 13, 9, 20), strict=True):
            mine, expected = (model.recurrent(first_rows(selection, count)) for model in models)
            for name in ("reward", "prior_logits", "value"):
                np.testing.assert_allclose(
                    getattr(mine, name), getattr(expected, name), err_msg=name, **tolerance
                )


@pytest.mark.gpu
def test_on_cuda_two_halves_overlap_and_find_what_they_find_alone():
    config, spec = CASES[3]
    assert spec is BOARD
    network = trained(config, spec)
    halves = tuple(
        LocalModel(network, batch_size=8, num_nodes=17, discount=0.9, device="cuda")
        for _ in range(2)
    )
    settings = SearchSettings(kind="puct", num_simulations=16)
    pair = SearchPair(settings, batch_size=16, num_actions=spec.num_actions)
    observation = observations(spec, 16)
    legal = np.ones((16, spec.num_actions), np.bool_)
    root = ModelPair(*halves).roots(observation)
    together = run_pipelined(pair.halves, halves, root, legal)
    for model, rows in zip(halves, (slice(8), slice(8, None)), strict=True):
        alone = Search(settings, batch_size=8, num_actions=spec.num_actions)
        output = run(alone, model, model.roots(observation[rows]), legal[rows])
        np.testing.assert_array_equal(together.visits[rows], output.visits)
