"""A whole comparison on a small network, against figures computed here one by one."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from iknow import Assertion, Ball, EpistemicClassifier
from iknow.core.evidence import distances_for_and_against
from iknow.errors import InputError
from iknow.evaluation.compare import Observer, compare
from iknow.evaluation.peers import Energy, KNNDistance, Observed, Softmax, TrustScore
from iknow.evaluation.perturbations import Marginals, Noise
from iknow.models import PrecomputedModel


class WithLevel:
    """A classifier whose level is the ratio of distances on the input, squeezed into [0, 1)."""

    def __init__(self, classifier):
        self._inside = classifier
        self.model_, self.classes_ = classifier.model_, classifier.classes_
        self.indexes_ = classifier.indexes_

    def assess(self, X, evidence=True):
        assessment = self._inside.assess(X, evidence=evidence)
        own, other = distances_for_and_against(
            assessment.evidence["input"], assessment.belief_codes
        )
        far = np.isinf(own)
        return SimpleNamespace(
            level=np.where(far, 0.0, 1 / (1 + np.where(far, 1.0, own) / np.maximum(other, 1e-9)))
        )


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order] / 16, np.array([f"digit {label}" for label in y[order]])
    return (X[:700], y[:700]), (X[700:1200], y[700:1200]), (X[1200:1600], y[1200:1600])


def wrap(model, training, **how):
    classifier = EpistemicClassifier(
        FrozenEstimator(model.fit(*training)), rule=Ball(1.0), progress=False, **how
    )
    return WithLevel(classifier.fit(*training))


@pytest.fixture(scope="module")
def classifier(data):
    model = MLPClassifier((16,), max_iter=400, early_stopping=True, random_state=0)
    return wrap(model, data[0], layers=["input", "hidden1"])


@pytest.fixture(scope="module")
def comparison(classifier, data):
    foreign = 1 - data[2][0][:150]
    strange = np.where(np.arange(400) < 100, "letter", data[2][1])
    return compare(
        classifier,
        *data,
        sets={"foreign": (foreign, None), "strange": (data[2][0], strange)},
        accuracy=0.9,
    )


def test_it_names_methods_and_sets(comparison):
    assert comparison.methods == (
        "iknow", "softmax", "softmax, temperature", "GEN", "energy", "Mahalanobis",
        "k-NN distance", "ViM", "SIRC (residual)", "SIRC (norm)", "fDBD", "NNGuide",
        "Trust Score (input)", "Trust Score (hidden)", "DkNN",
    )  # fmt: skip
    assert comparison.sets == (
        "test", "noise", "swaps", "scaling", "mixup", "marginals", "foreign", "strange",
    )  # fmt: skip
    assert comparison.sizes == (400,) * 6 + (150, 400)


def test_wrong_assertions_against_plain_thresholds(comparison, classifier, data):
    """Softmax and iknow have no ties worth mentioning: a quantile of validation scores will do."""
    _, (X_val, _), (X, y) = data
    model = classifier.model_.estimator

    def scores(X):
        return model.predict_proba(X).max(axis=1), classifier.assess(X).level

    wrong = model.predict(X) != y
    for place, (held, asked) in enumerate(zip(scores(X_val), scores(X), strict=True)):
        for c, coverage in enumerate(comparison.coverages):
            taken = asked >= np.quantile(held, 1 - coverage)
            method = (1, 0)[place]
            assert comparison.wrong[method, 0, c] == pytest.approx((taken & wrong).mean(), abs=4e-3)
            assert comparison.asserted[method, 0, c] == pytest.approx(taken.mean(), abs=4e-3)


def test_what_is_foreign_or_unknown_is_wrong(comparison, classifier, data):
    errors = dict(zip(comparison.sets, comparison.errors, strict=True))
    X, y = data[2]
    right = classifier.model_.estimator.predict(X) == y
    assert errors["test"] == pytest.approx(1 - right.mean())
    assert errors["foreign"] == errors["marginals"] == 1
    assert errors["strange"] == pytest.approx(1 - right[100:].sum() / 400)
    foreign = comparison.sets.index("foreign")
    np.testing.assert_array_equal(comparison.wrong[:, foreign], comparison.asserted[:, foreign])


def test_either_parent_of_a_mixture_is_right(comparison):
    errors = dict(zip(comparison.sets, comparison.errors, strict=True))
    assert errors["mixup"] < 0.5  # the belief is one of two of ten classes more often than not


def test_more_coverage_is_never_less_wrong(comparison):
    assert (np.diff(comparison.wrong, axis=2) >= -1e-12).all()
    assert (comparison.wrong <= comparison.asserted + 1e-12).all()
    assert (comparison.wrong <= comparison.errors[None, :, None] + 1e-12).all()


def test_intervals_hold_their_figures(comparison):
    for figures, between in (
        (comparison.wrong, comparison.wrong_between),
        (comparison.mean_wrong, comparison.mean_between),
    ):
        assert between.shape == (*figures.shape, 2)
        assert (between[..., 0] <= figures + 1e-9).all()
        assert (figures <= between[..., 1] + 1e-9).all()
    assert np.ptp(comparison.wrong_between, axis=-1).max() > 0.01


def test_the_area_is_that_of_the_curve_of_both_sets(comparison):
    for s, name in enumerate(comparison.sets):
        for m, method in enumerate(comparison.methods):
            curve = comparison.curves[name][method]
            assert curve.area == pytest.approx(comparison.augrc[m, s], abs=2e-3)
            both = comparison.errors[s] if s == 0 else comparison.errors[[0, s]].mean()
            assert curve.risk[-1] == pytest.approx(both)


def test_certified_coverage_is_of_the_test_data(comparison):
    assert comparison.certified.shape == (15,)
    assert ((comparison.certified >= 0) & (comparison.certified <= 1)).all()
    assert comparison.certified[1] > 0.5  # softmax, at 0.9


def test_it_gives_the_same_twice_and_changes_nothing(classifier, data):
    before = classifier._inside.get_params(), set(vars(classifier._inside))
    how = {"perturbations": [Noise()], "peers": [Energy()]}
    one, two = (compare(classifier, *data, **how).to_dict() for _ in range(2))
    assert one == two
    assert before == (classifier._inside.get_params(), set(vars(classifier._inside)))


def test_a_set_does_not_depend_on_the_others(classifier, data):
    both = compare(classifier, *data, perturbations=[Noise(), Marginals()], peers=[])
    alone = compare(classifier, *data, perturbations=[Marginals()], peers=[])
    np.testing.assert_array_equal(both.wrong[:, 2], alone.wrong[:, 1])


def test_a_peer_of_ones_own(classifier, data):
    class Constant:
        name = "nothing known"

        def fit(self, training, validation):
            assert training.labels is not None
            assert isinstance(validation, Observed)
            return self

        def score(self, observed):
            return np.zeros(len(observed))

    found = compare(classifier, *data, perturbations=[], peers=[Constant()])
    assert found.methods == ("iknow", "nothing known")
    expected = found.errors[0] * np.array(found.coverages)  # it draws by lot
    np.testing.assert_allclose(found.wrong[1, 0], expected)
    assert found.certified_by_mapie is None  # without softmax there is nothing for it to do


def test_as_json(comparison):
    plain = json.loads(json.dumps(comparison.to_dict()))
    assert plain["methods"][0] == "iknow"
    assert plain["curves"]["test"]["iknow"]["coverage"][-1] == 1


def test_as_text(comparison):
    said = str(comparison)
    lines = said.splitlines()
    first = next(line for line in lines if line.startswith("iknow"))
    assert f"{comparison.mean_wrong[0, 0]:.1%}" in first
    best = comparison.methods[int(comparison.mean_augrc.argmin())]
    marked = [line for line in lines if f"{comparison.mean_augrc.min():.3f}*" in line]
    assert any(line.startswith(best) for line in marked)
    assert repr(comparison) == "Comparison of 15 methods on 8 sets"


def test_as_html_a_name_is_text(classifier, data):
    found = compare(
        classifier, *data, perturbations=[], peers=[Softmax()],
        sets={"<script>alert(1)</script>": data[2]},
    )  # fmt: skip
    page = found._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_scikit_learn_model_has_fewer_peers(data):
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    classifier = wrap(model, data[0], layers=["input", "output"])
    observer = Observer(classifier, data[0][0])
    assert (observer.input, observer.hidden, observer.logits) == ("standardscaler", None, None)
    found = compare(classifier, *data, perturbations=[Noise()])
    assert found.methods == (
        "iknow", "softmax", "softmax, temperature", "GEN", "Mahalanobis (input)",
        "k-NN distance (input)", "Trust Score (input)", "DkNN",
    )  # fmt: skip


def test_a_torch_network_gives_its_hidden_layer_and_logits(data):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(64, 12), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(12, 10)
    )
    (X, _), *_ = data
    with torch.no_grad():
        y = network.eval()(torch.from_numpy(X).float()).argmax(dim=1).numpy()
    network.train()
    classifier = EpistemicClassifier(network, ["input", "1"], rule=Ball(1.0), progress=False)
    classifier.fit(X, y)
    observer = Observer(classifier, X)
    assert (observer.input, observer.hidden) == ("input", "1")
    observed, absent, unmeasured = observer.observe(X[:5])
    network.eval()
    with torch.no_grad():
        expected = network(torch.from_numpy(X[:5]).float()).numpy()
    np.testing.assert_allclose(observed.logits, expected, rtol=1e-5)
    np.testing.assert_allclose(observed.inputs, X[:5], rtol=1e-6)
    assert not absent.any()
    assert not unmeasured.any()


def test_a_sample_without_an_answer_is_never_asserted(classifier, data):
    X, y = data[2]
    broken = X.copy()
    broken[:40] = np.nan
    found = compare(
        classifier, *data, perturbations=[], peers=[Energy(), TrustScore("input")],
        sets={"broken": (broken, y)}, coverages=(1.0,),
    )  # fmt: skip
    np.testing.assert_allclose(found.asserted[:, 1, 0], 0.9, atol=0.02)
    assert found.errors[1] >= 0.1


def test_data_frames_keep_their_columns(data):
    pandas = pytest.importorskip("pandas")
    names = [f"pixel {i}" for i in range(64)]
    frames = [(pandas.DataFrame(X, columns=names), y) for X, y in data]
    classifier = wrap(LogisticRegression(max_iter=300), frames[0], layers=["input"])
    found = compare(classifier, *frames, perturbations=[Noise()], peers=[TrustScore("input")])
    plain = compare(
        wrap(LogisticRegression(max_iter=300), data[0], layers=["input"]), *data,
        perturbations=[Noise()], peers=[TrustScore("input")],
    )  # fmt: skip
    np.testing.assert_allclose(found.wrong, plain.wrong)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"accuracy": 1.0}, "accuracy"),
        ({"confidence": 0}, "confidence"),
        ({"coverages": [1.2]}, "coverage"),
        ({"peers": [Energy(), Energy()]}, "different names"),
        ({"sets": {"test": (np.zeros((2, 64)), None)}}, "different names"),
        ({"sets": {"short": (np.zeros((2, 64)), ["a"])}}, "2 samples and 1 labels"),
    ],
)
def test_what_makes_no_sense_is_refused(how, match, classifier, data):
    with pytest.raises(InputError, match=match):
        compare(classifier, *data, **{"perturbations": [], "peers": [Energy()], **how})


def test_the_classifier_as_it_is_tuned(data):
    """With its own levels: at their coverage it asserts what they say, and no more."""
    (X, y), (X_val, _), (X_test, y_test) = data
    model = LogisticRegression(max_iter=300).fit(X, y)
    tuned = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X, y)
    tuned.tune(X_val, coverage=0.75)
    found = compare(tuned, *data, perturbations=[], peers=[], coverages=(0.75,))
    known = tuned.assess(X_test).assertion == Assertion.IK
    wrong = model.predict(X_test) != y_test
    assert found.asserted[0, 0, 0] == pytest.approx(known.mean(), abs=0.01)
    assert found.wrong[0, 0, 0] == pytest.approx((known & wrong).mean(), abs=0.01)


def test_a_classifier_without_levels_is_refused(classifier, data):
    plain = SimpleNamespace(**vars(classifier), assess=lambda X, evidence: SimpleNamespace())
    with pytest.raises(InputError, match="gives no levels"):
        compare(plain, *data, perturbations=[], peers=[])


def test_outputs_computed_elsewhere_cannot_be_perturbed(data):
    stub = SimpleNamespace(model_=PrecomputedModel(), classes_=np.arange(2), indexes_={})
    with pytest.raises(InputError, match="needs the model itself"):
        compare(stub, *data)


def table(n=900):
    """A table with gaps, categories and dates, and labels that follow from its numbers."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    age = np.where(rng.random(n) < 0.3, np.nan, rng.normal(40, 10, n) + 15 * y)
    days = pd.to_timedelta(rng.integers(300, size=n), "D")
    frame = pd.DataFrame(
        {
            "amount": np.exp(rng.normal(size=n) + y),
            "age": age,
            "city": np.where(rng.random(n) < 0.1, None, rng.choice(["Bern", "Rome"], n)),
            "when": pd.Timestamp("2024-01-01") + days,
        }
    )
    return frame, y


def as_days(frame):
    return frame.apply(lambda column: column.dt.day_of_year.astype(float))


def by_name():
    numbers = make_pipeline(SimpleImputer(), StandardScaler()), ["amount", "age"]
    cities = OneHotEncoder(handle_unknown="ignore"), ["city"]
    steps = make_column_transformer(numbers, cities, (FunctionTransformer(as_days), ["when"]))
    return make_pipeline(steps, LogisticRegression(max_iter=1000))


def boosting():
    return HistGradientBoostingClassifier(max_iter=20)


TABLES = {
    "numbers with gaps": (boosting, lambda X: X[["amount", "age"]].to_numpy()),
    "a frame with gaps": (boosting, lambda X: X[["amount", "age"]]),
    "categories": (boosting, lambda X: X.drop(columns="when").astype({"city": "category"})),
    "strings and dates": (by_name, lambda X: X),
    "polars": (boosting, lambda X: pl.from_pandas(X[["amount", "age"]])),
    "texts": (
        lambda: make_pipeline(TfidfVectorizer(), LogisticRegression()),
        lambda X: [f"word{a:.0f} more{i % 89} other{i % 97}" for i, a in enumerate(X.amount)],
    ),
}


@pytest.mark.parametrize(("make", "take"), TABLES.values(), ids=TABLES)
def test_every_table_is_compared_and_rows_with_gaps_are_answers(make, take):
    frame, y = table()
    X, model = take(frame), make()
    parts = [(X[rows], y[rows]) for rows in (slice(400), slice(400, 650), slice(650, 900))]
    model.fit(*parts[0])
    ec = EpistemicClassifier(FrozenEstimator(model), progress=False)
    ec.fit(*parts[0]).tune(parts[1][0], coverage=0.75)
    found = compare(ec, *parts, coverages=[0.3, 0.75])
    assert found.errors[0] == pytest.approx((model.predict(parts[2][0]) != parts[2][1]).mean())
    assert len(found.sets) == (1 if isinstance(X, list) else 6)
    assert len({tuple(row) for row in found.wrong[:, 0]}) > 3  # methods differ
    assert np.abs(found.asserted[:2, 0, 1] - 0.75).max() < 0.2


def test_answers_without_activations_count_for_the_methods_that_need_none():
    frame, y = table()
    X = frame[["amount", "age"]].to_numpy()
    model = boosting().fit(X, y)
    whole, gaps = np.flatnonzero(~np.isnan(X).any(axis=1)), np.flatnonzero(np.isnan(X).any(axis=1))
    train, val = (X[whole[:400]], y[whole[:400]]), (X[whole[400:]], y[whole[400:]])
    test = X[gaps], y[gaps]
    ec = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(*train)
    ec.tune(val[0], coverage=0.75)
    assert ec.layers_ == ("input",)
    peers = [Softmax(), KNNDistance(layer="input")]
    found = compare(ec, train, val, test, peers=peers, perturbations=[])
    assert found.errors[0] == pytest.approx((model.predict(test[0]) != test[1]).mean())
    assert found.asserted[:, 0, 1].tolist()[::2] == [0, 0]  # ours and k-NN
    assert found.asserted[1, 0, 1] > 0.2
