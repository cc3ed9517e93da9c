"""What a torch module does to distances: how far apart two inputs can end up in each layer.

We prove what the module does: a stand-in for a batch goes through it (`trace`), and every operation
on the way to a layer must be known. Consecutive affine parts, such as a convolution and its batch
normalization, are measured as one linear operator (`operators`); every other part contributes its
own constant (`layers`). A sum of paths is bounded by the sum of their constants, a concatenation by
the root of the sum of their squares.

`lipschitz_constants` hold in real arithmetic. `sensitivities` also bound how far torch's results
are from it (`forward`), and compare with the module itself, a safety net
under the proof: some real inputs go through the module in its own dtype, in
batches of several sizes and more than once. The results must match those of the proven graph in
float64, up to the proven rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.robustness import Sensitivity
from iknow.errors import InputError, LayerError
from iknow.metrics.torch.arithmetic import arithmetic_of, input_dtype, plain_arithmetic
from iknow.metrics.torch.forward import Forward, evaluate
from iknow.metrics.torch.growth import Growth
from iknow.metrics.torch.parts import check_parametrizations
from iknow.metrics.torch.passes import copy_at_rest
from iknow.metrics.torch.standin import Node
from iknow.metrics.torch.trace import ENTRANCE, trace

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


def lipschitz_constants(
    module: nn.Module,
    input_shape: Sequence[int],
    layers: Sequence[str] | None = None,
    start: str | None = None,
) -> dict[str, float]:
    """Return the ℓ2 Lipschitz constants from the input to every layer, or to the named ones.

    They hold in real arithmetic; `sensitivities` adds torch's rounding. The work is done on a
    float64 copy. Only operations that the named layers depend on must be known. Pass the result to
    `propagate_radius`.

    Args:
        module: A trained module.
        input_shape: Shape of one sample, without the batch.
        layers: Layers as `TorchModel` names them: modules as in `named_modules()`, "input",
            "output", and "name.input" for what enters a module.
        start: The layer to measure from. Default: the input. The ratio of two constants from the
            input is no bound.

    Examples:
        >>> list(lipschitz_constants(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), (2,)))
        ['input', '0', '1', 'output']
    """
    with torch.inference_mode(False), torch.no_grad():
        found = trace(module, tuple(input_shape))
        growth = Growth(None if start is None else found[start], jumps=False)
        if layers is None:
            names = list(found.nodes)
            if found.unknown:
                found[next(iter(found.unknown))]  # says why, and which layers can be named
            later = names if start is None else names[_place(start, names) :]
            layers = [name for name in later if found.nodes[name] is not None]
        constants = {}
        for name in layers:
            if start is not None and not growth.comes_after(found[name]):
                raise LayerError(f"layer {name!r} comes before {start!r}: distances go forward")
            constants[name] = growth.of(found[name])
        return constants


def _place(start: str, names: Sequence[str]) -> int:
    """Where the layers from `start` on begin; for "name.input", with the parts of the module."""
    if start in names:
        return names.index(start)
    module = start.removesuffix(ENTRANCE)
    return next(i for i, name in enumerate(names) if f"{name}.".startswith(f"{module}."))


def sensitivities(
    module: nn.Module,
    input_shape: Sequence[int],
    layers: Sequence[str],
    probe: Any = None,
    adapter: Callable[[nn.Module], Any] | None = None,
) -> dict[str, Sensitivity]:
    """Bound how far the named layers, as `TorchModel` computes and iknow stores them, can move.

    Rounding covers the cast of the input to the module's dtype, each operation in it, in any order
    of summation, and the cast of the result to float32, for inputs of a length up to 1e15 and for
    torch's current settings.

    Args:
        module: A trained module.
        input_shape: Shape of one sample, without the batch.
        layers: Names of the layers; "input" is always known.
        probe: Some real inputs of shape (n, *input_shape). The module's activations for them must
            match the proven ones, up to rounding.
        adapter: What runs the module on the probe: `TorchModel`.

    Raises:
        LayerError: A layer cannot be bounded; ask for the others one by one.

    Examples:
        >>> sensitivities(nn.Linear(2, 2), (2,), ["input"])["input"].lipschitz
        1.0
    """
    if probe is not None and adapter is None:
        raise InputError("a probe needs something to run the module on it: pass adapter=TorchModel")
    with torch.inference_mode(False), torch.no_grad():
        if list(layers) == ["input"] and "input" not in dict(module.named_modules()):
            # Whatever the module is, `TorchModel` only casts the input to its dtype.
            arithmetic = plain_arithmetic(input_dtype(module))
            node = Node("the input", None, (), tuple(input_shape))
            return {"input": Forward(arithmetic).sensitivity(node)}
        check_parametrizations(module)
        found = trace(module, tuple(input_shape))
        forward = Forward(arithmetic_of(module))
        result = {name: forward.sensitivity(found[name]) for name in layers}
        if adapter is not None and probe is not None:
            compare(module, {name: found[name] for name in layers}, result, probe, adapter)
        return result
