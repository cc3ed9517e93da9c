"""The table: the one record that every file format is read into, and the rules they share.

Roles say what each column is for. One may be the label, one may identify the samples; what is
dropped, and the index that pandas keeps in a file, is nothing; all others are features, unless the
features are named.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Labels
from iknow.core.text import names as quoted
from iknow.core.text import shown
from iknow.errors import IknowError, InputError, MissingExtraError
from iknow.pages import free_memory

Column = Any
"""A column to write: an array of numbers, bools or text, `Coded`, or pyarrow's, as it was read."""
Write = Callable[[Mapping[str, Column]], object]

PART = 1 << 23  # bytes that a part takes as numbers, about
MOST_ROWS = 1 << 16
# 007 is a code, not a number: as an int it would come out as another label, 7.
_INTEGER = re.compile(r"\s*[+-]?(0|[1-9][0-9]*)\s*")


@dataclass(frozen=True, eq=False)
class DataTable:
    """Samples read from a file: features, or what a model has already made of them.

    features: of shape (n_samples, n_features) or (n_samples, ...), or a data frame if some of its
        columns are text; None if precomputed.
    labels: strings or ints of shape (n_samples,); None if the file has none.
    feature_names: one per column of the features; None if the file does not name them.
    scores: of shape (n_samples, n_classes); None unless precomputed.
    activations: by layer, each of shape (n_samples, ...); empty unless precomputed.
    classes: strings or ints of shape (n_classes,), in the order of the scores; None if unknown.
    ids: what identifies the samples, n_samples long; None if nothing does. id_name: its column.
    """

    features: Any
    labels: Labels | None = None
    feature_names: tuple[str, ...] | None = None
    scores: Floats | None = None
    activations: dict[str, Floats] = field(default_factory=dict)
    classes: Labels | None = None
    ids: Any = None
    id_name: str | None = None

    def __len__(self) -> int:
        """The number of samples."""
        samples = self.scores if self.features is None else self.features
        return 0 if samples is None else len(samples)


def make_frame(columns: Mapping[str, Any]) -> Any:
    """A frame of columns of length n: arrays of numbers, and Arrow's columns of text or categories.

    A missing text is NaN, as where pandas itself reads a file.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("a data frame of columns by name", "pandas") from error
    found = {
        name: column if isinstance(column, np.ndarray) else column.to_pandas()
        for name, column in columns.items()
    }
    return pd.DataFrame(found, copy=False)


def existing(path: Path) -> Path:
    """The same path, of a file that exists."""
    if not path.is_file():
        raise InputError(f"there is no {'ordinary ' if os.path.lexists(path) else ''}file {path}")
    return path


def rows_at_once(n_values: int, n_bytes: int = PART) -> int:
    """How many rows of so many values make up a part."""
    return max(1, min(MOST_ROWS, n_bytes // (8 * max(1, n_values))))


def check_fits(n_bytes: int, source: str) -> None:
    """Refuse what would not fit into memory: a few bytes can unpack into any number of values."""
    free = free_memory()
    if free is not None and n_bytes > free:
        raise InputError(
            f"{source} cannot be read: it would take {n_bytes / 1e9:,.1f} GB of memory, and "
            f"{free / 1e9:,.1f} GB are free"
        )


@contextmanager
def decoding(path: Path, advice: str = "") -> Iterator[None]:
    """Name the file, and what to do, when a library fails to decode its bytes."""
    try:
        yield
    except IknowError:
        raise
    except Exception as error:  # damaged bytes surface as a dozen unrelated types
        raise InputError(f"{path} cannot be read: {error}{advice}") from error


def decoded(parts: Iterator[Any], path: Path, advice: str = "") -> Iterator[Any]:
    """The same parts; an error in reading them names the file, no other error does."""
    while True:
        with decoding(path, advice):
            part = next(parts, None)
        if part is None:
            return
        yield part


def as_features(values: NDArray[Any], source: str) -> Floats:
    """Numbers as float64 of shape (n_samples, ...); a single axis becomes one column."""
    if values.dtype.kind not in "biuf":
        raise InputError(f"{source} must hold numbers; got an array of {values.dtype}")
    if values.ndim == 0 or values.size == 0:
        raise InputError(
            f"{source} is empty: expected at least one value, got shape {values.shape}"
        )
    with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite: not finite
        features: Floats = np.asarray(values, dtype=np.float64)
    return features[:, None] if features.ndim == 1 else features


def as_labels(values: NDArray[Any], source: str) -> Labels:
    """Labels of shape (n,) as int64 or strings."""
    if values.ndim != 1:
        raise InputError(f"{source} must have one axis; got shape {values.shape}")
    kind = values.dtype.kind
    if kind == "u" and values.size and int(values.max()) >= 2**63:
        raise InputError(f"{source} must be ints below 2^63; got {values.max()}")
    if kind == "f":
        # Tools without an integer type write 0.0 and 1.0; what int64 cannot hold is not rounded.
        numbers = values.astype(np.float64)
        whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**63)
        if not whole.all():
            raise InputError(f"{source} must be ints or strings; got {values[~whole][0]}")
    if kind in "biuf":
        return values.astype(np.int64)
    if kind != "U":
        raise InputError(f"{source} must be ints or strings; got an array of {values.dtype}")
    _check_text(values, source)
    if (values == "").any():
        raise InputError(f"{source} has no label for sample {int(np.argmax(values == ''))}")
    return values


def _check_text(values: NDArray[Any], source: str) -> None:
    """Strings of shape (n,) must be text: numpy stores any number as a character."""
    native = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    points = native.view(np.uint32).reshape(len(values), -1)
    wrong = ((points >= 0xD800) & (points <= 0xDFFF)) | (points > 0x10FFFF)
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        raise InputError(f"{source} must be text; the label of sample {row} is not valid Unicode")


def as_text(cells: Sequence[str], source: str) -> Labels:
    """Strings as an array of shape (n,), where each takes as much room as the longest."""
    longest = max(map(len, cells), default=0)
    check_fits(4 * longest * len(cells), f"{source}, whose longest label has {longest:,} letters,")
    if any("\0" in cell for cell in cells):  # numpy would drop it from a string's end
        raise InputError(f"{source} must be text; it holds NUL characters")
    return np.array(cells, dtype=np.str_)


def settle_labels(cells: Labels) -> Labels:
    """Text of shape (n,) as ints if every cell is one, else as it is."""
    if all(map(_INTEGER.fullmatch, cells.tolist())):
        with suppress(OverflowError, ValueError):  # more digits than an int64 holds: an identifier
            return np.array([int(cell) for cell in cells.tolist()], dtype=np.int64)
    return cells


def as_integers(cells: Labels) -> Labels:
    """Text of shape (n,) as ints; an `InputError` names a cell that is none."""
    labels = settle_labels(cells)
    if labels.dtype.kind == "U":
        wrong = next((cell for cell in cells.tolist() if not _INTEGER.fullmatch(cell)), cells[0])
        raise InputError(f"the label {shown(wrong)} is no integer, as those of the classifier are")
    return labels


def check_rows(rows: Mapping[str, int]) -> None:
    """All parts, given by name, must have the same number of samples."""
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name} has {n}" for name, n in rows.items())
        raise InputError(f"the numbers of samples differ: {counts}")


@dataclass(frozen=True)
class Roles:
    """What the user says about the columns of a table, by their names.

    label, id: never features. drop: columns to ignore. features: the only features, in this order;
    None for all that have no other role. text: features that are text even if they look like
    numbers, as a code such as 007 does.
    """

    label: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    text: tuple[str, ...] = ()

    def find_features(
        self, names: Sequence[str], source: str, index: Collection[str] = ()
    ) -> tuple[str, ...]:
        """The features among the columns of a table. index: columns that only number the rows."""
        if any("\0" in name for name in names):
            raise InputError(
                f"{source} is no table of text: the name of a column holds NUL characters"
            )
        if repeated := [name for name, count in Counter(names).items() if count > 1]:
            raise InputError(f"{source} has several columns named {quoted(repeated)}")
        known, aside = set(names), {self.label, self.id, *self.drop}
        asked = [self.label, self.id, *self.drop, *(self.features or ()), *self.text]
        if missing := [name for name in asked if name is not None and name not in known]:
            raise InputError(
                f"{source} has no column {missing[0]!r}; its columns are {quoted(names)}"
            )
        if self.label is not None and self.label == self.id:
            raise InputError(f"column {self.id!r} cannot be both the label and the id")
        if self.features is None:
            found = tuple(name for name in names if name not in aside and name not in index)
        elif both := [name for name in self.features if name in aside]:
            raise InputError(
                f"column {both[0]!r} is named as a feature, and as the label, the id or to be "
                "dropped: leave one out"
            )
        elif len(set(self.features)) < len(self.features):
            raise InputError("--features names a column twice: name each once")
        else:
            found = self.features
        if not found:
            raise InputError(f"{source} has no feature columns; its columns are {quoted(names)}")
        return found
