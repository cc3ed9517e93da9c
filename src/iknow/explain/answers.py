"""Answers: what is said about n samples, the one table that every writer takes its columns from.

It holds no distance, no evidence and no model, so it is cheap to keep and to send. What repeats, a
class or a word, is a code, and its column for a file is `Coded`: a writer treats each word once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats, Ints, Labels
from iknow.core.assertion import Assertion, Assertions, Reason, Reasons, Word
from iknow.core.codes import NO_BELIEF, for_json
from iknow.errors import MissingExtraError


@dataclass(frozen=True, eq=False)
class Coded:
    """Values by their codes. values: of shape (m,). codes: of shape (n,), -1 where none is."""

    values: NDArray[Any]
    codes: Ints

    def __len__(self) -> int:
        return len(self.codes)

    def expand(self) -> NDArray[Any]:
        """The values of shape (n,); as text if some are missing, which are empty."""
        if not len(self.values) or (self.codes == NO_BELIEF).any():
            texts = np.array([*map(str, self.values.tolist()), ""])
            return texts[self.codes]
        return self.values[self.codes]

    def tolist(self) -> list[Any]:
        """The values as plain ones, None where there is none."""
        values = [*self.values.tolist(), None]
        return [values[code] for code in self.codes.tolist()]


@dataclass(frozen=True, eq=False)
class Answers:
    """What is said about n samples, in columns of shape (n,); `Assessment.answers` makes it.

    An alarm watches the levels; without them 0 for IDK, 1/2 for IMK and 1 for IK.
    """

    classes: Labels  # of shape (n_classes,)
    belief: Ints  # positions in `classes`; -1 where the model gave no answer
    score: Floats  # the model's for its belief; NaN where it gave none
    assertion: Assertions
    reason: Reasons
    justified: Bools  # the justified classes, of shape (n, n_classes)
    level: Floats | None  # None without levels
    weakest: Ints | None  # what holds each level down, positions in `voices`; None likewise
    voices: tuple[str, ...]  # their names, in order
    probability: Floats | None  # that the belief is right, NaN without one; None if unknown
    watched: Floats
    watched_by_layer: Floats  # the same of each layer alone, of shape (n, n_layers)
    watched_layers: tuple[str, ...]
    index: Any = None  # of the data frame that held the samples, if one did

    def columns(self) -> dict[str, Any]:
        """The columns of a file by name: arrays of numbers of shape (n,), or `Coded`."""
        texts = np.array([str(label) for label in self.classes])
        as_it_is = self.classes.dtype.kind in "biufU"  # a file holds numbers and text
        columns = {
            "belief": Coded(self.classes if as_it_is else texts, self.belief),
            "score": self.score,
            "assertion": _worded(self.assertion, Assertion),
            "reason": _worded(self.reason, Reason),
            "justified": _joined(self.justified, texts),
        }
        if self.level is not None and self.weakest is not None:
            columns |= {"level": self.level, "weakest": Coded(np.array(self.voices), self.weakest)}
        if self.probability is not None:
            columns["probability"] = self.probability
        return columns

    def to_frame(self) -> Any:
        """What `Assessment.to_frame` returns."""
        columns = self.columns() | {"assertion": self.assertion, "reason": self.reason}
        for name in ("justified", "weakest"):
            if name in columns:
                columns[name] = columns[name].tolist()
        columns["belief"] = labels_of(self.classes, self.belief)
        return as_frame(columns, self.index)

    def to_dict(self) -> dict[str, Any]:
        """What `Assessment.to_dict` returns."""
        labels = for_json(self.classes)
        columns = {name: column.tolist() for name, column in self.columns().items()}
        columns["belief"] = [None if c == NO_BELIEF else labels[c] for c in self.belief]
        for name in ("score", "probability"):
            if name in columns:
                columns[name] = [s if isfinite(s) else None for s in columns[name]]
        columns["justified"] = [[labels[c] for c in np.flatnonzero(row)] for row in self.justified]
        return {"classes": labels, **columns}

    def rows(self) -> list[dict[str, Any]]:
        """The columns of `to_dict` as a dict for each sample."""
        columns = self.to_dict()
        del columns["classes"]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def records(self) -> tuple[list[str], list[str], list[str], list[float | None]]:
        """Beliefs as JSON, assertions, reasons and levels, as the audit trail records them."""
        labels = [*map(json.dumps, for_json(self.classes)), "null"]  # the last for no belief
        return (
            [labels[code] for code in self.belief],
            _worded(self.assertion, Assertion).tolist(),
            _worded(self.reason, Reason).tolist(),
            [None] * len(self.belief) if self.level is None else self.level.tolist(),
        )


def labels_of(classes: Labels, codes: Ints) -> Labels:
    """The labels behind codes of shape (n,); objects, with None, if there are codes of no belief.

    Examples:
        >>> labels_of(np.array(["cat", "dog"]), np.array([1, -1])).tolist()
        ['dog', None]
    """
    known = codes != NO_BELIEF
    if known.all():
        return classes[codes]
    labels = np.full(len(codes), None, dtype=object)
    labels[known] = classes[codes[known]].astype(object)
    return labels


def as_frame(columns: Mapping[str, Any], index: Any = None) -> Any:
    """A `pandas.DataFrame` of columns; assertions and reasons are categories of their words."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("to_frame", "pandas") from error
    frame = dict(columns)
    for name, words in (("assertion", Assertion), ("reason", Reason)):
        said = [word.name for word in words]
        codes = np.asarray(frame[name])
        frame[name] = pd.Categorical.from_codes(codes, said, ordered=words is Assertion)
    return pd.DataFrame(frame, index=index)


def _worded(codes: NDArray[np.int8], words: type[Word]) -> Coded:
    return Coded(np.array([word.name for word in words]), np.asarray(codes, dtype=np.int64))


def _joined(justified: Bools, texts: NDArray[np.str_]) -> Coded:
    """The justified classes, with | between them; few sets of classes occur."""
    packed = np.ascontiguousarray(np.packbits(justified, axis=1))
    as_bytes = packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
    _, first, codes = np.unique(as_bytes, return_index=True, return_inverse=True)
    return Coded(np.array(["|".join(texts[row]) for row in justified[first]]), codes)
