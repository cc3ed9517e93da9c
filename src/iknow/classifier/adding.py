"""Adding: evidence that arrives in parts.

Evidence merges: the index of a layer holds the points of all parts, whatever their order. What was
chosen on less evidence, and promised of it, is dropped.
"""

from __future__ import annotations

from typing import Any, Self

from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if

from iknow.classifier.changing import ChangingMixin, say
from iknow.models.adapt import is_estimator
from iknow.models.labels import encode


def _is_trained(classifier: Any) -> bool:
    """Whether a classifier's model is used as it is: parts of the data cannot train one."""
    model = classifier.model
    fitted = isinstance(model, FrozenEstimator) or hasattr(model, "classes_")
    return fitted or not is_estimator(model)


class AddingMixin(ChangingMixin):
    """`partial_fit`, for a classifier whose model is trained."""

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
            chosen = ("selection_", "neighborhoods_") if self.neighborhoods is None else ()
            self._put(**self._after(change), without=chosen)
        return self
