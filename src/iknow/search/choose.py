"""Which index is taken: by the metric of a layer, and by the device that searches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from iknow.errors import InputError, MissingExtraError
from iknow.geometry import Metric
from iknow.locking import unforked
from iknow.search.cpu.cell_index import CellIndex
from iknow.search.cpu.minkowski_index import MinkowskiIndex
from iknow.search.stored import StoredRows


def find_index_type(metric: Metric, device: str | None) -> Callable[..., StoredRows]:
    """What makes the index that searches by a metric on a device.

    device: None for the search made for CPUs; "cuda", "cuda:1", "mps" or "cpu" for torch's.
    """
    if device is None:
        # Only the Euclidean norm turns into matrix products; any other is measured directly.
        return CellIndex if metric.p == 2 else partial(MinkowskiIndex, p=metric.p)
    if metric.p != 2:
        raise InputError(
            f"on a device, distances are searched in the Euclidean norm, p=2; got {metric!r} for "
            f"device={device!r}: leave the device out, or choose a metric with p=2"
        )
    try:
        with unforked():
            # Imported here because only a user of torch should pay for loading it.
            from iknow.search.gpu.torch.index import TorchIndex
    except ImportError as error:
        raise MissingExtraError(f"searching on device {device!r}", "torch") from error
    return partial(TorchIndex, device=device)
