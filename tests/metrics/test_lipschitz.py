"""Norms and radii in numpy, and which form of the paper's bound over several layers is true."""

import functools
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.errors import InputError
from iknow.metrics import spectral_norm
from iknow.metrics.lipschitz import ACTIVATIONS, Node, propagate

deterministic = settings(derandomize=True, deadline=None, max_examples=200)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(-200, 200), st.integers(0, 999))
@deterministic
def test_the_spectral_norm_is_numpys_rounded_up(n, m, exponent, seed):
    matrix = np.random.default_rng(seed).standard_normal((n, m)) * 10.0**exponent
    expected = np.linalg.norm(matrix, 2)
    assert expected <= spectral_norm(matrix) <= expected * (1 + 2e-9)


def test_spectral_norms_of_special_matrices():
    assert spectral_norm(np.zeros((3, 4))) == 0
    assert spectral_norm(np.empty((0, 4))) == 0
    assert spectral_norm(np.ones((3, 4), dtype=np.float32)) == pytest.approx(np.sqrt(12))
    with pytest.raises(InputError, match="must be finite"):
        spectral_norm([[np.inf]])
    with pytest.raises(InputError, match="real 2D array"):
        spectral_norm(np.ones(3))


START = Node("the input", "input")


def after(node, matrix):
    return Node("a matrix", "affine", (node,), linear=np.asarray(matrix))


def activated(node, slope):
    return Node("a function", "function", (node,), lipschitz=slope)


def constant(node):
    nodes = [node]
    while nodes[0].inputs:
        nodes[:0] = nodes[0].inputs
    return propagate(nodes, lambda run: spectral_norm(functools.reduce(np.matmul, run)))[
        node
    ].constant


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=5),
    st.sampled_from(sorted(ACTIVATIONS)),
    st.integers(0, 2**32 - 1),
)
@deterministic
def test_a_radius_is_never_left(sizes, activation, seed):
    functions = {
        "identity": lambda v: v,
        "relu": lambda v: np.maximum(v, 0),
        "tanh": np.tanh,
        "logistic": lambda v: 1 / (1 + np.exp(-v)),
    }
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((30, sizes[0]))
    z = x + rng.standard_normal(x.shape) * 10.0 ** rng.integers(-3, 2)
    distance = np.linalg.norm(x - z, axis=1)
    node, product = START, 1.0
    for shape in pairwise(sizes):
        weight, bias = rng.standard_normal(shape), rng.standard_normal(shape[1])
        x, z = functions[activation](x @ weight + bias), functions[activation](z @ weight + bias)
        slope = ACTIVATIONS[activation][1]
        product *= slope * spectral_norm(weight)
        node = activated(after(node, weight), slope)
        assert constant(node) == pytest.approx(product)
        moved = np.linalg.norm(x - z, axis=1)
        assert (moved <= distance * product + 1e-12).all()


def test_the_norm_of_the_product_is_no_bound_across_an_activation():
    """The supplement's form for several layers: here it would say that nothing ever moves."""
    first, second = np.array([[1.0, 1.0]]), np.array([[1.0], [-1.0]])
    assert spectral_norm(first @ second) == 0

    def network(x):
        return np.maximum(np.array([[x]]) @ first + [0.0, -1.0], 0) @ second

    moved = abs(network(1.0) - network(0.0)).item()
    assert moved == 1
    assert moved <= spectral_norm(first) * spectral_norm(second)


def test_matrices_that_meet_are_bounded_as_one():
    scale, weight = np.diag([1e-3, 1.0]), np.diag([1e3, 1.0])
    assert constant(after(after(START, scale), weight)) == pytest.approx(1)
    assert spectral_norm(scale) * spectral_norm(weight) == pytest.approx(1000)
    apart = after(activated(after(START, scale), 1.0), weight)
    assert constant(apart) == pytest.approx(1000)


def test_importing_the_package_does_not_load_torch():
    code = "import iknow.metrics, sys; print({'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
