"""Thousands of hostile arguments: each call answers or raises a typed error, and nothing is lost.

One argument of a public call at a time is replaced by something that does not belong there. What is
not refused must be answered: whatever the answer offers is asked for too. Afterwards the classifier
says what it said before.
"""

import collections
import datetime
import decimal
import fractions
import json
import pathlib
import traceback

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow import (
    Ball,
    BallElseNearest,
    BallWithNearest,
    EpistemicClassifier,
    Nearest,
    RelativeBall,
    as_image,
    evaluate,
)
from iknow.errors import IknowError
from iknow.explain import as_features, as_series
from iknow.metrics import Minkowski, Weighted
from iknow.models import PrecomputedModel
from iknow.search.cells import CpuIndex

pytestmark = pytest.mark.filterwarnings("ignore")  # what is strange may be warned of

LONGEST_MESSAGE = 2000
CASES, SHARDS = 300, 12


class Unhelpful:
    """An object that refuses to be looked at."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __len__(self):
        raise RuntimeError("no len")


class Lengthy:
    def __repr__(self):
        return "x" * 100_000


def _recursive(kind):
    if kind is dict:
        whole = {}
        whole["a"] = whole
        return whole
    whole = [1]
    whole.append(whole)
    return whole


def _deep():
    whole = []
    for _ in range(5000):
        whole = [whole]
    return whole


ANYTHING = {
    "None": lambda: None, "True": lambda: True, "False": lambda: False, "0": lambda: 0,
    "-1": lambda: -1, "1": lambda: 1, "2": lambda: 2, "3.5": lambda: 3.5, "nan": lambda: np.nan,
    "inf": lambda: np.inf, "-inf": lambda: -np.inf, "1e308": lambda: 1e308, "-0.0": lambda: -0.0,
    "huge int": lambda: 10**400, "negative huge": lambda: -(10**400), "2**63": lambda: 2**63,
    "2**70": lambda: 2**70, "10**5000": lambda: 10**5000, "complex": lambda: 1j,
    "text": lambda: "a", "empty text": lambda: "", "digits": lambda: "1",
    "long text": lambda: "x" * 100_000, "nul": lambda: "\0", "surrogate": lambda: "\ud800",
    "bytes": lambda: b"\xff", "object": lambda: object(), "unhelpful": Unhelpful,
    "lengthy": Lengthy, "type": lambda: int, "function": lambda: len, "empty list": list,
    "empty tuple": lambda: (), "empty dict": dict, "set": lambda: {1, 2},
    "generator": lambda: (i for i in range(3)), "range": lambda: range(3),
    "list": lambda: [1, 2, 3], "nested": lambda: [[1, 2], [3, 4]], "ragged": lambda: [[1], [2, 3]],
    "recursive": lambda: _recursive(list), "recursive dict": lambda: _recursive(dict),
    "deep": _deep, "mixed": lambda: [1, "a", None], "int64": lambda: np.int64(2),
    "uint64": lambda: np.uint64(2**64 - 1), "float32": lambda: np.float32(0.5),
    "bool_": lambda: np.True_, "str_": lambda: np.str_("a"), "0-d": lambda: np.array(1.0),
    "0-d object": lambda: np.array(None), "1-d": lambda: np.ones(3), "2-d": lambda: np.ones((2, 2)),
    "3-d": lambda: np.ones((2, 2, 2)), "empty": lambda: np.empty((0, 3)),
    "no features": lambda: np.empty((3, 0)), "masked": lambda: np.ma.masked_equal([1, 2, 3], 2),
    "masked constant": lambda: np.ma.masked, "complex array": lambda: np.ones(3, complex),
    "dates": lambda: np.zeros(3, "M8[s]"), "spans": lambda: np.zeros((3, 3), "m8[s]"),
    "NaT": lambda: np.datetime64("NaT"), "records": lambda: np.zeros(3, [("a", "f8")]),
    "void": lambda: np.zeros(3, "V4"), "objects": lambda: np.array([object()] * 3),
    "unhelpful objects": lambda: np.array([Unhelpful()] * 3, dtype=object),
    "sparse": lambda: scipy.sparse.csr_matrix(np.eye(3)),
    "sparse array": lambda: scipy.sparse.coo_array(np.eye(3)), "tensor": lambda: torch.ones(3, 3),
    "0-d tensor": lambda: torch.tensor(1.0),
    "gradient": lambda: torch.ones(3, 3, requires_grad=True),
    "bfloat16": lambda: torch.ones(3, 3, dtype=torch.bfloat16),
    "complex tensor": lambda: torch.ones(3, 3, dtype=torch.complex64),
    "sparse tensor": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.ones(3, 3, device="meta"),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "frame": lambda: pd.DataFrame({"a": [1.0, 2], "b": ["x", None]}),
    "empty frame": lambda: pd.DataFrame(), "series": lambda: pd.Series([1, 2, 3]),
    "NA": lambda: pd.NA, "categories": lambda: pd.Categorical(["a", "b", "a"]),
    "Decimal": lambda: decimal.Decimal("0.5"), "sNaN": lambda: decimal.Decimal("sNaN"),
    "Fraction": lambda: fractions.Fraction(1, 2), "date": lambda: datetime.date(2020, 1, 1),
    "path": lambda: pathlib.Path("absent.iknow"), "folder": lambda: pathlib.Path("/"),
    "slice": lambda: slice(0, 2), "strange slice": lambda: slice("a", None),
    "Ellipsis": lambda: ..., "error": lambda: ValueError("x"), "counter": collections.Counter,
    "rule": lambda: Ball(1.0), "rule type": lambda: Nearest, "k of rule": lambda: Nearest(10**9),
    "metric": lambda: Minkowski(1),
    "thin metric": lambda: Weighted(np.ones((1, 1))), "by layer": lambda: {"input": Ball(1.0)},
    "by no layer": lambda: {"absent": Ball(1.0)}, "by object": lambda: {object(): Ball(1.0)},
    "by number": lambda: {1: 1, "a": 2}, "long names": lambda: {"n" * 50_000: Ball(1.0)},
    "many names": lambda: [f"n{i}" for i in range(9999)],
    "many rules": lambda: {f"n{i}": Ball(1.0) for i in range(9999)},
    "pair": lambda: (np.eye(2), {"a": np.eye(2)}), "odd pair": lambda: (None, {"a": None}),
    "random": lambda: np.random.default_rng(0), "seed": lambda: np.random.RandomState(0),
    "estimator": LogisticRegression, "module": lambda: torch.nn.Linear(3, 2),
    "assessment-like": lambda: np.zeros(3, dtype=[("x", "O")]),
    "memory": lambda: memoryview(b"abc"), "long list": lambda: ["y" * 1000] * 500,
    "float16": lambda: np.ones((3, 3), np.float16),
    "long double": lambda: np.full((3, 3), np.finfo(np.longdouble).max),
    "bools": lambda: np.ones((3, 3), bool), "text array": lambda: np.array([["a", "b", "c"]] * 3),
    "variable text": lambda: np.array(["a", "b"], "T"), "index": lambda: CpuIndex,
    "layer": lambda: ["output"], "device": lambda: "cpu",
}  # fmt: skip


def _at(values, change):
    """A copy of an array-like with one entry changed, as objects if need be."""
    array = np.array(values, dtype=object)
    array[(len(array) // 2, *([0] * (array.ndim - 1)))] = change
    return array


def _is_numeric(values):
    return np.asarray(values).dtype.kind in "fiu"


def _swapped(values):
    return np.asarray(values).astype(np.asarray(values).dtype.newbyteorder(">"))


def _masked(values):
    array = np.ma.array(np.asarray(values), copy=True)
    array[len(array) // 2] = np.ma.masked
    return array


SPOILED = {
    "short": lambda v: v[:-1], "long": lambda v: np.concatenate([v, v[:1]]),
    "none": lambda v: v[:0], "one": lambda v: v[:1], "transposed": lambda v: np.asarray(v).T,
    "deeper": lambda v: np.asarray(v)[None],
    "column": lambda v: np.asarray(v).reshape(len(v), -1)[:, :1], "flat": lambda v: np.ravel(v),
    "NaN within": lambda v: _at(v, np.nan), "None within": lambda v: _at(v, None),
    "text within": lambda v: _at(v, "a"), "inf within": lambda v: _at(v, np.inf),
    "huge within": lambda v: _at(v, 10**400), "list within": lambda v: [*_at(v, 0).tolist(), [1]],
    "object within": lambda v: _at(v, object()), "unhelpful within": lambda v: _at(v, Unhelpful()),
    "lengthy within": lambda v: _at(v, Lengthy()),
    "long text within": lambda v: _at(v, "z" * 99_999), "1e39 within": lambda v: _at(v, 1e39),
    "masked within": _masked, "bytes within": lambda v: _at(v, b"a"),
    "date within": lambda v: _at(v, np.datetime64("2020-01-01")),
    "NaT within": lambda v: _at(v, np.datetime64("NaT")), "NA within": lambda v: _at(v, pd.NA),
    "complex within": lambda v: _at(v, 1j),
    "as complex": lambda v: np.asarray(v, dtype=complex) if _is_numeric(v) else v,
    "as text": lambda v: np.asarray(v).astype(str), "as list": lambda v: np.asarray(v).tolist(),
    "as tuple": lambda v: tuple(np.asarray(v).tolist()),
    "as frame": lambda v: pd.DataFrame(np.asarray(v)),
    "as float16": lambda v: np.asarray(v).astype(np.float16) if _is_numeric(v) else v,
    "as sparse": lambda v: scipy.sparse.csr_matrix(np.atleast_2d(v)) if _is_numeric(v) else v,
    "as iterator": lambda v: iter(v), "as objects": lambda v: np.asarray(v).astype(object),
    "read-only": lambda v: np.broadcast_to(v, np.shape(v)),
    "backwards": lambda v: np.asarray(v)[::-1], "fortran": np.asfortranarray,
    "big-endian": _swapped,
    "matrix": lambda v: np.asmatrix(v) if _is_numeric(v) else v,
    "duplicates": lambda v: np.repeat(np.asarray(v)[:1], len(v), axis=0),
}  # fmt: skip


@pytest.fixture(scope="module")
def subjects():
    """Classifiers of every kind, each with what it may be given."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 3)) + 4.0 * np.eye(3)[y]
    parts = slice(0, 50), slice(50, 75), slice(75, 90)
    names = np.array(["a", "b", "c"])[y]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:50], names[:50])
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
    with torch.no_grad():
        for layer in (module[0], module[2]):
            layer.weight.copy_(torch.eye(3))
    made = [(np.eye(3)[y[part]], {"a": X[part], "b": X[part, :2]}) for part in parts]
    plain = [X[part] for part in parts]
    of = {"progress": False}
    return {
        "frozen": (EpistemicClassifier(FrozenEstimator(pipeline), **of), plain, names),
        "trained": (
            EpistemicClassifier(LogisticRegression(), rule=BallElseNearest, **of), plain, y,
        ),
        "torch": (EpistemicClassifier(module, **of), [x.astype(np.float32) for x in plain], y),
        "made": (EpistemicClassifier(PrecomputedModel(), rule=BallWithNearest, **of), made, names),
        "fixed": (
            EpistemicClassifier(pipeline, rule=RelativeBall(2.0, 1.2), **of), plain, names,
        ),
    }  # fmt: skip


PARAMETERS = ("layers", "rule", "k", "metric", "classes", "validation_fraction",
              "batch_size", "random_state", "progress", "search", "model")  # fmt: skip


class Case:
    """One call with one argument replaced; `call` makes it."""

    def __init__(self, rng, subjects, folder):
        self.rng, self.folder = rng, folder
        self.kind = self.one(list(subjects))
        self.classifier, (self.train, self.val, self.test), labels = subjects[self.kind]
        self.y_train, self.y_val, self.y_test = labels[:50], labels[50:75], labels[75:]
        self.name = self.one([m for m in dir(self) if m.startswith("do_")])
        self.told = f"{self.kind}.{self.name}"
        self.changed = False  # whether a call succeeded that is there to change the classifier

    def one(self, options):
        return options[int(self.rng.integers(len(options)))]

    def anything(self, keep_off=()):
        name = self.one([n for n in ANYTHING if n not in keep_off])
        self.told += f" with {name}"
        return ANYTHING[name]()

    def spoil(self, values):
        """Something else in place of data: part of it changed, or something else altogether."""
        if isinstance(values, tuple):
            scores, layers = values
            return self.one([
                lambda: (self.spoil(scores), layers),
                lambda: (scores, {**layers, "a": self.spoil(layers["a"])}),
                lambda: (scores, {"a": layers["a"]}),
                lambda: (scores, {**layers, 1: layers["a"]}),
                lambda: (scores, self.anything()),
                lambda: self.anything(),
            ])()  # fmt: skip
        if self.rng.random() < 0.3:
            return self.anything()
        name = self.one(list(SPOILED))
        self.told += f" {name}"
        return SPOILED[name](values)

    def call(self):
        return getattr(self, self.name)()

    def use(self, assessment):
        """Ask for all that an assessment offers."""
        n = len(assessment)
        assert assessment.assertion.shape == assessment.reason.shape == (n,)
        assert len(assessment.belief) == n
        repr(assessment), assessment.margin, assessment.robust_radius, assessment.stability
        json.dumps(assessment.to_dict(), allow_nan=False), assessment._repr_html_()
        if n:
            str(assessment.explain(0))
            assessment[:1].explain(0)._repr_html_()
        return assessment

    def compare(self, assessment, rows):
        """The same must be said about some of the rows as about the untouched inputs."""
        before = self.classifier.assess(self.test)
        assert assessment.assertion[rows].tolist() == before.assertion[rows].tolist()
        assert assessment.belief[rows].tolist() == before.belief[rows].tolist()

    def do_fit(self):
        X, y, rows = self.train, self.y_train, None
        which = self.one("Xyr")
        if which == "X":
            X = self.spoil(X)
        elif which == "y":
            y = self.spoil(y)
        else:
            rows = self.spoil(np.arange(50))
        self.classifier.fit(X, y, rows=rows)
        self.changed = True
        if hasattr(self.classifier, "neighborhoods_"):
            self.use(self.classifier.assess(X))

    def do_tune(self):
        given = {"X": self.val, "y": self.y_val}
        given |= self.one(({}, {}, {"accuracy": 0.5}, {"coverage": 0.5}, {"method": "grid"}))
        name = self.one((*["X", "y"] * 3, "accuracy", "confidence", "each_class", "coverage",
                         "method", "k", "time_limit"))  # fmt: skip
        self.told += f" {name}"
        given[name] = self.spoil(given[name]) if name in ("X", "y") else self.anything()
        self.classifier.tune(given.pop("X"), given.pop("y"), **given)
        self.changed = True
        repr(self.classifier.selection_)
        self.use(self.classifier.assess(self.test))

    def do_assess(self):
        which = self.one("XXXne")
        if which == "X":
            X = self.spoil(self.test)
            found = self.use(self.classifier.assess(X, evidence=self.one((True, False))))
            if self.told.endswith("within"):  # one row is another, and disturbs no other
                self.compare(found, np.arange(15) != 7)
        elif which == "n":
            self.use(self.classifier.assess(self.test, self.anything()))
        else:
            self.use(self.classifier.assess(self.test, evidence=self.anything()))

    def do_predict(self):
        said = self.classifier.predict(self.spoil(self.test))
        assert set(said.tolist()) <= set(self.classifier.classes_.tolist())

    def do_new(self):
        name = self.one(PARAMETERS)
        self.told += f" {name}"
        given = self.classifier.get_params(deep=False)
        new = EpistemicClassifier(**{**given, name: self.anything()})
        new.fit(self.train, self.y_train)
        if not hasattr(new, "neighborhoods_"):
            new.tune(self.val, self.y_val)
        self.use(new.assess(self.test))
        new.save(self.folder / "new.iknow")

    def do_save(self):
        path = self.folder / "x.iknow"
        if self.one((True, False)):
            # Text that is a path may be written to: within this test's folder alone.
            given = self.anything(keep_off=("text", "digits", "path", "folder", "str_"))
            self.classifier.save(given)
        else:
            self.classifier.save(path, probe=self.anything())
            EpistemicClassifier.load(path)

    def do_load(self):
        path = self.folder / "x.iknow"
        self.classifier.save(path)
        which = self.one(("path", "model", "verify", "search", "check_model"))
        self.told += f" {which}"
        if which == "path":
            loaded = EpistemicClassifier.load(self.anything())
        else:
            model = None if which == "model" else self.classifier.model_
            loaded = EpistemicClassifier.load(path, **{"model": model, which: self.anything()})
        self.use(loaded.assess(self.test))

    def do_explain(self):
        a = self.classifier.assess(self.test)
        name = self.one(("i", "i", "samples", "training", "renderer"))
        self.told += f" {name}"
        good = {"i": 0}
        if not isinstance(self.test, tuple):
            good = {"i": 0, "samples": self.test, "training": self.train}
        if name in ("samples", "training") and self.one((0, 1)):
            told = a.explain(
                **{
                    **good,
                    name: self.spoil(
                        np.asarray(self.train[0] if isinstance(self.train, tuple) else self.train)
                    ),
                }
            )
        else:
            told = a.explain(**{**good, name: self.anything()})
        str(told), told._repr_html_()

    def do_renderer(self):
        make = self.one((as_image, as_series, as_features))
        self.told += f" {make.__name__}"
        several = make is as_image and self.one((True, True, False))
        renderer = make(*(self.anything() for _ in range(1 + several)))
        samples = np.zeros((15, 3))
        told = self.classifier.assess(self.test).explain(0, samples=samples, renderer=renderer)
        told._repr_html_()

    def do_evaluate(self):
        a = self.classifier.assess(self.test)
        if self.one((0, 1, 1, 1)) == 0:
            report = evaluate(self.anything(), self.y_test)
        else:
            report = evaluate(a, self.spoil(self.y_test))
        str(report), json.dumps(report.to_dict(), allow_nan=False), report._repr_html_()

    def do_under(self):
        a = self.classifier.assess(self.test, self.one((0, 3)))
        if self.one((0, 1)):
            rules = self.anything()
        else:
            rules = {**a.neighborhoods, next(iter(a.neighborhoods)): self.anything()}
        self.use(a.under(rules))

    def do_only(self):
        self.use(self.classifier.assess(self.test).only(self.anything()))

    def do_getitem(self):
        self.use(self.classifier.assess(self.test)[self.anything()])

    def do_slice(self):
        ends = [self.anything() if self.one((0, 1)) else self.one((None, 2, -3)) for _ in range(3)]
        self.use(self.classifier.assess(self.test)[slice(*ends)])

    def do_rule(self):
        make = self.one((Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall))
        self.told += f" {make.__name__}"
        first = 3 if make is Nearest else 1.0
        if make in (Ball, Nearest):
            rule = make(self.anything())
        elif self.one((0, 1)):
            rule = make(self.anything(), 2)
        else:
            rule = make(first, self.anything())
        hash(rule), repr(rule)
        assert rule == rule
        a = self.classifier.assess(self.test, 5)
        self.use(a.under(dict.fromkeys(a.neighborhoods, rule)))

    def do_metric(self):
        metric = self.one((Minkowski, Weighted))(self.anything())
        new = EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0), metric=metric, progress=False)
        n = len(self.y_train)
        outputs = np.eye(3)[np.arange(n) % 3], {"a": np.arange(3.0 * n).reshape(n, 3)}
        self.use(new.fit(outputs, self.y_train).assess(outputs))


def is_right_kind(error):
    """Whether an error is one of those a user may get."""
    if isinstance(error, TypeError):  # scikit-learn wants its own to stay one, in training
        frames = traceback.extract_tb(error.__traceback__)
        train = ("iknow/classifier/fitting.py", "_train")
        return any(f.filename.endswith(train[0]) and f.name == train[1] for f in frames)
    right = isinstance(error, (IknowError, NotFittedError))
    return right and len(str(error)) <= LONGEST_MESSAGE


def run_cases(subjects, folder, seed, n_cases):
    rng = np.random.default_rng(seed)
    faults, answered = {}, 0
    answers = {kind: (s[0].assess(s[1][2]), s[0].__dict__.copy()) for kind, s in subjects.items()}
    for number in range(n_cases):
        case = Case(rng, subjects, folder)
        classifier = case.classifier
        try:
            case.call()
            answered += 1
        except Exception as error:
            if not is_right_kind(error):
                faults[f"{seed}.{number} {case.told}"] = error
        before, state = answers[case.kind]
        if not case.changed:
            assert classifier.__dict__ == state, case.told
        classifier.__dict__ = state.copy()
        after = classifier.assess(case.test)
        np.testing.assert_array_equal(after.assertion, before.assertion, err_msg=case.told)
        np.testing.assert_array_equal(after.belief, before.belief, err_msg=case.told)
    return faults, answered


@pytest.fixture(scope="module")
def fitted(subjects):
    for classifier, (train, val, _), labels in subjects.values():
        classifier.fit(train, labels[:50])
        if not hasattr(classifier, "neighborhoods_"):
            classifier.tune(val, labels[50:75])
    return subjects


def assert_no_faults(faults):
    told = [f"{case}: {type(error).__name__}: {str(error)[:200]}" for case, error in faults.items()]
    assert not told, "\n".join(told)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_call_answers_or_raises_a_typed_error_and_nothing_is_lost(
    fitted, tmp_path, monkeypatch, shard
):
    monkeypatch.chdir(tmp_path)
    faults, answered = run_cases(fitted, tmp_path, shard, CASES)
    assert_no_faults(faults)
    assert answered >= CASES / 10, "the good ones are too few to tell anything"


def test_some_calls_answer_or_raise_a_typed_error(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    faults, answered = run_cases(fitted, tmp_path, 1000, 250)
    assert_no_faults(faults)
    assert answered > 25
