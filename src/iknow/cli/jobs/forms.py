"""The form in which a model takes samples: an array of numbers, a data frame, or texts.

Numbers go to a model as an array. Text, and a pipeline that chooses columns by name, needs a data
frame; boosted trees take its text as categories; a pipeline that begins with a vectorizer of texts
takes its only column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iknow.errors import InputError
from iknow.models.adapt import is_torch_module
from iknow.tables import Table
from iknow.tables.table import make_frame

TREES = ("xgboost", "lightgbm")
"""Packages whose models take categories, but no text."""
BY_CATEGORY = ("HistGradientBoostingClassifier",)


def takes_text(model: Any) -> bool:
    """Whether a model may take columns of text: one that has steps, or that is unknown to us."""
    inner = _unwrap(model)
    package = type(inner).__module__.partition(".")[0]
    if getattr(inner, "takes_text", False):  # a bundle's own model
        return True
    if isinstance(inner, str) or is_torch_module(inner) or package in ("keras", "torch", "iknow"):
        return False
    return hasattr(inner, "steps") or package != "sklearn" or _by_category(inner)


def in_form(table: Table, model: Any) -> Table:
    """The same samples in the form that a model takes."""
    inner, features = _unwrap(model), table.features
    is_frame = hasattr(features, "iloc")
    first = _first_step(inner)
    if features is None or (not is_frame and not _chooses_columns(inner)):
        return table
    if not is_frame:
        if table.feature_names is None or features.ndim != 2:
            return table
        columns = dict(zip(table.feature_names, features.T, strict=True))
        return replace(table, features=make_frame(columns))
    if hasattr(first, "build_analyzer"):  # of texts
        if features.shape[1] != 1:
            raise InputError(
                f"{type(first).__name__} takes one column of text; the file has "
                f"{features.shape[1]} columns: choose one with --features"
            )
        return replace(table, features=features.iloc[:, 0].fillna(""), feature_names=None)
    if not _by_category(inner):
        return table
    from pandas.api.types import is_string_dtype

    text = [name for name in features.columns if is_string_dtype(features[name].dtype)]
    return replace(table, features=features.astype(dict.fromkeys(text, "category")))


def _by_category(model: Any) -> bool:
    package, name = type(model).__module__.partition(".")[0], type(model).__name__
    return package in TREES or name in BY_CATEGORY


def _chooses_columns(model: Any) -> bool:
    """Whether a pipeline splits its inputs by the names of columns."""
    steps = getattr(model, "steps", None) or [("", model)]
    return any(hasattr(step, "transformers") for _, step in steps)


def _first_step(model: Any) -> Any:
    steps = getattr(model, "steps", None)
    return steps[0][1] if steps else model


def _unwrap(model: Any) -> Any:
    """The estimator inside a frozen one, and its last step's if that is one too."""
    while type(model).__name__ == "FrozenEstimator":
        model = model.estimator
    return model
