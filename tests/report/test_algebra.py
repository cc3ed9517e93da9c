"""The page's algebra is Python's: on random evidence, with ties, infinities and every rule.

It runs in a real browser, on real pages, so the packing of the evidence is tested as well.
"""

import dataclasses
import json

import numpy as np
import pytest

from iknow import (
    Assertion,
    Assessment,
    Ball,
    BallElseNearest,
    BallWithNearest,
    Nearest,
    Reason,
    RelativeBall,
    evaluate,
)
from iknow.core.robustness import Movement
from iknow.core.rule import NO_REACH, Rule
from iknow.report import make_report
from iknow.report.assemble import to_json
from iknow.report.columns import describe_setting

pytestmark = pytest.mark.slow  # a browser

ASSESS = """
const tried = arguments[0];
return tried.map((settings) => {
  const found = Algebra.assess(Report.page.evidence, settings.map(read));
  return [[...found.assertion], [...found.reason], [...found.margin].map(String)];
});
"""

READ = "const read = (setting) => Rules.readSetting(setting);"


PAIRS = "return [...Report.page.summary.pairs].sort((one, other) => one[0] - other[0])"


def random_assessment(seed, gathered, quorum=(1, 1)):
    """Points on a small grid, so that distances tie; classes without samples; invalid queries."""
    rng = np.random.default_rng(seed)
    n, n_classes, n_layers = 50, int(rng.integers(1, 7)), int(rng.integers(1, 4))
    n_neighbors = int(rng.integers(10, 15))  # a rule may ask about the tenth
    evidence = {}
    for layer in [f"layer {i}" for i in range(n_layers)]:
        n_train = int(rng.integers(1, 25))  # fewer than the neighbours: some of them at infinity
        scale = rng.choice([1.0, 1 / 3])
        train = rng.integers(0, 5, size=(n_train, 2)) * scale
        queries = rng.integers(0, 5, size=(n, 2)) * scale
        labels = rng.integers(n_classes, size=n_train)
        evidence[layer] = gathered(
            train, labels, queries, n_classes, n_neighbors, per_class=max(quorum)
        )
    assessment = Assessment(
        classes=np.arange(n_classes),
        belief_codes=rng.integers(n_classes, size=n),
        scores=rng.normal(size=(n, n_classes)),
        evidence=evidence,
        neighborhoods=dict.fromkeys(evidence, Ball(1.0, quorum=quorum)),
        invalid=rng.random(n) < 0.1,
        knowable=None if seed % 3 else range(0, n_classes, 2),
        least_confidence=-1.0 if seed % 2 else -np.inf,
    )
    return assessment, rng


def under(assessment, rules):
    """The same with other rules and the same doubts, as the page's sliders have it."""
    return dataclasses.replace(assessment, neighborhoods=rules)


def random_radii(rng, assessment, size):
    """Radii that equal distances in the data, so that closed balls matter, and a few others."""
    distances = np.concatenate([e.class_distances.ravel() for e in assessment.evidence.values()])
    others = np.array([0.0, np.inf, 0.7, 1.9])
    return rng.choice(np.concatenate([distances, others]), size=size)


def random_rule(rng, assessment):
    radius = float(random_radii(rng, assessment, 1)[0])
    k = int(rng.integers(1, next(iter(assessment.evidence.values())).n_neighbors + 1))
    ratio = float(rng.choice([0.0, 0.5, 2**-0.5, 1.0, 1.5, 2**0.5, 2.0, 3.0]))
    tenth = np.concatenate([e.neighbor_distance(10) for e in assessment.evidence.values()])
    rule = [
        Ball(radius),
        Nearest(k),
        BallElseNearest(radius, k),
        BallWithNearest(radius, k),
        RelativeBall(radius, ratio),
        RelativeBall(radius, ratio, float(rng.choice(tenth))),
    ][rng.integers(6)]
    quorum = next(iter(assessment.neighborhoods.values())).quorum  # the page keeps it
    return dataclasses.replace(rule, quorum=quorum)


def as_json(rules):
    """Settings as they are written in the page."""
    return json.loads(to_json([describe_setting(rule) for rule in rules]))


def assert_same(found, assessment):
    """Assertions and reasons exactly; margins exactly, or to single precision of r_k."""
    assertion, reason, margin = found
    np.testing.assert_array_equal(assertion, assessment.assertion)
    np.testing.assert_array_equal(reason, assessment.reason)
    margin = np.array(margin, dtype=float)
    if any(rule.n_neighbors for rule in assessment.neighborhoods.values()):
        np.testing.assert_allclose(margin, assessment.margin, rtol=1e-6, atol=1e-6)
        # Rounding must not move a margin to the other side of 0.
        assert (np.sign(margin) * np.sign(assessment.margin) >= 0).all()
        np.testing.assert_array_equal(margin[assessment.margin == 0], 0)
    else:
        np.testing.assert_array_equal(margin, assessment.margin)


@pytest.mark.parametrize("quorum", [(1, 1), (1, 3), (2, 1), (2, 2)])
@pytest.mark.parametrize("seed", range(6))
def test_assertions_reasons_and_margins_equal_pythons(seed, quorum, gathered, open_page):
    assessment, rng = random_assessment(seed, gathered, quorum=quorum)
    page = open_page(make_report(assessment))
    tried = [
        {layer: random_rule(rng, assessment) for layer in assessment.evidence} for _ in range(80)
    ]
    found = page.run(READ + ASSESS, [as_json(rules.values()) for rules in tried])
    for rules, columns in zip(tried, found, strict=True):
        assert_same(columns, under(assessment, rules))


def test_the_pages_own_settings_are_the_given_ones(gathered, open_page):
    for seed in range(200, 206):
        assessment, rng = random_assessment(seed, gathered, quorum=(1, 1 + seed % 3))
        rules = {layer: random_rule(rng, assessment) for layer in assessment.evidence}
        assessment = under(assessment, rules)
        y_true = rng.choice(assessment.classes, size=len(assessment))
        page = open_page(make_report(assessment, y_true))
        assert page.run("return Report.page.isGiven()")
        assert page.run("return [...Report.page.assessed.assertion]") == list(assessment.assertion)
        report = evaluate(assessment, y_true)
        assert page.run(PAIRS) == [
            [place, count] for place, count in enumerate(report.matrix.ravel().tolist()) if count
        ]
        assert page.run("return Report.page.summary.reasons") == list(report.reasons.values())


def random_movement(rng, constant, n):
    """With rounding, bisectors and stretches that decide now and then, or without."""
    if rng.random() < 0.3:
        return Movement(constant)
    rounding = rng.choice([0.0, 1e-9, 0.3, np.inf], size=n, p=[0.2, 0.3, 0.4, 0.1])
    crossing = rng.choice([-np.inf, 0.2, 1.7, np.inf], size=n, p=[0.4, 0.3, 0.2, 0.1])
    stretch = rng.choice([1.0, 1e-3, 0.7, 40.0], size=n)
    return Movement(constant, rounding * rng.random(n), crossing * rng.random(n), stretch)


def test_certified_radii_equal_pythons(gathered, open_page):
    script = READ + (
        "return arguments[0].map((settings) => [...Rules.robustRadii(Report.page.evidence,"
        "settings.map(read))].map(String));"
    )
    certified = 0
    for seed in range(400, 412):
        quorum = [(1, 1), (1, 3), (3, 1), (2, 2)][seed // 2 % 4]
        assessment, rng = random_assessment(seed, gathered, quorum)
        constants = rng.choice([0.0, 0.5, 1.0, 3.7, np.inf], size=len(assessment.evidence))
        movements = {
            layer: random_movement(rng, constant, len(assessment))
            for layer, constant in zip(assessment.evidence, constants.tolist(), strict=True)
        }
        assessment = dataclasses.replace(assessment, movements=movements)
        page = open_page(make_report(assessment))
        tried = [
            {layer: random_rule(rng, assessment) for layer in assessment.evidence}
            for _ in range(40)
        ]
        found = page.run(script, [as_json(rules.values()) for rules in tried])
        for rules, radii in zip(tried, found, strict=True):
            expected = under(assessment, rules).robust_radius
            np.testing.assert_array_equal(np.array(radii, dtype=float), expected)
            certified += int((np.isfinite(expected) & (expected > 0)).sum())
    assert certified > 1000


def test_slack_equals_pythons(gathered, open_page):
    script = (
        READ
        + """
    const settings = arguments[0].map(read);
    return arguments[1].map((i) => settings.map((_, l) => {
      const found = Detail.findSlack(Report.page.evidence, settings, i, l);
      if (found === null) return [null, null];
      const turn = (t) => (t === null ? null : [String(t.at), t.becomes]);
      return [found.parameter, String(found.value), turn(found.shrink), turn(found.grow)];
    }));
    """
    )
    turned = 0
    for seed in range(300, 314):
        quorum = (1, 1) if seed < 307 else (1, 3)
        assessment, rng = random_assessment(seed, gathered, quorum)
        rules = {layer: random_rule(rng, assessment) for layer in assessment.evidence}
        assessment = under(assessment, rules)
        page = open_page(make_report(assessment))
        valid = np.flatnonzero(~assessment.invalid).tolist()
        found = page.run(script, as_json(assessment.neighborhoods.values()), valid)
        for i, layers in zip(valid, found, strict=True):
            for layer, (parameter, value, *turns) in zip(
                assessment.explain(i).layers, layers, strict=True
            ):
                slack = layer.slack
                if slack is None:  # its voices say it
                    assert parameter is None
                    continue
                assert (parameter, float(value)) == (slack.parameter, slack.value)
                for turn, expected in zip(turns, (slack.shrink, slack.grow), strict=True):
                    assert (turn is None) == (expected is None)
                    if turn is not None:
                        turned += 1
                        assert (float(turn[0]), turn[1]) == (expected.at, int(expected.becomes))
    assert turned > 120


@dataclasses.dataclass(frozen=True)
class Crowded(Rule):
    """A rule of a user's own: a share of the distance to the k-th neighbor, or none beyond it."""

    k: int
    share: float
    furthest: float

    @property
    def empty_beyond(self):
        return self.furthest

    def reach(self, evidence):
        near = evidence.nearest_distance() <= self.furthest
        return np.where(near, self.share * evidence.neighbor_distance(self.k), NO_REACH)


@dataclasses.dataclass(frozen=True)
class Partial(Rule):
    """Another one, which looks further for some classes than for others."""

    radius: float

    def reach(self, evidence):
        return np.tile(self.radius * (1 + np.arange(evidence.n_classes) % 3), (len(evidence), 1))


Partial.__name__ = "Nearest"  # a name of ours makes it none of ours


def test_a_rule_without_a_mirror_is_shown_as_python_has_it(gathered, open_page):
    seen, certified = set(), 0
    for seed in range(500, 506):
        assessment, rng = random_assessment(seed, gathered)
        own = [Crowded(3, 0.9, 1.5), Crowded(2, 1.4, np.inf), Partial(0.6)]
        rules = {
            layer: own[(seed + place) % 3] if place % 2 == 0 else random_rule(rng, assessment)
            for place, layer in enumerate(assessment.evidence)
        }
        movements = {layer: random_movement(rng, 0.7, len(assessment)) for layer in rules}
        assessment = dataclasses.replace(under(assessment, rules), movements=movements)
        page = open_page(make_report(assessment))
        found = page.run(
            "const { assertion, reason, margin, radius } = Report.page.assessed;"
            "return [[...assertion], [...reason], [...margin].map(String), [...radius].map(String)]"
        )
        assert_same(found[:3], assessment)
        np.testing.assert_array_equal(np.array(found[3], dtype=float), assessment.robust_radius)
        fixed = [rule for rule in rules.values() if type(rule) in (Crowded, Partial)]
        controls = page.text("#controls")
        for layer, rule in rules.items():
            text = f"Layer {layer}: {rule!r}. Fixed: this page cannot move it."
            assert (text in controls) == (rule in fixed)
        details = page.run(
            "return Array.from({ length: 12 }, (_, i) => {"
            "Report.page.choose(4 * i); return document.getElementById('detail').textContent; })"
        )
        assert not [words for words in details if "NaN" in words or "undefined" in words]
        seen |= set(assessment.reason.tolist())
        certified += int((assessment.robust_radius > 0).sum())
        # Another rule can still be tried in its place.
        page.set("#rule", "Ball")
        radii = page.run("return Report.page.settings.map((setting) => String(setting.radius))")
        balls = {layer: Ball(float(radius)) for layer, radius in zip(rules, radii, strict=True)}
        assert page.run("return [...Report.page.assessed.reason]") == list(
            under(assessment, balls).reason
        )
        page.click("#reset")
        assert page.run("return [...Report.page.assessed.reason]") == list(assessment.reason)
    assert seen == set(Reason)
    assert certified > 50


def test_the_random_evidence_has_everything_in_it(gathered):
    reasons, assertions, ties, infinite = set(), set(), 0, 0
    for seed in range(12):
        assessment, rng = random_assessment(seed, gathered)
        for _ in range(20):
            rules = {layer: random_rule(rng, assessment) for layer in assessment.evidence}
            tried = under(assessment, rules)
            reasons |= set(tried.reason.tolist())
            assertions |= set(tried.assertion.tolist())
            ties += int((tried.margin == 0).sum())
            infinite += int(np.isinf(tried.margin).sum())
    assert reasons == set(Reason)
    assert assertions == {int(a) for a in Assertion}
    assert ties > 100
    assert infinite > 100
