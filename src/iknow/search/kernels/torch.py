"""TorchIndex: exact search on any device of torch, with its own kernels on a GPU.

Products in low precision bound all distances from below, and we measure the rows that the bounds
leave open in float64 (`engine`). On CUDA with Triton, `kernels.triton` computes both. An index too
large for the device is searched part by part. The answers are always the same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Scope, scope_of
from iknow.core.evidence import NO_EXEMPLAR, Evidence, stack_evidence
from iknow.core.rule import Rule
from iknow.core.text import shorten, shown
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.pages import slices
from iknow.search.engine import NO_ROW, Blocks, Found, Groups, lowest_of_stack
from iknow.search.index import RowIndex

Precision = Literal["fp16", "bf16", "float32"]

UNIT = 2.0**-22
TERMS = 40  # besides the products
LAST_BITS = 5  # of a result that may name something
SLACK = 2.0**-50
UNDERFLOW = 2.0**-120
TOP_EXPONENT = 15
FAR_EXPONENT = 80  # of a query: too far away for float32, so nothing is ruled out
SMALLEST_FACTOR: dict[Precision, float] = {"fp16": 2.0**-14, "bf16": 2.0**-60, "float32": 2.0**-60}
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "float32": torch.float32}
PADDING = torch.finfo(torch.float32).max
"""The h of padding: h σ is far above that of any row, yet finite, so its last bits are free."""
LEAF = 128  # terms that numpy adds without halving them
BYTES_FOR_BUILDING = 256 << 20
BYTES_FOR_PRODUCTS = 4 << 20
BYTES_FOR_MEASURING = 4 << 20
PARTS_PER_NEIGHBOR = 8
WORK_BYTES = 4 << 30
WORK_BYTES_ON_CPU = 64 << 20
SHARE_OF_FREE_MEMORY = 0.8
MANY_CLASSES = 64
"""With fewer, evidence about all of them takes no longer than a decision."""


class TorchIndex(RowIndex):
    """Activations of one layer with their class codes, searched in the Euclidean norm by torch.

    Args:
        *arrays: Activations, labels, n_classes and rows, as for any `RowIndex`.
        **named: Those of them that are given by name.
        device: Where to search, as torch names it.
        memory: Bytes to use on the device. Default: most of what is free when the search begins.

    Examples:
        >>> TorchIndex(rows, labels, 2, device="cpu").gather([[4.0]]).class_distances
        array([[3., 1.]])
    """

    def __init__(
        self,
        *arrays: Any,
        device: str | torch.device = "cpu",
        memory: int | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arrays, **named)
        self.device = check_device(device)
        self._memory = memory

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Evidence about `points`, (n, n_features), within `scope`; no more leaves the device."""
        k, m = scope.any, scope.per_class
        # All at once if their evidence fits: a larger index moves to the device once per batch.
        bytes_per_query = 48 * self.n_classes * m + 24 * k + 16 * self.n_features + 1
        parts = []
        for part in slices(len(points), 2 * self._work_bytes() // bytes_per_query):
            found = self._find(to_device(points[part], self._exact_device), k, m)
            parts.append(_to_host(found, scope.at(part)))
        return parts[0] if len(parts) == 1 else stack_evidence(parts)

    def decides(self, rule: Rule) -> bool:
        """Whether `decide` is faster than `gather` for a `rule`, as far as it is known."""
        many = self._uses_triton and self.n_classes >= MANY_CLASSES
        return many and scope_of(rule).horizon is not None

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, by searching for a stored row.

        On a GPU also for a point so far away that no bound holds: only then are rows surely
        measured that the first bounds left open.
        """
        super().warm_up()
        if self._uses_triton:
            self.gather(np.full((1, self.n_features), PADDING, dtype=np.float32))

    @property
    def _uses_triton(self) -> bool:
        return self.device.type == "cuda" and find_spec("triton") is not None

    def _find(self, queries: Tensor, k: int, m: int) -> Found:
        """What a search finds about float32 queries on the device, of all classes, left there."""

        def find_in(blocks: TorchBlocks) -> Found:
            step = max(1, self._work_bytes() // blocks.bytes_per_query(k, m))
            batches = [blocks.find(part, k, m) for part in torch.split(queries, step)]
            return _join(batches, blocks.classes, self.n_classes)

        several = [self._whole] if len(self._parts) == 1 else map(self._lay_out, self._parts)
        return reduce(merge, map(find_in, several))

    @cached_property
    def _whole(self) -> TorchBlocks:
        """The index on the device, where it stays."""
        return self._lay_out(self._parts[0])

    @cached_property
    def _parts(self) -> list[slice]:
        """The rows to search at once: all, or as many as fit the device."""
        memory = self._available()
        if memory is None:
            return [slice(0, self.n_rows)]
        # Laying out a part needs its rows twice, plus their factors and a few numbers.
        per_row = 8 * self.n_features + 4 * max(16, self.n_features) + 96
        reserved = self._work_bytes() * 3 // 2
        if memory - reserved < per_row:
            raise InputError(
                f"searching on {self.device} needs at least {reserved + per_row:,} bytes; "
                f"{memory:,} are available: free memory, raise `memory`, or use device='cpu'"
            )
        return slices(self.n_rows, (memory - reserved) // per_row)

    def _lay_out(self, part: slice) -> TorchBlocks:
        """Some rows on the device.

        Small blocks cost minima to compare, large ones rows to measure. The optimum scales with the
        root of rows / (classes * features); the factors are measured. Small classes get small
        blocks to limit padding.
        """
        points, labels, _, numbers = self.arrays(part)
        per_class = len(labels) / len(np.unique(labels))
        factor, smallest, largest = (2.8, 8, 128) if self._uses_triton else (0.5, 4, 256)
        balance = factor * np.sqrt(per_class / self.n_features)
        smallest = min(smallest, 2 ** int(np.log2(per_class)))
        size = int(np.clip(2 ** round(np.log2(balance)), smallest, largest))
        if not self._uses_triton:
            return TorchBlocks(points, labels, numbers, size, self.device)
        from iknow.search.kernels.triton import TritonBlocks

        return TritonBlocks(points, labels, numbers, size, self.device)

    def _available(self) -> int | None:
        """Bytes to use on the device; None if unknown."""
        if self._memory is not None or self.device.type != "cuda":
            return self._memory
        free, _ = torch.cuda.mem_get_info(self.device)
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(SHARE_OF_FREE_MEMORY * (free + unused))

    def _work_bytes(self) -> int:
        """Bytes for the search of a batch of queries, besides the index and the evidence."""
        most = WORK_BYTES_ON_CPU if self._exact_device.type == "cpu" else WORK_BYTES
        if self._exact_device.type == "cuda":
            memory = torch.cuda.get_device_properties(self._exact_device).total_memory
            most = min(most, memory // 8)
        return most if self._memory is None else min(most, self._memory // 4)

    @cached_property
    def _exact_device(self) -> torch.device:
        return device_with_float64(self.device)


def merge(one: Found, other: Found) -> Found:
    """What was found in two disjoint parts of an index, for the same queries."""
    shape, k = one.distances.shape, len(one.neighbors)
    distances = torch.cat([one.distances, other.distances]).flatten(1)
    numbers = torch.cat([one.numbers, other.numbers]).flatten(1)
    distances, numbers = lowest_of_stack(torch, distances, numbers, shape[0])
    neighbors = torch.cat([one.neighbors, other.neighbors]).sort(0).values[:k]
    return Found(distances.view(shape), numbers.view(shape), neighbors)


def _join(batches: list[Found], classes: Tensor, n_classes: int) -> Found:
    """What was found for successive batches of queries, with a place for every class."""
    several = zip(*batches, strict=True)
    found = batches[0] if len(batches) == 1 else Found(*(torch.cat(each, -1) for each in several))
    m, n_inhabited, n = found.distances.shape
    if n_inhabited == n_classes:
        return found
    distances = found.distances.new_full((m, n_classes, n), torch.inf)
    numbers = found.numbers.new_full((m, n_classes, n), NO_ROW)
    distances[:, classes], numbers[:, classes] = found.distances, found.numbers
    return Found(distances, numbers, found.neighbors)


def _to_host(found: Found, scope: Scope) -> Evidence:
    """Evidence about the queries of a scope; with a horizon, what lies beyond the cap is inf."""
    neighbors = to_numpy(found.neighbors.T)
    if scope.horizon is None or scope.belief is None:
        numbers = torch.where(found.numbers == NO_ROW, NO_EXEMPLAR, found.numbers)
        lists = found.distances, numbers
        distances, exemplars = (to_numpy(each.permute(2, 1, 0)) for each in lists)
        return Evidence(distances, neighbors, exemplars)
    m, n_classes, n = found.distances.shape
    device = found.distances.device
    codes = torch.arange(n_classes, device=device)
    is_own = codes[:, None] == to_device(scope.belief, device)
    own = torch.where(is_own, found.distances[scope.own - 1], torch.inf).amin(0)
    other = torch.where(is_own, torch.inf, found.distances[scope.other - 1]).amin(0)
    fixed, ratio, k = scope.horizon
    cap = torch.where(own.isinf(), 0.0, ratio * own).clamp(min=fixed).maximum(other)
    cap = cap.maximum(found.neighbors[k - 1]) if k else cap
    # Few rows are within it, so only these travel.
    kept = (is_own | (found.distances <= cap)) & found.distances.isfinite()
    at = kept.flatten().nonzero()[:, 0]
    places = np.unravel_index(to_numpy(at), (m, n_classes, n))[::-1]
    distances = np.full((n, n_classes, m), np.inf)
    exemplars = np.full((n, n_classes, m), NO_EXEMPLAR, dtype=np.int64)
    distances[places] = to_numpy(found.distances.flatten()[at])
    exemplars[places] = to_numpy(found.numbers.flatten()[at])
    evidence = Evidence(distances, neighbors, exemplars)
    evidence.complete_below[:, 1] = np.nextafter(to_numpy(cap), np.inf)
    return evidence


class TorchBlocks(Blocks):
    """Rows in blocks on a device, by torch alone.

    Block b holds rows b·size to (b+1)·size - 1, sorted by class and norm; short blocks are padded.

    points: of shape (n_rows, n_features). labels, numbers: of shape (n_rows,), at least one. size:
    rows of a block. device: where to compute the products; it need not support float64 (MPS does
    not). Everything else runs where float64 is. precision: of the factors. If torch is set to
    multiply float32 in less than float32, we round all factors to bf16 beforehand, which no such
    setting can change. together: each class gets a multiple of so many blocks.
    """

    xp = torch
    bytes_of_candidates = 256 << 20

    def __init__(
        self,
        points: Floats32,
        labels: Ints,
        numbers: Ints,
        size: int,
        device: torch.device,
        precision: Precision = "float32",
        together: int = 1,
    ) -> None:
        self.size, self.together, self._products_device = size, together, device
        self.device, self.n_features = device_with_float64(device), int(points.shape[1])
        arrays = (to_device(each, self.device) for each in (points, labels, numbers))
        self._place(precision, *arrays)  # the copies are gone before the factors are made
        self._factors: dict[Precision, tuple[Frame, Tensor, Tensor, Tensor, Tensor]] = {}
        self._prepare()

    def _place(self, precision: Precision, rows: Tensor, codes: Tensor, numbers: Tensor) -> None:
        """Lay out rows, sorted by class and norm."""
        size, together, exact = self.size, self.together, self.device
        self.frame = make_frame(rows, precision)
        step = max(1, BYTES_FOR_BUILDING // (32 * self.n_features))
        norms = [self.frame.place(part).square().sum(1) for part in torch.split(rows, step)]
        order = torch.argsort(torch.cat(norms))
        order = order[torch.argsort(codes[order], stable=True)]
        self.classes, counts = torch.unique_consecutive(codes[order], return_counts=True)
        per_class = (counts + size * together - 1) // (size * together) * together
        self.group(per_class)
        self.n_blocks = n_blocks = self.as_one.largest
        # A row goes to the first slot of its class plus its position within the class.
        place = torch.arange(len(order), device=exact)
        before = counts.cumsum(0) - counts - size * self.by_class.starts[:-1]
        place -= before.repeat_interleave(counts)
        self.points = rows.new_zeros(n_blocks * size, rows.shape[1])  # padding is 0
        self.points[place] = rows[order]
        self.numbers = torch.full((n_blocks * size,), NO_ROW, device=exact)  # NO_ROW for padding
        self.numbers[place] = numbers[order]

    def bytes_per_query(self, k: int, m: int) -> int:
        """Bytes that a search needs for each query, roughly."""
        lists = (1, k), (len(self.classes), m)
        several = (n * (1 + r * self.count_candidates(r) if r > 1 else 2) for n, r in lists)
        return 8 * self.n_blocks + 64 * self.n_features + 32 * sum(several)

    def bound(self, queries: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        frame, low, half_norms, losses, lengths = self._prepare()
        bounds = frame.bound_queries(queries)
        given = bounds.low.float().T, bounds.scales, bounds.norms, bounds.errors
        columns, scales, norms, errors = (each.to(self._products_device) for each in given)
        size, n_blocks, n = self.size, self.n_blocks, len(queries)
        minima = columns.new_empty(n_blocks, n)
        for part in slices(n_blocks, BYTES_FOR_PRODUCTS // (4 * size * n)):
            rows = slice(part.start * size, part.stop * size)
            with torch.autocast(self._products_device.type, enabled=False):
                products = low[rows] @ columns
            bound = torch.addcmul(products.neg_(), half_norms[rows, None], scales)
            minima[part] = bound.view(-1, size, n).amin(1)
        minima.addcmul_(losses[:, None], norms, value=-1)
        minima.addcmul_(lengths[:, None], errors, value=-1)
        return minima.to(self.device), bounds.to_limits

    def promising(self, minima: Tensor, groups: Groups, m: int) -> tuple[Tensor, Tensor]:
        starts, ends = groups.starts[:-1], groups.starts[1:]
        m = min(m, groups.largest)
        if len(starts) == 1 < m:
            # The lowest of many parts, so that only these need to be ranked. Neighboring blocks
            # are similar and go to different parts.
            n_parts = min(groups.largest, PARTS_PER_NEIGHBOR * m)
            starts = torch.arange(n_parts, device=minima.device)
            low, block = self.lowest(minima, starts, ends.expand(n_parts).contiguous(), n_parts)
            best = low.T.contiguous().topk(m, largest=False, sorted=False)
            return best.values.T[:, None], block.T.gather(1, best.indices).T[:, None]
        found = [self.lowest(minima, starts, ends, 1)]
        for _ in range(m - 1):
            minima.scatter_(0, found[-1][1], torch.inf)
            found.append(self.lowest(minima, starts, ends, 1))
        lows, blocks = zip(*found, strict=True)
        return torch.stack(lows), torch.stack(blocks)

    def lowest(
        self, minima: Tensor, starts: Tensor, ends: Tensor, step: int
    ) -> tuple[Tensor, Tensor]:
        """The lowest minimum of sets of blocks, and its block: of shape (n_sets, n_queries).

        Set i is starts[i], starts[i] + step, ... below ends[i]; it is never empty.
        """
        low = minima.new_empty(len(starts), minima.shape[1])
        block = torch.empty_like(low, dtype=torch.int64)
        for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            low[i], place = minima[start:end:step].min(0)
            block[i] = start + place * step
        return low, block

    def candidates(
        self, queries: Tensor, query: Tensor, block: Tensor, m: int
    ) -> tuple[Tensor, Tensor]:
        measured = queries.new_empty(len(query), self.count_candidates(m), dtype=torch.float64)
        named = torch.empty_like(measured, dtype=torch.int64)
        for part in slices(len(query), BYTES_FOR_MEASURING // (8 * self.size * self.n_features)):
            named_here = self.numbers.view(-1, self.size)[block[part]]
            points = self.points.view(-1, self.size, self.n_features)[block[part]]
            distances = measure(points, queries[query[part], None])
            distances = torch.where(named_here == NO_ROW, torch.inf, distances)
            if m == 1:
                measured[part, 0] = distances.amin(1)
                tied = distances == measured[part]
                named[part, 0] = torch.where(tied, named_here, NO_ROW).amin(1)
            else:  # to rank them once, for the whole class, is cheaper
                measured[part], named[part] = distances, named_here
        return measured.T.contiguous(), named.T.contiguous()

    def _prepare(self) -> tuple[Frame, Tensor, Tensor, Tensor, Tensor]:
        """The frame and the numbers of all rows and blocks, for the products torch is set to."""
        precision: Precision = self.frame.precision if _products_are_full() else "bf16"
        if precision not in self._factors:
            frame = self.frame._replace(precision=precision)
            parts = []
            for _, (low, half_norms, losses, lengths) in self._bound_rows(frame):
                numbers = low.float().flatten(0, 1), half_norms.flatten(), losses, lengths
                parts.append([each.to(self._products_device) for each in numbers])
            low, half_norms, losses, lengths = map(torch.cat, zip(*parts, strict=True))
            self._factors[precision] = frame, low, half_norms, losses, lengths
        return self._factors[precision]

    def _bound_rows(self, frame: Frame) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
        """Ranges of blocks, small enough to process in float64 at once, and their numbers.

        These are x̃ and h of each row, (n, size, ...), and E and N of each of n blocks, (n,).
        """
        shape = -1, self.size, self.n_features
        step = BYTES_FOR_BUILDING // (32 * self.size * self.n_features)
        for part in slices(self.n_blocks, step):
            is_row = self.numbers.view(-1, self.size)[part] != NO_ROW
            low, half_norms, *worst = frame.bound_rows(self.points.view(shape)[part], is_row)
            yield part, (low, half_norms, *(each.amax(1) for each in worst))


def _products_are_full() -> bool:
    """Whether torch multiplies float32 matrices in float32."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # newer versions allow a setting per backend: it may be anything
        return False


class Frame(NamedTuple):
    """The shift and scale of an index, and the numbers of `bounds`, "In any precision"."""

    center: Tensor  # of shape (n_features,) in float64
    scale: float  # a power of two
    precision: Precision  # of the factors

    @property
    def error(self) -> float:
        """γ, or 0 with several hundred thousand features: the bounds would be of no use."""
        terms = (len(self.center) + TERMS) * UNIT
        return terms / (1 - terms) if terms < 2.0**-4 else 0.0

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

    def round_off(self, placed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Factors of X of at most 2^15 in size, never denormal; |X|, |what was lost|, |factors|."""
        kept = torch.where(placed.abs() < SMALLEST_FACTOR[self.precision], 0.0, placed)
        low = kept.to(DTYPES[self.precision])
        norm, lost, kept = (
            torch.linalg.vector_norm(each, dim=-1)
            for each in (placed, placed - low.double(), low.double())
        )
        return low, norm, lost + 2.0**-52 * norm, kept

    def bound_rows(self, rows: Tensor, is_row: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x̃, h, e_x/(1-γ) and |x̃|/(1-γ) of rows, (..., n_features); padding is never near.

        is_row: what is no padding, of shape (...). All but x̃ are of that shape, in float32.
        """
        placed = torch.where(is_row[..., None], self.place(rows), 0.0)
        low, _, lost, kept = self.round_off(placed)
        half_norms = placed.square().sum(-1) / 2 * (1 - self.slack) / (1 + self.error)
        half_norms = torch.where(is_row, _next(half_norms, -torch.inf), PADDING)
        worse = (1 + self.slack) / (1 - self.error)
        return low, half_norms, _rounded_up(lost * worse), _rounded_up(kept * worse)

    def bound_queries(self, queries: Tensor) -> QueryBounds:
        """The numbers of queries, a tensor of shape (n_queries, n_features)."""
        placed = self.place(queries)
        exponent = torch.frexp(placed.abs().amax(1)).exponent
        far = (exponent > FAR_EXPONENT) | (self.error == 0)
        shift = torch.where(far, 0, (TOP_EXPONENT - exponent).clamp(max=0)).long()
        # Exact powers of two, which torch.ldexp does not promise.
        scales = ((shift + 1023) << 52).view(torch.float64)
        scaled = torch.where(far[:, None], 0.0, placed) * scales[:, None]
        low, norm, lost, kept = self.round_off(scaled)
        norms, errors = norm * (1 + self.slack), (lost + self.error * kept) * (1 + self.slack)
        half_norms = torch.where(far, -torch.inf, placed.square().sum(1) / 2)
        rounded = scales.float(), _rounded_up(norms), _rounded_up(errors)
        return QueryBounds(self, low, *rounded, half_norms)


class QueryBounds(NamedTuple):
    """Numbers of queries, in float32 unless said; n_padded is n_queries or more."""

    frame: Frame
    low: Tensor  # q̃ in the frame's precision, of shape (n_padded, n_features or more)
    scales: Tensor  # σ, of shape (n_padded,)
    norms: Tensor  # n, (n_padded,)
    errors: Tensor  # g, (n_padded,)
    half_norms: Tensor  # |Q|²/2, (n_queries,), float64; -inf without bounds: its limits are inf

    def to_limits(self, distances: Tensor) -> Tensor:
        """The largest bounds that rows at these distances can have: (..., n_queries), float32.

        Besides rounding up, SLACK per feature, relative to each term, covers what float64 loses,
        and UNDERFLOW per operation what underflows.
        """
        per_distance, per_norm, underflow = self.frame.constants_of_limits
        reach = per_distance * distances.square()
        scales = self.scales[: len(self.half_norms)].double()
        return _next((reach - per_norm * self.half_norms) * scales + underflow, torch.inf)


def make_frame(rows: Tensor, precision: Precision) -> Frame:
    """A frame for rows, float32 of shape (n_rows, n_features): at most 2^15 after the scaling."""
    center = rows.sum(0, dtype=torch.float64) / len(rows)
    highest, lowest = rows.amax(0).double(), rows.amin(0).double()
    largest = torch.maximum(highest - center, center - lowest).amax()
    exponent = int(torch.frexp(largest).exponent)
    return Frame(center, 2.0 ** (TOP_EXPONENT - exponent) if largest > 0 else 1.0, precision)


def _next(values: Tensor, toward: float) -> Tensor:
    """Values in float32, and from there the next number toward inf or -inf."""
    return torch.nextafter(values.float(), torch.full((), toward, device=values.device))


def _rounded_up(values: Tensor) -> Tensor:
    """Values >= 0 in float32, rounded up and away from underflow."""
    return _next(values, torch.inf).clamp(min=2.0**-100)


def measure(points: Tensor, queries: Tensor) -> Tensor:
    """Distances in float64 between float32 points and queries that broadcast: (..., n_features).

    They have numpy's bits. `numpy.sum` along the last axis adds in a fixed order: up to seven terms
    one by one; up to 128 terms in eight running sums, joined in pairs, and the rest one by one;
    more terms in two halves, the first a multiple of eight long. The same operations in the same
    order give the same bits, as long as no multiplication is fused with an addition: each operation
    here is a separate torch operation.
    """
    difference = points.double() - queries.double()
    squared = add_like_numpy(difference.mul_(difference))
    if squared.device.type == "cuda":
        return squared.sqrt()
    # On the CPU torch's root is not always the one that IEEE 754 defines.
    return torch.from_numpy(np.sqrt(squared.cpu().numpy())).to(squared.device)


def add_like_numpy(terms: Tensor) -> Tensor:
    """Sums of float64 terms of shape (..., n) over the last axis."""
    n = terms.shape[-1]
    if n > LEAF:
        half = n // 2 - (n // 2) % 8
        return add_like_numpy(terms[..., :half]) + add_like_numpy(terms[..., half:])
    in_eights = n - n % 8
    sums = terms[..., : 8 if in_eights else 1]
    for start in range(8, in_eights, 8):
        sums = sums + terms[..., start : start + 8]
    while sums.shape[-1] > 1:
        sums = sums[..., 0::2] + sums[..., 1::2]
    total = sums[..., 0]
    for term in terms[..., in_eights or 1 :].unbind(-1):
        total = total + term
    return total


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """A copy of an array, so that nothing on the device changes when the array does."""
    # torch warns if it must view a read-only array, such as a memory map.
    source = array if array.flags.writeable else array.copy()
    return torch.from_numpy(np.ascontiguousarray(source)).to(device, copy=True)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A copy row by row: on the device a tensor may be a view."""
    array: np.ndarray = tensor.contiguous().cpu().numpy()
    return array


def check_device(device: str | torch.device) -> torch.device:
    """A device that torch can create tensors on and read them from."""
    try:
        checked = torch.device(device)
        torch.zeros(1, device=checked).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError) as error:
        reason = shorten((str(error) or type(error).__name__).splitlines()[0])
        given = str(device) if isinstance(device, torch.device) else device
        raise InputError(
            f"torch {torch.__version__} cannot use device {shown(given)} here ({reason}): "
            "use device='cpu' or install a torch build for that device"
        ) from error
    return checked


def device_with_float64(device: torch.device) -> torch.device:
    """The device itself, or the CPU if the device has no float64 (MPS does not)."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError):
        return torch.device("cpu")
    return device
