"""Portable bundles about tables with categories, gaps and numbers: they answer as the original."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from iknow import Assertion, EpistemicClassifier
from iknow.errors import ExportError

pytest.importorskip("skl2onnx")

KINDS, JOBS = ["a", "b", "c"], ["x", "yy", "zß"]


def make_table(n, seed):
    """Categories in two columns, numbers with gaps, and names that nobody shares."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(KINDS, n),
            "age": rng.normal(40 + 5 * y, 10, n),
            "job": rng.choice(JOBS, n),
            "name": [f"n{i}" for i in rng.integers(10**6, size=n)],
        }
    )
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    return frame, y


def fitted(model, columns=("kind", "age", "job", "name")):
    X, y = make_table(400, 0)
    trained = FrozenEstimator(model.fit(X[[*columns]], y))
    classifier = EpistemicClassifier(trained, progress=False).fit(X[[*columns]], y)
    V, y_val = make_table(300, 1)
    return classifier.tune(V[[*columns]], y_val, coverage=0.8)


def encoded(encoder, classifier, *columns):
    imputed = ("numbers", SimpleImputer(), ["age"])
    return make_pipeline(ColumnTransformer([("c", encoder, list(columns)), imputed]), classifier)


MODELS = {
    "one hot": encoded(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(), "kind", "job"),
    "ordinal": encoded(
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        HistGradientBoostingClassifier(max_iter=5, random_state=0),
        "kind",
        "job",
    ),
}


@pytest.mark.filterwarnings("ignore:the values of column 'age'")
@pytest.mark.parametrize("name", MODELS)
def test_a_bundle_knows_categories_as_the_original_does(name, tmp_path):
    original = fitted(MODELS[name])
    assert original.layers_[0] == "table"
    original.save(tmp_path / "x.iknow", onnx=True)
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    asked, _ = make_table(100, 2)
    strange = {
        "as ever": asked,
        "unseen": asked.assign(kind="Martian"),
        "seen in another column": asked.assign(job="a"),
        "empty": asked.assign(job=""),
        "unseen names": asked.assign(name="nobody"),
        "gaps": asked.assign(age=np.nan),
        "far": asked.assign(age=1e6),
    }
    for case, each in strange.items():
        one, other = original.assess(each), loaded.assess(each)
        np.testing.assert_array_equal(one.belief, other.belief, case)
        np.testing.assert_array_equal(one.assertion, other.assertion, case)
        for layer in one.evidence:
            np.testing.assert_array_equal(
                one.evidence[layer].distances, other.evidence[layer].distances, case
            )
        known = (other.assertion == Assertion.IK).mean()
        if case in ("as ever", "unseen names"):
            assert known > 0.6
        elif case != "gaps":
            assert known == 0


def test_categories_that_a_data_frame_numbers_are_told_by_their_labels(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    X, y = make_table(400, 0)
    kinds = pd.CategoricalDtype(KINDS)
    numbers = pd.CategoricalDtype([3, 5, 7])

    def typed(frame):
        codes = frame["job"].map(dict(zip(JOBS, [3, 5, 7], strict=True)))
        frame = frame.assign(kind=frame["kind"].astype(kinds), job=codes.astype(numbers))
        return frame[["kind", "age", "job"]]

    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(typed(X), y)
    original = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(typed(X), y)
    V, y_val = make_table(300, 1)
    original.tune(typed(V), y_val, coverage=0.8).save(tmp_path / "x.iknow", onnx=True)
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    asked = typed(make_table(100, 2)[0])
    one, other = original.assess(asked), loaded.assess(asked)
    np.testing.assert_array_equal(one.assertion, other.assertion)
    assert (other.assertion == Assertion.IK).mean() > 0.6
    plain = asked.astype({"kind": str, "job": int})
    assert (loaded.assess(plain.assign(job=4)).assertion == Assertion.IK).sum() == 0
    assert (loaded.assess(plain.assign(kind="3")).assertion == Assertion.IK).sum() == 0


def test_a_graph_that_would_not_know_a_category_is_refused(tmp_path):
    X, y = make_table(400, 0)
    model = fitted(MODELS["one hot"]).model_.estimator
    X.loc[300, "job"] = "rare"  # once in training, and not among the few inputs of the probe
    original = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X, y)
    assert "rare" not in set(original.probe_.inputs["job"])
    with pytest.raises(ExportError, match=r"1 categories of the training data .*pass samples="):
        original.save(tmp_path / "x.iknow", onnx=True)
    assert list(tmp_path.iterdir()) == []
    original.save(tmp_path / "x.iknow", onnx=True, samples=X)
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    original.tune(*make_table(300, 1), coverage=0.8)
    loaded.tune(*make_table(300, 1), coverage=0.8)
    np.testing.assert_array_equal(original.assess(X).assertion, loaded.assess(X).assertion)
