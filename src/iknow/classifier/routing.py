"""Routing: what `fit` passes on to the training of the wrapped classifier, such as weights.

With scikit-learn's metadata routing the wrapped classifier gets what it requests, as
`LogisticRegression().set_fit_request(sample_weight=True)` does. Without it, its `fit` gets all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils.metadata_routing import process_routing

from iknow.core.arrays import Ints
from iknow.core.text import names
from iknow.errors import InputError
from iknow.models.inputs import take_rows


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
