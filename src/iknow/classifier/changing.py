"""Changing: samples are added, removed and relabeled after `fit`.

A changed classifier asserts what one asserts that was built from the samples that are there now, to
the last bit. Metrics stay as they were fitted, so it is a rebuild by the same metrics. `applying`
says how a change is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from iknow.classifier import gathering
from iknow.classifier.applying import ApplyingMixin
from iknow.classifier.parameters import is_fixed
from iknow.core.arrays import Floats32, Ints, Labels
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.models.adapt import is_estimator
from iknow.models.labels import as_row_numbers, as_vector, check_count, encode, encode_all
from iknow.models.numbers import as_array
from iknow.models.samples import Samples
from iknow.storage.about_record import now
from iknow.storage.change import ADD, RELABEL, REMOVE, Change, check_said

Said = tuple[str, str, str]
"""When a change is made, by whom and why."""
NONE: Ints = np.empty(0, dtype=np.int64)


def _is_trained(classifier: Any) -> bool:
    """Whether a classifier's model is used as it is: parts of the data cannot train one."""
    model = classifier.model
    fitted = isinstance(model, FrozenEstimator) or hasattr(model, "classes_")
    return fitted or not is_estimator(model)


class ChangingMixin(ApplyingMixin):
    """`add`, `remove`, `relabel` and `compact`, for a fitted classifier."""

    def add(self, X: Any, y: Any = None, rows: Any = None, who: str = "", why: str = "") -> Ints:
        """Add samples to the evidence, and return their numbers, of shape (n,).

        A label that is not in `classes_` is a new class. The model does not score it, so it is
        never believed, but its samples can contradict.

        Args:
            X: n samples, or a loader, as for `fit`.
            y: Their labels, of shape (n,), unless the loader yields them.
            rows: Numbers of shape (n,) that identify the samples, other than those that are there.
                Default: they count on from the highest that there ever was.
            who: Who adds them, for `changes_`.
            why: Why, likewise.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train)
            >>> ec.add(X_val[:2], y_val[:2], who="Ada", why="new leaves")
            array([50, 51])
        """
        check_is_fitted(self, "indexes_")
        samples, said = self._samples(X, y), say(who, why)
        points = self._points_of(samples)
        labels = self._all_labels(samples)
        with self._alone():
            numbers = self._number(rows, len(labels))
            self._apply(self._addition(points, labels, numbers, said))
        return numbers

    def remove(self, ids: Any, who: str = "", why: str = "") -> Self:
        """Remove samples from the evidence, by their numbers.

        A class may lose its last sample: it is then without evidence. After `compact`, nothing of
        them is left in the classifier, and `save` never writes them.

        Args:
            ids: Numbers of the samples, such as `Explanation` shows them, of shape (n,).
            who: Who removes them, for `changes_`.
            why: Why, likewise.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train)
            >>> ec.remove([3, 7], why="blurred").changes_[0].what
            'remove'
        """
        check_is_fitted(self, "indexes_")
        numbers, said = as_ids(ids), say(who, why)
        with self._alone():
            return self._apply(Change(REMOVE, *said, np.sort(numbers), NONE, NONE, {}))

    def relabel(self, ids: Any, y: Any, who: str = "", why: str = "") -> Self:
        """Give samples other labels, or the same ones, which is logged all the same.

        Args:
            ids: Numbers of the samples, of shape (n,).
            y: Their labels from now on, of shape (n,). A new one is a new class; see `add`.
            who: Who relabels them, for `changes_`.
            why: Why, likewise.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train)
            >>> ec.relabel([3], [0], who="Ada", why="a slip").changes_[0].ids
            array([3])
        """
        check_is_fitted(self, "indexes_")
        numbers, said = as_ids(ids), say(who, why)
        labels = check_count(as_vector(y, "y", column=True), len(numbers))
        order = np.argsort(numbers)
        with self._alone():
            return self._apply(self._relabeling(numbers[order], labels[order], said))

    def compact(self) -> Self:
        """Fold all changes into one index, as if built from the samples that are there.

        Nothing of a removed sample is left, but for its number in `changes_`.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train).remove([3])
            >>> ec.compact().indexes_["input"].n_rows
            49
        """
        check_is_fitted(self, "indexes_")
        with self._alone():
            folded = {layer: index.folded() for layer, index in self.indexes_.items()}
            # What came and went again is not to be kept for `commit`.
            forgotten = ("_uncommitted",) if getattr(self, "_uncommitted", ()) else ()
            self._put(indexes_=folded, without=forgotten)
        return self

    def _addition(
        self, points: Mapping[str, Floats32], labels: Labels, numbers: Ints, said: Said
    ) -> Change:
        """The change that brings samples with these labels and numbers, of shape (n,)."""
        codes, new = encode_all(labels, self.classes_)
        order = np.argsort(numbers)
        sorted_points = {layer: values[order] for layer, values in points.items()}
        return Change(ADD, *said, NONE, numbers[order], codes[order], sorted_points, new)

    def _relabeling(self, numbers: Ints, labels: Labels, said: Said) -> Change:
        """The change that gives samples, by their numbers, ascending, other labels."""
        self._check_there(numbers)
        codes, new = encode_all(labels, self.classes_)
        points = {layer: index.take(numbers)[0] for layer, index in self.indexes_.items()}
        return Change(RELABEL, *said, numbers, numbers, codes, points, new)

    def _points_of(self, samples: Samples) -> dict[str, Floats32]:
        """What the model makes of samples, as the indexes store it, by layer."""
        observation, n_columns = self._run(samples, self.layers_)
        gathering.check_columns(n_columns, self._n_columns)
        gathering.check_valid(observation.invalid, "training", None, self.layers_)
        found = observation.activations.items()
        return {layer: self.indexes_[layer].transform(values) for layer, values in found}

    def _number(self, rows: Any, n: int) -> Ints:
        """The numbers of n samples to come."""
        numbers = as_row_numbers(rows, n)
        index = self.indexes_[self.layers_[0]]
        if rows is not None:
            if index.has(numbers).any():
                taken = names(numbers[index.has(numbers)].tolist())
                raise InputError(
                    f"rows must differ from those of the samples added before; {taken} are taken"
                )
            return numbers
        logged = [int(each.ids[-1]) for each in self.changes_]
        first = max(index.highest_row, *logged, -1) + 1
        if first + n > np.iinfo(np.int64).max:
            raise InputError(f"no numbers are left after {first - 1}: give rows=...")
        return numbers + first

    @available_if(_is_trained)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, *, rows: Any = None) -> Self:
        """Add evidence that arrives in parts, for a trained model.

        The first part decides the layers and, as they are fitted to it, the metrics: let it be
        typical of all. What `tune` chose no longer holds, and neither does what it promised: tune
        again after the last part. To go on asserting meanwhile, use `add`.

        Args:
            X: n further samples, or a loader, as for `fit`.
            y: Their labels, of shape (n,), unless the loader yields them.
            rows: Numbers of shape (n,) that identify the samples, other than those before. Default:
                they count on from the highest before.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained))
            >>> for part in (slice(0, 30), slice(30, None)):
            ...     ec = ec.partial_fit(X_train[part], y_train[part])
            >>> ec.indexes_["input"].n_rows == len(X_train)
            True
        """
        if not hasattr(self, "indexes_"):
            with self._unchanged_by_failure():
                return self._wrap(X, y, rows, {}, parts=True)
        samples = self._samples(X, y)
        points, labels = self._points_of(samples), self._all_labels(samples)
        with self._alone():
            encode(labels, self.classes_, "y")  # classes do not come in parts
            change = self._addition(points, labels, self._number(rows, len(labels)), say("", ""))
            # What was chosen was chosen on less evidence, unless the user gave it.
            chosen = () if is_fixed(self.rule) else ("selection_", "neighborhoods_")
            self._put(**self._after(change), without=chosen)
        return self


def as_ids(ids: Any) -> Ints:
    """Numbers of samples, distinct, at least one, of shape (n,)."""
    numbers = as_array(ids, "ids")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise InputError(
            "ids must be the numbers of samples, at least one, as a list or an array; got "
            f"{shown(ids)}"
        )
    found, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"ids must differ; {names(found[counts > 1].tolist())} came twice")
    if int(found[0]) < 0 or int(found[-1]) > np.iinfo(np.int64).max:
        raise InputError(f"ids must be numbers from 0 to 2**63 - 1; got {names(ids)}")
    return numbers.astype(np.int64)


def say(who: Any, why: Any) -> Said:
    """When a change is made, by whom and why."""
    return now(), check_said(who, "who"), check_said(why, "why")
