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
from typing import cast

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
        zero = torch.zeros(1, *shape, dtype=torch.float64)
        offset = function(zero)
        n_inputs, n_outputs = zero.numel(), offset.numel()
        size = min(n_inputs, n_outputs)
        if size == 0:
            return 0.0
        if dense is None:
            dense = size <= LARGEST_DENSE_SIDE and n_inputs * n_outputs <= LARGEST_DENSE
        # The transpose of an affine function's linear part is the same everywhere.
        _, transpose = torch.func.vjp(function, zero.expand(size if dense else 1, *shape))

        def forward(vectors: Tensor) -> Tensor:
            return (function(vectors.reshape(-1, *shape)) - offset).flatten(1)

        def backward(vectors: Tensor) -> Tensor:
            (found,) = transpose(vectors.reshape(-1, *offset.shape[1:]))
            return cast("Tensor", found.flatten(1))

        first, then = (forward, backward) if n_inputs <= n_outputs else (backward, forward)
        if dense:  # the smaller of the two unit bases through it
            return spectral_norm(first(torch.eye(size, dtype=torch.float64)).numpy())
        largest = lanczos(lambda vector: then(first(vector)).flatten(), size, steps)
        return math.sqrt(largest) * safety_factor(size, steps) * ROUND_UP


def nonnegative_norm(function: Map, shape: Shape, steps: int = 10) -> float:
    """An upper bound of the ℓ2 norm of a linear function whose matrix B has no negative entry.

    For every v > 0 the largest eigenvalue of BᵀB is at most max_i (BᵀBv)_i / v_i (Collatz and
    Wielandt), so power iteration bounds it from above at every step.
    """
    with torch.inference_mode(False), torch.no_grad():
        vector, best = torch.ones(1, *shape, dtype=torch.float64), math.inf
        value, transpose = torch.func.vjp(function, 0 * vector)
        if vector.numel() == 0 or value.numel() == 0:
            return 0.0
        for _ in range(steps):
            (square,) = transpose(function(vector))
            best = min(best, float((square / vector).max()))
            vector = square / max(float(square.max()), 1e-300) + 1e-3
        return math.sqrt(best) * ROUND_UP


def safety_factor(size: int, steps: int, failure: float = FAILURE) -> float:
    """The factor that turns a norm from Lanczos iteration into a bound; see above."""
    odds = math.sqrt(2 * size / math.pi) / failure
    return math.cosh(math.acosh(odds) / (2 * steps - 1))


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
