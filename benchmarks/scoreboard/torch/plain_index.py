"""PlainIndex: a search by products in float64, for many problems of different widths on one GPU.

`TorchIndex` gives the same answers to the last bit, but compiles its kernels for each width, which
takes longer than all our searches together; and peers want many neighbors of many samples.
Distances here are right to about 12 digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Scope
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.search.index import RowIndex

BYTES_AT_ONCE = 1 << 30
SMALLEST = 1e-12  # a square below it is that of two equal rows


class PlainIndex(RowIndex):
    """Activations of one layer with their class codes, searched on a device of torch."""

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        *,
        device: str,
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        points = torch.from_numpy(np.array(self.points)).to(device).double()
        self._center = points.mean(0)  # smaller numbers round less
        self._points = points - self._center
        self._norms = (self._points**2).sum(1)
        self._sizes = np.diff(self.class_starts).tolist()

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about queries of shape (n_queries, n_features) that the scope may need."""
        k, per_class = scope.any, scope.per_class
        given = torch.from_numpy(points).to(self._points.device)
        step = max(1, BYTES_AT_ONCE // (8 * self.n_rows))
        parts = [self._gather(part.double(), k, per_class) for part in torch.split(given, step)]
        near, at, neighbors = (torch.cat(each).cpu().numpy() for each in zip(*parts, strict=True))
        numbers = np.where(at < 0, NO_EXEMPLAR, self.rows[at])
        return Evidence(near, neighbors, numbers)

    def _gather(self, queries: Tensor, k: int, per_class: int) -> tuple[Tensor, Tensor, Tensor]:
        """Distances and rows of the nearest of each class, and distances to the k nearest."""
        queries = queries - self._center
        squares = torch.addmm(self._norms, queries, self._points.T, alpha=-2)
        squares += (queries**2).sum(1, keepdim=True)
        near, at, start = [], [], 0
        for size in self._sizes:
            held = min(per_class, size)
            found = squares[:, start : start + size].topk(held, dim=1, largest=False)
            missing = (0, per_class - held)
            near.append(functional.pad(found.values, missing, value=torch.inf))
            at.append(functional.pad(found.indices + start, missing, value=-1))
            start += size
        neighbors = squares.topk(k, dim=1, largest=False).values
        return _root(torch.stack(near, 1)), torch.stack(at, 1), _root(neighbors)


def _root(squares: Tensor) -> Tensor:
    return torch.where(squares < SMALLEST, 0.0, squares).sqrt()
