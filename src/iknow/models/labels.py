"""Labels: from the users' names of classes to codes 0..C-1, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from iknow.core.arrays import Ints, Labels
from iknow.core.codes import UNKNOWN, positions_of
from iknow.core.text import name, shown
from iknow.errors import InputError
from iknow.models.numbers import as_array, is_missing


def as_labels(y: Any, n_samples: int, what: str) -> Labels:
    """Labels as an array of text or numbers of shape (n_samples,), none missing."""
    if y is None:  # in scikit-learn's words
        raise InputError(f"fitting requires {what} to be passed, but the target {what} is None")
    labels = check_count(as_vector(y, what, column=True), n_samples, what)
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise InputError(f"{what} must hold labels: {error}") from error
    return labels


def check_count(labels: Labels, n_samples: int, what: str = "y") -> Labels:
    """The same labels, one for each sample."""
    if len(labels) != n_samples:
        got = f"{len(labels)} labels for {n_samples} samples"
        raise InputError(f"{what} must hold one label per sample; got {got}")
    return labels


def as_vector(values: Any, what: str, *, column: bool = False) -> Labels:
    """Labels as text or numbers of shape (n,); column: accept a table of one column, and warn."""
    given = isinstance(values, (list, tuple))
    # As objects: numpy would turn the 1 in [1, "a"] into the text "1".
    array = as_array(np.array(values, dtype=object) if given else values, what)
    if column and array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, warn=True)
    if array.ndim != 1:
        raise InputError(
            f"{what} should be a 1d array with one label per sample; got shape {array.shape}"
        )
    kind = array.dtype.kind
    if kind not in "OTUfiub":
        raise InputError(
            f"{what} must hold labels that are text or numbers; got dtype {array.dtype}: convert "
            f"them, for example with {what}.astype(str)"
        )
    if kind in "Uiub":
        return array
    plain = [x.item() if getattr(x, "ndim", None) == 0 else x for x in array.tolist()]
    for row, label in enumerate(plain):
        if is_missing(label) or (isinstance(label, float) and math.isinf(label)):
            raise InputError(f"{what} must hold labels; row {row} is {name(label)}: remove it")
    if kind == "f":
        return array
    kinds = set(map(type, plain))
    are_text = all(issubclass(kind, str) for kind in kinds)
    if not are_text and not all(issubclass(kind, (bool, int, float)) for kind in kinds):
        listed = ", ".join(sorted({kind.__name__ for kind in kinds})[:5])
        raise InputError(f"{what} must hold labels that are all text or all numbers; got {listed}")
    are_whole = bool(kinds - {bool}) and all(issubclass(kind, int) for kind in kinds)
    try:
        whole = np.int64 if are_whole and max(plain) < 2**63 else np.uint64
        labels = np.array(plain, dtype=whole if are_whole else None)
        fits = labels.tolist() == plain  # none is rounded
    except OverflowError:
        fits = False
    if not fits:
        raise InputError(
            f"{what} holds labels that do not fit in an array: integers beyond 64 bits, or text "
            "that ends in a NUL character"
        )
    is_text = labels.dtype.kind == "U" and not given
    return array.astype(object) if is_text else labels


def as_row_numbers(rows: Any, n_samples: int) -> Ints:
    """The distinct numbers that identify the training samples, of shape (n_samples,)."""
    if rows is None:
        return np.arange(n_samples)
    numbers = as_array(rows, "rows")
    fit = numbers.shape == (n_samples,) and numbers.dtype.kind in "iu"
    if not fit or (numbers < 0).any() or (numbers > np.iinfo(np.int64).max).any():
        raise InputError(
            f"rows must be a whole number >= 0, and below 2**63, for each of the {n_samples} "
            f"samples; got shape {numbers.shape} and dtype {numbers.dtype}"
        )
    if len(np.unique(numbers)) != n_samples:
        raise InputError("rows must give each training sample a different number")
    return numbers.astype(np.int64)


def find_classes(
    y: Labels, n_columns: int, known: Labels | None = None, given: Any = None
) -> Labels:
    """The labels of a model's score columns, of shape (n_columns,).

    known: the model's own labels. given: the user's, in the order of the columns. The two must not
    differ, unless the model's are just the numbers of its columns, as where labels were encoded to
    train it: then the user's names win, but not the same numbers in another order. Without either,
    integers in range are column numbers, and any other labels, one per column, name the columns in
    sorted order.
    """
    classes = None if given is None else as_vector(given, "classes")
    if known is not None:
        own, numbers = known.tolist(), list(range(n_columns))
        names = own if classes is None else classes.tolist()
        if names != own and (own != numbers or set(names) == set(own)):
            raise InputError(
                f"classes=[{_some(np.asarray(names))}] differs from the model's own classes, "
                f"{_some(known)}: leave it out"
            )
        if len(own) != n_columns:
            raise InputError(
                f"the model knows {len(own)} classes but returns {n_columns} columns of scores; "
                "it must return one per class"
            )
        if given is None and own == numbers and y.dtype.kind in "OU":
            raise InputError(
                f"y holds labels the classifier does not know: {_some(np.unique(y))}. It was "
                f"trained on {_some(known)}: give classes=[...], the label of each in order"
            )
        if names == own:
            return known
    if classes is not None:
        if len(classes) != n_columns or len(set(classes.tolist())) != len(classes):
            raise InputError(
                f"classes must name each of the model's {n_columns} score columns once; "
                f"got {_some(classes)}"
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


def name_positions(labels: Labels, classes: Labels) -> Labels:
    """Whole numbers as the labels of these score columns, if classes are text; else as they are.

    For labels of a user who names the columns: a loader yields numbers.
    """
    may_be = classes.dtype.kind in "OU" and labels.dtype.kind in "iu" and len(labels) > 0
    within = may_be and 0 <= int(labels.min()) <= int(labels.max()) < len(classes)
    named: Labels = classes[labels] if within else labels
    return named


def encode(y: Labels, classes: Labels, what: str) -> Ints:
    """The position of each label in `classes`, of shape (n,)."""
    codes, new = encode_all(y, classes)
    if new:
        unknown = np.array(new, dtype=object)
        raise InputError(
            f"{what} holds labels the classifier does not know: {_some(unknown)}. "
            f"It knows {_some(classes)}"
        )
    return codes


def encode_all(y: Labels, classes: Labels) -> tuple[Ints, tuple[Any, ...]]:
    """The codes of labels, of shape (n,), and those labels that are new, whose codes follow."""
    codes = positions_of(y, classes)
    unknown = codes == UNKNOWN
    new, places = np.unique(y[unknown], return_inverse=True)
    codes[unknown] = len(classes) + places
    return codes, tuple(new.tolist())


def extend_classes(classes: Labels, new: tuple[Any, ...]) -> Labels:
    """The classes and new ones after them, which must be of the same kind."""
    if not new:
        return classes
    found = as_vector(list(new), "labels of new classes")
    alike = {"O": "U", "u": "i"}
    known, added = (alike.get(each.dtype.kind, each.dtype.kind) for each in (classes, found))
    if added != known and (known, added) != ("f", "i"):
        raise InputError(
            f"y holds new labels of another kind than those that the classifier knows: "
            f"{_some(found)}. It knows {_some(classes)}"
        )
    joined = np.concatenate([classes, found])
    if len(set(joined.tolist())) != len(joined):
        raise InputError(f"new classes must not be known already; got {_some(found)}")
    return joined


def check_several_classes(labels: Labels) -> None:
    found = len(np.unique(labels))
    if found < 2:
        raise InputError(f"a classifier needs at least two classes; y holds {found} class")


def check_trained(y_true: Ints, trained: Ints, classes: Labels) -> None:
    """Refuse validation labels of a class without training samples; both are class codes."""
    missing = np.setdiff1d(y_true, trained)
    if len(missing):
        raise InputError(f"y holds classes without training samples: [{_some(classes[missing])}]")


def _some(labels: Labels) -> str:
    listed = ", ".join(shown(label, 60) for label in labels.tolist()[:10])
    return listed + (", ..." if len(labels) > 10 else "")
