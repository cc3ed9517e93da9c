"""Pipelines: `assess` and `tune` of the classifier at their end.

scikit-learn's pipelines offer the methods that scikit-learn knows, so `assess` is out of reach
there. These functions take the samples through all steps but the last, as `predict` does. A search,
such as `GridSearchCV`, stands for the best estimator that it found.
"""

from __future__ import annotations

from typing import Any, TypeVar

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.explain.assessment import Assessment

Estimator = TypeVar("Estimator")


def assess(estimator: Any, X: Any, **options: Any) -> Assessment:
    """Assess with a classifier, or with the one at the end of a pipeline.

    Args:
        estimator: A fitted `EpistemicClassifier`, a `Pipeline` that ends in one, or a search with
            either as its `best_estimator_`.
        X: n samples, as the pipeline takes them.
        **options: For `EpistemicClassifier.assess`.

    Examples:
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> steps = make_pipeline(StandardScaler(), EpistemicClassifier(LogisticRegression()))
        >>> assess(steps.fit(X_train, y_train), X_val)
        Assessment of 75 predictions: IK 55, IMK 9, IDK 11
    """
    classifier, inputs = reach(estimator, X)
    found: Assessment = classifier.assess(inputs, **options)
    return found


def tune(estimator: Estimator, X: Any, y: Any = None, **goal: Any) -> Estimator:
    """Tune a classifier, or the one at the end of a pipeline.

    Args:
        estimator: As for `assess`.
        X: n samples that are not in the training data, as the pipeline takes them.
        y: Their labels, of shape (n,).
        **goal: For `EpistemicClassifier.tune`; samples in `reference` go through the steps too.

    Returns:
        The same estimator, whose classifier is tuned.

    Examples:
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> steps = make_pipeline(StandardScaler(), EpistemicClassifier(FrozenEstimator(trained)))
        >>> steps = tune(steps.fit(X_train, y_train), X_val, coverage=0.6)
        >>> print(f"{steps[-1].selection_.coverage:.2f}")
        0.60
    """
    classifier, inputs = reach(estimator, X)
    if goal.get("reference") is not None:
        goal["reference"] = reach(estimator, goal["reference"])[1]
    classifier.tune(inputs, y, **goal)
    return estimator


def reach(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The classifier inside an estimator, and the samples as they arrive there."""
    found, before = estimator, []
    while not hasattr(found, "assess"):
        if hasattr(found, "best_estimator_"):
            found = found.best_estimator_
        elif isinstance(steps := getattr(found, "steps", None), list) and steps:
            before += [found[:-1]] if len(steps) > 1 else []
            found = steps[-1][1]
        else:
            raise InputError(
                "a fitted EpistemicClassifier, a pipeline that ends in one, or a search over "
                f"either is needed; got {shown(estimator)}"
            )
    for steps in before:
        X = steps.transform(X)
    return found, X
