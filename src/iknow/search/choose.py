"""The choice of an index, by a layer's metric and the device that searches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeGuard

from iknow.core.text import shown
from iknow.errors import InputError, MissingExtraError
from iknow.geometry import Metric
from iknow.locking import unforked
from iknow.search.cpu.cell_index import CellIndex
from iknow.search.cpu.hamming_index import HammingIndex
from iknow.search.cpu.minkowski_index import MinkowskiIndex
from iknow.search.given_index import GivenIndex
from iknow.search.index import IndexFactory
from iknow.search.stored import StoredRows


def find_index_type(
    metric: Metric, device: str | None, index: IndexFactory | None = None
) -> Callable[..., StoredRows]:
    """The type or function that makes an index for a metric and a device.

    device: None for the search made for CPUs; "cuda", "cuda:1", "mps" or "cpu" for torch's. index:
    the user's own, in place of both. Neither counts features that differ, p=0, so there the CPU
    searches all the same: leaves are layers beside others, which the device or the index searches.
    """
    if index is not None and (device is not None or not callable(index)):
        raise InputError(
            "index must be a type or a function, called as index(activations, labels, "
            "n_classes, rows=rows), and device must be None, as the index chooses its own; got "
            f"index={shown(index)} and device={shown(device)}"
        )
    if metric.p == 0:
        return HammingIndex
    if index is not None:
        _check_euclidean(metric, "by a given index", "index")
        return index if _is_own(index) else partial(GivenIndex, make=index)
    if device is None:
        # Only the Euclidean norm turns into matrix products.
        return CellIndex if metric.p == 2 else partial(MinkowskiIndex, p=metric.p)
    _check_euclidean(metric, f"on device={shown(device)}", "device")
    try:
        with unforked():
            # Imported here because only users of torch should pay for loading it.
            from iknow.search.gpu.torch.index import TorchIndex
    except ImportError as error:
        raise MissingExtraError(f"searching on device {shown(device)}", "torch") from error
    return partial(TorchIndex, device=device)


def _is_own(index: IndexFactory) -> TypeGuard[Callable[..., StoredRows]]:
    """Whether this is one of iknow's own, perhaps with options: it checks its rows itself."""
    made = index.func if isinstance(index, partial) else index
    return isinstance(made, type) and issubclass(made, StoredRows)


def _check_euclidean(metric: Metric, where: str, what: str) -> None:
    if metric.p != 2:
        raise InputError(
            f"{where}, search uses the Euclidean norm, p=2; got {shown(metric)}: omit the "
            f"{what}, or choose a metric with p=2"
        )
