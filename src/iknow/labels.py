"""Labels: from what users call classes to codes 0..C-1, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from iknow.core.arrays import Ints, Labels
from iknow.errors import InputError


def as_labels(y: Any, n_samples: int, what: str) -> Labels:
    """Labels as an array of shape (n_samples,)."""
    if hasattr(y, "detach"):  # a tensor, perhaps on another device
        y = y.detach().cpu().numpy()
    labels: Labels = column_or_1d(y, warn=True)
    if len(labels) != n_samples:
        raise InputError(
            f"{what} must hold one label per sample: got {len(labels)} labels for {n_samples} "
            "samples"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.flatnonzero(~np.isfinite(labels))[0])
        raise InputError(f"{what} must hold labels; row {row} is {labels[row]}: remove it")
    check_classification_targets(labels)
    return labels


def as_row_numbers(rows: Any, n_samples: int) -> Ints:
    """The numbers that training samples are known by, of shape (n_samples,), each used once."""
    if rows is None:
        return np.arange(n_samples)
    numbers = np.asarray(rows)
    if numbers.shape != (n_samples,) or numbers.dtype.kind not in "iu" or (numbers < 0).any():
        raise InputError(
            f"rows must be a whole number >= 0 for each of the {n_samples} samples; got "
            f"shape {numbers.shape} and dtype {numbers.dtype}"
        )
    if len(np.unique(numbers)) != n_samples:
        raise InputError("rows must name each training sample by a number of its own")
    return numbers.astype(np.int64)


def find_classes(
    y: Labels, n_columns: int, known: Labels | None = None, given: Any = None
) -> Labels:
    """The labels of a model's score columns, of shape (n_columns,).

    known: what the model says itself. given: what the user says, in the order of the columns; the
    two must not differ. Where neither says anything, whole numbers that fit are column numbers, and
    any other labels, if there are as many as columns, stand for the columns in sorted order.
    """
    if known is not None:
        if given is not None and np.asarray(given).tolist() != known.tolist():
            raise InputError(
                f"the model's own classes are {_some(known)}, but classes={list(given)!r} was "
                "given: leave it out"
            )
        return known
    if given is not None:
        classes = np.asarray(given)
        if len(classes) != n_columns or len(np.unique(classes)) != len(classes):
            raise InputError(
                f"classes must name each of the model's {n_columns} score columns once; "
                f"got {classes.tolist()}"
            )
        return classes
    found = np.unique(y)
    if found.dtype.kind in "iu" and found[0] >= 0 and found[-1] < n_columns:
        return np.arange(n_columns)
    if len(found) == n_columns:
        return found
    raise InputError(
        f"the model has {n_columns} score columns but y holds {len(found)} labels "
        f"({_some(found)}): give classes=[...], the label of each column in order"
    )


def encode(y: Labels, classes: Labels, what: str) -> Ints:
    """The position of each label in `classes`, of shape (n,)."""
    order = np.argsort(classes, kind="stable")
    comparable = (y.dtype.kind in "OUS") == (classes.dtype.kind in "OUS")
    unknown = ~np.isin(y, classes) if comparable else np.ones(len(y), dtype=bool)
    if unknown.any():
        raise InputError(
            f"{what} holds labels the classifier does not know: {_some(np.unique(y[unknown]))}. "
            f"It knows {_some(classes)}"
        )
    return order[np.searchsorted(classes, y, sorter=order)].astype(np.int64)


def check_several_classes(labels: Labels) -> None:
    """A classifier needs at least two classes to tell apart."""
    found = len(np.unique(labels))
    if found < 2:
        raise InputError(
            f"at least two classes are needed to tell one from another; y holds {found} class"
        )


def check_trained(truth: Ints, trained: Ints, classes: Labels) -> None:
    """Validation must not hold a class of which training has no sample; both as class codes."""
    missing = np.setdiff1d(truth, trained)
    if len(missing):
        raise InputError(
            f"y holds classes of which training has no sample: {classes[missing].tolist()}"
        )


def _some(labels: Labels) -> str:
    shown = ", ".join(repr(label) for label in labels.tolist()[:10])
    return shown + (", ..." if len(labels) > 10 else "")
