"""A radius for each class against changing every one of them to every distance there is."""

import numpy as np
import pytest

from iknow.errors import InputError, SelectionError
from iknow.rules import Ball
from iknow.selection import select, select_per_class
from iknow.selection.per_class import class_weights
from iknow.testing import brute_force


class Imbalanced:
    """Evidence about samples of which most are of class 0."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.n_classes, n_layers = int(rng.integers(2, 4)), int(rng.integers(1, 4))
        share = np.array([0.7, 0.2, 0.1][: self.n_classes])
        labels = rng.choice(self.n_classes, size=25, p=share / share.sum())
        self.y_true = rng.choice(self.n_classes, size=18, p=share / share.sum())
        self.evidence = {}
        for layer in range(n_layers):
            width = np.array([1.0, 0.3, 2.0])[:, None]  # the classes are not equally spread
            places = 2 * rng.normal(size=(self.n_classes, 2))
            points = places[labels] + width[labels] * rng.normal(size=(25, 2))
            queries = places[self.y_true] + width[self.y_true] * rng.normal(size=(18, 2))
            if seed % 2:
                points, queries = np.rint(points), np.rint(queries)
            self.evidence[f"layer{layer}"] = brute_force(points, labels, self.n_classes, queries)
        wrong = rng.integers(self.n_classes, size=18)
        self.belief = np.where(rng.random(18) < 0.15, wrong, self.y_true)

    @property
    def data(self):
        return self.evidence, self.belief, self.y_true

    def mean_coverage(self, radii):
        """The mean over classes of coverage, one sample at a time. radii: by layer and class."""
        covered = {int(code): [] for code in set(self.y_true.tolist())}
        for i, (belief, y_true) in enumerate(zip(self.belief, self.y_true, strict=True)):
            pure = [
                {c for c in range(self.n_classes) if layer.class_distances[i, c] <= radius[c]}
                == {int(belief)}
                for layer, radius in zip(self.evidence.values(), radii, strict=True)
            ]
            covered[int(y_true)].append(all(pure))
        return float(np.mean([np.mean(each) for each in covered.values()]))


@pytest.fixture(scope="module")
def solved():
    found = []
    for seed in range(36):
        problem = Imbalanced(seed)
        try:
            found.append((problem, select_per_class(*problem.data)))
        except SelectionError:
            continue
    assert len(found) >= 30
    return found


def test_no_change_of_any_single_radius_improves_the_mean_coverage_over_classes(solved):
    for problem, chosen in solved:
        radii = [list(rule.radius) for rule in chosen.neighborhoods.values()]
        best = problem.mean_coverage(radii)
        for layer, evidence in enumerate(problem.evidence.values()):
            for code in range(problem.n_classes):
                distances = {d for d in evidence.class_distances[:, code] if np.isfinite(d)}
                for distance in distances:
                    for radius in (0.0, distance, np.nextafter(distance, 0)):
                        changed = [list(row) for row in radii]
                        changed[layer][code] = radius
                        assert problem.mean_coverage(changed) <= best + 1e-9


def test_it_is_never_worse_than_the_best_common_radii_and_often_better(solved):
    n_better = 0
    for problem, chosen in solved:
        common = select(*problem.data, Ball)
        alike = [[rule.radius] * problem.n_classes for rule in common.neighborhoods.values()]
        own = [rule.radius for rule in chosen.neighborhoods.values()]
        assert problem.mean_coverage(own) >= problem.mean_coverage(alike) - 1e-12
        n_better += problem.mean_coverage(own) > problem.mean_coverage(alike) + 1e-12
    assert n_better >= len(solved) / 3


def test_the_record_is_that_of_applying_the_radii_and_does_not_claim_the_optimum(solved):
    for problem, chosen in solved:
        known = np.ones(len(problem.belief), dtype=bool)
        for layer, rule in chosen.neighborhoods.items():
            assert len(rule.radius) == problem.n_classes
            within = problem.evidence[layer].class_distances <= np.array(rule.radius)
            known &= (within == np.eye(problem.n_classes, dtype=bool)[problem.belief]).all(axis=1)
        assert chosen.coverage == known.mean()
        assert chosen.accuracy == (problem.belief == problem.y_true)[known].mean()
        assert chosen.method == "per-class (local optimum)"
        assert (chosen.optimal, chosen.best_possible, chosen.n_samples) == (False, 1.0, 18)


def test_a_rare_class_gets_a_radius_of_its_own(evidence_of):
    # Class 1 lies wide apart, class 0 close together: one radius cannot serve both.
    distances = [[1, 2]] * 9 + [[9, 8]]
    belief = np.array([0] * 9 + [1])
    evidence = {"a": evidence_of(distances)}
    assert select(evidence, belief, belief, Ball).coverage == 0.9
    chosen = select_per_class(evidence, belief, belief)
    assert chosen.coverage == 0.9  # a radius of 8 for class 1 would cost all of class 0
    # With class 1 further from those of class 0, two radii cover all where one cannot.
    distances = [[1, 8.5]] * 9 + [[8, 8]]
    evidence = {"a": evidence_of(distances)}
    assert select(evidence, belief, belief, Ball).coverage == 0.9
    chosen = select_per_class(evidence, belief, belief)
    assert chosen.coverage == 1.0
    low, high = chosen.neighborhoods["a"].radius
    assert 1 <= low < 8
    assert 8 <= high < 8.5


def test_weights_make_a_sum_the_mean_over_the_classes_that_are_present():
    y_true = np.array([0, 0, 0, 2])
    weights = class_weights(y_true, 4)
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 1 / 6, 1 / 2])
    rng = np.random.default_rng(0)
    for _ in range(50):
        y_true = rng.integers(5, size=12)
        known = rng.random(12) < 0.5
        coverages = [known[y_true == code].mean() for code in set(y_true.tolist())]
        assert class_weights(y_true, 5)[known].sum() == pytest.approx(np.mean(coverages))


def test_mismatched_lengths_are_refused(evidence_of):
    with pytest.raises(InputError, match="got 1 beliefs, 2 truths"):
        select_per_class({"a": evidence_of([[1, 2]])}, np.array([0]), np.array([0, 0]))
