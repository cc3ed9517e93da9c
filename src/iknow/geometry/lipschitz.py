"""Bounds: how far apart two inputs at a known distance can end up in a layer.

A layer h(x) = φ(Wᵀx + b) stretches ℓ2 distances by at most Lip(φ)·|W|₂, and layers that follow each
other by at most the product of their constants. That carries a radius from the input to every layer
(the paper's ε bound), and it is the L_i of a certificate.

The paper's supplement also writes the bound of several layers with the norm of the product
|W_1 W_2 ⋯ W_i|₂ in place of the product of the norms |W_1|₂|W_2|₂ ⋯ |W_i|₂. The first is smaller
and holds only while no activation function lies in between: for x → relu(x) - relu(x - 1) the
product of the weights is 0, yet the function moves. Here matrices are multiplied only where they
meet without an activation between them.

All constants are for real arithmetic. What a computer makes of a layer is off by some rounding,
which a `Sensitivity` adds: `Rounding` follows it through a network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.scalars import as_real
from iknow.errors import InputError

ROUND_UP = 1 + 1e-9
"""Computed norms are raised by this much: more than rounding can have taken from them."""

FLOAT32_ROUNDING = 2.0**-24
FLOAT64_ROUNDING = 2.0**-53
"""By how much of its size a number is off, at most, when it is rounded to float32 or float64."""

ACTIVATION_LIPSCHITZ = {"identity": 1.0, "relu": 1.0, "tanh": 1.0, "logistic": 0.25}
"""The steepest slope of each activation function, by scikit-learn's names."""


@dataclass(frozen=True)
class LayerBound:
    """One layer as a map from the layer before it: `lipschitz` bounds how much it stretches."""

    name: str
    lipschitz: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lipschitz", _check_size(self.lipschitz, "a Lipschitz constant"))


@dataclass(frozen=True)
class Growth:
    """How much distances can have grown so far, on the way through a network of dense layers.

    lipschitz_before: the constant up to the last activation function. linear: the product of all
    matrices since then, of shape (n_features there, n_features here), or None if there were none.
    Bounding a product by its own norm rather than by its factors' is what makes the constants
    useful behind a scaler with one large scale.
    """

    lipschitz_before: float = 1.0
    linear: Floats | None = None

    @property
    def lipschitz(self) -> float:
        if self.linear is None:
            return self.lipschitz_before
        return self.lipschitz_before * spectral_norm(self.linear)

    def through_matrix(self, matrix: Any) -> Growth:
        """Past x → x @ matrix + anything, with a matrix of shape (n_inputs, n_outputs)."""
        matrix = as_matrix(matrix)
        return Growth(self.lipschitz_before, _multiply(self.linear, matrix))

    def through_function(self, lipschitz: float) -> Growth:
        """Past any function with this Lipschitz constant."""
        return Growth(lipschitz * self.lipschitz)


def spectral_norm(matrix: Any) -> float:
    """The largest singular value of a matrix, rounded up: never less than the true one.

    It is the root of the largest eigenvalue of the smaller Gram matrix, which costs far less than a
    singular value decomposition and loses nothing at that end of the spectrum.
    """
    values = as_matrix(matrix)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0:
        return 0.0
    scaled = values / largest  # squares neither overflow nor vanish
    gram = scaled @ scaled.T if scaled.shape[0] <= scaled.shape[1] else scaled.T @ scaled
    return largest * math.sqrt(float(np.linalg.eigvalsh(gram)[-1])) * ROUND_UP


def accumulate(layers: Iterable[LayerBound]) -> dict[str, float]:
    """Lipschitz constants from the start to each of the layers, which follow one another."""
    constants: dict[str, float] = {}
    product = 1.0
    for layer in layers:
        if layer.name in constants:
            raise InputError(f"layer {layer.name!r} is given twice: each needs a name of its own")
        product *= layer.lipschitz
        constants[layer.name] = product
    return constants


def propagate_radius(radius: float, lipschitz: Mapping[str, float]) -> dict[str, float]:
    """The radius in each layer that holds whatever lies within `radius` in the start layer.

    lipschitz: constants from the start layer to each layer, as `accumulate`, `mlp_lipschitz` and
    `lipschitz_constants` give them. Setting each layer's ε to its bound is the paper's
    conservative choice: a neighbour in the start layer is then a neighbour in all of them.
    """
    start = _check_size(radius, "a radius")
    return {
        name: _check_size(constant, f"the Lipschitz constant of layer {name!r}") * start
        for name, constant in lipschitz.items()
    }


def as_matrix(matrix: Any, what: str = "a matrix") -> Floats:
    """A finite float64 array with two axes."""
    try:
        values = np.asarray(matrix)
        masked = np.ma.is_masked(matrix)
    except Exception as error:  # numpy asks the object, and that may answer in any way
        raise InputError(f"{what} must be an array; {type(matrix).__name__} is none") from error
    if masked:
        raise InputError(f"{what} has masked entries: fill them in")
    if values.dtype.kind not in "fiub" or values.ndim != 2:
        raise InputError(
            f"{what} must be real numbers with two axes; got {values.dtype} of shape {values.shape}"
        )
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{what} must be finite; {(~np.isfinite(values)).sum()} entries are not")
    return values


def _multiply(left: Floats | None, right: Floats) -> Floats:
    if left is None:
        return right
    if left.shape[1] != right.shape[0]:
        raise InputError(
            f"matrices that follow one another must fit; got {left.shape} and {right.shape}"
        )
    return left @ right


def _check_size(value: float, what: str) -> float:
    return as_real(value, what, "be a number >= 0", lambda number: number >= 0)
