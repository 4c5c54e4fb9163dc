"""Scalars as categorical distributions over a support (MuZero, appendix F).

A scalar is squashed by `h`, then spread over the two nearest of `S` evenly spaced atoms (two-hot). Reading a
head back is the expectation over the atoms, then the inverse of `h`. Letters: `S` atoms.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from muzero.network.kernels import EPSILON


def squash(x: Tensor) -> Tensor:
    """`h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x` (Pohlen et al., proposition A.2)."""
    # sqrt(a + 1) - 1 cancels near 0 (6 % off at 1e-4 in float32); a / (sqrt(a + 1) + 1) is the same number without it.
    size = x.abs()
    return x.sign() * (size / ((size + 1.0).sqrt() + 1.0) + EPSILON * size)


def unsquash(y: Tensor) -> Tensor:
    """The inverse of `squash`, exact to float32 rounding (the textbook form loses all digits near 0)."""
    size = y.abs()
    root = (1.0 + 4.0 * EPSILON * (size + (1.0 + EPSILON))).sqrt()
    d = 2.0 * size / (root + (1.0 + 2.0 * EPSILON))
    return y.sign() * d * (d + 2.0)


def require_finite(values: npt.NDArray[np.floating], name: str) -> None:
    """Raise ValueError that names `name` and the first bad entry if `values` holds a NaN or an infinity."""
    # The sum is finite unless an entry is not (or float32 overflows): one pass instead of a mask for the usual case.
    if np.isfinite(values.sum(dtype=np.float64)):
        return
    bad = np.argwhere(~np.isfinite(values))
    where = tuple(int(i) for i in bad[0])
    raise ValueError(
        f"{name} has {len(bad)} entries that are not finite (first: {values[where]} at {where}); a distribution over "
        f"the support cannot hold them: look for the reward or search value that they came from"
    )


@dataclass(frozen=True, slots=True)
class Support:
    """`size` atoms, evenly spaced over `[-max, max]` in transformed units."""

    max: float
    """Last atom, in transformed units if `transform` is on."""
    size: int
    """Number of atoms `S`, odd, so that 0 is one of them."""
    transform: bool = True
    """Whether scalars are squashed by `h` first."""

    def __post_init__(self) -> None:
        if not (self.max > 0.0 and np.isfinite(self.max)):
            raise ValueError(f"support max is {self.max}; it has to be a positive number")
        if self.size < 3 or self.size % 2 == 0:
            raise ValueError(
                f"support size is {self.size}; it has to be odd (so that 0 is an atom) and at least 3"
            )

    @property
    def half(self) -> int:
        """Atoms on either side of 0."""
        return self.size // 2

    @property
    def atom_width(self) -> float:
        """Distance of two atoms, in transformed units."""
        return self.max / self.half

    @property
    def largest(self) -> float:
        """Largest scalar that the support holds; the smallest is its negative."""
        if not self.transform:
            return self.max
        return float(unsquash(torch.tensor(self.max, dtype=torch.float64)))

    def to_atoms(self, x: Tensor) -> Tensor:
        """Scalars of any shape -> positions on the support in atoms from its middle, not clamped."""
        return (squash(x) if self.transform else x) * (1.0 / self.atom_width)

    def from_atoms(self, position: Tensor) -> Tensor:
        """The inverse of `to_atoms`."""
        scaled = position * self.atom_width
        return unsquash(scaled) if self.transform else scaled

    def locate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scalars of any shape -> index of the lower atom (int64, at most `S - 2`) and the upper atom's share.

        Scalars beyond the support are clamped to its ends. A NaN gets a valid index and a NaN share: it reaches the
        loss, where it is caught, and never an index.
        """
        # Measured from the middle atom: h(1e-4) + 300 would round away half of its digits.
        position = self.to_atoms(x.float()).clamp(-self.half, self.half)
        lower = position.floor().clamp(max=self.half - 1)
        index = lower.nan_to_num(0.0).to(torch.int64) + self.half
        return index, position - lower

    def encode(self, x: Tensor, name: str = "target") -> Tensor:
        """Scalars `[...]` -> two-hot distributions `[..., S]` that sum to 1.

        Raises ValueError that names `name` if a scalar is NaN or infinite; clamps what lies beyond the support.
        """
        require_finite(x.detach().cpu().numpy(), name)
        return self.two_hot(x)

    def two_hot(self, x: Tensor) -> Tensor:
        """`encode` without the check, for scalars known to be finite."""
        index, share = self.locate(x)
        distribution = torch.zeros(*x.shape, self.size, dtype=torch.float32, device=x.device)
        distribution.scatter_(-1, index.unsqueeze(-1), (1.0 - share).unsqueeze(-1))
        return distribution.scatter_(-1, index.unsqueeze(-1) + 1, share.unsqueeze(-1))

    def decode(self, logits: Tensor) -> Tensor:
        """Logits `[..., S]` -> scalars `[...]`, in float32 whatever the logits' type; exactly 0 for equal logits."""
        logits = logits.float()
        weights = (logits - logits.amax(-1, keepdim=True)).exp()
        # Equal weights are 1.0 here, so the sum over integer atoms is exact in any order, and 0.
        atoms = torch.arange(-self.half, self.half + 1, dtype=torch.float32, device=logits.device)
        return self.from_atoms(weights @ atoms / weights.sum(-1))

    def is_clamped(self, x: Tensor) -> Tensor:
        """Which scalars lie beyond the support (bool, same shape)."""
        # An outcome of exactly `largest` may come out of h a rounding error above the last atom.
        return self.to_atoms(x.float()).abs() > self.half * (1.0 + 1e-5)
