"""Supports and decisions on a device, by bounds: most classes are never measured.

A class whose lowest bound exceeds the limit of a radius has no row within it. So a support within
fixed radii needs the distances of the other classes alone, and a decision (`iknow.core.decision`)
those of the believed class, of the most promising other class, and of all classes whose bound does
not exceed the limit of what may matter: the farthest of these two and the rule's horizon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from iknow.core.rule import Horizon
from iknow.search.gpu.torch.blocks import NO_ROW

if TYPE_CHECKING:
    from iknow.search.gpu.torch.winners import Winners


def find_within(winners: Winners, radii: Tensor) -> Tensor:
    """Which classes have a row within their radius: a mask of shape (n_inhabited, n_queries).

    radii: float64, of shape (n_inhabited,).
    """
    limits = winners.bounds.to_limits(radii[:, None])
    near = (winners.low <= limits).flatten().nonzero()[:, 0]
    nearest, _ = winners.settle(near)
    return (nearest <= radii[:, None]) & nearest.isfinite()


def truncate(winners: Winners, believed: Tensor, horizon: Horizon) -> tuple[Tensor, Tensor]:
    """The distances that a decision needs, of shape (n_inhabited, n_queries): inf for the others.

    And the nearest row of the believed class, of shape (n_queries,); NO_ROW for none.

    believed: the rank of the believed class among those with rows, of shape (n_queries,), or -1 for
    none. horizon: that of the rule.
    """
    n_queries = winners.shape[1]
    query = torch.arange(n_queries, device=believed.device)
    has_own = believed >= 0
    own_pair = believed.clamp(min=0) * n_queries + query
    others = winners.low.flatten().clone()
    others[own_pair[has_own]] = torch.inf
    promising = others.view(winners.shape).argmin(0) * n_queries + query
    nearest, number = winners.settle(torch.cat([own_pair[has_own], promising]))
    nearest, number = nearest.flatten(), number.flatten()
    own = torch.where(has_own, nearest[own_pair], torch.inf)
    # With one class alone, the most promising other one is the believed class itself.
    reach = torch.maximum(torch.full_like(own, horizon[0]), nearest[promising])
    reach = torch.where(has_own, reach.maximum(own).maximum(horizon[1] * own), reach)
    is_near = winners.low <= winners.bounds.to_limits(reach)
    rest = (is_near.flatten() & nearest.isinf()).nonzero()[:, 0]
    if len(rest):
        nearest = nearest.minimum(winners.settle(rest)[0].flatten())
    return nearest.view(winners.shape), torch.where(has_own, number[own_pair], NO_ROW)
