"""The parameters of a classifier as plain values, and back: `load` restores what was saved.

Metrics and neighborhoods are stored with the layers. Here we only record how the user passed them:
one for all layers, one for each, or as a `Selection`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

from iknow.core.quorum import check_quorum
from iknow.core.rule import Rule
from iknow.core.text import as_flag, as_real
from iknow.rules.registry import name_of, rule_named
from iknow.selection import Selection
from iknow.storage.bundle import Bundle
from iknow.storage.bundle_record import check_quorum_fits
from iknow.storage.schema import check_fields, check_whole, misfit

ONE, EACH, CHOSEN = "one", "each", "selection"


@dataclass(frozen=True)
class Parameters:
    """The stored values: for `layers` and `classes`, whether they were given; metric: `ONE` or the
    layers that have their own; rule: the name of its kind, if it is tuned; fixed: else, how it was
    given; quorum: as given, one number or two, None for the rule's usual one.
    """

    rule: str | None
    fixed: str | None
    k: int
    batch_size: int | None
    layers: bool
    metric: str | Sequence[str] | None
    classes: bool
    validation_fraction: float
    random_state: int | None
    progress: bool
    quorum: int | Sequence[int] | None


KEYS = tuple(field.name for field in fields(Parameters))


def parameters_to_dict(classifier: Any) -> dict[str, Any]:
    """The parameters of a fitted classifier, except its model and search."""
    rule, metric, seed = classifier.rule, classifier.metric, classifier.random_state
    kinds = {Rule: ONE, Selection: CHOSEN, Mapping: EACH}
    size, share = classifier.batch_size, classifier.validation_fraction
    if isinstance(metric, Mapping):
        described: str | list[str] | None = [name for name in classifier.layers_ if name in metric]
    else:
        described = None if metric is None else ONE
    record = Parameters(
        rule=name_of(rule) if isinstance(rule, type) else None,
        fixed=next((kinds[kind] for kind in kinds if isinstance(rule, kind)), None),
        k=int(classifier.k),  # a grid search may have set numpy's integers
        batch_size=None if size is None else int(size),
        layers=classifier.layers is not None,
        metric=described,
        classes=classifier.classes is not None,
        validation_fraction=as_real(share, "validation_fraction", "be a number"),
        random_state=int(seed) if isinstance(seed, Integral) else None,
        progress=as_flag(classifier.progress, "progress"),
        quorum=_plain_quorum(classifier.quorum),
    )
    return vars(record)


def _plain_quorum(quorum: Any) -> int | list[int] | None:
    """The quorum as it was given, in Python's own numbers."""
    if quorum is None:
        return None
    pair = check_quorum(quorum)
    return pair[0] if isinstance(quorum, Integral) else list(pair)


def check_parameters(settings: Mapping[str, Any], bundle: Bundle) -> None:
    """Refuse parameters that no classifier can have."""
    check_fields(Parameters, {name: settings[name] for name in KEYS}, "settings")
    for name, least in (("k", 1), ("batch_size", 1), ("random_state", 0)):
        if settings[name] is not None:
            check_whole(settings[name], f"settings.{name}", least)
    rule, fixed, metric = (settings[name] for name in ("rule", "fixed", "metric"))
    if rule is not None:
        rule_named(rule)
    if (quorum := settings["quorum"]) is not None:
        check_quorum_fits(check_quorum(quorum), len(bundle.labels), "settings.quorum")
    possible = [ONE, EACH] if bundle.neighborhoods else []
    possible += [CHOSEN] if bundle.neighborhoods and settings["selection"] is not None else []
    if fixed not in ([None] if rule is not None else possible):
        raise misfit("settings.fixed", f"one of {possible}, or a rule's name beside none", fixed)
    if metric not in (None, ONE) and (isinstance(metric, str) or set(metric) - set(bundle.metrics)):
        raise misfit("settings.metric", f"{ONE!r} or names of layers", metric)


def parameters_from_dict(settings: Mapping[str, Any], bundle: Bundle) -> dict[str, Any]:
    """The arguments behind `parameters_to_dict`, from checked settings."""
    quorum = settings["quorum"]
    names = ("k", "batch_size", "validation_fraction", "random_state", "progress")
    fixed, metrics, metric = settings["fixed"], bundle.metrics, settings["metric"]
    if fixed == CHOSEN:
        rule: Any = Selection.from_dict(settings["selection"])
    elif fixed == ONE:
        rule = next(iter(bundle.neighborhoods.values()))
    else:
        rule = dict(bundle.neighborhoods) if fixed == EACH else rule_named(settings["rule"])
    if metric == ONE:
        metric = next(iter(metrics.values()))
    elif metric is not None:
        metric = {layer: metrics[layer] for layer in metric}
    return {
        **{name: settings[name] for name in names},
        "rule": rule,
        "quorum": tuple(quorum) if isinstance(quorum, list) else quorum,
        "layers": list(bundle.activations) if settings["layers"] else None,
        "metric": metric,
        "classes": bundle.model_classes if settings["classes"] else None,
    }
