"""The paper's weighted metric: what its two versions are, and when its bound holds."""

import math
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.errors import InputError
from iknow.metrics import spectral_norm, weighted_metric

SIZES = st.lists(st.integers(1, 7), min_size=2, max_size=5)
SEEDS = st.integers(0, 2**32 - 1)
deterministic = settings(derandomize=True, deadline=None, max_examples=150)


def random_weights(sizes, seed):
    """Matrices of shape (n_inputs, n_outputs) for layers of the given sizes."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in pairwise(sizes)]


def relu_network(inputs, weights, biases):
    for weight, bias in zip(weights, biases, strict=True):
        inputs = np.maximum(inputs @ weight + bias, 0)
    return inputs


def previous_version(weights):
    """D = W̃ᵀ U Λ⁻¹ Uᵀ W̃ as printed: U and Λ are the non-zero eigenpairs of W̃ W̃ᵀ."""
    product = reduce(np.matmul, weights)
    values, vectors = np.linalg.eigh(product @ product.T)
    kept = values > 1e-10 * values.max()
    u, inverse = vectors[:, kept], np.diag(1 / values[kept])
    return product.T @ u @ inverse @ u.T @ product


def lengths(differences, matrix):
    """√(Δᵀ D Δ) of each row."""
    return np.sqrt(np.maximum(0, np.einsum("ij,jk,ik->i", differences, matrix, differences)))


@given(SIZES, SEEDS)
@deterministic
def test_the_map_is_a_root_of_the_pseudo_inverse(sizes, seed):
    weights = random_weights(sizes, seed)
    product = reduce(np.matmul, weights)
    matrix = weighted_metric(weights, rank_tolerance=1e-6).map
    expected = np.linalg.pinv(product, rcond=1e-6) @ np.linalg.pinv(product, rcond=1e-6).T
    np.testing.assert_allclose(
        matrix @ matrix.T, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max()
    )


@given(SIZES, SEEDS)
@deterministic
def test_in_a_linear_network_it_measures_what_the_layer_sees_of_the_input_difference(sizes, seed):
    weights = random_weights(sizes, seed)
    product = reduce(np.matmul, weights)
    metric = weighted_metric(weights, rank_tolerance=1e-6)
    differences = np.random.default_rng(seed).standard_normal((20, sizes[0]))
    found = np.linalg.norm(metric.transform(differences @ product), axis=1)
    u, values, _ = np.linalg.svd(product, full_matrices=False)
    seen = differences @ u[:, values > 1e-6 * values[0]]
    np.testing.assert_allclose(found, np.linalg.norm(seen, axis=1), rtol=1e-6, atol=1e-9)
    assert (found <= np.linalg.norm(differences, axis=1) * (1 + 1e-7)).all()
    # A difference within the span of the left singular vectors keeps its length.
    within = seen @ u[:, values > 1e-6 * values[0]].T
    kept = np.linalg.norm(metric.transform(within @ product), axis=1)
    np.testing.assert_allclose(kept, np.linalg.norm(within, axis=1), rtol=1e-6, atol=1e-9)


@given(SIZES, SEEDS)
@deterministic
def test_the_previous_version_is_the_plain_l2_distance(sizes, seed):
    """W̃ᵀ(W̃W̃ᵀ)⁺W̃ = VVᵀ projects on the layer's own values: the identity for full column rank."""
    weights = random_weights(sizes, seed)
    product = reduce(np.matmul, weights)
    values = np.linalg.svd(product, compute_uv=False)
    if values.min() < 1e-3 * values.max():
        return  # eigenvalues of W̃W̃ᵀ would not tell such directions from 0
    matrix = previous_version(weights)
    v = np.linalg.svd(product, full_matrices=False)[2].T
    np.testing.assert_allclose(matrix, v @ v.T, atol=1e-7)
    if len(values) == product.shape[1]:
        np.testing.assert_allclose(matrix, np.eye(product.shape[1]), atol=1e-7)
    outputs = np.random.default_rng(seed).standard_normal((10, sizes[0])) @ product
    np.testing.assert_allclose(
        lengths(outputs, matrix), np.linalg.norm(outputs, axis=1), rtol=1e-6, atol=1e-9
    )


def test_the_previous_versions_bound_fails_without_any_activation_function():
    weights = [np.array([[2.0]])]
    assert previous_version(weights) == pytest.approx(1.0)  # so 1 apart in, 2 apart out
    assert lengths(np.array([[1.0]]) @ weights[0], previous_version(weights))[0] == 2.0
    assert weighted_metric(weights).distances([[2.0]], [[0.0]])[0, 0] == 1.0


@given(st.integers(1, 6), st.integers(1, 6), SEEDS)
@deterministic
def test_the_two_versions_agree_where_all_singular_values_are_1_and_only_there(n, m, seed):
    rng = np.random.default_rng(seed)
    u, values, v_transposed = np.linalg.svd(rng.standard_normal((n, m)), full_matrices=False)
    isometry = u @ v_transposed
    new = weighted_metric([isometry]).map
    np.testing.assert_allclose(new @ new.T, previous_version([isometry]), atol=1e-9)
    other = (u * (1.5 + values / values.max())) @ v_transposed
    new = weighted_metric([other]).map
    assert not np.allclose(new @ new.T, previous_version([other]), atol=0.1)


def test_with_relu_the_papers_bound_fails():
    """The example of the docstring: inputs 1 apart, activations √2 apart in the metric."""
    weights, biases = [np.array([[1.0, 1.0], [0.0, 1.0]])], [np.array([0.0, -2.0])]
    z, x = np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]])
    metric = weighted_metric(weights)
    a, b = relu_network(x, weights, biases), relu_network(z, weights, biases)
    assert metric.distances(a, b)[0, 0] == pytest.approx(np.sqrt(2))
    before = x @ weights[0] + biases[0], z @ weights[0] + biases[0]
    assert metric.distances(*before)[0, 0] == pytest.approx(1)  # the fault is the relu's


@pytest.mark.parametrize("t", [0.1, 1e-3, 1e-6])
def test_with_relu_the_distance_exceeds_every_factor(t):
    weights, biases = [np.array([[1.0, 1.0], [0.0, t]])], [np.array([0.0, -2.0])]
    a = relu_network(np.array([[1.0, 0.0]]), weights, biases)
    b = relu_network(np.array([[0.0, 0.0]]), weights, biases)
    found = weighted_metric(weights).distances(a, b)[0, 0]
    assert found == pytest.approx(np.sqrt(1 + 1 / t**2), rel=1e-6)


def test_ordinary_networks_break_the_papers_bound_too():
    """A random network of the paper's smallest shape and random pairs, nothing contrived."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((13, 32)), rng.standard_normal((32, 32))]
    x = rng.standard_normal((3000, 13))
    z = x + 0.1 * rng.standard_normal((3000, 13))
    biases = [np.zeros(32)] * 2
    metric = weighted_metric(weights)
    moved = relu_network(x, weights, biases) - relu_network(z, weights, biases)
    ratio = np.linalg.norm(metric.transform(moved), axis=1) / np.linalg.norm(x - z, axis=1)
    assert 0 < (ratio > 1).mean() < 0.05
    assert ratio.max() > 1.05


@given(st.integers(1, 7), st.integers(1, 7), SEEDS)
@deterministic
def test_with_relu_it_holds_for_one_layer_with_orthogonal_columns(n, m, seed):
    rng = np.random.default_rng(seed)
    m = min(n, m)
    columns = np.linalg.qr(rng.standard_normal((n, m)))[0] * rng.uniform(0.1, 5, size=m)
    bias = rng.standard_normal(m)
    x, z = rng.standard_normal((2, 50, n))
    moved = relu_network(x, [columns], [bias]) - relu_network(z, [columns], [bias])
    found = np.linalg.norm(weighted_metric([columns]).transform(moved), axis=1)
    assert (found <= np.linalg.norm(x - z, axis=1) * (1 + 1e-9)).all()


@given(SIZES, SEEDS)
@deterministic
def test_with_relu_the_layers_constant_times_the_expansion_always_holds(sizes, seed):
    weights = random_weights(sizes, seed)
    rng = np.random.default_rng(seed)
    biases = [rng.standard_normal(weight.shape[1]) for weight in weights]
    metric = weighted_metric(weights)
    bound = math.prod(map(spectral_norm, weights)) * metric.expansion(sizes[-1])
    x, z = rng.standard_normal((2, 50, sizes[0]))
    moved = relu_network(x, weights, biases) - relu_network(z, weights, biases)
    found = np.linalg.norm(metric.transform(moved), axis=1)
    assert (found <= bound * np.linalg.norm(x - z, axis=1)).all()


def test_directions_of_no_size_are_left_out():
    assert weighted_metric([np.diag([1.0, 1e-3, 0.0])]).map.shape == (3, 2)
    assert weighted_metric([np.diag([1.0, 1e-3, 0.0])], rank_tolerance=0.01).map.shape == (3, 1)


def test_bad_weights_are_refused_with_the_fact():
    with pytest.raises(InputError, match="at least one weight matrix"):
        weighted_metric([])
    with pytest.raises(InputError, match=r"matrix 1 has shape \(2, 3\), matrix 2 \(2, 3\)"):
        weighted_metric([np.ones((2, 3)), np.ones((2, 3))])
    with pytest.raises(InputError, match="the 2 weight matrices is 0"):
        weighted_metric([np.array([[1.0, 1.0]]), np.array([[1.0], [-1.0]])])
    with pytest.raises(InputError, match="weight matrix 2 must be finite"):
        weighted_metric([np.eye(2), np.full((2, 2), np.inf)])
