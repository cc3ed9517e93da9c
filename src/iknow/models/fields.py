"""Fields: inputs in several named arrays, such as a tokenizer's `input_ids` and `attention_mask`.

A sample is one row of each. Like an array, fields have a length and give the samples at any rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iknow.core.text import names
from iknow.errors import InputError


@dataclass(frozen=True, eq=False)
class Fields:
    """The same n samples in several arrays or tensors by name, each with n rows.

    Examples:
        >>> both = as_fields({"ids": np.zeros((5, 2)), "mask": np.ones((5, 2))})
        >>> len(both), len(both[1:3]), both[1:3].arrays["mask"].shape
        (5, 2, (2, 2))
    """

    arrays: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, rows: Any) -> Fields:
        return Fields({name: values[rows] for name, values in self.arrays.items()})

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(values.nbytes) for values in self.arrays.values())

    def copy(self) -> Fields:
        """The same samples in arrays that a model may write to."""
        copied = {
            name: values.clone() if hasattr(values, "clone") else values.copy()
            for name, values in self.arrays.items()
        }
        return Fields(copied)


def as_fields(arrays: Mapping[str, Any]) -> Fields:
    """Fields of arrays or tensors by name; all must hold the same number of samples."""
    if not arrays or not all(isinstance(name, str) for name in arrays):
        raise InputError(f"inputs by name must be arrays with text as names; got {names(arrays)}")
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name!r} holds {n}" for name, n in lengths.items())
        raise InputError(f"all inputs must hold the same number of samples; {counts}")
    return Fields(dict(arrays))
