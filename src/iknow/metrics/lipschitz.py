"""Bounds: how far apart two inputs at a known distance can end up in a layer, rounding included.

A layer h(x) = φ(Wᵀx + b) stretches ℓ2 distances by at most Lip(φ)·|W|₂, and consecutive layers by
at most the product of their constants. This carries a radius from the input to every layer (the
paper's ε bound), and it is the L_i of a certificate.

The paper's supplement also uses the norm of the product |W_1 W_2 ⋯ W_i|₂ in place of the product of
the norms. It is smaller, but holds only without activation functions in between: for
x → relu(x) - relu(x - 1) the product of the weights is 0, yet the function is not constant. Here we
measure consecutive affine operations as one, and only those.

**Propagation.** A front end (`lipschitz_torch`, `lipschitz_sklearn`) describes a network as a graph
of `Node`s. A sum of paths is bounded by the sum of their constants, a concatenation by the root of
the sum of their squares.

**Rounding.** In an arithmetic that rounds each operation by at most u times its result, a sum of n
products, in any order, is off by at most γ |a|·|b|, γ = n u / (1 - n u) (Higham, Accuracy and
Stability of Numerical Algorithms, section 3.1). So each operation, given y with an error e, returns
values within

    Lip · e  +  relative · (|y| + e)  +  fixed        (its `Noise`)

of the true ones. As |y| <= |y(0)| + L·|x|, every error is at most a + b·|x|, a `Line`, from the
cast of the input up to the cast of the activation to float32.

A sum keeps an infinity infinite, but a function may turn one into a harmless-looking number. So no
number before a function may overflow for inputs up to `LONGEST`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.robustness import LONGEST, Sensitivity
from iknow.core.text import as_real
from iknow.errors import InputError, LayerError

Value = TypeVar("Value")
ROUND_UP = 1 + 1e-9  # exceeds any rounding error in a computed norm
FLOAT32_ROUNDING, FLOAT64_ROUNDING = 2.0**-24, 2.0**-53
"""The largest relative error of rounding a number to float32 or float64."""
SMALLEST = 2.0**-149  # the absolute error of float32 below its smallest normal number


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
class Line:
    """At most `fixed + per_length · |x|₂`, for an input x."""

    fixed: float = 0.0
    per_length: float = 0.0

    def __add__(self, other: Line) -> Line:
        return Line(self.fixed + other.fixed, self.per_length + other.per_length)

    def through(self, factor: float, plus: float = 0.0) -> Line:
        return Line((self.fixed * factor + plus) * ROUND_UP, self.per_length * factor * ROUND_UP)

    def at(self, length: float) -> float:
        return self.fixed + self.per_length * length


@dataclass(frozen=True)
class Noise:
    """How far an operation F, as computed, is from the real f: relative · |y| + fixed, on any y.

    Numbers on the way are at most peak · |y| + peak_fixed, or that squared, with squares; above
    `largest` they overflow.
    """

    relative: float = 0.0
    fixed: float = 0.0
    peak: float = 1.0
    peak_fixed: float = 0.0
    squares: bool = False
    largest: float = math.inf


@dataclass(frozen=True, eq=False)
class Node:
    """A value in a network, and the operation that makes it from its inputs.

    kind: "input"; "sum" or "joined" of several values; "same" for one that keeps all distances,
    exactly; "affine"; "function" for any other. n_values: how many numbers a sample has here.
    center: the ℓ2 length of the value at the input 0. lipschitz: the constant of a function.
    linear: what `Propagation` gets its norms from, of an affine operation.
    """

    what: str
    kind: Literal["input", "sum", "joined", "same", "affine", "function"]
    inputs: tuple[Node, ...]
    n_values: int
    center: Callable[[], float]
    noise: Callable[[], Noise] = Noise
    lipschitz: Callable[[], float] = lambda: 1.0
    linear: Any = None


class Propagation:
    """Constants and errors along a graph, each found once.

    norm: of consecutive affine operations, from what `linear` has of each. source: the node to
    measure constants from, by default the input. stored: the noise of storing an activation.
    """

    def __init__(
        self,
        norm: Callable[[tuple[Any, ...]], float],
        source: Node | None = None,
        stored: Callable[[Node], Noise] = lambda _: Noise(),
    ) -> None:
        self._source, self._stored = source, stored
        self._norm = cache(lambda *run: norm(tuple(node.linear for node in run)))
        self.constant = cache(self._constant)
        self._error, self._peak = cache(self._find_error), cache(self._find_peak)
        self._noise = cache(lambda node: _of(node, node.noise))

    def comes_after(self, node: Node) -> bool:
        """Whether all paths to a node lead through the source."""
        if node is self._source or (self._source is None and node.kind == "input"):
            return True
        return bool(node.inputs) and all(map(self.comes_after, node.inputs))

    def _constant(self, node: Node) -> float:
        """The Lipschitz constant from the source to a node, in real arithmetic."""
        run: list[Node] = []
        last = node
        while node is not self._source and node.kind in ("affine", "same"):
            if node.kind == "affine":
                run.insert(0, node)
            (node,) = node.inputs
        growth = self._before(node) * (self._norm(*run) if run else 1.0)
        if not growth < math.inf:  # also false for NaN
            raise LayerError(f"the Lipschitz constant of {last.what} is not finite")
        return growth

    def _before(self, node: Node) -> float:
        """The constant up to a node that is not the result of an affine operation."""
        if node is self._source or node.kind == "input":
            return 1.0
        constants = [self.constant(value) for value in node.inputs]
        if node.kind == "sum":
            return math.fsum(constants)
        if node.kind == "joined":
            return math.hypot(*constants)
        return constants[0] * _of(node, node.lipschitz)

    def sensitivity(self, node: Node) -> Sensitivity:
        """The bounds of an activation as it is computed and stored."""
        error, stored = self._error(node), self._stored(node)
        error += (self._size(node) + error).through(stored.relative, stored.fixed)
        bound = Sensitivity(self.constant(node), error.fixed, error.per_length)
        if not math.isfinite(bound.lipschitz + bound.rounding + bound.rounding_per_length):
            raise LayerError(f"the bounds of {node.what} are not finite")
        return bound

    def _size(self, node: Node) -> Line:
        """|y| <= |y(0)| + L·|x|."""
        return Line(node.center() * ROUND_UP, self.constant(node))

    def _given(self, node: Node) -> Line:
        """The size of a node as computed."""
        return self._size(node) + self._error(node)

    def _find_error(self, node: Node) -> Line:
        if node.kind == "input":
            return self._size(node).through(self._noise(node).relative, self._noise(node).fixed)
        errors = [self._error(value) for value in node.inputs]
        if node.kind == "same":
            return errors[0]
        if node.kind == "joined":
            fixed, slopes = zip(*((e.fixed, e.per_length) for e in errors), strict=True)
            return Line(math.hypot(*fixed), math.hypot(*slopes)).through(1.0)
        noise, given = self._noise(node), sum(map(self._given, node.inputs), Line())
        if node.kind == "sum":
            stretch = 1.0
        elif node.kind == "affine":
            stretch = self._norm(node)
        else:
            stretch = _of(node, node.lipschitz)
            self._check_overflow(node, noise, given)
        error = sum(errors, Line()).through(stretch)
        return error + given.through(noise.relative, noise.fixed)

    def _find_peak(self, node: Node) -> float:
        """The largest number before a node that no function has hidden yet, for longest inputs."""
        if node.kind == "function":
            return self._size(node).at(LONGEST)
        peaks = [self._peak(value) for value in node.inputs]
        if node.kind == "same":
            return peaks[0]
        if node.kind == "affine":
            noise: Noise = self._noise(node)
            given = self._given(node.inputs[0]).at(LONGEST)
            return max(*peaks, noise.peak * given + noise.peak_fixed)
        return 2 * max(self._size(node).at(LONGEST), *peaks, 0.0)

    def _check_overflow(self, node: Node, noise: Noise, given: Line) -> None:
        peak = noise.peak * given.at(LONGEST) + noise.peak_fixed
        peak = max(self._peak(node.inputs[0]), peak**2 if noise.squares else peak)
        if not peak < noise.largest / 4:
            raise LayerError(
                f"layer {node.what} cannot be bounded: numbers of up to {peak:.3g} may overflow "
                "before it, and it may hide that: scale the inputs, or compute in more digits"
            )


def _of(node: Node, find: Callable[[], Value]) -> Value:
    """A fact about an operation, with its name in errors."""
    try:
        return find()
    except LayerError as error:
        raise LayerError(f"layer {node.what} cannot be bounded: {error}") from error


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
