"""DkNN: do the nearest training samples of every layer agree with the answer, as usual?

Papernot and McDaniel, "Deep k-Nearest Neighbors" (2018). The nonconformity of a sample with a class
is the number of its k nearest training samples, summed over the layers, that are of other classes.
The credibility of an answer is the share of calibration samples whose nonconformity with their true
class is at least as large: a conformal p-value. Calibration samples are the validation data.

The paper's classifier answers with the most credible class; we score the model's own answer.
Credibility falls in steps as nonconformity rises, so we return minus the nonconformity, which ranks
samples the same way but tells some apart that are equally credible; `credibility` gives the paper's
number. k = 75 is the paper's choice; with fewer training samples it is their number. Samples tied
with the k-th neighbor all count, so the order of the training set does not matter.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.scalars import as_whole
from iknow.evaluation.peers.observed import Layer, Observed
from iknow.search.cells import CpuIndex
from iknow.search.index import Index, IndexFactory

ROUNDING = 1 + 1e-9  # two searches may measure the same distance in another order


class DkNN:
    """Scores an answer by how many neighbors in all layers are of other classes, negated.

    Args:
        k: Number of neighbors in each layer.
        index: The index to search with, such as one on another device.

    Examples:
        >>> dknn = DkNN(k=5).fit(training, validation)
        >>> bool((dknn.credibility(test) <= 1).all())
        True
    """

    name = "DkNN"

    def __init__(self, k: int = 75, *, index: IndexFactory = CpuIndex) -> None:
        self.k = as_whole(k, "k", "be a whole number >= 1")
        self.index = index

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Store the activations of `training`, and calibrate on `validation`."""
        truth = training.truth()
        self._layers = {
            name: _Layer(training, name, truth, self.k, self.index) for name in training.layers
        }
        nonconformity = self._nonconformity(validation, validation.truth())
        self._calibration = np.sort(nonconformity)
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        return -self._nonconformity(observed, observed.belief)

    def credibility(self, observed: Observed) -> Floats:
        """Return the credibility of each answer in `observed`, in [0, 1], of shape (n,)."""
        found = self._nonconformity(observed, observed.belief)
        below = np.searchsorted(self._calibration, found, side="left")
        return 1.0 - below / len(self._calibration)

    def _nonconformity(self, observed: Observed, codes: Ints) -> Floats:
        counts = [layer.others(observed, codes) for layer in self._layers.values()]
        total: Floats = np.sum(counts, axis=0)
        return total


class _Layer:
    """The training activations of a layer: all together, and class by class."""

    def __init__(
        self, training: Observed, name: Layer, truth: Ints, k: int, index: IndexFactory
    ) -> None:
        points = training.layer(name)
        self.name: Layer = name
        self.k = min(k, len(points))
        self.whole = _make(index, points)
        self.classes = {int(code): _make(index, points[truth == code]) for code in np.unique(truth)}
        self.counts = {int(code): int((truth == code).sum()) for code in np.unique(truth)}

    def others(self, observed: Observed, codes: Ints) -> Floats:
        """How many of each sample's k nearest are not of its class in `codes`, of shape (n,)."""
        queries = observed.layer(self.name)
        reach = self.whole.gather(queries, self.k).neighbor_distance(self.k) * ROUNDING
        others = np.full(len(queries), float(self.k))
        for code, index in self.classes.items():
            rows = np.flatnonzero(codes == code)
            near = index.gather(queries[rows], min(self.k, self.counts[code])).neighbor_distances
            others[rows] -= (near <= reach[rows, None]).sum(axis=1)
        return others


def _make(index: IndexFactory, points: Floats) -> Index:
    return index(points, np.zeros(len(points), dtype=np.int64), 1)
