import dataclasses
import math

import pytest
import torch
from torch import Tensor

from muzero.config.networks import MLPConfig, NetworkConfig, ResNetConfig
from muzero.network import MuZeroNetwork, NetworkSpec, Support, make_network

FLAT = NetworkSpec(observation_shape=(5,), num_actions=3)
BOARD = NetworkSpec(observation_shape=(2, 3, 4), num_actions=12, num_players=2)
IMAGE = NetworkSpec(observation_shape=(4, 84, 84), observation_scale=1 / 255, num_actions=6)
SMALL = {"value_support_size": 5, "reward_support_size": 3}


def mlp(**settings) -> MLPConfig:
    return MLPConfig(**{"latent_size": 8, "hidden_sizes": [16], **SMALL, **settings})


def resnet(**settings) -> ResNetConfig:
    small = {"num_channels": 8, "num_blocks": 1, "head_channels": 2, "head_hidden_size": 6}
    return ResNetConfig(**{**small, **SMALL, **settings})


CASES = [
    (mlp(), FLAT),
    (mlp(), BOARD),
    (mlp(hidden_sizes=[16, 12]), dataclasses.replace(BOARD, has_turn_head=True)),
    (mlp(residual_dynamics=True), FLAT),
    (resnet(), BOARD),
    (resnet(norm="group"), dataclasses.replace(BOARD, has_turn_head=True)),
    (resnet(downsample=16), IMAGE),
]


def shaken(config: NetworkConfig, spec: NetworkSpec) -> MuZeroNetwork:
    """A network whose heads no longer read 0, with norm statistics of its own."""
    network = make_network(config, spec, 0)
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    for _ in range(2):
        network.unroll(observations(spec, 16), torch.arange(32).view(2, 16) % spec.num_actions)
    return network


def observations(spec: NetworkSpec, number: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (number, *spec.observation_shape), generator=generator).to(
        torch.uint8
    )


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_outputs_have_the_declared_shapes_and_ranges(config, spec):
    network = make_network(config, spec, 0)
    root = network.initial_inference(observations(spec, 4))
    step = network.recurrent_inference(root.latent, torch.tensor([0, 1, 2, 0]))
    assert root.reward_logits is None and root.turn_logit is None
    for output in (root, step):
        assert output.latent.shape == (4, *network.latent_shape)
        assert output.value_logits.shape == (4, 5)
        assert output.policy_logits.shape == (4, spec.num_actions)
        assert output.latent.flatten(1).amin(1).tolist() == [0.0] * 4
        assert output.latent.flatten(1).amax(1).tolist() == [1.0] * 4
    assert step.reward_logits.shape == (4, 3)
    assert (step.turn_logit is not None) == spec.has_turn_head


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_an_untrained_network_knows_nothing(config, spec):
    network = make_network(config, spec, 3)
    root = network.initial_inference(observations(spec, 4))
    step = network.recurrent_inference(root.latent, torch.tensor([0, 1, 2, 0]))
    assert network.value_support.decode(root.value_logits).tolist() == [0.0] * 4
    assert network.reward_support.decode(step.reward_logits).tolist() == [0.0] * 4
    assert root.policy_logits.count_nonzero() == 0


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_a_state_does_not_depend_on_the_others_of_the_batch(config, spec):
    network = shaken(config, spec).eval()
    batch = observations(spec, 6)
    action = torch.arange(6) % spec.num_actions
    together = network.recurrent_inference(network.represent(batch), action)
    for row in range(6):
        one = slice(row, row + 1)
        alone = network.recurrent_inference(network.represent(batch[one]), action[one])
        for a, b in zip(together, alone, strict=True):
            if a is not None:
                torch.testing.assert_close(a[one], b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_every_parameter_is_trained_and_actions_matter(config, spec):
    network = shaken(config, spec)
    unrolled = network.unroll(observations(spec, 8), torch.arange(16).view(2, 8) % spec.num_actions)
    sum(part.square().sum() for part in unrolled if part is not None).backward()
    idle = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []
    latent = network.eval().represent(observations(spec, 1)).expand(2, *network.latent_shape)
    following = network.step(latent, torch.tensor([0, 1]))[0]
    assert not torch.allclose(following[0], following[1], atol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_sizes": [16], "latent_size": 24},
        {"hidden_sizes": [24, 20], "latent_size": 9, "residual_dynamics": True},
    ],
)
@pytest.mark.parametrize("has_turn_head", [False, True])
def test_the_fused_unroll_equals_the_plain_one(settings, has_turn_head):
    spec = dataclasses.replace(BOARD, has_turn_head=has_turn_head)
    network = shaken(mlp(**settings), spec)
    observation = observations(spec, 16).float() / 255.0
    action = torch.randint(0, spec.num_actions, (4, 16))
    generator = torch.Generator().manual_seed(5)
    results = []
    for unroll in (type(network).unroll, MuZeroNetwork.unroll):
        network.zero_grad()
        unrolled = unroll(network, observation, action)
        generator.manual_seed(5)
        sum(
            (part * torch.randn(part.shape, generator=generator)).sum()
            for part in unrolled
            if part is not None
        ).backward()
        results.append((unrolled, [p.grad.clone() for p in network.parameters()]))
    (fused, fused_gradients), (plain, plain_gradients) = results
    for a, b in zip(fused, plain, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(fused_gradients, plain_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * float(b.abs().max()))


@pytest.mark.parametrize(
    ("config", "spec", "num_parameters"),
    [
        # h 5*16+16 + 16*8+8; actions 3*16; g 8*16+16 + 16*11+11; f 8*16+16 + 16*8+8
        (mlp(), FLAT, 232 + 48 + 331 + 280),
        # A second layer 16*12+12 in each of h, g, f, and 4 inputs fewer per output: 8 + 11 + 8 outputs.
        (mlp(hidden_sizes=[16, 12]), FLAT, 891 + 3 * 204 - 4 * 27),
        # h 2*8*9+16 and a block 2*(8*8*9+16); g 9*8*9+16 and a block; three heads 8*2+4 + 24*6+6 + 7*outputs
        (resnet(), BOARD, (160 + 1184) + (664 + 1184) + 3 * 170 + 7 * (3 + 12 + 5)),
        (resnet(num_blocks=2), BOARD, 3842 + 2 * 1184),
        (resnet(num_blocks=2, num_dynamics_blocks=1), BOARD, 3842 + 1184),
        (resnet(norm="none"), BOARD, 3842 - 6 * 8 - 3 * 2),  # a bias instead of scale and shift
    ],
)
def test_parameter_counts(config, spec, num_parameters):
    assert make_network(config, spec, 0).num_parameters() == num_parameters


@pytest.mark.parametrize(
    "changed",
    [
        resnet(num_channels=12),
        resnet(num_blocks=2),
        resnet(num_dynamics_blocks=0),
        resnet(downsample=2),
        resnet(head_channels=3),
        resnet(head_hidden_size=7),
        resnet(norm="group"),
        resnet(norm="none"),
        resnet(projection_size=4),
        resnet(turn_head=True),
        resnet(value_support_size=7),
        resnet(reward_support_size=5),
        mlp(latent_size=9),
        mlp(hidden_sizes=[17]),
        mlp(hidden_sizes=[16, 16]),
        mlp(residual_dynamics=True),
        mlp(projection_size=4),
        mlp(turn_head=True),
    ],
)
def test_every_option_changes_the_network(changed):
    default = mlp() if isinstance(changed, MLPConfig) else resnet()
    networks = [shaken(config, BOARD).eval() for config in (default, changed)]
    if networks[0].num_parameters() == networks[1].num_parameters():
        outputs = [
            network.recurrent_inference(
                network.represent(observations(BOARD, 2)), torch.tensor([0, 1])
            )
            for network in networks
        ]
        assert outputs[0].latent.shape != outputs[1].latent.shape or not torch.allclose(
            outputs[0].latent, outputs[1].latent, atol=1e-3
        )


def test_initialisation_follows_the_seed_and_leaves_the_global_generator_alone():
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    first, same, other = (make_network(resnet(), BOARD, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    weights = [torch.cat([p.flatten() for p in n.parameters()]) for n in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_observations_are_scaled():
    network = shaken(mlp(), dataclasses.replace(FLAT, observation_scale=0.5)).eval()
    plain = make_network(mlp(), FLAT, 0).eval()
    plain.load_state_dict(network.state_dict())
    observation = observations(FLAT, 3).float()
    assert torch.allclose(network.represent(observation), plain.represent(observation * 0.5))


def test_atari_latents_are_six_by_six():
    assert make_network(resnet(downsample=16), IMAGE, 0).latent_shape == (8, 6, 6)
    for factor, side in ((1, 84), (2, 42), (4, 21), (8, 11)):
        network = make_network(resnet(downsample=factor), IMAGE, 0)
        assert network.latent_shape == (8, side, side)
        assert network.represent(observations(IMAGE, 1)).shape == (1, 8, side, side)


@pytest.mark.parametrize("config", [mlp(projection_size=6), resnet(projection_size=6)])
def test_projection_and_predictor(config):
    network = make_network(config, BOARD, 0)
    latent = network.represent(observations(BOARD, 3))
    projected, predicted = (network.project(latent, with_predictor=p) for p in (False, True))
    assert projected.shape == predicted.shape == (3, 6)
    assert not torch.allclose(projected, predicted)


@pytest.mark.parametrize("config", [mlp(), resnet()])
def test_a_missing_projection_is_named(config):
    network = make_network(config, BOARD, 0)
    with pytest.raises(ValueError, match=r"network.projection_size"):
        network.project(network.represent(observations(BOARD, 2)), with_predictor=False)


@pytest.mark.parametrize(
    ("config", "spec", "setting"),
    [
        (mlp(value_support_size=4), FLAT, "network.value_support_size is 4"),
        (mlp(reward_support_size=1), FLAT, "network.reward_support_size is 1"),
        (mlp(value_support_max=-1.0), FLAT, "network.value_support_max"),
        (mlp(reward_support_max=math.nan), FLAT, "network.reward_support_max"),
        (mlp(hidden_sizes=[]), FLAT, "network.hidden_sizes"),
        (mlp(latent_size=0), FLAT, "network.latent_size"),
        (mlp(turn_head=True), FLAT, "network.turn_head"),
        (
            mlp(turn_head=False),
            dataclasses.replace(BOARD, has_turn_head=True),
            "network.turn_head",
        ),
        (resnet(), FLAT, r"needs observations \[channels, height, width\]"),
        (resnet(downsample=3), BOARD, "network.downsample is 3"),
        (resnet(norm="layer"), BOARD, "network.norm is 'layer'"),
        (resnet(num_dynamics_blocks=-1), BOARD, "network.num_dynamics_blocks"),
        (NetworkConfig(kind="transformer"), BOARD, "network.kind is 'transformer'"),
    ],
)
def test_settings_that_do_not_fit_are_named(config, spec, setting):
    with pytest.raises(ValueError, match=setting):
        make_network(config, spec, 0)


def test_all_problems_are_told_together():
    with pytest.raises(ValueError) as error:
        make_network(mlp(latent_size=0, value_support_size=4), FLAT, 0)
    assert len(str(error.value).splitlines()) == 2


class Linear(MuZeroNetwork):
    """Latent `w o`, dynamics `d s`, and all heads read the latent itself."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = FLAT
        self.value_support = self.reward_support = Support(1.0, 3, transform=False)
        self.latent_shape = (1,)
        self.w = torch.nn.Parameter(torch.tensor(2.0))
        self.d = torch.nn.Parameter(torch.tensor(3.0))

    def represent(self, observation: Tensor) -> Tensor:
        return self.w * observation

    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        following = self.d * latent
        return following, following, None

    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        return latent, latent

    def project(self, latent: Tensor, with_predictor: bool) -> Tensor:
        return latent


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_a_gradient_from_k_steps_ahead_is_halved_k_times(k):
    network = Linear()
    unrolled = network.unroll(torch.tensor([[5.0]]), torch.zeros(3, 1, dtype=torch.int64))
    unrolled.value_logits[k].sum().backward()
    assert unrolled.latents[k].item() == 5.0 * 2.0 * 3.0**k
    assert network.w.grad.item() == 5.0 * 3.0**k * 0.5**k
    # d of the last call sees the whole gradient, the one before it half, and so on.
    expected = sum(10.0 * 3.0 ** (k - 1) * 0.5**i for i in range(k))
    assert (network.d.grad.item() if k > 0 else 0.0) == expected


def test_heads_of_all_steps_add_up_without_halving_each_other():
    network = Linear()
    unrolled = network.unroll(torch.tensor([[1.0]]), torch.zeros(2, 1, dtype=torch.int64))
    (unrolled.policy_logits.sum() + unrolled.reward_logits.sum()).backward()
    # Step 0 counts once (policy), steps 1 and 2 twice (policy and reward).
    assert network.w.grad.item() == 1.0 + 2.0 * 3.0 * 0.5 + 2.0 * 9.0 * 0.25
