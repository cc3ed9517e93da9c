"""scikit-learn's own checks of what an estimator must do."""

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from iknow import EpistemicClassifier

RAW_TREE = DecisionTreeClassifier()


@pytest.mark.filterwarnings(
    "ignore:.*Until it is tuned again:UserWarning",  # the checks' data is random noise
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::sklearn.exceptions.DataConversionWarning",
    "ignore::sklearn.exceptions.SkipTestWarning",
)
@parametrize_with_checks(
    [
        EpistemicClassifier(LogisticRegression()),
        EpistemicClassifier(MLPClassifier(hidden_layer_sizes=(10,), solver="lbfgs", max_iter=100)),
        EpistemicClassifier(RAW_TREE),
        EpistemicClassifier(DecisionTreeClassifier(), layers=["output"]),
    ],
    expected_failed_checks=lambda estimator: (
        {
            "check_estimators_nan_inf": "the tree answers NaN, and predict returns its answers as "
            "assess does; fit refuses NaN, because distances between raw inputs need numbers"
        }
        if estimator.model is RAW_TREE
        else {}
    ),
)
def test_it_passes_scikit_learns_check(estimator, check):
    check(estimator)
