"""Lower bounds on distances from products in low precision, with the proof.

Let x and q be a row and a query as stored in float32, and

    X = s (x - c),  Q = s (q - c)      c the rows' mean in float64, s a power of two that brings the
                                       largest |x_j - c_j| to at most 2^15
    τ(x, q) = |X|²/2 - X·Q             = (s² |x - q|² - |Q|²) / 2, which ranks the rows for a query

The proof holds for any c and s. A query far outside the rows is scaled down by its own power of two
σ, which scales τ by the same factor.

**Rounding the factors.** x̃ and q̃ are X and σQ rounded to the filter's precision, by any rule: we
measure the loss in float64 and keep it, |X - x̃| <= e_x and |σQ - q̃| <= e_q. As
X·σQ = x̃·q̃ + (X - x̃)·σQ + x̃·(σQ - q̃),

    |X·σQ - x̃·q̃| <= e_x σ|Q| + |x̃| e_q.                                                     (1)

All factors are 0 or between 2^-60 and 2^15 in size and never denormal, so that no product of two
overflows, underflows or is flushed; those of fp16 and bf16 are exact in float32.

**Adding up.** The search computes, for a block b of rows,

    m = fl( min over x in b of (h σ - Σ_j x̃_j q̃_j)  -  E_b n  -  N_b g )

with four kinds of numbers prepared below. A tensor core adds the products of a step and the sum so
far at the scale of the largest of them and truncates the digits below, at or below 2^-23 of it;
each of k + 1 terms of a step loses at most that, and the normalized result once more. All largest
terms are at most S = h σ + Σ_j |x̃_j q̃_j| + E_b n + N_b g, and with k >= 4 the loss is less than
1.5 units of 2^-23 per term. Plain float32, in any order and fused or not, loses 2^-24 per
operation. Both are covered by γ S with γ = (d + 40) u / (1 - (d + 40) u) and u = 2^-22, a third
more than needed; eight of the forty are the terms besides the products and the roundings of the
products, E_b n and N_b g. The other 32 let a search put a number of five bits in place of the last
bits of a result, twice: each time it changes by less than 2^-18 = 16 u of itself. By Cauchy and
Schwarz Σ_j |x̃_j q̃_j| <= |x̃||q̃|. Rounding is monotone, so we may take the minimum before the last
two subtractions, and for every row x of the block

    m <= h σ (1 + γ) - x̃·q̃ + γ |x̃||q̃| - (1 - γ) (E_b n + N_b g).                            (2)

Choosing

    h   <= |X|²/2 / (1 + γ)          E_b >= e_x / (1 - γ)        n >= σ|Q|
                                     N_b >= |x̃| / (1 - γ)        g >= e_q + γ |q̃|

for all rows of the block makes the right side of (2) at most σ|X|²/2 - x̃·q̃ - e_x σ|Q| - |x̃| e_q,
and by (1) that is at most σ τ(x, q). So m <= σ τ for each row of the block. Sorting the rows of a
class by |X| makes the rows of a block similar, so that the maxima E_b and N_b fit each of them.

**Limits.** A row at a distance of at most D in float64 has σ τ <= σ (s² D² - |Q|²) / 2, so a block
with m above that has no such row. We round the limit up and add the possible loss by float64 and
underflow (SLACK per feature, relative to each term, and UNDERFLOW per operation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Filter = Literal["fp16", "bf16", "float32"]

UNIT = 2.0**-22
TERMS = 40  # besides the products
LAST_BITS = 5  # of a result that may name something
SLACK = 2.0**-50
UNDERFLOW = 2.0**-120
TOP_EXPONENT = 15
FAR_EXPONENT = 80  # of a query: too far away for float32, so nothing is ruled out
SMALLEST_FACTOR: dict[Filter, float] = {"fp16": 2.0**-14, "bf16": 2.0**-60, "float32": 2.0**-60}
PADDING = torch.finfo(torch.float32).max
"""The h of what is no row: h σ is far above any row's, and finite: its last bits are free."""


@dataclass(frozen=True)
class Frame:
    """The shift and scale of an index: center of shape (n_features,) in float64, a power of two."""

    center: Tensor
    scale: float
    filter: Filter

    @property
    def error(self) -> float:
        """γ, or 0 if the bounds are not used."""
        terms = (len(self.center) + TERMS) * UNIT
        return terms / (1 - terms) if self.is_trusted else 0.0

    @property
    def is_trusted(self) -> bool:
        """Whether the bounds are useful: with several hundred thousand features they are not."""
        return (len(self.center) + TERMS) * UNIT < 2.0**-4

    @property
    def slack(self) -> float:
        return (len(self.center) + 64) * SLACK

    @property
    def constants_of_limits(self) -> tuple[float, float, float]:
        """The factors of D² and of |Q|²/2 in a limit, and what underflow may cost."""
        underflow = (len(self.center) + 8) * UNDERFLOW
        return 0.5 * self.scale**2 * (1 + self.slack), 1 - self.slack, underflow

    def place(self, points: Tensor) -> Tensor:
        """X of points, of the same shape, in float64: off by less than 2^-52 of each coordinate."""
        return (points.double() - self.center) * self.scale

    def bound_rows(self, rows: Tensor, is_row: Tensor) -> RowBounds:
        """The numbers of rows of shape (..., n_features); padding, not `is_row`, is never near."""
        placed = torch.where(is_row[..., None], self.place(rows), 0.0)
        low = round_factors(placed, self.filter)
        squared = placed.square().sum(-1)
        lost = torch.linalg.vector_norm(placed - low.double(), dim=-1) + 2.0**-52 * squared.sqrt()
        kept = torch.linalg.vector_norm(low.double(), dim=-1)
        half_norms = squared / 2 * (1 - self.slack) / (1 + self.error)
        worse = (1 + self.slack) / (1 - self.error)
        return RowBounds(
            low=low,
            half_norms=torch.where(is_row, _rounded_down(half_norms), PADDING),
            losses=_rounded_up(lost * worse),
            lengths=_rounded_up(kept * worse),
        )

    def bound_queries(self, queries: Tensor) -> QueryBounds:
        """The numbers of queries, a tensor of shape (n_queries, n_features)."""
        placed = self.place(queries)
        largest = placed.abs().amax(1) if placed.shape[1] else placed.new_zeros(len(placed))
        exponent = torch.frexp(largest).exponent
        far = exponent > FAR_EXPONENT
        scales = _power_of_two(torch.where(far, 0, (TOP_EXPONENT - exponent).clamp(max=0)))
        scaled = torch.where(far[:, None], 0.0, placed) * scales[:, None]
        low = round_factors(scaled, self.filter)
        norm = torch.linalg.vector_norm(scaled, dim=1)
        lost = torch.linalg.vector_norm(scaled - low.double(), dim=1) + 2.0**-52 * norm
        kept = torch.linalg.vector_norm(low.double(), dim=1)
        whole = placed.square().sum(1)
        return QueryBounds(
            frame=self,
            low=low,
            scales=scales.float(),
            norms=_rounded_up(norm * (1 + self.slack)),
            errors=_rounded_up((lost + self.error * kept) * (1 + self.slack)),
            half_norms=torch.where(far | (not self.is_trusted), -torch.inf, whole / 2),
        )


@dataclass(frozen=True)
class RowBounds:
    """Numbers of rows: x̃ as low, h as half_norms, e_x/(1-γ) as losses and |x̃|/(1-γ) as lengths.

    low: of shape (..., n_features), the rest of shape (...) in float32.
    """

    low: Tensor
    half_norms: Tensor
    losses: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class QueryBounds:
    """Numbers of queries: q̃ as low, σ as scales, n as norms and g as errors.

    low: of shape (n_queries, n_features); scales, norms, errors: (n_queries,) in float32;
    half_norms: |Q|²/2, of shape (n_queries,) in float64, or -inf for a query without bounds: its
    limits are inf.
    """

    frame: Frame
    low: Tensor
    scales: Tensor
    norms: Tensor
    errors: Tensor
    half_norms: Tensor

    def to_limits(self, distances: Tensor) -> Tensor:
        """The largest bounds that rows at these distances can have: (..., n_queries), float32."""
        per_distance, per_norm, underflow = self.frame.constants_of_limits
        reach = per_distance * distances.square()
        limits = (reach - per_norm * self.half_norms) * self.scales.double() + underflow
        return torch.nextafter(limits.float(), torch.full((), torch.inf, device=limits.device))


def make_frame(rows: Tensor, filter: Filter) -> Frame:
    """A frame for rows, a float32 tensor of shape (n_rows, n_features) on a device with float64."""
    if rows.numel() == 0:
        return Frame(rows.new_zeros(rows.shape[1], dtype=torch.float64), 1.0, filter)
    center = rows.sum(0, dtype=torch.float64) / len(rows)
    highest, lowest = rows.amax(0).double(), rows.amin(0).double()
    largest = torch.maximum(highest - center, center - lowest).amax()
    exponent = int(torch.frexp(largest).exponent)
    return Frame(center, 2.0 ** (TOP_EXPONENT - exponent) if largest > 0 else 1.0, filter)


def round_factors(placed: Tensor, filter: Filter) -> Tensor:
    """Values of at most 2^15 in size, rounded to the precision of the filter.

    fp16 and bf16 keep their own dtype.
    """
    kept = torch.where(placed.abs() < SMALLEST_FACTOR[filter], 0.0, placed)
    if filter == "fp16":
        return kept.half()
    if filter == "bf16":
        return kept.bfloat16()
    return kept.float()


def _power_of_two(exponents: Tensor) -> Tensor:
    """Exact powers in float64, which torch.ldexp does not promise."""
    return ((exponents.long() + 1023) << 52).view(torch.float64)


def _rounded_up(values: Tensor) -> Tensor:
    """Values >= 0 in float32, rounded up and away from underflow."""
    upward = torch.full((), torch.inf, device=values.device)
    return torch.nextafter(values.float(), upward).clamp(min=2.0**-100)


def _rounded_down(values: Tensor) -> Tensor:
    return torch.nextafter(values.float(), torch.full((), -torch.inf, device=values.device))
