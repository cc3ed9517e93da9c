"""Perturbations that need no domain knowledge: what may happen to any numbers on their way.

    Noise      a sensor gets worse: normal noise, in units of each feature's spread
    Swap       cables are mixed up: some features of a sample trade places
    Scaling    a unit or a gain is wrong: the whole sample is multiplied
    Mixup      between two samples: the average of two of different classes
    Marginals  what never was: each feature is taken from another sample

Each returns perturbed inputs and what the right answers are. Noise, swaps and scaling keep the
label. Of a mixture either parent's label is right. A sample with resampled marginals is of no
class, so whatever is asserted about it counts as wrong; where the features are nearly independent
it looks like any other sample, and the figure only tells how much is asserted.

In a table the numbers change, and categories, texts and dates stay; only the last resamples all
columns. Gaps stay gaps.

Noise and scaling stay within the smallest and the largest value of the training data as a whole, as
pixels do: a method that notices values out of range by accident would look better than it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Labels
from iknow.core.text import as_real
from iknow.models.inputs import as_numbers, is_number

Inputs = NDArray[Any]
Perturbed = tuple[Inputs, Labels | None]


@runtime_checkable
class Perturbation(Protocol):
    """A way to change inputs, called with (X, y, training, rng).

    X: of shape (n, ...). y: labels of shape (n,). training: the training inputs, for their spread.
    It returns inputs like X, and their right labels: of shape (n,), of shape (n, m) if any of m is
    right, or None if none is.

    Examples:
        >>> X, y = np.arange(4.0).reshape(2, 2), np.array([0, 1])
        >>> np.sort(Marginals()(X, y, X, np.random.default_rng(0))[0], axis=0)
        array([[0., 1.],
               [2., 3.]])
    """

    @property
    def name(self) -> str:
        """What tables call it."""

    def __call__(self, X: Inputs, y: Labels, training: Inputs, rng: Generator) -> Perturbed: ...


@dataclass(frozen=True)
class Noise:
    """Adds normal noise of `strength` times each feature's deviation; tables call it `name`."""

    strength: float = 0.5
    name: str = "noise"

    def __post_init__(self) -> None:
        as_real(self.strength, "strength", "be > 0", lambda number: number > 0)

    def __call__(self, X: Inputs, y: Labels, training: Inputs, rng: Generator) -> Perturbed:
        spread = training.std(axis=0, dtype=np.float64)
        noise = self.strength * spread * rng.standard_normal(X.shape)
        return _like(np.clip(X + noise, training.min(), training.max()), X), y


@dataclass(frozen=True)
class Swap:
    """Lets a `share` of each sample's features trade places at random; tables call it `name`."""

    share: float = 0.25
    name: str = "swaps"

    def __post_init__(self) -> None:
        as_real(self.share, "share", "lie in (0, 1]", lambda number: 0 < number <= 1)

    def __call__(self, X: Inputs, y: Labels, training: Inputs, rng: Generator) -> Perturbed:
        flat = X.reshape(len(X), -1).copy()
        traded = max(2, round(self.share * flat.shape[1]))
        for row in flat:
            places = rng.permutation(len(row))[:traded]
            row[places] = row[np.roll(places, 1)]  # each of them moves
        return flat.reshape(X.shape), y


@dataclass(frozen=True)
class Scaling:
    """Scales each sample by 1 / `factor` to `factor`, even in logarithms; tables call it `name`."""

    factor: float = 2.0
    name: str = "scaling"

    def __post_init__(self) -> None:
        as_real(self.factor, "factor", "be > 1", lambda number: number > 1)

    def __call__(self, X: Inputs, y: Labels, training: Inputs, rng: Generator) -> Perturbed:
        scaled = X * self.factor ** _per_sample(rng, -1, 1, X)
        return _like(np.clip(scaled, training.min(), training.max()), X), y


@dataclass(frozen=True)
class Mixup:
    """Averages each sample with one of another class; `least` is the least weight of either.

    Tables call it `name`.
    """

    least: float = 0.3
    name: str = "mixup"

    def __post_init__(self) -> None:
        as_real(self.least, "least", "lie in [0, 1/2]", lambda number: 0 <= number <= 0.5)

    def __call__(self, X: Inputs, y: Labels, training: Inputs, rng: Generator) -> Perturbed:
        partners = np.arange(len(X))
        for label in np.unique(y):
            own, others = np.flatnonzero(y == label), np.flatnonzero(y != label)
            partners[own] = rng.choice(others if len(others) else own, size=len(own))
        share = _per_sample(rng, self.least, 1 - self.least, X)
        mixed = _like(share * X + (1 - share) * X[partners], X)
        return mixed, np.column_stack([y, y[partners]])


@dataclass(frozen=True)
class Marginals:
    """Takes each feature of each sample from one drawn at random; tables call it `name`."""

    name: str = "marginals"

    def __call__(self, X: Inputs, y: Labels, training: Inputs, rng: Generator) -> Perturbed:
        return rng.permuted(X, axis=0), None


# What `compare` tries by default.
PERTURBATIONS: tuple[Perturbation, ...] = (Noise(), Swap(), Scaling(), Mixup(), Marginals())


def perturb_table(
    each: Perturbation, X: Any, y: Labels, training: Any, rng: Generator
) -> tuple[Any, Labels | None]:
    """A data frame, perturbed, and its right labels, as `each` gives them for its numbers.

    training: likewise, a data frame. Whole numbers stay whole, and flags flags.
    """
    is_plain = np.array([is_number(dtype) for dtype in X.dtypes])
    numbers, changed = np.flatnonzero(is_plain), X.copy()
    truth: Labels | None = None if isinstance(each, Marginals) else y
    if len(numbers):
        values, background = (as_numbers(t.iloc[:, numbers], "a table") for t in (X, training))
        values, truth = perturb_numbers(each, values, y, background, rng)
        for j, column in zip(numbers, values.T, strict=True):
            dtype = X.dtypes.iloc[j]
            whole = np.rint(column) if dtype.kind in "iu" else column
            found = column > 0.5 if dtype.kind == "b" else whole
            changed.isetitem(j, type(X.iloc[:, j])(found, index=X.index).astype(dtype))
    for j in np.flatnonzero(~is_plain) if truth is None else ():
        changed.isetitem(j, X.iloc[:, j].iloc[rng.permutation(len(X))].set_axis(X.index))
    return changed, truth


def perturb_numbers(
    each: Perturbation, X: Inputs, y: Labels, training: Inputs, rng: Generator
) -> Perturbed:
    """What `each` makes of X as if its gaps were medians of the training data; gaps stay gaps."""
    missing, unknown = (np.isnan(t) if t.dtype.kind == "f" else np.zeros(1) for t in (X, training))
    if not missing.any() and not unknown.any():
        return each(X, y, training, rng)
    flat = np.where(unknown, np.nan, training).reshape(len(training), -1).T
    known = (column[~np.isnan(column)] for column in flat)
    medians = np.array([np.median(some) if len(some) else 0.0 for some in known])
    usual = medians.reshape(X.shape[1:])
    filled = [np.where(np.isnan(t), usual, t).astype(t.dtype) for t in (X, training)]
    changed, truth = each(filled[0], y, filled[1], rng)
    return np.where(missing, np.nan, changed).astype(X.dtype), truth


def _per_sample(rng: Generator, low: float, high: float, X: Inputs) -> Floats:
    """A number for each sample, drawn evenly, that multiplies all of its features."""
    return rng.uniform(low, high, size=(len(X), *[1] * (X.ndim - 1)))


def _like(values: Inputs, X: Inputs) -> Inputs:
    """Values in the dtype of the inputs; whole numbers by rounding."""
    whole = X.dtype.kind in "iub"
    return (np.rint(values) if whole else values).astype(X.dtype)
