"""Pipelines on the data as the user has it: text, dicts, sparse matrices, tables.

The oracle is the same pipeline on the same data in another form.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_matrix, csr_array, csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler

from iknow import Assertion, EpistemicClassifier, Reason
from iknow.errors import InputError, LayerError
from iknow.metrics import Cosine
from iknow.models import SklearnModel
from iknow.testing import ModelContract

WORDS = {"fish": "cod eel sole tuna gill fin", "bird": "wing nest egg owl beak crow"}
FILLER = ["the", "a", "some", "was", "is", "near", "with", "seen", "today"]


def write(n, seed):
    """Texts of two kinds and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(list(WORDS), size=n)
    texts = [
        " ".join([*rng.choice(WORDS[kind].split(), 4), *rng.choice(FILLER, 5)]) for kind in labels
    ]
    return texts, labels


TEXTS, KINDS = write(150, seed=0)
OTHERS, THEIR_KINDS = write(90, seed=1)
NEW, _ = write(40, seed=2)
PIPELINE = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, KINDS)
REDUCED = make_pipeline(TfidfVectorizer(), TruncatedSVD(8), LogisticRegression()).fit(TEXTS, KINDS)
FORMS = {
    "list": list,
    "tuple": tuple,
    "array": lambda texts: np.array(texts, dtype=object),
    "text array": np.array,
    "Series": lambda texts: pd.Series(texts, index=np.arange(len(texts))[::-1]),
}


@pytest.fixture(scope="module")
def fitted():
    return tuned(PIPELINE)


def tuned(model, make=list, **parameters):
    ec = EpistemicClassifier(model, **parameters).fit(make(TEXTS), KINDS)
    return ec.tune(make(OTHERS), THEIR_KINDS, coverage=0.7)


def assert_same(found, expected):
    np.testing.assert_array_equal(found.assertion, expected.assertion)
    np.testing.assert_array_equal(found.level, expected.level)
    np.testing.assert_array_equal(found.scores, expected.scores)


class TestContractOfText(ModelContract):
    def make_model(self):
        return SklearnModel(PIPELINE)

    def make_inputs(self):
        return TEXTS[:20]


class TestContractOfASeries(TestContractOfText):
    def make_inputs(self):
        return pd.Series(TEXTS[:20])

    def test_an_answer_does_not_depend_on_the_rest_of_the_batch(self):
        model, whole = SklearnModel(REDUCED), pd.Series(TEXTS[:20])
        expected = model.observe(whole, ("truncatedsvd",)).activations["truncatedsvd"]
        found = model.observe(whole.iloc[3:5], ("truncatedsvd",)).activations["truncatedsvd"]
        np.testing.assert_allclose(found, expected[3:5], rtol=1e-5, atol=1e-6)


# Text


@pytest.mark.parametrize("form", FORMS)
def test_texts_in_any_form_are_assessed_alike(form, fitted):
    make = FORMS[form]
    assert_same(fitted.assess(make(NEW)), fitted.assess(NEW))
    np.testing.assert_array_equal(fitted.predict(make(NEW)), PIPELINE.predict(NEW))
    assert_same(tuned(PIPELINE, make).assess(NEW), fitted.assess(NEW))


@settings(max_examples=15)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=6), st.sampled_from(list(FORMS)))
def test_any_text_in_any_form_is_assessed_alike_alone_and_together(fitted, texts, form):
    if any("\0" in text for text in texts) and form == "text array":
        return  # numpy drops what ends in it
    whole = fitted.assess(texts)
    assert_same(fitted.assess(FORMS[form](texts)), whole)
    assert_same(fitted.assess(texts[-1:]), whole[len(texts) - 1])


def test_a_text_without_a_known_word_is_not_known(fitted):
    for ec in (fitted, tuned(REDUCED)):
        assert (ec.assess(["", "zzz", "\n"]).assertion != Assertion.IK).all()


def test_a_missing_text_has_no_answer_and_disturbs_no_other(fitted):
    for gap in (None, np.nan, pd.NA):
        for make in (list, pd.Series):
            a = fitted.assess(make([*NEW[:5], gap, *NEW[5:]]))
            assert a.reason[5] == Reason.INVALID
            assert_same(a[np.arange(len(a)) != 5], fitted.assess(NEW))
    assert (
        fitted.assess(pd.Series([None, None], dtype="str")).reason.tolist() == [Reason.INVALID] * 2
    )
    with pytest.raises(InputError, match="row 5"):
        fitted.predict([*NEW[:5], None, *NEW[5:]])


def test_texts_are_compared_by_direction(fitted):
    assert fitted.layers_ == ("tfidfvectorizer",)
    assert isinstance(fitted.indexes_["tfidfvectorizer"].metric, Cosine)
    assert isinstance(tuned(REDUCED).indexes_["truncatedsvd"].metric, Cosine)
    assert not hasattr(fitted, "n_features_in_")


@pytest.mark.parametrize("form", FORMS)
def test_a_pipeline_is_trained_on_texts_with_a_part_held_out(form):
    ec = EpistemicClassifier(clone(PIPELINE), random_state=0).fit(FORMS[form](TEXTS), KINDS)
    assert ec.model_ is not PIPELINE
    assert len(ec.indexes_["tfidfvectorizer"].labels) < len(TEXTS)
    assert (ec.assess(NEW).assertion == Assertion.IK).any()
    with pytest.raises(InputError, match="row 149"):
        clone(ec).fit([*TEXTS[:-1], None], KINDS)


def test_the_size_of_batches_does_not_matter(fitted):
    small = tuned(PIPELINE, batch_size=7)
    assert_same(small.assess(NEW), fitted.assess(NEW))


def test_texts_may_come_in_batches(fitted):
    parts = [slice(start, start + 2) for start in range(0, len(TEXTS), 2)]
    ec = EpistemicClassifier(PIPELINE).fit((TEXTS[part], KINDS[part]) for part in parts)
    ec.tune(((part, kinds) for part, kinds in [(OTHERS, THEIR_KINDS)]), coverage=0.7)
    for n in (1, 2, 7):
        batches = [NEW[start : start + n] for start in range(0, len(NEW), n)]
        assert_same(ec.assess(iter(batches)), fitted.assess(NEW))


def test_dicts_and_lists_of_words_are_taken():
    dicts = [{"first": text.split()[0], "n": len(text)} for text in TEXTS]
    by_dict = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=500)).fit(dicts, KINDS)
    ec = EpistemicClassifier(by_dict).fit(dicts, KINDS)
    np.testing.assert_array_equal(ec.predict(dicts), by_dict.predict(dicts))
    words = [text.split()[: 3 + i % 3] for i, text in enumerate(TEXTS)]
    by_word = make_pipeline(CountVectorizer(analyzer=list), MultinomialNB()).fit(words, KINDS)
    ec = EpistemicClassifier(by_word).fit(words, KINDS)
    np.testing.assert_array_equal(ec.predict(words), by_word.predict(words))
    assert len(ec.probe_.inputs) == 32


def test_a_table_of_one_column_is_told_from_a_column(fitted):
    with pytest.raises(InputError, match=r"takes the column X\['text'\], not the table"):
        fitted.predict(pd.DataFrame({"text": NEW}))


def test_steps_out_of_sight_leave_the_output():
    with warnings.catch_warnings():
        hidden = CalibratedClassifierCV(PIPELINE, cv=2).fit(np.array(TEXTS, dtype=object), KINDS)
    assert EpistemicClassifier(hidden).fit(TEXTS, KINDS).layers_ == ("output",)


# Sparse matrices


COUNTS = CountVectorizer().fit(TEXTS)
ROWS = COUNTS.transform(TEXTS)


@pytest.mark.parametrize("make", [csr_array, csr_matrix, csc_matrix, coo_array])
@pytest.mark.parametrize("model", [LogisticRegression(), MultinomialNB(), "network"])
def test_sparse_and_dense_are_assessed_alike(make, model):
    network = MLPClassifier((5,), solver="lbfgs", max_iter=50, random_state=0)
    model = clone(network if model == "network" else model).fit(ROWS, KINDS)
    ec = EpistemicClassifier(model).fit(make(ROWS), KINDS)
    ec.tune(make(COUNTS.transform(OTHERS)), THEIR_KINDS, coverage=0.7)
    new = COUNTS.transform(NEW)
    found, expected = ec.assess(make(new)), ec.assess(new.toarray())
    np.testing.assert_array_equal(found.assertion, expected.assertion)
    np.testing.assert_allclose(found.level, expected.level)
    assert ec.n_features_in_ == ROWS.shape[1]


def test_a_strange_value_of_a_sparse_matrix_disturbs_no_other():
    model = LogisticRegression().fit(ROWS, KINDS)
    ec = EpistemicClassifier(model).fit(ROWS, KINDS)
    ec.tune(COUNTS.transform(OTHERS), THEIR_KINDS, coverage=0.7)
    new = csr_array(COUNTS.transform(NEW), dtype=float)
    expected = ec.assess(new)
    for value in (np.nan, np.inf, -np.inf):
        damaged = new.copy()
        damaged.data[damaged.indptr[4]] = value
        before = damaged.copy()
        found = ec.assess(damaged)
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(damaged, part), getattr(before, part))
        assert found.reason[4] == Reason.INVALID
        rest = np.arange(len(found)) != 4
        assert_same(found[rest], expected[rest])
        only = ec.assess(damaged[[4]])
        assert only.reason.tolist() == [Reason.INVALID]


def test_as_many_columns_as_at_fit_are_needed():
    ec = EpistemicClassifier(LogisticRegression().fit(ROWS, KINDS)).fit(ROWS, KINDS)
    with pytest.raises(InputError, match="3 features"):
        ec.predict(ROWS[:, :3])


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(9, random_state=0),
        BaggingClassifier(n_estimators=5, max_features=0.5, random_state=0),
        AdaBoostClassifier(n_estimators=5, random_state=0),
    ],
)
def test_the_leaves_of_sparse_rows_are_those_of_dense_ones(model):
    model = clone(model).fit(ROWS, KINDS)
    found = SklearnModel(model).observe(ROWS, ("leaves",)).activations["leaves"]
    dense = SklearnModel(model).observe(ROWS.toarray(), ("leaves",)).activations["leaves"]
    np.testing.assert_array_equal(found, dense)
    ec = EpistemicClassifier(make_pipeline(TfidfVectorizer(), clone(model)))
    assert ec.fit(TEXTS, KINDS).layers_ == ("tfidfvectorizer", "leaves")


# Steps


def test_every_step_is_a_layer_also_of_a_pipeline_inside():
    inner = Pipeline([("svd", TruncatedSVD(6, random_state=0)), ("unit", Normalizer())])
    both = FeatureUnion([("words", TfidfVectorizer()), ("counts", CountVectorizer())])
    steps = [
        ("both", both),
        ("prep", inner),
        ("none", "passthrough"),
        ("model", LogisticRegression()),
    ]
    pipeline = Pipeline(steps).fit(TEXTS, KINDS)
    names = ("both", "prep.svd", "prep.unit", "prep", "none", "output")
    found = SklearnModel(pipeline).observe(np.array(TEXTS), names).activations
    both = pipeline[:1].transform(TEXTS).toarray()
    svd = pipeline["prep"]["svd"].transform(pipeline[:1].transform(TEXTS))
    prepared = pipeline[:2].transform(TEXTS)
    for name, values in zip(names, [both, svd, *[prepared] * 3], strict=False):
        np.testing.assert_allclose(found[name], values.astype(np.float32), rtol=1e-5, atol=1e-6)
    assert EpistemicClassifier(pipeline).fit(TEXTS, KINDS).layers_ == ("prep",)
    with pytest.raises(LayerError, match=r"it has 'input', 'both', 'prep\.svd', 'prep\.unit'"):
        EpistemicClassifier(pipeline, layers=["svd"]).fit(TEXTS, KINDS)
    with pytest.raises(LayerError, match="choose layers after the step that encodes them"):
        EpistemicClassifier(pipeline, layers=["input"]).fit(TEXTS, KINDS)


# Bundles


@pytest.mark.parametrize("form", FORMS)
def test_a_bundle_keeps_texts_to_know_its_model_by(form, tmp_path):
    ec = tuned(PIPELINE, FORMS[form])
    ec.save(tmp_path / "b.iknow")
    again = EpistemicClassifier.load(tmp_path / "b.iknow", PIPELINE)
    assert list(again.probe_.inputs) == list(ec.probe_.inputs)
    assert type(again.probe_.inputs) is type(ec.probe_.inputs)
    assert_same(again.assess(NEW), ec.assess(NEW))
    other = clone(PIPELINE).fit(OTHERS, THEIR_KINDS)
    with pytest.raises(Exception, match="made with another model"):
        EpistemicClassifier.load(tmp_path / "b.iknow", other)


@pytest.mark.parametrize("make", [csr_array, csr_matrix])
def test_a_bundle_keeps_sparse_rows_to_know_its_model_by(make, tmp_path):
    model = MultinomialNB().fit(ROWS, KINDS)
    ec = EpistemicClassifier(model).fit(make(ROWS), KINDS)
    ec.save(tmp_path / "b.iknow")
    again = EpistemicClassifier.load(tmp_path / "b.iknow", model)
    assert type(again.probe_.inputs) is make
    np.testing.assert_array_equal(again.probe_.inputs.toarray(), ec.probe_.inputs.toarray())


# Tables


FRAME = pd.DataFrame(
    {
        "size": np.where(np.arange(150) % 7 == 0, np.nan, [len(text) for text in TEXTS]),
        "color": pd.Categorical(["red", "green", None] * 50),
        "text": TEXTS,
    }
)


def by_name(remainder="drop"):
    filled = make_pipeline(SimpleImputer(), StandardScaler())
    columns = ColumnTransformer(
        [
            ("number", filled, ["size"]),
            ("kind", OneHotEncoder(handle_unknown="ignore"), ["color"]),
            ("words", TfidfVectorizer(), "text"),
        ],
        remainder=remainder,
    )
    return make_pipeline(columns, LogisticRegression()).fit(FRAME, KINDS)


def test_categories_and_missing_values_go_to_a_column_transformer_as_they_are(tmp_path):
    model = by_name()
    ec = EpistemicClassifier(model).fit(FRAME, KINDS)
    np.testing.assert_array_equal(ec.predict(FRAME), model.predict(FRAME))
    ec.save(tmp_path / "b.iknow")
    EpistemicClassifier.load(tmp_path / "b.iknow", model)
    trained = EpistemicClassifier(clone(model)).fit(FRAME, KINDS)
    assert trained.layers_ == ("table",)


def test_a_model_that_takes_columns_by_name_may_get_them_in_any_order():
    model = by_name()
    ec = EpistemicClassifier(model).fit(FRAME, KINDS)
    moved = FRAME[["text", "size", "color"]].assign(more=1)
    np.testing.assert_array_equal(ec.predict(moved), model.predict(FRAME))
    tuned = EpistemicClassifier(model).fit(FRAME[30:], KINDS[30:]).tune(FRAME[:30], coverage=0.7)
    expected, found = tuned.assess(FRAME), tuned.assess(moved)
    np.testing.assert_array_equal(found.level, expected.level)
    assert expected.level.max() > 0
    with pytest.raises(InputError, match="X lacks the column 'color' of the training data"):
        ec.predict(FRAME[["text", "size"]])


def test_columns_that_changed_are_named_with_what_to_do():
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(150, 3)), columns=list("abc"))
    ec = EpistemicClassifier(LogisticRegression().fit(numbers, KINDS)).fit(numbers, KINDS)
    for columns, words in {
        "bac": "not in the order of the training data, where 'a' comes in the place of 'b': pass",
        "abcd": "X has the column 'd', which the training data does not have: pass",
        "ab": "X lacks the column 'c' of the training data: add what is missing",
        "abd": "X lacks the column 'c' of the training data, and has the column 'd' instead",
    }.items():
        with pytest.raises(InputError) as caught:
            ec.predict(numbers.reindex(columns=list(columns)))
        assert words in str(caught.value)
        assert "pass" not in words or str(caught.value).endswith("pass X[ec.feature_names_in_]")
    ec.predict(numbers[["c", "b", "a"]][ec.feature_names_in_])
