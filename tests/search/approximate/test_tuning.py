"""A classifier with an approximate index: what tuning measures, and where it is kept and shown."""

from functools import partial

import numpy as np
import pytest

from iknow import EpistemicClassifier
from iknow.core.assertion import Assertion
from iknow.errors import BundleError, InputError
from iknow.geometry import Minkowski
from iknow.search.approximate import ApproximateIndex
from iknow.selection import Approximation
from tests.search.approximate.proposers import Stub, garbage


def half(queries, n, points):
    """The rows at even places, the nearest first: half of each class is never seen."""
    apart = np.square(points[None, ::2].astype(float) - queries[:, None].astype(float)).sum(axis=2)
    return 2 * np.argsort(apart, axis=1, kind="stable")[:, :n]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)
    return rng.normal(size=(900, 3)) + 1.5 * np.eye(3)[y], y


def scores(X):
    return np.asarray(X)


def fitted(data, mode):
    X, y = data
    index = partial(ApproximateIndex, make=Stub(half), mode=mode)
    ec = EpistemicClassifier(scores, metric="euclidean", index=index, progress=False)
    return ec.fit(X[:300], y[:300]).tune(X[300:600], y[300:600], coverage=0.6)


def test_exact_is_as_without_and_verified_knows_no_more(data):
    X, y = data
    plain = EpistemicClassifier(scores, metric="euclidean", progress=False)
    plain.fit(X[:300], y[:300]).tune(X[300:600], y[300:600], coverage=0.6)
    truth = plain.assess(X[600:])
    exact, verified, fast = (fitted(data, mode) for mode in ("exact", "verified", "fast"))
    assert exact.neighborhoods_ == verified.neighborhoods_ == plain.neighborhoods_
    assert (exact.assess(X[600:]).assertion == truth.assertion).all()
    np.testing.assert_array_equal(exact.assess(X[600:]).level, truth.level)
    found = verified.assess(X[600:])
    assert (truth.assertion[found.assertion == Assertion.IK] == Assertion.IK).all()
    assert (found.assertion != truth.assertion).any()
    np.testing.assert_array_equal(found.level, truth.level)  # from exact evidence
    assert exact.selection_.approximation is None
    assert fast.selection_.approximation.differing > 0


@pytest.mark.parametrize("mode", ["verified", "fast"])
def test_what_tuning_measures_is_what_assess_does(data, mode):
    """The same samples, assessed by the index and by exact search with the same rules."""
    X, y = data
    ec = fitted(data, mode)
    exact = EpistemicClassifier(
        scores, metric="euclidean", neighborhoods=ec.selection_, progress=False
    ).fit(X[:300], y[:300])
    ours, truth = (each.assess(X[300:600]).assertion for each in (ec, exact))
    known = ours == Assertion.IK
    measured = ec.selection_.approximation
    assert measured.index == f"ApproximateIndex(mode={mode!r})"
    assert (measured.n_samples, measured.known) == (300, known.sum())
    assert measured.differing == (ours != truth).sum()
    assert measured.false_known == (truth[known] != Assertion.IK).sum()
    assert mode == "fast" or measured.false_known == 0


def test_it_is_kept_in_the_bundle_and_said(data, tmp_path):
    ec = fitted(data, "fast")
    ec.save(tmp_path / "fast.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "fast.iknow", model=scores)
    assert loaded.selection_.approximation == ec.selection_.approximation
    said = " ".join(loaded.selection_.sentences())
    assert "Search is approximate, ApproximateIndex(mode='fast'): of 300 validation samples" in said


def test_bounds_are_binomial_and_counts_must_fit():
    measured = Approximation("index", 1000, 21, 700, 16)
    assert measured.differing_share == 0.021
    # By R: binom.test(16, 700, alternative = "less")$conf.int, and for none of none 1.
    assert measured.most_false_known == pytest.approx(0.0345, abs=5e-4)
    assert Approximation("index", 10, 0, 0, 0).most_false_known == 1.0
    for counts in ((10, 11, 0, 0), (10, 0, 11, 0), (10, 1, 5, 2), (10, -1, 0, 0)):
        with pytest.raises(InputError, match="got"):
            Approximation("index", *counts)


def test_a_loader_is_read_once(data):
    X, y = data
    ec = fitted(data, "fast")
    batches = ((X[start : start + 50], y[start : start + 50]) for start in range(300, 600, 50))
    again = ec.tune(batches, coverage=0.6)
    assert again.selection_.approximation.n_samples == 300


def test_other_metrics_are_refused(data):
    X, y = data
    index = partial(ApproximateIndex, make=Stub(garbage))
    ec = EpistemicClassifier(scores, index=index, metric=Minkowski(1), progress=False)
    with pytest.raises(InputError, match="Euclidean norm, p=2"):
        ec.fit(X, y)


def test_a_damaged_record_is_refused(data, tmp_path, monkeypatch):
    ec = fitted(data, "fast")
    whole = Approximation.to_dict
    for damage in ({"n_samples": "many"}, {"differing": 10**6}, {"more": 1}):
        monkeypatch.setattr(Approximation, "to_dict", lambda self, d=damage: whole(self) | d)
        path = tmp_path / f"{next(iter(damage))}.iknow"
        ec.save(path)
        with pytest.raises(BundleError, match="cannot be loaded"):
            EpistemicClassifier.load(path, model=scores)
