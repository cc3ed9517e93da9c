"""Features behind a distance: what each adds, the values side by side, and what is new."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from iknow import EpistemicClassifier
from iknow.explain.features import MARKED
from iknow.metrics import Cosine, Minkowski, Scaled, Table, Whitened
from iknow.metrics.metric import contributions
from tests.markup import Page


def with_flags(rng, n):
    """Values and flags of five columns: numbers, with gaps, two of categories, a constant."""
    values = np.column_stack([
        rng.normal(0, 5, n), rng.exponential(1, n), rng.integers(0, 4, n), rng.integers(0, 300, n),
        np.ones(n),
    ])  # fmt: skip
    flags = np.zeros((n, 5))
    flags[:, 2:4] = 2
    gaps = rng.random((n, 5)) < 0.15
    gaps[:, 4] = False
    flags[gaps], values[gaps] = 1, 0
    return np.hstack([values, flags])


@pytest.mark.parametrize(
    "metric",
    [Minkowski(2.0), Minkowski(1.0), Minkowski(3.0), Scaled(), Cosine(), Table()],
    ids=repr,
)
def test_what_features_add_makes_up_the_distance(metric):
    """The oracle is the metric's own distance, which knows of no features."""
    rng = np.random.default_rng(0)
    rows, n_features = with_flags(rng, 700), 5
    if not isinstance(metric, Table):
        rows, n_features = rows[:, :4] * [1, 10, 1, 0.1], 4
    metric = metric.fit(rows[:600], np.zeros(600, dtype=int))
    asked, stored = rows[600:], rows[:50]
    points, others = metric.transform(asked), metric.transform(stored)
    for point, distances in zip(points, metric.distances(asked, stored), strict=True):
        added = contributions(metric, point, others)
        assert added.shape == (50, n_features)
        assert (added >= 0).all()
        np.testing.assert_allclose(added.sum(axis=1), distances**metric.p, rtol=1e-9, atol=1e-12)


def test_a_feature_adds_what_it_would_if_it_alone_differed():
    rng = np.random.default_rng(1)
    metric = Table().fit(with_flags(rng, 500), np.zeros(500, dtype=int))
    one, other = with_flags(rng, 2)
    for j in range(5):
        changed = one.copy()
        changed[[j, 5 + j]] = other[[j, 5 + j]]
        alone = metric.distances([one], [changed])[0, 0] ** 2
        added = contributions(metric, *metric.transform([one]), metric.transform([other]))
        assert added[0, j] == pytest.approx(alone, abs=1e-12)


def test_a_metric_that_mixes_features_splits_nothing():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(50, 3))
    whitened = Whitened().fit(rows, np.zeros(50, dtype=int))
    points = whitened.transform(rows)
    assert contributions(whitened, points[0], points) is None
    assert contributions(Minkowski(np.inf), rows[0], rows) is None


def test_points_of_a_table_are_read_back():
    rng = np.random.default_rng(3)
    rows = with_flags(rng, 2000)
    metric = Table().fit(rows, np.zeros(2000, dtype=int))
    back = metric.restore(metric.transform(rows))
    np.testing.assert_array_equal(back[:, 5:], rows[:, 5:])
    rare = back[:, :5] == -1  # of 300 categories 256 have a dimension
    assert rare[:, 3].any()
    assert not rare[:, [0, 1, 2, 4]].any() or (rows[:, :5] < 0)[rare].all()
    np.testing.assert_allclose(np.where(rare, 0, back[:, :5]), np.where(rare, 0, rows[:, :5]))


def make_people(n):
    rng = np.random.default_rng(4)
    people = pd.DataFrame({
        "age": rng.normal(40, 12, n).round(), "hours": rng.normal(40, 9, n).round(),
        "work": rng.choice(["private", "state", "self"], n),
        "city": rng.choice(["Bern", "Rome"], n),
    })  # fmt: skip
    people.loc[rng.random(n) < 0.1, "hours"] = np.nan
    return people, np.where(people.age + 10 * (people.work == "state") > 45, "rich", "poor")


@pytest.fixture(scope="module")
def of_people():
    people, y = make_people(1200)
    encoder = make_column_transformer(
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["work", "city"]),
        remainder="passthrough",
    )
    model = make_pipeline(encoder, HistGradientBoostingClassifier(max_iter=20, random_state=0))
    model.fit(people[:600], y[:600])
    ec = EpistemicClassifier(model, ["table"], quorum=3, progress=False).fit(people[:600], y[:600])
    return ec.tune(people[600:900], y[600:900], coverage=0.8), people[:600], people[900:]


def test_values_are_those_of_the_sample_and_its_neighbors(of_people):
    ec, training, asked = of_people
    asked = asked.reset_index(drop=True)
    a = ec.assess(asked)
    for i in range(40):
        (layer,) = a.explain(i).layers
        rows = [each.row for each in (*layer.samples_for, *layer.samples_against)]
        deciding = layer.samples_for[-1].distance ** 2
        shares = 0.0
        for each in layer.features:
            shares += each.share
            for row, value in zip([None, *rows], [each.value, *each.values], strict=True):
                there = (asked if row is None else training)[each.feature].iloc[
                    i if row is None else row
                ]
                expected = "missing" if there != there else there
                assert value == (expected if isinstance(expected, str) else pytest.approx(expected))
        assert shares > 0.95 or deciding == 0
        assert shares <= 1 + 1e-9


def test_a_bundle_with_its_model_knows_its_categories(of_people, tmp_path):
    pytest.importorskip("onnxruntime")
    ec, training, asked = of_people
    ec.save(tmp_path / "people.iknow", onnx=True)
    asked = asked.assign(work="Martian")
    loaded = EpistemicClassifier.load(tmp_path / "people.iknow").assess(asked)
    for i in range(9):
        (layer,) = loaded.explain(i, samples=asked).layers
        rows = [each.row for each in (*layer.samples_for, *layer.samples_against)]
        first = layer.features[0]
        assert (first.feature, first.value) == ("work", "Martian")
        assert first.values == tuple(training["work"][rows])


def test_what_is_new_is_named(of_people):
    ec, _, asked = of_people
    strange = asked.head(4).reset_index(drop=True)
    strange.loc[0, "work"], strange.loc[1, "age"], strange.loc[2, "age"] = "Martian", np.nan, 9e9
    for each in (ec.assess(strange), ec.assess(strange)[:3]):
        martian, gap, huge = (each.explain(i) for i in range(3))
        assert "work Martian (a category never seen in training)" in martian.sentence
        assert "age missing (never missing in training)" in gap.sentence
        assert "age 9e+09 (100%)" in huge.sentence
    words = Page(martian._repr_html_()).words
    for said in ("Martian", "a category never seen in training", "work"):
        assert said in words
    (layer,) = martian.layers
    assert all(layer.features[0].marked)
    assert [each.unseen for each in layer.features[1:]] == [""] * (len(layer.features) - 1)


def test_what_is_marked_makes_up_a_tenth_of_a_distance(of_people):
    ec, training, asked = of_people
    a, metric = ec.assess(asked), ec.indexes_["table"].metric
    ours, theirs = (ec.model_.observe(x, ["table"]).activations["table"] for x in (asked, training))
    for i in range(20):
        (layer,) = a.explain(i).layers
        exemplars = (*layer.samples_for, *layer.samples_against)
        for each in layer.features:
            j = list(training).index(each.feature)
            for marked, exemplar in zip(each.marked, exemplars, strict=True):
                one, other = ours[[i]], theirs[[exemplar.row]]
                same = other.copy()
                same[0, [j, 4 + j]] = one[0, [j, 4 + j]]
                whole, rest = (metric.distances(one, x)[0, 0] ** 2 for x in (other, same))
                assert marked == (whole - rest > MARKED * whole)


def test_a_copy_elsewhere_explains_without_features(of_people):
    ec, _, asked = of_people
    a = ec.assess(asked[:5], evidence=True)
    assert a.explain(2).layers[0].features
    again = pickle.loads(pickle.dumps(a))
    assert again.explain(2).layers[0].features == ()
    assert again.explain(2).layers[0].samples_for == a.explain(2).layers[0].samples_for


def test_pixels_and_hidden_units_are_no_features():
    rng = np.random.default_rng(5)
    X = rng.random((300, 64))
    y = (X[:, 0] > 0.5).astype(int)
    ec = EpistemicClassifier(LogisticRegression().fit(X[:100], y[:100]), progress=False)
    a = ec.fit(X[:100], y[:100]).tune(X[100:200], y[100:200], coverage=0.5).assess(X[200:])
    assert a.explain(0).layers[0].features == ()


WORDS = {"sport": "goal match team coach cup", "space": "orbit rocket moon star engine"}


def test_texts_are_told_with_their_words_and_neighbors():
    rng = np.random.default_rng(6)
    labels = rng.choice(list(WORDS), 300)
    texts = [" ".join(rng.choice(WORDS[label].split(), 4)) for label in labels]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts[:200], labels[:200])
    ec = EpistemicClassifier(model, progress=False).fit(texts[:200], labels[:200])
    ec.tune(texts[200:], labels[200:], coverage=0.8)
    asked = ["quokka zebra", "moon goal team rocket unicorn", texts[0], ""]
    a = ec.assess(asked)
    for i in (0, 3):  # without the texts
        assert "Never seen in training: all that is in it" in a.explain(i).sentence
    unknown, mixed, known = (a.explain(i, samples=asked, training=texts) for i in range(3))
    assert "Never seen in training: quokka, zebra" in unknown.sentence
    (layer,) = mixed.layers
    assert layer.unknown_words == ("unicorn",)
    found = {each.feature: each for each in layer.features}
    assert {"moon", "goal", "team", "rocket"} <= set(found)
    for each in (*layer.samples_for, *layer.samples_against):
        assert f"#{each.row} ({each.label}) at {each.distance:.4g}: {texts[each.row]}" in str(mixed)
    exemplars = (*layer.samples_for, *layer.samples_against)
    for word, each in found.items():
        for exemplar, value in zip(exemplars, each.values, strict=True):
            assert (value > 0) == (word in texts[exemplar.row].split())
    nearest = known.layers[0]
    assert nearest.samples_for[0].distance == pytest.approx(0, abs=1e-3)
    assert {each.feature for each in nearest.features} >= set(texts[0].split())
