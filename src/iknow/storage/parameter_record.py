"""The parameters of a classifier as plain values, and back: `load` gives what `save` was given.

What layers have, metrics and neighborhoods, is written with the layers. Here it only says how they
were given: one for all layers, one for each, or as a `Selection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from iknow.core.neighborhood import RULES, Neighborhood
from iknow.core.scalars import as_flag, as_real
from iknow.errors import BundleError
from iknow.selection import Selection
from iknow.storage.bundle import Bundle
from iknow.storage.schema import check_flag, check_list, check_text, check_whole, is_of_type, misfit

ONE, EACH, CHOSEN = "one", "each", "selection"
KEYS = (
    "rule",
    "k",
    "batch_size",
    "layers",
    "neighborhoods",
    "metric",
    "classes",
    "validation_fraction",
    "random_state",
    "progress",
)


def parameters_to_dict(classifier: Any) -> dict[str, Any]:
    """The parameters of a fitted classifier, but for its model, device and index."""
    given, metric, seed = classifier.neighborhoods, classifier.metric, classifier.random_state
    if isinstance(metric, Mapping):
        metric = [layer for layer in classifier.layers_ if layer in metric]
    kinds = {Neighborhood: ONE, Selection: CHOSEN, Mapping: EACH}
    size = classifier.batch_size
    return {
        "rule": classifier.rule.__name__,
        "k": int(classifier.k),  # a grid search may have set numpy's integers
        "batch_size": None if size is None else int(size),
        "layers": classifier.layers is not None,
        "neighborhoods": next(
            (name for kind, name in kinds.items() if isinstance(given, kind)), None
        ),
        "metric": metric if metric is None or isinstance(metric, list) else ONE,
        "classes": classifier.classes is not None,
        "validation_fraction": as_real(
            classifier.validation_fraction, "validation_fraction", "be a number"
        ),
        "random_state": int(seed) if isinstance(seed, Integral) else None,
        "progress": as_flag(classifier.progress, "progress"),
    }


def upgrade(settings: Mapping[str, Any], bundle: Bundle) -> dict[str, Any]:
    """Settings as they are written now; in format 2 some parameters were not kept."""
    if "fixed" not in settings or any(name in settings for name in KEYS[3:]):
        return dict(settings)
    known = {name: value for name, value in settings.items() if name != "fixed"}
    fixed = check_flag(settings["fixed"], "settings.fixed")
    given = {"layers": True, "neighborhoods": EACH if fixed else None, "classes": False}
    given |= {"metric": list(bundle.metrics), "validation_fraction": 0.25, "random_state": 0}
    return {**given, "progress": True, **known}


def check_parameters(settings: Mapping[str, Any], bundle: Bundle) -> None:
    """Refuse parameters that no classifier had."""
    if check_text(settings["rule"], "settings.rule") not in RULES:
        raise misfit("settings.rule", f"one of {', '.join(RULES)}", settings["rule"])
    given = settings["neighborhoods"]
    if given not in (None, ONE, EACH, CHOSEN):
        raise misfit("settings.neighborhoods", f"null, {ONE!r}, {EACH!r} or {CHOSEN!r}", given)
    if given is not None and not bundle.neighborhoods:
        raise BundleError("settings.neighborhoods needs one in every layer; there are none")
    if given == CHOSEN and settings["selection"] is None:
        raise BundleError("settings.neighborhoods needs a selection; there is none")
    if settings["metric"] not in (None, ONE):
        for layer in check_list(settings["metric"], "settings.metric"):
            if check_text(layer, "a name in settings.metric") not in bundle.metrics:
                raise misfit("a name in settings.metric", "one of the layers", layer)
    for name in ("layers", "classes", "progress"):
        check_flag(settings[name], f"settings.{name}")
    check_whole(settings["k"], "settings.k", 1)
    if settings["batch_size"] is not None:
        check_whole(settings["batch_size"], "settings.batch_size", 1)
    if settings["random_state"] is not None:
        check_whole(settings["random_state"], "settings.random_state", 0)
    if not is_of_type(settings["validation_fraction"], float):
        raise misfit("settings.validation_fraction", "a number", settings["validation_fraction"])


def parameters_from_dict(settings: Mapping[str, Any], bundle: Bundle) -> dict[str, Any]:
    """The arguments that `parameters_to_dict` was given, of settings that are checked."""
    names = ("k", "batch_size", "validation_fraction", "random_state", "progress")
    return {
        **{name: settings[name] for name in names},
        "rule": RULES[settings["rule"]],
        "layers": list(bundle.activations) if settings["layers"] else None,
        "neighborhoods": _given_neighborhoods(settings, bundle),
        "metric": _given_metric(settings["metric"], bundle),
        "classes": bundle.classes if settings["classes"] else None,
    }


def _given_neighborhoods(settings: Mapping[str, Any], bundle: Bundle) -> Any:
    given, by_layer = settings["neighborhoods"], dict(bundle.neighborhoods)
    if given == CHOSEN:
        return Selection.from_dict(settings["selection"])
    if given == ONE:
        return next(iter(by_layer.values()))
    return by_layer if given == EACH else None


def _given_metric(given: Any, bundle: Bundle) -> Any:
    if given == ONE:
        return next(iter(bundle.metrics.values()))
    return None if given is None else {layer: bundle.metrics[layer] for layer in given}
