"""Bounds: how far apart two inputs at a known distance can end up in a layer, rounding included.

A layer h(x) = φ(Wᵀx + b) stretches ℓ2 distances by at most Lip(φ)·|W|₂, and consecutive layers by
at most the product of their constants. This carries a radius from the input to every layer (the
paper's ε bound), and it is the L_i of a certificate.

The norm of the product |W_1 W_2 ⋯ W_i|₂, which the paper's supplement also uses, is smaller, but
holds only without activation functions in between: for x → relu(x) - relu(x - 1) it is 0. So we
measure consecutive affine operations as one, and only those.

**Propagation.** A front end describes a network as a graph of `Node`s. A sum of paths is bounded by
the sum of their constants, a concatenation by the root of the sum of their squares.

**Rounding.** In an arithmetic that rounds each operation by at most u times its result, a sum of n
products, in any order, is off by at most γ |a|·|b|, γ = n u / (1 - n u) (Higham, Accuracy and
Stability of Numerical Algorithms, section 3.1). So each operation, given y with an error e, returns
values within

    Lip · e  +  relative · (|y| + e)  +  fixed        (its `RoundingError`)

of the true ones. As |y| <= |y(0)| + L·|x|, every error is at most a + b·|x|, a `Line`, from the
cast of the input up to the cast of the activation to float32.

A sum keeps an infinity infinite, but a function may turn one into a harmless-looking number. So no
number before a function may overflow for inputs up to `LONGEST`.

**scikit-learn's multilayer perceptron**, and the scalers before it, are described here, torch's
modules in `lipschitz_torch`. `SklearnModel` names the layers: "input", each step of a pipeline,
"hidden1", ..., "logits". Each becomes a node to propagate over.

Steps are affine maps, for the types listed here and no others. A subclass, or an instance with its
own `transform`, may compute anything, and a parameter may change the map after fitting. So we match
types exactly, check parameters, and refuse all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, Literal

import numpy as np
from scipy.special import expit
from sklearn.frozen import FrozenEstimator

from iknow.core.arrays import Floats
from iknow.core.robustness import LONGEST, Sensitivity
from iknow.core.rule import replaced_methods
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
class RoundingError:
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
    noise: RoundingError = RoundingError()
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

    def sensitivity(self, stored: RoundingError) -> Sensitivity:
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


ACTIVATIONS: dict[str, tuple[Callable[[Floats], Floats], float]] = {
    "identity": (lambda z: z, 1.0),
    "logistic": (expit, 0.25),
    "tanh": (np.tanh, 1.0),
    "relu": (lambda z: np.maximum(z, 0), 1.0),
}
"""Each activation function by its name in scikit-learn, with its steepest slope."""
USUAL = 1e-20, 1e20  # with parameters in this range float32 inputs up to 1e15 cannot overflow
LARGEST = 4e150  # far from where squares of float64 overflow
Steps = Sequence[tuple[str, Any]]
Part = tuple[Callable[[Floats], Floats], dict[str, Any]]
"""An operation: what it computes, and what a `Node` has of it."""


def unwrap(estimator: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The transformers of a pipeline and the classifier at its end, unwrapped."""
    steps: list[tuple[str, Any]] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "steps"):
            steps += [(name, "passthrough" if s is None else s) for name, s in estimator.steps[:-1]]
            estimator = estimator.steps[-1][1]
        else:
            return steps, estimator


@cache
def known_transformers() -> dict[type, set[str]]:
    """The known transformers, with all parameters they may have; they load on first use."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

    return {
        StandardScaler: {"copy", "with_mean", "with_std"},
        MinMaxScaler: {"clip", "copy", "feature_range"},
        MaxAbsScaler: {"clip", "copy"},
        RobustScaler: {"copy", "quantile_range", "unit_variance", "with_centering", "with_scaling"},
        PCA: {
            "copy", "iterated_power", "n_components", "n_oversamples", "power_iteration_normalizer",
            "random_state", "svd_solver", "tol", "whiten",
        },
    }  # fmt: skip


def sensitivity_of(
    estimator: Any, layer: str, dtype: np.dtype[Any], n_features: int
) -> Sensitivity:
    """How far a layer can move, for inputs of a dtype, which transformers compute in."""
    steps, classifier = unwrap(estimator)
    names = ["input", *(name for name, _ in steps)]
    if layer not in names:
        names = _layer_names(steps, classifier)
    if names.count(layer) != 1:
        raise LayerError(f"{layer!r} must name one layer; the layers are {', '.join(names)}")
    nodes, value = [Node("the input", "input")], np.zeros(n_features)
    for place, name in enumerate(names[1 : names.index(layer) + 1]):
        what = f"layer {name!r}"
        try:
            if place < len(steps):
                what = f"step {name!r} ({type(steps[place][1]).__name__})"
                parts = _transform(steps[place][1], dtype)
            else:
                parts = _dense(classifier, place - len(steps))
        except LayerError as error:
            raise LayerError(f"{what} cannot be bounded: {error}") from error
        for function, facts in parts:
            value = function(value)
            nodes.append(Node(repr(name), inputs=(nodes[-1],), center=_length(value), **facts))
    found = propagate(nodes, lambda run: spectral_norm(reduce(np.matmul, run)))
    stored = RoundingError(FLOAT32_ROUNDING, SMALLEST * math.sqrt(value.size))
    return found[nodes[-1]].sensitivity(stored)


def _layer_names(steps: Steps, network: Any) -> list[str]:
    """The layers of a pipeline that ends in scikit-learn's own MLPClassifier, fitted."""
    from sklearn.neural_network import MLPClassifier

    if type(network) is not MLPClassifier or not hasattr(network, "coefs_"):
        raise InputError(
            "expected a fitted MLPClassifier or a pipeline that ends in one; got "
            f"{type(network).__name__}"
        )
    if network.activation not in ACTIVATIONS:
        raise InputError(f"the activation function {network.activation!r} is not known")
    hidden = [f"hidden{i + 1}" for i in range(len(network.coefs_) - 1)]
    return ["input", *(name for name, _ in steps), *hidden, "logits"]


def _affine(matrix: Floats, offset: Floats, noise: float, fixed: float) -> Part:
    """X → x @ matrix + offset, off by at most noise · |x|₂ + fixed."""
    noises = RoundingError(noise, fixed, _length(matrix), _length(offset))
    if not max(noises.peak, noises.peak_fixed) < 1e100:
        raise LayerError("its weights are so large that float64 may overflow")
    return lambda x: x @ matrix + offset, {"kind": "affine", "noise": noises, "linear": matrix}


def _function(function: Callable[[Floats], Floats], slope: float, noise: float) -> Part:
    """A function of a Lipschitz constant, off by at most the noise."""
    noises = RoundingError(0.0, noise, largest=LARGEST)
    return function, {"kind": "function", "noise": noises, "lipschitz": slope}


def _dense(network: Any, i: int) -> list[Part]:
    """Layer i of a network, in float64; the last one, the logits, has no activation."""
    matrix, offset = as_matrix(network.coefs_[i]), _vector(network.intercepts_[i])
    unit = 2 * (len(matrix) + 2) * FLOAT64_ROUNDING
    parts = [_affine(matrix, offset, unit * _length(matrix), unit * _length(offset))]
    name = network.activation
    if i < len(network.coefs_) - 1 and name != "identity":
        # relu is exact; tanh and expit are off by some units in the last place of numbers below 1.
        noise = 0.0 if name == "relu" else 32 * FLOAT64_ROUNDING * math.sqrt(len(offset))
        parts.append(_function(*ACTIVATIONS[name], noise))
    return parts


def _transform(transformer: Any, dtype: np.dtype[Any]) -> list[Part]:
    """A step of a pipeline, for inputs of a dtype."""
    if isinstance(transformer, str):  # "passthrough"
        return []
    frozen = [transformer] if type(transformer) is FrozenEstimator else []
    transformer = transformer.estimator if frozen else transformer
    known, kind = known_transformers(), type(transformer)
    if kind not in known:
        raise LayerError(
            f"{', '.join(each.__name__ for each in known)} and passthrough can, but not their "
            "subclasses; start after it, or bound it yourself and multiply"
        )
    for thing in (*frozen, transformer):
        if replaced := replaced_methods(thing):
            raise LayerError(f"the instance replaces its method {replaced[0]!r}")
    parameters = transformer.get_params(deep=False)
    if unknown := sorted(set(parameters) - known[kind]):
        raise LayerError(f"its parameter {unknown[0]!r} is unknown")
    is_projection = kind.__name__ == "PCA"
    if not (is_projection or parameters["copy"]):
        raise LayerError("with copy=False it changes its input in place, which other layers read")
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize >= 8):
        unit = FLOAT64_ROUNDING
    elif dtype == np.float32:  # which transformers keep
        unit = FLOAT32_ROUNDING
    else:
        raise LayerError(f"nothing is known about {dtype} inputs: convert them to float64")
    return (_project if is_projection else _scale)(transformer, unit)


def _scale(scaler: Any, unit: float) -> list[Part]:
    """Each feature times its scale plus its offset, then perhaps clipped."""
    scale, offset = np.ones(scaler.n_features_in_), np.zeros(scaler.n_features_in_)
    if hasattr(scaler, "min_"):  # MinMaxScaler
        scale, offset = _vector(scaler.scale_), _vector(scaler.min_)
    elif getattr(scaler, "with_std", getattr(scaler, "with_scaling", True)):
        scale = 1 / _vector(scaler.scale_)
    if getattr(scaler, "with_mean", getattr(scaler, "with_centering", False)):
        offset = -_vector(scaler.center_ if hasattr(scaler, "center_") else scaler.mean_) * scale
    sizes, (smallest, most) = np.abs(scale[scale != 0]), USUAL
    usual = ((sizes >= smallest) & (sizes <= most)).all() and (np.abs(offset) <= most).all()
    if unit > FLOAT64_ROUNDING and not usual:
        raise LayerError(
            f"its scales go from {sizes.min(initial=np.inf):.3g} to {sizes.max(initial=0):.3g}, "
            "beyond float32's range"
        )
    # Parameters and results are rounded, some twice: 4 units of (|x · scale| + |offset|), plus
    # the loss below the smallest normal number.
    largest, root = float(sizes.max(initial=0.0)), math.sqrt(len(scale))
    fixed = 8 * unit * _length(offset) + root * (1 + largest) * 1e-44
    parts = [_affine(np.diag(scale), offset, 8 * unit * largest, fixed)]
    if getattr(scaler, "clip", False):
        limits = getattr(scaler, "feature_range", (-1.0, 1.0))
        noise = 2 * unit * max(map(abs, limits)) * root
        parts.append(_function(lambda x: np.clip(x, *limits), 1.0, noise))
    return parts


def _project(pca: Any, unit: float) -> list[Part]:
    matrix = as_matrix(pca.components_).T
    if pca.whiten:
        # PCA.transform keeps its divisors above 0 this way.
        smallest = np.finfo(pca.explained_variance_.dtype).eps
        matrix = matrix / np.maximum(np.sqrt(pca.explained_variance_), smallest)
    mean = _vector(pca.mean_)
    noise = 2 * (len(matrix) + 8) * unit * _length(matrix)
    lost = (len(matrix) + 2) * math.sqrt(matrix.shape[1]) * 1e-44 * (1 + np.abs(matrix).max())
    # PCA projects the mean by itself and subtracts it afterwards, with its own noise.
    return [_affine(matrix, -(mean @ matrix), noise, 2 * noise * _length(mean) + float(lost))]


def _vector(values: Any) -> Floats:
    vector: Floats = as_matrix(np.atleast_2d(values))[0]
    return vector


def _length(values: Floats) -> float:
    """The ℓ2 or Frobenius norm, which also bounds the norm of |matrix| that rounding needs."""
    return float(np.linalg.norm(values))
