"""Levels are among the answers, as JSON and as a table, where there are levels."""

import json

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from iknow import EpistemicClassifier

X, y = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
TRAINING, VALIDATION, TEST = ORDER[:70], ORDER[70:110], ORDER[110:]


def assess(make):
    model = LogisticRegression(max_iter=500).fit(X[TRAINING], y[TRAINING])
    classifier = make(model, progress=False).fit(X[TRAINING], y[TRAINING])
    goal = {"coverage": 0.75} if make is EpistemicClassifier else {}
    return classifier.tune(X[VALIDATION], y[VALIDATION], **goal).assess(X[TEST])


def test_levels_and_what_holds_them_down_are_written_beside_the_assertions():
    a = assess(EpistemicClassifier)
    record = json.loads(json.dumps(a.to_dict(), allow_nan=False))
    assert record["level"] == a.level.tolist()
    assert record["weakest"] == a.weakest.tolist()
    frame = a.to_frame()
    pd.testing.assert_series_equal(frame["level"], pd.Series(a.level, name="level"))
    assert frame["weakest"].tolist() == record["weakest"]
    least = frame["level"][frame["assertion"] == "IK"].min()
    assert ((frame["assertion"] == "IK") == (frame["level"] >= least)).all()


def test_the_papers_rules_have_no_levels_to_write():
    a = assess(EpistemicClassifier.paper)
    assert "level" not in a.to_dict()
    assert "level" not in a.to_frame()
