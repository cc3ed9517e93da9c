"""The norm of a linear operator that we know only as a function of tensors, such as a convolution.

The norm of a convolution is not that of its kernel reshaped to a matrix, which can be smaller or
larger. We measure the operator itself: forward applies it, autograd applies its transpose.

Small operators are written out as matrices. Large ones are measured by Lanczos iteration on AᵀA.
An iterated norm is always too small: it is the largest value found, not the largest that exists. A
factor turns it into a bound. Let λ be the largest eigenvalue of a positive semi-definite n × n
matrix and θ the value after k steps of Lanczos, from a start that is uniform on the sphere and has
component c along the top eigenvector. With the polynomial p(s) = T(√(1-s))/√(1-s), T the Chebyshev
polynomial of degree 2k-1, the Krylov space holds a vector which shows that

    θ < λ / cosh²(φ)   can happen only if   |c| < 1 / cosh((2k-1) φ)       for every φ > 0,

and a uniform start has |c| < t with probability at most t·√(2n/π). So, for any spectrum,

    |A| <= √θ · cosh( arccosh(√(2n/π)/q) / (2k-1) )    except with probability q over the start.

We take q = 1e-12 and k = 128: the factor is 1.009 for a million inputs. (Kuczyński and
Woźniakowski, 1992, give nearly the same probability.) The start is seeded. Without
reorthogonalization rounding repeats Ritz values but invents none (Paige).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from iknow.metrics.lipschitz import ROUND_UP, spectral_norm

LARGEST_DENSE_SIDE = 1024
LARGEST_DENSE = 1 << 23
STEPS = 128
FAILURE = 1e-12
Map = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]


def operator_norm(
    function: Map, shape: Shape, dense: bool | None = None, steps: int = STEPS
) -> float:
    """An upper bound of the ℓ2 operator norm of the linear part of an affine function.

    function: maps float64 batches of shape (n, *shape), each sample separately; a large offset
    would swamp small entries. dense: whether to write out the matrix; by default, if it is small
    enough. steps: of the iteration otherwise.
    """
    with torch.inference_mode(False), torch.no_grad():
        offset = function(torch.zeros(1, *shape, dtype=torch.float64))
        n_inputs, n_outputs = math.prod(shape), offset.numel()
        if n_inputs == 0 or n_outputs == 0:
            return 0.0
        if dense is None:
            side = min(n_inputs, n_outputs)
            dense = side <= LARGEST_DENSE_SIDE and n_inputs * n_outputs <= LARGEST_DENSE
        if dense:
            return spectral_norm(_matrix(function, shape, offset).numpy())
        square, size = _gram(function, shape, offset)
        return math.sqrt(lanczos(square, size, steps)) * safety_factor(size, steps) * ROUND_UP


def nonnegative_norm(function: Map, shape: Shape, steps: int = 10) -> float:
    """An upper bound of the ℓ2 norm of a linear function whose matrix B has no negative entry.

    For every v > 0 the largest eigenvalue of BᵀB is at most max_i (BᵀBv)_i / v_i (Collatz and
    Wielandt), so power iteration bounds it from above at every step.
    """
    with torch.inference_mode(False), torch.no_grad():
        place, value = _with_graph(function, 1, shape)
        if place.numel() == 0 or value.numel() == 0:
            return 0.0
        vector, best = torch.ones(1, *shape, dtype=torch.float64), math.inf
        for _ in range(steps):
            (square,) = torch.autograd.grad(value, place, function(vector), retain_graph=True)
            best = min(best, float((square / vector).max()))
            vector = square / max(float(square.max()), 1e-300) + 1e-3
        return math.sqrt(best) * ROUND_UP


def safety_factor(size: int, steps: int, failure: float = FAILURE) -> float:
    """The factor that turns a norm from Lanczos iteration into a bound; see above."""
    odds = math.sqrt(2 * size / math.pi) / failure
    return math.cosh(math.acosh(odds) / (2 * steps - 1))


def _matrix(function: Map, shape: Shape, offset: Tensor) -> Tensor:
    """The operator or its transpose, by running the smaller of the two unit bases through it."""
    n_inputs, n_outputs = math.prod(shape), offset.numel()
    if n_inputs <= n_outputs:
        basis = torch.eye(n_inputs, dtype=torch.float64).reshape(n_inputs, *shape)
        return (function(basis) - offset).flatten(1)
    places, values = _with_graph(function, n_outputs, shape)
    basis = torch.eye(n_outputs, dtype=torch.float64).reshape(values.shape)
    (rows,) = torch.autograd.grad(values, places, basis)
    return rows.flatten(1)


def _with_graph(function: Map, n: int, shape: Shape) -> tuple[Tensor, Tensor]:
    """A batch of n zeros and its image, for autograd to go back from."""
    places = torch.zeros(n, *shape, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        return places, function(places)


def _gram(function: Map, shape: Shape, offset: Tensor) -> tuple[Map, int]:
    """AᵀA or AAᵀ, whichever is smaller, as a map of flat vectors, and its size."""
    # The transpose of an affine function's linear part is the same everywhere: one graph suffices.
    place, value = _with_graph(function, 1, shape)

    def forward(vector: Tensor) -> Tensor:
        return (function(vector.reshape(1, *shape)) - offset).flatten()

    def backward(vector: Tensor) -> Tensor:
        vector = vector.reshape(value.shape)
        return torch.autograd.grad(value, place, vector, retain_graph=True)[0].flatten()

    if place.numel() <= offset.numel():
        return lambda vector: backward(forward(vector)), place.numel()
    return lambda vector: forward(backward(vector)), offset.numel()


def lanczos(square: Map, size: int, steps: int = STEPS, random_state: int = 0) -> float:
    """The largest Ritz value of a positive semi-definite map of vectors of shape (size,).

    It is at most the largest eigenvalue.
    """
    generator = torch.Generator().manual_seed(random_state)
    vector = torch.randn(size, dtype=torch.float64, generator=generator)
    vector /= vector.norm()
    before, beta = torch.zeros_like(vector), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(steps):
        image = square(vector) - beta * before
        diagonal.append(float(image @ vector))
        image -= diagonal[-1] * vector
        beta = float(image.norm())
        beside.append(beta)
        if beta == 0:  # the Krylov space is exhausted: the value is exact
            break
        before, vector = vector, image / beta
    ritz = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    return max(0.0, float(np.linalg.eigvalsh(ritz)[-1]))
