"""Each peer against its paper's formula, written out slowly, sample by sample."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import EmpiricalCovariance

from iknow.errors import InputError
from iknow.evaluation.peers import (
    FDBD,
    GEN,
    SIRC,
    DkNN,
    Energy,
    KNNDistance,
    Mahalanobis,
    NNGuide,
    Observed,
    Peer,
    Softmax,
    TemperatureSoftmax,
    TrustScore,
    ViM,
    default_peers,
)


def as_stored(points):
    """The search keeps activations and queries in float32."""
    return np.asarray(points, dtype=np.float32).astype(np.float64)


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def unit(points):
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(lengths == 0, 1, lengths)


def only(logits, belief=None):
    """An observation of which only the logits matter."""
    logits = np.asarray(logits, dtype=float)
    belief = logits.argmax(axis=1) if belief is None else np.asarray(belief)
    return Observed(np.zeros((len(logits), 1)), None, logits, belief)


def test_softmax_is_the_probability_of_the_answer(training, validation, test):
    scores = Softmax().fit(training, validation).score(test)
    for score, logits, belief in zip(scores, test.logits, test.belief, strict=True):
        weights = [math.exp(value) for value in logits]
        assert math.exp(score) == pytest.approx(weights[belief] / sum(weights))


def test_softmax_scores_the_answer_and_not_the_highest_logit():
    assert np.exp(Softmax().score(only([[0.0, math.log(3)]], belief=[0]))) == pytest.approx(0.25)


def test_softmax_tells_confident_answers_apart():
    """Both probabilities round to 1."""
    sure, surer = Softmax().score(only([[50.0, 0.0], [90.0, 0.0]]))
    assert sure < surer < 0


@given(st.lists(st.floats(-1000, 1000), min_size=2, max_size=5))
@settings(deadline=None)
def test_softmax_has_a_logarithm_at_any_scale(logits):
    score = Softmax().score(only([logits]))
    assert np.isfinite(score).all()
    assert -math.log(len(logits)) - 1e-9 <= score[0] <= 0


def test_temperature_is_the_most_likely_one(training, validation):
    peer = TemperatureSoftmax().fit(training, validation)
    grid = np.exp(np.linspace(math.log(0.2), math.log(50), 400))
    losses = []
    for temperature in grid:
        shares = np.exp(validation.logits / temperature)
        shares /= shares.sum(axis=1, keepdims=True)
        losses.append(-np.log(shares[np.arange(len(validation)), validation.labels]).mean())
    assert peer.temperature_ == pytest.approx(grid[np.argmin(losses)], rel=0.02)


def test_temperature_reorders_samples_only_between_different_runners_up(training, validation):
    peer = TemperatureSoftmax().fit(training, validation)
    two = only(np.column_stack([np.linspace(0, 3, 20), np.zeros(20)]))
    assert (np.diff(peer.score(two)) > 0).all()


def test_energy_adds_up_all_logits(training, validation, test):
    scores = Energy().fit(training, validation).score(test)
    expected = [math.log(sum(math.exp(value) for value in row)) for row in test.logits]
    np.testing.assert_allclose(scores, expected)


@pytest.mark.parametrize("layer", ["input", "hidden"])
def test_mahalanobis_against_scikit_learn(layer, training, validation, test):
    points = training.layer(layer)
    means = {code: points[training.labels == code].mean(axis=0) for code in range(3)}
    centered = np.stack(
        [point - means[code] for point, code in zip(points, training.labels, strict=True)]
    )
    spread = EmpiricalCovariance(assume_centered=True).fit(centered)
    expected = [
        -min(spread.mahalanobis([point - mean])[0] for mean in means.values())
        for point in test.layer(layer)
    ]
    scores = Mahalanobis(layer).fit(training, validation).score(test)
    np.testing.assert_allclose(scores, expected, rtol=1e-8)


def test_mahalanobis_ignores_a_feature_that_training_never_varies(training, validation, test):
    def with_dead(observed, value):
        dead = np.full(len(observed), value)
        inputs = np.column_stack([observed.inputs, dead])
        return Observed(inputs, None, observed.logits, observed.belief, observed.labels)

    whole = Mahalanobis("input").fit(with_dead(training, 0.0), validation)
    plain = Mahalanobis("input").fit(training, validation)
    np.testing.assert_allclose(whole.score(with_dead(test, 9.0)), plain.score(test))


@pytest.mark.parametrize("k", [1, 7])
def test_knn_distance_against_a_loop(k, training, validation, test):
    stored = as_stored(unit(training.hidden))
    expected = [
        -sorted(distance(query, point) for point in stored)[k - 1]
        for query in as_stored(unit(test.hidden))
    ]
    scores = KNNDistance(k).fit(training, validation).score(test)
    np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_knn_distance_takes_the_farthest_of_few_samples(training, validation, test):
    few = training[:5]
    np.testing.assert_array_equal(
        KNNDistance(50).fit(few, validation).score(test),
        KNNDistance(5).fit(few, validation).score(test),
    )


@pytest.mark.parametrize("peer", [KNNDistance, DkNN, NNGuide])
@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_a_number_of_neighbors_that_is_none_is_refused(peer, k):
    with pytest.raises(InputError, match="k must be a whole number >= 1"):
        peer(k)


def test_vim_against_its_formula(network, training, validation, test):
    known, lengths = (residuals(network, training, each, 2) for each in (training, test))
    alpha = training.logits.max(axis=1).mean() / known.mean()
    expected = [
        math.log(sum(math.exp(value) for value in logits)) - alpha * length
        for logits, length in zip(test.logits, lengths, strict=True)
    ]
    found = ViM(2).fit(training, validation).score(test)
    np.testing.assert_allclose(found, expected)


def shares_of(logits):
    weights = np.exp(logits)
    return weights / weights.sum()


@pytest.mark.parametrize(("gamma", "largest"), [(0.1, 100), (0.1, 2), (0.7, 1)])
def test_gen_adds_up_its_entropy(gamma, largest, training, validation, test):
    expected = []
    for logits in test.logits:
        leading = sorted(shares_of(logits), reverse=True)[:largest]
        expected.append(-sum(p**gamma * (1 - p) ** gamma for p in leading))
    scores = GEN(gamma, largest).fit(training, validation).score(test)
    np.testing.assert_allclose(scores, expected)


def test_gen_tells_confident_answers_apart():
    """Both probabilities round to 1."""
    sure, surer = GEN().score(only([[50.0, 0.0], [90.0, 0.0]]))
    assert sure < surer < 0


def residuals(network, training, observed, kept):
    """Lengths outside the subspace, by the network's own head and a full eigendecomposition."""
    _, (weights, bias) = network
    origin = -np.linalg.pinv(weights) @ bias
    centered = training.hidden - origin
    moments = sum(np.outer(row, row) for row in centered)
    values, vectors = np.linalg.eig(moments)
    rest = vectors[:, np.argsort(-values)[kept:]]
    return np.array([np.linalg.norm(rest.T @ (row - origin)) for row in observed.hidden])


@pytest.mark.parametrize("second", ["residual", "norm"])
def test_sirc_against_its_formula(second, network, training, validation, test):
    def values(observed):
        if second == "residual":
            return -residuals(network, training, observed, 2)
        return [sum(abs(value) for value in row) for row in observed.hidden]

    mean, std = np.mean(values(training)), np.std(values(training))
    a, b = mean - 3 * std, 1 / std
    expected = []
    for logits, belief, s in zip(test.logits, test.belief, values(test), strict=True):
        doubt = 1 - shares_of(logits)[belief]
        expected.append(-doubt * (1 + math.exp(-b * (s - a))))
    scores = SIRC(second, 2).fit(training, validation).score(test)
    np.testing.assert_allclose(-np.exp(-scores), expected)


def test_sirc_is_softmax_where_features_never_vary(training, validation):
    def fixed(observed):
        ones = np.ones_like(observed.hidden)
        return Observed(observed.inputs, ones, observed.logits, observed.belief, observed.labels)

    scores = SIRC("norm").fit(fixed(training), validation).score(fixed(validation))
    softmax = Softmax().score(validation)
    np.testing.assert_array_equal(np.argsort(scores), np.argsort(softmax))
    assert np.isfinite(scores).all()


def test_fdbd_against_its_formula(network, training, validation, test):
    _, (weights, _) = network
    mean = training.hidden.mean(axis=0)
    expected = []
    for hidden, logits, g in zip(test.hidden, test.logits, test.belief, strict=True):
        apart = [
            abs(logits[g] - logits[c]) / distance(weights[g], weights[c])
            for c in range(len(weights))
            if c != g
        ]
        expected.append(sum(apart) / len(apart) / distance(hidden, mean))
    found = FDBD().fit(training, validation).score(test)
    np.testing.assert_allclose(found, expected)


def test_the_distance_of_fdbd_is_to_where_the_answer_changes(network, training, validation, test):
    """Moved that far toward the boundary of two classes, a sample lies on it."""
    _, (weights, bias) = network
    hidden, g = test.hidden[0], test.belief[0]
    c = (g + 1) % 3
    normal = weights[g] - weights[c]
    length = abs(test.logits[0, g] - test.logits[0, c]) / np.linalg.norm(normal)
    moved = weights @ (hidden - length * normal / np.linalg.norm(normal)) + bias
    assert moved[g] == pytest.approx(moved[c])
    two = Observed(test.inputs, test.hidden, test.logits[:, [g, c]], 0 * test.belief)
    known = Observed(
        training.inputs, training.hidden, training.logits[:, [g, c]], 0 * training.belief
    )
    score = FDBD().fit(known, validation).score(two)[0]
    assert score * distance(hidden, training.hidden.mean(axis=0)) == pytest.approx(length)


@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("shift", [0.0, -9.0])  # energies may be negative
def test_nnguide_against_a_loop(k, shift, training, validation, test):
    def moved(observed):
        logits = observed.logits + shift
        return Observed(observed.inputs, observed.hidden, logits, observed.belief, observed.labels)

    def energies(observed):
        return [math.log(sum(math.exp(value) for value in row)) for row in observed.logits]

    training, test = moved(training), moved(test)
    stored, known = unit(training.hidden), energies(training)
    expected = []
    for query, energy in zip(unit(test.hidden), energies(test), strict=True):
        terms = sorted(s * float(row @ query) for row, s in zip(stored, known, strict=True))
        expected.append(energy * np.mean(terms[-k:]))
    scores = NNGuide(k).fit(training, validation).score(test)
    np.testing.assert_allclose(scores, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("layer", ["input", "hidden"])
def test_trust_score_against_a_loop(layer, training, validation, test):
    stored, labels = as_stored(training.layer(layer)), training.labels
    expected = []
    for query, belief in zip(as_stored(test.layer(layer)), test.belief, strict=True):
        own = min(distance(query, point) for point in stored[labels == belief])
        other = min(distance(query, point) for point in stored[labels != belief])
        expected.append(other / own)
    scores = TrustScore(layer).fit(training, validation).score(test)
    np.testing.assert_allclose(scores, expected)


def test_trust_score_at_distance_zero():
    points = np.array([[0.0], [0.0], [1.0], [5.0]])
    training = Observed(points, None, np.zeros((4, 2)), np.zeros(4, int), np.array([0, 1, 0, 1]))
    queries = np.array([[0.0], [1.0], [5.0]])
    asked = Observed(queries, None, np.zeros((3, 2)), np.array([0, 0, 0]))
    scores = TrustScore("input").fit(training, training).score(asked)
    np.testing.assert_array_equal(scores, [1.0, np.inf, 0.0])


def test_dknn_against_a_loop(training, validation, test):
    def nonconformity(observed, codes):
        counts = np.zeros(len(observed))
        for layer in ("input", "hidden"):
            stored = as_stored(training.layer(layer))
            for i, query in enumerate(as_stored(observed.layer(layer))):
                near = np.argsort([distance(query, point) for point in stored])[:9]
                counts[i] += (training.labels[near] != codes[i]).sum()
        return counts

    found = nonconformity(test, test.belief)
    np.testing.assert_array_equal(DkNN(k=9).fit(training, validation).score(test), -found)


def test_all_apply_to_a_network(training):
    assert [peer.name for peer in default_peers(training)] == [
        "softmax", "softmax, temperature", "GEN", "energy", "Mahalanobis", "k-NN distance", "ViM",
        "SIRC (residual)", "SIRC (norm)", "fDBD", "NNGuide", "Trust Score (input)",
        "Trust Score (hidden)", "DkNN",
    ]  # fmt: skip


def test_without_hidden_layer_and_logits_fewer_apply(training):
    shares = np.exp(training.logits)
    logs = np.log(shares / shares.sum(axis=1, keepdims=True))
    plain = Observed(training.inputs, None, logs, training.belief, training.labels)
    assert [peer.name for peer in default_peers(plain)] == [
        "softmax", "softmax, temperature", "GEN", "Mahalanobis (input)", "k-NN distance (input)",
        "Trust Score (input)", "DkNN",
    ]  # fmt: skip
    with_hidden = Observed(training.inputs, training.hidden, logs, training.belief, training.labels)
    names = {peer.name for peer in default_peers(with_hidden)}
    assert {"SIRC (norm)", "Trust Score (hidden)"} <= names
    assert not names & {"energy", "ViM", "SIRC (residual)", "fDBD", "NNGuide"}


def test_every_peer_keeps_the_protocol(training, validation, test):
    for peer in default_peers(training):
        assert isinstance(peer, Peer)
        before = [None if v is None else v.copy() for v in vars(test).values()]
        scores = peer.fit(training, validation).score(test)
        assert scores.shape == (len(test),)
        assert scores.dtype == np.float64
        assert not np.isnan(scores).any()
        part = peer.score(test[3:9])
        np.testing.assert_allclose(part, scores[3:9], rtol=1e-9)  # a sample's own affair
        for old, new in zip(before, vars(test).values(), strict=True):
            np.testing.assert_array_equal(old, new)


def test_observations_must_fit_together(test):
    with pytest.raises(InputError, match="same n"):
        Observed(test.inputs[1:], None, test.logits, test.belief)
    with pytest.raises(InputError, match="no hidden layer"):
        Mahalanobis().fit(Observed(test.inputs, None, test.logits, test.belief, test.labels), test)
    with pytest.raises(InputError, match="labels are needed"):
        TrustScore().fit(Observed(test.inputs, test.hidden, test.logits, test.belief), test)
