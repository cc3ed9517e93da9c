"""Parameters: what the user asked of a classifier, checked and filled in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from iknow.core.neighborhood import Nearest, Neighborhood, has_k, has_radius
from iknow.errors import InputError
from iknow.geometry import Euclidean, Metric


def as_layer_names(layers: Any) -> tuple[str, ...] | None:
    """Layers as a tuple of names; a single name may stand alone. None asks for the defaults."""
    if layers is None:
        return None
    # An iterator is empty when it is read again, by the next fit or a clone.
    listed = isinstance(layers, Iterable) and not isinstance(layers, Iterator)
    names = (layers,) if isinstance(layers, str) else tuple(layers) if listed else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"layers must be names of layers, at least one; got {layers!r}")
    if len(set(names)) < len(names):
        raise InputError(f"each layer must be named once; got {layers!r}")
    return tuple(map(str, names))


def check_rule(rule: Any) -> type[Neighborhood]:
    """A kind of neighborhood, given as a class."""
    if not (isinstance(rule, type) and issubclass(rule, Neighborhood)):
        raise InputError(f"rule must be a kind of neighborhood such as Ball; got {rule!r}")
    return rule


def fixed_neighborhoods(
    given: Any, rule: type[Neighborhood], k: int, layers: Sequence[str]
) -> dict[str, Neighborhood] | None:
    """The neighborhoods that need no tuning, by layer, or None if there is a radius to tune."""
    if given is None:
        if has_radius(rule):
            return None
        given = rule(k=k)  # type: ignore[call-arg]
    if isinstance(given, Neighborhood):
        return dict.fromkeys(layers, given)
    if not isinstance(given, Mapping):
        raise InputError(
            "neighborhoods must be one such as Ball(0.5), or one for each layer by its name; "
            f"got {given!r}"
        )
    if set(given) != set(layers):
        raise InputError(
            f"neighborhoods are needed for the layers {', '.join(layers)}; "
            f"got them for {', '.join(map(str, given)) or 'none'}"
        )
    for layer, neighborhood in given.items():
        if not isinstance(neighborhood, Neighborhood):
            raise InputError(
                f"the neighborhood of layer {layer!r} must be one such as Ball(0.5); "
                f"got {neighborhood!r}"
            )
    return {layer: given[layer] for layer in layers}


def as_metrics(metric: Any, layers: Sequence[str]) -> dict[str, Metric]:
    """The metric of each layer: one for all, or some by name; Euclidean where none is given."""
    if metric is None or isinstance(metric, Metric):
        return dict.fromkeys(layers, metric or Euclidean)
    if not isinstance(metric, Mapping) or not all(isinstance(m, Metric) for m in metric.values()):
        raise InputError(
            "metric must be one such as Minkowski(1), or some for layers by their names; "
            f"got {metric!r}"
        )
    unknown = [layer for layer in metric if layer not in layers]
    if unknown:
        raise InputError(
            f"a metric was given for {', '.join(map(str, unknown))}, which is not among the "
            f"layers {', '.join(layers)}"
        )
    return {layer: metric.get(layer, Euclidean) for layer in layers}


def check_neighbors(
    fixed: Mapping[str, Neighborhood] | None, rule: type[Neighborhood], k: int, n_rows: int
) -> None:
    """Every k must be one that the training set can serve."""
    needed = [0]
    if fixed is not None:
        needed += [neighborhood.n_neighbors for neighborhood in fixed.values()]
    elif has_k(rule):
        needed += [Nearest(k).k]
    if max(needed) > n_rows:
        raise InputError(
            f"k={max(needed)} neighbours are asked for but there are {n_rows} training samples: "
            "choose a smaller k"
        )
