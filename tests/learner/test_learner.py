import dataclasses
import math

import numpy as np
import pytest
import torch

from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.config.schema import LearnerConfig
from muzero.learner import Learner, TrainingDiverged
from muzero.learner.learner import compute_loss
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
def test_one_batch_is_learned(make_batch, config, spec, optimizer):
    rate = 0.3 if optimizer == "sgd" else 0.02
    learner = learner_of(
        config, spec, optimizer=optimizer, learning_rate=rate, schedule="constant", weight_decay=0.0
    )
    batch = make_batch(spec)
    first = learner.step(batch).metrics
    for _ in range(150):
        last = learner.step(batch).metrics
    floor = last["policy_target_entropy"]
    assert last["policy_loss"] - floor < 0.6 * (first["policy_loss"] - floor)
    assert last["value_error"] < 0.4 * first["value_error"]
    assert last["explained_variance"] > 0.7


def test_metrics_have_their_meaning(make_batch):
    learner, batch = learner_of(), make_batch(FLAT)
    network = learner.network
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        unrolled = network.unroll(
            torch.from_numpy(batch.observation), torch.from_numpy(batch.action.T)
        )
        value = network.value_support.decode(unrolled.value_logits).numpy()
        reward = network.reward_support.decode(unrolled.reward_logits).numpy()
        log_policy = torch.log_softmax(unrolled.policy_logits, -1).numpy()
    batch.value[0, 0], batch.value_mask[0, 0] = 7.0, 1.0
    report = learner.step(batch)
    metrics = report.metrics

    def mean(x, mask):
        return (x * mask).sum() / mask.sum()

    root_error = batch.value[:, 0] - value[0]
    target, mask = batch.value[:, 0], batch.value_mask[:, 0]
    unexplained = mean((root_error - mean(root_error, mask)) ** 2, mask)
    cross_entropy = -(batch.policy * log_policy.transpose(1, 0, 2)).sum(-1)
    expected = {
        "value_error": mean(abs(root_error), mask),
        "value_mean": mean(value[0], mask),
        "value_target_mean": mean(target, mask),
        "explained_variance": 1.0 - unexplained / mean((target - mean(target, mask)) ** 2, mask),
        "reward_error": mean(abs(reward.T - batch.reward), batch.reward_mask),
        "turn_accuracy": mean((unrolled.turn_logits.numpy().T > 0) == batch.turn, batch.turn_mask),
        "turn_repeated_fraction": mean(batch.turn, batch.turn_mask),
        "policy_loss": mean(cross_entropy, batch.policy_mask),
        "policy_loss_step_2": mean(cross_entropy[:, 2], batch.policy_mask[:, 2]),
        "policy_target_entropy": mean(
            -(batch.policy * np.log(batch.policy)).sum(-1), batch.policy_mask
        ),
        "top1_agreement": mean(
            batch.policy[:, 0].argmax(-1) == log_policy[0].argmax(-1), batch.policy_mask[:, 0]
        ),
        "value_clamped_fraction": 1.0 / batch.value_mask.sum(),
        "reward_clamped_fraction": 0.0,
        "skipped_steps": 0.0,
    }
    for name, number in expected.items():
        assert metrics[name] == pytest.approx(number, rel=1e-4, abs=1e-6), name
    assert "reward_loss_step_1" in metrics and "reward_loss_step_0" not in metrics
    np.testing.assert_allclose(report.priorities, abs(root_error), rtol=1e-4, atol=1e-5)


def test_metrics_appear_at_their_interval(make_batch):
    learner = Learner(
        make_network(MLP, FLAT, 0), LearnerConfig(num_unroll_steps=3), metrics_interval=3
    )
    seen = ["value_error" in learner.step(make_batch(FLAT)).metrics for _ in range(7)]
    assert seen == [True, False, False, True, False, False, True]
    assert set(learner.step(make_batch(FLAT)).metrics) == {
        "loss",
        "gradient_norm",
        "learning_rate",
        "skipped_steps",
    }


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_a_step_that_is_not_finite_changes_nothing(make_batch, config, spec):
    learner = learner_of(config, spec, average_decay=0.5)
    for seed in range(2):
        learner.step(make_batch(spec, seed=seed))
    before, acting = learner.state()[0], learner.acting_weights()
    bad = make_batch(spec)
    bad.observation[2] = math.nan
    report = learner.step(bad)
    assert report.skipped and not math.isfinite(report.metrics["loss"])
    assert report.metrics["skipped_steps"] == 1.0
    assert_equal(learner.state()[0], before)
    assert_equal(learner.acting_weights(), acting)
    assert (learner.num_steps_done, learner.num_steps_skipped) == (3, 1)
    assert not learner.step(make_batch(spec)).skipped
    assert all(bool(v.isfinite().all()) for v in learner.state()[0].values())


def test_an_infinite_gradient_of_a_finite_loss_is_caught(make_batch):
    learner = learner_of()
    before = weights_of(learner)
    handle = learner.network.action.weight.register_hook(lambda gradient: gradient * math.inf)
    report = learner.step(make_batch(FLAT))
    handle.remove()
    assert report.skipped and math.isfinite(report.metrics["loss"])
    assert_equal(weights_of(learner), before)


def test_too_many_of_them_in_a_row_stop_the_run(make_batch):
    learner = learner_of(max_nonfinite_steps=3)
    good, bad = make_batch(FLAT), make_batch(FLAT)
    bad.observation[0, 0] = math.inf
    for batch in (bad, bad, good, bad, bad):
        learner.step(batch)
    before = weights_of(learner)
    with pytest.raises(TrainingDiverged) as error:
        learner.step(bad)
    text = str(error.value)
    assert "learner step 6: 3 steps in a row" in text
    assert "learner.learning_rate" in text and "observation from" in text and "to inf" in text
    assert_equal(weights_of(learner), before)
    assert learner.num_steps_skipped == 5


def test_targets_are_refused_before_anything_happens(make_batch):
    learner = learner_of()
    batch = make_batch(FLAT)
    batch.value[1, 2] = math.nan
    before = weights_of(learner)
    with pytest.raises(ValueError, match="the value target of a batch"):
        learner.step(batch)
    assert learner.num_steps_done == 0
    assert_equal(weights_of(learner), before)


def test_gradients_are_clipped_to_their_global_norm(make_batch):
    batch = make_batch(FLAT)
    settings = {"optimizer": "sgd", "weight_decay": 0.0, "schedule": "constant"}
    updates, norms = [], []
    for limit in (0.0, 1e-3):
        learner = learner_of(max_gradient_norm=limit, learning_rate=1.0, **settings)
        before = torch.cat([p.detach().flatten().clone() for p in learner.network.parameters()])
        norms.append(learner.step(batch).metrics["gradient_norm"])
        after = torch.cat([p.detach().flatten() for p in learner.network.parameters()])
        updates.append((before - after).norm().item())
    assert norms[0] == norms[1] == pytest.approx(updates[0], rel=1e-4)
    assert updates[1] == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_biases_and_norms_are_not_decayed(make_batch, optimizer):
    learner = learner_of(RESNET, BOARD, optimizer=optimizer, weight_decay=0.5, learning_rate=0.1)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.fill_(1.0)
    batch = make_batch(BOARD)
    for name in ("policy_mask", "value_mask", "reward_mask", "turn_mask"):
        getattr(batch, name).fill(0.0)
    learner.step(batch)
    for name, parameter in learner.network.named_parameters():
        if parameter.grad is None and name.startswith("simsiam"):
            continue
        decayed = bool((parameter < 1.0).all())
        assert decayed == (parameter.dim() > 1), name


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_bfloat16_trains_close_to_float32(make_batch, config, spec):
    losses = []
    for bfloat16 in (False, True):
        learner = learner_of(config, spec, bfloat16=bfloat16, learning_rate=0.001)
        for seed in range(5):
            report = learner.step(make_batch(spec, seed=seed))
        assert all(p.dtype == torch.float32 for p in learner.network.parameters())
        losses.append(report.metrics["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code
@pytest.mark.parametrize(("config", "spec"), CASES[:1])
def test_compiled_training_equals_plain_training(make_batch, config, spec):
    reports = []
    for compile_it in (False, True):
        learner = learner_of(config, spec, compile=compile_it)
        for seed in range(3):
            report = learner.step(make_batch(spec, seed=seed))
        reports.append(report)
    assert reports[1].metrics["loss"] == pytest.approx(reports[0].metrics["loss"], rel=1e-3)
    np.testing.assert_allclose(reports[1].priorities, reports[0].priorities, rtol=1e-2, atol=1e-3)


def test_what_the_batch_lacks_is_named(make_batch):
    with pytest.raises(ValueError, match="with_next_observation=True"):
        learner_of(consistency_loss_weight=1.0).step(make_batch(FLAT))
    with pytest.raises(ValueError, match="no target network"):
        learner_of().step(make_batch(FLAT, with_bootstrap=True))
    without = dataclasses.replace(MLP, projection_size=0)
    with pytest.raises(ValueError, match=r"network.projection_size"):
        learner_of(without, consistency_loss_weight=1.0).step(
            make_batch(FLAT, with_next_observation=True)
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_unroll_steps": 0}, "learner.num_unroll_steps is 0"),
        ({"optimizer": "rmsprop"}, "learner.optimizer is 'rmsprop'; choose one of adam"),
        ({"average_decay": 1.0}, "learner.average_decay is 1.0"),
        (
            {"target_network_interval": 0, "uses_target_network": True},
            "learner.target_network_interval is 0",
        ),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        learner_of(**settings)


def test_the_loss_of_the_report_is_the_loss(make_batch):
    learner = learner_of()
    batch = make_batch(FLAT)
    expected = compute_loss(learner.network, learner._inputs(batch), learner._weights).total.item()
    assert learner.step(batch).metrics["loss"] == expected


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_the_fused_update_equals_the_plain_one_whatever_the_layout(make_batch, optimizer):
    learner = learner_of(RESNET, BOARD, optimizer=optimizer, schedule="constant")
    learner.step(make_batch(BOARD))
    other = learner_of(RESNET, BOARD, optimizer=optimizer, schedule="constant")
    assert other.network.dynamics_input.conv.weight.is_contiguous(memory_format=torch.channels_last)
    inputs = other._inputs(make_batch(BOARD))
    compute_loss(other.network, inputs, other._weights).total.backward()
    gradients = {n: p.grad for n, p in other.network.named_parameters() if p.grad is not None}
    plain = make_network(RESNET, BOARD, 0)
    parameters = dict(plain.named_parameters())
    for name, gradient in gradients.items():
        parameters[name].grad = gradient.clone(memory_format=torch.contiguous_format)
    groups = [
        {"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": 1e-4},
        {"params": [p for p in parameters.values() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer]
    extra = {"momentum": 0.9} if optimizer == "sgd" else {}
    kind(groups, lr=0.01, foreach=False, **extra).step()
    for name, value in learner.network.named_parameters():
        torch.testing.assert_close(value, parameters[name], rtol=1e-5, atol=1e-6)
