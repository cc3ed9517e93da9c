"""Named codes: arrays of numbers, small and fast to compare and count, that print as words."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


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


class NamedCodes(np.ndarray[Any, np.dtype[np.int8]]):
    """Codes of words, int8 of any shape. Items are words, slices are arrays of words; results of
    arithmetic are plain numpy.
    """

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
        # Without a context numpy chose among the codes: a maximum, np.unique. Else it computed.
        array = array.view(type(self) if context is None and array.dtype == np.int8 else np.ndarray)
        return array[()] if return_scalar else array

    def __str__(self) -> str:
        return self._written(" ")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._written(', ', len(type(self).__name__) + 1)})"

    def _written(self, separator: str, indent: int = 0) -> str:
        return np.array2string(
            np.asarray(self),
            separator=separator,
            prefix=" " * indent,
            formatter={"int": lambda code: str(self.words.get(int(code), code))},
        )
