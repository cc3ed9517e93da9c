"""A record of every kind, from a small problem with two layers."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="plots need matplotlib")

from sklearn.datasets import make_moons
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier

from iknow import Ball, EpistemicClassifier, Nearest, RelativeBall, evaluate
from iknow.evaluation.curves import evidence_scatter, map_regions, radius_curve, robust_curve
from iknow.evaluation.plots import (
    draw_confusion,
    draw_evidence,
    draw_radius_curve,
    draw_regions,
    draw_robust,
)


@pytest.fixture(scope="session")
def points():
    points, labels = make_moons(400, noise=0.25, random_state=0)
    return points, np.array(["up", "down"])[labels]


@pytest.fixture(scope="session")
def classifier(points):
    train = points[0][:200], points[1][:200]
    network = MLPClassifier((16, 8), max_iter=2000, random_state=0).fit(*train)
    fitted = EpistemicClassifier(
        FrozenEstimator(network), layers=["input", "logits"], progress=False
    ).fit(*train)
    return fitted.tune(points[0][200:], points[1][200:])


@pytest.fixture(scope="session")
def assessment(classifier, points):
    return classifier.assess(points[0][200:], k=30)


@pytest.fixture(scope="session")
def y_true(points):
    return points[1][200:]


@pytest.fixture(scope="session")
def plots(classifier, assessment, y_true, points):
    """By name: what draws it, the record, and what else is given."""
    alone = assessment.only(["input"])

    def scatter(rule):
        return evidence_scatter(alone.under({"input": rule}))

    regions = map_regions(classifier.assess, (-2, 3), (-1.5, 2), 60)
    return {
        "regions": (draw_regions, regions, points[0][:200], points[1][:200]),
        "radius": (draw_radius_curve, radius_curve(assessment, y_true, "input")),
        "confusion": (draw_confusion, evaluate(assessment, y_true)),
        "evidence": (draw_evidence, scatter(Ball(0.2))),
        "evidence relative": (draw_evidence, scatter(RelativeBall(0.3, 1.6))),
        "evidence quorum": (draw_evidence, scatter(RelativeBall(0.3, 1.6, quorum=(1, 3)))),
        "evidence nearest": (draw_evidence, scatter(Nearest(5))),
        "certified": (draw_robust, robust_curve(assessment, y_true)),
    }


NAMES = [
    "regions", "radius", "confusion", "evidence", "evidence relative",
    "evidence quorum", "evidence nearest", "certified",
]  # fmt: skip


@pytest.fixture(params=NAMES)
def plot(request, plots):
    return plots[request.param]
