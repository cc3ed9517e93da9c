"""The forward error: how far a computed activation can be from the one in real arithmetic.

Along the graph, if e is the error of a module's input y and s the factor by which the module
stretches errors,

    error of the result  <=  s·e + relative · (|y| + e) + constant       (`rounding`).

The size of y is at most |y(0)| + L·|x|, so each error is at most a + b·|x|, from the cast of the
input to the module's dtype up to the cast of the activation to float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from iknow.core.robustness import Sensitivity
from iknow.errors import LayerError
from iknow.metrics.torch.arithmetic import LONGEST, UNIT_ROUNDOFF, Arithmetic
from iknow.metrics.torch.growth import Growth
from iknow.metrics.torch.layers import is_affine
from iknow.metrics.torch.rounding import LocalError, local_error
from iknow.metrics.torch.standin import Node

SAFE = 1 + 1e-6  # exceeds the rounding errors of these bounds themselves, in float64


@dataclass(frozen=True)
class Affine:
    """constant + slope · |x|, a bound that grows with the input's length."""

    constant: float
    slope: float

    def __add__(self, other: Affine) -> Affine:
        return Affine(self.constant + other.constant, self.slope + other.slope)

    def times(self, factor: float, plus: float = 0.0) -> Affine:
        return Affine(self.constant * factor + plus, self.slope * factor)

    def at(self, length: float) -> float:
        return self.constant + self.slope * length


class Forward:
    """Sensitivities of the nodes of a graph in one arithmetic."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic
        self._growth = Growth()
        self._error = cache(self._find_error)
        self._peak = cache(self._find_peak)
        self._local = cache(self._find_local)
        self._center = cache(center)

    def sensitivity(self, node: Node) -> Sensitivity:
        error = self._error(node)
        if self._arithmetic.dtype == torch.float64:  # the other dtypes fit into float32
            error += _cast(self._size(node) + error, math.prod(node.shape), torch.float32)
        bound = Sensitivity(self._growth.of(node), error.constant * SAFE, error.slope * SAFE)
        if not math.isfinite(bound.lipschitz + bound.rounding + bound.rounding_per_length):
            raise LayerError(f"the bounds of {node.what} are not finite")
        return bound

    def _size(self, node: Node) -> Affine:
        """|y| <= |y(0)| + L·|x|."""
        return Affine(float(self._center(node).norm()), self._growth.of(node)).times(SAFE)

    def _find_error(self, node: Node) -> Affine:
        n_values = math.prod(node.shape)
        if node.operation is None:
            return _cast(self._size(node), n_values, self._arithmetic.dtype)
        errors = [self._error(value) for value in node.inputs]
        if isinstance(node.operation, int):
            constants, slopes = zip(*((e.constant, e.slope) for e in errors), strict=True)
            return Affine(math.hypot(*constants), math.hypot(*slopes))
        given = [self._size(v) + error for v, error in zip(node.inputs, errors, strict=True)]
        if node.operation == "add":
            small = 4 * math.sqrt(n_values) * self._arithmetic.smallest
            (left, right), (one, other) = errors, given
            return left + right + (one + other).times(2 * self._arithmetic.unit, small)
        local = self._local(node)
        self._check_overflow(node, local, given[0])
        stretch = local.stretch
        if isinstance(node.operation, nn.Module) and is_affine(node.operation):
            # |A| is a bound too, but far above A after many convolutions.
            stretch = min(stretch, self._growth.alone(node))
        return errors[0].times(stretch) + given[0].times(local.relative, local.constant)

    def _find_local(self, node: Node) -> LocalError:
        assert isinstance(node.operation, nn.Module)
        try:
            return local_error(node.operation, node.inputs[0].shape, node.shape, self._arithmetic)
        except LayerError as error:
            raise LayerError(f"layer {node.what} cannot be bounded: {error}") from error

    def _find_peak(self, node: Node) -> float:
        """The largest number that may occur before a node, for the longest inputs.

        Sums keep an infinity infinite, so only numbers that no function has hidden yet count.
        """
        if not isinstance(node.operation, nn.Module):
            sizes = [self._size(node).at(self._longest(node)), *map(self._peak, node.inputs)]
            return 2 * max(sizes)
        if not is_affine(node.operation):
            return self._size(node).at(self._longest(node))
        local, (value,) = self._local(node), node.inputs
        given = (self._size(value) + self._error(value)).at(self._longest(node))
        return max(self._peak(value), local.peak * given + local.peak_constant)

    def _check_overflow(self, node: Node, local: LocalError, given: Affine) -> None:
        assert isinstance(node.operation, nn.Module)
        if is_affine(node.operation):
            return
        largest = given.at(self._longest(node))
        peak = local.peak * largest + local.peak_constant
        peak = max(self._peak(node.inputs[0]), peak**2 if local.squares else peak)
        if not peak < self._arithmetic.largest / 4:
            raise LayerError(
                f"layer {node.what} cannot be bounded: {self._arithmetic.dtype} may overflow "
                "before it, and the layer may hide that: compute in float32"
            )

    def _longest(self, node: Node) -> float:
        """The longest possible input: longer ones are not finite in the module's dtype."""
        return min(LONGEST, self._arithmetic.largest * math.sqrt(math.prod(_input_shape(node))))


def center(node: Node) -> Tensor:
    """The value of a node at the input 0, of shape (1, *node.shape), in float64."""
    return evaluate(node, torch.zeros(1, *_input_shape(node), dtype=torch.float64))


def evaluate(node: Node, batch: Tensor) -> Tensor:
    """The value of a node for a float64 batch, computed from the graph alone."""

    @cache
    def value(node: Node) -> Tensor:
        if node.operation is None:
            return batch
        values = [value(other) for other in node.inputs]
        if node.operation == "add":
            return values[0] + values[1]
        if isinstance(node.operation, int):
            return torch.cat(values, node.operation)
        assert isinstance(node.operation, nn.Module)
        result: Tensor = node.operation.forward(values[0].clone())
        return result

    return value(node)


def _input_shape(node: Node) -> tuple[int, ...]:
    while node.inputs:
        node = node.inputs[0]
    return node.shape


def _cast(size: Affine, n_values: int, dtype: torch.dtype) -> Affine:
    """How far a cast to this dtype, perhaps through float32, moves values of this size."""
    small = math.sqrt(n_values) * torch.finfo(dtype).tiny
    return size.times(UNIT_ROUNDOFF[dtype] * (1 + 2**-10), small)
