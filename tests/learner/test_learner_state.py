import dataclasses

import numpy as np
import pytest
import torch

from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.config.schema import LearnerConfig
from muzero.learner import Learner
from muzero.network import NetworkSpec, make_network

SUPPORTS = {
    "value_support_size": 9,
    "value_support_max": 2.0,
    "reward_support_size": 5,
    "reward_support_max": 2.0,
    "support_transform": False,
}
FLAT = NetworkSpec(observation_shape=(6,), num_actions=4, num_players=2, has_turn_head=True)
BOARD = NetworkSpec(observation_shape=(2, 3, 3), num_actions=9)
MLP = MLPConfig(latent_size=8, hidden_sizes=[12], projection_size=6, **SUPPORTS)
RESNET = ResNetConfig(
    num_channels=4,
    num_blocks=1,
    head_channels=2,
    head_hidden_size=5,
    projection_size=6,
    **SUPPORTS,
)
CASES = [(MLP, FLAT), (RESNET, BOARD)]


def learner_of(config=MLP, spec=FLAT, *, seed=0, uses_target_network=False, **settings) -> Learner:
    defaults = {"num_unroll_steps": 3, "batch_size": 8, "num_steps": 100, "learning_rate": 0.01}
    return Learner(
        make_network(config, spec, seed),
        LearnerConfig(**{**defaults, **settings}),
        uses_target_network=uses_target_network,
        metrics_interval=1,
    )


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in learner.network.state_dict().items()}


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize(("config", "spec"), CASES)
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_restored_learner_goes_on_bit_for_bit(make_batch, config, spec, optimizer):
    settings = {
        "uses_target_network": True,
        "optimizer": optimizer,
        "average_decay": 0.9,
        "target_network_interval": 4,
        "consistency_loss_weight": 1.0,
        "warmup_steps": 5,
    }
    batches = [
        make_batch(spec, seed=i, with_next_observation=True, with_bootstrap=True) for i in range(12)
    ]
    whole = learner_of(config, spec, **settings)
    reports = [whole.step(batch) for batch in batches]

    half = learner_of(config, spec, **settings)
    for batch in batches[:6]:
        half.step(batch)
    tensors, meta = half.state()
    for batch in batches[6:]:
        half.step(batch)  # the saved state must not follow
    other = learner_of(config, spec, seed=99, **settings)
    other.step(batches[11])  # nor may what the restored learner did before leave a trace
    other.restore(tensors, meta)
    resumed = [other.step(batch) for batch in batches[6:]]

    for report, again in zip(reports[6:], resumed, strict=True):
        assert report.metrics == again.metrics
        assert np.array_equal(report.priorities, again.priorities)
    assert other.num_steps_done == 12
    assert_equal(whole.state()[0], other.state()[0])
    assert_equal(whole.acting_weights(), other.acting_weights())
    assert whole.state()[1] == other.state()[1]


def test_a_state_before_the_first_step_can_be_restored(make_batch):
    batch = make_batch(FLAT)
    fresh, other = learner_of(), learner_of(seed=3)
    other.step(batch)
    other.restore(*fresh.state())
    fresh.step(batch)
    other.step(batch)
    assert_equal(fresh.state()[0], other.state()[0])


def test_a_state_of_another_optimizer_or_network_is_refused():
    with pytest.raises(
        ValueError, match=r"learner.optimizer is 'sgd' but the saved state is of 'adam'"
    ):
        learner_of(optimizer="sgd").restore(*learner_of().state())
    with pytest.raises((ValueError, RuntimeError), match="size mismatch"):
        learner_of(dataclasses.replace(MLP, latent_size=9)).restore(*learner_of().state())


def test_averaging_and_target_network_may_be_turned_on_when_resuming(make_batch):
    plain = learner_of()
    plain.step(make_batch(FLAT))
    other = learner_of(seed=5, average_decay=0.9, uses_target_network=True)
    other.restore(*plain.state())
    assert_equal(other.acting_weights(), plain.acting_weights())
    other.step(make_batch(FLAT, with_bootstrap=True))


def test_the_bootstrap_is_added_by_hand(make_batch):
    learner = learner_of(uses_target_network=True, target_network_interval=1000, learning_rate=0.1)
    with torch.no_grad():
        for parameter in learner._target.network.parameters():
            parameter.add_(torch.randn_like(parameter))
    batch = make_batch(FLAT, with_bootstrap=True)
    target = learner._target.network
    expected = batch.value.copy()
    for b in range(8):
        for k in range(4):
            observation = torch.from_numpy(batch.bootstrap_observation[b, k][None])
            logits = target.initial_inference(observation).value_logits
            value = target.value_support.decode(logits).item()
            expected[b, k] += batch.bootstrap_discount[b, k] * value
    completed = learner._inputs(batch).value
    np.testing.assert_allclose(completed.numpy(), expected.T, rtol=1e-4, atol=1e-5)
    report = learner.step(batch)
    np.testing.assert_allclose(report.priorities, abs(expected[:, 0]), rtol=1e-4, atol=1e-5)


def test_the_target_network_is_renewed_at_its_interval_and_never_trained(make_batch):
    learner = learner_of(RESNET, BOARD, uses_target_network=True, target_network_interval=3)
    target = learner._target.network
    states = [{name: v.clone() for name, v in target.state_dict().items()}]
    for seed in range(6):
        learner.step(make_batch(BOARD, seed=seed, with_bootstrap=True))
        assert not any(module.training for module in target.modules())
        states.append({name: v.clone() for name, v in target.state_dict().items()})
        if (seed + 1) % 3 == 0:
            assert_equal(states[-1], learner.network.state_dict())
        else:
            assert_equal(states[-1], states[-2])


def test_a_batch_without_bootstraps_needs_no_target_value(make_batch):
    learner = learner_of(uses_target_network=True)
    batch = make_batch(FLAT, with_bootstrap=True)
    batch.bootstrap_discount.fill(0.0)
    assert np.array_equal(learner._inputs(batch).value.numpy(), batch.value.T)


def test_the_average_follows_its_formula(make_batch):
    learner = learner_of(RESNET, BOARD, average_decay=0.6)
    name = "dynamics_input.conv.weight"
    statistic = "dynamics_input.norm.running_mean"
    expected = {key: learner.network.state_dict()[key].double() for key in (name, statistic)}
    for t in range(1, 12):
        learner.step(make_batch(BOARD, seed=t))
        decay = min(0.6, (1 + t) / (10 + t))
        newest = learner.network.state_dict()
        for key in expected:
            expected[key] = decay * expected[key] + (1 - decay) * newest[key].double()
    acting = learner.acting_weights()
    for key in expected:
        torch.testing.assert_close(acting[key].double(), expected[key], rtol=1e-5, atol=1e-7)
    counter = "dynamics_input.norm.num_batches_tracked"
    assert torch.equal(acting[counter], learner.network.state_dict()[counter])


def test_acting_weights_are_copies_that_load(make_batch):
    learner = learner_of(RESNET, BOARD)
    acting = learner.acting_weights()
    kept = {name: value.clone() for name, value in acting.items()}
    learner.step(make_batch(BOARD))
    assert_equal(acting, kept)
    assert all(value.is_contiguous() and value.is_cpu for value in acting.values())
    make_network(RESNET, BOARD, 1).load_state_dict(acting)


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_two_runs_give_the_same_bytes(make_batch, config, spec):
    runs = []
    for _ in range(2):
        learner = learner_of(config, spec, consistency_loss_weight=1.0)
        for seed in range(5):
            # Fresh arrays each time: their alignment must not matter.
            learner.step(make_batch(spec, seed=seed, with_next_observation=True))
        runs.append(learner.state()[0])
    assert_equal(*runs)
