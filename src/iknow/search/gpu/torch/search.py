"""The search for one batch of queries: bounds first, exact distances where they matter.

For each query and class we measure the block with the lowest bound in float64, and after it every
other block whose bound does not exceed the distance found: usually none. For the k nearest of any
class, k promising blocks give a radius that holds k rows, and we measure every block within it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from iknow.search.gpu.torch.blocks import NO_ROW
from iknow.search.gpu.torch.bounds import QueryBounds
from iknow.search.gpu.torch.operations import Operations, Segments

PAIRS_AT_ONCE = 1 << 23
BYTES_OF_DISTANCES = 256 << 20
GROUPS_PER_NEIGHBOR = 8


class DeviceEvidence(NamedTuple):
    """`iknow.core.evidence.Evidence` as tensors on a device."""

    class_distances: Tensor
    exemplars: Tensor
    neighbor_distances: Tensor


def search(operations: Operations, queries: Tensor, n_classes: int, k: int) -> DeviceEvidence:
    """Evidence about float32 queries, of shape (n_queries, n_features); NO_ROW for no exemplar."""
    minima, bounds = operations.block_minima(queries)
    neighbors = _k_smallest(operations, queries, minima, bounds, k)
    nearest, number = _nearest_of_each_class(operations, queries, minima, bounds)
    distances = nearest.new_full((len(queries), n_classes), torch.inf)
    exemplars = number.new_full((len(queries), n_classes), NO_ROW)
    distances[:, operations.blocks.classes] = nearest.T
    exemplars[:, operations.blocks.classes] = number.T
    return DeviceEvidence(distances, exemplars, neighbors)


def merge(one: DeviceEvidence, other: DeviceEvidence) -> DeviceEvidence:
    """The merged evidence of two disjoint parts of an index, for the same queries."""
    nearer = torch.minimum(one.class_distances, other.class_distances)
    exemplars = torch.minimum(
        torch.where(one.class_distances == nearer, one.exemplars, NO_ROW),
        torch.where(other.class_distances == nearer, other.exemplars, NO_ROW),
    )
    k = one.neighbor_distances.shape[1]
    neighbors = torch.cat([one.neighbor_distances, other.neighbor_distances], 1).sort(1).values
    return DeviceEvidence(nearer, exemplars, neighbors[:, :k])


def _nearest_of_each_class(
    operations: Operations, queries: Tensor, minima: Tensor, bounds: QueryBounds
) -> tuple[Tensor, Tensor]:
    """Distance and number of the nearest row: both of shape (n_inhabited, n_queries).

    Overwrites the minima of measured blocks with inf.
    """
    blocks = operations.blocks
    starts = blocks.class_starts
    _, promising = operations.lowest(minima, Segments(starts[:-1], starts[1:], 1))
    n_queries = len(queries)
    every_query = torch.arange(n_queries, device=queries.device).repeat(len(promising))
    nearest, number = operations.nearest(queries, every_query, promising.flatten())
    limits = bounds.to_limits(nearest.view_as(promising))
    minima.scatter_(0, promising, torch.inf)
    for block, query in operations.within(minima, limits, blocks.ranks, PAIRS_AT_ONCE):
        distance, row = operations.nearest(queries, query, block)
        at = blocks.ranks[block] * n_queries + query
        nearer = nearest.scatter_reduce(0, at, distance, "amin")
        number = torch.where(nearest == nearer, number, NO_ROW)
        row = torch.where(distance == nearer[at], row, NO_ROW)
        number.scatter_reduce_(0, at, row, "amin")
        nearest = nearer
    return nearest.view_as(promising), number.view_as(promising)


def _k_smallest(
    operations: Operations, queries: Tensor, minima: Tensor, bounds: QueryBounds, k: int
) -> Tensor:
    """The k smallest distances of each query, ascending, of shape (n_queries, k)."""
    smallest = queries.new_full((len(queries), k), torch.inf, dtype=torch.float64)
    if k == 0:
        return smallest
    radius = _radius_of_k(operations, queries, minima, k)
    limits = bounds.to_limits(radius)[None]
    same = torch.zeros_like(operations.blocks.ranks)
    at_once = max(1, BYTES_OF_DISTANCES // (8 * operations.blocks.size))
    for block, query in operations.within(minima, limits, same, at_once):
        distances = operations.distances(queries, query, block)
        near, place = torch.nonzero(distances <= radius[query, None], as_tuple=True)
        found = _k_smallest_of_list(distances[near, place], query[near], smallest)
        smallest = torch.cat([smallest, found], 1).sort(1).values[:, :k]
    return smallest


def _radius_of_k(operations: Operations, queries: Tensor, minima: Tensor, k: int) -> Tensor:
    """A distance within which at least k rows lie, of shape (n_queries,); inf if unknown.

    It reaches the nearest row of each of k promising blocks, the best of their groups, so that only
    groups need to be ranked. Neighboring blocks are similar and go to different groups.
    """
    n_blocks, n_queries = operations.blocks.n_blocks, len(queries)
    if n_blocks < k:
        return queries.new_full((n_queries,), torch.inf, dtype=torch.float64)
    n_groups = min(n_blocks, GROUPS_PER_NEIGHBOR * k)
    starts = torch.arange(n_groups, device=queries.device)
    low, best = operations.lowest(
        minima, Segments(starts, torch.full_like(starts, n_blocks), n_groups)
    )
    chosen = best.T.gather(1, low.T.contiguous().topk(k, largest=False, sorted=False).indices)
    query = torch.arange(n_queries, device=queries.device).repeat_interleave(k)
    nearest, _ = operations.nearest(queries, query, chosen.flatten())
    return nearest.view(n_queries, k).amax(1)


def _k_smallest_of_list(distances: Tensor, query: Tensor, like: Tensor) -> Tensor:
    """The k smallest of the distances that belong to each query, in the shape of `like`."""
    order = distances.argsort()
    order = order[query[order].argsort(stable=True)]
    distances, query = distances[order], query[order]
    counts = torch.bincount(query, minlength=len(like))
    rank = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
    kept = rank < like.shape[1]
    smallest = torch.full_like(like, torch.inf)
    smallest[query[kept], rank[kept]] = distances[kept]
    return smallest
