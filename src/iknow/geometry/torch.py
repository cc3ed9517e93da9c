"""Lipschitz constants of a torch module: how far apart two inputs can end up in each layer.

The module's parts must form a chain (`torch_chain` watches whether they do). Affine parts that
follow one another, such as a convolution, its batch normalisation and an average pool, are measured
as the one linear operator they are (`torch_operators`); each other part contributes its own
constant (`torch_layers`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.arrays import Floats
from iknow.errors import LayerError
from iknow.geometry.bounds import ROUND_UP, propagate_radius, spectral_norm
from iknow.geometry.torch_chain import Chain, Step, trace_chain
from iknow.geometry.torch_layers import is_affine, known_type, lipschitz
from iknow.geometry.torch_operators import operator_norm

__all__ = ["lipschitz_constants", "propagate_radius"]

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
ISOMETRIES = (
    *(nn.Identity, nn.Flatten, nn.Unflatten),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
)
"""Affine modules that, in eval mode, change no distance."""


def lipschitz_constants(
    module: nn.Module,
    input_shape: Sequence[int],
    layers: Sequence[str] | None = None,
    start: str | None = None,
) -> dict[str, float]:
    """ℓ2 Lipschitz constants from the input to every layer, or to the named ones.

    input_shape: of one sample, without the batch. Layers are named as by `TorchModel`: modules as
    in `named_modules()`, "input" and "output". start: a layer to measure from in place of the
    input; the ratio of two constants from the input is no bound between their layers. Only what
    the named layers need is measured, and only as far as they go must the module be a chain. The
    work is done in float64 on a copy; the module is left alone. Feed the result to
    `propagate_radius`.
    """
    with torch.inference_mode(False), torch.no_grad():
        network = copy.deepcopy(module).to("cpu", torch.float64).eval().requires_grad_(False)
        chain = trace_chain(network, tuple(input_shape))
        return _follow(chain, _wanted(network, chain, layers, start), start)


def _wanted(
    network: nn.Module, chain: Chain, layers: Sequence[str] | None, start: str | None
) -> set[str]:
    """The layers to be measured: all that ran once after the start, or the named ones."""
    names = [step.name for step in chain.steps if step.name]
    asked = [*(layers or ()), *([] if start is None else [start])]
    for name in asked:
        if name not in {"input", "output", *dict(network.named_modules())}:
            raise LayerError(f"{type(network).__name__} has no layer {name!r}")
        if name not in names and chain.broken is None:
            raise LayerError(f"layer {name!r} did not run in the forward pass: choose another")
        if names.count(name) > 1:
            raise LayerError(f"layer {name!r} ran more than once, so it has no single bound")
    if chain.broken and (layers is None or not set(asked) <= set(names)):
        raise LayerError(
            f"the chain of modules ends early: {chain.broken}. Layers up to there can be bounded "
            f"by naming them: {', '.join(names)}"
        )
    if layers is not None:
        return set(layers)
    later = names if start is None else names[names.index(start) :]
    return {name for name in later if names.count(name) == 1}


def _follow(chain: Chain, wanted: set[str], start: str | None) -> dict[str, float]:
    """Walk along the chain; `base` is the constant before the run of affine steps."""
    constants: dict[str, float] = {}
    base, run = 1.0, tuple[Step, ...]()
    started = start is None
    norm = cache(_run_norm)  # the same run is asked for by several names
    for step in chain.steps:
        if wanted <= constants.keys():
            break
        if step.name and step.name == start:
            started, base, run = True, 1.0, ()
        elif started and is_affine(step.module):
            run += () if isinstance(step.module, ISOMETRIES) else (step,)
        elif started:
            base, run = base * norm(run) * _step_lipschitz(step), ()
        if started and step.name in wanted:
            constants[step.name] = base * norm(run)
    missing = sorted(wanted - constants.keys())
    if missing:
        raise LayerError(f"layer {missing[0]!r} comes before {start!r}: distances go forward")
    return constants


def _step_lipschitz(step: Step) -> float:
    try:
        return lipschitz(step.module, step.shape)
    except LayerError as error:
        kind = type(step.module).__name__
        raise LayerError(f"layer {step.name!r} ({kind}) cannot be bounded: {error}") from error


def _run_norm(steps: tuple[Step, ...]) -> float:
    """The norm of affine steps that follow one another."""
    for step in steps:
        if isinstance(step.module, BATCH_NORMS) and step.module.running_var is None:
            raise LayerError(
                f"layer {step.name!r} ({type(step.module).__name__}) cannot be bounded: without "
                "running statistics it mixes the samples of a batch"
            )
    if not steps:
        return 1.0
    if len(steps) == 1 and known_type(steps[0].module) is nn.Linear:
        return spectral_norm(_array(steps[0].module.weight))
    if len(steps) == 1 and isinstance(steps[0].module, BATCH_NORMS):
        return _batch_norm(steps[0].module)

    def function(batch: Tensor) -> Tensor:
        for step in steps:
            batch = step.module.forward(batch.reshape(len(batch), *step.shape))
        return batch

    return operator_norm(function, steps[0].shape)


def _batch_norm(module: Any) -> float:
    """The largest |γ|/√(var + eps): in eval mode each channel is scaled by a constant."""
    variance = _array(module.running_var)
    gamma = np.ones_like(variance) if module.weight is None else _array(module.weight)
    return float(np.max(np.abs(gamma) / np.sqrt(variance + module.eps))) * ROUND_UP


def _array(tensor: Any) -> Floats:
    values: Floats = tensor.numpy()
    return values
