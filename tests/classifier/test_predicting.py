"""What scikit-learn asks of a classifier is the wrapped model's own."""

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy.special import softmax as scipy_softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_blobs
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC

from iknow import Ball, EpistemicClassifier, Nearest
from iknow.core.level import softmax
from iknow.errors import InputError
from iknow.models import PrecomputedModel

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])


def wrap(model, **options):
    return EpistemicClassifier(model, progress=False, **options)


@pytest.fixture
def trained():
    return LogisticRegression(max_iter=500).fit(X[::2], NAMES[Y[::2]])


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# The model's own scores


@pytest.mark.parametrize("batch_size", [None, 7])
def test_probabilities_and_decisions_are_those_of_the_wrapped_classifier(trained, batch_size):
    ec = wrap(FrozenEstimator(trained), batch_size=batch_size).fit(X[::2], NAMES[Y[::2]])
    np.testing.assert_array_equal(ec.predict_proba(X), trained.predict_proba(X))
    np.testing.assert_allclose(ec.decision_function(X), trained.decision_function(X), rtol=1e-12)
    assert (ec.classes_[ec.predict_proba(X).argmax(axis=1)] == ec.predict(X)).all()
    assert ec.score(X, NAMES[Y]) == trained.score(X, NAMES[Y])


def test_two_classes_have_two_probabilities_and_one_decision():
    two = Y < 2
    ec = wrap(LogisticRegression()).fit(X[two], Y[two])
    assert ec.predict_proba(X[two]).shape == (100, 2)
    own = ec.model_.estimator.decision_function(X[two])
    np.testing.assert_array_equal(ec.decision_function(X[two]), own)


@pytest.mark.parametrize(
    ("model", "has"),
    [
        (LogisticRegression(), {"predict_proba", "decision_function"}),
        (GaussianNB(), {"predict_proba"}),
        (LinearSVC(), {"decision_function"}),
        (SVC(), {"decision_function"}),
        (make_pipeline(StandardScaler(), GaussianNB()), {"predict_proba", "set_output"}),
        (make_pipeline(StandardScaler(), RidgeClassifier()), {"decision_function", "set_output"}),
        (torch.nn.Linear(4, 3), {"predict_proba"}),
        (PrecomputedModel(), {"predict_proba"}),
        (len, {"predict_proba"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_has_the_methods_that_the_model_has(model, has):
    wrapped = wrap(model)
    methods = ("predict_proba", "decision_function", "set_output")
    assert {name for name in methods if hasattr(wrapped, name)} == has
    if has <= {"decision_function", "set_output"}:
        with pytest.raises(AttributeError, match="predict_proba"):
            wrapped.predict_proba(X)


def make_network(last=None):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)]
    return torch.nn.Sequential(*layers, *([] if last is None else [last]))


def test_logits_go_through_a_softmax(tmp_path):
    network = make_network()
    ec = wrap(network, rule=Ball(1)).fit(X.astype("float32"), Y)
    logits = network(torch.tensor(X, dtype=torch.float32)).detach().numpy()
    expected = scipy_softmax(logits.astype(float), axis=1)
    np.testing.assert_allclose(ec.predict_proba(X.astype("float32")), expected, rtol=1e-5)
    ec.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", network)
    np.testing.assert_allclose(loaded.predict_proba(X.astype("float32")), expected, rtol=1e-5)


def test_probabilities_of_a_network_are_returned_as_they_are():
    network = make_network(torch.nn.Softmax(dim=1))
    ec = wrap(network, rule=Ball(1)).fit(X.astype("float32"), Y)
    expected = network(torch.tensor(X, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(ec.predict_proba(X.astype("float32")), expected, rtol=1e-6)


def test_logits_that_happen_to_sum_to_one_are_still_logits():
    """The training samples decide what scores are, not the one that is asked about."""

    def double(batch):
        return np.stack([2 * batch[:, 0], 1 - batch[:, 0]], axis=1)

    inputs, y = make_blobs(60, 2, centers=[[-5, 0], [5, 0]], random_state=0)
    ec = wrap(double, rule=Ball(1)).fit(inputs, 1 - y)
    query = np.array([[0.0, 0.0]])  # scores 0 and 1
    np.testing.assert_allclose(ec.predict_proba(query), scipy_softmax([[0.0, 1.0]], axis=1))
    assert ec.predict_proba(query)[0, 1] < 0.75


def test_without_a_probe_the_samples_that_tuned_decide():
    rng = np.random.default_rng(0)

    def make(n, scale):
        y = np.arange(n) % 2
        place = np.stack([4.0 * y - 2, 2 - 4.0 * y], axis=1) + rng.normal(size=(n, 2))
        return (scale(-place), {"a": place}), y

    shares = wrap(PrecomputedModel()).fit(*make(80, lambda s: scipy_softmax(s, axis=1)))
    shares.tune(*make(80, lambda s: scipy_softmax(s, axis=1)))
    logits = wrap(PrecomputedModel()).fit(*make(80, np.asarray)).tune(*make(80, np.asarray))
    query = (np.array([[0.25, 0.75]]), {"a": np.array([[1.0, -1.0]])})
    np.testing.assert_allclose(shares.predict_proba(query), [[0.25, 0.75]])
    np.testing.assert_allclose(logits.predict_proba(query), scipy_softmax([[0.25, 0.75]], axis=1))


def test_softmax_is_scipys_and_takes_infinities():
    scores = np.random.default_rng(0).normal(size=(50, 4)) * 300
    np.testing.assert_allclose(softmax(scores), scipy_softmax(scores, axis=1))
    infinite = np.array([[np.inf, 0.0, -np.inf], [-np.inf, 0.0, 0.0]])
    np.testing.assert_allclose(softmax(infinite), [[1, 0, 0], [0, 0.5, 0.5]])


def test_a_sample_without_an_answer_has_no_probabilities():
    ec = wrap(make_network(), rule=Ball(1)).fit(X.astype("float32"), Y)
    broken = X[:3].astype("float32")
    broken[1, 2] = np.nan
    with pytest.raises(InputError, match="no answer for row 1"):
        ec.predict_proba(broken)


# Calibration, voting, stacking, cross-validation


def test_calibration_takes_it():
    ec = wrap(LogisticRegression(max_iter=500)).fit(X[::2], Y[::2])
    calibrated = CalibratedClassifierCV(FrozenEstimator(ec)).fit(X[1::2], Y[1::2])
    alone = CalibratedClassifierCV(FrozenEstimator(ec.model_.estimator)).fit(X[1::2], Y[1::2])
    np.testing.assert_allclose(calibrated.predict_proba(X), alone.predict_proba(X), atol=1e-12)


def test_soft_votes_are_the_mean_of_probabilities():
    models = [("a", LogisticRegression(max_iter=500)), ("b", GaussianNB())]
    vote = VotingClassifier([(name, wrap(model)) for name, model in models], voting="soft")
    vote.fit(X, Y)
    expected = np.mean(
        [each.model_.estimator.predict_proba(X) for each in vote.estimators_], axis=0
    )
    np.testing.assert_allclose(vote.predict_proba(X), expected)


def test_stacking_takes_it():
    stack = StackingClassifier([("a", wrap(GaussianNB())), ("b", wrap(LinearSVC()))]).fit(X, Y)
    assert stack.score(X, Y) > 0.9
    assert stack.stack_method_ == ["predict_proba", "decision_function"]


def test_cross_validation_gives_the_probabilities_of_models_that_did_not_see_the_sample():
    found = cross_val_predict(wrap(GaussianNB()), X, Y, method="predict_proba", cv=3)
    assert found.shape == (150, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    scores = cross_val_score(wrap(GaussianNB()), X, Y, cv=3, scoring="neg_log_loss")
    assert (scores > -0.5).all()


# Weights and other arguments of training


class Remembering(GaussianNB):
    """Keeps the weights that it was trained with."""

    def fit(self, X, y, sample_weight=None, note=None):
        self.weights_, self.note_, self.n_seen_ = sample_weight, note, len(y)
        return super().fit(X, y, sample_weight)


def check_weights(ec, weights):
    """The model got the weights of exactly the samples that it was trained on."""
    model = ec.model_.estimator
    rows = np.sort(ec.indexes_[ec.layers_[0]].rows)  # as numbers in X
    np.testing.assert_array_equal(model.weights_, np.asarray(weights)[rows])
    again = GaussianNB().fit(X[rows], Y[rows], np.asarray(weights)[rows])
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize("kind", [np.asarray, list, pd.Series])
def test_weights_reach_the_training(kind):
    weights = 1.0 + np.arange(150) % 7
    ec = wrap(Remembering()).fit(X, Y, sample_weight=kind(weights), note="all" * 50)
    assert ec.model_.estimator.note_ == "all" * 50  # 150 letters, but not about the samples
    check_weights(ec, weights)


def test_weights_reach_a_step_of_a_pipeline():
    weights = 1.0 + np.arange(150) % 7
    ec = wrap(Pipeline([("it", Remembering())]), rule=Nearest(3))
    ec.fit(X, Y, it__sample_weight=weights)
    np.testing.assert_array_equal(ec.model_.estimator["it"].weights_, weights)


def test_with_routing_the_model_gets_what_it_requests(routing):
    weights = 1.0 + np.arange(150) % 7
    asked = wrap(Remembering().set_fit_request(sample_weight=True))
    check_weights(asked.fit(X, Y, sample_weight=weights), weights)
    unasked = wrap(Remembering())
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        unasked.fit(X, Y, sample_weight=weights)


def test_with_routing_weights_come_through_searches_and_pipelines(routing):
    weights = 1.0 + np.arange(150) % 7
    model = Remembering().set_fit_request(sample_weight=True)
    steps = make_pipeline(FunctionTransformer(), wrap(model))
    steps.fit(X, Y, sample_weight=weights)
    check_weights(steps[-1], weights)
    own = wrap(model).set_score_request(sample_weight=False)
    search = GridSearchCV(own, {"quorum": [1, 2]}, cv=3).fit(X, Y, sample_weight=weights)
    check_weights(search.best_estimator_, weights)
    done = cross_validate(own, X, Y, params={"sample_weight": weights}, cv=3, return_estimator=True)
    assert all(each.model_.estimator.weights_ is not None for each in done["estimator"])


def test_where_nothing_is_trained_weights_are_refused(trained):
    with pytest.raises(InputError, match="'sample_weight', but nothing is trained"):
        wrap(trained).fit(X, NAMES[Y], sample_weight=np.ones(150))
    with pytest.raises(InputError, match="nothing is trained"):
        wrap(FrozenEstimator(trained)).fit(X, NAMES[Y], sample_weight=np.ones(150))


# Output containers


FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_a_wrapped_pipeline_may_return_frames(container):
    plain = wrap(make_pipeline(StandardScaler(), KNeighborsClassifier())).fit(FRAME, Y)
    framed = clone(plain).set_output(transform=container).fit(FRAME, Y)
    inside = framed.model_.estimator[0].transform(FRAME)
    assert type(inside).__module__.startswith(container)
    assert framed.assess(FRAME).reason.tolist() == plain.assess(FRAME).reason.tolist()
    np.testing.assert_array_equal(framed.predict_proba(FRAME), plain.predict_proba(FRAME))
    framed.set_output(transform="default")
    assert isinstance(framed.model_.estimator[0].transform(FRAME), np.ndarray)


def test_a_pipeline_that_ends_in_it_may_return_frames():
    steps = make_pipeline(StandardScaler(), wrap(LogisticRegression()))
    steps.set_output(transform="pandas").fit(FRAME, Y)
    assert steps[-1].feature_names_in_.tolist() == list("abcd")
    assert len(steps[-1].assess(steps[0].transform(FRAME))) == 150


def test_frames_everywhere_change_no_answer():
    model = make_pipeline(StandardScaler(), LogisticRegression())
    plain = wrap(model).fit(FRAME, Y).assess(FRAME)
    with sklearn.config_context(transform_output="pandas"):
        framed = wrap(model).fit(FRAME, Y).assess(FRAME)
    assert framed.reason.tolist() == plain.reason.tolist()


def test_answers_join_the_frame_that_was_assessed() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    X = X.sample(frac=1, random_state=0)  # its index is no longer 0, 1, ...
    ec = EpistemicClassifier(LogisticRegression(max_iter=1000)).fit(X[:100], y[X.index[:100]])
    joined = X.join(ec.assess(X[100:]).to_frame(), how="inner")
    assert joined["belief"].tolist() == ec.predict(joined[X.columns]).tolist()
    assert len(joined) == 50
