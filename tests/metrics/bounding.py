"""The constants of several layers at once, of torch modules and of scikit-learn's networks."""

import copy

import numpy as np

from iknow.metrics.lipschitz import _layer_names, sensitivity_of, unwrap


def mlp_lipschitz(model, layers=None):
    """By layer, by default all, the constant from the input to it."""
    steps, network = unwrap(model)
    names = _layer_names(steps, network) if layers is None else layers
    parts = [*(step for _, step in steps), network]
    n_features = next(part.n_features_in_ for part in parts if hasattr(part, "n_features_in_"))
    shape = np.dtype(np.float64), n_features
    return {name: sensitivity_of(model, name, *shape).lipschitz for name in names}


def lipschitz_constants(module, shape, layers=None):
    """By layer the constant from the input to it; by default all that ran once, in that order."""
    from iknow.metrics.lipschitz_torch import sensitivities

    names = _names_of_single(module, shape) if layers is None else layers
    found = sensitivities(module, shape, names)
    return {name: bound.lipschitz for name, bound in found.items()}


def _names_of_single(module, shape):
    import torch

    ran, own = [], copy.deepcopy(module).eval()
    for name, part in own.named_modules():
        if name:
            part.register_forward_hook(lambda *_, name=name: ran.append(name))
    with torch.no_grad():
        own(torch.zeros(3, *shape, dtype=next(own.parameters(), torch.empty(0)).dtype))
    ends = [[end] * (end not in ran) for end in ("input", "output")]
    return [*ends[0], *(name for name in ran if ran.count(name) == 1), *ends[1]]
