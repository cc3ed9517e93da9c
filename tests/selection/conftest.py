"""What the tests of selection share: small random problems, and rules really applied to them."""

import itertools

import numpy as np
import pytest

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.quorum import ONE, weigh
from iknow.core.rule import has_k
from iknow.core.support import find_support, justify
from iknow.testing import brute_force


class RandomProblem:
    """Evidence of one to three layers about random points, with beliefs and truths."""

    def __init__(self, seed, n_layers=None, n_queries=None, n_classes=None, exact=None):
        """exact: coordinates are whole numbers, so that distances tie and are 0."""
        rng = np.random.default_rng(seed)
        exact = bool(seed % 2) if exact is None else exact
        n_layers = n_layers or int(rng.integers(1, 3))
        n_classes = n_classes or int(rng.integers(2, 4))
        n_queries = n_queries or int(rng.integers(1, 8 if n_layers < 3 else 4))
        n_rows = int(rng.integers(2, 15))
        self.n_neighbors = min(5, n_rows)
        self.k = int(rng.integers(1, self.n_neighbors + 1))
        labels = rng.integers(n_classes, size=n_rows)
        self.y_true = rng.integers(n_classes, size=n_queries)
        self.evidence = {}
        for layer in range(n_layers):
            places = 2 * rng.normal(size=(n_classes, 2))
            points = places[labels] + rng.normal(size=(n_rows, 2))
            queries = places[self.y_true] + rng.normal(size=(n_queries, 2))
            if exact:
                points, queries = np.rint(points), np.rint(queries)
            found = brute_force(points, labels, n_classes, queries, self.n_neighbors)
            self.evidence[f"layer{layer}"] = found
        # The belief is that of the nearest sample for most, as a trained model's would be.
        nearest = self.evidence["layer0"].class_distances.argmin(axis=1)
        guess = rng.integers(n_classes, size=n_queries)
        self.belief = np.where(rng.random(n_queries) < 0.7, nearest, guess)

    @property
    def data(self):
        return self.evidence, self.belief, self.y_true

    def known(self, neighborhoods):
        """Which samples are IK, by applying the rules."""
        return self._known(
            [
                find_support(weigh(layer, ONE, self.belief), neighborhoods[name])
                for name, layer in self.evidence.items()
            ]
        )

    def count(self, neighborhoods):
        """How many samples are IK, and how many of those rightly."""
        return self._count(self.known(neighborhoods))

    def best_of_all_radii(self, rule, k):
        """Support changes at distances to classes alone, so those, and 0, are all that matters."""
        per_layer = []
        for layer in self.evidence.values():
            finite = layer.class_distances[np.isfinite(layer.class_distances)]
            supports = [
                find_support(layer, rule(radius, k) if has_k(rule) else rule(radius))
                for radius in sorted({0.0, *finite.tolist()})
            ]
            per_layer.append(list({support.tobytes(): support for support in supports}.values()))
        return max(self._count(self._known(each)) for each in itertools.product(*per_layer))

    def _known(self, supports):
        return make_assertions(self.belief, justify(list(supports))) == Assertion.IK

    def _count(self, known):
        return int(known.sum()), int((known & (self.belief == self.y_true)).sum())


def evidence_from_distances(class_distances, neighbor_distances=None):
    distances = np.array(class_distances, dtype=float)
    if neighbor_distances is None:
        neighbor_distances = np.sort(distances, axis=1)
    neighbors = np.array(neighbor_distances, dtype=float)
    return Evidence(distances, neighbors, np.zeros(distances.shape, dtype=int))


@pytest.fixture(scope="session")
def problem_of():
    return RandomProblem


@pytest.fixture(scope="session")
def evidence_of():
    """Evidence of one layer from the distances to classes alone."""
    return evidence_from_distances
