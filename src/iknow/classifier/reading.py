"""Reading: from what a user passes to samples for the model, with the features that it knows.

The number and names of the features are recorded at `fit`, as scikit-learn does, and compared
afterwards; other models take numbers by their places, so only a table's names must not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data

from iknow.core.arrays import Labels
from iknow.core.text import names
from iknow.errors import InputError
from iknow.metrics.lipschitz_sklearn import unwrap
from iknow.models import PrecomputedModel
from iknow.models.adapt import has_base
from iknow.models.labels import as_vector, name_positions
from iknow.models.model import Model
from iknow.models.numbers import as_pandas
from iknow.models.samples import Samples, as_samples

if TYPE_CHECKING:
    from iknow.classifier.estimator import EpistemicClassifier


def read(
    classifier: EpistemicClassifier,
    model: Model,
    X: Any,
    y: Any = None,
    *,
    layers: tuple[str, ...] | None = None,
) -> Samples:
    """The samples of what the user passed, as batches for the model.

    layers: those of a fitted classifier; None while it is being fitted, which learns the features.
    """
    by_columns = model.knows_columns and model is not classifier.model

    def prepare(inputs: Any) -> Any:
        prepared = model.prepare(inputs)
        table = prepared if isinstance(inputs, Mapping) else inputs
        known = hasattr(classifier, "n_features_in_")
        if (known or layers is None) and (by_columns or hasattr(table, "columns")):
            check_features(classifier, model, table, None if not known else layers or ())
        return prepared

    takes_pairs = isinstance(model, PrecomputedModel)
    return as_samples(X, y, prepare, classifier.batch_size, takes_pairs=takes_pairs)


def labels_of(samples: Samples, classes: Any) -> Labels | None:
    """The labels of samples, as far as they are known; positions as the classes the user gave.

    A loader's labels are known after it was read.
    """
    if samples.labels is None or classes is None:
        return samples.labels
    return name_positions(samples.labels, as_vector(classes, "classes"))


def all_labels(samples: Samples, classes: Any) -> Labels:
    """The labels of all samples, after they were read; see `labels_of`."""
    samples.all_labels()
    labels = labels_of(samples, classes)
    assert labels is not None
    return labels


def check_features(
    classifier: EpistemicClassifier, model: Any, X: Any, layers: tuple[str, ...] | None
) -> None:
    """Record the number and names of the features in a classifier, or compare with those.

    layers: those in use; None to record.
    """
    before = getattr(classifier, "feature_names_in_", None)
    is_array = isinstance(X, np.ndarray)
    table = X if is_array else as_pandas(X)
    if layers is not None:  # scikit-learn takes ten times as long to see that nothing changed
        if before is None:
            is_same = is_array and X.shape[1:] == (classifier.n_features_in_,)
        else:
            is_same = hasattr(table, "columns") and list(table.columns) == before.tolist()
        if is_same:
            return
    try:
        validate_data(classifier, table, reset=layers is None, skip_check_array=True)
    except Exception as error:  # X may be any object, and fail in any way
        if before is None or not hasattr(table, "columns") or layers is None:
            raise InputError(f"X must be an array or a data frame: {error}") from error
        matches = getattr(model, "matches", None)  # of a bundle's own model
        by_name = "input" not in layers and _reads_by_name(model)
        if not by_name and not (matches is not None and matches(table)):
            moved = _what_moved(list(before), list(table.columns))
            raise InputError(f"{error}\n{moved}") from error


def _reads_by_name(model: Any) -> bool:
    """Whether a model itself takes its columns by name, wherever they are, and nothing else."""
    steps, _ = unwrap(getattr(model, "estimator", None))
    first: Any = steps[0][1] if steps else None
    columns = [part[2] for part in getattr(first, "transformers", ())]
    named = all(isinstance(name, str) for each in columns for name in np.atleast_1d(each).tolist())
    # Known by its name: importing it takes long.
    return has_base(first, "ColumnTransformer", "sklearn") and first.remainder == "drop" and named


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
