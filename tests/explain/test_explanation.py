"""Explanations: the training samples for and against a belief, as a record and as text."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from iknow import EpistemicClassifier
from iknow.core.assertion import Assertion, Reason
from iknow.core.slack import ChangePoint, Slack
from iknow.explain.explanation import SENTENCES, Exemplar, LayerExplanation
from iknow.explain.picture import Features, as_image
from iknow.explain.voices import tell_apart, tell_chance
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from tests import oracles
from tests.oracles import make_levels

CLASSES = np.array(["cat", "dog", "owl"])


@pytest.fixture(scope="session")
def explain_one(assess_by):
    """The explanation of one sample in one layer."""

    def run(evidence, rule, belief=0, classes=CLASSES):
        return assess_by([evidence], [rule], [belief], classes).explain(0).layers[0]

    return run


def test_a_layer_is_explained_by_its_exemplars_reach_and_support(assessment):
    explanation = assessment.explain(1)
    assert (explanation.index, explanation.belief) == (1, "dog")
    assert (explanation.assertion, explanation.reason) == (Assertion.IMK, Reason.OVERLAP)
    assert explanation.layers == (
        LayerExplanation(
            layer="hidden",
            samples_for=(Exemplar(11, "dog", 1.5),),
            samples_against=(Exemplar(10, "cat", 1.0),),
            quorum=(1, 1),
            reach=1.5,
            support=("cat", "dog"),
            margin=-0.5,
            slack=Slack("radius", 1.5, shrink=ChangePoint(1.0, Assertion.IDK), grow=None),
        ),
        LayerExplanation(
            layer="logits",
            samples_for=(Exemplar(11, "dog", 2.0),),
            samples_against=(Exemplar(10, "cat", 5.0),),
            quorum=(1, 1),
            reach=2.0,
            support=("dog",),
            margin=0.0,
            slack=Slack("radius", 2.0, shrink=ChangePoint(2.0, Assertion.IDK), grow=None),
        ),
    )


def test_an_explanation_reads_as_text(assessment):
    assert str(assessment.explain(1)) == (
        "sample 1: IMK, belief dog\n"
        "  OVERLAP: several classes have enough samples within reach in at least one layer: hidden "
        "finds cat and dog within the reach 1.5\n"
        "  hidden: cat and dog within the reach 1.5; radius 1.5, IDK if below 1\n"
        "    for      #11 (dog) at 1.5\n"
        "    against  #10 (cat) at 1\n"
        "  logits: dog within the reach 2; radius 2, IDK if below 2\n"
        "    for      #11 (dog) at 2\n"
        "    against  #10 (cat) at 5"
    )


def test_an_ik_says_what_it_rests_on(assessment):
    assert str(assessment.explain(0)).endswith(
        "\n  rests on 1 training sample: without it it would not be known"
    )


def test_what_is_missing_reads_as_none_nothing_and_no_sample(assessment):
    neighborhoods = {"hidden": BallWithNearest(1, 2), "logits": Ball(2)}
    explanation = assessment.under(neighborhoods).explain(5)
    assert [layer.reach for layer in explanation.layers] == [None, None]
    assert explanation.margin == -np.inf
    assert str(explanation) == (
        "sample 5: IDK, belief cat\n"
        "  INVALID: an activation is not finite, or the model gives no answer\n"
        "  hidden: no training sample within reach\n"
        "    for      no sample\n"
        "    against  no sample\n"
        "  logits: no training sample within reach\n"
        "    for      no sample\n"
        "    against  no sample"
    )


SENTENCE_OF_EACH = [
    "in every layer only the believed class has enough samples within reach: hidden finds cat "
    "within the reach 1.5; logits finds cat within the reach 2",
    "several classes have enough samples within reach in at least one layer: hidden finds cat and "
    "dog within the reach 1.5",
    "each layer finds enough samples of one class within reach, but not of the same one: hidden "
    "finds dog within the reach 1.5; logits finds cat within the reach 2",
    "at least one layer has too few training samples within reach: logits finds no training sample "
    "within the reach 2; the nearest is #10 (cat) at 3",
    "other classes have enough samples within reach, the believed class has not: hidden finds cat "
    "within the reach 1.5; logits finds cat within the reach 2",
    "an activation is not finite, or the model gives no answer",
]


@pytest.mark.parametrize("reason", list(Reason)[:6])
def test_the_sentence_names_what_the_layers_found(assessment, reason):
    explanation = assessment.explain(int(reason))
    assert explanation.reason == reason
    assert explanation.sentence == SENTENCE_OF_EACH[reason]


def test_samples_and_exemplars_are_pictured_where_they_are_given(assessment):
    samples = np.arange(6 * 4).reshape(6, 4) / 24
    training = {10: np.zeros(4), 11: np.ones(4)}
    explanation = assessment.explain(1, samples=samples, training=training)
    assert explanation.picture == Features(tuple(samples[1].tolist()))
    assert explanation.layers[0].samples_for[0].picture == Features((1.0,) * 4)
    seen = assessment.explain(1, samples=samples, training=training, renderer=as_image(2, 2))
    np.testing.assert_array_equal(seen.picture.pixels, np.rint(samples[1] * 255).reshape(2, 2))


def test_a_row_that_the_training_samples_do_not_have_is_not_pictured(assessment):
    explanation = assessment.explain(1, training=np.zeros((11, 4)))
    assert explanation.layers[0].samples_for[0].picture is None  # row 11
    assert explanation.layers[0].samples_against[0].picture is not None  # row 10


def test_the_slack_of_a_layer_is_that_of_the_layer_alone(evidence_from, explain_one):
    layer = explain_one(evidence_from([[1, 1.25, 9]], n_neighbors=0), Ball(1.5))
    assert layer.slack == Slack("radius", 1.5, shrink=ChangePoint(1.25, Assertion.IK), grow=None)


def test_every_reason_has_its_sentence():
    assert set(SENTENCES) == set(Reason)
    assert len(set(SENTENCES.values())) == len(Reason)


@pytest.mark.parametrize(
    ("rule", "reach", "support"),
    [
        (Ball(2), 2.0, ("cat",)),
        (Nearest(2), 3.0, ("cat", "owl")),
        (BallElseNearest(1, 2), 1.0, ("cat",)),
        (BallElseNearest(0.5, 2), 3.0, ("cat", "owl")),
        (BallWithNearest(1, 2), 3.0, ("cat", "owl")),
        (BallWithNearest(0.5, 2), None, ()),
        (RelativeBall(1, 3), 3.0, ("cat", "owl")),
        (RelativeBall(1, 2.5), 2.5, ("cat",)),
        (RelativeBall(0.5, 3), None, ()),
        (RelativeBall(1, 0.5), 1.0, ("cat",)),
    ],
    ids=repr,
)
def test_reach_and_support_are_those_of_the_rule(rule, reach, support, evidence_from, explain_one):
    layer = explain_one(evidence_from([[1, 4, 3]], n_neighbors=2), rule)
    assert (layer.reach, layer.support) == (reach, support)


@pytest.mark.parametrize(
    ("belief", "reach", "support"),
    [(0, 1.0, ("cat",)), (1, 4.0, ("cat", "dog")), (2, 3.0, ("cat", "owl"))],
)
def test_with_a_reach_for_each_class_the_one_shown_is_that_of_the_believed_one(
    belief, reach, support, evidence_from, explain_one
):
    evidence = evidence_from([[1, 4, 3]], n_neighbors=0)
    layer = explain_one(evidence, RelativeBall(9, 0.5), belief)
    assert (layer.reach, layer.support) == (reach, support)
    assert type(layer.reach) is float


def test_the_exemplar_against_is_the_nearest_of_all_other_classes(evidence_from, explain_one):
    evidence = evidence_from([[4, 3, 2]], n_neighbors=0)
    against = [explain_one(evidence, Ball(1), belief).samples_against[0].row for belief in range(3)]
    assert against == [12, 12, 11]


def test_exemplars_out_of_reach_are_still_named(evidence_from, explain_one):
    layer = explain_one(evidence_from([[7, 8, 9]], n_neighbors=0), Ball(1))
    assert layer.samples_for[0] == Exemplar(10, "cat", 7.0)
    assert layer.samples_against[0] == Exemplar(11, "dog", 8.0)


@pytest.mark.parametrize("belief", [0, 1, 2])
def test_without_samples_of_the_believed_class_there_is_no_exemplar_for(
    belief, evidence_from, explain_one
):
    distances = [[1.0, 2.0, 3.0]]
    distances[0][belief] = np.inf
    layer = explain_one(evidence_from(distances, n_neighbors=0), Ball(5), belief)
    assert not layer.samples_for
    assert layer.samples_against


@pytest.mark.parametrize("belief", [0, 1, 2])
def test_without_samples_of_another_class_there_is_no_exemplar_against(
    belief, evidence_from, explain_one
):
    distances = np.full((1, 3), np.inf)
    distances[0, belief] = 1.0
    layer = explain_one(evidence_from(distances, n_neighbors=0), Ball(5), belief)
    assert layer.samples_for[0] == Exemplar(10 + belief, CLASSES[belief], 1.0)
    assert not layer.samples_against


@pytest.mark.parametrize(
    ("classes", "kind"),
    [(np.array([3, 5, 8]), int), (CLASSES, str), (np.array([1, "b", None], dtype=object), int)],
    ids=["int", "str", "object"],
)
def test_a_record_holds_plain_values(classes, kind, evidence_from, explain_one):
    layer = explain_one(evidence_from([[1, 4, 3]], n_neighbors=2), Nearest(2), classes=classes)
    assert type(layer.samples_for[0].label) is kind
    assert type(layer.support[0]) is kind
    assert type(layer.samples_for[0].row) is int
    assert type(layer.samples_for[0].distance) is float
    assert type(layer.reach) is float


def test_an_exemplar_shows_four_digits_of_its_distance():
    assert str(Exemplar(7, "cat", 1 / 3)) == "#7 (cat) at 0.3333"


@pytest.fixture
def crowd():
    """One query on a line with cats at 1, 4 and 5, dogs at 2, 2.5 and 3, and an owl at 1.5."""
    train = np.array([1.0, 4, 5, 2, 2.5, 3, 1.5])[:, None]
    labels = np.array([0, 0, 0, 1, 1, 1, 2])
    return oracles.gather(train, labels, np.zeros((1, 1)), 3, 7, per_class=6)


def test_with_a_quorum_all_samples_are_named(crowd, explain_one):
    layer = explain_one(crowd, Ball(2.5, quorum=(1, 3)))
    assert layer.samples_for == (Exemplar(0, "cat", 1.0),)
    # The owl is nearer, but alone; two of three dogs are within reach.
    dogs = [(3, 2.0), (4, 2.5), (5, 3.0)]
    assert layer.samples_against == tuple(Exemplar(row, "dog", at) for row, at in dogs)
    assert (layer.support, layer.margin) == (("cat",), 0.5)
    assert layer.slack == Slack(
        "radius", 2.5, shrink=ChangePoint(1.0, Assertion.IDK), grow=ChangePoint(3.0, Assertion.IMK)
    )
    assert str(layer).splitlines()[1:3] == [
        "  for      #0 (cat) at 1",
        "  against  #3 (dog) at 2, #4 (dog) at 2.5, #5 (dog) at 3",
    ]
    both = explain_one(crowd, Ball(2.5, quorum=2))
    assert [each.row for each in both.samples_for] == [0, 1]
    assert both.support == ("dog",)


def test_a_class_with_too_few_samples_says_so(crowd, explain_one):
    layer = explain_one(crowd, Ball(2.5, quorum=(2, 3)), belief=2)
    assert layer.support == ()
    assert layer.margin == -np.inf
    assert "  for      #6 (owl) at 1.5 (of 2 needed)" in str(layer)
    assert layer.summary.startswith(
        "layer0 finds too few samples of any class within the reach 2.5; the nearest is #6 (owl)"
    )


def test_a_relative_ball_says_what_ik_needs(crowd, explain_one):
    far = explain_one(crowd, RelativeBall(0.5, 2, quorum=(1, 3)))
    assert far.reach is far.slack is None
    assert far.findings == (
        "nearness 1, too far (IK: 0.5 or less)",
        "clarity 3 (IK: above 2)",
    )
    near = explain_one(crowd, RelativeBall(1.5, 3, quorum=(1, 3)))
    assert near.voices[1].fact == (
        "the third nearest training sample of another class (“dog”) is 3 away, 3 times as far as "
        "the nearest of “cat” (1); IK needs more than 3 times"
    )


def test_an_ik_says_what_changes_it_stands(crowd, assess_by):
    for rule, stands in [
        (Ball(4.0, quorum=(1, 6)), "; it stands whatever 1 sample is added, removed or relabeled"),
        (Ball(2.5, quorum=(1, 3)), "would not be known"),
    ]:
        explanation = assess_by([crowd], [rule], [0], CLASSES).explain(0)
        assert explanation.assertion == Assertion.IK
        assert str(explanation).endswith(stands)


def test_a_level_is_told_with_the_voice_that_decides(crowd, assess_by):
    rule = RelativeBall(1.5, 1.0)
    levels = make_levels({"layer0": ([0.5, 2.0, 4.0, 4.0], [1.0, 2.0, 3.5, 4.0])})
    more = {"levels": levels, "least_level": 0.2}
    explanation = assess_by([crowd], [rule], [0], CLASSES, **more).explain(0)
    # Three of four reference samples are as far as 1; one of four is at most 1.5 times as clear.
    assert (explanation.level, explanation.deciding.title) == (0.25, "clarity in layer0")
    assert explanation.sentence == (
        "every voice agrees (clarity in layer0 is closest to failing): the nearest training sample "
        "of another class (“owl”) is 1.5 away, 1.5 times as far as that of “cat” (1); IK needs "
        "more than 1 times"
    )
    standing = "level 0.25 (IK from 0.2 on), the model's probability 0.58"
    assert f"\n  {standing}\n" in str(explanation)
    assert f"L{standing[1:]}." in re.sub("&#x27;", "'", explanation._repr_html_())
    assert "level" not in str(assess_by([crowd], [rule], [0], CLASSES).explain(0))


LIMITS = {"nearness": "radius", "clarity": "ratio", "familiarity": "seen"}


@pytest.mark.parametrize(
    "goal", [{"coverage": 0.6}, {"coverage": 0.97}, {"accuracy": 0.6}], ids=str
)
def test_what_is_said_is_what_decides(goal):
    """The oracle moves the limit of one voice at a time and lets the classifier assert anew."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    X = rng.normal(0, 1, (900, 4)) + 1.5 * np.eye(3, 4)[y]
    model = LogisticRegression().fit(X[:300], y[:300])
    ec = EpistemicClassifier(model, quorum=3, progress=False).fit(X[:300], y[:300])
    ec.tune(X[300:700], y[300:700], **goal)
    a = ec.assess(np.vstack([X[700:740], 3 * X[700:710], 9 * X[700:710]]))
    (layer,) = a.evidence
    loose = {"nearness": np.inf, "clarity": 0.0, "familiarity": np.inf, "confidence": -np.inf}
    heard = set()
    for i, one in enumerate(a):
        explanation = a.explain(i)
        assert explanation.voices
        for voice in explanation.voices:  # what a voice finds is what IK by it alone asks
            asked = {name: rule for name, rule in loose.items() if name != voice.voice}
            rule = a.neighborhoods[layer]
            others = {LIMITS[name]: value for name, value in asked.items() if name in LIMITS}
            least = asked.get("confidence", a.least_confidence)
            alone = replace(
                one, neighborhoods={layer: replace(rule, **others)}, decisions=None,
                least_confidence=least,
            )  # fmt: skip
            assert voice.holds == (alone.assertion[0] == Assertion.IK)
            assert voice.level >= explanation.level
            assert voice.holds == (voice.level >= a.least_level)
        decides = explanation.deciding
        heard.add((explanation.reason, decides.voice))
        assert decides.title == a.weakest[i]
        assert decides.holds == (explanation.assertion == Assertion.IK)
        failing = {v.voice for v in explanation.voices if not v.holds}
        if explanation.assertion == Assertion.IDK:
            assert decides.voice in {"nearness", "familiarity"} & failing
        elif explanation.assertion == Assertion.IMK:
            assert decides.voice == ("clarity" if "clarity" in failing else "confidence")
        else:
            assert decides.level == explanation.level
    assert len(heard) >= 3


def test_numbers_are_told_with_as_many_digits_as_set_them_apart():
    assert tell_apart(1.23456, 1.23451) == ("1.2346", "1.2345")
    assert tell_apart(1.23456, 1.23456) == ("1.235", "1.235")
    assert tell_chance(0.0) == "0.50"
    assert tell_chance(np.log(0.99991 / 0.00009)) == "0.999910"
    assert tell_chance(30.0) == "1 - 9.4e-14"
    assert tell_apart(2.0, 2.0001, tell_chance) == ("0.88080", "0.88081")
