"""Answers: every form of them says the same, with levels where there are levels."""

import json
from dataclasses import replace

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


def test_rows_columns_and_records_are_the_same_table(assessment):
    answers = assessment.answers
    record, rows, columns = answers.to_dict(), answers.rows(), answers.columns()
    for name in rows[0]:
        assert [row[name] for row in rows] == record[name]
    for name in ("belief", "score", "assertion", "reason"):
        assert columns[name].tolist() == record[name]
    assert columns["justified"].tolist() == ["|".join(each) for each in record["justified"]]
    belief, *words, levels = answers.records()
    assert list(map(json.loads, belief)) == record["belief"]
    assert words == [record["assertion"], record["reason"]]
    assert levels == [None] * 6


def test_a_missing_belief_is_null_and_never_the_last_class(assessment):
    answers = replace(assessment, belief_codes=np.array([0, 1, 1, 0, 2, -1])).answers
    assert answers.records()[0] == ['"cat"', '"dog"', '"dog"', '"cat"', '"owl"', "null"]
    assert answers.rows()[-1]["belief"] is None
    assert answers.columns()["belief"].expand().tolist()[-1] == ""


def test_an_alarm_watches_levels_and_without_them_the_assertions(assessment):
    answers = assessment.answers
    assert answers.watched.tolist() == [1, 0.5, 0.5, 0, 0, 0]
    assert answers.watched_by_layer.T.tolist() == [[1, 0.5, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]]
    leveled = assess(EpistemicClassifier)
    np.testing.assert_array_equal(leveled.answers.watched, leveled.level)
    np.testing.assert_array_equal(leveled.answers.watched_by_layer, leveled.layer_levels)


def test_the_papers_rules_have_no_levels_to_write():
    a = assess(EpistemicClassifier.paper)
    assert "level" not in a.to_dict()
    assert "level" not in a.to_frame()
