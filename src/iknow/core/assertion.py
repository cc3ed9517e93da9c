"""Assertions: IK if the justification is exactly the belief, IMK if the belief is one of several
justified classes, IDK if it is not among them.

Codes of assertions and reasons are arrays of numbers, fast to compare and count, that print as
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Ints
from iknow.core.codes import NO_BELIEF
from iknow.errors import InputError


class Word(IntEnum):
    """A whole number that prints as its name, also in lists and f-strings."""

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        try:
            return format(self.name, spec)
        except ValueError:  # a format for numbers, which pandas uses
            return format(int(self), spec)


class Assertion(Word):
    """What the classifier says about one belief, ordered by how much it knows.

    Examples:
        >>> Assertion.IDK < Assertion.IMK < Assertion.IK
        True
    """

    IDK = 0
    """I don't know: nothing in the training set justifies the belief."""
    IMK = 1
    """I may know: the belief is justified, but other classes are too, or it is in doubt."""
    IK = 2
    """I know: the belief is all that is justified."""


class Reason(Word):
    """Why an assertion was made."""

    KNOWN = 0
    """IK: in every layer only the believed class has enough samples within reach."""
    OVERLAP = 1
    """IMK: a layer finds enough samples of several classes, and the belief is justified."""
    DISAGREEMENT = 2
    """IMK: every layer finds one class, but not the same; the belief is among them."""
    EXTRAPOLATION = 3
    """IDK: a layer finds too few training samples within reach."""
    CONTRADICTION = 4
    """IDK: every layer finds enough samples within reach, but not of the believed class."""
    INVALID = 5
    """IDK: an activation in a chosen layer is not finite, or the model gives no answer."""
    UNCERTIFIED = 6
    """IMK: all that IK needs, but no accuracy is certified for beliefs in this class."""
    DOUBT = 7
    """IMK: all that IK needs, but the model's own confidence is below the threshold."""


IDK, IMK, IK = map(np.int8, Assertion)


class NamedCodes(np.ndarray[Any, np.dtype[np.int8]]):
    """Codes, int8, that print as words. Indexing keeps the words; arithmetic gives plain numpy."""

    words: ClassVar[dict[int, Word]] = {}
    __array_priority__ = 1.0  # joined with plain codes, words stay words

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return self.words.get(int(found), found) if isinstance(found, np.int8) else found

    def tolist(self) -> Any:
        """The words, in lists nested as deeply as the array is."""
        if self.ndim == 0:
            return self[()]
        return [part.tolist() if self.ndim > 1 else part for part in self]

    def astype(self, dtype: Any, *args: Any, **how: Any) -> NDArray[Any]:
        """The numbers in another type, as a plain array."""
        return np.asarray(self).astype(dtype, *args, **how)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        # Without a context numpy picked some of the codes (max, np.unique); else it computed.
        array = array.view(type(self) if context is None and array.dtype == np.int8 else np.ndarray)
        return array[()] if return_scalar else array

    def __eq__(self, other: object) -> Any:
        return np.asarray(self) == self._codes(other)

    def __ne__(self, other: object) -> Any:
        return np.asarray(self) != self._codes(other)

    def _codes(self, other: Any) -> Any:
        """The other side of a comparison as codes: names, in any shape, become numbers."""
        names = np.asarray(other)
        if not names.size or not isinstance(names.flat[0], str):
            return other
        known = [word.name for word in self.words.values()]  # in the order of their codes
        if not (there := np.isin(names, known)).all():
            raise InputError(f"expected one of {', '.join(known)}; got {names[~there][0]}")
        return sum(code * (names == word) for code, word in enumerate(known))

    def __str__(self) -> str:
        return self._written(" ", "")

    def __repr__(self) -> str:
        start = f"{type(self).__name__}("
        return f"{start}{self._written(', ', start)})"

    def _written(self, separator: str, prefix: str) -> str:
        return np.array2string(
            np.asarray(self), separator=separator, prefix=prefix,
            formatter={"int": lambda code: str(self.words.get(int(code), code))},
        )  # fmt: skip


class Assertions(NamedCodes):
    """An `Assertion` for each of several samples."""

    words: ClassVar = dict(enumerate(Assertion))


class Reasons(NamedCodes):
    """A `Reason` for each of several assertions."""

    words: ClassVar = dict(enumerate(Reason))


def make_assertions(
    belief: Ints,
    justification: Bools,
    knowable: Sequence[int] | None = None,
    doubted: Bools | None = None,
) -> Assertions:
    """The `Assertion` for each query, of shape (n_queries,).

    belief: class codes of shape (n_queries,); `NO_BELIEF` for none, which nothing justifies.
    justification: mask of shape (n_queries, n_classes). knowable: codes of the classes that a
    belief may be IK in; None for all. doubted: mask of shape (n_queries,) of the beliefs that the
    model itself has too little confidence in to be IK.

    Examples:
        >>> make_assertions(np.array([0]), np.array([[True, False]])) == Assertion.IK
        array([ True])
    """
    believed = justification[np.arange(len(belief)), belief] & (belief != NO_BELIEF)
    alone = justification.sum(axis=1) == 1
    if doubted is not None:
        alone &= ~doubted
    if knowable is not None:
        alone &= may_be_known(belief, knowable)
    return np.where(believed, np.where(alone, IK, IMK), IDK).view(Assertions)


def may_be_known(belief: Ints, knowable: Sequence[int] | None) -> Bools:
    """Which beliefs are in a class that may be IK, given as for `make_assertions`."""
    if knowable is None:
        return np.ones(len(belief), dtype=bool)
    return np.isin(belief, np.asarray(knowable, np.int64))


def find_reasons(
    belief: Ints,
    supports: Sequence[Bools],
    invalid: Bools | None = None,
    knowable: Sequence[int] | None = None,
    doubted: Bools | None = None,
) -> Reasons:
    """The `Reason` behind each assertion, of shape (n_queries,), given as for `make_assertions`.

    supports: one mask of shape (n_queries, n_classes) per layer. invalid: mask of queries that are
    not finite or that the model did not answer.
    """
    sizes = np.stack([support.sum(axis=1) for support in supports])
    union = np.logical_or.reduce(list(supports))
    believed = union[np.arange(len(belief)), belief] & (belief != NO_BELIEF)
    alone, knowable_class = union.sum(axis=1) == 1, may_be_known(belief, knowable)
    reasons = {  # the first that holds
        Reason.INVALID: np.zeros(len(belief), dtype=bool) if invalid is None else invalid,
        Reason.EXTRAPOLATION: (sizes == 0).any(axis=0),
        Reason.CONTRADICTION: ~believed,
        Reason.UNCERTIFIED: alone & ~knowable_class,
        Reason.DOUBT: alone & (False if doubted is None else doubted),
        Reason.KNOWN: alone,
        Reason.OVERLAP: (sizes > 1).any(axis=0),
    }
    found = np.full(len(belief), Reason.DISAGREEMENT, dtype=np.int8)
    for reason, holds in reversed(reasons.items()):
        found[holds] = reason
    return found.view(Reasons)
