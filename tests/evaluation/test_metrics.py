"""The report against a plain loop and scikit-learn's confusion matrix."""

import json
import math
import tracemalloc
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix

from iknow import Assertion, Assessment, Ball, Evidence, Reason, evaluate
from iknow.errors import InputError
from iknow.evaluation import Evaluation

NAMES = np.array(["cat", "dog", "owl"])


def make_assessment(classes, belief_codes, class_distances, radius=1.0, invalid=None):
    """An assessment in one layer, whose evidence is written down rather than gathered."""
    distances = np.array(class_distances, dtype=float)
    evidence = Evidence(
        distances, np.empty((len(distances), 0)), np.zeros(distances.shape, dtype=np.int64)
    )
    belief_codes = np.array(belief_codes)
    return Assessment(
        classes=np.asarray(classes),
        belief_codes=belief_codes,
        scores=np.eye(len(classes))[belief_codes],
        evidence={"a": evidence},
        neighborhoods={"a": Ball(radius)},
        invalid=np.zeros(len(distances), dtype=bool) if invalid is None else np.array(invalid),
    )


def random_assessment(seed, classes=NAMES):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    distances = rng.choice([0.5, 1.5], size=(n, len(classes)))
    assessment = make_assessment(classes, rng.integers(len(classes), size=n), distances)
    return assessment, rng.choice(classes, size=n)


def fraction_or_nan(part, whole):
    return part / whole if whole else math.nan


def test_every_figure_equals_that_of_a_plain_loop():
    for seed in range(100):
        assessment, y_true = random_assessment(seed)
        report = evaluate(assessment, y_true)
        counts, right = dict.fromkeys(Assertion, 0), dict.fromkeys(Assertion, 0)
        reasons = dict.fromkeys(Reason, 0)
        for i in range(len(assessment)):
            counts[Assertion(assessment.assertion[i])] += 1
            right[Assertion(assessment.assertion[i])] += assessment.belief[i] == y_true[i]
            reasons[Reason(assessment.reason[i])] += 1
        n = len(y_true)
        expected = {
            "f_ik": counts[Assertion.IK] / n,
            "f_imk": counts[Assertion.IMK] / n,
            "f_idk": counts[Assertion.IDK] / n,
            "a_ik": fraction_or_nan(right[Assertion.IK], counts[Assertion.IK]),
            "a_not_ik": fraction_or_nan(
                right[Assertion.IMK] + right[Assertion.IDK],
                counts[Assertion.IMK] + counts[Assertion.IDK],
            ),
            "overall_accuracy": sum(right.values()) / n,
        }
        np.testing.assert_equal({name: getattr(report, name) for name in expected}, expected)
        assert report.n_samples == n
        assert report.reasons == reasons
        assert math.isclose(report.f_ik + report.f_imk + report.f_idk, 1)


def test_the_matrix_of_each_assertion_is_scikit_learns_confusion_matrix():
    for seed in range(50):
        assessment, y_true = random_assessment(seed)
        report = evaluate(assessment, y_true)
        assert report.overall_accuracy == accuracy_score(y_true, assessment.belief)
        for assertion in Assertion:
            chosen = assessment.assertion == assertion
            expected = (
                # scikit-learn puts the truth on the first axis
                confusion_matrix(y_true[chosen], assessment.belief[chosen], labels=NAMES).T
                if chosen.any()
                else np.zeros((3, 3))
            )
            np.testing.assert_array_equal(report.matrix[assertion], expected)


def test_the_accuracy_of_an_empty_group_is_nan():
    report = evaluate(make_assessment(NAMES, [0, 1], [[0, 9, 9], [9, 0, 9]]), ["cat", "owl"])
    assert (report.f_ik, report.a_ik) == (1.0, 0.5)
    assert np.isnan(report.a_not_ik)
    assert np.isnan(report.accuracy(Assertion.IDK))
    nothing_known = evaluate(make_assessment(NAMES, [0], [[9, 9, 9]]), ["cat"])
    assert np.isnan(nothing_known.a_ik)
    assert nothing_known.a_not_ik == 1.0


def test_true_labels_the_classifier_does_not_know_extend_the_true_axis():
    assessment = make_assessment(NAMES, [0, 1, 2, 0], [[0, 9, 9]] * 4)
    report = evaluate(assessment, ["cat", "zebra", "ant", "zebra"])
    assert report.true_classes.tolist() == ["cat", "dog", "owl", "ant", "zebra"]
    assert report.classes.tolist() == NAMES.tolist()
    assert report.matrix.shape == (3, 3, 5)
    assert report.matrix[Assertion.IK, 0].tolist() == [1, 0, 0, 0, 1]
    assert report.matrix[Assertion.IDK, 1].tolist() == [0, 0, 0, 0, 1]
    assert report.matrix[Assertion.IDK, 2].tolist() == [0, 0, 0, 1, 0]
    assert report.overall_accuracy == 0.25


def test_unsorted_classes_are_matched_by_label_and_not_by_place():
    classes = np.array([30, 10, 20])
    report = evaluate(make_assessment(classes, [0, 1, 2], [[0, 0, 0]] * 3), [30, 10, 10])
    assert report.overall_accuracy == 2 / 3
    assert report.matrix[Assertion.IMK].tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize("container", [list, np.array, pd.Series, tuple])
def test_true_labels_may_come_in_any_container(container):
    assessment = make_assessment(NAMES, [0, 1], [[0, 9, 9], [9, 9, 9]])
    report = evaluate(assessment, container(["cat", "cat"]))
    assert (report.a_ik, report.a_not_ik) == (1.0, 0.0)


def test_the_printed_report_is_this_text():
    assessment = make_assessment(
        NAMES,
        [0, 0, 1, 2, 1],
        [[0, 9, 9], [0, 9, 9], [0, 0, 9], [9, 9, 9], [9, 9, 9]],
        invalid=[False, False, False, False, True],
    )
    report = evaluate(assessment, ["cat", "dog", "dog", "cat", "owl"])
    assert str(report) == "\n".join(
        [
            "5 samples, accuracy 40.0%",
            "",
            "          samples  fraction  accuracy",
            "IK              2     40.0%     50.0%",
            "IMK             1     20.0%    100.0%",
            "IDK             2     40.0%      0.0%",
            "not IK          3     60.0%     33.3%",
            "",
            "reasons: known 2, overlap 1, extrapolation 1, invalid 1",
        ]
    )


def test_an_undefined_accuracy_is_printed_as_a_dash():
    report = evaluate(make_assessment(NAMES, [0], [[0, 9, 9]]), ["cat"])
    assert "IDK             0      0.0%         -" in str(report).splitlines()
    assert "not IK          0      0.0%         -" in str(report).splitlines()


def test_to_dict_survives_strict_json_with_none_for_what_is_undefined():
    report = evaluate(make_assessment(NAMES, [0, 0], [[0, 9, 9]] * 2), ["cat", "yak"])
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert record == {
        "n_samples": 2,
        "F_IK": 1.0,
        "F_IMK": 0.0,
        "F_IDK": 0.0,
        "A_IK": 0.5,
        "A_notIK": None,
        "accuracy": 0.5,
        "reasons": {
            "KNOWN": 2,
            "OVERLAP": 0,
            "DISAGREEMENT": 0,
            "EXTRAPOLATION": 0,
            "CONTRADICTION": 0,
            "INVALID": 0,
            "UNCERTIFIED": 0,
            "DOUBT": 0,
        },
        "classes": ["cat", "dog", "owl"],
        "true_classes": ["cat", "dog", "owl", "yak"],
        "matrix": {
            "IDK": [[0] * 4] * 3,
            "IMK": [[0] * 4] * 3,
            "IK": [[1, 0, 0, 1], [0] * 4, [0] * 4],
        },
    }


@pytest.mark.parametrize("classes", [np.array([3, 7]), np.array([False, True])])
def test_number_and_bool_labels_survive_json_too(classes):
    report = evaluate(make_assessment(classes, [0, 1], [[0, 9], [9, 0]]), classes)
    assert isinstance(report, Evaluation)
    assert json.loads(json.dumps(report.to_dict()))["classes"] == classes.tolist()


def test_labels_of_another_number_than_samples_are_refused():
    assessment = make_assessment(NAMES, [0, 1], [[0, 9, 9]] * 2)
    with pytest.raises(InputError, match=r"each of the 2 assessed samples; got shape \(3,\)"):
        evaluate(assessment, ["cat"] * 3)
    with pytest.raises(InputError, match=r"got shape \(2, 1\)"):
        evaluate(assessment, [["cat"], ["dog"]])


def test_an_empty_assessment_cannot_be_evaluated():
    with pytest.raises(InputError, match="the assessment is empty"):
        evaluate(make_assessment(NAMES, np.empty(0, dtype=int), np.empty((0, 3))), [])


def test_labels_of_another_kind_are_refused_with_an_example():
    with pytest.raises(InputError, match="such as 'cat'; got 0"):
        evaluate(make_assessment(NAMES, [0], [[0, 9, 9]]), [0])
    with pytest.raises(InputError, match="such as 3; got 'cat'"):
        evaluate(make_assessment([3, 4], [0], [[0, 9]]), ["cat"])


def assess_many(n, n_classes, absent=()):
    """An assessment of very many classes, of which the first few samples are known."""
    rng = np.random.default_rng(0)
    belief = rng.integers(n_classes, size=n)
    distances = np.full((n, n_classes), 9.0)
    distances[np.arange(n // 2), belief[: n // 2]] = 0.0
    belief[list(absent)] = -1
    invalid = belief < 0
    assessment = Assessment(
        classes=np.arange(n_classes),
        belief_codes=belief,
        scores=np.zeros((n, n_classes), dtype=np.float32),
        evidence={
            "a": Evidence(distances, np.empty((n, 0)), np.zeros(distances.shape, dtype=np.int64))
        },
        neighborhoods={"a": Ball(1.0)},
        invalid=invalid,
    )
    y_true = np.where(
        rng.random(n) < 0.5, np.where(invalid, 0, belief), rng.integers(n_classes, size=n)
    )
    return assessment, y_true


def test_a_hundred_thousand_classes_take_no_more_than_their_pairs():
    assessment, y_true = assess_many(40, 100_000)
    assertion, reason = assessment.assertion, assessment.reason  # theirs is another memory
    assert len(assertion) == len(reason)
    tracemalloc.start()
    report = evaluate(assessment, y_true)
    text, record = str(report), json.dumps(report.to_dict())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000  # 24 bytes for each pair of classes would be 240 GB
    codes = np.column_stack([assertion, assessment.belief_codes, y_true])
    expected = Counter(map(tuple, codes.tolist()))
    assert {tuple(row[:3]): row[3] for row in report.pairs.tolist()} == dict(expected)
    assert report.a_ik == np.mean(assessment.belief[assertion == 2] == y_true[assertion == 2])
    assert "IK             20     50.0%" in text
    assert sum(count for rows in json.loads(record)["pairs"].values() for _, _, count in rows) == 40
    with pytest.raises(InputError, match="100,000 classes would take 240"):
        report.matrix  # noqa: B018


def test_samples_without_an_answer_are_counted_apart():
    absent = (3, 7, 30)
    assessment, y_true = assess_many(40, 3, absent)
    report = evaluate(assessment, y_true)
    kept = np.setdiff1d(np.arange(40), absent)
    belief = assessment.belief_codes[kept]
    assert report.n_samples == 40
    assert report.unanswered.tolist() == [3, 0, 0]
    assert report.overall_accuracy == np.mean(belief == y_true[kept])
    assert report.matrix.sum() == 37
    assert report.counts.sum() == 40
    assert report.wrong(*Assertion) == (belief != y_true[kept]).sum()
    assert str(report).endswith("no answer: 3, not counted as right or wrong")
    assert report.to_dict()["no_answer"] == 3
    silent = evaluate(assess_many(2, 3, (0, 1))[0], [0, 1])
    assert np.isnan(silent.overall_accuracy)
    assert silent.f_idk == 1.0


def test_the_model_is_not_judged_by_what_it_did_not_say():
    assessment = make_assessment(np.array([30, 10, 20]), [2, 2, 0], [[9, 9, 0]] * 3)
    silent = replace(
        assessment,
        belief_codes=np.array([2, -1, 0]),
        invalid=np.array([False, True, False]),
    )
    report = evaluate(silent, [20, 20, 10])
    assert report.n_samples == 3
    assert report.overall_accuracy == 1 / 2
    assert report.a_not_ik == 0
    assert report.f_idk == 2 / 3
    assert report.unanswered.tolist() == [1, 0, 0]
    assert report.matrix.sum() == 2


@pytest.mark.parametrize("y", [np.ma.masked_equal([0, 1], 1), [0, None], np.zeros(2, "M8[s]")])
def test_true_labels_are_checked_as_others_are(y):
    with pytest.raises(InputError, match="y_true"):
        evaluate(make_assessment([0, 1], [0, 1], [[0, 9], [9, 0]]), y)
