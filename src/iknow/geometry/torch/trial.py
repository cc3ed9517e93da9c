"""The trial: a safety net under the proof.

Some real inputs go through the module in its own dtype, in batches of several sizes and more than
once. The results must match those of the proven graph in float64, up to the proven rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.robustness import Sensitivity
from iknow.errors import LayerError
from iknow.geometry.torch.forward import evaluate
from iknow.geometry.torch.passes import copy_at_rest
from iknow.geometry.torch.standin import Node

ROWS = 8


def compare(
    module: nn.Module,
    nodes: Mapping[str, Node],
    bounds: Mapping[str, Sensitivity],
    probe: Any,
    adapter: Callable[[nn.Module], Any],
) -> None:
    """Refuse a module whose activations for the first inputs of the probe differ from the graph's.

    adapter: wraps the module as the classifier does.
    """
    given = probe[:ROWS]
    exact = given.detach().cpu() if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    if not exact.is_floating_point():
        raise LayerError("integer inputs stay integers, which may wrap around: pass floats")
    exact = exact.to(torch.float64)
    lengths = exact.flatten(1).norm(dim=1) if exact.ndim > 1 else exact.abs()
    model = adapter(copy_at_rest(module))
    singles = [slice(i, i + 1) for i in range(min(2, len(exact)))]
    for rows in (slice(0, ROWS), slice(0, ROWS), *singles):
        seen = model.observe(given[rows], list(nodes))
        usable = torch.from_numpy(~seen.invalid)
        for layer, node in nodes.items():
            wanted = evaluate(node, exact[rows]).flatten(1)[usable]
            found = torch.from_numpy(np.asarray(seen.activations[layer])).double()[usable]
            off, bound = (found - wanted).norm(dim=1), bounds[layer]
            allowed = bound.rounding + bound.rounding_per_length * lengths[rows][usable]
            if not bool((off <= allowed * (1 + 1e-6)).all()):
                raise LayerError(
                    f"layer {layer!r} cannot be bounded: for real inputs the module differs from "
                    f"its operations by {float((off - allowed).max()):.3g} more than they round"
                )
