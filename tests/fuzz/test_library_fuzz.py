"""Thousands of random problems: every answer is the one that the definitions give.

Small problems of awkward kinds (grids where distances tie, duplicates, constants, huge and tiny
scales, odd dtypes, containers and labels), models of every sort, rules with parameters at their
limits. The oracle is written here, straight from the definitions, on activations in float32 as they
are stored and distances in float64: no code of the library finds its supports or its assertions.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from iknow import (
    Assertion,
    Ball,
    BallElseNearest,
    BallWithNearest,
    EpistemicClassifier,
    Nearest,
    RelativeBall,
)
from iknow.errors import IknowError, SelectionError
from iknow.metrics import Minkowski, Table, Weighted
from iknow.models import PrecomputedModel
from iknow.models.model import Layer, Model, make_observation
from tests.oracles import assertion_of, justification_of, support_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of scales, of training that did not converge

CASES, SHARDS = 110, 12


# The oracle


def distances_of(metric, queries, points):
    """Distances (n, m) in float64 between activations in float32; points are already mapped."""
    queries = queries.astype(np.float64)
    if isinstance(metric, Weighted):
        queries = (queries @ metric.map).astype(np.float32).astype(np.float64)
    if isinstance(metric, Table):
        queries = metric.transform(queries).astype(np.float32).astype(np.float64)
    # In rows, as sums are rounded by the order in memory.
    queries, points = np.ascontiguousarray(queries), np.ascontiguousarray(points, dtype=np.float64)
    differences = np.abs(queries[:, None] - points[None])
    if metric.p == np.inf:
        return differences.max(axis=2)
    if metric.p == 1:  # one by one, as the library: numpy adds 8 columns and more in pairs
        return np.add.accumulate(differences, axis=2)[:, :, -1]
    if metric.p == 2:
        return np.sqrt(np.square(differences).sum(axis=2))
    total = np.zeros(differences.shape[:2])
    for j in range(differences.shape[2]):  # one by one: what ties must tie here too
        total += differences[:, :, j] ** metric.p
    return total ** (1 / metric.p)


class Oracle:
    """What the training samples of a fitted classifier say about some queries."""

    def __init__(self, classifier, X):
        self.indexes = classifier.indexes_
        self.n_classes = len(classifier.classes_)
        inputs = classifier.model_.prepare(X)
        size = classifier.batch_size or len(inputs)
        parts = [
            classifier.model_.observe(
                inputs.iloc[i : i + size] if hasattr(inputs, "iloc") else inputs[i : i + size],
                classifier.layers_,
            )
            for i in range(0, len(inputs), size)
        ]
        self.belief = np.concatenate([part.belief for part in parts])
        self.invalid = np.concatenate([part.invalid for part in parts])
        self.distances, self.codes = {}, {}
        for layer, index in self.indexes.items():
            values = np.concatenate([part.activations[layer] for part in parts])
            assert values.dtype == np.float32
            self.distances[layer] = distances_of(index.metric, values, index.points)
            self.codes[layer] = index.labels

    def supports(self, i, rules, without=()):
        """The supports of query i, where some training rows were removed."""
        found = []
        for layer, rule in rules.items():
            kept = ~np.isin(self.indexes[layer].rows, list(without))
            row, codes = self.distances[layer][i][kept], self.codes[layer][kept]
            found.append(support_of(rule, row, codes, self.belief[i]))
        return found

    def answer(self, i, rules, without=()):
        supports = self.supports(i, rules, without)
        return assertion_of(self.belief[i], supports, self.invalid[i])

    def check(self, assessment, rules, rows, told):
        """Compare an assessment of the queries at some rows with what the definitions give."""
        np.testing.assert_array_equal(assessment.belief_codes, self.belief[rows], told)
        for at, i in enumerate(rows):
            supports = self.supports(i, rules)
            said = [set(np.flatnonzero(assessment.supports[layer][at]).tolist()) for layer in rules]
            wanted = [set() for _ in rules] if self.invalid[i] else supports
            assert said == wanted, (told, i)
            assertion, reason = assertion_of(self.belief[i], supports, self.invalid[i])
            assert assessment.assertion[at] == assertion, (told, i)
            assert assessment.reason[at] == reason, (told, i)
            justified = set(np.flatnonzero(assessment.justification[at]).tolist())
            assert justified == justification_of(wanted), (told, i)

    def most_known(self, rule, k):
        """The most queries that are IK at any radii, of all that can make a difference."""
        known = []
        for layer, distances in self.distances.items():
            radii = np.unique(np.append(distances[np.isfinite(distances)], 0.0))
            known.append(self.known_in_layer(layer, rule, k, radii[:, None]))
        if len(known) == 1:
            return int(known[0].sum(axis=1).max())
        return int((known[0].astype(int) @ known[1].T.astype(int)).max())

    def known_in_layer(self, layer, rule, k, radii):
        """Whether a layer supports the belief alone, of shape (n_radii, n); radii: (n_radii, 1)."""
        distances, codes = self.distances[layer], self.codes[layer]
        classes = np.arange(self.n_classes)
        nearest = np.stack(
            [distances[:, codes == c].min(axis=1, initial=np.inf) for c in classes], axis=1
        )
        kth = np.sort(distances, axis=1)[:, k - 1]
        inhabited = nearest.min(axis=1) <= radii
        if rule is Ball:
            reach = np.broadcast_to(radii, inhabited.shape)
        elif rule is BallElseNearest:
            reach = np.where(inhabited, radii, kth)
        else:
            reach = np.where(inhabited, np.maximum(radii, kth), -1.0)
        supports = nearest <= reach[:, :, None]
        return (supports == (classes == self.belief[:, None])).all(axis=2)


# Random problems


class Unsorted(ClassifierMixin, BaseEstimator):
    """The nearest mean, its classes in the order of first appearance; predicts text as objects."""

    def fit(self, X, y):
        X, y = np.asarray(X, dtype=float), np.asarray(y)
        _, first = np.unique(y, return_index=True)
        self.classes_ = y[np.sort(first)][::-1]
        self.means_ = np.stack([X[y == label].mean(axis=0) for label in self.classes_])
        self.n_features_in_ = X.shape[1]
        return self

    def decision_function(self, X):
        table = -np.abs(np.asarray(X, dtype=float)[:, None] - self.means_).sum(axis=2)
        return table[:, 0] - table[:, 1] if len(self.classes_) == 2 else table

    def predict(self, X):
        table = -np.abs(np.asarray(X, dtype=float)[:, None] - self.means_).sum(axis=2)
        return self.classes_[table.argmax(axis=1)]


class Halves(Model):
    """A model of somebody's own."""

    classes = None

    def __init__(self, n_classes):
        self.n_classes = n_classes

    def prepare(self, inputs):
        return np.asarray(inputs, dtype=np.float64)

    def layers(self, batch):
        return Layer("whole", "hidden"), Layer("half", "hidden")

    def observe(self, batch, layers):
        scores = np.stack([np.abs(batch[:, 0] - c) for c in range(self.n_classes)], axis=1)
        values = {"whole": batch, "half": batch[:, : (batch.shape[1] + 1) // 2]}
        return make_observation(-scores, {layer: values[layer] for layer in layers})


class Problem:
    """Data, a model and settings, drawn at random."""

    def __init__(self, rng):
        self.rng = rng
        self.n_classes = int(rng.integers(2, 6))
        self.n_features = int(rng.integers(1, 9))
        self.kind = self.one(("grid", "grid", "plain", "duplicates", "constant", "huge", "tiny"))
        sizes = self.one(((12, 6, 8), (30, 10, 12), (60, 12, 15)))
        codes = [rng.integers(self.n_classes, size=size) for size in sizes]
        codes[0][: 2 * self.n_classes] = np.tile(np.arange(self.n_classes), 2)
        dtype = self.one((np.float64, np.float64, np.float32, np.int64, np.int8, np.bool_))
        if self.kind in ("huge", "tiny") and dtype not in (np.float64, np.float32):
            dtype = np.float64
        self.labels = self.make_labels()
        self.arrays = [self.draw(c).astype(dtype) for c in codes]
        self.y = [self.labels[c] for c in codes]
        self.codes = codes
        self.told = f"{self.n_classes} classes, {self.n_features} features, {self.kind}, {dtype}"

    def one(self, options):
        return options[int(self.rng.integers(len(options)))]

    def draw(self, codes):
        rng, shape = self.rng, (len(codes), self.n_features)
        if self.kind == "grid":
            return rng.integers(0, 4, size=shape).astype(float) + codes[:, None] % 2
        X = 2.0 * codes[:, None] + rng.normal(size=shape)
        if self.kind == "duplicates":
            X = np.round(X)
            X[::2] = X[0]
        elif self.kind == "constant":
            X[:, 0] = 7.0
        elif self.kind == "huge":
            X *= 1e17
        elif self.kind == "tiny":
            X *= 1e-17
        return X

    def make_labels(self):
        n = self.n_classes
        kind = self.one(
            ("int", "negative", "text", "bool", "float", "uint64", "object", "unsorted")
        )
        if kind == "bool" and n == 2:
            return np.array([False, True])
        return {
            "negative": np.arange(n) * 3 - 5,
            "text": np.array([f"class {i}" for i in range(n)]),
            "float": np.arange(n) * 2.0,
            "uint64": np.arange(n).astype(np.uint64) + np.uint64(2**63),
            "object": np.array(["z", "é", "", "b", "10"][:n], dtype=object),
            "unsorted": np.arange(n)[::-1] * 10,
        }.get(kind, np.arange(n))

    def contain(self, array):
        """The same numbers in another container or layout."""
        name = self.one(("array", "fortran", "read-only", "strided", "list", "frame", "big-endian"))
        if name == "fortran":
            return np.asfortranarray(array)
        if name == "read-only":
            array = array.copy()
            array.flags.writeable = False
        if name == "strided":
            return np.repeat(np.repeat(array, 2, axis=0), 2, axis=1)[::2, ::2]
        if name == "list":
            return array.tolist()
        if name == "frame":
            return pd.DataFrame(array, columns=[f"f{i}" for i in range(array.shape[1])])
        if name == "big-endian" and array.dtype.kind == "f":
            return array.astype(array.dtype.newbyteorder(">"))
        return array

    def make_model(self):
        """A model, and inputs for it; a classifier may be trained already, or be left to fit."""
        name = self.one((
            "made", "made", "logistic", "tree", "unsorted", "pipeline", "mlp", "boosting",
            "grid search", "torch", "conv", "own",
        ))  # fmt: skip
        if self.kind in ("huge", "tiny") and name in ("mlp", "torch", "conv"):
            name = "tree"
        self.name = name
        self.told += f", {name}"
        if name == "made":
            n_layers = int(self.rng.integers(1, 4))
            noise = [self.rng.normal(size=(len(c), self.n_classes)) for c in self.codes]
            self.inputs = [
                (
                    np.round(each + 2 * np.eye(self.n_classes)[c], 1),  # so that scores tie, too
                    {f"l{i}": X[:, : max(1, self.n_features - i)] for i in range(n_layers)},
                )
                for X, c, each in zip(self.arrays, self.codes, noise, strict=True)
            ]
            return PrecomputedModel()
        self.inputs = self.arrays
        if name == "own":
            return Halves(self.n_classes)
        if name in ("torch", "conv"):
            self.inputs = [torch.tensor(X.astype(np.float32)) for X in self.arrays]
            return self.make_module(name)
        estimator = {
            "logistic": lambda: LogisticRegression(max_iter=20),
            "tree": lambda: DecisionTreeClassifier(random_state=0),
            "unsorted": Unsorted,
            "pipeline": lambda: make_pipeline(
                SimpleImputer(), self.one((StandardScaler(), MaxAbsScaler(), "passthrough")),
                LogisticRegression(max_iter=20),
            ),
            "mlp": lambda: MLPClassifier((4,), max_iter=5, random_state=0),
            "boosting": lambda: HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=2),
            "grid search": lambda: GridSearchCV(
                DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3]}, cv=2
            ),
        }[name]()  # fmt: skip
        missing = name in ("pipeline", "boosting") and self.arrays[0].dtype.kind == "f"
        if missing and self.one((True, False)):
            self.inputs = [X.copy() for X in self.arrays]
            for X in self.inputs:
                X[self.rng.random(X.shape) < 0.05] = np.nan
            self.inputs[0][0] = self.arrays[0][0]
        if self.one((True, False)):
            estimator = FrozenEstimator(estimator.fit(self.inputs[0], self.y[0]))
        if self.inputs[0].dtype.kind == "f":
            self.inputs = [self.contain(X) for X in self.inputs]
        kinds = {hasattr(X, "columns") for X in self.inputs}
        if len(kinds) > 1:  # scikit-learn warns of names that come and go
            self.inputs = [np.asarray(X) for X in self.inputs]
        return estimator

    def make_module(self, name):
        torch.manual_seed(int(self.rng.integers(1000)))
        if name == "torch":
            return torch.nn.Sequential(
                torch.nn.Linear(self.n_features, 5), torch.nn.ReLU(), torch.nn.Dropout(0.5),
                torch.nn.Linear(5, self.n_classes),
            )  # fmt: skip
        return torch.nn.Sequential(
            torch.nn.Unflatten(1, (1, self.n_features)), torch.nn.Conv1d(1, 2, 1), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(2 * self.n_features, self.n_classes),
        )  # fmt: skip

    def make_metric(self, layers):
        if self.kind == "huge":
            return None
        kind = self.one((None, None, None, 1, 3, np.inf, "weighted"))
        if kind == "weighted" and self.name == "made":
            width = self.n_features
            return {"l0": Weighted(self.rng.integers(-1, 3, size=(width, 2)).astype(float))}
        return None if kind in (None, "weighted") else Minkowski(kind)

    def make_radius(self, scale):
        return self.one((0.0, 0, np.inf, 1.0, np.float32(1), 2.0, 3, *self.rng.random(4) * scale))

    def make_rule(self, scale=3.0):
        kind = self.one((Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall))
        k = int(self.rng.integers(1, 6))
        if kind is RelativeBall:
            return RelativeBall(self.make_radius(scale), self.one((1, 1.0, 1.5, 2, 1e6)))
        radius = self.make_radius(scale)
        return kind(k) if kind is Nearest else kind(radius) if kind is Ball else kind(radius, k)


EXACT_ALONE = ("made", "tree", "unsorted", "own", "boosting")
"""Models that say the same about a sample alone as in a batch, to the last bit."""


def run_case(rng, folder, number):
    """One problem, from fit to what was loaded; says how it ended."""
    problem = Problem(rng)
    model = problem.make_model()
    scale = {"huge": 3e17, "tiny": 3e-17}.get(problem.kind, 3.0)
    tunes = problem.one((True, False))
    rule = problem.one((Ball, BallElseNearest, BallWithNearest)) if tunes else Ball
    fixed = None if tunes else problem.make_rule(scale)
    k = int(rng.integers(1, 6))
    batch_size = problem.one((None, 1, 3, 7, np.int64(100)))
    classes = problem.labels if problem.name in ("made", "torch", "conv", "own") else None
    metric = problem.make_metric(None)
    told = f"case {number}: {problem.told}, {fixed or rule}, k={k}, {metric}, batch {batch_size}"
    classifier = EpistemicClassifier(
        model, rule=fixed or rule, k=k, metric=metric, classes=classes,
        batch_size=batch_size, progress=False,
    )  # fmt: skip
    train, val, test = problem.inputs
    try:
        classifier.fit(train, problem.y[0])
    except IknowError as error:
        return f"fit: {error}", told
    if tunes:
        ending = check_tuning(problem, classifier, val, rule, k, told)
        if ending is not None and not hasattr(classifier, "neighborhoods_"):
            return ending, told
    rules = classifier.neighborhoods_
    oracle = Oracle(classifier, test)
    check_stored(problem, classifier, train, told)
    check_belief(problem, classifier, oracle, test, told)
    n_neighbors = min(problem.one((0, 0, 0, 3, 10)), classifier.indexes_[next(iter(rules))].n_rows)
    n = len(problem.arrays[2])
    a = classifier.assess(test, n_neighbors, evidence=problem.one((True, False)))
    assert len(a) == n
    oracle.check(a, rules, range(n), told)
    check_evidence(oracle, a, told)
    check_views(problem, oracle, classifier, a, scale, told)
    check_ties(problem, oracle, classifier, test, told)
    check_stability(problem, oracle, a, rules, told)
    check_certificates(problem, classifier, a, test, told)
    if problem.name in EXACT_ALONE:
        for i in range(0, n, 4):
            row = take(test, slice(i, i + 1))
            assert classifier.assess(row).assertion[0] == a.assertion[i], (told, i)
    if problem.one((True, False, False)):
        check_saved(problem, classifier, a, test, folder, told)
    if problem.one((True, *[False] * 9)):
        with ThreadPoolExecutor(4) as pool:
            for each in pool.map(classifier.assess, [test] * 4):
                np.testing.assert_array_equal(each.assertion, a.assertion, told)
    return "answered", told


def take(inputs, rows):
    if isinstance(inputs, tuple):
        return inputs[0][rows], {layer: values[rows] for layer, values in inputs[1].items()}
    return inputs.iloc[rows] if hasattr(inputs, "iloc") else inputs[rows]


def check_tuning(problem, classifier, val, rule, k, told):
    """Tuning reaches the best that any radii reach, or says that nothing can be known."""
    try:
        classifier.tune(val, problem.y[1])
    except SelectionError as error:
        oracle = Oracle(classifier, val)
        if len(classifier.layers_) <= 2:
            assert oracle.most_known(rule, k) == 0, told
        return f"tune: {error}"
    except IknowError as error:
        return f"tune: {error}"
    oracle = Oracle(classifier, val)
    rules = classifier.neighborhoods_
    n = len(problem.arrays[1])
    known = sum(oracle.answer(i, rules)[0] == Assertion.IK for i in range(n))
    assert classifier.selection_.optimal, told
    if len(classifier.layers_) <= 2:
        assert known == oracle.most_known(rule, k), told
    return None


def check_stored(problem, classifier, train, told):
    """What is searched are the inputs themselves, in float32, with the labels they came with."""
    given = train[1]["l0"] if problem.name == "made" else train
    layer = {"made": "l0", "own": "whole"}.get(problem.name, "input")
    index = classifier.indexes_.get(layer)
    if index is None or isinstance(index.metric, Weighted):
        return
    rows = index.rows
    wanted = np.asarray(given).astype(np.float64)[rows].astype(np.float32)
    np.testing.assert_array_equal(index.points, wanted, told)
    np.testing.assert_array_equal(
        classifier.classes_[index.labels], np.asarray(problem.y[0])[rows], told
    )


def check_belief(problem, classifier, oracle, test, told):
    """The belief is what the model itself says."""
    labels = classifier.predict(test)
    np.testing.assert_array_equal(labels, classifier.classes_[oracle.belief], told)
    if problem.name == "made":
        np.testing.assert_array_equal(labels, problem.labels[test[0].argmax(axis=1)], told)
    elif hasattr(classifier.model_, "estimator"):
        said = classifier.model_.estimator.predict(test)
        np.testing.assert_array_equal(np.asarray(labels), np.asarray(said), told)
    elif problem.name == "torch":
        model = classifier.model
        with torch.no_grad():
            scores = model.eval()(test).numpy()
        model.train()
        clear = np.sort(scores, axis=1)
        sure = clear[:, -1] - clear[:, -2] > 1e-4
        wanted = problem.labels[scores.argmax(axis=1)]
        np.testing.assert_array_equal(labels[sure], wanted[sure], told)


def check_evidence(oracle, assessment, told):
    for layer, evidence in assessment.evidence.items():
        valid = ~oracle.invalid
        distances = oracle.distances[layer][valid]
        compare = (
            np.testing.assert_array_equal
            if oracle.indexes[layer].metric.p == 2
            else lambda a, b, told: np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=told)
        )
        for code in range(oracle.n_classes):
            members = oracle.codes[layer] == code
            nearest = distances[:, members].min(axis=1, initial=np.inf)
            compare(evidence.class_distances[valid, code], nearest, told)
        k = evidence.n_neighbors
        compare(evidence.neighbor_distances[valid], np.sort(distances, axis=1)[:, :k], told)


def check_views(problem, oracle, classifier, a, scale, told):
    """Slices, single layers and other rules are answered as if they had been asked for."""
    n = len(a)
    start, stop, step = problem.one(
        ((0, n, 2), (2, 5, 1), (-3, None, 1), (5, 5, 1), (None, None, -1))
    )
    part = a[start:stop:step]
    oracle.check(part, classifier.neighborhoods_, range(n)[start:stop:step], told)
    layer = problem.one(classifier.layers_)
    one = {layer: classifier.neighborhoods_[layer]}
    oracle.check(a.only([layer]), one, range(n), told)
    others = {name: problem.make_rule(scale) for name in classifier.layers_}
    if all(r.n_neighbors <= a.evidence[name].n_neighbors for name, r in others.items()):
        oracle.check(a.under(others), others, range(n), f"{told} under {others}")
        oracle.check(part.under(others), others, range(n)[start:stop:step], told)
    i = int(problem.rng.integers(n))
    told_why = a.explain(i)
    assert told_why.assertion == a.assertion[i], told
    assert told_why.reason == a.reason[i], told
    str(told_why), told_why._repr_html_()


def check_ties(problem, oracle, classifier, test, told):
    """At a radius that is one of the distances, to the last bit, the ball is closed."""
    if any(index.metric.p != 2 for index in oracle.indexes.values()):
        return
    rules = {}
    for layer, distances in oracle.distances.items():
        radius, kind = problem.rng.choice(distances.ravel()), problem.rng.integers(4)
        rules[layer] = (
            Ball(radius), BallElseNearest(radius, 2), BallWithNearest(radius, 1),
            RelativeBall(radius, 1),
        )[kind]  # fmt: skip
    before = classifier.plan_
    classifier.plan_ = replace(before, rules=rules)
    a = classifier.assess(test)
    classifier.plan_ = before
    oracle.check(a, rules, range(len(a)), f"{told} with {rules}")


def check_stability(problem, oracle, a, rules, told):
    """So many samples must be removed for an IK to be lost: all smaller sets are tried."""
    if len(problem.y[0]) > 12:
        return
    rows = next(iter(oracle.indexes.values())).rows
    for i in np.flatnonzero(a.assertion == Assertion.IK)[:2]:
        least, exact = int(a.stability.at_least[i]), bool(a.stability.exact[i])
        assert least >= 1, (told, i)
        for size in range(1, min(least, 4)):
            for removed in itertools.combinations(rows, size):
                kept = oracle.answer(i, rules, removed)[0] == Assertion.IK
                assert kept, (told, i, f"{least} removals were promised, {removed} are enough")
        if exact and least <= 3:
            lost = (
                oracle.answer(i, rules, removed)[0] != Assertion.IK
                for removed in itertools.combinations(rows, least)
            )
            assert any(lost), (told, i, f"{least} removals should be enough")


def check_certificates(problem, classifier, a, test, told):
    """Within a robust radius nothing else is known, wherever one looks."""
    if isinstance(test, tuple):
        return
    X = np.asarray(test)
    if X.dtype not in (np.float32, np.float64) or problem.name == "own":
        return
    X, radii, rng = X.astype(X.dtype.newbyteorder("=")), a.robust_radius, problem.rng
    for i in np.flatnonzero((radii > 0) & (a.assertion == Assertion.IK))[:2]:
        radius = min(float(radii[i]), 1e6 * (1 + np.abs(X).max()))
        lengths = radius * 0.999999 * rng.choice([1, 0.9, 0.5], size=40)
        ways = rng.normal(size=(40, X.shape[1])) * (rng.random((40, X.shape[1])) < 0.7)
        ways[:8] = np.asarray(X[rng.integers(len(X), size=8)], dtype=float) - X[i]
        norms = np.linalg.norm(ways, axis=1, keepdims=True)
        ways = np.divide(ways, norms, out=np.zeros_like(ways), where=norms > 0)
        moved = (X[i] + lengths[:, None] * ways).astype(X.dtype)
        moved = moved[np.linalg.norm(moved.astype(float) - X[i], axis=1) < radii[i]]
        if not len(moved):
            continue
        names = getattr(test, "columns", None)
        inputs = torch.tensor(moved) if isinstance(test, torch.Tensor) else moved
        b = classifier.assess(inputs if names is None else pd.DataFrame(moved, columns=names))
        broken = (b.assertion == Assertion.IK) & (b.belief_codes != a.belief_codes[i])
        assert not broken.any(), (told, i, radii[i])


def check_saved(problem, classifier, a, test, folder, told):
    """A bundle answers as the classifier did that was saved."""
    if problem.name == "own":
        return
    path = folder / "x.iknow"
    classifier.save(path)
    given = None if problem.name == "made" else classifier.model
    if hasattr(classifier.model_, "estimator"):
        given = FrozenEstimator(classifier.model_.estimator)
    again = EpistemicClassifier.load(path, given).assess(test)
    np.testing.assert_array_equal(again.assertion, a.assertion, told)
    np.testing.assert_array_equal(again.reason, a.reason, told)
    assert again.belief.tolist() == a.belief.tolist(), told
    if a.levels is not None:
        np.testing.assert_array_equal(again.level, a.level, told)
        np.testing.assert_array_equal(again.weakest, a.weakest, told)


def run_cases(seed, n_cases, folder):
    rng = np.random.default_rng(seed)
    endings = []
    for number in range(n_cases):
        ending, told = run_case(rng, folder, f"{seed}.{number}")
        endings.append(ending)
        assert ending == "answered" or len(ending) <= 2000 + 10, told
    return endings


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_answer_is_the_one_that_the_definitions_give(shard, tmp_path):
    endings = run_cases(shard, CASES, tmp_path)
    assert endings.count("answered") > CASES / 2, endings


def test_some_answers_are_those_that_the_definitions_give(tmp_path):
    endings = run_cases(1000, 40, tmp_path)
    assert endings.count("answered") > 20, endings
