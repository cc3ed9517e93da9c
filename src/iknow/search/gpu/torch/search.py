"""The search for one batch of queries: bounds first, exact distances where they matter.

For each query and class we measure the block with the lowest bound in float64, and after it every
other block whose bound does not exceed the distance found: usually none (`several`: the same for
more than one row of each class). For the k nearest of any
class, k promising blocks give a radius that holds k rows, and we measure every block within it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from iknow.search.gpu.torch.blocks import NO_ROW
from iknow.search.gpu.torch.bounds import QueryBounds
from iknow.search.gpu.torch.operations import Operations, Segments
from iknow.search.gpu.torch.ranking import lowest_of_stack, rank_in_column
from iknow.search.gpu.torch.several import several_of_each_class

PAIRS_AT_ONCE = 1 << 23
BYTES_OF_DISTANCES = 256 << 20
GROUPS_PER_NEIGHBOR = 8


class DeviceEvidence(NamedTuple):
    """`iknow.core.evidence.Evidence` as tensors on a device."""

    class_distances: Tensor
    exemplars: Tensor
    neighbor_distances: Tensor
    further_distances: Tensor
    further_exemplars: Tensor

    def ranked(self) -> tuple[Tensor, Tensor]:
        """The nearest rows of each class and their numbers, (per_class, n_queries, n_classes)."""
        nearest = self.class_distances[None], self.exemplars[None]
        further = self.further_distances, self.further_exemplars
        distances, exemplars = (
            torch.cat([first, rest.movedim(2, 0)])
            for first, rest in zip(nearest, further, strict=True)
        )
        return distances, exemplars


def no_evidence(queries: Tensor, n_classes: int, k: int, per_class: int) -> DeviceEvidence:
    """Evidence of an empty index about queries; NO_ROW for no exemplar."""
    shape = per_class, len(queries), n_classes
    distances = queries.new_full(shape, torch.inf, dtype=torch.float64)
    exemplars = queries.new_full(shape, NO_ROW, dtype=torch.int64)
    neighbors = queries.new_full((len(queries), k), torch.inf, dtype=torch.float64)
    return _from_ranked(distances, exemplars, neighbors)


def search(
    operations: Operations, queries: Tensor, n_classes: int, k: int, per_class: int
) -> DeviceEvidence:
    """Evidence about float32 queries, of shape (n_queries, n_features); NO_ROW for no exemplar."""
    winners = operations.find_winners(queries) if (k, per_class) == (0, 1) else None
    if winners is not None:
        nearest, number = (each[None] for each in winners.settle())
        neighbors = queries.new_empty(len(queries), 0, dtype=torch.float64)
    else:
        minima, bounds = operations.block_minima(queries)
        neighbors = _k_smallest(operations, queries, minima, bounds, k)
        if per_class == 1:
            nearest, number = _nearest_of_each_class(operations, queries, minima, bounds)
            nearest, number = nearest[None], number[None]
        else:
            nearest, number = several_of_each_class(operations, queries, minima, bounds, per_class)
    if len(operations.blocks.classes) == n_classes:
        return _from_ranked(nearest.mT, number.mT, neighbors)
    distances = nearest.new_full((per_class, len(queries), n_classes), torch.inf)
    exemplars = number.new_full(distances.shape, NO_ROW)
    distances[:, :, operations.blocks.classes] = nearest.mT
    exemplars[:, :, operations.blocks.classes] = number.mT
    return _from_ranked(distances, exemplars, neighbors)


def merge(one: DeviceEvidence, other: DeviceEvidence) -> DeviceEvidence:
    """The merged evidence of two disjoint parts of an index, for the same queries."""
    both = zip(one.ranked(), other.ranked(), strict=True)
    distances, exemplars = (torch.cat(each) for each in both)
    per_class, k = len(distances) // 2, one.neighbor_distances.shape[1]
    neighbors = torch.cat([one.neighbor_distances, other.neighbor_distances], 1).sort(1).values
    nearest, number = lowest_of_stack(distances.flatten(1), exemplars.flatten(1), per_class)
    shape = -1, *one.class_distances.shape
    return _from_ranked(nearest.view(shape), number.view(shape), neighbors[:, :k])


def _from_ranked(distances: Tensor, exemplars: Tensor, neighbors: Tensor) -> DeviceEvidence:
    """Evidence from the nearest rows of each class, (per_class, n_queries, n_classes)."""
    further = distances[1:].movedim(0, 2), exemplars[1:].movedim(0, 2)
    return DeviceEvidence(distances[0], exemplars[0], neighbors, *further)


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
    rank = rank_in_column(query[order], len(like))
    is_kept = rank < like.shape[1]
    order, rank = order[is_kept], rank[is_kept]
    smallest = torch.full_like(like, torch.inf)
    smallest[query[order], rank] = distances[order]
    return smallest
