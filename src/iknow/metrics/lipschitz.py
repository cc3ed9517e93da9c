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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.robustness import LONGEST, Sensitivity
from iknow.errors import InputError, LayerError

ROUND_UP = 1 + 1e-9  # exceeds any rounding error in a computed norm
FLOAT32_ROUNDING, FLOAT64_ROUNDING = 2.0**-24, 2.0**-53
"""The largest relative error of rounding a number to float32 or float64."""
SMALLEST = 2.0**-149  # the absolute error of float32 below its smallest normal number


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

    kind: "input"; "sum" or "joined" of several values; "affine"; "function" for any other. center:
    the ℓ2 length of the value at the input 0. lipschitz: the constant of a function. linear: what
    `propagate` gets its norms from, of an affine operation.
    """

    what: str
    kind: Literal["input", "sum", "joined", "affine", "function"]
    inputs: tuple[Node, ...] = ()
    center: float = 0.0
    noise: Noise = Noise()
    lipschitz: float = 1.0
    linear: Any = None


@dataclass(frozen=True)
class Bound:
    """How far a node can be from where it is at another input, and from real arithmetic.

    constant: from the source, in real arithmetic. size: |y| <= |y(0)| + L·|x|. peak: the largest
    number on the way, for the longest inputs. run: the consecutive affine operations that end here;
    before: the constant before them.
    """

    constant: float
    size: Line
    error: Line
    peak: float
    before: float = 1.0
    run: tuple[Node, ...] = ()

    @property
    def computed(self) -> Line:
        """The size of the value as computed."""
        return self.size + self.error

    def sensitivity(self, stored: Noise) -> Sensitivity:
        """The bounds of an activation that is stored with this noise."""
        error = self.error + self.computed.through(stored.relative, stored.fixed)
        if not math.isfinite(self.constant + error.fixed + error.per_length):
            raise LayerError("its bounds are not finite")
        return Sensitivity(self.constant, error.fixed, error.per_length)


def propagate(nodes: Iterable[Node], norm: Callable[[tuple[Any, ...]], float]) -> dict[Node, Bound]:
    """The bounds of nodes, each after those it is made of, from the input on.

    norm: of consecutive affine operations, from what `linear` has of each.
    """
    found: dict[Node, Bound] = {}
    norm_of = cache(lambda *run: norm(tuple(node.linear for node in run)))
    for node in nodes:
        if node.inputs:
            found[node] = _bound(node, [found[value] for value in node.inputs], norm_of)
        else:
            size = Line(node.center * ROUND_UP, 1.0)
            error = size.through(node.noise.relative, node.noise.fixed)
            found[node] = Bound(1.0, size, error, (size + error).at(LONGEST))
    return found


def _bound(node: Node, inputs: list[Bound], norm: Callable[..., float]) -> Bound:
    """The bound of an operation, given those of its inputs."""
    constants, errors = [each.constant for each in inputs], [each.error for each in inputs]
    before = constants[0] * node.lipschitz
    run: tuple[Node, ...] = ()
    if node.kind == "sum":
        before = math.fsum(constants)
    elif node.kind == "joined":
        before = math.hypot(*constants)
    elif node.kind == "affine":
        before, run = inputs[0].before, (*inputs[0].run, node)
    constant = before * norm(*run) if run else before
    if not constant < math.inf:  # also false for NaN
        raise LayerError(f"the Lipschitz constant of {node.what} is not finite")
    size, noise = Line(node.center * ROUND_UP, constant), node.noise
    given = sum((each.computed for each in inputs), Line())
    if node.kind == "joined":
        fixed, slopes = zip(*((each.fixed, each.per_length) for each in errors), strict=True)
        error = Line(math.hypot(*fixed), math.hypot(*slopes)).through(1.0)
    else:
        stretch = norm(node) if node.kind == "affine" else node.lipschitz
        error = sum(errors, Line()).through(stretch) + given.through(noise.relative, noise.fixed)
    on_the_way = noise.peak * given.at(LONGEST) + noise.peak_fixed
    peak = max(on_the_way, *(each.peak for each in inputs))
    largest = max(peak, on_the_way * on_the_way) if noise.squares else peak
    if node.kind == "function" and not largest < noise.largest / 4:
        raise LayerError(
            f"layer {node.what} cannot be bounded: numbers of up to {largest:.3g} may overflow "
            "before it, and it may hide that: scale the inputs, or compute in more digits"
        )
    return Bound(constant, size, error, peak, before, run)


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
