"""Self-supervised consistency of unrolled latents (SimSiam in EfficientZero). Letters: `B` positions, `P` width."""

from torch import Tensor, nn
from torch.nn import functional as F


class SimSiam(nn.Module):
    """Projection P1 and predictor P2 of a flattened latent."""

    def __init__(self, latent_size: int, projection_size: int, norm: str):
        super().__init__()
        width = projection_size

        def normalised() -> nn.Module:
            return nn.BatchNorm1d(width) if norm == "batch" else nn.LayerNorm(width)

        self.projection = nn.Sequential(
            nn.Linear(latent_size, width),
            normalised(),
            nn.ReLU(),
            nn.Linear(width, width),
            normalised(),
        )
        # The predictor's bottleneck keeps the two views from collapsing (SimSiam, section 4.2).
        narrow = max(width // 2, 1)
        self.predictor = nn.Sequential(
            nn.Linear(width, narrow), nn.ReLU(), nn.Linear(narrow, width)
        )

    def forward(self, latent: Tensor, with_predictor: bool) -> Tensor:
        """`[B, *L]` -> `[B, P]`."""
        projected = self.projection(latent.flatten(1))
        return self.predictor(projected) if with_predictor else projected


def negative_cosine(prediction: Tensor, target: Tensor) -> Tensor:
    """`-cos(prediction, target)` of `[..., P]`, between -1 and 1; no gradient flows into `target`."""
    return -F.cosine_similarity(prediction.float(), target.detach().float(), dim=-1, eps=1e-8)


def refuse_projection() -> Tensor:
    """Raise: the network has no projection."""
    raise ValueError(
        "the network has no projection: set network.projection_size above 0, or learner.consistency_loss_weight to 0"
    )
