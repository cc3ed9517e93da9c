"""Tables: each feature in units of its own spread, and gaps as a dimension of their own.

A distance adds up squared differences, so a feature in square millimeters drowns out one between 0
and 1. `Scaled` divides each by its scale, the larger of

    IQR / 1.349   the interquartile range, which for a normal distribution is 1.349 σ;
    m             the median of |x - median| over the samples that differ from the median.

Neither minds a few outliers. The second counts where most values are equal: a flag has the scale 1,
rare or not, where its IQR would be 0 and its standard deviation so small that it outweighs
everything else; and an amount that is mostly 0 has the scale of the typical amount.

A feature that is constant in training has no scale, yet a query that differs there is new and must
not look familiar: it gets the smallest scale of all features, or 1 if all are constant.

Medians are subtracted in float64, before the points are rounded to float32: of a timestamp only
what varies is left. Points beyond the range of float32 are moved to its ends.

`Table` does the same where values are missing, or are categories. Its activations hold d values, 0
where one is missing, and then d flags: 1 where a value is missing, 2 where it is the code of a
category. Median and scale are those of the training values that are there. A missing one lies at
the median, and its flag adds a dimension: samples that lack the same value agree about it, and one
that has it is √(1 + ((x - median) / scale)²) away from one that lacks it. Two categories of a
column are 1 apart, as much as two numbers that differ by a scale; beyond the `MOST_CATEGORIES` most
frequent ones of a column, all are alike.

What no training sample has is new: a gap where there was none, a category that never occurred, a
text among numbers. It is put twice as far away as any training value lies from its median, so that
it fails closed; a gap twice as far again, so that a column that is gone stands out from rare
categories.

A column in which most values occur once, such as names, free text or numbers of
customers, says nothing about what is alike, and is left out. Flags and codes jump, so no robust
radius rests on a `Table`.

Distances weighted by a matrix: the paper's metric, in units of the input, and Mahalanobis's.

With W̃ = W_1 W_2 ⋯ W_i (each of shape (n_inputs, n_outputs), h = Wᵀx + b) and its singular value
decomposition W̃ = U Σ Vᵀ, cut to the r nonzero singular values, D = V Σ⁻² Vᵀ. For a linear network,
where h(x) - h(z) = W̃ᵀδ with δ = x - z, it measures |Uᵀδ| <= |δ|, the part of δ that the layer can
see. (The paper's previous version, D = V Vᵀ, is the plain ℓ2 distance |h(x) - h(z)|.)

With ReLU the claimed bound, distance <= |δ|, fails: relu has Lipschitz constant 1 in ℓ2, but may
lengthen a difference as D measures it. For W = [[1, 1], [0, t]] and b = (0, -2), the inputs (0, 0)
and (1, 0) are 1 apart, but relu gives (0, 0) and (1, 0), which are √(1 + 1/t²) apart under D. With
the layer's ℓ2 Lipschitz constant L, `metric.expansion(n)` · L · |δ| always bounds the distance.

`Whitened` learns its map: Mahalanobis distances, in units of the variation within classes. Let σ_j
be the standard deviation of feature j about the means of the classes, and R the correlation matrix
of these residuals. The distance is that of

    D = S⁻¹ R̂⁻¹ S⁻¹,   S = diag(σ),   R̂ = (1 - s) R + s I,

so a direction in which samples of one class differ a lot counts little, and features may have any
units. Few samples underestimate the small eigenvalues of R, on whose inverses everything depends,
so it is shrunk toward the identity, by the share s that minimizes the expected squared error of R̂,
estimated as Ledoit and Wolf do (2004, "A well-conditioned estimator for large-dimensional
covariance matrices"): of n residuals z of standardized features, with R the mean of z zᵀ,

    s = min(1, mean |z zᵀ - R|² / (n |R - I|²)).

Where there is nothing to estimate, distances must not explode or vanish. A feature that is constant
within all classes gets the smallest σ of the others, as above, and no
correlations; if all are, σ is 1, the Euclidean distance. Eigenvalues of R̂ are at least 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.errors import InputError
from iknow.metrics.lipschitz import (
    FLOAT32_ROUNDING,
    FLOAT64_ROUNDING,
    ROUND_UP,
    as_matrix,
    spectral_norm,
)
from iknow.metrics.metric import Metric, check_fitted, in_parts, register_metric

NORMAL_IQR = 1.3489795003921634  # the interquartile range of the standard normal distribution
LARGEST = float(np.finfo(np.float32).max)
LEAST_NEW = 30.0  # scales that what is new is away at least; far more would slow down the search
GAP_AMONG_NEW = 2.0  # so far is a gap where none was, beside what else is new
A_GAP, A_CATEGORY = 1.0, 2.0  # flags of values
NUMBERS, CATEGORIES, LEFT_OUT = 0.0, 1.0, 2.0  # kinds of columns
MOST_CODES = 1 << 24  # activations are float32, which holds all integers up to here
MOST_CATEGORIES = 256  # of a column that have a dimension of their own
FEWEST_NAMES = 20  # distinct values from which on a column may hold names rather than categories
LEAST_EIGENVALUE = 1e-6  # of a correlation matrix, whose eigenvalues are 1 on average
MOST_FEATURES = 8192  # a square matrix of them takes half a gigabyte


@register_metric
@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Metric):
    """The ℓ2 distance of features divided by robust scales, |(a - b) / scale|₂.

    `fit` finds `center` and `scale`, both of shape (n_features,); until then they are empty.

    Examples:
        >>> table = [[1, 0.001], [2, 0.003], [3, 0.005], [4, 0.002], [5, 0.004]]
        >>> metric = Scaled().fit(table, [0, 0, 0, 0, 0])
        >>> (metric.scale[0] / metric.scale[1]).round(6)
        np.float64(1000.0)
    """

    center: Floats = field(default_factory=lambda: np.empty(0))
    scale: Floats = field(default_factory=lambda: np.empty(0))
    p = 2.0

    def __post_init__(self) -> None:
        kind, names = type(self).__name__, [each.name for each in fields(self)]
        for name in names:
            values = as_matrix([getattr(self, name)], f"the {name} of the metric {kind}")[0]
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        shapes = [getattr(self, name).shape for name in names]
        least = min(getattr(self, name).min(initial=np.inf) for name in names[1:])
        if len(set(shapes)) > 1 or least <= 0:
            raise InputError(
                f"the metric {kind} needs a {', a positive '.join(names)} for each feature; got "
                f"shapes {' and '.join(map(str, shapes))}, the smallest {' or '.join(names[1:])} "
                f"{least:.3g}"
            )

    @property
    def width(self) -> int:
        return len(self.center)

    def fit(self, activations: Any, labels: Any) -> Scaled:
        values = np.asarray(activations)
        if values.ndim != 2 or not values.size:
            raise InputError(
                f"scales need activations of shape (n, n_features); got {values.shape}"
            )
        return Scaled(*_find_spreads(values.T))

    def transform(self, activations: Any) -> Any:
        check_fitted(self)
        return in_parts(self._scale, activations, self.width)

    def _scale(self, values: Floats) -> Floats:
        with np.errstate(over="ignore"):
            points: Floats = (values - self.center) / self.scale
        return np.clip(points, -LARGEST, LARGEST, out=points)

    def restore(self, points: Any) -> Any:
        return in_parts(lambda part: part * self.scale + self.center, points, len(self.center))

    def features_of(self, width: int) -> Ints | None:
        return np.arange(width)

    def expansion(self, n_features: int) -> float:
        check_fitted(self)
        return float(1 / self.scale.min()) * ROUND_UP

    def rounding(self, n_features: int) -> float:
        return 0.0  # see relative_rounding: only what is left of an activation is rounded

    def relative_rounding(self, n_features: int) -> float:
        return (FLOAT32_ROUNDING + 4 * FLOAT64_ROUNDING) * ROUND_UP


@register_metric
@dataclass(frozen=True, eq=False, repr=False)
class Table(Metric):
    """The ℓ2 distance of scaled values, of the flags of missing ones, and of categories.

    `fit` finds, for d columns, `center` and `scale` of their values and the `weight` of their gaps;
    `kind`, which is 0 for numbers, 1 for categories and 2 for a column that is left out, each of
    shape (d,); and for m categories their `codes`, ascending by column, the `owners`, their
    columns, and `places`, the dimension of each or -1, of shape (m,); `new` is how far away is what
    training has none of, of shape (1,). Until then they are empty.

    Examples:
        >>> table = [[1, 0], [2, 0], [3, 0], [0, 1]]  # the last value is missing
        >>> Table().fit(table, [0, 0, 0, 0]).transform([[2, 0], [0, 1]])
        array([[0., 0.],
               [0., 1.]])
    """

    center: Floats = field(default_factory=lambda: np.empty(0))
    scale: Floats = field(default_factory=lambda: np.empty(0))
    weight: Floats = field(default_factory=lambda: np.empty(0))
    kind: Floats = field(default_factory=lambda: np.empty(0))
    codes: Floats = field(default_factory=lambda: np.empty(0))
    owners: Floats = field(default_factory=lambda: np.empty(0))
    places: Floats = field(default_factory=lambda: np.empty(0))
    new: Floats = field(default_factory=lambda: np.empty(0))
    p = 2.0

    def __post_init__(self) -> None:
        for each in fields(self):
            values = as_matrix([getattr(self, each.name)], f"the {each.name} of a Table")[0]
            values.flags.writeable = False
            object.__setattr__(self, each.name, values)
        d, m = len(self.center), len(self.codes)
        by_column = len(self.scale) == len(self.weight) == len(self.kind) == d
        by_column &= len(self.new) == min(d, 1)
        by_category = len(self.owners) == len(self.places) == m
        ordered = np.lexsort((self.codes, self.owners)) if by_category else np.empty(0)
        if not (
            by_column
            and by_category
            and min(self.scale.min(initial=1), self.weight.min(initial=1)) > 0
            and np.isin(self.kind, (NUMBERS, CATEGORIES, LEFT_OUT)).all()
            and np.array_equal(ordered, np.arange(m))
            and np.array_equal(np.unique(self.owners), np.flatnonzero(self.kind == CATEGORIES))
            and np.array_equal(np.sort(self.places[self.places >= 0]), np.arange(self._n_places))
        ):
            raise InputError(
                "a Table needs center, scale, weight and kind for each column, scales and weights "
                "positive, and codes, owners and places for each category, by column and code"
            )

    @property
    def width(self) -> int:
        return 2 * len(self.center) + self._n_places

    @property
    def _n_places(self) -> int:
        return int((self.places >= 0).sum())

    def fit(self, activations: Any, labels: Any) -> Table:
        table = np.asarray(activations)
        if table.ndim != 2 or not table.size or table.shape[1] % 2:
            raise InputError(
                "the metric Table needs activations of shape (n, 2 d), d values and their d flags; "
                f"got {table.shape}"
            )
        values, flags = np.split(table, 2, axis=1)
        named, missing = flags == A_CATEGORY, flags == A_GAP
        kind = np.where(named.any(axis=0), CATEGORIES, NUMBERS).astype(np.float64)
        there = (column[flag == 0] for column, flag in zip(values.T, flags.T, strict=True))
        codes, owners, places, n_places = list[Any](), list[Any](), list[Any](), 0
        for j in np.flatnonzero(kind):
            found, counts = np.unique(values[named[:, j], j], return_counts=True)
            if len(found) > max(FEWEST_NAMES, named[:, j].sum() / 2):
                kind[j] = LEFT_OUT
                continue
            common = np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]
            place = np.full(len(found), -1)
            place[common] = np.arange(len(common)) + n_places
            n_places += len(common)
            codes.append(found)
            owners.append(np.full(len(found), j))
            places.append(place)
        of_categories = {"codes": codes, "owners": owners, "places": places}
        joined = {name: np.hstack([[], *each]) for name, each in of_categories.items()}
        center, scale = _find_spreads(there)
        with np.errstate(over="ignore"):
            furthest = np.abs(np.where(flags == 0, (values - center) / scale, 0.0)).max()
        new = min(max(LEAST_NEW, 2 * float(furthest)), LARGEST)
        weight = np.where(missing.any(axis=0), 1.0, GAP_AMONG_NEW * new)
        return Table(center, scale, weight, kind, **joined, new=np.array([new]))

    def transform(self, activations: Any) -> Any:
        check_fitted(self)
        return in_parts(self._points, activations, 2 * len(self.center))

    def _points(self, activations: Floats) -> Floats:
        values, flags = np.split(activations, 2, axis=1)
        with np.errstate(over="ignore"):
            scaled = np.clip((values - self.center) / self.scale, -LARGEST, LARGEST)
        scaled = np.where(flags == 0, scaled, 0.0)
        # A text among numbers, or a number among categories.
        scaled[(flags != A_GAP) & ((flags == A_CATEGORY) != (self.kind == CATEGORIES))] = self.new
        categories = np.zeros((len(values), self._n_places))
        for j in np.flatnonzero(self.kind == CATEGORIES):
            first, last = np.searchsorted(self.owners, (j, j + 1))
            rows = np.flatnonzero(flags[:, j] == A_CATEGORY)
            asked, known = values[rows, j], self.codes[first:last]
            at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            is_known = known[at] == asked
            scaled[rows[~is_known], j] = self.new
            places = self.places[first:last][at].astype(np.int64)
            has_place = is_known & (places >= 0)
            categories[rows[has_place], places[has_place]] = math.sqrt(0.5)
        gaps = (flags == A_GAP) * self.weight
        scaled[:, self.kind == LEFT_OUT] = gaps[:, self.kind == LEFT_OUT] = 0.0
        return np.hstack([scaled, gaps, categories])

    def restore(self, points: Any) -> Any:
        """Return values and flags behind `points`; a category that is not frequent has code -1."""
        values, gaps, categories = np.split(
            points, (len(self.center), 2 * len(self.center)), axis=1
        )
        flags = np.where(gaps > 0, A_GAP, A_CATEGORY * (self.kind == CATEGORIES))
        values = np.where(flags == 0, values * self.scale + self.center, 0.0)
        codes = np.full(values.shape, -1.0)
        rows, places = np.nonzero(categories)
        found = self._placed[places]
        codes[rows, self.owners[found].astype(np.int64)] = self.codes[found]
        return np.hstack([np.where(flags == A_CATEGORY, codes, values), flags])

    def features_of(self, width: int) -> Ints | None:
        columns, placed = np.arange(len(self.center)), self._placed
        return np.concatenate([columns, columns, self.owners[placed].astype(np.int64)])

    @property
    def _placed(self) -> Ints:
        """The categories that have a dimension, in the order of these."""
        kept = np.flatnonzero(self.places >= 0)
        return np.asarray(kept[np.argsort(self.places[kept])])

    def unseen(self, activations: Any) -> list[dict[int, str]]:
        values, flags = np.split(np.asarray(activations, dtype=np.float64), 2, axis=1)
        points, d = self.transform(np.hstack([values, flags])), len(self.center)
        is_new = points[:, :d] == self.new
        of_categories = self.kind == CATEGORIES
        found = [
            ("a category never seen in training", is_new & (flags == A_CATEGORY) & of_categories),
            ("text where training has numbers", is_new & (flags == A_CATEGORY) & ~of_categories),
            ("a number where training has categories", is_new & (flags == 0) & of_categories),
            ("never missing in training", points[:, d : 2 * d] > 1),
        ]
        return [
            {int(j): words for words, mask in found for j in np.flatnonzero(mask[i])}
            for i in range(len(values))
        ]

    def expansion(self, n_features: int) -> float:
        return math.inf

    def rounding(self, n_features: int) -> float:
        return math.inf


def code_of(category: Any) -> float:
    """The number that stands for a category in the layer "table", the same in every column."""
    return float(crc32(str(category).encode("utf-8", "surrogatepass")) % MOST_CODES)


def _find_spreads(features: Iterable[Any]) -> tuple[Floats, Floats]:
    """The medians and the scales of features, each the values of shape (n,) that are there."""
    center, scale = np.array([_find_spread(feature) for feature in features]).T
    varies = scale > 0
    scale[~varies] = scale[varies].min() if varies.any() else 1.0
    return center, scale


def _find_spread(feature: Any) -> tuple[float, float]:
    """The median and the scale of one feature; the scale is 0 if it is constant.

    Quantiles are values that occur: between two of them a flag would have a tiny spread. A value
    that is never there has no spread; should it be there once, that is new.
    """
    column = as_matrix(feature[:, None], "activations").ravel()
    if not len(column):
        return 0.0, 0.0
    low, center, high = np.quantile(column, [0.25, 0.5, 0.75], method="inverted_cdf")
    apart = np.abs(column - center)
    apart = apart[apart > 0]
    if not len(apart):
        return float(center), 0.0
    return float(center), max(float(high - low) / NORMAL_IQR, float(np.median(apart)))


@register_metric
@dataclass(frozen=True, eq=False, repr=False)
class Weighted(Metric):
    """The distance |(a - b) @ map|₂, with a `map` of shape (n_features, m): D = map mapᵀ.

    Examples:
        >>> Weighted(np.diag([1.0, 2.0])).distances([[0, 0]], [[0, 3]])
        array([[6.]])
    """

    map: Floats
    p = 2.0

    def __post_init__(self) -> None:
        values = as_matrix(self.map, "the map of a weighted metric")
        values.flags.writeable = False
        object.__setattr__(self, "map", values)

    @property
    def width(self) -> int:
        return int(self.map.shape[1])

    def transform(self, activations: Any) -> Any:
        check_fitted(self)
        return in_parts(lambda values: values @ self.map, activations, len(self.map))

    def expansion(self, n_features: int) -> float:
        check_fitted(self)
        return spectral_norm(self.map)

    def rounding(self, n_features: int) -> float:
        check_fitted(self)
        # |a| @ |map| bounds the sums in any order, and is at most |a|₂ times this norm.
        size = float(np.linalg.norm(self.map))
        return (FLOAT32_ROUNDING + 2 * (len(self.map) + 1) * FLOAT64_ROUNDING) * size * ROUND_UP


def weighted_metric(weights: Sequence[Any], rank_tolerance: float | None = None) -> Weighted:
    """Return the metric of the layer that the weights W_1, ..., W_i lead to: its map is V Σ⁻¹.

    `weights` have shape (n_inputs, n_outputs), first layer first: the transpose of what a torch
    Linear stores. Singular values up to the share `rank_tolerance` of the largest count as 0, which
    only makes distances smaller; by default numpy's rule for float64 says which.

    Examples:
        >>> weighted_metric([np.diag([2.0, 4.0])]).map.shape
        (2, 2)
    """
    matrices = [as_matrix(w, f"weight matrix {i + 1}") for i, w in enumerate(weights)]
    if not matrices:
        raise InputError("a weighted metric needs at least one weight matrix; got none")
    for i, (left, right) in enumerate(pairwise(matrices)):
        if left.shape[1] != right.shape[0]:
            raise InputError(
                f"weight matrices of shape (n_inputs, n_outputs) must chain; matrix {i + 1} has "
                f"shape {left.shape}, matrix {i + 2} {right.shape}: transpose weights from torch"
            )
    product = reduce(np.matmul, matrices)
    _, sizes, v_transposed = np.linalg.svd(product, full_matrices=False)
    if rank_tolerance is None:
        rank_tolerance = max(product.shape) * float(np.finfo(np.float64).eps)
    kept = (sizes > rank_tolerance * sizes.max(initial=0.0)) & (sizes > 0)
    if not kept.any():
        raise InputError(
            f"the product of the {len(matrices)} weight matrices is 0: the layer does not depend "
            "on the input, so it has no weighted metric"
        )
    return Weighted(v_transposed[kept].T / sizes[kept])


@register_metric
@dataclass(frozen=True, eq=False, repr=False)
class Whitened(Weighted):
    """The Mahalanobis distance for the shrunk covariance within classes.

    `fit` finds the `map`, of shape (n_features, n_features); until then it is empty.

    Examples:
        >>> spread = [[0, 0], [4, 0], [0, 1], [4, 1], [9, 9], [13, 9], [9, 10], [13, 10]]
        >>> metric = Whitened().fit(spread, [0, 0, 0, 0, 1, 1, 1, 1])
        >>> metric.distances([[0, 0]], [[4, 0], [0, 1]])
        array([[2., 2.]])
    """

    map: Floats = field(default_factory=lambda: np.empty((0, 0)))

    def fit(self, activations: Any, labels: Any) -> Whitened:
        values, codes = np.asarray(activations), np.asarray(labels)
        if values.ndim != 2 or not values.size or codes.shape != values.shape[:1]:
            raise InputError(
                "whitening needs activations of shape (n, n_features) with labels of shape (n,); "
                f"got {values.shape} and {codes.shape}"
            )
        if values.shape[1] > MOST_FEATURES:
            raise InputError(
                f"whitening needs a square matrix of the {values.shape[1]:,} features, too large "
                f"beyond {MOST_FEATURES:,}: choose another layer, or the metric Scaled or Cosine"
            )
        return Whitened(_find_map(values, codes))


def _residuals(values: Any, codes: Any) -> Iterator[Floats]:
    """The samples of one class after the other, less their mean."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, starts):
        part = as_matrix(values[rows], "activations")
        yield part - part.mean(axis=0)


def _find_map(values: Any, codes: Any) -> Floats:
    """S⁻¹ times the symmetric root of R̂⁻¹: unlike other roots it is unique."""
    n, n_features = values.shape
    squares = sum(np.square(part).sum(axis=0) for part in _residuals(values, codes))
    spread: Floats = np.sqrt(np.asarray(squares) / n)
    # Activations are float32: less than a step of it is the rounding of the mean.
    varies = spread > FLOAT32_ROUNDING * np.abs(values).max(axis=0).astype(np.float64)
    spread[~varies] = spread[varies].min() if varies.any() else 1.0
    products, fourth = np.zeros((n_features, n_features)), 0.0
    for part in _residuals(values, codes):
        units = np.where(varies, part / spread, 0.0)
        products += units.T @ units
        fourth += float(np.square(np.square(units).sum(axis=1)).sum())
    found: Floats = products / n
    # mean |z zᵀ - R|² = mean |z|⁴ - |R|²
    error = (fourth / n - np.square(found).sum()) / n
    apart = np.square(found - np.diag(varies.astype(np.float64))).sum()
    shrinkage = float(min(max(error, 0.0) / apart, 1.0)) if apart > 0 else 1.0
    found *= 1 - shrinkage
    np.fill_diagonal(found, 1.0)  # the diagonal of R is 1, and of constant features too
    sizes, vectors = np.linalg.eigh(found)
    root: Floats = (vectors / np.sqrt(np.maximum(sizes, LEAST_EIGENVALUE))) @ vectors.T
    return root / spread[:, None]
