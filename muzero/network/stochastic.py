"""Networks with chance codes (Stochastic MuZero; Antonoglou et al., ICLR 2022).

Letters: `B` positions, `A` actions, `M` chance codes, `S` atoms, `*O` observation shape, `*L` latent shape, `K` unrolled steps,
`E` channels that the encoder is shown.
"""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from muzero.network.base import ChanceUnrolled, MuZeroNetwork, NetworkSpec, Unrolled
from muzero.network.layers import halve_gradient


def num_encoder_channels(spec: NetworkSpec) -> int:
    """`E`, channels or features that the encoder is shown; see `StochasticNetwork.encode`."""
    return len(spec.chance_channels) or 2 * spec.observation_shape[0]


def nearest_code(embedding: Tensor) -> Tensor:
    """Embeddings `[..., M]` -> the nearest code, one-hot, of the same shape; the lowest of several.

    The codebook is fixed: its entries are the unit vectors, so the nearest of them is that of the largest entry. The
    gradient goes straight through: that of the code is taken for that of the embedding (VQ-VAE).
    """
    code = F.one_hot(embedding.argmax(-1), embedding.shape[-1]).to(embedding.dtype)
    # The difference is 0 exactly, so the code stays exactly one-hot.
    return code + (embedding - embedding.detach())


class StochasticNetwork(MuZeroNetwork):
    """h and f of MuZero, the afterstate dynamics phi and prediction psi, the dynamics g and the encoder e (section 4).

    An action leads from a state to an afterstate, `as = phi(s, a)`; a code drawn from `sigma` leads on from there,
    `s', r = g(as, c)`, where `sigma, Q = psi(as)`. States and afterstates have one shape. Which code a transition had, the
    encoder tells: in training it sees what came.
    """

    num_chance_codes: int
    """`M`."""

    @abstractmethod
    def afterstate(self, latent: Tensor, action: Tensor) -> Tensor:
        """phi: latent `[B, *L]` and action `[B]` (int64) -> afterstate `[B, *L]`, scaled to [0, 1]."""

    @abstractmethod
    def predict_afterstate(self, afterstate: Tensor) -> tuple[Tensor, Tensor]:
        """psi: afterstate `[B, *L]` -> chance logits `[B, M]` of sigma, value logits `[B, S_v]` of Q, seen by who acted."""

    @abstractmethod
    def outcome(self, afterstate: Tensor, code: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """g: afterstate `[B, *L]` and one-hot code `[B, M]` -> next latent, reward logits `[B, S_r]`, turn logit `[B]` or None."""

    @abstractmethod
    def embed(self, seen: Tensor) -> Tensor:
        """The tower of the encoder: what it is shown of two positions in a row, `[B, E, ...]` -> `[B, M]`; see `encode`."""

    def encode(self, before: Tensor, after: Tensor) -> Tensor:
        """e: observations `[B, *O]` of two positions in a row, in floating point -> embeddings `[B, M]` of what chance did.

        The encoder sees what changed and what it came to, or, where the environment shows what chance did apart
        (`NetworkSpec.chance_channels`), that of `after` alone: beside a move that changes much, dice go unnoticed.
        `after` is zero where the game ended instead. The embeddings are measured from their mean over the `B` pairs: what all
        have in common, from the beginning or by the gradient of all of them together, would give them one code, which
        training hardly parts again.
        """
        chance = list(self.spec.chance_channels)
        embedding = self.embed(
            after[:, chance] if chance else torch.cat((after - before, after), 1)
        )
        return embedding - embedding.mean(0)

    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """phi, then g with sigma's most likely code: one future of several, where only one is asked for."""
        afterstate = self.afterstate(latent, action)
        chance_logits, _ = self.predict_afterstate(afterstate)
        return self.outcome(afterstate, nearest_code(chance_logits))

    def unroll_codes(self, observation: Tensor, action: Tensor, following: Tensor) -> Unrolled:
        """`unroll` along the codes of what came: observations `[B, *O]`, actions `[K, B]`, those after them `[K, B, *O]`.

        `following` is zero behind an end. psi and f run once over all steps. Gradients are halved on the way from a step of the
        environment into the latent before it, as in `unroll`; the codes' own go to the encoder unhalved.
        """
        observation = observation.to(following.dtype)
        before = torch.cat((observation.unsqueeze(0), following[:-1]))
        steps = action.shape
        embedding = self.encode(before.flatten(0, 1), following.flatten(0, 1)).unflatten(0, steps)
        code = nearest_code(embedding)
        latent = self.represent(observation)
        latents, afterstates, rewards, turns = [latent], [], [], []
        for step_action, step_code in zip(action, code, strict=True):
            afterstate = self.afterstate(halve_gradient(latent), step_action)
            latent, reward_logits, turn_logit = self.outcome(afterstate, step_code)
            afterstates.append(afterstate)
            latents.append(latent)
            rewards.append(reward_logits)
            if turn_logit is not None:
                turns.append(turn_logit)
        stacked = torch.stack(latents)
        policy_logits, value_logits = self.predict(stacked.flatten(0, 1))
        chance_logits, afterstate_value_logits = self.predict_afterstate(torch.cat(afterstates))
        return Unrolled(
            stacked,
            policy_logits.unflatten(0, stacked.shape[:2]),
            value_logits.unflatten(0, stacked.shape[:2]),
            torch.stack(rewards),
            torch.stack(turns) if turns else None,
            ChanceUnrolled(
                chance_logits.unflatten(0, steps),
                afterstate_value_logits.unflatten(0, steps),
                embedding,
                code.detach(),
            ),
        )
