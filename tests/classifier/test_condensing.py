"""`condense`: beside the full classifier, on scikit-learn's digits."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import (
    Assertion,
    Ball,
    BallWithNearest,
    EpistemicClassifier,
    Nearest,
    RelativeBall,
)
from iknow.core.evidence import Bounded
from iknow.errors import BundleError, InputError, SelectionError
from iknow.report import make_html
from iknow.search.condensed.condense import count_bytes

X, y = load_digits(return_X_y=True)
TRAIN, VAL, TEST = slice(0, 900), slice(900, 1300), slice(1300, 1797)


@pytest.fixture(scope="module")
def trained() -> Any:
    return FrozenEstimator(LogisticRegression(max_iter=1000, C=0.1).fit(X[TRAIN] / 16, y[TRAIN]))


@pytest.fixture(scope="module")
def full(trained: Any) -> EpistemicClassifier:
    made = EpistemicClassifier(trained, progress=False).fit(X[TRAIN] / 16, y[TRAIN])
    return made.tune(X[VAL] / 16, y[VAL])


@pytest.fixture(scope="module")
def small(full: EpistemicClassifier) -> EpistemicClassifier:
    return full.condense(X[VAL] / 16, factor=5, coverage_loss=0.02)


def test_fewer_rows_for_little_coverage(
    full: EpistemicClassifier, small: EpistemicClassifier
) -> None:
    record = small.condensed_
    assert (record.rows, record.rows_before) == (180, 900)
    assert small.indexes_["input"].n_rows == 180
    assert record.bytes_before == count_bytes(full.indexes_) > record.bytes
    before, after = (each.assess(X[VAL] / 16) for each in (full, small))
    assert record.coverage_before == (before.assertion == Assertion.IK).mean()
    assert record.coverage == pytest.approx((after.assertion == Assertion.IK).mean())
    assert record.coverage_before - 0.02 <= record.coverage <= record.coverage_before
    assert "180 of 900 rows in full" in str(record)
    assert not hasattr(full, "condensed_")
    assert full.indexes_["input"].n_rows == 900


@pytest.mark.parametrize("asked", [{}, {"evidence": True}, {"k": 3}])
def test_answers_are_the_full_ones_or_idk(
    full: EpistemicClassifier, small: EpistemicClassifier, asked: dict[str, Any]
) -> None:
    was, now = full.assess(X[TEST] / 16), small.assess(X[TEST] / 16, **asked)
    same = now.assertion == was.assertion
    assert (same | (now.assertion == Assertion.IDK)).all()
    assert same.mean() > 0.9
    assert (now.level <= was.level).all()
    level = small.selection_.level
    np.testing.assert_array_equal(now.level >= level, now.assertion == Assertion.IK)
    assert (now.margin <= was.margin).all()
    assert (now.robust_radius <= was.robust_radius).all()
    assert isinstance(now.evidence["input"], Bounded)
    rules = {"input": RelativeBall(1.5, 1.3, quorum=(2, 2))}
    again = now.under(rules).assertion
    assert ((again == was.under(rules).assertion) | (again == Assertion.IDK)).all()


def test_a_stream_of_unknown_length_is_answered_alike(small: EpistemicClassifier) -> None:
    parts = (X[TEST][start : start + 100] / 16 for start in range(0, 400, 100))
    np.testing.assert_array_equal(
        small.assess(parts).assertion, small.assess(X[TEST][:400] / 16).assertion
    )


def test_explanations_name_training_rows(small: EpistemicClassifier) -> None:
    assessed = small.assess(X[TEST] / 16)
    known = int(np.flatnonzero(assessed.assertion == Assertion.IK)[0])
    told = assessed.explain(known)
    nearest = told.layers[0].nearest_for
    assert nearest is not None
    row = X[TRAIN][nearest.row] / 16
    assert y[nearest.row] == told.belief
    assert np.linalg.norm(row - X[TEST][known] / 16) <= nearest.distance
    assert told.stability == (1, False)


def test_saved_and_pickled(small: EpistemicClassifier, trained: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.iknow"
    small.save(path)
    loaded = EpistemicClassifier.load(path, trained, verify="now")
    assert loaded.condensed_ == small.condensed_
    for other in (loaded, pickle.loads(pickle.dumps(small))):
        expected, found = small.assess(X[TEST] / 16), other.assess(X[TEST] / 16)
        np.testing.assert_array_equal(found.assertion, expected.assertion)
        np.testing.assert_array_equal(found.level, expected.level)
    content = bytearray(path.read_bytes())
    marks = 2 * 512  # at the end; one of them may be unreadable, and the other counts
    for at in np.linspace(0, len(content) - marks - 512, 20).astype(int):
        damaged = tmp_path / "damaged.iknow"
        content[at] ^= 1
        damaged.write_bytes(content)
        content[at] ^= 1
        with pytest.raises(BundleError):
            EpistemicClassifier.load(damaged, trained, verify="now")


def test_promises_of_the_full_one_are_dropped_and_tuning_makes_its_own(
    small: EpistemicClassifier, trained: Any, tmp_path: Path
) -> None:
    assert small.selection_.certificate is None
    assert small.selection_.watch is None
    assert "condensed" in small.selection_.note
    again = pickle.loads(pickle.dumps(small)).tune(X[VAL] / 16, coverage=0.6)
    known = again.assess(X[VAL] / 16).assertion == Assertion.IK
    assert known.mean() == pytest.approx(again.selection_.coverage)
    again.save(tmp_path / "again.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "again.iknow", trained)
    assert loaded.selection_.coverage == again.selection_.coverage


@pytest.mark.slow
def test_the_papers_balls(trained: Any) -> None:
    full = EpistemicClassifier.paper(trained, layers=["input"], progress=False)
    full.fit(X[TRAIN] / 16, y[TRAIN]).tune(X[VAL] / 16, y[VAL])
    small = full.condense(X[VAL] / 16, factor=20, coverage_loss=0.05)
    was, now = full.assess(X[TEST] / 16), small.assess(X[TEST] / 16)
    assert ((now.assertion == was.assertion) | (now.assertion == Assertion.IDK)).all()
    small.tune(X[VAL] / 16, y[VAL])
    known = small.assess(X[VAL] / 16).assertion == Assertion.IK
    assert known.mean() == pytest.approx(small.selection_.coverage)


def test_what_a_condensed_classifier_refuses(small: EpistemicClassifier) -> None:
    with pytest.raises(InputError, match="condensed already"):
        small.condense(X[VAL] / 16)
    with pytest.raises(InputError, match="condensed classifier cannot change"):
        pickle.loads(pickle.dumps(small)).partial_fit(X[VAL] / 16, y[VAL])
    with pytest.raises(InputError, match="report on the full one"):
        make_html(small.assess(X[TEST] / 16))


def test_what_cannot_be_condensed(full: EpistemicClassifier, trained: Any) -> None:
    untuned = EpistemicClassifier(trained, progress=False).fit(X[TRAIN] / 16, y[TRAIN])
    with pytest.raises(InputError, match="call tune first"):
        untuned.condense(X[VAL] / 16)
    for wrong in ({"factor": 0.5}, {"factor": "5"}, {"coverage_loss": -0.1}, {"coverage_loss": 2}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            full.condense(X[VAL] / 16, **wrong)
    with pytest.raises(SelectionError, match="none of the samples is IK"):
        full.condense(100 + X[VAL] / 16)
    city = EpistemicClassifier(
        trained, layers=["input"], metric="hamming", neighborhoods=Ball(3.0), progress=False
    ).fit(X[TRAIN] / 16, y[TRAIN])
    with pytest.raises(InputError, match="Euclidean"):
        city.condense(X[VAL] / 16)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Nearest(3), BallWithNearest(1.2, 3, quorum=(1, 2))])
def test_rules_with_neighbors(trained: Any, rule: Any) -> None:
    full = EpistemicClassifier(
        trained, layers=["input"], rule=type(rule), neighborhoods=rule, progress=False
    ).fit(X[TRAIN] / 16, y[TRAIN])
    small = full.condense(X[VAL] / 16, factor=10, coverage_loss=0.1)
    was, now = full.assess(X[TEST] / 16), small.assess(X[TEST] / 16)
    assert ((now.assertion == was.assertion) | (now.assertion == Assertion.IDK)).all()
    assert (now.assertion == Assertion.IK).any()
