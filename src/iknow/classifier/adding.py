"""Adding: evidence that arrives in parts.

Evidence merges: the index of a layer holds the points of all parts, whatever their order. What was
chosen on less evidence, and promised of it, is dropped.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if

from iknow.classifier import gathering
from iknow.classifier.fitting import FittingMixin
from iknow.errors import InputError
from iknow.models.adapt import is_estimator
from iknow.models.labels import as_row_numbers, encode
from iknow.models.samples import Samples


def _is_trained(classifier: Any) -> bool:
    """Whether a classifier's model is used as it is: parts of the data cannot train one."""
    model = classifier.model
    fitted = isinstance(model, FrozenEstimator) or hasattr(model, "classes_")
    return fitted or not is_estimator(model)


class AddingMixin(FittingMixin):
    """`partial_fit`, for a classifier whose model is trained."""

    @available_if(_is_trained)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, *, rows: Any = None) -> Self:
        """Add evidence that arrives in parts, for a trained model.

        The first part decides the layers and, as they are fitted to it, the metrics: let it be
        typical of all. What `tune` chose no longer holds, and neither does what it promised: tune
        again after the last part.

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
        with self._unchanged_by_failure():
            if not hasattr(self, "indexes_"):
                return self._wrap(X, y, rows, {}, parts=True)
            return self._add(self._samples(X, y), rows)

    def _add(self, samples: Samples, rows: Any) -> Self:
        """Add further samples to the index of each layer."""
        observation, n_columns = self._run(samples, self.layers_)
        gathering.check_columns(n_columns, len(self.classes_))
        gathering.check_valid(observation.invalid, "training", None, self.layers_)
        codes = encode(self._all_labels(samples), self.classes_, "y")
        before = self.indexes_[self.layers_[0]].rows
        numbers = as_row_numbers(rows, len(codes))
        if rows is None:
            numbers = numbers + int(before.max()) + 1
        elif np.isin(numbers, before).any():
            raise InputError("rows must differ from those of the samples added before")
        self.indexes_ = {
            layer: self.indexes_[layer].extended(values, codes, numbers)
            for layer, values in observation.activations.items()
        }
        if self.neighborhoods is None:  # chosen on evidence that has changed
            for name in ("selection_", "neighborhoods_"):
                vars(self).pop(name, None)
        return self
