"""Objects: samples that are no rows of numbers, such as texts, dicts or lists of words.

A pipeline may begin with a step that reads them, such as TfidfVectorizer or DictVectorizer. They
come in a list, a Series or an array with one axis. Numbers with one axis stay an error: nobody can
tell whether they are one sample or one feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.models.numbers import is_missing

NUMBERS = "fiubcmM"  # numpy's letters for all that is a number or a time
OBJECTS = (str, bytes, Mapping)


def as_objects(inputs: Any) -> Any:
    """Objects as an array of shape (n,), a Series as it is; None if `inputs` are no objects.

    It refuses a mixture of objects and numbers.
    """
    if hasattr(inputs, "iloc"):
        if inputs.ndim != 1 or getattr(inputs.dtype, "kind", "O") in NUMBERS:
            return None
        has_some = _check_all(np.asarray(inputs, dtype=object))
        return inputs if has_some or inputs.dtype != object else None
    if isinstance(inputs, np.ndarray):
        if inputs.ndim != 1 or inputs.dtype.kind in NUMBERS or np.ma.isMaskedArray(inputs):
            return None
        if inputs.dtype.kind == "O":
            return inputs if _check_all(inputs) else None
        return inputs.astype(object) if inputs.dtype.kind == "T" else inputs
    if not isinstance(inputs, (list, tuple)) or not (_has_text(inputs) or _has_words(inputs)):
        return None
    found = np.empty(len(inputs), dtype=object)
    for i, item in enumerate(inputs):  # numpy would pad every text to the length of the longest
        found[i] = item
    _check_all(found)
    return found


def _has_text(items: Sequence[Any]) -> bool:
    return any(isinstance(item, OBJECTS) for item in items)


def _has_words(items: Sequence[Any]) -> bool:
    """Whether these are lists of words, of more than one length; of one length they are a table."""
    lists = all(isinstance(item, (list, tuple)) for item in items)
    if not lists or len(set(map(len, items))) < 2:
        return False
    return all(isinstance(word, str) for item in items for word in item)


def _check_all(objects: NDArray[Any]) -> bool:
    """Whether none is a number; `InputError` if some are."""
    numbers = np.array([isinstance(o, Number) and not is_missing(o) for o in objects], dtype=bool)
    missing = np.array([is_missing(o) for o in objects], dtype=bool)
    if not numbers.any():
        return bool(len(objects) == 0 or not missing.all())
    if (numbers | missing).all():
        return False
    row = int(numbers.argmax())
    raise InputError(
        f"X must hold text in every row; row {row} is {shown(objects[row], 60)} of type "
        f"{type(objects[row]).__name__} (rows affected: {int(numbers.sum())})"
    )
