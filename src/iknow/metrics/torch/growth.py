"""Growth: Lipschitz constants along the graph of a network, in real arithmetic."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor, nn

from iknow.errors import LayerError
from iknow.metrics.lipschitz import ROUND_UP, spectral_norm
from iknow.metrics.torch.layers import (
    BATCH_NORMS,
    ISOMETRIES,
    base_of,
    is_affine,
    jump_of,
    lipschitz,
)
from iknow.metrics.torch.operators import linear_part, operator_norm
from iknow.metrics.torch.standin import Node

LARGEST_JUMP = 1e-8  # Softplus jumps by 2e-9 at its usual threshold, which we may ignore


class Growth:
    """The constants from a source, by default the input; jumps: whether functions may jump."""

    def __init__(self, source: Node | None = None, jumps: bool = True) -> None:
        self._source, self._jumps = source, jumps
        self.of = cache(self._of)
        self._norm = cache(_run_norm)  # several nodes share a run

    def comes_after(self, node: Node) -> bool:
        """Whether all paths to a node lead through the source."""
        if node is self._source or (self._source is None and node.operation is None):
            return True
        return bool(node.inputs) and all(map(self.comes_after, node.inputs))

    def alone(self, node: Node) -> float:
        """The constant of an affine module by itself."""
        assert isinstance(node.operation, nn.Module)
        return 1.0 if base_of(node.operation) in ISOMETRIES else self._norm((node,))

    def _of(self, node: Node) -> float:
        run: tuple[Node, ...] = ()
        while node is not self._source and isinstance(node.operation, nn.Module):
            if not is_affine(node.operation):
                break
            if base_of(node.operation) not in ISOMETRIES:
                run = (node, *run)
            (node,) = node.inputs
        growth = self._before(node) * self._norm(run)
        if not growth < math.inf:  # also false for NaN
            raise LayerError(f"{run[-1].what if run else node.what} is not finite")
        return growth

    def _before(self, node: Node) -> float:
        """The constant up to a node that is not the output of an affine module."""
        if node is self._source or node.operation is None:
            return 1.0
        constants = [self.of(value) for value in node.inputs]
        if node.operation == "add":
            return math.fsum(constants)
        if isinstance(node.operation, int):
            return math.hypot(*constants)
        assert isinstance(node.operation, nn.Module)
        return constants[0] * self._constant(node, node.operation)

    def _constant(self, node: Node, module: nn.Module) -> float:
        try:
            if not self._jumps and jump_of(module) > LARGEST_JUMP:
                raise LayerError(
                    f"it jumps by {jump_of(module):.1e} at its threshold {module.threshold}"
                )
            return lipschitz(module, node.inputs[0].shape)
        except LayerError as error:
            raise LayerError(f"layer {node.what} cannot be bounded: {error}") from error


def _run_norm(run: tuple[Node, ...]) -> float:
    """The norm of consecutive affine modules."""
    if not run:
        return 1.0
    modules: list[Any] = [node.operation for node in run]
    if len(run) == 1 and base_of(modules[0]) is nn.Linear:
        return spectral_norm(modules[0].weight.numpy())
    if len(run) == 1 and isinstance(modules[0], BATCH_NORMS):
        return _batch_norm(modules[0])
    parts = [linear_part(module) for module in modules]

    def function(batch: Tensor) -> Tensor:
        for node, part in zip(run, parts, strict=True):
            batch = part.forward(batch.reshape(len(batch), *node.inputs[0].shape))
        return batch

    return operator_norm(function, run[0].inputs[0].shape)


def _batch_norm(module: Any) -> float:
    """The largest |γ|/√(var + eps): in eval mode each channel is scaled by a constant."""
    variance = module.running_var.numpy()
    gamma = np.ones_like(variance) if module.weight is None else module.weight.numpy()
    return float(np.max(np.abs(gamma) / np.sqrt(variance + module.eps))) * ROUND_UP
