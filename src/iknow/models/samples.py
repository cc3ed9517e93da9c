"""Samples: what the user passes to `fit`, `tune` and `assess`, as batches for the model.

Data at hand, such as an array, is cut into batches. A loader makes its own, and its data is never
in memory as a whole: a torch `DataLoader` is read as it is, with its workers and its batch size; a
`Dataset` gets one, in its own order; a Hugging Face dataset is cut into batches; anything else that
can only be iterated, such as a generator, yields batches. A batch is `(inputs, labels)`, inputs
alone, or a dict, in which `label` or `labels` are the labels and the rest are inputs.

Both are read once, one batch after another, and of a batch we keep its labels and its sizes.

Labels are the users' names of classes; inside, classes are codes 0..C-1.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, repeat, takewhile
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from iknow.core.arrays import Ints, Labels
from iknow.core.codes import UNKNOWN, positions_of
from iknow.core.text import name, names, shown
from iknow.errors import InputError, warn
from iknow.models.adapt import has_base
from iknow.models.inputs import (
    BATCH_OF_UNKNOWN_SIZE,
    OBJECTS,
    Sizes,
    as_array,
    choose_rows,
    count_samples,
    cut_batches,
    is_missing,
    measure_later,
)
from iknow.models.probe import MOST_ROWS, keep_rows

LABELS = ("labels", "label")  # in a batch that is a dict

Item = TypeVar("Item")


@dataclass(eq=False)
class Samples:
    """Batches of prepared inputs, to be read once; and what is known of them before and after.

    batches: the inputs and the labels, or None, of those that nobody has read yet. inputs: all of
    them, if they are at hand. given: the labels that the user passed beside the samples, if any.
    n_batches, n_samples, n_expected: how many, and about how many samples; None while unknown.
    richest: of a loader read so far, a few inputs from the batch with the most classes, and their
    labels and positions; None if such inputs cannot be copied. sizes: what finds those of the
    inputs, of one batch after another, if they were read with `measuring`; see `join_sizes`.
    """

    batches: Iterator[tuple[Any, Any]]
    inputs: Any = None
    given: Labels | None = None
    n_batches: int | None = None
    n_samples: int | None = None
    n_expected: int | None = None
    richest: tuple[Any, Labels, Ints] | None = None
    sizes: list[Callable[[], Sizes]] = field(default_factory=list)
    _came: list[Labels] = field(default_factory=list)
    _n_read: int = 0
    _most_classes: int = 0

    def first(self) -> Any:
        """The inputs of the first batch, which `read` will yield again.

        Of data at hand it is the first one with a missing value, if any has one, because the layers
        that fit the data depend on it.
        """
        every = [next(self.batches)] if self.inputs is None else list(self.batches)
        self.batches = chain(every, self.batches)
        return next((each for each, _ in every if _has_gaps(each)), every[0][0])

    def read(self, *, measuring: bool = False, labeled: bool = False) -> Iterator[Any]:
        """The inputs of each batch; labels, and sizes if wanted, are kept before a model runs.

        labeled: whether labels are needed; if the first batch has none, no other is waited for.
        """
        if measuring and self.inputs is not None:
            self.sizes.append(measure_later(self.inputs))
        for inputs, labels in self.batches:
            n, start = count_samples(inputs), self._n_read
            self._n_read += n
            if labels is not None:
                found = as_vector(labels, "the labels of a batch", column=True)
                self._came.append(check_count(found, n, "a batch"))
            elif self._came:
                raise InputError(f"the samples from {start} on have no labels, those before do")
            elif labeled and self.given is None:
                self.all_labels()  # which says what is missing
            if self.inputs is None:
                if measuring:
                    self.sizes.append(measure_later(inputs))
                known = self._came[-1:] if self.given is None else [self.given[start:][:n]]
                if known and len(known[0]) == n:
                    self._keep_richest(inputs, known[0], start)
            yield inputs
        self.n_samples = self._n_read

    def _keep_richest(self, inputs: Any, labels: Labels, start: int) -> None:
        """Keep a few inputs of a batch, from sample `start` on, if it has the most classes."""
        classes, codes = np.unique(labels.astype(str), return_inverse=True)
        if len(classes) > self._most_classes:
            rows = choose_rows(codes, MOST_ROWS)
            copied = keep_rows(inputs, rows)
            self.richest = None if copied is None else (copied, labels[rows], start + rows)
            self._most_classes = len(classes)

    @property
    def labels(self) -> Labels | None:
        """All labels, of shape (n,), as far as they are known: of a loader after `read`."""
        if self.given is not None or not self._came:
            return self.given
        kinds = {"text" if part.dtype.kind in "OUS" else "numbers" for part in self._came}
        if len(kinds) > 1:
            raise InputError("the labels of some batches are text, those of others numbers")
        return as_labels(np.concatenate(self._came), self._n_read, "y")

    def all_labels(self) -> Labels:
        """All labels, after `read`; an error if there are none, or not as many as samples."""
        labels = self.labels
        if labels is None:
            advice = "let the loader yield (inputs, labels), or dicts with 'labels', or pass y"
            raise InputError(f"the batches have no labels: {advice}")
        return check_count(labels, self._n_read)


def as_samples(
    X: Any, y: Any, prepare: Callable[[Any], Any], batch_size: int | None, *, takes_pairs: bool
) -> Samples:
    """What the user passed, as `prepare` turns it into what the model takes.

    takes_pairs: whether (scores, {layer: activations}) are inputs.
    """
    if isinstance(X, np.ndarray) or not is_loader(X):
        inputs = prepare(X)
        n, cut = count_samples(inputs), cut_batches(inputs, batch_size)
        given = None if y is None else as_labels(y, n, "y")
        return Samples(zip(cut, repeat(None)), inputs, given, len(cut), n, n)
    batches, n_batches, n_expected = _open_loader(X, batch_size)

    def read() -> Iterator[tuple[Any, Any]]:
        """The prepared inputs and the labels of each batch that holds samples."""
        nothing = True
        for number, batch in enumerate(batches):
            try:
                loaded, labels = _split_batch(batch, takes_pairs=takes_pairs)
                prepared = prepare(loaded)
                if count_samples(prepared) == 0:
                    continue
            except InputError as error:
                raise InputError(f"batch {number} of the loader: {error}") from error
            nothing = False
            yield prepared, labels if y is None else None
        if nothing:
            spent = ". An iterator can be read only once: make a new one"
            advice = f"expected batches of (inputs, labels){spent * isinstance(X, Iterator)}"
            raise InputError(f"{shown(X)} yields nothing: {advice}")

    given = None if y is None else as_vector(y, "y", column=True)
    return Samples(read(), given=given, n_batches=n_batches, n_expected=n_expected)


def _has_gaps(batch: Any) -> bool:
    if hasattr(batch, "isna"):
        return bool(batch.isna().to_numpy().any())
    is_float = isinstance(batch, np.ndarray) and batch.dtype.kind == "f"
    return is_float and bool(np.isnan(batch).any())


def is_loader(data: Any) -> bool:
    """Whether data comes in batches, and not at hand as an array does."""
    known = ("DataLoader", "Dataset", "IterableDataset")  # though they give samples by position
    is_known = any(has_base(data, name, "torch", "datasets") for name in known)
    if is_known or isinstance(data, Iterator):
        return True
    has_rows = any(hasattr(data, name) for name in ("__getitem__", "__array__", "shape"))
    return isinstance(data, Iterable) and not has_rows and not isinstance(data, (set, frozenset))


def _open_loader(data: Any, batch_size: int | None) -> tuple[Iterable[Any], int | None, int | None]:
    """The batches of a loader, how many there are, and about how many samples, if known."""
    size = BATCH_OF_UNKNOWN_SIZE if batch_size is None else batch_size
    if has_base(data, "DataLoader", "torch"):
        return data, _length(data), _length(getattr(data, "sampler", None))
    if has_base(data, "Dataset", "torch"):  # also an IterableDataset
        from torch.utils.data import DataLoader

        loader = DataLoader(data, batch_size=size)
        return loader, _length(loader), _length(data)
    if any(has_base(data, name, "datasets") for name in ("Dataset", "IterableDataset")):
        n = _length(data)
        return data.iter(batch_size=size), None if n is None else -(-n // size), n
    return data, _length(data), None


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except (TypeError, NotImplementedError):  # it does not know
        return None


def _split_batch(batch: Any, *, takes_pairs: bool) -> tuple[Any, Any]:
    """The inputs and the labels of a batch; None for labels that it does not have."""
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


def warn_of_shuffling(data: Any) -> None:
    """Warn of a loader whose order is lost: exemplars are named by their place in it."""
    sampler = type(getattr(data, "sampler", None)).__name__
    if has_base(data, "DataLoader", "torch") and sampler == "RandomSampler":
        warn(
            "the DataLoader shuffles: explanations number the training samples in the order in "
            "which they came, which is not their position in the dataset. Pass a DataLoader with "
            "shuffle=False, or the dataset itself"
        )


def map_ahead(work: Callable[[Any], Item], items: Iterable[Any]) -> Generator[Item]:
    """The results of work in order, each made in another thread while the caller uses the last.

    The items are made in the caller's thread: a loader forks its workers, which must not happen
    beside another thread that compiles or imports.
    """
    with ThreadPoolExecutor(1) as pool:
        coming: Future[Item] | None = None
        for item in items:
            following = pool.submit(work, item)
            if coming is not None:
                yield coming.result()
            coming = following
        if coming is not None:
            yield coming.result()


def one_ahead(items: Iterator[Item]) -> Generator[Item]:
    """The same items in order, each made in another thread while the caller uses the last."""
    end: Any = object()
    with closing(map_ahead(lambda _: next(items, end), repeat(None))) as made:
        yield from takewhile(lambda item: item is not end, made)


def track(
    items: Iterable[Item], total: int | None, description: str, *, enabled: bool
) -> Iterator[Item]:
    """Yield the items, showing how many are done; no bar for one item or without a terminal.

    total: how many there are; None if unknown: then the bar only moves.
    """
    if not enabled or total in (0, 1) or not sys.stderr.isatty():
        yield from items
        return
    # Imported here because a service never shows a bar.
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(items, description, total, console=Console(stderr=True), transient=True)


def as_labels(y: Any, n_samples: int, what: str) -> Labels:
    """Labels as an array of text or numbers of shape (n_samples,), none missing."""
    if y is None:  # in scikit-learn's words
        raise InputError(f"fitting requires {what} to be passed, but the target {what} is None")
    labels = check_count(as_vector(y, what, column=True), n_samples, what)
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise InputError(f"{what} must hold labels: {error}") from error
    return labels


def check_count(labels: Labels, n_samples: int, what: str = "y") -> Labels:
    """The same labels, one for each sample."""
    if len(labels) != n_samples:
        got = f"{len(labels)} labels for {n_samples} samples"
        raise InputError(f"{what} must hold one label per sample; got {got}")
    return labels


def as_vector(values: Any, what: str, *, column: bool = False) -> Labels:
    """Labels as text or numbers of shape (n,); column: accept a table of one column, and warn."""
    given = isinstance(values, (list, tuple))
    # As objects: numpy would turn the 1 in [1, "a"] into the text "1".
    array = as_array(np.array(values, dtype=object) if given else values, what)
    if column and array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, warn=True)
    if array.ndim != 1:
        raise InputError(
            f"{what} should be a 1d array with one label per sample; got shape {array.shape}"
        )
    kind = array.dtype.kind
    if kind not in "OTUfiub":
        raise InputError(
            f"{what} must hold labels that are text or numbers; got dtype {array.dtype}: convert "
            f"them, for example with {what}.astype(str)"
        )
    if kind in "Uiub":
        return array
    plain = [x.item() if getattr(x, "ndim", None) == 0 else x for x in array.tolist()]
    for row, label in enumerate(plain):
        if is_missing(label) or (isinstance(label, float) and math.isinf(label)):
            raise InputError(f"{what} must hold labels; row {row} is {name(label)}: remove it")
    if kind == "f":
        return array
    kinds = set(map(type, plain))
    are_text = all(issubclass(kind, str) for kind in kinds)
    if not are_text and not all(issubclass(kind, (bool, int, float)) for kind in kinds):
        listed = ", ".join(sorted({kind.__name__ for kind in kinds})[:5])
        raise InputError(f"{what} must hold labels that are all text or all numbers; got {listed}")
    are_whole = bool(kinds - {bool}) and all(issubclass(kind, int) for kind in kinds)
    try:
        whole = np.int64 if are_whole and max(plain) < 2**63 else np.uint64
        labels = np.array(plain, dtype=whole if are_whole else None)
        fits = labels.tolist() == plain  # none is rounded
    except OverflowError:
        fits = False
    if not fits:
        raise InputError(
            f"{what} holds labels that do not fit in an array: integers beyond 64 bits, or text "
            "that ends in a NUL character"
        )
    is_text = labels.dtype.kind == "U" and not given
    return array.astype(object) if is_text else labels


def as_row_numbers(rows: Any, n_samples: int | None, what: str = "rows") -> Ints:
    """The distinct numbers that identify samples, of shape (n,); n_samples: n, None for any."""
    if rows is None and n_samples is not None:
        return np.arange(n_samples)
    numbers = as_array(rows, what)
    n = numbers.size if n_samples is None else n_samples
    fit = numbers.shape == (n,) and numbers.dtype.kind in "iu"
    if not fit or (numbers < 0).any() or (numbers > np.iinfo(np.int64).max).any():
        raise InputError(
            f"{what} must be a whole number >= 0, and below 2**63, for each of the {n} samples; "
            f"got shape {numbers.shape} and dtype {numbers.dtype}"
        )
    found, counts = np.unique(numbers, return_counts=True)
    if len(found) != n:
        twice = names(found[counts > 1].tolist())
        raise InputError(f"{what} must give each sample a different number; {twice} came twice")
    return numbers.astype(np.int64)


def find_classes(
    y: Labels, n_columns: int, known: Labels | None = None, given: Any = None
) -> Labels:
    """The labels of a model's score columns, of shape (n_columns,).

    known: the model's own labels. given: the user's, in the order of the columns. The two must not
    differ, unless the model's are just the numbers of its columns, as where labels were encoded to
    train it: then the user's names win, but not the same numbers in another order. Without either,
    integers in range are column numbers, and any other labels, one per column, name the columns in
    sorted order.
    """
    classes = None if given is None else as_vector(given, "classes")
    if known is not None:
        own, numbers = known.tolist(), list(range(n_columns))
        wanted = own if classes is None else classes.tolist()
        if wanted != own and (own != numbers or set(wanted) == set(own)):
            raise InputError(
                f"classes=[{names(wanted)}] differs from the model's own classes, {names(own)}: "
                "leave it out"
            )
        if len(own) != n_columns:
            raise InputError(
                f"the model knows {len(own)} classes but returns {n_columns} columns of scores; "
                "it must return one per class"
            )
        if given is None and own == numbers and y.dtype.kind in "OU":
            raise InputError(
                f"y holds labels the classifier does not know: {names(np.unique(y).tolist())}. It "
                f"was trained on {names(own)}: give classes=[...], the label of each in order"
            )
        if wanted == own:
            return known
    if classes is not None:
        if len(classes) != n_columns or len(set(classes.tolist())) != len(classes):
            raise InputError(
                f"classes must name each of the model's {n_columns} score columns once; "
                f"got {names(classes.tolist())}"
            )
        return classes
    found = np.unique(y)
    if found.dtype.kind in "iu" and found[0] >= 0 and found[-1] < n_columns:
        return np.arange(n_columns)
    if len(found) == n_columns:
        return found
    raise InputError(
        f"the model has {n_columns} score columns but y holds {len(found)} labels "
        f"({names(found.tolist())}): give classes=[...], the label of each column in order"
    )


def name_positions(labels: Labels, classes: Labels) -> Labels:
    """Whole numbers as the labels of these score columns, if classes are text; else as they are.

    For labels of a user who names the columns: a loader yields numbers.
    """
    may_be = classes.dtype.kind in "OU" and labels.dtype.kind in "iu" and len(labels) > 0
    within = may_be and 0 <= int(labels.min()) <= int(labels.max()) < len(classes)
    named: Labels = classes[labels] if within else labels
    return named


def encode(y: Labels, classes: Labels, what: str) -> Ints:
    """The position of each label in `classes`, of shape (n,)."""
    codes, new = encode_all(y, classes)
    if new:
        raise InputError(
            f"{what} holds labels the classifier does not know: {names(new)}. "
            f"It knows {names(classes.tolist())}"
        )
    return codes


def encode_all(y: Labels, classes: Labels) -> tuple[Ints, tuple[Any, ...]]:
    """The codes of labels, of shape (n,), and those labels that are new, whose codes follow."""
    codes = positions_of(y, classes)
    unknown = codes == UNKNOWN
    new, places = np.unique(y[unknown], return_inverse=True)
    codes[unknown] = len(classes) + places
    return codes, tuple(new.tolist())


def extend_classes(classes: Labels, new: tuple[Any, ...]) -> Labels:
    """The classes and new ones after them, which must be of the same kind."""
    if not new:
        return classes
    found = as_vector(list(new), "labels of new classes")
    alike = {"O": "U", "u": "i"}
    known, added = (alike.get(each.dtype.kind, each.dtype.kind) for each in (classes, found))
    if added != known and (known, added) != ("f", "i"):
        raise InputError(
            f"y holds new labels of another kind than those that the classifier knows: "
            f"{names(new)}. It knows {names(classes.tolist())}"
        )
    joined = np.concatenate([classes, found])
    if len(set(joined.tolist())) != len(joined):
        raise InputError(f"new classes must not be known already; got {names(new)}")
    return joined


def check_several_classes(labels: Labels) -> None:
    found = len(np.unique(labels))
    if found < 2:
        raise InputError(f"a classifier needs at least two classes; y holds {found} class")


def check_trained(y_true: Ints, trained: Ints, classes: Labels) -> None:
    """Refuse validation labels of a class without training samples; both are class codes."""
    missing = classes[np.setdiff1d(y_true, trained)].tolist()
    if missing:
        raise InputError(f"y holds classes without training samples: [{names(missing)}]")
