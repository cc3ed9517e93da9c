"""Loaders: data that comes in batches of its own making, and is never in memory as a whole.

A torch `DataLoader` is read as it is, with its workers and its batch size; a `Dataset` gets one, in
its own order; a Hugging Face dataset is cut into batches; anything else that can only be iterated,
such as a generator, yields batches. A batch is `(inputs, labels)`, inputs alone, or a dict, in
which `label` or `labels` are the labels and the rest are inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.models.inputs import BATCH_OF_UNKNOWN_SIZE
from iknow.models.objects import OBJECTS

LABELS = ("labels", "label")
"""Names of the labels in a batch that is a dict."""
KNOWN = {"torch": ("DataLoader", "Dataset"), "datasets": ("Dataset", "IterableDataset")}
"""Classes by package that are loaders, although some of them give samples by position."""


@dataclass(frozen=True, eq=False)
class Loader:
    """Batches, how many there are, and about how many samples; None where nobody knows.

    once: whether the batches can be read only once.
    """

    batches: Iterable[Any]
    n_batches: int | None = None
    n_expected: int | None = None
    once: bool = False


def is_loader(data: Any) -> bool:
    """Whether data comes in batches, and not at hand as an array does."""
    if isinstance(data, np.ndarray):
        return False
    has_rows = any(hasattr(data, name) for name in ("__getitem__", "__array__", "shape"))
    known = [(name, package) for package in ("torch", "datasets") for name in KNOWN[package]]
    if isinstance(data, Iterator) or any(_is_of(data, *each) for each in known):
        return True
    return isinstance(data, Iterable) and not has_rows and not isinstance(data, (set, frozenset))


def find_loader(data: Any, batch_size: int | None = None) -> Loader | None:
    """The loader for data that comes in batches; None for data at hand, such as an array."""
    if not is_loader(data):
        return None
    if _is_of(data, "DataLoader", "torch"):
        return Loader(data, _length(data), _length(getattr(data, "sampler", None)))
    if _is_of(data, "Dataset", "torch"):  # also an IterableDataset
        from torch.utils.data import DataLoader

        size = BATCH_OF_UNKNOWN_SIZE if batch_size is None else batch_size
        loader = DataLoader(data, batch_size=size)
        return Loader(loader, _length(loader), _length(data))
    if any(_is_of(data, name, "datasets") for name in KNOWN["datasets"]):
        size, n = BATCH_OF_UNKNOWN_SIZE if batch_size is None else batch_size, _length(data)
        return Loader(_Renewed(data, size), None if n is None else -(-n // size), n)
    return Loader(data, _length(data), once=isinstance(data, Iterator))


def split_batch(batch: Any, *, takes_pairs: bool = False) -> tuple[Any, Any]:
    """The inputs and the labels of a batch; None for labels that it does not have.

    takes_pairs: whether (scores, {layer: activations}) are inputs.
    """
    if isinstance(batch, Mapping):
        found = [name for name in LABELS if name in batch]
        inputs = {name: values for name, values in batch.items() if name not in LABELS}
        if not inputs:
            raise InputError(f"it has labels but no inputs; it holds {names(batch)}")
        return inputs, batch[found[0]] if found else None
    if not isinstance(batch, (tuple, list)) or all(isinstance(part, OBJECTS) for part in batch):
        return batch, None  # texts, for example, in a list
    if len(batch) == 1:
        return batch[0], None
    if len(batch) != 2:
        raise InputError(
            f"expected (inputs, labels), inputs alone, or a dict of arrays; got {len(batch)} "
            f"parts in a {type(batch).__name__}: put several inputs into a dict, or into a tuple "
            "of their own, ((first, second), labels)"
        )
    if takes_pairs and isinstance(batch[1], Mapping):
        return tuple(batch), None
    return batch[0], batch[1]


class _Renewed:
    """The batches of a Hugging Face dataset, from its start each time."""

    def __init__(self, data: Any, batch_size: int) -> None:
        self.data, self.batch_size = data, batch_size

    def __iter__(self) -> Iterator[Any]:
        found: Iterator[Any] = self.data.iter(batch_size=self.batch_size)
        return found


def _is_of(data: Any, name: str, package: str) -> bool:
    """Whether data is of a class of this name in a package, without importing it."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == package
        for base in type(data).__mro__
    )


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except (TypeError, NotImplementedError):  # nobody knows
        return None


def warn_of_shuffling(data: Any) -> None:
    """Warn of a loader whose order is lost: exemplars are named by their place in it."""
    if not _is_of(data, "DataLoader", "torch"):
        return
    if type(getattr(data, "sampler", None)).__name__ == "RandomSampler":
        warnings.warn(
            "the DataLoader shuffles: explanations number the training samples in the order in "
            "which they came, which is not their position in the dataset. Pass a DataLoader with "
            "shuffle=False, or the dataset itself",
            stacklevel=4,
        )


def describe_nothing(loader: Loader) -> str:
    """Why a loader may have yielded nothing, as the message of an error."""
    what = f"{shown(loader.batches)} yields nothing: expected batches of (inputs, labels)"
    return f"{what}. An iterator can be read only once: make a new one" if loader.once else what
