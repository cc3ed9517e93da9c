"""EpistemicClassifier from raw activations to assertions, against sets and loops."""

import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from iknow import (
    Assertion,
    Ball,
    BallElseNearest,
    BallWithNearest,
    EpistemicClassifier,
    Nearest,
    Reason,
    RelativeBall,
    evaluate,
)
from iknow.classifier.fitting import split_rows
from iknow.core.rule import has_k, parameters_of
from iknow.errors import InputError, LayerError, SelectionError
from iknow.models import PrecomputedModel
from iknow.models.adapt import as_model
from iknow.testing import assert_same_evidence
from tests.oracles import assertion_of, justification_of, support_of

ALL_RULES = [Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall]
QUORUMS = [(1, 1), (1, 3), (2, 1)]


def make_data(n=90, seed=0, n_features=3):
    """Three groups that are easy to tell apart."""
    return make_blobs(n, n_features, centers=3, cluster_std=0.8, random_state=seed)


def small_network(n_features=3, n_classes=3, seed=0):
    """A torch module whose weights are small whole numbers: its sums are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    module = torch.nn.Sequential(
        torch.nn.Linear(n_features, 6), torch.nn.ReLU(), torch.nn.Linear(6, n_classes)
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape, generator=generator).float())
    return module


def small_mlp():
    return MLPClassifier((8, 5), solver="lbfgs", max_iter=300, random_state=0)


def precomputed(scores, **layers):
    return np.asarray(scores, dtype=float), {
        layer: np.asarray(values) for layer, values in layers.items()
    }


def fitted(rule=Ball, **parameters):
    """A classifier of precomputed outputs: class 0 around 0, class 1 around 10, layer "a"."""
    classifier = EpistemicClassifier(PrecomputedModel(), rule=rule, **parameters)
    places = np.array([[0.0], [1.0], [10.0], [11.0]])
    return classifier.fit(precomputed(np.eye(2)[[0, 0, 1, 1]], a=places), [0, 0, 1, 1])


def outputs_at(*places):
    """The outputs of a right model about samples at places on the line of `fitted`."""
    codes = [int(place > 5) for place in places]
    return precomputed(np.eye(2)[codes], a=np.array(places, dtype=float)[:, None])


def assert_same_assessment(one, other):
    for name in ("classes", "belief", "scores", "assertion", "reason", "justification", "invalid"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.neighborhoods == other.neighborhoods
    assert list(one.evidence) == list(other.evidence)
    for layer in one.evidence:
        assert_same_evidence(one.evidence[layer], other.evidence[layer])


# The whole way, against sets and loops


def assess_by_hand(train, labels, queries, beliefs, rules):
    """For each query: supports by layer, justification, assertion and reason.

    train, queries: activations by layer, of float32. labels, beliefs: lists of class codes.
    """
    found = []
    for i, belief in enumerate(beliefs):
        supports = {}
        for layer, rule in rules.items():
            distances = [math.dist(row, queries[layer][i]) for row in train[layer].tolist()]
            supports[layer] = support_of(rule, distances, labels, belief)
        sets = list(supports.values())
        found.append((supports, justification_of(sets), *assertion_of(belief, sets)))
    return found


def random_outputs(rng, labels, n_classes, shapes, exact):
    """Scores, and activations around a place of each class, on a grid of halves if exact."""
    layers = {}
    for layer, (width, places) in shapes.items():
        values = places[labels] + rng.normal(size=(len(labels), width))
        layers[layer] = np.round(values * 2) / 2 if exact else values
    scores = rng.random((len(labels), n_classes))
    scores[rng.random(len(labels)) < 0.7] *= 0.1
    scores[np.arange(len(labels)), labels] += 0.3
    return precomputed(scores, **layers)


@pytest.mark.parametrize("rule", ALL_RULES)
def test_assessments_equal_those_made_with_sets_and_loops(rule):
    seen = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n_classes, n_rows = int(rng.integers(2, 5)), int(rng.integers(4, 25))
        names = np.array(["kiwi", "fig", "plum", "date"])[:n_classes]
        codes = rng.integers(n_classes, size=n_rows)
        codes[:2] = [0, 1]
        shapes = {
            f"layer{i}": (width, 2 * rng.normal(size=(n_classes, width)))
            for i, width in enumerate(rng.integers(1, 4, size=int(rng.integers(1, 4))).tolist())
        }
        exact = bool(seed % 2)
        X = random_outputs(rng, codes, n_classes, shapes, exact)
        queries = random_outputs(rng, rng.integers(n_classes, size=8), n_classes, shapes, exact)
        neighborhoods = {
            layer: rule(
                **(
                    {"radius": float(rng.integers(0, 6)) / 2}
                    if "radius" in parameters_of(rule)
                    else {}
                ),
                **({"k": int(rng.integers(1, 4))} if has_k(rule) else {}),
                **(
                    {"ratio": float(rng.choice([1, 1.5, 2, 4]))}
                    if "ratio" in parameters_of(rule)
                    else {}
                ),
                **({"quorum": QUORUMS[seed % 3]} if "quorum" in parameters_of(rule) else {}),
            )
            for layer in shapes
        }
        classifier = EpistemicClassifier(PrecomputedModel(), rule=neighborhoods, classes=names)
        assessment = classifier.fit(X, names[codes]).assess(queries)

        def as_float32(outputs):
            return {layer: values.astype(np.float32) for layer, values in outputs[1].items()}

        beliefs = [max(range(n_classes), key=row.__getitem__) for row in queries[0].tolist()]
        expected = assess_by_hand(
            as_float32(X), codes.tolist(), as_float32(queries), beliefs, neighborhoods
        )
        assert assessment.belief.tolist() == names[beliefs].tolist()
        for i, (supports, justification, assertion, reason) in enumerate(expected):
            for layer, support in supports.items():
                found = assessment.supports[layer][i]
                assert set(np.flatnonzero(found)) == support, f"seed {seed}"
            assert set(np.flatnonzero(assessment.justification[i])) == justification
            assert assessment.assertion[i] == assertion
            assert assessment.reason[i] == reason
            seen.add(reason)
    possible = set(Reason) - {Reason.INVALID, Reason.UNCERTIFIED, Reason.DOUBT}
    if rule is RelativeBall:  # the belief is in every support, or there is none
        possible -= {Reason.CONTRADICTION, Reason.DISAGREEMENT}
    assert seen == possible


@pytest.mark.parametrize("rule", [Ball, BallElseNearest, BallWithNearest])
def test_the_tuned_coverage_is_the_fraction_of_ik_on_the_validation_data(rule):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        shapes = {"a": (2, 3 * rng.normal(size=(3, 2))), "b": (3, 3 * rng.normal(size=(3, 3)))}
        y, y_val = rng.integers(3, size=40), rng.integers(3, size=30)
        X = random_outputs(rng, y, 3, shapes, exact=False)
        X_val = random_outputs(rng, y_val, 3, shapes, exact=False)
        classifier = EpistemicClassifier(PrecomputedModel(), rule=rule, k=3)
        classifier.fit(X, y).tune(X_val, y_val)
        report = evaluate(classifier.assess(X_val), y_val)
        assert 0 < classifier.selection_.coverage == report.f_ik
        assert classifier.selection_.accuracy == report.a_ik
        assert classifier.neighborhoods_ == classifier.selection_.neighborhoods


# Layers


def test_the_default_layers_of_a_network_are_its_input_and_last_hidden_one():
    X, y = make_data()
    classifier = EpistemicClassifier(small_mlp()).fit(X, y)
    assert classifier.layers_ == ("input", "hidden2")
    assert classifier.indexes_["input"].n_features == 3
    assert classifier.indexes_["hidden2"].n_features == 5
    network = EpistemicClassifier(small_network()).fit(X, y)
    assert network.layers_ == ("input", "1")
    assert network.indexes_["1"].n_features == 6


def test_the_papers_layers_of_a_network_are_its_last_hidden_one_and_the_logits():
    X, y = make_data()
    classifier = EpistemicClassifier.paper(small_mlp()).fit(X, y)
    assert classifier.layers_ == ("hidden2", "logits")
    assert classifier.indexes_["hidden2"].n_features == 5
    assert classifier.indexes_["logits"].n_features == 3


def test_the_default_layer_of_another_classifier_is_its_input():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    assert classifier.layers_ == ("input",)
    assert list(classifier.assess(X).evidence) == ["input"]


def test_the_papers_layers_of_another_classifier_are_input_and_output():
    X, y = make_data()
    classifier = EpistemicClassifier.paper(LogisticRegression()).fit(X, y)
    assert classifier.layers_ == ("input", "output")
    assert list(classifier.assess(X).evidence) == ["input", "output"]


def test_with_fixed_neighborhoods_the_layers_of_a_torch_module_are_the_papers():
    X, y = make_data()
    classifier = EpistemicClassifier(small_network(), rule=Ball(1)).fit(X, y)
    assert classifier.layers_ == ("1", "2")
    assert classifier.indexes_["1"].n_features == 6


def test_the_default_layers_of_precomputed_outputs_are_all_of_them():
    assert fitted().layers_ == ("a",)


def test_named_layers_are_taken_in_their_order():
    X, y = make_data()
    classifier = EpistemicClassifier(small_mlp(), layers=["logits", "input"]).fit(X, y)
    assert classifier.layers_ == ("logits", "input")
    assert list(classifier.assess(X[:2]).evidence) == ["logits", "input"]


# Labels


def test_text_labels_come_back_as_beliefs_and_predictions():
    X, codes = make_data()
    y = np.array(["cat", "dog", "owl"])[codes]
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    assert classifier.classes_.tolist() == ["cat", "dog", "owl"]
    assert set(classifier.predict(X)) == {"cat", "dog", "owl"}
    np.testing.assert_array_equal(classifier.assess(X).belief, classifier.predict(X))
    assert classifier.score(X, y) > 0.9


@pytest.mark.parametrize("labels", [[1, 2, 3], [-5, 0, 70], ["x", "y", "z"], [10.0, 20.0, 30.0]])
def test_labels_that_are_no_column_numbers_stand_for_the_columns_in_order(labels):
    X, codes = make_data()
    module = small_network()
    columns = module(torch.from_numpy(X).float()).argmax(1).numpy()
    y = np.array(labels)[codes]
    by_torch = EpistemicClassifier(module, rule=Ball(5)).fit(X, y)
    assert by_torch.predict(X).tolist() == np.array(labels)[columns].tolist()
    outputs = precomputed(np.eye(3)[columns], a=X)
    by_arrays = EpistemicClassifier(PrecomputedModel(), rule=Ball(5)).fit(outputs, y)
    assert by_arrays.predict(outputs).tolist() == np.array(labels)[columns].tolist()


def test_given_classes_name_the_columns_in_their_order():
    outputs = precomputed([[1, 0, 0], [0, 1, 0], [0, 0, 1]], a=[[0.0], [5.0], [9.0]])
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1), classes=["b", "a", "c"]).fit(
        outputs, ["b", "a", "a"]
    )
    assert classifier.predict(outputs).tolist() == ["b", "a", "c"]
    assessment = classifier.assess(outputs)
    assert assessment.assertion.tolist() == [Assertion.IK, Assertion.IK, Assertion.IDK]
    assert assessment.evidence["a"].exemplars.tolist() == [[0, 1, -1], [0, 1, -1], [0, 2, -1]]


@pytest.mark.parametrize("container", [list, pd.Series, torch.tensor, np.asarray])
def test_labels_come_in_any_container(container):
    X, y = make_data()
    expected = EpistemicClassifier(LogisticRegression()).fit(X, y).assess(X)
    for model in (LogisticRegression(), FrozenEstimator(LogisticRegression().fit(X, y))):
        classifier = EpistemicClassifier(model).fit(X, container(y.tolist()))
        if isinstance(model, FrozenEstimator):
            classifier.tune(X + 0.01, container(y.tolist()))
            assert classifier.predict(X).tolist() == model.predict(X).tolist()
        else:
            assert_same_assessment(classifier.assess(X), expected)


def test_a_data_frame_gives_what_its_values_give():
    X, y = make_data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(len(X))[::-1])
    by_frame = EpistemicClassifier(LogisticRegression(), batch_size=7).fit(frame, y)
    by_array = EpistemicClassifier(LogisticRegression(), batch_size=7).fit(X, y)
    assert_same_assessment(by_frame.assess(frame), by_array.assess(X))
    assert by_frame.feature_names_in_.tolist() == ["a", "b", "c"]


# Training, and what is left alone


def test_exemplars_are_rows_of_the_users_x_though_a_part_is_held_out():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    training, held_out = split_rows(y, 0.25, 0)
    evidence = classifier.assess(X).evidence["input"]
    for i in training:
        assert evidence.exemplars[i, y[i]] == i  # each training sample is nearest to itself
        assert evidence.class_distances[i, y[i]] == 0
    used = set(evidence.exemplars.ravel().tolist())
    assert used.isdisjoint(held_out.tolist())
    np.testing.assert_array_equal(y[evidence.exemplars], np.tile([0, 1, 2], (len(X), 1)))


def test_rows_given_name_the_exemplars_though_a_part_is_held_out():
    X, y = make_data()
    numbers = 1000 + np.random.default_rng(0).permutation(len(X))
    plain = EpistemicClassifier(LogisticRegression()).fit(X, y).assess(X)
    named = EpistemicClassifier(LogisticRegression()).fit(X, y, rows=numbers).assess(X)
    np.testing.assert_array_equal(
        named.evidence["input"].exemplars, numbers[plain.evidence["input"].exemplars]
    )


def test_the_held_out_part_is_what_tunes():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression(), validation_fraction=0.4).fit(X, y)
    training, held_out = split_rows(y, 0.4, 0)
    assert classifier.indexes_["input"].n_rows == len(training)
    assert classifier.selection_.n_samples == len(held_out)
    report = evaluate(classifier.assess(X[held_out]), y[held_out])
    assert report.f_ik == classifier.selection_.coverage


@pytest.mark.parametrize("parameters", [{"rule": Ball(1)}, {"rule": Nearest}])
def test_nothing_is_held_out_where_nothing_is_tuned(parameters):
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression(), **parameters).fit(X, y)
    assert classifier.indexes_["input"].n_rows == len(X)
    reference = LogisticRegression().fit(X, y)
    np.testing.assert_array_equal(classifier.model_.estimator.coef_, reference.coef_)


def test_the_estimator_given_is_not_itself_fitted():
    X, y = make_data()
    estimator = LogisticRegression()
    EpistemicClassifier(estimator).fit(X, y).assess(X)
    assert not hasattr(estimator, "coef_")


@pytest.mark.parametrize("given", [lambda estimator: estimator, FrozenEstimator])
def test_a_fitted_estimator_is_never_trained_frozen_or_not(given):
    X, y = make_data()
    estimator = small_mlp().fit(X, y)
    before = copy.deepcopy(estimator.coefs_)
    other = np.where(np.arange(len(y)) < 20, (y + 1) % 3, y)  # training anew would show
    classifier = EpistemicClassifier(given(estimator)).fit(X, other)
    with pytest.raises(NotFittedError, match=r"call tune\(X_val, y_val\), .* not a fitted one"):
        classifier.assess(X)
    classifier.tune(X + 0.1, other)
    classifier.assess(X)
    assert classifier.model_.estimator is estimator
    for weights, old in zip(estimator.coefs_, before, strict=True):
        np.testing.assert_array_equal(weights, old)
    assert classifier.predict(X).tolist() == estimator.predict(X).tolist()
    assert classifier.indexes_["input"].n_rows == len(X)  # and nothing is held out


class Shift(TransformerMixin, BaseEstimator):
    """A transformer that learns nothing, and so looks the same before and after it is fitted."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.asarray(X) + 1


class ForeignBooster:
    """Of another library: it has no tags, and classes_ is None before it is fitted."""

    def __init__(self):
        self._trees = None

    def get_params(self, deep=True):
        return {}

    @property
    def classes_(self):
        return None if self._trees is None else self._trees.classes_

    def fit(self, X, y):
        self._trees = DecisionTreeClassifier(random_state=0).fit(X, y)
        return self

    def predict(self, X):
        return self._trees.predict(X)


MAY_BE_FITTED = {
    "bare": LogisticRegression,
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "pipeline that learns in its last step alone": lambda: make_pipeline(Shift(), GaussianNB()),
    "pipeline in a pipeline": lambda: make_pipeline(
        Shift(), make_pipeline(StandardScaler(), GaussianNB())
    ),
    "search": lambda: GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
    "vote": lambda: VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())]),
    "calibrated": lambda: CalibratedClassifierCV(GaussianNB(), cv=2),
    "dummy": lambda: DummyClassifier(strategy="stratified", random_state=0),
    "foreign": ForeignBooster,
}


@pytest.mark.parametrize("name", MAY_BE_FITTED)
def test_an_unfitted_estimator_is_trained_and_a_fitted_one_is_taken_as_it_is(name):
    X, y = make_data()
    wrong = (y + 1) % 3  # what training on the data given to the classifier would not say
    of = {"layers": ["input"], "rule": Ball(1.0)}
    estimator = MAY_BE_FITTED[name]()
    trained = EpistemicClassifier(estimator, **of).fit(X, y)
    assert trained.model_.estimator is not estimator
    assert trained.fit(X, wrong).score(X, wrong) > (0.2 if name == "dummy" else 0.8)
    partly = np.where(np.arange(len(y)) % 3, y, wrong)  # all of them would be refused
    taken = EpistemicClassifier(estimator.fit(X, y), **of).fit(X, partly)
    assert taken.model_.estimator is estimator
    assert taken.predict(X).tolist() == estimator.predict(X).tolist()
    if name != "dummy":
        assert clone(taken).fit(X, wrong).score(X, wrong) > 0.8  # a clone is unfitted


def test_a_pipeline_with_a_step_to_fit_before_a_frozen_one_is_trained():
    X, y = make_data()
    scaled = StandardScaler().fit_transform(X)
    half = make_pipeline(StandardScaler(), FrozenEstimator(GaussianNB().fit(scaled, y)))
    classifier = EpistemicClassifier(half).fit(X, y)
    assert classifier.model_.estimator is not half
    assert classifier.score(X, y) > 0.9


@pytest.mark.parametrize("given", [lambda estimator: estimator, FrozenEstimator])
def test_a_fitted_estimator_refuses_data_of_another_kind(given):
    X, y = make_data()
    model = given(LogisticRegression().fit(X, y))
    with pytest.raises(InputError, match="X has 2 features, but LogisticRegression is expecting 3"):
        EpistemicClassifier(model).fit(X[:, :2], y)
    with pytest.raises(InputError, match="does not know: 'a', 'b', 'c'"):
        EpistemicClassifier(model).fit(X, np.array(["a", "b", "c"])[y])
    with pytest.raises(InputError, match="row 7 has"):
        EpistemicClassifier(model).fit(np.where(np.arange(len(X))[:, None] == 7, np.nan, X), y)


def test_every_fold_of_a_cross_validation_trains_its_own():
    X, y = make_data()
    scores = [
        cross_val_score(EpistemicClassifier(model, rule=Ball(1.0)), X, y, cv=3)
        for model in (GaussianNB(), GaussianNB().fit(X, (y + 1) % 3))
    ]
    np.testing.assert_array_equal(*scores)


def test_a_torch_module_is_never_trained():
    X, y = make_data()
    module = small_network().train()
    before = copy.deepcopy(module.state_dict())
    classifier = EpistemicClassifier(module, rule=BallElseNearest).fit(X, y)
    classifier.tune(X[::2] + 0.1, y[::2])
    classifier.assess(X)
    assert list(module.state_dict()) == list(before)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None for parameter in module.parameters())
    assert module.training


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_same_random_state_gives_the_same_classifier():
    X, y = make_data()
    made = [
        EpistemicClassifier(MLPClassifier((5,), max_iter=50), random_state=state).fit(X, y)
        for state in (3, 3, 4)
    ]
    assert_same_assessment(made[0].assess(X), made[1].assess(X))
    weights = [classifier.model_.estimator.coefs_[0] for classifier in made]
    assert not np.array_equal(weights[0], weights[2])


def test_a_refit_forgets_the_old_tuning():
    classifier = fitted().tune(outputs_at(0.4, 10.4), [0, 1])
    classifier.fit(outputs_at(0, 10), [0, 1])
    assert not hasattr(classifier, "selection_")
    with pytest.raises(NotFittedError, match="no neighborhoods yet"):
        classifier.assess(outputs_at(0))


def test_a_second_tuning_replaces_the_first():
    classifier = fitted().tune(outputs_at(0.25), [0])
    first = classifier.neighborhoods_
    classifier.tune(outputs_at(14), [1])
    assert classifier.neighborhoods_ != first
    assert classifier.neighborhoods_ == classifier.selection_.neighborhoods
    assert classifier.selection_.n_samples == 1


def test_a_tuning_that_fails_leaves_the_earlier_one():
    classifier = fitted().tune(outputs_at(0.25), [0])
    before = classifier.neighborhoods_
    wrong_everywhere = precomputed([[0, 1]], a=[[0.2]])
    with pytest.raises(SelectionError):
        classifier.tune(wrong_everywhere, [0])
    assert classifier.neighborhoods_ == before


# Batches, neighbours, invalid samples


@pytest.mark.parametrize("kind", ["torch", "precomputed", "tree"])
def test_the_batch_size_changes_nothing(kind):
    X, y = make_data(n=120)
    X = np.rint(2 * X)  # the sums of the torch module are exact, however they are ordered
    model, inputs = {
        "torch": (small_network(), X.astype(np.float32)),
        "precomputed": (PrecomputedModel(), precomputed(np.eye(3)[y], a=X, b=X[:, :2] ** 2)),
        "tree": (FrozenEstimator(DecisionTreeClassifier(random_state=0).fit(X, y)), X),
    }[kind]
    prepared = as_model(model).prepare(inputs)
    training, validation = prepared[:60], prepared[60:]
    assessments = []
    for batch_size in (1, 7, 1024):
        classifier = EpistemicClassifier(
            model, rule=BallElseNearest, k=3, batch_size=batch_size
        ).fit(training, y[:60])
        assessments.append(classifier.tune(validation, y[60:]).assess(inputs, k=5))
    for other in assessments[1:]:
        assert_same_assessment(assessments[0], other)


def test_more_neighbour_distances_are_kept_when_asked_for():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression(), rule=BallElseNearest, k=3).fit(X, y)
    few, many = classifier.assess(X), classifier.assess(X, k=7)
    for layer in few.evidence:
        assert few.evidence[layer].n_neighbors == 3
        assert many.evidence[layer].n_neighbors == 7
        np.testing.assert_array_equal(
            many.evidence[layer].neighbor_distances[:, :3], few.evidence[layer].neighbor_distances
        )
    assert classifier.assess(X, k=1).evidence["input"].n_neighbors == 3


def test_another_k_can_be_tried_on_more_neighbour_distances():
    X, y = make_data()
    five = EpistemicClassifier(LogisticRegression(), rule=Nearest(5)).fit(X, y).assess(X)
    one = EpistemicClassifier(LogisticRegression(), rule=Nearest(1)).fit(X, y)
    tried = one.assess(X, k=5).under({"input": Nearest(5), "output": Nearest(5)})
    np.testing.assert_array_equal(tried.assertion, five.assertion)


@pytest.mark.parametrize("kind", ["sklearn", "torch", "precomputed"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_sample_that_is_not_finite_is_invalid_and_idk_and_disturbs_no_other(kind, value):
    X, y = make_data(n=40)
    model = {
        "sklearn": LogisticRegression(),
        "torch": small_network(),
        "precomputed": PrecomputedModel(),
    }[kind]
    damaged = X.copy()
    damaged[13, 1] = value

    def as_inputs(values):
        return precomputed(np.eye(3)[y], a=values) if kind == "precomputed" else values

    classifier = EpistemicClassifier(model, rule=BallElseNearest(1.0, 2))
    classifier.fit(as_inputs(X), y)
    whole, broken = classifier.assess(as_inputs(X)), classifier.assess(as_inputs(damaged))
    assert broken.assertion[13] == Assertion.IDK
    assert broken.reason[13] == Reason.INVALID
    assert broken.invalid.tolist() == [i == 13 for i in range(len(X))]
    for evidence in broken.evidence.values():
        assert np.isinf(evidence.class_distances[13]).all()
        assert np.isinf(evidence.neighbor_distances[13]).all()
        assert (evidence.exemplars[13] == -1).all()
    others = np.arange(len(X)) != 13
    for name in ("belief", "scores", "assertion", "reason", "justification"):
        np.testing.assert_array_equal(getattr(broken, name)[others], getattr(whole, name)[others])
    for layer in whole.evidence:
        assert_same_evidence(broken.evidence[layer][others], whole.evidence[layer][others])


@pytest.mark.parametrize("kind", ["sklearn", "torch", "precomputed"])
def test_predict_refuses_a_sample_without_an_answer_by_its_row(kind):
    X, y = make_data(n=40)
    inputs, damaged = X, X.copy()
    damaged[13, 1] = np.nan
    if kind == "precomputed":
        inputs, damaged = precomputed(np.eye(3)[y], a=inputs), precomputed(np.eye(3)[y], a=damaged)
    model = {
        "sklearn": LogisticRegression(),
        "torch": small_network(),
        "precomputed": PrecomputedModel(),
    }[kind]
    classifier = EpistemicClassifier(model, rule=Ball(1), batch_size=10).fit(inputs, y)
    if kind == "precomputed":
        assert classifier.predict(damaged).tolist() == y.tolist()  # its scores are finite
        damaged[0][13, 1] = np.nan
    with pytest.raises(
        InputError, match=r"no answer for row 13, .*NaN or inf value \(rows affected: 1\)"
    ):
        classifier.predict(damaged)


# A scikit-learn estimator like others


def test_a_clone_has_the_parameters_and_nothing_learned():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression(C=2), rule=BallWithNearest, k=3).fit(X, y)
    copied = clone(classifier)
    assert not hasattr(copied, "indexes_")
    assert copied.rule is BallWithNearest
    assert (copied.k, copied.model.C) == (3, 2)
    assert_same_assessment(copied.fit(X, y).assess(X), classifier.assess(X))


def test_a_pipeline_around_it_survives_pickling():
    X, y = make_data()
    pipeline = make_pipeline(StandardScaler(), EpistemicClassifier(small_mlp())).fit(X, y)
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict(X), pipeline.predict(X))
    scaled = pipeline[0].transform(X)
    assert_same_assessment(again[-1].assess(scaled), pipeline[-1].assess(scaled))


def test_a_pipeline_inside_it_offers_its_steps_as_layers():
    X, y = make_data()
    classifier = EpistemicClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), layers=["standardscaler"]
    ).fit(X, y)
    assert classifier.score(X, y) > 0.9
    training, _ = split_rows(y, 0.25, 0)
    scaled = StandardScaler().fit(X[training]).transform(X[training])
    index = classifier.indexes_["standardscaler"]
    np.testing.assert_array_equal(
        index.points, scaled.astype(np.float32)[np.searchsorted(training, index.rows)]
    )


def test_a_grid_search_reaches_the_models_parameters_and_its_own():
    X, y = make_data()
    search = GridSearchCV(
        EpistemicClassifier(LogisticRegression(), rule=BallElseNearest),
        {"model__C": [1e-6, 1.0], "k": np.array([1, 3])},
        cv=2,
    ).fit(X, y)
    assert search.best_params_["model__C"] == 1.0
    assert search.best_score_ > 0.9
    assert search.best_estimator_.assess(X).assertion.shape == (len(X),)


# Fixed neighborhoods


def test_one_fixed_neighborhood_serves_all_layers():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression(), rule=Ball(0.7)).fit(X, y)
    assert classifier.neighborhoods_ == {"input": Ball(0.7), "output": Ball(0.7)}
    assert classifier.assess(X).neighborhoods == classifier.neighborhoods_


def test_fixed_neighborhoods_may_differ_by_layer_and_come_in_any_order():
    X, y = make_data()
    given = {"output": Nearest(2), "input": Ball(0.7)}
    classifier = EpistemicClassifier(LogisticRegression(), rule=given).fit(X, y)
    assert classifier.neighborhoods_ == given
    assert list(classifier.neighborhoods_) == ["input", "output"]
    assert classifier.assess(X).evidence["output"].n_neighbors == 2


def test_fixed_neighborhoods_cannot_be_tuned():
    classifier = fitted(rule=Ball(1))
    with pytest.raises(InputError, match=r"to tune: rule=\.\.\. fixes it"):
        classifier.tune(outputs_at(0.5), [0])


def test_a_rule_without_a_radius_is_ready_after_fit():
    classifier = fitted(rule=Nearest, k=2)
    assert classifier.neighborhoods_ == {"a": Nearest(2)}
    assert classifier.assess(outputs_at(0.4, 5.4)).assertion.tolist() == [
        Assertion.IK,
        Assertion.IMK,
    ]


def test_a_rule_without_a_radius_cannot_be_tuned():
    with pytest.raises(SelectionError, match="Nearest has no radius"):
        fitted(rule=Nearest, k=2).tune(outputs_at(0.5), [0])


@pytest.mark.parametrize(
    ("rule", "why"),
    [(RelativeBall, "none of the 30 validation samples can be IK"), (Ball, "no Ball makes any")],
)
def test_when_fits_own_tuning_fails_it_warns_and_then_knows_nothing_new(rule, why):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(10, 2)), 12, axis=0)
    y = np.arange(120) % 2  # at each place both classes, as near as can be
    quorum = 1 if rule is Ball else 50  # more than each class has
    model = DummyClassifier()
    classifier = EpistemicClassifier(model, layers=["input"], rule=rule, quorum=quorum)
    with pytest.warns(UserWarning, match=rf"{why}.*Until it is tuned again") as caught:
        classifier.fit(X, y)
    assert [str(warning.filename) for warning in caught] == [__file__]
    assert classifier.neighborhoods_ == {"input": Ball(0)}
    assert not hasattr(classifier, "selection_")
    assessment = classifier.assess(rng.normal(size=(50, 2)))
    assert set(assessment.assertion.tolist()) == {Assertion.IDK}


@pytest.mark.parametrize("rule", [RelativeBall, Ball])
def test_fit_tunes_three_layers_too(rule):
    X, y = make_data()
    layers = ["hidden1", "hidden2", "logits"]
    classifier = EpistemicClassifier(small_mlp(), layers=layers, rule=rule).fit(X, y)
    assert list(classifier.neighborhoods_) == layers
    _, held_out = split_rows(y, 0.25, 0)
    report = evaluate(classifier.assess(X[held_out]), y[held_out])
    assert 0.5 < classifier.selection_.coverage == report.f_ik
    assert classifier.selection_.optimal is (rule is Ball)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (RelativeBall, "none of the 10 validation samples can be IK"),
        (Ball, "no Ball makes any of the 10 validation samples IK"),
    ],
)
def test_when_no_held_out_sample_can_be_known_fit_warns_and_answers_idk(rule, why):
    X = np.repeat([[0.0], [1.0]], 20, axis=0)
    y = np.arange(40) % 2  # at each place both classes, as near as can be
    quorum = 1 if rule is Ball else 20  # more than each class has
    model = DummyClassifier()
    classifier = EpistemicClassifier(model, layers=["input"], rule=rule, quorum=quorum)
    with pytest.warns(UserWarning, match=why):
        classifier.fit(X, y)
    assert set(classifier.assess([[0.5], [2.0]]).assertion.tolist()) == {Assertion.IDK}


# What tune may be asked for


def noisy_outputs(n, seed):
    """Precomputed outputs in two layers about three groups that overlap, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    a, b = (2.5 * y[:, None] + rng.normal(size=(n, 2)) for _ in range(2))
    beliefs = np.where(rng.random(n) < 0.05, (y + 1) % 3, y)
    return precomputed(np.eye(3)[beliefs], a=a, b=b), y


def fitted_on_noise(**parameters):
    return EpistemicClassifier(PrecomputedModel(), **parameters).fit(*noisy_outputs(200, seed=0))


@pytest.mark.parametrize("rule", [Nearest, RelativeBall])
def test_tune_matches_a_coverage(rule):
    X, y = noisy_outputs(150, seed=1)
    classifier = fitted_on_noise(rule=rule, k=3).tune(X, y, coverage=0.6)
    report = evaluate(classifier.assess(X), y)
    assert classifier.selection_.method == "matched"
    assert classifier.selection_.coverage == report.f_ik
    assert report.f_ik == pytest.approx(0.6, abs=0.05 if rule is Nearest else 1.001 / 150)
    assert {type(each) for each in classifier.neighborhoods_.values()} == {rule}


def test_matching_looks_at_more_neighbours_than_the_classifiers_own_k():
    X, y = noisy_outputs(150, seed=1)
    few = fitted_on_noise(rule=Nearest, k=1).tune(X, y, coverage=0.3)
    assert few.neighborhoods_["a"].k > 5
    assert few.assess(X).evidence["a"].n_neighbors == few.neighborhoods_["a"].k


@pytest.mark.parametrize("rule", [BallElseNearest, BallWithNearest])
def test_tune_tries_several_k(rule):
    X, y = noisy_outputs(150, seed=1)
    classifier = fitted_on_noise(rule=rule, k=4)
    singles = [classifier.tune(X, y, k=k).selection_.coverage for k in (1, 3, 5)]
    swept = classifier.tune(X, y, k=[1, 3, 5])
    assert swept.selection_.coverage == max(singles)
    assert {each.k for each in swept.neighborhoods_.values()} <= {1, 3, 5}
    assert swept.selection_.coverage == evaluate(swept.assess(X), y).f_ik
    assert {each.k for each in classifier.tune(X, y).neighborhoods_.values()} == {4}


@pytest.mark.parametrize("k", [0, [1, 0], 2.5, [1, 500], []])
def test_tune_refuses_a_k_that_cannot_be(k):
    X, y = noisy_outputs(50, seed=1)
    with pytest.raises(InputError, match=r"k must be|needs k|k=500"):
        fitted_on_noise(rule=BallElseNearest).tune(X, y, k=k)


@pytest.mark.parametrize("method", ["grid", "bayes"])
def test_tune_by_search_knows_no_more_than_the_exact_maximum(method):
    X, y = noisy_outputs(150, seed=1)
    classifier = fitted_on_noise(rule=Ball)
    best = classifier.tune(X, y).selection_
    found = classifier.tune(X, y, method=method).selection_
    assert (best.method, found.method) == ("exact", method)
    assert 0 < found.coverage <= best.coverage


@pytest.mark.parametrize("rule", [Ball, BallElseNearest, BallWithNearest, RelativeBall])
def test_tune_guarantees_an_accuracy(rule):
    X, y = noisy_outputs(400, seed=1)
    classifier = fitted_on_noise(rule=rule, k=3).tune(X, y, accuracy=0.8, confidence=0.9)
    certificate = classifier.selection_.certificate
    assert (certificate.accuracy, certificate.confidence) == (0.8, 0.9)
    assert certificate.bound >= 0.8
    report = evaluate(classifier.assess(X), y)
    assert classifier.selection_.coverage == report.f_ik > 0


def test_what_cannot_be_asked_for_together_is_refused_and_the_old_tuning_kept():
    X, y = noisy_outputs(100, seed=1)
    classifier = fitted_on_noise(rule=Ball).tune(X, y)
    before = classifier.neighborhoods_
    with pytest.raises(InputError, match="ask for one of accuracy, coverage and false_alarm"):
        classifier.tune(X, y, accuracy=0.9, coverage=0.5)
    with pytest.raises(InputError, match="false_alarm and reference need a rule with levels"):
        classifier.tune(X, y, false_alarm=0.1)
    with pytest.raises(InputError, match="false_alarm and reference need a rule with levels"):
        classifier.tune(X, y, reference=X)
    with pytest.raises(InputError, match="tuning Ball needs labels: give y too"):
        classifier.tune(X)
    with pytest.raises(InputError, match="each_class needs an accuracy"):
        classifier.tune(X, y, each_class=True)
    with pytest.raises(SelectionError, match="matched by Nearest and RelativeBall"):
        classifier.tune(X, y, coverage=0.5)
    with pytest.raises(InputError, match="'exact', 'grid' or 'bayes'; got 'magic'"):
        classifier.tune(X, y, method="magic")
    assert classifier.neighborhoods_ is before


def test_fit_tunes_a_relative_ball_on_the_part_it_holds_out():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    training, held_out = split_rows(y, 0.25, 0)
    assert classifier.indexes_["input"].n_rows == len(training)
    selection = classifier.selection_
    assert selection.coverage == evaluate(classifier.assess(X[held_out]), y[held_out]).f_ik
    assert selection.coverage == pytest.approx(0.75, abs=1.001 / len(held_out))
    assert "give at least" in selection.note  # too few to certify anything


# Bad input: each says what is wrong


def test_fit_refuses_another_number_of_labels_than_samples():
    X, y = make_data()
    with pytest.raises(InputError, match="got 89 labels for 90 samples"):
        EpistemicClassifier(LogisticRegression()).fit(X, y[:-1])
    with pytest.raises(InputError, match="got 89 labels for 90 samples"):
        EpistemicClassifier(small_network()).fit(X, y[:-1])


def test_tune_refuses_another_number_of_labels_than_samples():
    with pytest.raises(InputError, match="got 1 labels for 2 samples"):
        fitted().tune(outputs_at(0, 10), [0])


def test_a_scikit_learn_model_refuses_another_number_of_features():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    for ask in (classifier.assess, classifier.predict):
        with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3 features"):
            ask(X[:, :2])


def test_a_torch_module_refuses_another_number_of_features():
    X, y = make_data()
    classifier = EpistemicClassifier(small_network(), rule=Ball(1)).fit(X, y)
    with pytest.raises(InputError, match=r"Sequential failed on a batch of shape \(90, 2\)"):
        classifier.assess(X[:, :2])


def test_precomputed_activations_of_another_width_are_refused_by_layer():
    wide = precomputed([[1, 0]], a=[[0.0, 1.0]])
    with pytest.raises(InputError, match=r"layer 'a': queries must have 1 features .* got 2"):
        fitted(rule=Ball(1)).assess(wide)


def test_a_validation_class_of_which_training_has_no_sample_is_refused():
    outputs = precomputed(np.eye(3), a=[[0.0], [5.0], [9.0]])
    classifier = EpistemicClassifier(PrecomputedModel()).fit(outputs, [0, 1, 1])
    with pytest.raises(InputError, match=r"classes without training samples: \[2\]"):
        classifier.tune(outputs, [0, 1, 2])


def test_a_validation_label_that_is_no_class_is_refused():
    with pytest.raises(InputError, match=r"does not know: 7\. It knows 0, 1"):
        fitted().tune(outputs_at(0, 10), [0, 7])


def test_a_training_label_that_a_frozen_model_does_not_know_is_refused():
    X, y = make_data()
    model = FrozenEstimator(LogisticRegression().fit(X, y))
    with pytest.raises(InputError, match="does not know: 3, 4, 5"):
        EpistemicClassifier(model).fit(X, y + 3)


def test_a_single_class_is_refused():
    X, y = make_data()
    for model in (LogisticRegression(), small_network()):
        with pytest.raises(InputError, match="at least two classes; y holds 1 class"):
            EpistemicClassifier(model).fit(X, np.zeros_like(y))


def test_fit_refuses_empty_data():
    with pytest.raises(InputError, match="X holds no samples"):
        EpistemicClassifier(small_network()).fit(np.empty((0, 3)), [])
    with pytest.raises(ValueError, match="at least two classes"):
        EpistemicClassifier(LogisticRegression()).fit(np.empty((0, 3)), [])


def test_tune_refuses_empty_data():
    with pytest.raises(InputError, match="X holds no samples"):
        fitted().tune(precomputed(np.empty((0, 2)), a=np.empty((0, 1))), [])


def test_assess_and_predict_refuse_empty_data():
    X, y = make_data()
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    for ask in (classifier.assess, classifier.predict):
        with pytest.raises(InputError, match="X holds no samples"):
            ask(np.empty((0, 3)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", [0, 1], ids=["kept", "held out"])
def test_a_training_sample_that_is_not_finite_is_named_by_its_row(value, part):
    X, y = make_data()
    row = int(split_rows(y, 0.25, 0)[part][5])
    X[row, 1] = value
    with pytest.raises(InputError, match=f"training data must be finite: row {row} has"):
        EpistemicClassifier(LogisticRegression()).fit(X, y)


@pytest.mark.parametrize("part", [0, 1], ids=["kept", "held out"])
def test_a_training_sample_whose_activation_overflows_is_named_by_its_row(part):
    X, y = make_data()
    row = int(split_rows(y, 0.25, 0)[part][5])
    assert row != 5
    X[row, 1] = 1e39  # finite, but not in float32
    with pytest.raises(InputError, match=f"training data must be finite: row {row} has"):
        EpistemicClassifier(DummyClassifier(), layers=["input"]).fit(X, y)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_torch_modules_training_sample_that_is_not_finite_is_named_by_its_row(value):
    X, y = make_data()
    X[41, 0] = value
    with pytest.raises(InputError, match="training data must be finite: row 41 has"):
        EpistemicClassifier(small_network(), batch_size=16).fit(X, y)


def test_a_validation_sample_that_is_not_finite_is_named_by_its_row():
    with pytest.raises(InputError, match="validation data must be finite: row 2 has"):
        fitted(batch_size=2).tune(outputs_at(0, 10, np.nan), [0, 1, 1])


@pytest.mark.parametrize("rule", [Nearest, BallElseNearest, BallWithNearest])
def test_a_k_larger_than_the_training_set_is_refused(rule):
    with pytest.raises(InputError, match=r"k=5 is more than the 4 training samples"):
        fitted(rule=rule, k=5)
    with pytest.raises(InputError, match=r"k=6 is more than the 4 training samples"):
        fitted(rule={"a": Nearest(6)})


def test_a_k_that_the_rule_does_not_use_does_not_matter():
    assert fitted(rule=Ball, k=1000).tune(outputs_at(0.25), [0]).selection_.coverage == 1


def test_more_neighbours_than_training_samples_cannot_be_kept():
    with pytest.raises(InputError, match=r"k=9 neighbors were asked for .* holds 4 samples"):
        fitted(rule=Ball(1)).assess(outputs_at(0), k=9)


def test_a_negative_radius_is_refused():
    with pytest.raises(InputError, match="a radius must be a number >= 0; got -1"):
        fitted(rule=Ball(-1))


def test_an_unknown_layer_is_refused_with_those_there_are():
    X, y = make_data()
    with pytest.raises(LayerError, match="no layer 'hidden9': it has 'input', 'hidden1'"):
        EpistemicClassifier(small_mlp(), layers=["hidden9"]).fit(X, y)
    with pytest.raises(LayerError, match="no layer 'nine': it has 'input', '0', '1', '2'"):
        EpistemicClassifier(small_network(), layers=["nine"]).fit(X, y)
    with pytest.raises(LayerError, match="no layer 'b': it has 'a'"):
        fitted(layers=["b"])


def test_neighborhoods_for_other_layers_are_refused():
    with pytest.raises(InputError, match="needed for the layers 'a'; got them for 'b'"):
        fitted(rule={"b": Ball(1)})
    with pytest.raises(InputError, match="needed for the layers 'a'; got them for none"):
        fitted(rule={})


def test_scores_with_another_number_of_columns_are_refused():
    classifier = fitted(rule=Ball(1))
    for scores in ([[0, 0, 1]], [[0, 1, 0, 0]]):
        for ask in (classifier.assess, classifier.predict):
            with pytest.raises(InputError, match=f"each of the 2 classes; got {len(scores[0])}"):
                ask(precomputed(scores, a=[[0.0]]))


def test_score_columns_that_labels_cannot_name_ask_for_classes():
    outputs = precomputed(np.eye(3), a=np.eye(3))
    with pytest.raises(InputError, match=r"3 score columns but y holds 2 labels.*give classes="):
        EpistemicClassifier(PrecomputedModel()).fit(outputs, ["a", "b", "a"])


def test_assess_before_tune_says_what_to_do():
    with pytest.raises(NotFittedError, match=r"call tune\(X_val, y_val\), or give rule=Ball"):
        fitted().assess(outputs_at(0))


@pytest.mark.parametrize("action", ["assess", "predict", "tune", "save"])
def test_before_fit_there_is_nothing_to_ask(action, tmp_path):
    classifier = EpistemicClassifier(LogisticRegression())
    arguments = {"tune": ([[0.0]], [0]), "save": (tmp_path / "x.iknow",)}
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(classifier, action)(*arguments.get(action, ([[0.0]],)))
    assert list(tmp_path.iterdir()) == []


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(InputError, match="batch_size must be a whole number >= 1; got 0"):
        fitted(batch_size=0)


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_a_k_that_is_no_number_of_neighbours_is_refused(k):
    with pytest.raises(InputError, match="k must be"):
        fitted(rule=BallElseNearest, k=k)


def test_an_untrained_frozen_estimator_is_refused():
    X, y = make_data()
    with pytest.raises(InputError, match="not a fitted classifier"):
        EpistemicClassifier(FrozenEstimator(LogisticRegression())).fit(X, y)


def test_something_that_is_no_model_is_refused():
    with pytest.raises(InputError, match="a model must be a torch"):
        EpistemicClassifier("resnet").fit([[0.0]], [0])


@pytest.mark.parametrize("name", ["evidence", "k"])
@pytest.mark.parametrize("value", [None, "a", np.ones(3), [1]], ids=repr)
def test_options_of_assess_are_checked(name, value):
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0))
    outputs = np.eye(2), {"a": np.eye(2)}
    with pytest.raises(InputError, match=f"{name} must be"):
        classifier.fit(outputs, [0, 1]).assess(outputs, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", "a"), ("k", None), ("progress", np.ones(2)), ("layers", np.array("a")), ("layers", 1)],
)
def test_parameters_that_no_fit_can_use_are_refused_by_it(name, value):
    classifier = EpistemicClassifier(PrecomputedModel(), **{"rule": Ball(1.0), name: value})
    with pytest.raises(InputError, match=f"{name} must be"):
        classifier.fit((np.eye(2), {"a": np.eye(2)}), [0, 1])


@pytest.mark.parametrize(
    "options",
    [
        {"accuracy": "a"}, {"accuracy": np.ones(2)}, {"coverage": [0.5]}, {"confidence": None},
        {"each_class": np.ones(2)}, {"method": 1}, {"time_limit": "1"}, {"k": "a"}, {"k": 0.5},
        {"k": np.ones((2, 2))}, {"k": [[[1]]]}, {"accuracy": 10**400},
    ],
    ids=repr,
)  # fmt: skip
def test_goals_are_numbers_and_flags(options):
    outputs = np.eye(2), {"a": np.eye(2)}
    classifier = EpistemicClassifier(PrecomputedModel()).fit(outputs, [0, 1])
    with pytest.raises(InputError, match=f"{next(iter(options))} must"):
        classifier.tune(outputs, [0, 1], **options)


def test_a_layer_without_features_is_refused():
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0))
    with pytest.raises(InputError, match="at least one feature"):
        classifier.fit((np.eye(2), {"a": np.empty((2, 0))}), [0, 1])
