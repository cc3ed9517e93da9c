"""Agreement: do a model's beliefs and the labels that came with the samples belong together?

What shows columns of scores in another order than the classes, or labels in another order than the
samples, is how often belief a comes with label c beyond chance. Chance is labels in random order,
so neither a biased model nor classes of very different size matter.

- *Another order* of the columns that moves k of them is told where more samples are right by it
  alone than by the given order alone, beyond chance, by an amount that has a probability of at most
  1e-4 / C^k if neither order is better: there are no more than C^k such orders.
- *No agreement* is told where the right answers are no more than chance gives (z < 2.33, which one
  in a hundred useless models passes), while a model with three tenths of the excess that is
  possible would have more with a probability of 1 - 1e-4. So few samples, rare classes and a model
  that always says the same prove nothing.

All are normal approximations.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from iknow.core.arrays import Ints, Labels
from iknow.core.text import names

REFUSED = 1e-4  # of honest models and labels, at most this share is told
USELESS = 1e-2  # of models that know nothing, this share passes
USEFUL = 0.3  # of the excess that is possible
MOST_CLASSES = 2000  # that may have changed places


def find_slip(belief: Ints, labels: Ints, classes: Labels, what: str, named: bool) -> str | None:
    """What is wrong with labels of shape (n,), or with the order of the classes, in a sentence.

    belief, labels: class codes, of shape (n,). what: the samples, in words. named: whether the
    model itself names its classes.
    """
    n, right = len(labels), int((belief == labels).sum())
    sizes = [np.bincount(each, minlength=len(classes)) for each in (belief, labels)]
    said = f"the model is right on {right / max(n, 1):.1%} of the {n:,} {what} samples"
    order = find_order(belief, labels, len(classes))
    if (order != np.arange(len(classes))).any():
        advice = "give them as classes=[...] if that is their order, or put y in order"
        advice = "translate y into the labels that it was trained with" if named else advice
        return (
            f"{said}, and on {(order[belief] == labels).mean():.1%} if its columns of scores stand "
            f"for {names(classes[order].tolist())} instead of {names(classes.tolist())}: {advice}"
        )
    believed, given = (each / max(n, 1) for each in sizes)
    chance = float(believed @ given)
    pairs = float(believed @ given**2 + given @ believed**2)
    variance = max(chance + chance**2 - pairs, 0.0) * n * n / max(n - 1, 1)
    excess = right - n * chance
    useful = USEFUL * max(float(np.minimum(*sizes).sum() - n * chance), 0.0)
    is_chance = excess < norm.isf(USELESS) * np.sqrt(variance)
    missing = norm.isf(REFUSED) * np.sqrt(variance + useful)
    if is_chance and useful - excess > max(missing, 1.0):  # rounding is no missing sample
        return (
            f"{said}, as often as if it guessed: check that y is in the order of X, and that "
            f"{'y' if named else 'classes=[...]'} names the classes as the model does"
        )
    return None


def find_order(belief: Ints, labels: Ints, n_classes: int) -> Ints:
    """The class that each column of scores stands for, of shape (n_classes,), by its beliefs.

    It is 0, 1, 2, ... unless the labels prove another order.
    """
    n, order = len(labels), np.arange(n_classes)
    believed, given = (np.bincount(each, minlength=n_classes) for each in (belief, labels))
    pairs, counts = np.unique(belief * n_classes + labels, return_counts=True)
    columns, of = pairs // n_classes, pairs % n_classes
    own = np.bincount(belief[belief == labels], minlength=n_classes) - believed * given / max(n, 1)
    better = counts - believed[columns] * given[of] / max(n, 1) > own[columns]
    doubted = np.unique(columns[better])  # none of the others gains by moving
    if not 1 < len(doubted) <= MOST_CLASSES:
        return order
    found, within = np.zeros([len(doubted)] * 2), np.isin(columns, doubted) & np.isin(of, doubted)
    places = (np.searchsorted(doubted, each[within]) for each in (columns, of))
    found[tuple(places)] = counts[within]
    excess = found - np.outer(believed[doubted], given[doubted] / n)
    best = linear_sum_assignment(-excess)[1]
    order[doubted] = doubted[best]
    moved = np.flatnonzero(best != np.arange(len(doubted)))
    gain = float((excess[moved, best[moved]] - excess[moved, moved]).sum())
    decided = float((found[moved, best[moved]] + found[moved, moved]).sum())
    # A normal variable exceeds sqrt(2 x) standard deviations with a probability below exp(-x).
    limit = np.sqrt(2 * (len(moved) * np.log(n_classes) - np.log(REFUSED)) * decided)
    return order if len(moved) and gain > limit else np.arange(n_classes)
