"""What the user asks for is checked before any work starts, and a failed fit loses nothing."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier, Nearest, RelativeBall
from iknow.classifier.plan import (
    CheckedParameters,
    as_layer_names,
    as_quorums,
    fixed_rules,
)
from iknow.core.rule import Rule
from iknow.errors import InputError, SelectionError
from iknow.models import PrecomputedModel


def settings(rule, k):
    classifier = EpistemicClassifier(PrecomputedModel(), layers="a", rule=rule, k=k, quorum=1)
    return CheckedParameters(classifier, PrecomputedModel(), None)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    return rng.standard_normal((60, 3)) + 3 * y[:, None], y


def test_a_single_layer_may_be_named_alone(data):
    alone = EpistemicClassifier(LogisticRegression(), layers="output").fit(*data)
    listed = EpistemicClassifier(LogisticRegression(), layers=["output"]).fit(*data)
    assert alone.layers_ == listed.layers_ == ("output",)
    assert as_layer_names(np.array(["a", "b"])) == ("a", "b")
    assert as_layer_names(None) is None


@pytest.mark.parametrize("layers", [[], [1], ["a", "a"]])
def test_layers_that_are_no_names_are_refused(layers):
    with pytest.raises(InputError, match="layer"):
        as_layer_names(layers)


@pytest.mark.parametrize("rule", ["Ball", 0.5, int, None])
def test_what_is_no_rule_is_refused(rule, data):
    with pytest.raises(InputError, match=r"a class such as Ball, one such as Ball\(0.5\)"):
        EpistemicClassifier(LogisticRegression(), rule=rule).fit(*data)


@pytest.mark.parametrize("given", [0.5, [Ball(1.0)], "Ball"])
def test_neighborhoods_of_another_type_are_refused(given):
    with pytest.raises(InputError, match=r"such as Ball\(0.5\)"):
        fixed_rules(given, 5, ["a"], (1, 1))


def test_neighborhoods_by_layer_are_checked_one_by_one():
    with pytest.raises(InputError, match="layer 'b'"):
        fixed_rules({"a": Ball(1.0), "b": 0.5}, 5, ["a", "b"], (1, 1))
    with pytest.raises(InputError, match="needed for the layers 'a', 'b'; got them for 'a'"):
        fixed_rules({"a": Ball(1.0)}, 5, ["a", "b"], (1, 1))


def test_only_a_rule_with_a_radius_is_left_to_tune():
    assert fixed_rules(Ball, 5, ["a"], (1, 1)) is None
    assert fixed_rules(RelativeBall, 5, ["a"], (1, 1)) is None
    assert fixed_rules(Nearest, 7, ["a"], (2, 1)) == {"a": Nearest(7, quorum=(2, 1))}


@pytest.mark.parametrize(
    ("rule", "quorum", "expected"),
    [
        (RelativeBall, None, (1, 3)),
        (Ball, None, (1, 1)),
        (Nearest, None, (1, 1)),
        (RelativeBall, 1, (1, 1)),
        (Ball, 2, (2, 2)),
        (Ball, (2, 5), (2, 5)),
        (Ball, [np.int64(2), 5], (2, 5)),
    ],
)
def test_a_quorum_is_one_number_or_two_and_each_rule_has_a_usual_one(rule, quorum, expected, data):
    assert as_quorums(quorum, rule)[0] == expected
    inputs = np.eye(2)[data[1]], {"input": data[0]}
    classifier = EpistemicClassifier(PrecomputedModel(), rule=rule, quorum=quorum, k=5)
    classifier.fit(inputs, data[1])
    if rule is not Nearest:
        classifier.tune((inputs[0], {"input": data[0] + 0.1}), data[1])
    assert [each.quorum for each in classifier.neighborhoods_.values()] == [expected]


@pytest.mark.parametrize("quorum", [0, -1, 1.5, "3", True, (1, 2, 3), (1, 0), (), {"for": 1}])
def test_a_quorum_that_is_none_is_refused(quorum, data):
    classifier = EpistemicClassifier(LogisticRegression(), quorum=quorum)
    with pytest.raises(InputError, match=r"a quorum must be a whole number >= 1, or two"):
        classifier.fit(*data)


@pytest.mark.parametrize("quorum", [61, (1, 2**70)])
def test_a_quorum_larger_than_the_training_set_is_refused(quorum):
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    model = LogisticRegression().fit(X, y)
    for given in ({"quorum": quorum}, {"rule": Ball(1.0, quorum=quorum)}):
        with pytest.raises(InputError, match="is more than the 60 training samples"):
            EpistemicClassifier(model, **given).fit(X, y)


@pytest.mark.parametrize("quorum", [None, 2, (1, 3)])
def test_a_quorum_is_a_parameter_like_any_other(quorum):
    classifier = EpistemicClassifier(LogisticRegression(), quorum=quorum)
    assert classifier.get_params()["quorum"] == quorum
    assert clone(classifier).quorum == quorum
    assert clone(classifier).set_params(quorum=4).quorum == 4


def test_fixed_neighborhoods_bring_their_own_quorum(data):
    rule = Ball(1.0, quorum=(2, 3))
    classifier = EpistemicClassifier(LogisticRegression(), rule=rule).fit(*data)
    assert set(classifier.neighborhoods_.values()) == {rule}
    assert classifier.assess(data[0]).evidence["input"].per_class >= 3


def test_k_is_compared_with_the_training_set_only_where_it_is_used():
    three = np.array([0, 1, 1])
    settings(Ball, k=99).check_labels(three)
    settings({"a": Nearest(3)}, k=99).check_labels(three)
    with pytest.raises(InputError, match=r"k=4 is more than the 3 training samples"):
        settings({"a": Nearest(4)}, k=1).check_labels(three)


def test_classes_that_differ_from_the_models_own_are_refused(data):
    EpistemicClassifier(LogisticRegression(), classes=[0, 1]).fit(*data)
    with pytest.raises(
        InputError, match=r"classes=\[1, 0\] differs from the model's own classes, 0, 1"
    ):
        EpistemicClassifier(LogisticRegression(), classes=[1, 0]).fit(*data)


def test_a_rule_that_nobody_knows_how_to_tune_is_not_called_optimal(data):
    @dataclass(frozen=True)
    class DoubleBall(Rule):
        radius: float

        def reach(self, evidence):
            return np.full(len(evidence), 2 * self.radius)

    scores = np.eye(2)[data[1]]
    inputs = (scores, {"input": data[0]})
    classifier = EpistemicClassifier(PrecomputedModel(), rule=DoubleBall).fit(inputs, data[1])
    with pytest.raises(SelectionError, match="DoubleBall cannot be tuned"):
        classifier.tune((scores, {"input": data[0] + 0.1}), data[1])
    fixed = EpistemicClassifier(PrecomputedModel(), rule=DoubleBall(0.5))
    ball = EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0))
    np.testing.assert_array_equal(
        fixed.fit(inputs, data[1]).assess(inputs).assertion,
        ball.fit(inputs, data[1]).assess(inputs).assertion,
    )


def test_fixed_neighborhoods_stay_fixed_in_a_bundle(data, tmp_path):
    classifier = EpistemicClassifier(LogisticRegression(), rule=Ball(1.0)).fit(*data)
    classifier.save(tmp_path / "b.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "b.iknow", classifier.model_.estimator)
    with pytest.raises(InputError, match="nothing to tune"):
        loaded.tune(*data)


def test_a_fit_that_fails_leaves_the_classifier_as_it_was(data):
    X, y = data
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    before = classifier.assess(X)
    model, neighborhoods = classifier.model_, classifier.neighborhoods_
    broken = [(X[:, :2], y[:-1]), (np.full_like(X, np.nan), y), (X, np.full(60, np.nan))]
    for bad_X, bad_y in broken:
        with pytest.raises(ValueError, match=r"one label per sample|finite|hold labels"):
            classifier.fit(bad_X, bad_y)
        assert classifier.model_ is model
        assert classifier.neighborhoods_ is neighborhoods
        np.testing.assert_array_equal(classifier.assess(X).assertion, before.assertion)


@pytest.mark.parametrize("layers", [np.array(["a", "b"]), ["a", "b"], ("a", "b"), {"a": 1, "b": 2}])
def test_layers_may_come_in_any_list_of_names(layers):
    names = as_layer_names(layers)
    assert names == ("a", "b")
    assert {type(name) for name in names} == {str}
    assert as_layer_names("\N{GREEK SMALL LETTER ALPHA}") == ("\N{GREEK SMALL LETTER ALPHA}",)


@pytest.mark.parametrize(
    "layers", [5, [1, 2], [], (name for name in "ab"), iter("a"), [None], b"a"]
)
def test_layers_that_are_no_list_of_names_are_refused(layers):
    with pytest.raises(InputError, match="layers must be the names of one or more layers"):
        as_layer_names(layers)


@pytest.mark.parametrize("k", [True, 2.0, "3", 0, -1, None])
def test_a_k_that_is_no_whole_number_from_one_on_is_refused(k):
    with pytest.raises(InputError, match="k must be"):
        settings(Nearest, k=k).check_labels(np.arange(9))
