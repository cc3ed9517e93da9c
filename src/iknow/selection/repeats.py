"""Repeats: samples that are there several times, and what they may count for.

Equal rows are several observations if each stands for a case of its own, as in a table of a few
categories. They are one if a case was written down twice, and then errors on them are no
independent draws. A row does not say which it is, but many rows together do. Draws from the same
source know nothing of the split: of rows that are g times there, at least once among n validation
samples, none is among N training samples with probability

    C(n, g) / (C(n + N, g) - C(N, g))

With the mean of these, those with g >= 2 are compared by a binomial test: chances that vary spread
less. And nothing draws every row 20 times: that a row is there about s times and in fact a multiple
of r has a probability of 1/r + 0.4/√s at most, as counts have one peak, and of 1/2 at most; for all
rows it is the product of these, without the smallest, as the sum of all is given. Repeats count
once if either comes out as it does for one in 10,000 honest validation sets at most. Where training
and validation samples together have a divisor, the ones are copies of the others: refused.

Equal training rows may have different labels, but they agree at least as often as unrelated rows,
whose labels differ with probability 1 - Σ p_c². If they do not, or if every row is there equally
often, labels are wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binom, hypergeom

from iknow.core.arrays import Floats, Ints
from iknow.errors import InputError, warn
from iknow.selection.validation import LEVEL

PROJECTIONS = 8
VALUES_AT_ONCE = 1 << 22
TOLERANCE = 1e-6  # of a projection's standard deviation, as batch sizes change the last bits


def sketch(points: Any) -> Floats:
    """Random projections of n points, of shape (n, 8), the same for equal ones but for rounding."""
    axes = np.random.default_rng(0).normal(size=(points.shape[1], PROJECTIONS))
    at_once = max(1, VALUES_AT_ONCE // max(points.shape[1], 1))
    starts = range(0, len(points), at_once)
    parts = [np.asarray(points[at : at + at_once]) @ axes for at in starts]
    return np.concatenate([np.empty((0, PROJECTIONS)), *parts])


def group_equal(sketches: Floats) -> Ints:
    """A number for each of n rows, of shape (n,), the same for those that are equal."""
    order = np.argsort(sketches[:, 0], kind="stable")
    steps = np.abs(np.diff(sketches[order], axis=0))
    differ = (steps > TOLERANCE * sketches.std(axis=0)).any(axis=1)
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = np.cumsum(np.append(False, differ))
    return groups


def count_times(sizes: Ints) -> int:
    """How often every different row is there, if that is no chance; else 1.

    sizes: how often each is there, all at least once.
    """
    shared = int(np.gcd.reduce(sizes)) if len(sizes) else 1
    chances = np.sort(np.minimum(0.5, 1 / shared + 0.4 / np.sqrt(sizes)))
    return shared if np.prod(chances[1:]) <= LEVEL else 1


def find_cases(ours: Floats, training: Floats) -> Ints | None:
    """The validation samples that are cases of their own, ascending; warn of others; None for all.

    ours, training: sketches of the n validation samples and of the N training samples.
    """
    n, groups = len(ours), group_equal(np.concatenate([ours, training]))
    n_groups = int(groups.max()) + 1
    held, known = (np.bincount(part, minlength=n_groups) for part in (groups[:n], groups[n:]))
    if (times := count_times(held + known)) > 1:
        raise InputError(
            f"every sample is there {times} times, or a multiple of that, among training and "
            "validation data: what is certified on copies of training samples says nothing about "
            "new ones. Keep each sample once, then fit and tune on different ones"
        )
    allowed = np.ceil(held / count_times(held[held > 0])).astype(np.int64)
    total, counted = allowed + known, int(allowed.sum())
    repeated = (allowed > 0) & (total >= 2)
    lonely = repeated & (known == 0)
    if lonely.any():
        drawn = counted + len(training), counted, total[repeated]
        inside, outside = (hypergeom.pmf(k, *drawn) for k in (total[repeated], 0))
        chance = float(np.mean(inside / (1 - outside)))
        if binom.sf(lonely.sum() - 1, repeated.sum(), chance) <= LEVEL:
            allowed[lonely] = 1
    order = np.argsort(groups[:n], kind="stable")
    ordered = groups[:n][order]
    place = np.arange(n) - np.searchsorted(ordered, ordered)
    rows = np.sort(order[place < allowed[ordered]])
    if len(rows) == n:
        return None
    warn(
        f"{n - len(rows):,} of the {n:,} validation samples repeat others in a way that new cases "
        f"do not, or in one of 10,000 sets at most: each case counts once, {len(rows):,} in all. "
        "Give each case once, and oversample nothing before you tune"
    )
    return rows


def warn_of_conflicts(points: Any, labels: Ints) -> None:
    """Warn of equal training samples whose labels differ as if they had nothing to do with them.

    points: of shape (n, n_features). labels: class codes, of shape (n,).
    """
    groups, n_classes, n = group_equal(sketch(points)), int(labels.max()) + 1, len(labels)
    sizes = np.bincount(groups)
    pairs, counts = np.unique(groups * n_classes + labels, return_counts=True)
    same = np.bincount(pairs // n_classes, counts * (counts - 1.0), minlength=len(sizes))
    several = sizes > 1
    differing = 1 - same[several] / (sizes * (sizes - 1.0))[several]  # of the pairs of each group
    usual = 1 - float(((np.bincount(labels) / n) ** 2).sum())
    n_mixed = int(sizes[several][differing > 0].sum())
    is_natural = binom.sf(np.ceil(differing.sum()) - 1, len(differing), usual) > LEVEL
    if n_mixed and not (is_natural and count_times(sizes) == 1):
        warn(
            f"{n_mixed:,} of the {n:,} training samples equal others with another label: of pairs "
            f"of equal samples {differing.mean():.0%} disagree, of any two {usual:.0%}. Labels or "
            "rows were mixed up, and no answer can rest on them: correct or remove these samples"
        )
