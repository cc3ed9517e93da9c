"""Distances in float64, bit for bit as in numpy.

`numpy.sum` along the last axis adds in a fixed order: up to seven terms one by one; up to 128 terms
in eight running sums, joined in pairs, and the rest one by one; more terms in two halves, the first
a multiple of eight long. The same operations in the same order give the same bits, as long as no
multiplication is fused with an addition: each operation here is a separate torch operation.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LEAF = 128


def measure(points: Tensor, queries: Tensor) -> Tensor:
    """Distances in float64 between float32 points and queries that broadcast: (..., n_features)."""
    difference = points.double() - queries.double()
    return correct_root(add_like_numpy(difference.mul_(difference)))


def add_like_numpy(terms: Tensor) -> Tensor:
    """Sums of float64 terms of shape (..., n) over the last axis."""
    n = terms.shape[-1]
    if n == 0:
        return terms.sum(-1)
    if n > LEAF:
        half = n // 2 - (n // 2) % 8
        return add_like_numpy(terms[..., :half]) + add_like_numpy(terms[..., half:])
    if n < 8:
        return _add_one_by_one(terms[..., 0], terms[..., 1:])
    in_eights = n - n % 8
    sums = terms[..., :8]
    for start in range(8, in_eights, 8):
        sums = sums + terms[..., start : start + 8]
    for _ in range(3):
        sums = sums[..., 0::2] + sums[..., 1::2]
    return _add_one_by_one(sums[..., 0], terms[..., in_eights:])


def list_leaves(n: int) -> list[tuple[int, int, int]]:
    """The leaves of the sum of n terms in order, each as (start, end, joins).

    joins: how many of the sums before wait to be joined to this one when it is done, the last
    first. So the recursion above becomes a loop with a stack.
    """
    if n <= LEAF:
        return [(0, n, 0)]
    half = n // 2 - (n // 2) % 8
    right = [(start + half, end + half, joins) for start, end, joins in list_leaves(n - half)]
    start, end, joins = right.pop()
    return [*list_leaves(half), *right, (start, end, joins + 1)]


def correct_root(squared: Tensor) -> Tensor:
    """The square root as IEEE 754 defines it; torch's own on the CPU does not always match it."""
    if squared.device.type == "cuda":
        return squared.sqrt()
    return torch.from_numpy(np.sqrt(squared.cpu().numpy())).to(squared.device)


def _add_one_by_one(start: Tensor, terms: Tensor) -> Tensor:
    for term in terms.unbind(-1):
        start = start + term
    return start
