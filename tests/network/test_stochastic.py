"""Networks with chance codes: the straight-through codes, and the unroll against one written step by step."""

import pytest
import torch
from torch.nn import functional as F

from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.network import NetworkSpec, make_network
from muzero.network.stochastic import StochasticNetwork, nearest_code

NUM_CODES = 6
CONFIGS = {
    "mlp": MLPConfig(latent_size=10, hidden_sizes=[16], num_chance_codes=NUM_CODES),
    "residual mlp": MLPConfig(
        latent_size=10, hidden_sizes=[16, 12], num_chance_codes=NUM_CODES, residual_dynamics=True
    ),
    "resnet": ResNetConfig(
        num_channels=4, num_blocks=1, head_hidden_size=8, num_chance_codes=NUM_CODES
    ),
}


def make(name: str, **changes) -> StochasticNetwork:
    spec = {"observation_shape": (2, 3, 3), "num_actions": 5, "num_players": 2, **changes}
    network = make_network(CONFIGS[name], NetworkSpec(has_turn_head=True, **spec), seed=1)
    assert isinstance(network, StochasticNetwork)
    return network


def shake(network: StochasticNetwork) -> None:
    """Random weights in place of the zeros that heads begin with."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def observations(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, 2, 3, 3, generator=torch.Generator().manual_seed(len(sizes)))


def test_the_nearest_code_is_one_hot_and_its_gradient_goes_straight_through() -> None:
    embedding = torch.tensor([[0.2, 0.9, -1.0], [3.0, 3.0, 0.0]], requires_grad=True)
    code = nearest_code(embedding)
    assert code.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]  # the lowest of two alike
    distance = (torch.eye(3)[None] - embedding[:, None]).square().sum(-1)
    assert distance.argmin(1).tolist() == code.argmax(1).tolist()
    weight = torch.tensor([[1.0, -2.0, 0.5], [4.0, 0.0, 7.0]])
    (code * weight).sum().backward()
    assert torch.equal(embedding.grad, weight)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_untrained_network_expects_all_codes_alike_and_nothing_else(name: str) -> None:
    network = make(name).eval()
    latent = network.represent(observations(4))
    afterstate = network.afterstate(latent, torch.arange(4))
    assert afterstate.shape == latent.shape == (4, *network.latent_shape)
    assert afterstate.amin() == 0.0 and afterstate.amax() == 1.0
    chance_logits, value_logits = network.predict_afterstate(afterstate)
    assert torch.equal(chance_logits, torch.zeros(4, NUM_CODES))
    assert torch.equal(network.value_support.decode(value_logits), torch.zeros(4))
    codes = F.one_hot(torch.arange(4), NUM_CODES).float()
    following, reward_logits, turn_logit = network.outcome(afterstate, codes)
    assert following.shape == latent.shape
    assert torch.equal(network.reward_support.decode(reward_logits), torch.zeros(4))
    assert turn_logit is not None and torch.equal(turn_logit, torch.zeros(4))
    # Codes tell states apart.
    same = network.outcome(afterstate[:1].expand_as(afterstate), codes)[0].flatten(1)
    assert torch.pdist(same).min() > 1e-3


@pytest.mark.parametrize("name", CONFIGS)
def test_the_encoder_measures_from_the_mean_and_sees_both_positions(name: str) -> None:
    network = make(name)
    shake(network)
    network.eval()
    before, after = observations(6), observations(6, 1).flatten(0, 1)
    embedding = network.encode(before, after)
    assert embedding.shape == (6, NUM_CODES)
    torch.testing.assert_close(embedding.mean(0), torch.zeros(NUM_CODES), atol=1e-5, rtol=0)
    for changed in (network.encode(before.flip(0), after), network.encode(before, after.flip(0))):
        assert (changed - embedding).abs().max() > 1e-2
    shift = network.embed(torch.cat((after - before, after), 1)) - embedding
    torch.testing.assert_close(shift, shift[:1].expand_as(shift))  # the mean, the same for all


def test_outcomes_have_different_codes_from_the_beginning() -> None:
    """Positions that differ in one cell of many, in untrained networks: without the mean taken off, most share a code."""
    apart = []
    for seed in range(10):
        spec = NetworkSpec(observation_shape=(40,), num_actions=2)
        config = MLPConfig(hidden_sizes=[32], num_chance_codes=16)
        network = make_network(config, spec, seed)
        assert isinstance(network, StochasticNetwork)
        before = (torch.arange(40) % 3 == 0).float().expand(8, 40)
        after = before + torch.eye(40)[1:24:3]
        with torch.no_grad():
            apart.append(len(set(network.encode(before, after).argmax(1).tolist())))
    assert min(apart) >= 3 and sum(apart) / 10 > 5


@pytest.mark.parametrize("name", CONFIGS)
def test_the_encoder_looks_at_nothing_but_what_chance_did_where_that_is_shown(name: str) -> None:
    network = make(name, observation_shape=(4, 3, 3), chance_channels=(1, 3))
    shake(network)
    network.eval()
    generator = torch.Generator().manual_seed(0)
    before, after = torch.randn(2, 6, 4, 3, 3, generator=generator)
    embedding = network.encode(before, after)
    assert embedding.shape == (6, NUM_CODES)
    other = after.clone()
    other[:, [0, 2]] = torch.randn(6, 2, 3, 3, generator=generator)
    assert torch.equal(network.encode(torch.zeros_like(before), other), embedding)
    for channel in (1, 3):
        other = after.clone()
        other[:, channel] = after[:, channel].flip(0)
        assert (network.encode(before, other) - embedding).abs().max() > 1e-2


@pytest.mark.parametrize("name", CONFIGS)
def test_the_unroll_is_that_of_the_paper_with_halved_gradients(name: str) -> None:
    """Step by step, in eval mode: batch norm then knows no batches, so the order of calls cannot matter."""
    network = make(name)
    shake(network)
    network.eval()
    observation, following = observations(3), observations(2, 3)
    action = torch.tensor([[0, 4, 2], [1, 1, 3]])

    def written_out() -> list[torch.Tensor]:
        latent, told = network.represent(observation), []
        seen = torch.stack([observation, following[0]]), following
        raw = network.embed(torch.cat((seen[1] - seen[0], seen[1]), 2).flatten(0, 1))
        embeddings = (raw - raw.mean(0)).unflatten(0, (2, 3))
        told += [latent, *network.predict(latent)]
        for k in range(2):
            embedding = embeddings[k]
            hard = F.one_hot(embedding.argmax(1), NUM_CODES).float()
            code = hard + embedding - embedding.detach()
            afterstate = network.afterstate(0.5 * latent + 0.5 * latent.detach(), action[k])
            told += [*network.predict_afterstate(afterstate), embedding]
            latent, reward_logits, turn_logit = network.outcome(afterstate, code)
            told += [reward_logits, turn_logit, latent, *network.predict(latent)]
        return told

    def unrolled() -> list[torch.Tensor]:
        out = network.unroll_codes(observation, action, following)
        told = [out.latents[0], out.policy_logits[0], out.value_logits[0]]
        for k in range(2):
            told += [out.chance.chance_logits[k], out.chance.afterstate_value_logits[k]]
            told += [out.chance.embedding[k], out.reward_logits[k], out.turn_logits[k]]
            told += [out.latents[k + 1], out.policy_logits[k + 1], out.value_logits[k + 1]]
            hard = F.one_hot(out.chance.embedding[k].argmax(1), NUM_CODES).float()
            assert torch.equal(out.chance.code[k], hard) and not out.chance.code.requires_grad
        return told

    gradients = []
    for told in (written_out, unrolled):
        network.zero_grad()
        answers = told()
        sum((i + 1) * torch.sin(3.0 * x).sum() for i, x in enumerate(answers)).backward()
        gradients.append(
            (answers, [p.grad.clone() for p in network.parameters() if p.grad is not None])
        )
    for ours, theirs in zip(*gradients, strict=True):
        for left, right in zip(ours, theirs, strict=True):
            torch.testing.assert_close(left, right, rtol=2e-3, atol=2e-4)
    assert len(gradients[0][1]) > 10


@pytest.mark.parametrize("name", CONFIGS)
def test_one_step_takes_the_most_likely_code(name: str) -> None:
    network = make(name)
    shake(network)
    network.eval()
    latent, action = network.represent(observations(4)), torch.tensor([0, 1, 2, 3])
    afterstate = network.afterstate(latent, action)
    likely = network.predict_afterstate(afterstate)[0].argmax(1)
    expected = network.outcome(afterstate, F.one_hot(likely, NUM_CODES).float())
    for ours, theirs in zip(network.step(latent, action), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_folding_changes_no_answer() -> None:
    network = make("resnet")
    shake(network)
    following, action = observations(2, 8), torch.zeros(2, 8, dtype=torch.int64)
    network.train().unroll_codes(
        observations(8), action, following
    )  # moves the batch norms' statistics
    network.eval()
    with torch.no_grad():
        before = network.unroll_codes(observations(8), action, following)
        network.prepare_inference()
        after = network.unroll_codes(observations(8), action, following)
    torch.testing.assert_close(before.latents, after.latents, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(before.chance[0], after.chance[0], rtol=1e-4, atol=1e-5)


def test_a_single_code_is_refused() -> None:
    with pytest.raises(ValueError, match=r"network\.num_chance_codes is 1; use at least 2"):
        make_network(
            MLPConfig(num_chance_codes=1),
            NetworkSpec(observation_shape=(3,), num_actions=2),
            seed=0,
        )
