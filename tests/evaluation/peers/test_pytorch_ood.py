"""Peers against pytorch-ood, if it is installed (it needs torchvision, which fits one torch)."""

import numpy as np
import pytest

from iknow.evaluation.peers import Energy, KNNDistance, Mahalanobis, Softmax, ViM

torch = pytest.importorskip("torch")
try:
    from pytorch_ood import detector
except (ImportError, RuntimeError) as error:  # torchvision raises the latter beside another torch
    pytest.skip(f"pytorch-ood cannot be imported: {error}", allow_module_level=True)


def tensor(array):
    return torch.from_numpy(np.asarray(array))


def test_softmax(test):
    theirs = detector.MaxSoftmax.score(tensor(test.logits)).numpy()
    np.testing.assert_allclose(np.exp(Softmax().score(test)), -theirs)


def test_energy(test):
    theirs = detector.EnergyBased.score(tensor(test.logits)).numpy()
    np.testing.assert_allclose(Energy().score(test), -theirs)


def test_mahalanobis(training, validation, test):
    theirs = detector.Mahalanobis(None)
    theirs.fit_features(tensor(training.hidden).float(), tensor(training.labels))
    scores = theirs.predict_features(tensor(test.hidden).float()).numpy()
    ours = Mahalanobis().fit(training, validation).score(test)
    # They halve the square, and do not divide the covariance by the number of samples.
    np.testing.assert_allclose(ours, -2 * len(training) * scores, rtol=1e-3)


def test_knn_distance(training, validation, test):
    theirs = detector.KNN(None, k=50).fit_features(tensor(training.hidden), tensor(training.labels))
    scores = theirs.predict_features(tensor(test.hidden)).numpy()
    ours = KNNDistance().fit(training, validation).score(test)
    np.testing.assert_allclose(ours, -scores, atol=1e-6)


def test_vim(network, training, validation, test):
    weights, bias = network[1]
    theirs = detector.ViM(None, d=3, w=tensor(weights), b=tensor(bias))
    theirs.fit_features(tensor(training.hidden), tensor(training.labels))
    scores = theirs.predict_features(tensor(test.hidden)).numpy()
    ours = ViM().fit(training, validation).score(test)
    np.testing.assert_allclose(ours, -scores, rtol=1e-3, atol=1e-3)
