"""Evidence with gradients: exact nearest training samples of a layer, and distances to them."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS_AT_ONCE = 8192


class LayerEvidence:
    """Training activations of one layer, sorted by class.

    points: (n, d). y: class codes, (n,). quorum: which nearest sample counts, for and against.
    """

    def __init__(self, points: Tensor, y: Tensor, n_classes: int, quorum: tuple[int, int]) -> None:
        self.center = points.mean(0)  # smaller numbers round less
        order = y.argsort(stable=True)
        self.points = points[order] - self.center
        self.norms = (self.points**2).sum(1)
        self.sizes = torch.bincount(y, minlength=n_classes).tolist()
        self.quorum = quorum

    @torch.no_grad()
    def find(self, queries: Tensor, belief: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of `points`, (n,) each: the one that counts for the belief, and the one against."""
        found = [
            self._find(*part)
            for part in zip(
                torch.split(queries - self.center, ROWS_AT_ONCE),
                torch.split(belief, ROWS_AT_ONCE),
                strict=True,
            )
        ]
        return torch.cat([own for own, _ in found]), torch.cat([other for _, other in found])

    def _find(self, queries: Tensor, belief: Tensor) -> tuple[Tensor, Tensor]:
        squares = torch.addmm(self.norms, queries, self.points.T, alpha=-2)
        needed = max(self.quorum)
        own, other, distances, start = [], [], [], 0
        for size in self.sizes:
            k = min(needed, size)
            near = squares[:, start : start + size].topk(k, dim=1, largest=False)
            own.append(near.indices[:, min(self.quorum[0], k) - 1] + start)
            other.append(near.indices[:, min(self.quorum[1], k) - 1] + start)
            distances.append(near.values[:, min(self.quorum[1], k) - 1])
            start += size
        against = torch.stack(distances, 1).scatter(1, belief[:, None], torch.inf)
        nearest = against.argmin(1, keepdim=True)
        return (
            torch.stack(own, 1).gather(1, belief[:, None])[:, 0],
            torch.stack(other, 1).gather(1, nearest)[:, 0],
        )

    def distance(self, queries: Tensor, rows: Tensor) -> Tensor:
        """The distance of each query to a row of `points`, (n,), with a gradient."""
        squares = ((queries - self.center - self.points[rows]) ** 2).sum(1)
        return squares.clamp_min(1e-12).sqrt()


def nearest_guides(start: Tensor, x: Tensor, y: Tensor, n_classes: int, n_guides: int) -> Tensor:
    """The nearest training samples of each class, as rows of `x`, (n, n_classes, n_guides)."""
    found = []
    for code in range(n_classes):
        rows = (y == code).nonzero()[:, 0]
        distances = torch.cdist(start.flatten(1), x[rows].flatten(1))
        found.append(rows[distances.topk(n_guides, dim=1, largest=False).indices])
    return torch.stack(found, 1)
