"""A classifier after changes asserts what one says that was built from the samples left."""

import re
import threading
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow import Assertion, Ball, EpistemicClassifier, Nearest, RelativeBall
from iknow.classifier.memory import apply
from iknow.errors import InputError
from iknow.metrics import Minkowski
from iknow.models import PrecomputedModel
from iknow.search.cells import CpuIndex
from iknow.search.union import Union
from iknow.storage.changes import Change
from iknow.testing import assert_same_evidence

NONE = np.empty(0, dtype=np.int64)


def draw(n, seed):
    """Points of three classes that overlap, on a grid, so that distances are tied."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return np.rint(2 * rng.standard_normal((n, 3)) + 3 * labels[:, None]), labels


X, Y = draw(60, 0)
FRESH, TRUTH = draw(90, 1)
MODEL = LogisticRegression(max_iter=500).fit(X, Y)
PIPELINE = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, Y)


def fitted(model=MODEL, **parameters):
    given = {"progress": False, "metric": "euclidean", "layers": ["input"], **parameters}
    return EpistemicClassifier(model, **given).fit(X, Y)


def rebuilt(ec):
    """The same classifier, with indexes built from the samples that it holds now."""
    other = copy(ec)
    other.plan_ = replace(ec.plan_, indexes={k: copy(index) for k, index in ec.indexes_.items()})
    return other


def assert_same_answers(ec, other, queries=FRESH):
    one, two = ec.assess(queries), other.assess(queries)
    assert one.assertion.tolist() == two.assertion.tolist()
    assert one.reason.tolist() == two.reason.tolist()
    np.testing.assert_array_equal(one.justification, two.justification)
    if one.levels is not None:
        np.testing.assert_array_equal(one.level, two.level)
    one, two = ec.assess(queries, k=3, evidence=True), other.assess(queries, k=3, evidence=True)
    for layer in one.evidence:
        assert_same_evidence(one.evidence[layer], two.evidence[layer])


def change_at_random(ec, draw_of, inputs=FRESH, labels=TRUTH, n_classes=3):
    """One change of some kind."""
    rng = np.random.default_rng(draw_of)
    what = rng.integers(4)
    there = next(iter(ec.indexes_.values())).rows
    some = rng.choice(there, size=min(len(there) - 8, int(rng.integers(1, 6))), replace=False)
    if what == 0:
        picked = rng.integers(len(inputs), size=3)
        ec.memory.add(inputs[picked], labels[picked])
    elif what == 1 and len(some):
        ec.memory.remove(some)
    elif what == 2 and len(some):
        ec.memory.relabel(some, rng.integers(n_classes, size=len(some)))
    elif what == 3:
        ec.memory.compact()


PARAMETERS = [
    {"rule": RelativeBall(3.0, 1.2, quorum=(1, 3))},
    {"rule": RelativeBall(4.0, 0.8, quorum=(2, 2)), "model": PIPELINE},
    {"rule": Ball(2.0), "model": PIPELINE, "layers": ["input", "output"]},
    {"rule": Nearest(3, quorum=(2, 1)), "search": CpuIndex},
    {"rule": Ball(3.0), "metric": Minkowski(1)},
    {"rule": Ball(2.0), "metric": "hamming"},
]
SOME = [PARAMETERS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in PARAMETERS[1:])]


@pytest.mark.parametrize("parameters", SOME, ids=lambda p: repr(p["rule"]))
@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6))
def test_changes_equal_a_rebuild(parameters, draws):
    ec = fitted(**parameters)
    for each in draws:
        change_at_random(ec, each)
    assert_same_answers(ec, rebuilt(ec))
    folded = copy(ec)
    folded.memory.compact()
    assert_same_answers(ec, folded)


def test_a_fit_on_the_resulting_samples_asserts_the_same():
    """Not a rebuild of the indexes alone: everything from the inputs on."""
    ec = fitted(rule=RelativeBall(3.0, 1.2, quorum=(1, 2)))
    ids = ec.memory.add(FRESH[:20], TRUTH[:20], who="Ada", why="more")
    assert ids.tolist() == list(range(60, 80))
    ec.memory.remove([0, 5, 61]).relabel([7, 62], [2, 2])
    kept = np.setdiff1d(np.arange(80), [0, 5, 61])
    inputs, labels = np.concatenate([X, FRESH[:20]]), np.concatenate([Y, TRUTH[:20]])
    labels[[7, 62]] = 2
    whole = EpistemicClassifier(**ec.get_params(deep=False)).fit(
        inputs[kept], labels[kept], rows=kept
    )
    assert_same_answers(ec, whole, FRESH[20:])
    assert isinstance(ec.indexes_["input"]._index, Union)
    ec.memory.compact()
    assert not isinstance(ec.indexes_["input"]._index, Union)
    assert_same_answers(ec, whole, FRESH[20:])


def test_the_log_says_what_when_who_and_why():
    ec = fitted(rule=Ball(2.0))
    assert ec.memory.log == ()
    ec.memory.add(FRESH[:2], TRUTH[:2], rows=[200, 100], who="Ada", why="more")
    ec.memory.relabel([9, 3], [1, 1], why="a slip").remove([100])
    said = [(c.what, c.who, c.why, c.ids.tolist()) for c in ec.memory.log]
    assert said == [
        ("add", "Ada", "more", [100, 200]),
        ("relabel", "", "a slip", [3, 9]),
        ("remove", "", "", [100]),
    ]
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", c.when) for c in ec.memory.log)
    assert ec.memory.compact().log[2].ids.tolist() == [100]
    ec.memory.remove([200])
    assert ec.memory.add(FRESH[:1], TRUTH[:1]).tolist() == [201]  # a number never means two samples
    assert ec.fit(X, Y).memory.log == ()


def test_a_number_may_be_given_again_and_labels_may_stay():
    ec = fitted(rule=Ball(2.0))
    before = ec.assess(FRESH).assertion.tolist()
    ec.memory.remove([3]).add(X[3:4], Y[3:4], rows=[3])
    ec.memory.relabel([4], Y[4:5]).relabel([5], [int(Y[5] + 1) % 3]).relabel([5], Y[5:6])
    assert ec.assess(FRESH).assertion.tolist() == before
    assert len(ec.memory.log) == 5


def test_a_new_class_contradicts_but_is_never_believed():
    ec = fitted(rule=Ball(1.0))
    scores = ec.predict_proba(FRESH)
    known = ec.assess(FRESH).assertion == Assertion.IK
    at = FRESH[np.flatnonzero(known)[:1]]
    ec.memory.add(np.repeat(at, 2, axis=0), [9, 9])
    assert ec.classes_.tolist() == [0, 1, 2, 9]
    a = ec.assess(FRESH)
    assert a.assertion[np.flatnonzero(known)[0]] == Assertion.IMK
    assert a.justification.shape == (90, 4)
    assert a.scores.shape == scores.shape
    np.testing.assert_array_equal(ec.predict_proba(FRESH), scores)
    assert set(ec.predict(FRESH).tolist()) <= {0, 1, 2}
    assert len(a.to_frame()) == 90
    assert "9" in str(a.explain(int(np.flatnonzero(known)[0])))
    assert_same_answers(ec, rebuilt(ec))
    ec.memory.add(at, [5])
    ec.memory.compact()
    assert ec.classes_.tolist() == [0, 1, 2, 9, 5]  # codes never change
    assert_same_answers(ec, rebuilt(ec))
    ec.memory.remove(ec.indexes_["input"].rows[ec.indexes_["input"].labels >= 3])
    assert (ec.assess(FRESH).assertion == Assertion.IK).tolist() == known.tolist()


def test_a_new_class_of_text_and_one_of_another_kind():
    names = np.array(["a", "b", "c"])
    model = LogisticRegression().fit(X, names[Y])
    ec = EpistemicClassifier(model, progress=False, rule=Ball(2.0)).fit(X, names[Y])
    ec.memory.add(FRESH[:2], ["a long name", "b"])
    assert ec.classes_.tolist() == ["a", "b", "c", "a long name"]
    with pytest.raises(InputError, match="labels of another kind"):
        ec.memory.add(FRESH[:1], [7])
    with pytest.raises(InputError, match="labels of another kind"):
        fitted(rule=Ball(2.0)).memory.relabel([3], [0.5])


def test_a_class_may_lose_its_last_sample():
    ec = fitted(rule=Ball(2.0))
    ec.memory.remove(np.flatnonzero(Y == 1))
    a = ec.assess(FRESH)
    assert not (a.assertion == Assertion.IK)[a.belief == 1].any()
    assert_same_answers(ec, rebuilt(ec))


def state(ec):
    """Everything that a failure must leave alone."""
    return {**vars(ec), **{f"index of {layer}": each._index for layer, each in ec.indexes_.items()}}


THERE = np.setdiff1d(np.arange(60), [58])  # what the classifier of these tests has
BAD = {
    "the same id twice": (
        lambda memory: memory.remove([3, 4, 3]),
        "ids must give .* number; 3 came twice",
    ),
    "no id": (lambda memory: memory.remove([]), "ids must be a whole number >= 0"),
    "no number": (
        lambda memory: memory.remove(np.array([], int)),
        "remove cannot remove 0 samples",
    ),
    "an id that is a number": (lambda memory: memory.remove(3), "ids must be"),
    "an id that is not there": (
        lambda memory: memory.remove([3, 60]),
        "no samples with these numbers: 60",
    ),
    "a removed id": (lambda memory: memory.remove([58]), "no samples with these numbers: 58"),
    "a negative id": (lambda memory: memory.remove([-1]), "ids must be a whole number >= 0"),
    "ids of text": (lambda memory: memory.remove(["3"]), "ids must be a whole number >= 0"),
    "ids of floats": (lambda memory: memory.remove([3.0]), "ids must be a whole number >= 0"),
    "flags": (lambda memory: memory.remove([True, False]), "ids must be a whole number >= 0"),
    "everything": (
        lambda memory: memory.remove(THERE),
        "no sample would be left",
    ),
    "too many": (
        lambda memory: memory.remove(np.setdiff1d(THERE, [1, 2])),
        r"Nearest\(k=3\) of layer 'input' asks for more samples than the 2 that would be left",
    ),
    "a label for each": (lambda memory: memory.relabel([3, 4], [1]), "got 1 labels for 2 samples"),
    "a missing label": (lambda memory: memory.relabel([3], [None]), "row 0 is None"),
    "relabel what is not there": (lambda memory: memory.relabel([58], [1]), "these numbers: 58"),
    "rows twice": (
        lambda memory: memory.add(FRESH[:2], [0, 1], rows=[70, 70]),
        "a different number",
    ),
    "a row that is there": (
        lambda memory: memory.add(FRESH[:2], [0, 1], rows=[70, 7]),
        "there are samples with these numbers: 7; the rows of new ones must differ",
    ),
    "NaN": (
        lambda memory: memory.add(np.full((2, 3), np.nan), [0, 1]),
        "training data must be finite",
    ),
    "features": (
        lambda memory: memory.add(FRESH[:2, :2], [0, 1]),
        "2 features, but .* is expecting 3",
    ),
    "labels": (lambda memory: memory.add(FRESH[:2], [0]), "got 1 labels for 2 samples"),
    "no labels": (lambda memory: memory.add(FRESH[:2]), "no labels|requires y"),
    "huge": (lambda memory: memory.add(np.full((1, 3), 1e300), [0]), "finite"),
    "who": (lambda memory: memory.remove([3], who=7), "who must be text of at most"),
    "why": (lambda memory: memory.add(FRESH[:1], [0], why=None), "why must be text of at most"),
    "too much why": (
        lambda memory: memory.remove([3], why="x" * 5000),
        "why must be text of at most",
    ),
    "nothing to add": (lambda memory: memory.add(FRESH[:0], []), "sample"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_changes_are_refused_and_change_nothing(name):
    ec = fitted(rule=Nearest(3))
    ec.memory.remove([58])
    act, message = BAD[name]
    before, answers = state(ec), ec.assess(FRESH).assertion.tolist()
    with pytest.raises(ValueError, match=message):
        act(ec.memory)
    after = state(ec)
    assert all(before[key] is after[key] for key in before.keys() | after.keys())
    assert ec.assess(FRESH).assertion.tolist() == answers


def a_change(**fields):
    rows = np.array([70, 71])
    usual = Change(
        "add", "2026-11-01T12:00:00Z", "", "", NONE, rows, np.array([0, 1]),
        {"input": np.zeros((2, 3), np.float32)},
    )  # fmt: skip
    return replace(usual, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"what": "move"}, "a change must be one of 'add', 'remove', 'relabel'; got 'move'"),
        ({"when": "yesterday"}, "a change must say when in UTC"),
        ({"who": b"x"}, "who must be text"),
        ({"rows": np.array([71, 70])}, "rows of a change must be distinct numbers >= 0, ascending"),
        ({"rows": np.array([-1, 70])}, "rows of a change must be distinct numbers >= 0, ascending"),
        ({"rows": [70, 71]}, "rows of a change must be an array of numbers"),
        ({"removed": np.array([0.5])}, "removed of a change must be an array of numbers"),
        ({"removed": np.array([3])}, "add cannot remove 1 samples and bring 2"),
        ({"what": "remove"}, "remove cannot remove 0 samples and bring 2"),
        ({"what": "relabel", "removed": np.array([3, 4])}, "relabel cannot remove 2 samples"),
        ({"labels": np.array([0])}, "a class code for each of its 2 samples"),
        ({"labels": np.array([0, 3])}, "class codes from 0 to 2"),
        ({"labels": np.array([0, -1])}, "class codes from 0 to 2"),
        ({"points": {}}, "activations of the layers 'input'; got none"),
        ({"points": {"input": np.zeros((2, 4), np.float32)}}, "layer 'input': .* 3 features"),
        ({"points": {"input": np.zeros((3, 3), np.float32)}}, "layer 'input': "),
        ({"points": {"input": np.full((2, 3), np.nan, np.float32)}}, "layer 'input': .* finite"),
        ({"classes": (2,)}, "new classes must not be known already"),
        ({"classes": (7, 7)}, "new classes must not be known already"),
        ({"rows": np.array([3, 70])}, "there are samples with these numbers: 3"),
    ],
)
def test_a_change_from_elsewhere_is_checked(fields, message):
    ec = fitted(rule=Ball(2.0))
    before = vars(ec).copy()
    with pytest.raises(InputError, match=message):
        apply(ec.plan_, a_change(**fields))
    assert vars(ec) == before
    assert apply(ec.plan_, a_change()).index.n_rows == 62


def test_readers_see_old_or_new_evidence_in_all_layers():
    """Two layers hold the same points under the same label, which flips: a mixture would disagree
    with itself, and show as two classes.
    """
    scores, points = np.array([[1.0, 0.0]]), np.zeros((1, 2))
    far = np.full((1, 2), 50.0)
    outputs = (np.repeat(scores, 2, 0), {n: np.concatenate([points, far]) for n in "ab"})
    ec = EpistemicClassifier(
        PrecomputedModel(), layers=["a", "b"], rule=Ball(1.0), progress=False
    ).fit(outputs, [0, 1])
    asked, seen, stop = (scores, dict.fromkeys("ab", points)), [], threading.Event()

    def read():
        while not stop.is_set():
            seen.append(tuple(np.flatnonzero(ec.assess(asked).justification[0])))
            ec.assess(asked, evidence=True)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(60):
        ec.memory.relabel([0], [(turn + 1) % 2])
        if turn % 20 == 10:
            ec.memory.compact()
    stop.set()
    for reader in readers:
        reader.join()
    assert set(seen) <= {(0,), (1,)}
    assert len(ec.memory.log) == 60


def test_changes_take_turns():
    """No change is lost, and no number is given twice, however many threads make them."""
    ec = fitted(rule=Ball(2.0))
    ids = []

    def work(start):
        for i in range(start, start + 10):
            ids.extend(ec.memory.add(FRESH[i : i + 1], TRUTH[i : i + 1]).tolist())
            ec.memory.remove([i])

    workers = [threading.Thread(target=work, args=(10 * each,)) for each in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(ids) == list(range(60, 100))
    assert len(ec.memory.log) == 80
    assert sorted(ec.indexes_["input"].rows.tolist()) == list(range(40, 100))
    assert_same_answers(ec, rebuilt(ec))
