"""The demonstration's report, as a person sees it who has never seen the project."""

import re

import numpy as np
import pytest

from iknow import Assertion, evaluate
from iknow.cli.demo import demonstrate, make_page


@pytest.fixture(scope="module")
def demonstration():
    return demonstrate()


@pytest.fixture
def page(demonstration, open_page):
    return open_page(make_page(demonstration))


@pytest.fixture(scope="module")
def judged(demonstration):
    """The assessment that the report is about, and the truth."""
    parts = [demonstration.digits.conditions[name] for name in ("clean", "unseen digit")]
    images, y_true = (np.concatenate(part) for part in zip(*parts, strict=True))
    return demonstration.classifier.assess(images, evidence=True), y_true


def test_all_of_it_is_there(page, judged):
    assessment, y_true = judged
    report = evaluate(assessment, y_true)
    assert f"“I know” for {report.matrix[Assertion.IK].sum()}" in page.text("#summary")
    assert f"right in {report.a_ik:.1%} of cases" in page.text("#summary")
    assert "181 images of the digit 4" in page.text("#notes")
    assert "measurements, not promises" in page.text("#certified")
    assert "can make the classifier know another class" in page.text("#certified")
    assert page.run("return document.querySelectorAll('#plots canvas').length") >= 2
    assert page.run("return document.querySelectorAll('#matrices table').length") >= 3


def test_a_wrong_ik_or_else_the_closest_call_opens_with_its_evidence(page, judged):
    assessment, y_true = judged
    wrong = (assessment.assertion == Assertion.IK) & (assessment.belief != y_true)
    shown = page.text("#detail")
    i = int(re.search(r"Sample #(\d+)", shown)[1])
    if wrong.any():
        assert wrong[i]
        assert f"And yet it is wrong: the truth is “{y_true[i]}”" in shown
    else:
        assert abs(assessment.margin[i]) == np.abs(assessment.margin).min()
    explanation = assessment.explain(i)
    level, weakest = explanation.standing.split(", held down by ")
    assert level.removeprefix("level ") in shown
    assert f"held down by {weakest}" in shown
    for layer in explanation.layers:
        assert [len(layer.samples_for), len(layer.samples_against)] == [3, 3]
        for exemplar in (*layer.samples_for, *layer.samples_against):
            assert f"training #{exemplar.row}" in shown


def test_one_can_say_from_it_why_a_prediction_is_imk(page, judged):
    assessment, _ = judged
    page.set("#filter-assertion", int(Assertion.IMK))
    page.click(".rows .row")
    shown = page.text("#detail")
    i = int(re.search(r"Sample #(\d+)", shown)[1])
    assert assessment.assertion[i] == Assertion.IMK
    layer = next(one for one in assessment.explain(i).layers if len(one.support) > 1)
    assert f"The model says “{assessment.belief[i]}”" in shown
    third = layer.samples_for[2]
    assert f"the third nearest training sample of “{third.label}” (#{third.row})" in shown
    last = layer.samples_against[-1]
    assert f"But 3 samples of “{last.label}” up to #{last.row}, at " in shown
    assert "Both classes are supported, so: I may know." in shown
