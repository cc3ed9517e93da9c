"""A record of every kind, from a small problem with two layers."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="plots need matplotlib")

from sklearn.datasets import make_moons
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier

from iknow import (
    Assessment,
    Ball,
    EpistemicClassifier,
    Evidence,
    Nearest,
    RelativeBall,
    evaluate,
)
from iknow.core.robustness import Movement
from iknow.evaluation.curves import radius_curve
from iknow.evaluation.plots import (
    draw_confusion,
    draw_evidence,
    draw_radius_curve,
    draw_regions,
    draw_robust,
)


def with_distances(distances, rule=None):
    """An assessment by one layer, of samples that are believed to be of the first class."""
    distances = np.asarray(distances, dtype=float)
    n = len(distances)
    return Assessment(
        classes=np.arange(distances.shape[1]),
        belief_codes=np.zeros(n, dtype=np.int64),
        scores=np.eye(distances.shape[1])[np.zeros(n, dtype=int)],
        evidence={
            "a": Evidence(distances, np.sort(distances, axis=1), np.zeros(distances.shape, int))
        },
        neighborhoods={"a": rule or Ball(1.0)},
        invalid=np.zeros(n, dtype=bool),
        movements={"a": Movement(1.0)},
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
    """By name: what draws it, and what it is given."""
    alone = assessment.only(["input"])

    def under(rule):
        return alone.under({"input": rule})

    plane = classifier.assess, (-2, 3), (-1.5, 2)
    return {
        "regions": (draw_regions, *plane, points[0][:200], points[1][:200], 60),
        "radius": (draw_radius_curve, radius_curve(assessment, y_true, "input")),
        "confusion": (draw_confusion, evaluate(assessment, y_true)),
        "evidence": (draw_evidence, under(Ball(0.2))),
        "evidence relative": (draw_evidence, under(RelativeBall(0.3, 1.6))),
        "evidence quorum": (draw_evidence, under(RelativeBall(0.3, 1.6, quorum=(1, 3)))),
        "evidence nearest": (draw_evidence, under(Nearest(5))),
        "certified": (draw_robust, assessment, y_true),
    }


NAMES = [
    "regions", "radius", "confusion", "evidence", "evidence relative",
    "evidence quorum", "evidence nearest", "certified",
]  # fmt: skip


@pytest.fixture(params=NAMES)
def plot(request, plots):
    return plots[request.param]
