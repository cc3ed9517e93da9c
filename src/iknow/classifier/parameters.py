"""Parameters: what the user asked for, checked and completed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from iknow.core.quorum import Quorum, check_quorum
from iknow.core.rule import (
    Rule,
    check_by_layer,
    check_k,
    check_takes,
    has_k,
    is_tuned,
    make_rule,
)
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.metrics import Metric
from iknow.metrics.defaults import SHORT_NAMES
from iknow.metrics.lipschitz_sklearn import unwrap
from iknow.models.adapt import has_base
from iknow.models.numbers import as_pandas
from iknow.rules import RelativeBall
from iknow.selection import Selection

KINDS_OF_RULE = (
    "a class such as Ball, one such as Ball(0.5), a dict of one per layer, or a Selection"
)


def as_layer_names(layers: Any) -> tuple[str, ...] | None:
    """Layers as a tuple of names; a single name needs no list. None means the defaults."""
    if layers is None:
        return None
    # An iterator would be empty for the next fit, or for a clone.
    listed = isinstance(layers, Collection) and getattr(layers, "ndim", 1) == 1
    chosen = (layers,) if isinstance(layers, str) else tuple(layers) if listed else ()
    if not chosen or not all(isinstance(name, str) for name in chosen):
        raise InputError(f"layers must be the names of one or more layers; got {shown(layers)}")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"layers must name each layer once; got {shown(layers)}")
    return tuple(map(str, chosen))


def is_fixed(rule: Any) -> bool:
    """Whether a rule, as the user gives it, is to be used as it is: a class is to be tuned."""
    return not isinstance(rule, type)


def kind_of(rule: Any) -> type[Rule]:
    """The kind of rule that a user wants to be tuned; of fixed ones, the default."""
    if is_fixed(rule):
        return RelativeBall
    if not issubclass(rule, Rule):
        raise InputError(f"rule must be {KINDS_OF_RULE}; got {shown(rule)}")
    kind: type[Rule] = rule
    return kind


def as_quorum(quorum: Any, rule: type[Rule]) -> Quorum:
    """The quorum that the user asks for, or the usual one of the rule."""
    pair = rule.usual_quorum if quorum is None else check_quorum(quorum)
    check_takes(rule, pair)
    return pair


def has_levels(rule: Any) -> bool:
    """Whether levels choose the neighborhoods, or have chosen them."""
    if isinstance(rule, Selection):
        return rule.levels is not None
    return not is_fixed(rule) and bool(rule.by_level)


def fixed_rules(
    given: Any, k: int, layers: Sequence[str], quorum: Quorum
) -> dict[str, Rule] | None:
    """The rules that need no tuning, by layer, or None if there is something to tune."""
    if not is_fixed(given):
        if is_tuned(given):
            return None
        given = make_rule(given, k, quorum)
    if isinstance(given, Selection):
        layers = [layer for layer in layers if layer not in given.left_out]
        given = given.neighborhoods
    if isinstance(given, Rule):
        return dict.fromkeys(layers, given)
    check_by_layer(given, layers, kind=KINDS_OF_RULE)
    return {layer: given[layer] for layer in layers}


def as_metrics(metric: Any, layers: Sequence[str]) -> dict[str, Metric | None]:
    """The metric of each layer: one for all, or some by layer; None where the user gives none."""
    if not isinstance(metric, Mapping):
        return dict.fromkeys(layers, None if metric is None else as_metric(metric))
    given = {layer: as_metric(each) for layer, each in metric.items()}
    if unknown := [layer for layer in given if layer not in layers]:
        raise InputError(
            f"metric names {names(unknown)}, which is not among the layers {', '.join(layers)}"
        )
    return {layer: given.get(layer) for layer in layers}


def as_metric(metric: Any) -> Metric:
    """A metric, given as one or by its short name."""
    found = SHORT_NAMES.get(metric) if isinstance(metric, str) else metric
    if not isinstance(found, Metric):
        raise InputError(
            f"metric must be one of {names(SHORT_NAMES)}, or a metric such as Minkowski(1), for "
            f"all layers or in a dict by layer; got {shown(metric)}"
        )
    return found


def check_neighbors(
    fixed: Mapping[str, Rule] | None, rule: type[Rule], k: int, n_rows: int
) -> None:
    """Refuse a k larger than the training set."""
    needed = check_k(k)  # even if no rule asks for it yet: a bundle keeps it
    if fixed is not None:
        needed = max((each.n_neighbors for each in fixed.values()), default=0)
    if (fixed is not None or has_k(rule)) and needed > n_rows:
        raise InputError(f"k={needed} is more than the {n_rows} training samples: use a smaller k")


def check_quorum_size(fixed: Mapping[str, Rule] | None, quorum: Quorum, n_rows: int) -> None:
    """Refuse a quorum larger than the training set; the usual ones fit any."""
    rules = {} if fixed is None else fixed
    largest = max([*quorum, *(number for rule in rules.values() for number in rule.quorum)])
    if largest > max(n_rows, *RelativeBall.usual_quorum):
        raise InputError(
            f"a quorum of {shown(largest)} is more than the {n_rows} training samples: use a "
            "smaller one"
        )


def check_features(estimator: Any, X: Any, *, reset: bool) -> None:
    """Record the number and names of the features in an estimator, or compare with those."""
    table = as_pandas(X)
    try:
        validate_data(estimator, table, reset=reset, skip_check_array=True)
    except Exception as error:  # X may be any object, and fail in any way
        before = getattr(estimator, "feature_names_in_", None)
        if before is None or not hasattr(table, "columns") or reset:
            raise InputError(f"X must be an array or a data frame: {error}") from error
        matches = getattr(estimator.model_, "matches", None)  # of a bundle's own model
        if not _reads_by_name(estimator) and not (matches is not None and matches(table)):
            moved = _what_moved(list(before), list(table.columns))
            raise InputError(f"{error}\n{moved}") from error


def _reads_by_name(estimator: Any) -> bool:
    """Whether the model itself takes its columns by name, wherever they are, and nothing else."""
    steps, _ = unwrap(getattr(estimator.model_, "estimator", None))
    first: Any = steps[0][1] if steps else None
    columns = [part[2] for part in getattr(first, "transformers", ())]
    named = all(isinstance(name, str) for each in columns for name in np.atleast_1d(each).tolist())
    # Known by its name: importing it takes long.
    by_name = has_base(first, "ColumnTransformer", "sklearn") and first.remainder == "drop"
    return by_name and named and "input" not in estimator.layers_


def _what_moved(before: list[Any], now: list[Any]) -> str:
    """Which columns are missing, new, or elsewhere, and what to do about it."""
    missing = [name for name in before if name not in now]
    new = [name for name in now if name not in before]
    moved = [name for name in before if name in now and now.index(name) != before.index(name)]
    remedy = "pass X[ec.feature_names_in_], the columns as fit had them"
    if missing:
        remedy = "pass a table with all columns that fit had, ec.feature_names_in_"
    said = [("missing", missing), ("new", new), ("moved", [] if missing or new else moved)]
    words = "; ".join(f"{word}: {names(columns)}" for word, columns in said if columns)
    return f"Columns {words}: {remedy}"
