"""What the page says was certified: neither more nor less than was."""

from dataclasses import replace

import numpy as np
import pytest

from iknow import Assertion, Ball, evaluate
from iknow.core.robustness import Movement
from iknow.report import make_report
from iknow.report.page import describe_certificate, is_about, summarise
from tests.oracles import make_levels


def words(assessment, y_true=None, selection=None):
    report = None if y_true is None else evaluate(assessment, y_true)
    return " ".join(describe_certificate(assessment, report, selection))


def test_a_certificate_is_told_with_what_it_rests_on_and_where_it_ends(
    assessed, selection_for, certificate
):
    assessment, y_true = assessed()
    told = words(assessment, y_true, selection_for(assessment, certificate))
    assert "Guaranteed with confidence 0.95: accuracy on IK at least 0.5 (2 wrong of 350 IK" in told
    assert "The lower bound is 61.0% (exact tests)" in told
    assert "not for others set with the sliders" in told
    right = 100 * evaluate(assessment, y_true).a_ik
    assert f"On the samples of this report the accuracy on IK is {right:.1f}%." in told


def test_samples_that_fall_short_of_it_are_pointed_out(assessed, selection_for, certificate):
    assessment, y_true = assessed()
    demanding = replace(certificate, accuracy=0.9999)
    assert "less than certified" in words(assessment, y_true, selection_for(assessment, demanding))


def test_a_certificate_for_each_class(assessed, selection_for, certificate):
    assessment, y_true = assessed()
    each = replace(certificate, by_class={"a": 0.9, "<b>": 0.8})
    told = words(assessment, y_true, selection_for(assessment, each))
    assert "That holds for each of 2 classes; beliefs in any other are never IK." in told
    assert "Lower bounds by class: a 90.0%, <b> 80.0%." in told
    html = make_report(assessment, y_true, selection=selection_for(assessment, each))
    assert "&lt;b&gt; 80.0%" in html


def test_a_measurement_is_not_called_a_certificate(assessed, selection_for):
    assessment, y_true = assessed()
    told = words(assessment, y_true, selection_for(assessment, None))
    assert "No accuracy is certified" in told
    assert "measurements, not promises" in told
    assert "Guaranteed" not in told
    assert "Whether an accuracy was certified is not known here" in words(assessment, y_true)


def test_a_certificate_for_other_neighborhoods_does_not_count(assessed, selection_for, certificate):
    assessment, y_true = assessed()
    selection = selection_for(assessment, certificate)
    other = assessment.under(dict.fromkeys(assessment.evidence, Ball(0.81)))
    assert is_about(selection, assessment)
    assert not is_about(selection, other)
    assert not is_about(selection, replace(assessment, least_confidence=0.5))
    told = words(other, y_true, selection)
    assert "about other neighborhoods" in told
    assert "Guaranteed" not in told


def test_after_a_change_of_the_evidence_nothing_is_certified(assessed, selection_for, certificate):
    assessment, y_true = assessed()
    stale = replace(selection_for(assessment, certificate), stale="2 samples were added")
    told = words(assessment, y_true, stale)
    assert "No accuracy is certified" in told
    assert "2 samples were added. Nothing is guaranteed until recertify renews it." in told
    assert "Guaranteed with" not in told
    assert "The lower bound" not in told
    assert '"certified": false' in make_report(assessment, y_true, selection=stale)


def test_what_is_certified_about_changed_inputs(assessed):
    assessment, y_true = assessed()
    assert "No robustness against changed inputs is certified." in words(assessment, y_true)
    known = assessment.assertion == 2
    with_constant = replace(assessment, movements={"hidden": Movement(2.0)})
    radii = with_constant.robust_radius[known]
    told = words(with_constant, y_true)
    assert f"For {(radii > 0).sum()} of {known.sum()} IK predictions" in told
    assert f"(median {np.median(radii[radii > 0]):.3g}) can make" in told


@pytest.mark.parametrize("radius", [0.0, 0.8])
def test_the_summary_counts(radius, assessed):
    assessment, y_true = assessed()
    assessment = assessment.under(dict.fromkeys(assessment.evidence, Ball(radius)))
    sentences = " ".join(summarise(assessment, evaluate(assessment, y_true)))
    known = (assessment.assertion == 2).sum()
    assert f"“I know” for {known}" in sentences
    assert ("Where it knows" in sentences) == (known > 0)
    assert "nan" not in sentences


def test_what_levels_promise_is_told(assessed, selection_for):
    assessment, y_true = assessed()
    levels = make_levels({"hidden": ([1.0], [1.0]), "logits": ([1.0], [1.0])})
    leveled = replace(assessment, levels=levels)
    selection = replace(
        selection_for(assessment, None),
        levels=levels, level=0.3, false_alarm=0.05,
    )  # fmt: skip
    promised = "Guaranteed: an ordinary sample is not IK with probability 0.05 at most."
    assert promised in words(leveled, y_true, selection)
    # For other neighborhoods nothing is promised.
    other = replace(leveled, neighborhoods=dict.fromkeys(leveled.neighborhoods, Ball(0.7)))
    assert promised not in words(other, y_true, selection)
    short = replace(selection, false_alarm=None, note="give at least 374")
    assert "Nothing is guaranteed: give at least 374." in words(leveled, y_true, short)


def test_changes_of_the_training_set_are_told_where_an_ik_stands_them(assessed):
    rule = Ball(0.8, quorum=(1, 3))
    assessment, y_true = assessed(n=200, rules={"hidden": rule, "logits": rule}, per_class=4)
    changes = assessment.stability.changes[assessment.assertion == Assertion.IK]
    one, two = int((changes >= 1).sum()), int((changes >= 2).sum())
    assert 0 < two < one < len(changes)
    assert (
        f"With the model as it is, {one} of {len(changes)} IK predictions stay IK if any one "
        f"training sample is added, removed or relabeled, {two} if any 2 are."
    ) in words(assessment, y_true)
    assert "relabeled" not in words(*assessed())
