"""The demonstration's report, as a person sees it who has never seen the project."""

import re
from dataclasses import replace

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
    assert f"{explanation.level:.2g} (IK from {explanation.least_level:.2g} on)" in shown
    assert f"({explanation.deciding.title} " in shown
    for layer in explanation.layers:
        assert [len(layer.samples_for), len(layer.samples_against)] == [1, 3]
        for exemplar in (*layer.samples_for, *layer.samples_against):
            assert f"training #{exemplar.row}" in shown


def test_one_can_say_from_it_why_a_prediction_is_imk(page, judged):
    assessment, _ = judged
    page.set("#filter-assertion", int(Assertion.IMK))
    page.click(".rows .row")
    shown = page.text("#detail")
    i = int(re.search(r"Sample #(\d+)", shown)[1])
    assert assessment.assertion[i] == Assertion.IMK
    explanation = assessment.explain(i)
    assert explanation.deciding.voice in ("clarity", "confidence")
    assert f"The model says “{assessment.belief[i]}”" in shown
    assert "IK needs" in shown
    assert "So: I may know." in shown
    for layer in explanation.layers:
        for voice in layer.voices:  # the page writes a minus and tells "above" in other words
            assert (
                f"{voice.voice} {'✓' if voice.holds else '✗'} {str(voice).split()[1][:5]}" in shown
            )


def test_the_page_names_the_voice_that_python_names(page, judged):
    assessment, _ = judged
    script = """
    const { page } = Report;
    return arguments[0].map((i) => {
      page.choose(i);
      return document.querySelector(".sentence").textContent;
    });
    """
    some = list(range(0, len(assessment), 3))
    kinds = set()
    for i, shown in zip(some, page.run(script, some), strict=True):
        explanation = assessment.explain(i)
        decides = explanation.deciding
        kinds.add((explanation.reason, decides.voice))
        part = "is closest to failing" if decides.holds else "decides"
        assert f"({decides.title} {part}): " in shown
        limit = re.search(r"IK needs (?:more than )?([\d.]+)", decides.fact)[1]
        assert limit in shown
        failing = [v.title for v in explanation.voices if not v.holds and v != decides]
        assert shown.endswith(f"Failing too: {', '.join(failing)}." if failing else "know.")
    assert len(kinds) > 4


def test_confidence_has_a_slider(page, judged):
    assessment, _ = judged
    asked = 0.99
    page.set("#confidence-exact", str(asked))
    least = np.log(asked / (1 - asked))
    moved = replace(assessment, least_confidence=least)
    known = int((moved.assertion == Assertion.IK).sum())
    assert known < (assessment.assertion == Assertion.IK).sum()
    assert f"{known} of {len(assessment)}" in page.text("#figures .tile.ik .of")
    page.click("#reset")
    known = int((assessment.assertion == Assertion.IK).sum())
    assert f"{known} of {len(assessment)}" in page.text("#figures .tile.ik .of")
