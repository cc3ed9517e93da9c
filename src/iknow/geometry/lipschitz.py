"""Bounds: how far apart two inputs at a known distance can end up in a layer.

A layer h(x) = φ(Wᵀx + b) stretches ℓ2 distances by at most Lip(φ)·|W|₂, and consecutive layers by
at most the product of their constants. This carries a radius from the input to every layer (the
paper's ε bound), and it is the L_i of a certificate.

The paper's supplement also writes the bound of several layers with the norm of the product
|W_1 W_2 ⋯ W_i|₂ in place of the product of the norms |W_1|₂|W_2|₂ ⋯ |W_i|₂. The first is smaller
and holds only if no activation function lies in between: for x → relu(x) - relu(x - 1) the product
of the weights is 0, yet the function is not constant. Here we multiply matrices only if no
activation separates them.

All constants are for real arithmetic. A computed layer also carries rounding errors, which a
`Sensitivity` adds: `iknow.geometry.rounding` follows them through a network.
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
"""Computed norms are multiplied by this, which exceeds any rounding error in them."""

FLOAT32_ROUNDING = 2.0**-24
FLOAT64_ROUNDING = 2.0**-53
"""The largest relative error of rounding a number to float32 or float64."""

ACTIVATION_LIPSCHITZ = {"identity": 1.0, "relu": 1.0, "tanh": 1.0, "logistic": 0.25}
"""The steepest slope of each activation function, by its name in scikit-learn."""


@dataclass(frozen=True)
class LayerBound:
    """One layer as a map from the layer before it.

    Attributes:
        name: Name of the layer.
        lipschitz: Bound on how much the layer stretches distances.
    """

    name: str
    lipschitz: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lipschitz", _check_size(self.lipschitz, "a Lipschitz constant"))


@dataclass(frozen=True)
class Growth:
    """How much distances can have grown up to a point in a network of dense layers.

    lipschitz_before: the constant up to the last activation function. linear: the product of all
    matrices since then, of shape (n_features there, n_features here), or None without any. Bounding
    a product by its own norm, not by the norms of its factors, keeps the constants useful after a
    scaler with one large scale.
    """

    lipschitz_before: float = 1.0
    linear: Floats | None = None

    @property
    def lipschitz(self) -> float:
        if self.linear is None:
            return self.lipschitz_before
        return self.lipschitz_before * spectral_norm(self.linear)

    def through_matrix(self, matrix: Any) -> Growth:
        """The growth after x → x @ matrix + offset, with matrix of shape (n_inputs, n_outputs)."""
        matrix = as_matrix(matrix)
        return Growth(self.lipschitz_before, _multiply(self.linear, matrix))

    def through_function(self, lipschitz: float) -> Growth:
        """The growth after any function with this Lipschitz constant."""
        return Growth(lipschitz * self.lipschitz)


def spectral_norm(matrix: Any) -> float:
    """Return the largest singular value of a matrix, rounded up: never less than the true one.

    It is the root of the largest eigenvalue of the smaller Gram matrix, which costs far less than a
    singular value decomposition and loses nothing at that end of the spectrum.

    Args:
        matrix: Of any shape (m, n).

    Examples:
        >>> print(f"{spectral_norm([[3, 0], [0, 4]]):.6f}")
        4.000000
    """
    values = as_matrix(matrix)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0:
        return 0.0
    scaled = values / largest  # so squares neither overflow nor underflow
    gram = scaled @ scaled.T if scaled.shape[0] <= scaled.shape[1] else scaled.T @ scaled
    return largest * math.sqrt(float(np.linalg.eigvalsh(gram)[-1])) * ROUND_UP


def accumulate(layers: Iterable[LayerBound]) -> dict[str, float]:
    """Return the Lipschitz constants from the start to each layer.

    Args:
        layers: Bounds of successive layers.

    Examples:
        >>> constants = accumulate([LayerBound("hidden", 2.0), LayerBound("logits", 3.0)])
        >>> print(f"{constants['logits']:.3f}")
        6.000
    """
    constants: dict[str, float] = {}
    product = 1.0
    for layer in layers:
        if layer.name in constants:
            raise InputError(f"two layers are named {layer.name!r}: give each layer its own name")
        product *= layer.lipschitz
        constants[layer.name] = product
    return constants


def propagate_radius(radius: float, lipschitz: Mapping[str, float]) -> dict[str, float]:
    """Return the radius in each layer that holds everything within `radius` in the start layer.

    Setting each layer's ε to its bound is the paper's conservative choice: a neighbor in the start
    layer is then a neighbor in all of them.

    Args:
        radius: Radius in the start layer.
        lipschitz: Constants from the start layer to each layer, from `accumulate`, `mlp_lipschitz`
            or `lipschitz_constants`.

    Examples:
        >>> print(f"{propagate_radius(0.5, {'hidden': 2.0})['hidden']:.3f}")
        1.000
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
    except Exception as error:  # numpy calls the object's methods, which may raise anything
        raise InputError(f"{what} must be an array; got {type(matrix).__name__}") from error
    if masked:
        raise InputError(f"{what} has masked entries: fill them")
    if values.dtype.kind not in "fiub" or values.ndim != 2:
        raise InputError(
            f"{what} must be a real 2D array; got {values.dtype} of shape {values.shape}"
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
            f"consecutive matrices must have matching shapes; got {left.shape} and {right.shape}"
        )
    return left @ right


def _check_size(value: float, what: str) -> float:
    return as_real(value, what, "be a number >= 0", lambda number: number >= 0)
