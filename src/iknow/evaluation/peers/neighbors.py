"""Peers that search for neighbors: k-NN distance, trust scores and DkNN.

k-NN distance: how far away the k-th nearest training sample is, whatever its class.

Sun and others, "Out-of-Distribution Detection with Deep Nearest Neighbors" (ICML 2022): with
activations scaled to length 1,

    score = -|z - z_(k)|

where z_(k) is the k-th nearest training activation. k = 50 is the paper's choice for the 50,000
images of CIFAR-10; with fewer than 50 training samples it is their number.

Trust Score: how much nearer the believed class is than the nearest other one.

Jiang and others, "To Trust Or Not To Trust A Classifier" (NeurIPS 2018):

    score = d_¬g / d_g

Each class is all its training samples, as by the authors' default, which leaves no share α of
lowest density out. At d_g = 0 the score is inf if d_¬g > 0, else 1: the authors add 1e-12 to d_g,
which differs only there.

DkNN: do the nearest training samples of every layer agree with the answer, as usual?

Papernot and McDaniel, "Deep k-Nearest Neighbors" (2018). The nonconformity of a sample with a class
is the number of its k nearest training samples, summed over the layers, that are of other classes.
The credibility of an answer is the share of calibration samples whose nonconformity with their true
class is at least as large: a conformal p-value.

The paper's classifier answers with the most credible class; we score the model's own answer.
Credibility falls in steps as nonconformity rises, so we return minus the nonconformity, which ranks
samples the same way but tells some apart that are equally credible, and needs no calibration. k =
75 is the paper's choice; with fewer training samples it is their number. Samples tied with the k-th
neighbor all count, so the order of the training set does not matter.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.core.evidence import distances_for_and_against
from iknow.core.text import as_whole
from iknow.evaluation.peers.peer import Layer, Observed
from iknow.search.cells import CpuIndex
from iknow.search.index import Index, IndexFactory


class KNNDistance:
    """Scores an answer by the distance to the k-th nearest training sample, negated.

    Args:
        k: Which neighbor.
        layer: "hidden" or "input".
        index: The index to search with, such as one on another device.

    Examples:
        >>> bool((KNNDistance(k=5).fit(training, validation).score(test) <= 0).all())
        True
    """

    def __init__(
        self, k: int = 50, layer: Layer = "hidden", *, index: IndexFactory = CpuIndex
    ) -> None:
        self.k = as_whole(k, "k", "be a whole number >= 1")
        self.layer: Layer = layer
        self.index = index
        self.name = "k-NN distance" if layer == "hidden" else f"k-NN distance ({layer})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Store the activations of `training`; `validation` does not matter."""
        points = unit(training.layer(self.layer))
        self._n_rows = len(points)
        self._index = _make(self.index, points)
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        k = min(self.k, self._n_rows)
        return -self._index.gather(unit(observed.layer(self.layer)), k).neighbor_distance(k)


def unit(points: NDArray[Any]) -> Floats:
    """Rows scaled to length 1; a row of zeros stays."""
    lengths = np.linalg.norm(points.astype(np.float64), axis=1, keepdims=True)
    scaled: Floats = points / np.maximum(lengths, 1e-12)
    return scaled


class TrustScore:
    """Scores an answer by the ratio of two distances.

    Args:
        layer: "hidden" or "input".
        index: The index to search with, such as one on another device.

    Examples:
        >>> bool((TrustScore().fit(training, validation).score(test) >= 0).all())
        True
    """

    def __init__(self, layer: Layer = "hidden", *, index: IndexFactory = CpuIndex) -> None:
        self.layer: Layer = layer
        self.index = index
        self.name = f"Trust Score ({layer})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Store the activations of `training`; `validation` does not matter."""
        points, n_classes = training.layer(self.layer), training.logits.shape[1]
        self._index = self.index(points, training.truth(), n_classes)
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        evidence = self._index.gather(observed.layer(self.layer))
        own, other = distances_for_and_against(evidence, observed.belief)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = other / own
        return np.where((own == 0) & (other == 0), 1.0, np.where(np.isinf(own), 0.0, ratio))


ROUNDING = 1 + 1e-9  # two searches may measure the same distance in another order


class DkNN:
    """Scores an answer by how many neighbors in all layers are of other classes, negated.

    Args:
        k: Number of neighbors in each layer.
        index: The index to search with, such as one on another device.

    Examples:
        >>> bool((DkNN(k=5).fit(training, validation).score(test) <= 0).all())
        True
    """

    name = "DkNN"

    def __init__(self, k: int = 75, *, index: IndexFactory = CpuIndex) -> None:
        self.k = as_whole(k, "k", "be a whole number >= 1")
        self.index = index

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Store the activations of `training`; `validation` does not matter."""
        self._layers = [_Layer(training, name, self.k, self.index) for name in training.layers]
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        others: Floats = np.sum([layer.others(observed) for layer in self._layers], axis=0)
        return -others


class _Layer:
    """The training activations of a layer: all together, and class by class."""

    def __init__(self, training: Observed, name: Layer, k: int, index: IndexFactory) -> None:
        points, truth = training.layer(name), training.truth()
        self.name: Layer = name
        self.k = min(k, len(points))
        self.whole = _make(index, points)
        codes, counts = np.unique(truth, return_counts=True)
        self.classes = {
            code: (_make(index, points[truth == code]), min(self.k, count))
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
        }

    def others(self, observed: Observed) -> Floats:
        """How many of each sample's k nearest are not of its believed class, of shape (n,)."""
        queries = observed.layer(self.name)
        reach = self.whole.gather(queries, self.k).neighbor_distance(self.k) * ROUNDING
        others = np.full(len(queries), float(self.k))
        for code, (index, k) in self.classes.items():
            rows = np.flatnonzero(observed.belief == code)
            near = index.gather(queries[rows], k).neighbor_distances
            others[rows] -= (near <= reach[rows, None]).sum(axis=1)
        return others


def _make(index: IndexFactory, points: NDArray[Any]) -> Index:
    return index(points, np.zeros(len(points), dtype=np.int64), 1)
