"""The probe: a second net under the proof.

Some real inputs go through the module as it is really run, in its own dtype, in batches of several
sizes and more than once. What comes out must be what the proven graph gives in float64, up to the
proven rounding. A proof that missed something would have to miss it for all of these too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.sensitivity import Sensitivity
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
    """Refuse if the module gives something else for the probe than the graph does.

    probe: inputs of shape (n, ...) as the classifier is given them; the first few are used.
    adapter: what the module is really run by.
    """
    given = probe[:ROWS]
    exact = given.detach().cpu() if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    if not exact.is_floating_point():
        raise LayerError("whole numbers stay whole, and may wrap around: give inputs as floats")
    exact = exact.to(torch.float64)
    lengths = exact.flatten(1).norm(dim=1) if exact.ndim > 1 else exact.abs()
    model = adapter(copy_at_rest(module))
    runs = [(slice(0, ROWS), given), (slice(0, ROWS), given)]
    runs += [(slice(i, i + 1), given[i : i + 1]) for i in range(min(2, len(exact)))]
    for rows, batch in runs:
        seen = model.observe(batch, list(nodes))
        usable = torch.from_numpy(~seen.invalid)
        for layer, node in nodes.items():
            wanted = evaluate(node, exact[rows]).flatten(1)[usable]
            found = torch.from_numpy(np.asarray(seen.activations[layer])).double()[usable]
            off = (found - wanted).norm(dim=1)
            bound = bounds[layer]
            allowed = bound.rounding + bound.rounding_per_length * lengths[rows][usable]
            if not bool((off <= allowed * (1 + 1e-6)).all()):
                worst = float((off - allowed).max())
                raise LayerError(
                    f"layer {layer!r} cannot be bounded: for real inputs the module gives "
                    f"something else than its operations, by {worst:.3g} more than they round"
                )
