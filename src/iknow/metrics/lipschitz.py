"""Bounds: how far apart two inputs at a known distance can end up in a layer.

A layer h(x) = φ(Wᵀx + b) stretches ℓ2 distances by at most Lip(φ)·|W|₂, and consecutive layers by
at most the product of their constants. This carries a radius from the input to every layer (the
paper's ε bound), and it is the L_i of a certificate.

The paper's supplement also uses the norm of the product |W_1 W_2 ⋯ W_i|₂ in place of the product of
the norms. It is smaller, but holds only without activation functions in between: for
x → relu(x) - relu(x - 1) the product of the weights is 0, yet the function is not constant. Here we
multiply matrices only if no activation separates them.

All constants are for real arithmetic; `iknow.metrics.rounding` adds the rounding errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.text import as_real
from iknow.errors import InputError

ROUND_UP = 1 + 1e-9  # exceeds any rounding error in a computed norm
FLOAT32_ROUNDING, FLOAT64_ROUNDING = 2.0**-24, 2.0**-53
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
    matrices since then, of shape (n_features there, n_features here). The norm of the product, not
    of each factor, keeps the constants useful after a scaler with one large scale.
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
        right = as_matrix(matrix)
        if self.linear is None:
            return Growth(self.lipschitz_before, right)
        if self.linear.shape[1] != right.shape[0]:
            raise InputError(
                "consecutive matrices must have matching shapes; got "
                f"{self.linear.shape} and {right.shape}"
            )
        return Growth(self.lipschitz_before, self.linear @ right)

    def through_function(self, lipschitz: float) -> Growth:
        """The growth after any function with this Lipschitz constant."""
        return Growth(lipschitz * self.lipschitz)


def spectral_norm(matrix: Any) -> float:
    """Return the largest singular value of a matrix, rounded up: never less than the true one.

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
    # Far cheaper than a singular value decomposition, and as exact for the largest value.
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
        constants[layer.name] = product = product * layer.lipschitz
    return constants


def propagate_radius(radius: float, lipschitz: Mapping[str, float]) -> dict[str, float]:
    """Return the radius in each layer that holds everything within `radius` in the start layer.

    This is the paper's conservative ε: neighbors in the start layer are neighbors in every layer.

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


def _check_size(value: float, what: str) -> float:
    return as_real(value, what, "be a number >= 0", lambda number: number >= 0)
