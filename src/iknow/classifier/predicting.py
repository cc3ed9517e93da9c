"""What scikit-learn asks of a classifier: probabilities, decisions, routing, output containers.

All of it is the wrapped model's own. A scikit-learn classifier gives what its methods give, and has
the methods that the wrapped one has: `predict_proba`, `decision_function`, `set_output`. For models
of other kinds scores that are probabilities are returned as they are, and others are turned into
probabilities by a softmax. Which of the two they are is decided once, by the scores of the training
samples in the probe, or of those that tuned: never by the samples asked about, as two logits may
happen to sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from iknow.classifier import gathering
from iknow.classifier.tuning import TuningMixin
from iknow.core.arrays import Floats
from iknow.core.level import are_probabilities
from iknow.models.adapt import is_estimator
from iknow.models.inputs import own_copy
from iknow.models.model import join_whole
from iknow.models.probe import Probe


def _has(method: str) -> Callable[[Any], bool]:
    """Whether the wrapped model is a scikit-learn classifier with this method."""
    return lambda classifier: is_estimator(classifier.model) and hasattr(classifier.model, method)


def _scores(classifier: Any) -> bool:
    """Whether the wrapped model scores classes, as all do but some of scikit-learn."""
    return not is_estimator(classifier.model) or hasattr(classifier.model, "predict_proba")


class PredictingMixin(TuningMixin):
    """`predict_proba`, `decision_function` and `set_output`, the wrapped model's own."""

    @available_if(_scores)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the model's own probabilities, of shape (n, n_classes), as `classes_` orders them.

        Scores that are no probabilities, as the logits of a network, go through a softmax. Classes
        that `add` brought later have no column, as the model does not score them.

        Args:
            X: n samples, in any form the model takes.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
            >>> np.array_equal(ec.predict_proba(X_val), trained.predict_proba(X_val))
            True
        """
        check_is_fitted(self, "indexes_")
        parts = [self.model_.observe(batch, ()) for batch in self._batches(X)]
        for part in parts:
            gathering.check_columns(part.scores.shape[1], self._n_columns)
        observation = join_whole(parts)
        gathering.check_answered(observation.belief)
        if is_estimator(self.model) or self._gives_probabilities(observation.scores):
            return observation.scores
        return softmax(observation.scores)

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Return the decision function of the wrapped classifier, as it gives it.

        Args:
            X: n samples, in any form the model takes.
        """
        check_is_fitted(self, "indexes_")
        estimator: Any = self.model_.estimator  # type: ignore[attr-defined]
        parts = [estimator.decision_function(own_copy(batch)) for batch in self._batches(X)]
        decisions: Floats = np.concatenate(parts)
        return decisions

    @available_if(_has("set_output"))  # type: ignore[untyped-decorator]
    def set_output(self, *, transform: str | None = None) -> Self:
        """Set what the transformers of a wrapped pipeline return, as `Pipeline.set_output` does.

        Args:
            transform: "default", "pandas", "polars", or None for no change.
        """
        self.model.set_output(transform=transform)
        if (trained := getattr(getattr(self, "model_", None), "estimator", None)) is not None:
            trained.set_output(transform=transform)
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Return who gets what `fit` is passed besides X and y: the wrapped model, if it asks."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(model=self.model, method_mapping=mapping)

    def _repr_html_inner(self) -> str:
        from iknow.classifier.html import to_html  # markup is for notebooks alone

        return to_html(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What notebooks show, in place of scikit-learn's diagram alone."""
        shown = {"text/plain": repr(self)}
        as_diagram = get_config()["display"] == "diagram"
        return shown | ({"text/html": self._repr_html_inner()} if as_diagram else {})

    def _batches(self, X: Any) -> Iterable[Any]:
        return self._samples(X).read()

    def _gives_probabilities(self, scores: Floats) -> bool:
        """Whether the model's scores are probabilities; those given decide if nothing else does."""
        if isinstance(self.probe_, Probe):
            return are_probabilities(self.probe_.observed.scores)
        selection = getattr(self, "selection_", None)
        if selection is not None and selection.levels is not None:
            return bool(selection.levels.from_probabilities)
        return are_probabilities(scores)


def softmax(scores: Floats) -> Floats:
    """Probabilities of shape (n, n_classes) from log-odds up to a constant; an infinite one wins.

    Examples:
        >>> softmax(np.array([[0.0, np.log(3)], [np.inf, 0.0]]))
        array([[0.25, 0.75],
               [1.  , 0.  ]])
    """
    highest = scores.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - highest)
    weights = np.where(np.isinf(highest), scores == highest, weights)
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares
