"""Streaming: training activations straight to disk, for evidence that does not fit into memory.

The samples are read once, batch by batch. Their activations go to a scratch file in the order in
which they come, as nobody knows the classes yet. When all have come, the labels are counted, each
layer's metric is fitted, and the activations are read once more, transformed, and written where
they belong in the order of the classes. In memory are the labels, the row numbers and one batch.

A metric is fitted to at most `MOST_ROWS` samples, drawn evenly: all of them, if there are no more,
so that a small training set gives the same classifier on disk as in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.errors import InputError
from iknow.metrics import Metric
from iknow.models.model import Observation, check_width
from iknow.models.samples import Samples
from iknow.pages import read_through
from iknow.search.disk import DiskIndex
from iknow.search.layer import LayerIndex, Search
from iknow.search.scratch import Folder, ScratchFile, as_folder, check_room, write_rows

MOST_ROWS = 100_000
MOST_BYTES = 1 << 28  # of the activations that a metric is fitted to
VALUES_AT_ONCE = 1 << 21
BYTES_PER_VALUE = 9  # as they come, in the order of the classes, and coded


def check_first(batches: Iterable[Any], samples: Samples) -> Iterator[Any]:
    """The same batches; if the first has no labels, the others are not waited for."""
    for number, batch in enumerate(batches):
        if number == 0 and samples.labels is None:
            samples.all_labels()
        yield batch


class Spool:
    """Activations in scratch files, one for each layer, as one observation comes after another.

    n_expected: about how many samples will come, if that is known, to see whether there is room.
    """

    def __init__(self, folder: Folder, n_expected: int | None) -> None:
        self._folder, self._n_expected, self._n = folder, n_expected or 0, 0
        self._files: dict[str, tuple[ScratchFile, int]] = {}

    def take(self, part: Observation) -> Observation:
        """The observation without its activations, which are in the files from now on."""
        if not self._files:
            widths = {layer: values.shape[1] for layer, values in part.activations.items()}
            needed = BYTES_PER_VALUE * sum(widths.values()) * self._n_expected
            check_room(as_folder(self._folder), needed)
            self._files = {layer: (ScratchFile(self._folder), widths[layer]) for layer in widths}
        for layer, values in part.activations.items():
            file, width = self._files[layer]
            check_width(layer, values, width)
            file.write(values.astype(np.float32, copy=False), 4 * self._n * width)
        self._n += len(part)
        return replace(part, activations={})

    def rows(self) -> dict[str, Floats32]:
        """All activations by layer, mapped."""
        files = self._files.items()
        return {layer: file.as_rows(self._n, width) for layer, (file, width) in files}


def choose_rows(activations: Mapping[str, Floats32]) -> Ints:
    """The samples that metrics are fitted to, ascending; all of them if they are few."""
    n = min(len(values) for values in activations.values())
    widest = max(values.shape[1] for values in activations.values())
    most = max(1, min(MOST_ROWS, MOST_BYTES // (4 * widest)))
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)


def build_on_disk(
    activations: Floats32,
    codes: Ints,
    n_classes: int,
    numbers: Ints,
    metric: Metric,
    folder: Folder,
    search: Search,
) -> LayerIndex:
    """The index of a layer whose activations are mapped; see `LayerIndex.build`."""
    order = np.lexsort((numbers, codes))
    width = np.shape(metric.transform(activations[:1]))[1]

    def pieces() -> Iterator[Floats32]:
        for values in read_through(activations, VALUES_AT_ONCE // activations.shape[1]):
            # As float32, which is what an index stores; it reports what overflows.
            with np.errstate(over="ignore"):
                points = np.asarray(metric.transform(values)).astype(np.float32, copy=False)
            yield points

    points = write_rows(folder, order, width, pieces())
    if search is None and metric.p == 2:
        search = partial(DiskIndex, folder=folder)
    layer = LayerIndex(points, codes[order], n_classes, numbers[order], metric, search)
    layer._index  # noqa: B018 - checked now
    return layer


def check_folder(folder: object, search: Search) -> Folder:
    """A folder to stream to, made if there is none; a device would need its own copy."""
    if isinstance(search, str):
        raise InputError(
            f"with folder=..., the evidence stays on disk: search must be no device; got {search!r}"
        )
    return as_folder(folder)  # type: ignore[arg-type]
