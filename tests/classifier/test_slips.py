"""Slips that would give an answer in silence are told, and ordinary use is not disturbed."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import beta
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from iknow import Ball, EpistemicClassifier
from iknow.errors import InputError, SelectionError
from iknow.models import as_model
from iknow.report import make_report

NAMES = np.array(["five", "nine", "two", "zero", "six", "one", "eight", "three", "four", "seven"])


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, NAMES[y], test_size=0.5, random_state=0)


@pytest.fixture(scope="module")
def model(digits):
    X, _, y, _ = digits
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)


def fitted(model, X, y, **options):
    return EpistemicClassifier(model, progress=False, **options).fit(X, y)


# Order


def test_scores_of_a_function_in_another_order_are_refused_until_it_is_given(digits, model):
    X, _, y, _ = digits
    order = np.random.default_rng(0).permutation(10)

    def scores(rows):
        return model.predict_proba(rows)[:, order]

    with pytest.raises(
        InputError, match=r"right on \d.* and on 100.*give them as classes="
    ) as told:
        fitted(scores, X, y)
    right = model.classes_[order].tolist()
    assert ", ".join(map(repr, right)) in str(told.value)
    assert fitted(scores, X, y, classes=right).score(X, y) > 0.99


def test_outputs_of_a_module_in_another_order_are_refused():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "virginica", "versicolor"])  # sorted differently
    means = torch.tensor(np.stack([X[y == c].mean(axis=0) for c in range(3)]), dtype=torch.float32)
    module = nn.Linear(4, 3)
    module.weight.data = 2 * means
    module.bias.data = -(means**2).sum(dim=1)
    with pytest.raises(InputError, match="give them as classes="):
        fitted(nn.Sequential(module), X.astype(np.float32), names[y])


def test_labels_in_another_order_than_the_samples_are_refused(digits, model):
    X, X_val, y, y_val = digits
    shuffled = np.random.default_rng(0).permutation
    with pytest.raises(InputError, match=r"as if it guessed.*y is in the order of X"):
        fitted(model, X, shuffled(y))
    with pytest.warns(UserWarning, match=r"450 validation samples, as often as if it guessed"):
        fitted(model, X, y).tune(X_val[:450], shuffled(y_val[:450]), coverage=0.8)


# Repeats


def test_repeated_validation_samples_certify_nothing_that_they_do_not_when_given_once(
    digits, model
):
    X, X_val, y, y_val = digits
    classifier, rows = fitted(model, X, y), np.repeat(np.arange(60), 20)
    told = pytest.warns(UserWarning, match=r"1,140 of the 1,200 .* counts once, 60 in all")
    with told, pytest.raises(SelectionError, match="the part that certifies holds 48"):
        classifier.tune(X_val[rows], y_val[rows], accuracy=0.99)
    with told:
        repeated = classifier.tune(X_val[rows], y_val[rows], accuracy=0.9).selection_
    once = classifier.tune(X_val[:60], y_val[:60], accuracy=0.9).selection_
    assert repeated == once


def test_training_samples_that_are_there_with_two_labels_are_counted(digits, model):
    X, _, y, _ = digits
    both = np.stack([y, np.roll(NAMES, 1)[[NAMES.tolist().index(each) for each in y]]], axis=1)
    with pytest.warns(UserWarning, match=r"1,796 of the 1,796 training samples equal others"):
        fitted(model, np.repeat(X, 2, axis=0), both.ravel())


def test_a_coverage_on_few_samples_says_how_uncertain_it_is(digits, model):
    X, X_val, y, _ = digits
    classifier = fitted(model, X, y)
    with pytest.warns(UserWarning, match="on 1 validation sample lies between 5% and 95%"):
        classifier.tune(X_val[:1], coverage=0.9)
    with pytest.warns(UserWarning, match="on 10 validation samples"):
        classifier.tune(X_val[:10], coverage=0.8)


def test_the_interval_of_a_coverage_holds_as_often_as_it_says():
    """A new sample reaches the k-th highest of n levels with a probability that varies as told."""
    rng, n, k = np.random.default_rng(0), 12, 9
    low, high = beta.ppf([0.05, 0.95], k, n + 1 - k)
    reached = 1 - np.sort(rng.random((20_000, n)), axis=1)[:, n - k]
    assert ((reached >= low) & (reached <= high)).mean() == pytest.approx(0.9, abs=0.01)


# Another kind of data


@pytest.mark.parametrize("factor", [16, 1 / 16])
def test_validation_samples_in_another_unit_are_told(digits, model, factor):
    X, X_val, y, _ = digits
    with pytest.warns(UserWarning, match="another kind of data.*check units"):
        fitted(model, X, y).tune(factor * X_val, coverage=0.8)
    with pytest.warns(UserWarning, match="of the 400 reference samples are"):
        fitted(model, X, y).tune(X_val[400:], coverage=0.8, reference=factor * X_val[:400])


# Explanations


@pytest.mark.parametrize("kind", ["rows", "texts", "table"])
def test_training_samples_in_another_order_than_their_numbers_are_refused(digits, model, kind):
    pandas = pytest.importorskip("pandas")
    X, X_val, y, _ = digits
    asked, training = (lambda given: model.predict_proba(np.asarray(given))), X
    if kind == "texts":
        training = [" ".join(f"{value:.4f}" for value in row) for row in X]
        X_val = [" ".join(f"{value:.4f}" for value in row) for row in X_val]

        def asked(texts):
            return model.predict_proba([[float(v) for v in text.split()] for text in texts])

    if kind == "table":
        names = [f"pixel {i}" for i in range(64)]
        training, X_val = (pandas.DataFrame(each, columns=names) for each in (X, X_val))

    wrapped = as_model(asked, embed=asked if kind == "texts" else None)
    numbers = np.random.default_rng(0).permutation(len(X))
    options = {"rule": Ball(0.5), "classes": model.classes_}
    a = fitted(wrapped, training, y, **options).assess(X_val[:5])
    assert len(a.explain(0, training=training).layers) == 1
    moved = EpistemicClassifier(wrapped, progress=False, **options)
    a = moved.fit(training, y, rows=numbers).assess(X_val[:5])
    with pytest.raises(InputError, match=r"another order: sample \d+ is at place \d+.*zip\(rows"):
        a.explain(0, training=training)
    with pytest.raises(InputError, match="another order"):
        make_report(a, training=training)
    listed = list(training.to_numpy()) if kind == "table" else training
    by_number = dict(zip(numbers.tolist(), listed, strict=True))
    in_order = [by_number[i] for i in range(len(X))]
    for right in (by_number, in_order):
        assert len(a.explain(0, training=right).layers) == 1


def test_numbers_beyond_the_training_samples_are_refused(digits, model):
    X, X_val, y, _ = digits
    a = fitted(model, X, y, rule=Ball(0.5)).assess(X_val[:5])
    with pytest.raises(InputError, match="training holds 100 samples, so none is number"):
        a.explain(0, training=X[:100])
    with pytest.raises(InputError, match="must be the 5 inputs that were assessed; got 899"):
        a.explain(0, samples=X_val)


def test_pictures_of_training_samples_need_not_be_what_the_model_takes(digits, model):
    X, X_val, y, _ = digits
    a = fitted(model, X, y, rule=Ball(0.5)).assess(X_val[:5])
    for shown in (X.reshape(-1, 8, 8), 255 - (255 * X).astype(np.uint8), [f"#{i}" for i in y]):
        assert len(a.explain(0, training=shown).layers) == 2


# Ordinary use


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
@pytest.mark.parametrize("seed", range(3))
def test_ordinary_use_is_not_disturbed(load, seed):
    X, y = load(return_X_y=True)
    X, X_val, y, y_val = train_test_split(X, y, stratify=y, test_size=0.4, random_state=seed)
    lines = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for estimator in (lines, RandomForestClassifier(20, random_state=seed)):
            classifier = fitted(estimator.fit(X, y), X, y).tune(X_val, y_val, coverage=0.8)
            classifier.tune(X_val, coverage=0.8).assess(X_val)
