"""A sixth rule, defined here alone: it gets all that the five have, and no other file knows it.

A `Crowd` is a ball that must hold at least k samples; one sample in the middle of nowhere, perhaps
mislabeled, is not enough. With k = 1 it is a `Ball`, which serves as the oracle.
"""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from iknow import Ball, EpistemicClassifier, evaluate, make_report, register_rule
from iknow.cli.app import app
from iknow.cli.fit import rule_by_name
from iknow.core.assertion import Assertion, Reason
from iknow.core.rule import NO_REACH, Rule, Stability, distances_of
from iknow.core.slack import count_nearest, parameter_settings
from iknow.errors import BundleError, InputError, SelectionError
from iknow.evaluation.plots import column_figure, draw_evidence
from iknow.report.columns import describe_setting
from iknow.rules import RULES
from iknow.rules.ball import draw_ball
from iknow.testing import RuleContract


@dataclass(frozen=True)
class Crowd(Rule):
    """The ball, where it holds at least k samples; nothing elsewhere."""

    radius: float
    k: int

    axes = ("radius",)

    def reach(self, evidence):
        crowded = evidence.neighbor_distance(self.k) <= self.radius
        return np.where(crowded, self.radius, NO_REACH)

    @property
    def empty_beyond(self):
        return self.radius

    @classmethod
    def box(cls, contrast, k):
        return [(np.maximum(contrast.own, contrast.neighbor_distance(k)), contrast.other)]

    def removals(self, evidence, belief):
        inside = count_nearest(evidence, evidence.neighbor_distances <= self.radius)
        return Stability(np.maximum(inside.at_least - self.k + 1, 1), inside.exact)

    def settings(self, evidence):
        places = np.append(distances_of(evidence), evidence.neighbor_distance(self.k))
        return parameter_settings(self, "radius", evidence, np.unique(places[np.isfinite(places)]))

    def drawing(self):
        return draw_ball(self.radius, Reason.EXTRAPOLATION)  # the k-th neighbor decides the rest


@pytest.fixture(autouse=True)
def registered():
    register_rule(Crowd)
    yield
    del RULES["Crowd"]


class TestCrowd(RuleContract):
    def make_rules(self):
        return [Crowd(0.6, 2), Crowd(1.0, 3), Crowd(1.0, 1)]

    def bad_parameters(self):
        return [{"radius": -1.0}, {"radius": math.nan}, {"k": 0}, {"k": 1.5}]


@pytest.fixture(scope="module")
def parts():
    """Samples and labels to train, to validate and to test."""
    points, labels = make_blobs(900, centers=3, cluster_std=1.3, random_state=0)
    ends = (slice(0, 300), slice(300, 700), slice(700, None))
    return [(points[part], labels[part]) for part in ends]


def fitted(parts, rule, k, **goal):
    model = FrozenEstimator(LogisticRegression().fit(*parts[0]))
    classifier = EpistemicClassifier(model, ["input", "output"], rule, k=k, progress=False)
    return classifier.fit(*parts[0]).tune(*parts[1], **goal)


@pytest.fixture(scope="module")
def tuned(parts):
    return fitted(parts, Crowd, 4)


def test_it_is_tuned_to_the_true_maximum(parts, tuned):
    found = tuned.selection_
    assert found.optimal
    assert {rule.k for rule in found.neighborhoods.values()} == {4}
    scores = tuned.assess(parts[1][0], k=4)
    rng = np.random.default_rng(0)
    for radii in rng.uniform(0, 3, (300, 2)):
        rules = {name: Crowd(r, 4) for name, r in zip(found.neighborhoods, radii, strict=True)}
        assert (scores.under(rules).assertion == Assertion.IK).mean() <= found.coverage
    # As a crowd of one it is a ball, found by the same search.
    alone, ball = fitted(parts, Crowd, 1).selection_, fitted(parts, Ball, 1).selection_
    assert alone.coverage == ball.coverage > found.coverage
    assert [rule.radius for rule in alone.neighborhoods.values()] == [
        rule.radius for rule in ball.neighborhoods.values()
    ]


def test_its_accuracy_is_certified(parts):
    found = fitted(parts, Crowd, 4, accuracy=0.85).selection_
    assert found.certificate.bound >= 0.85
    assert {type(rule) for rule in found.neighborhoods.values()} == {Crowd}


def test_it_is_certified_against_movements(parts, tuned):
    assessment = tuned.assess(parts[2][0], k=8)
    radii = assessment.robust_radius
    assert (radii > 0).mean() > 0.5
    rng = np.random.default_rng(0)
    for i in np.flatnonzero(radii > 0)[:30]:
        steps = rng.normal(size=(50, 2))
        steps *= 0.999 * radii[i] / np.linalg.norm(steps, axis=1, keepdims=True)
        moved = tuned.assess(parts[2][0][i] + steps)
        other = moved.belief != assessment.belief[i]
        assert not (other & (moved.assertion == Assertion.IK)).any()
    # It holds no more than a ball does, and a ball is certified by more.
    balls = {name: Ball(rule.radius) for name, rule in assessment.neighborhoods.items()}
    assert (radii <= assessment.under(balls).robust_radius).all()


def test_it_is_explained(parts, tuned):
    assessment = tuned.assess(parts[2][0], k=8)
    for i in (int(np.argmax(assessment.assertion == code)) for code in Assertion):
        explanation = assessment.explain(i)
        for layer in explanation.layers:
            rule = assessment.neighborhoods[layer.layer]
            assert (layer.slack.parameter, layer.slack.value) == ("radius", rule.radius)
            turned = assessment[i : i + 1]
            for turn in filter(None, [layer.slack.grow]):
                rules = {**assessment.neighborhoods, layer.layer: Crowd(turn.at, 4)}
                assert turned.under(rules).assertion[0] == turn.becomes
        assert str(explanation.layers[0].slack) in str(explanation)
        assert str(explanation.assertion.name) in explanation._repr_html_()


def test_it_is_saved_and_loaded(parts, tuned, tmp_path):
    tuned.save(tmp_path / "b.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "b.iknow", tuned.model)
    assert loaded.rule is Crowd
    assert loaded.neighborhoods_ == tuned.neighborhoods_
    assert loaded.selection_.neighborhoods == tuned.selection_.neighborhoods
    one, other = (each.assess(parts[2][0]).assertion for each in (tuned, loaded))
    np.testing.assert_array_equal(one, other)


def test_without_its_name_it_is_neither_saved_nor_loaded(parts, tuned, tmp_path):
    tuned.save(tmp_path / "b.iknow")
    untuned = EpistemicClassifier(tuned.model, ["input"], Crowd, progress=False)
    untuned.fit(*parts[0])
    del RULES["Crowd"]
    try:
        for classifier in (tuned, untuned):
            with pytest.raises(InputError, match=r"Crowd cannot be saved.*register_rule\(Crowd\)"):
                classifier.save(tmp_path / "c.iknow")
        assert not (tmp_path / "c.iknow").exists()
        with pytest.raises(
            BundleError, match=r"cannot be loaded: .*unknown rule 'Crowd'.*iknow\.register_rule"
        ):
            EpistemicClassifier.load(tmp_path / "b.iknow")
    finally:
        register_rule(Crowd)


def test_it_is_drawn(parts, tuned):
    assessment = tuned.assess(parts[2][0], k=8)
    axes = column_figure().axes[0]
    draw_evidence(axes, assessment, "input")
    radius = assessment.neighborhoods["input"].radius
    assert len(axes.patches) == 1
    assert axes.texts[0].get_text() == "IDK: extrapolation"
    assert axes.patches[0].get_xy()[0].tolist() == [radius, radius]


def test_it_takes_no_quorum_as_it_has_no_such_field(parts):
    classifier = EpistemicClassifier(LogisticRegression(), ["input"], Crowd, quorum=3)
    with pytest.raises(InputError, match=r"Crowd takes no quorum; got \(3, 3\): leave it at 1"):
        classifier.fit(*parts[0])
    assert Crowd(0.6, 2).quorum == (1, 1)


def test_it_is_on_the_command_line():
    assert rule_by_name("crowd") is Crowd
    said = CliRunner().invoke(app, ["fit", "x.npz", "-o", "b.iknow", "--rule", "mob"])
    assert said.exit_code == 2
    assert "crowd" in said.output


def test_it_is_reported(parts, tuned):
    """The figures are Python's own; the page shows a layer with a rule that it cannot mirror."""
    assessment, y_true = tuned.assess(parts[2][0], k=8), parts[2][1]
    report = evaluate(assessment, y_true)
    assert report.f_ik == (assessment.assertion == Assertion.IK).mean()
    page = make_report(assessment, y_true, selection=tuned.selection_)
    setting = describe_setting(assessment.neighborhoods["input"])
    text = repr(assessment.neighborhoods["input"])
    assert setting == {"rule": "Crowd", "text": text, "quorum": (1, 1)}
    assert json.dumps(setting) in page


# Registering


def test_the_same_rule_may_be_registered_again_and_a_namesake_may_not():
    assert register_rule(Crowd) is Crowd
    again = type("Crowd", (Crowd,), {"__qualname__": "Crowd", "__module__": __name__})
    assert register_rule(again) is again  # the cell of a notebook, run a second time
    assert RULES["Crowd"] is again
    with pytest.raises(InputError, match="the name Ball is taken"):
        register_rule(type("Ball", (Crowd,), {"__module__": __name__}))
    assert RULES["Ball"] is Ball


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule, "with a reach"),
        (Ball(1.0), "must be a class"),
        (dict, "must be a class"),
        (
            type("Bare", (Rule,), {"reach": Ball.reach}),
            "frozen dataclass",
        ),
        (dataclass(type("Loose", (Rule,), {"reach": Ball.reach})), "frozen dataclass"),
    ],
)
def test_what_cannot_be_saved_is_not_registered(rule, message):
    before = dict(RULES)
    with pytest.raises(InputError, match=message):
        register_rule(rule)
    assert before == RULES


def test_a_rule_without_a_box_says_so_when_it_is_tuned(parts):
    @dataclass(frozen=True)
    class Bare(Rule):
        radius: float

        def reach(self, evidence):
            return np.full(len(evidence), self.radius)

    for goal in ({}, {"accuracy": 0.9}, {"coverage": 0.5}):
        with pytest.raises(SelectionError, match="Bare"):
            fitted(parts, Bare, 1, **goal)
