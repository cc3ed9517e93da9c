"""The authors' experiment shows what the paper says of it, and not for one network only."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import BallTree

from iknow import Assertion
from reproduction.figures.experiment import RADII, make_experiment
from reproduction.notebooks.data import load_blobs
from reproduction.notebooks.settings import NOISES, plane
from reproduction.torch import one_thread, train_network

IK, IMK, IDK = Assertion.IK, Assertion.IMK, Assertion.IDK


@pytest.fixture(scope="module")
def noisy(experiments):
    """The setting of the confusion matrices."""
    return experiments[1]


def test_the_points_are_those_that_the_network_learns_before_they_are_scaled(experiments):
    assert [each.noise for each in experiments] == list(NOISES)
    for each in experiments:
        data = load_blobs(2, 2, each.noise)
        X = np.concatenate([data.X_train, data.X_test]).astype(np.float64)
        assert np.bincount(each.labels).tolist() == [5000, 5000]
        ours, theirs = ((X - X.mean(axis=0)) / X.std(axis=0) for X in (each.points, X))
        np.testing.assert_allclose(np.sort(ours, axis=0), np.sort(theirs, axis=0), atol=1e-4)
        spreads = [each.points[each.labels == code].std(axis=0) for code in (0, 1)]
        np.testing.assert_allclose(spreads, each.noise, rtol=0.05)


def test_curve_and_reports_are_those_of_ball_trees_on_the_logits(noisy):
    notebook = plane(noisy.noise)
    data = notebook.load(0)
    train, test = (data.X_train, data.y_train), (data.X_test, data.y_test)
    with one_thread(), torch.no_grad():
        with torch.enable_grad():
            network, _ = train_network(notebook.architecture, notebook.training, train, test, 2, 0)
        known, asked = (network(torch.from_numpy(X)).numpy() for X in (data.X_train, data.X_test))
    trees = [BallTree(known[data.y_train == code]) for code in (0, 1)]
    nearest = np.concatenate([tree.query(asked)[0] for tree in trees], axis=1)
    belief = asked.argmax(axis=1)
    rows = np.arange(len(belief))
    for radius, report in noisy.reports.items():
        support = nearest <= radius
        assertion = np.where(support.all(axis=1), IMK, np.where(support[rows, belief], IK, IDK))
        matrix = np.zeros((3, 2, 2), dtype=int)
        np.add.at(matrix, (assertion, belief, data.y_test), 1)
        np.testing.assert_array_equal(report.matrix, matrix)
    for name in ("f_ik", "f_imk", "f_idk", "a_ik"):
        drawn = getattr(noisy.curve, name)[noisy.curve.places(RADII)]
        expected = [getattr(report, name) for report in noisy.reports.values()]
        np.testing.assert_array_equal(drawn, expected)


def test_the_remark_on_the_radius_holds(experiments):
    for each in experiments:
        curve = each.curve
        assert (np.diff(curve.f_imk) >= 0).all()
        assert (np.diff(curve.f_idk) <= 0).all()
        assert (curve.f_idk[0], curve.f_imk[-1]) == (1, 1)
        # "accuracy for IK samples stays high over different coverage levels"
        accuracy = curve.right[:, 0].sum() / curve.n_samples
        assert curve.a_ik[curve.f_ik > 0.1].min() >= accuracy


def test_growing_radii_move_samples_from_idk_to_ik_to_imk(noisy):
    smallest, small, middle, large = noisy.reports.values()
    assert list(noisy.reports) == [0.001, 0.017, 0.237, 3.162]
    assert smallest.f_idk > 0.95
    assert large.f_imk > 0.95
    assert smallest.f_ik < small.f_ik < middle.f_ik  # knowledge comes ...
    assert middle.f_ik > 0.5
    assert large.f_ik < 0.05  # ... and goes,
    assert small.f_imk < 0.05 < 0.2 < middle.f_imk  # into confusion
    # "the confusion matrix under small ε for IDK and that under large ε for IMK is also similar"
    difference = np.abs(smallest.matrix[IDK] - large.matrix[IMK])
    assert difference.sum() <= 0.05 * smallest.n_samples


def test_more_noise_leaves_less_to_know(experiments):
    little, some, much = (each.curve.f_ik.max() for each in experiments)
    assert little > 0.99
    assert little > some + 0.1 > much + 0.2


@pytest.mark.slow
def test_two_blobs_give_both_of_the_paper_s_numbers():
    """The largest F_IK is about 1.00 with noise 0.5, and about 0.44 with noise 1.5."""
    largest = {
        noise: [make_experiment(noise, seed).curve.f_ik.max() for seed in range(20)]
        for noise in (0.5, 1.5)
    }
    # The medians: a few networks learn little.
    assert np.median(largest[0.5]) == pytest.approx(1.00, abs=0.01)
    assert np.median(largest[1.5]) == pytest.approx(0.44, abs=0.05)
    # What the module says.
    assert np.mean(largest[0.5]) == pytest.approx(0.987, abs=0.01)
    assert np.mean(largest[1.5]) == pytest.approx(0.456, abs=0.02)


def test_a_seed_decides_the_network_and_not_the_data(noisy):
    other = make_experiment(noisy.noise, seed=1)
    np.testing.assert_array_equal(other.points, noisy.points)
    np.testing.assert_array_equal(other.labels, noisy.labels)
    again = make_experiment(noisy.noise, seed=0)
    np.testing.assert_array_equal(again.curve.radii, noisy.curve.radii)
    np.testing.assert_array_equal(again.curve.counts, noisy.curve.counts)
    assert other.curve.f_ik.max() != noisy.curve.f_ik.max()
