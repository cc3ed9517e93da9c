"""The robust fraction against counting, radius by radius."""

import numpy as np
import pytest

from iknow import Assertion, Ball
from iknow.errors import InputError
from iknow.evaluation.curves import robust_curve

RULES = {"a": Ball(1.0), "b": Ball(1.5)}


def test_the_curve_is_what_counting_gives_at_any_radius(random_assessment):
    seen = set()
    for seed in range(60):
        assessment, y_true = random_assessment(seed, RULES)
        curve = robust_curve(assessment, y_true)
        middles = (curve.radii[1:] + curve.radii[:-1]) / 2
        tried = [*curve.radii, *np.nextafter(curve.radii, np.inf), *middles, 1e9, np.inf]
        known = assessment.assertion == Assertion.IK
        for radius, at in zip(tried, curve.places(tried), strict=True):
            certain = known & (assessment.robust_radius >= radius)
            right = certain & (assessment.belief == y_true)
            assert curve.known[at] == certain.sum()
            assert curve.right[at] == right.sum()
            assert curve.known_fraction[at] == certain.mean()
            assert curve.right_fraction[at] == right.mean()
        assert curve.known[0] == known.sum()
        seen.update(assessment.robust_radius[known].tolist())
    assert np.inf in seen  # so the counts beyond the last radius were put to the test
    assert len(seen) > 3


def test_radii_ascend_from_0_and_each_of_them_matters(random_assessment):
    for seed in range(40):
        assessment, _ = random_assessment(seed, RULES)
        curve = robust_curve(assessment)
        assert curve.radii[0] == 0
        assert np.isfinite(curve.radii).all()
        assert (np.diff(curve.radii) > 0).all()
        assert (np.diff(curve.known[1:]) < 0).all()


def test_without_truth_only_the_known_are_counted(random_assessment):
    assessment, y_true = random_assessment(5, RULES)
    curve = robust_curve(assessment)
    assert curve.right is None
    assert curve.right_fraction is None
    np.testing.assert_array_equal(curve.known, robust_curve(assessment, y_true).known)


def test_labels_and_radii_that_do_not_fit_are_refused(random_assessment):
    assessment, y_true = random_assessment(5, RULES)
    with pytest.raises(InputError, match="one label for each"):
        robust_curve(assessment, [*y_true, "cat"])
    for radius in (-0.1, np.nan):
        with pytest.raises(InputError, match="numbers >= 0"):
            robust_curve(assessment).places([radius])
