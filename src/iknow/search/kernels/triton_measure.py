"""Triton's exact distance, bit for bit the same as numpy's: float64, added up in numpy's order.

Up to 128 features the loops are unrolled. Wider sums loop over the leaves of numpy's recursion:
unrolled, several hundred features take the compiler many seconds and thousands take minutes. What
the kernels are given is said in `kernels.triton`.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"
from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from iknow.search.kernels.torch import LEAF

NO_ROW = tl.constexpr(2**63 - 1)


def list_leaves(n: int) -> list[tuple[int, int, int]]:
    """The leaves of numpy's sum of n terms in order (`kernels.torch.measure`): start, end, joins.

    joins: how many of the sums before wait to be joined to this one when it is done, the last
    first. So numpy's recursion becomes a loop with a stack.
    """
    if n <= LEAF:
        return [(0, n, 0)]
    half = n // 2 - (n // 2) % 8
    right = [(start + half, end + half, joins) for start, end, joins in list_leaves(n - half)]
    start, end, joins = right.pop()
    return [*list_leaves(half), *right, (start, end, joins + 1)]


@triton.jit
def _square(points, queries, column):
    difference = tl.load(points + column).to(tl.float64) - tl.load(queries + column).to(tl.float64)
    return difference * difference


@triton.jit
def _join_eight(sums):
    """Eight running sums, of shape (pairs, size, 8), joined in pairs."""
    PAIRS: tl.constexpr = sums.shape[0]
    SIZE: tl.constexpr = sums.shape[1]
    # Each of these sums has two terms, so their order does not matter.
    fours = tl.sum(tl.reshape(sums, (PAIRS, SIZE, 4, 2)), axis=3)
    twos = tl.sum(tl.reshape(fours, (PAIRS, SIZE, 2, 2)), axis=3)
    return tl.sum(twos, axis=2)


@triton.jit
def _sum_of_few(points, queries, LENGTH: tl.constexpr):
    """Σ (x_j - q_j)² over LENGTH <= LEAF columns."""
    if LENGTH < 8:
        total = _square(points, queries, 0)
        for j in tl.static_range(1, LENGTH):
            total += _square(points, queries, j)
    else:
        IN_EIGHTS: tl.constexpr = LENGTH - LENGTH % 8
        eight = tl.arange(0, 8)[None, None, :]
        sums = _square(points[:, :, None], queries[:, :, None], eight)
        for j in tl.static_range(8, IN_EIGHTS, 8):
            sums += _square(points[:, :, None], queries[:, :, None], eight + j)
        total = _join_eight(sums)
        for j in tl.static_range(IN_EIGHTS, LENGTH):
            total += _square(points, queries, j)
    return total


@triton.jit
def _sum_of_many(points, queries, leaves, N_LEAVES: tl.constexpr):
    """Σ (x_j - q_j)² over more columns: leaf by leaf, sums of halves waiting on a stack."""
    DEPTH: tl.constexpr = 16  # for 128 · 2^15 columns
    depth = tl.arange(0, DEPTH)[None, None, :]
    eight = tl.arange(0, 8)[None, None, :]
    stack = tl.zeros((points.shape[0], points.shape[1], DEPTH), tl.float64)
    top = 0
    for i in range(N_LEAVES):
        start, end = tl.load(leaves + 3 * i), tl.load(leaves + 3 * i + 1)
        in_eights = end - (end - start) % 8
        sums = _square(points[:, :, None], queries[:, :, None], eight + start)
        for j in range(start + 8, in_eights, 8):
            sums += _square(points[:, :, None], queries[:, :, None], eight + j)
        total = _join_eight(sums)
        for j in range(in_eights, end):
            total += _square(points, queries, j)
        for _ in range(tl.load(leaves + 3 * i + 2)):
            top -= 1
            total += tl.sum(tl.where(depth == top, stack, 0.0), axis=2)
        stack = tl.where(depth == top, total[:, :, None], stack)
        top += 1
    return tl.sum(tl.where(depth == 0, stack, 0.0), axis=2)


@triton.jit
def measure(stored, query, block, SIZE: tl.constexpr, WIDTH: tl.constexpr, N_LEAVES: tl.constexpr):
    """Distances and row numbers of pairs of a query and a block, both of shape (pairs, SIZE)."""
    points, numbers, queries, leaves = stored
    row = block.to(tl.int64)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    number = tl.load(numbers + row)
    row_at, query_at = points + row * WIDTH, queries + query.to(tl.int64)[:, None] * WIDTH
    if N_LEAVES == 1:
        squared = _sum_of_few(row_at, query_at, WIDTH)
    else:
        squared = _sum_of_many(row_at, query_at, leaves, N_LEAVES)
    return tl.where(number == NO_ROW, float("inf"), tl.sqrt(squared)), number


@triton.jit
def nearest_of(distance, number):
    """The lowest distance of each pair and the lowest number that has it, both (pairs,)."""
    nearest = tl.min(distance, axis=1)
    return nearest, tl.min(tl.where(distance == nearest[:, None], number, NO_ROW), axis=1)


@triton.jit
def measure_nearest(
    stored, query, block, SIZE: tl.constexpr, WIDTH: tl.constexpr, N_LEAVES: tl.constexpr
):
    """Both in one: the branches of a kernel must end with variables of the same shapes."""
    return nearest_of(*measure(stored, query, block, SIZE, WIDTH, N_LEAVES))


@triton.jit
def nearest_of_pairs(
    points, numbers, queries, leaves, query, block, n_pairs, few, distance_out, number_out,
    PAIRS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, N_LEAVES: tl.constexpr,
):  # fmt: skip
    """The nearest few rows of each pair: their distances and numbers, the lowest number on ties.

    query, block: (n_pairs,), int64. distance_out, number_out: (few, n_pairs).
    """
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    exists = pair < n_pairs
    q = tl.load(query + pair, mask=exists, other=0)
    b = tl.load(block + pair, mask=exists, other=0)
    stored = points, numbers, queries, leaves
    distance, number = measure(stored, q, b, SIZE, WIDTH, N_LEAVES)
    for _ in range(few):
        nearest, lowest = nearest_of(distance, number)
        tl.store(distance_out + pair, nearest, mask=exists)
        tl.store(number_out + pair, lowest, mask=exists)
        is_stored = number == lowest[:, None]
        distance = tl.where(is_stored, float("inf"), distance)
        number = tl.where(is_stored, NO_ROW, number)
        distance_out += n_pairs
        number_out += n_pairs
