"""The robust fraction against counting, radius by radius."""

import numpy as np
import pytest

from iknow import Assertion, Ball
from iknow.errors import InputError
from iknow.evaluation.curves import robust_fraction

RULES = {"a": Ball(1.0), "b": Ball(1.5)}


def test_it_is_what_counting_gives_at_any_radius(random_assessment):
    seen = set()
    for seed in range(60):
        assessment, y_true = random_assessment(seed, RULES)
        known = assessment.assertion == Assertion.IK
        radii = np.unique([0.0, *assessment.robust_radius[known]])
        middles = (radii[1:] + radii[:-1]) / 2
        tried = [*radii, *np.nextafter(radii, np.inf), *middles, 1e9, np.inf]
        robust = [known & (assessment.robust_radius >= radius) for radius in tried]
        right = [certain & (assessment.belief == y_true) for certain in robust]
        for found, expected in (
            (robust_fraction(assessment, tried), robust),
            (robust_fraction(assessment, tried, y_true), right),
        ):
            assert found.tolist() == [certain.mean() for certain in expected]
        seen.update(assessment.robust_radius[known].tolist())
    assert np.inf in seen  # so the counts beyond the last radius were put to the test
    assert len(seen) > 3


def test_labels_and_radii_that_do_not_fit_are_refused(random_assessment):
    assessment, y_true = random_assessment(5, RULES)
    with pytest.raises(InputError, match="one label for each"):
        robust_fraction(assessment, [0.1], [*y_true, "cat"])
    for radius in (-0.1, np.nan):
        with pytest.raises(InputError, match="numbers >= 0"):
            robust_fraction(assessment, [radius])
