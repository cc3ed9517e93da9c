"""Samples: what the user passes to `fit`, `tune` and `assess`, as batches for the model.

Data at hand, such as an array, is cut into batches. A loader makes its own
(`iknow.models.loaders`). Both are read once, one batch after another, and of a batch we keep its
labels and its sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from iknow.core.arrays import Ints, Labels
from iknow.errors import InputError
from iknow.models.inputs import choose_rows, count_samples, cut_batches, has_gaps
from iknow.models.labels import as_labels, as_vector, check_count
from iknow.models.lengths import Sizes, join_sizes, measure_later
from iknow.models.loaders import Loader, describe_nothing, find_loader, split_batch
from iknow.models.stored_inputs import take_rows as copy_rows

MOST_ROWS = 32  # inputs to keep of a loader, to recognize the model by


class Samples:
    """Batches of prepared inputs, to be read once; and what is known of them before and after.

    Attributes:
        inputs: All prepared inputs, if they are at hand; else None.
        n_batches: How many batches there are; None if nobody knows.
        n_samples: How many samples there are; None while nobody knows.
        n_expected: About how many; None if nobody knows.
        richest: Of a loader read so far, a few inputs from the batch with the most classes, and
            their labels and positions; None if such inputs cannot be copied.
    """

    def __init__(
        self,
        batches: Iterator[tuple[Any, Any]],
        *,
        inputs: Any = None,
        labels: Labels | None = None,
        n_batches: int | None = None,
        n_samples: int | None = None,
        n_expected: int | None = None,
    ) -> None:
        self.inputs, self.n_batches, self.n_expected = inputs, n_batches, n_expected
        self.n_samples = n_samples
        self.richest: tuple[Any, Labels, Ints] | None = None
        self._batches, self._given = batches, labels
        self._came: list[Labels] = []
        self._sizes: list[Callable[[], Sizes]] = []
        self._n_read = self._most_classes = 0

    def first(self) -> Any:
        """The inputs of the first batch, which `read` will yield again.

        Of data at hand it is the first one with a missing value, if any has one, because the layers
        that fit the data depend on it.
        """
        if self.inputs is not None:
            self._batches = iter(every := list(self._batches))
            return next((inputs for inputs, _ in every if has_gaps(inputs)), every[0][0])
        batch = next(self._batches)
        self._batches = chain([batch], self._batches)
        return batch[0]

    def read(self, *, measuring: bool = False) -> Iterator[Any]:
        """The inputs of each batch; labels, and sizes if wanted, are kept before a model runs."""
        if measuring and self.inputs is not None:
            self._sizes.append(measure_later(self.inputs))
        for inputs, labels in self._batches:
            n, start = count_samples(inputs), self._n_read
            self._n_read += n
            if labels is not None:
                self._came.append(_labels_of_batch(labels, n))
            elif self._came:
                raise InputError(f"the samples from {start} on have no labels, those before do")
            if self.inputs is None:
                self._note(inputs, start, measuring=measuring)
            yield inputs
        self.n_samples = self._n_read

    def _note(self, inputs: Any, start: int, *, measuring: bool) -> None:
        """Remember what is wanted of a loader's batch that begins with sample `start`."""
        if measuring:
            self._sizes.append(measure_later(inputs))
        known = self._came[-1:] if self._given is None else [self._given[start : self._n_read]]
        if not known or len(known[0]) != count_samples(inputs):
            return
        classes, codes = np.unique(known[0].astype(str), return_inverse=True)
        if len(classes) > self._most_classes:
            rows = choose_rows(codes, MOST_ROWS)
            copied = copy_rows(inputs, rows)
            self.richest = None if copied is None else (copied, known[0][rows], start + rows)
            self._most_classes = len(classes)

    @property
    def labels(self) -> Labels | None:
        """All labels, of shape (n,), as far as they are known: of a loader after `read`."""
        if self._given is not None or not self._came:
            return self._given
        kinds = {"text" if part.dtype.kind in "OUS" else "numbers" for part in self._came}
        if len(kinds) > 1:
            raise InputError("the labels of some batches are text, those of others numbers")
        return as_labels(np.concatenate(self._came), self._n_read, "y")

    def all_labels(self) -> Labels:
        """All labels, after `read`; an error if there are none, or not as many as samples."""
        labels = self.labels
        if labels is None:
            raise InputError(
                "the batches have no labels: let the loader yield (inputs, labels), or dicts with "
                "'labels', or pass y"
            )
        return check_count(labels, self._n_read)

    @property
    def sizes(self) -> Callable[[], Sizes]:
        """What finds the sizes of all inputs, after they were read with `measuring`."""
        return partial(join_sizes, self._sizes)


def as_samples(
    X: Any,
    y: Any,
    prepare: Callable[[Any], Any],
    batch_size: int | None,
    *,
    takes_pairs: bool = False,
) -> Samples:
    """The samples of what the user passed.

    prepare: turns inputs into what the model takes. takes_pairs: see `split_batch`.
    """
    loader = find_loader(X, batch_size)
    if loader is None:
        inputs = prepare(X)
        n = count_samples(inputs)
        batches = cut_batches(inputs, batch_size)
        return Samples(
            ((batch, None) for batch in batches),
            inputs=inputs,
            labels=None if y is None else as_labels(y, n, "y"),
            n_batches=len(batches),
            n_samples=n,
            n_expected=n,
        )
    return Samples(
        _load(loader, prepare, ignores_labels=y is not None, takes_pairs=takes_pairs),
        labels=None if y is None else as_vector(y, "y", column=True),
        n_batches=loader.n_batches,
        n_expected=loader.n_expected,
    )


def _load(
    loader: Loader, prepare: Callable[[Any], Any], *, ignores_labels: bool, takes_pairs: bool
) -> Iterator[tuple[Any, Any]]:
    """The prepared inputs and the labels of each batch that holds samples."""
    nothing = True
    for number, batch in enumerate(loader.batches):
        try:
            inputs, labels = split_batch(batch, takes_pairs=takes_pairs)
            prepared = prepare(inputs)
            if count_samples(prepared) == 0:
                continue
        except InputError as error:
            raise InputError(f"batch {number} of the loader: {error}") from error
        nothing = False
        yield prepared, None if ignores_labels else labels
    if nothing:
        raise InputError(describe_nothing(loader))


def _labels_of_batch(labels: Any, n_samples: int) -> Labels:
    found = as_vector(labels, "the labels of a batch", column=True)
    if len(found) != n_samples:
        raise InputError(f"a batch has {n_samples} samples but {len(found)} labels")
    return found
