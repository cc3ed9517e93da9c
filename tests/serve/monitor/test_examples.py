"""The examples in the docstrings."""

import doctest

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier
from iknow.serve.monitor import accuracy, drift, martingale


@pytest.mark.parametrize("module", [accuracy, drift, martingale])
def test_examples_give_what_they_say(module):
    X, y = load_iris(return_X_y=True)
    ec = EpistemicClassifier(LogisticRegression(max_iter=1000), rule=Ball(1), progress=False)
    found = doctest.testmod(module, extraglobs={"np": np, "ec": ec.fit(X, y), "X": X})
    assert found.attempted > 0
    assert found.failed == 0
