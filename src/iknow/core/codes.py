"""Codes: classes as positions 0..C-1, and the code of a missing answer.

Labels are matched by equality, never by order: a model may list its classes in any order, and the
same label may come in several types.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from iknow.core.arrays import Ints, Labels

NO_BELIEF = -1  # the code of a missing belief: the model gave no answer
UNKNOWN = -1  # the position of a label that is not among the classes


def positions_of(labels: Labels, classes: Labels) -> Ints:
    """The position of each label in `classes`, of shape (n,); `UNKNOWN` if it is not among them.

    Labels compare as in Python: 1, 1.0 and True are equal, 1 and "1" are not, and large integers
    stay distinct that float64 could not tell apart.
    """
    places = {label: place for place, label in enumerate(classes.tolist())}
    if labels.dtype.kind == "O":  # may have no order to sort by
        return np.array([places.get(label, UNKNOWN) for label in labels.tolist()], dtype=np.int64)
    values, inverse = np.unique(labels, return_inverse=True)
    found = np.array([places.get(value, UNKNOWN) for value in values.tolist()], dtype=np.int64)
    return found[inverse]


def for_json(labels: Iterable[Any]) -> list[Any]:
    """Labels of shape (n,) as JSON values: text, finite numbers, flags, None; all else as `str`."""

    def plain(label: Any) -> Any:
        value = label.item() if isinstance(label, np.number | np.bool_) else label
        finite = isinstance(value, float) and math.isfinite(value)
        return value if value is None or isinstance(value, int) or finite else str(value)

    return [plain(label) for label in labels]
