"""Regions against an assessment of single points."""

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier
from iknow.errors import InputError
from iknow.evaluation.curves import map_regions


@pytest.fixture(scope="module")
def classifier():
    points, codes = make_moons(60, noise=0.2, random_state=0)
    labels = np.array(["left", "right"])[codes]
    model = FrozenEstimator(LogisticRegression().fit(points, labels))
    return EpistemicClassifier(model, layers=["input"], rule=Ball(0.4), progress=False).fit(
        points, labels
    )


def test_every_place_has_what_is_said_about_it_alone(classifier):
    regions = map_regions(classifier.assess, (-2, 3), (-1.5, 1), resolution=12)
    assert (regions.x[0], regions.x[-1]) == (-2, 3)
    assert (regions.y[0], regions.y[-1]) == (-1.5, 1)
    for (row, column), assertion in np.ndenumerate(regions.assertion):
        alone = classifier.assess([[regions.x[column], regions.y[row]]])
        assert assertion == alone.assertion[0]
        assert regions.classes[regions.belief[row, column]] == alone.belief[0]
    assert set(np.unique(regions.assertion)) == {0, 1, 2}  # all that can be asserted is


@pytest.mark.parametrize("limits", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1)])
def test_limits_must_be_a_stretch(classifier, limits):
    with pytest.raises(InputError, match="the lower first"):
        map_regions(classifier.assess, (0, 1), limits)


def test_a_grid_has_more_than_one_place(classifier):
    with pytest.raises(InputError, match="at least 2 places each way; got 1"):
        map_regions(classifier.assess, (0, 1), (0, 1), resolution=1)
