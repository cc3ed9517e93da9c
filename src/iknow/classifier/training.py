"""Training: a clone of the user's estimator, and the part of the data to hold out.

`fit` passes on what the training of the wrapped classifier asks for, such as weights. With
scikit-learn's metadata routing the wrapped classifier gets what it requests, as
`LogisticRegression().set_fit_request(sample_weight=True)` does. Without it, its `fit` gets all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import process_routing

from iknow.classifier.gathering import check_valid
from iknow.core.arrays import Ints, Labels
from iknow.core.text import as_real, names, shown
from iknow.errors import InputError, RefusedError
from iknow.models.inputs import own_copy, take_rows
from iknow.models.refused import ORDINARY, find_kinds, is_refusal


def seeded_clone(estimator: Any, random_state: Any) -> Any:
    """An unfitted clone; every random_state that is None gets a seed drawn from ours."""
    copy = clone(estimator)
    rng = as_random_state(random_state)
    seeds = {
        name: int(rng.randint(np.iinfo(np.int32).max))
        for name, value in sorted(copy.get_params(deep=True).items())
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return copy.set_params(**seeds) if seeds else copy


def as_random_state(random_state: Any) -> Any:
    """A RandomState from whatever scikit-learn accepts: a seed, a RandomState, or None."""
    try:
        return check_random_state(random_state)
    except Exception as error:  # it compares any object, which may fail in any way
        raise InputError(
            "random_state must be a whole number from 0 to 2**32 - 1, a numpy RandomState or None; "
            f"got {shown(random_state)}"
        ) from error


def train(
    estimator: Any,
    inputs: Any,
    labels: Labels,
    positions: Ints,
    params: Mapping[str, Any] | None = None,
) -> Any:
    """Train on a copy; an error about a non-finite value names its row in X, by `positions`.

    params: further arguments of the estimator's `fit`.
    """
    try:
        # A copy, because scalers and imputers with copy=False write to their input.
        return estimator.fit(own_copy(inputs), labels.copy(), **(params or {}))
    except Exception as error:
        if not is_refusal(error):
            raise
        check_valid(find_kinds(inputs) != ORDINARY, "training", positions)
        if isinstance(error, TypeError):  # scikit-learn's checks expect a TypeError
            raise
        raise RefusedError(f"{type(estimator).__name__} could not be trained: {error}") from error


def split_rows(labels: Labels, fraction: float, random_state: Any) -> tuple[Ints, Ints]:
    """Rows to train on and rows to hold out, both ascending.

    Each class holds out this fraction of its samples, rounded down, and keeps at least one to train
    on. If that holds out nothing, the largest class holds out one.
    """
    share = as_real(fraction, "validation_fraction", "lie between 0 and 1", lambda x: 0 < x < 1)
    rng = as_random_state(random_state)
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quota = np.floor(share * counts).astype(np.int64)
    if quota.sum() == 0:
        quota[counts.argmax()] = 1
    quota = np.minimum(quota, counts - 1)
    if quota.sum() == 0:
        raise InputError(
            f"{len(labels)} samples of {len(counts)} classes are too few to hold any out for "
            "tuning: add a second sample for each class, or fix the rule, as rule=Ball(0.5)"
        )
    held_out = np.zeros(len(labels), dtype=bool)
    for code, n_held in enumerate(quota):
        held_out[rng.permutation(np.flatnonzero(codes == code))[:n_held]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def take_params(classifier: Any, params: Mapping[str, Any], rows: Ints, n: int) -> dict[str, Any]:
    """The arguments for the wrapped classifier's `fit`, which is trained on some of n rows.

    Whatever has n entries is about the samples, and only those of the rows are passed on.
    """
    routed = dict(params)
    if params and get_config()["enable_metadata_routing"]:
        routed = process_routing(classifier, "fit", **params).model.fit
    return {name: _take(value, rows, n) for name, value in routed.items()}


def refuse_params(params: Mapping[str, Any]) -> None:
    """Refuse arguments of training where nothing is trained."""
    if params:
        raise InputError(
            f"fit got {names(params)}, but nothing is trained: the model is used as it is, and all "
            "samples count alike as evidence. Leave it out, or pass an unfitted classifier"
        )


def _take(value: Any, rows: Ints, n: int) -> Any:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__") or len(value) != n:
        return value
    return take_rows(value if hasattr(value, "iloc") else np.asarray(value), rows)
