"""Promises about evidence that has changed are stale, say so, and can be renewed."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier
from iknow.classifier import fitting
from iknow.errors import InputError, SelectionError
from iknow.models.probe import Probe
from iknow.selection import Goal, Selection
from iknow.selection.record import from_plain, to_plain

X, Y = make_blobs(900, centers=3, n_features=3, cluster_std=1.6, random_state=0)
TRAINING, VALIDATION, FRESH, LATER = (
    slice(0, 300),
    slice(300, 560),
    slice(560, 820),
    slice(820, None),
)
MODEL = LogisticRegression().fit(X[TRAINING], Y[TRAINING])


def fitted(**parameters):
    given = {"layers": ["input"], "metric": "euclidean", "progress": False, **parameters}
    return EpistemicClassifier(MODEL, **given).fit(X[TRAINING], Y[TRAINING])


def tuned(**goal):
    return fitted().tune(X[VALIDATION], Y[VALIDATION], **goal)


def without_3(ec):
    ec.memory.remove([3])
    return ec


GOALS = [
    {},
    {"accuracy": 0.9},
    {"accuracy": 0.8, "each_class": True},
    {"false_alarm": 0.2},
    {"coverage": 0.7},
]


@pytest.mark.parametrize("goal", GOALS, ids=repr)
def test_a_change_makes_it_stale_and_fresh_samples_renew_it(goal):
    ec = tuned(**goal)
    assert ec.selection_.stale == ""
    before = ec.assess(X[LATER]).assertion.tolist()
    ec.memory.relabel([3], Y[3:4], who="Ada", why="sure")
    assert ec.assess(X[LATER]).assertion.tolist() == before  # assertions go on
    stale = ec.selection_
    assert stale.stale.startswith("1 sample relabeled at 2")
    assert stale.stale.endswith("by 'Ada', because 'sure'")
    assert not stale.is_certified
    said = " ".join(stale.sentences())
    assert "Stale: the evidence has changed, 1 sample relabeled" in said
    assert "Guaranteed" not in said
    assert "Stale" in stale._repr_html_()
    assert "Stale" in ec._repr_html_inner()
    ec.memory.remove([5])
    assert ec.selection_.stale == stale.stale  # since the first change
    ec.recertify(X[FRESH], Y[FRESH])
    again = fitted()
    again.memory.relabel([3], Y[3:4]).remove([5])
    again.tune(X[FRESH], Y[FRESH], **goal)
    assert ec.selection_ == again.selection_
    assert ec.selection_.goal == again.selection_.goal
    assert ec.assess(X[LATER]).assertion.tolist() == again.assess(X[LATER]).assertion.tolist()
    assert "Stale" not in " ".join(ec.selection_.sentences())


def test_the_goal_and_the_staleness_are_stored():
    stale = without_3(tuned(accuracy=0.9)).selection_
    again = Selection.from_dict(stale.to_dict())
    assert (again, again.goal, again.stale) == (stale, stale.goal, stale.stale)
    goal = Goal(k=np.array([3, 5]), method="grid")
    record = to_plain(goal)
    assert from_plain(Goal, record, "a goal") == Goal(k=[3, 5], method="grid")
    for wrong in ({"accuracy": 0.9}, {**record, "random_state": "x"}):
        with pytest.raises(InputError):
            from_plain(Goal, wrong, "a goal")


def test_a_selection_without_a_goal_cannot_be_renewed():
    ec = without_3(tuned(coverage=0.7))
    unknown = Selection.from_dict({**ec.selection_.to_dict(), "goal": None})
    ec.plan_ = replace(ec.plan_, selection=unknown)
    with pytest.raises(InputError, match="no selection says what it was chosen for"):
        ec.recertify(X[FRESH], Y[FRESH])


def test_what_cannot_be_renewed_stays_as_it_is():
    ec = without_3(tuned(accuracy=0.9))
    before = vars(ec).copy()
    with pytest.raises(SelectionError):
        ec.recertify(X[FRESH][:3], Y[FRESH][:3])
    with pytest.raises(InputError, match="training"):
        ec.recertify(X[TRAINING], Y[TRAINING])
    assert vars(ec) == before
    with pytest.raises(InputError, match="call tune first"):
        fitted().recertify(X[FRESH], Y[FRESH])
    with pytest.raises(InputError, match="nothing to recertify"):
        fitted(rule=Ball(1.0)).recertify(X[FRESH], Y[FRESH])


def test_a_selection_that_was_given_becomes_stale_too():
    given = tuned(accuracy=0.9).selection_
    ec = without_3(fitted(rule=given))
    assert ec.selection_.stale
    assert ec.rule is given
    assert not given.stale


def test_a_change_while_it_is_tuned_is_noticed(monkeypatch):
    """The choice rests on the evidence before, so it is stale from the start."""
    ec, choose = fitted(), fitting.choose

    def meanwhile(*arguments, **options):
        other = threading.Thread(
            target=ec.memory.remove, args=([3],)
        )  # it need not wait for tuning
        other.start()
        other.join()
        return choose(*arguments, **options)

    monkeypatch.setattr(fitting, "choose", meanwhile)
    ec.tune(X[VALIDATION], Y[VALIDATION], accuracy=0.9)
    assert ec.selection_.stale.startswith("1 sample removed")
    assert ec.indexes_["input"].n_rows == 299


def test_a_new_class_in_fresh_data_counts_as_wrong():
    ec = tuned(accuracy=0.8)
    ec.memory.add(X[LATER][:5] + 30, [7] * 5)
    labels = Y[FRESH].copy()
    labels[:4] = 7
    ec.recertify(X[FRESH], labels)
    assert ec.selection_.is_certified


def held(things):
    """All bytes of arrays within an object, however deep."""
    seen, todo, found = set(), [things], []
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray):
            found.append(each.tobytes())
            todo.append(each.base)
        elif isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, (list, tuple, set)):
            todo += each
        elif hasattr(each, "__dict__") and not isinstance(each, type):
            todo.append(vars(each))
    return found


def test_nothing_of_a_removed_sample_is_left(tmp_path):
    """Its bytes are searched for: in memory after compact, and in what save writes at once."""
    secret = np.array([[0.123456789, 77.7654321, -5.55443322]])
    inputs = np.concatenate([X[TRAINING], secret])
    labels = np.append(Y[TRAINING], 7)  # a class of its own, so that the probe keeps it
    model = LogisticRegression().fit(inputs, labels)
    ec = EpistemicClassifier(model, layers=["input"], metric="euclidean", rule=Ball(1.0))
    ec.fit(inputs, labels)
    needles = [secret.tobytes(), secret.astype(np.float32).tobytes()]

    def is_in(things):
        return any(needle in each for needle in needles for each in things)

    def saved():
        ec.save(tmp_path / "b.iknow")
        return [(tmp_path / "b.iknow").read_bytes()]

    learned = {"indexes", "probe", "log", "selection", "rules"}
    memory = lambda: held({k: v for k, v in vars(ec.plan_).items() if k in learned})  # noqa: E731
    assert is_in(memory())
    assert is_in(saved())
    assert 300 in ec.probe_.rows
    ec.memory.remove([300])
    assert not is_in(saved())
    ec.memory.compact()
    assert not is_in(memory())
    assert not is_in(saved())
    assert isinstance(ec.probe_, Probe)
    assert 300 not in ec.probe_.rows
    loaded = EpistemicClassifier.load(tmp_path / "b.iknow", model)
    np.testing.assert_array_equal(loaded.probe_.rows, ec.probe_.rows)


def test_a_probe_forgets_samples_by_their_numbers():
    ec = fitted(rule=Ball(1.0))
    probe = ec.probe_
    ec.memory.relabel([3], [1])
    assert ec.probe_ is probe  # nothing went
    assert isinstance(probe.without(probe.rows), str)
    stream = EpistemicClassifier(MODEL, rule=Ball(1.0), progress=False)
    parts = (slice(0, 90), slice(90, 300))
    stream.fit(((X[TRAINING][part], Y[TRAINING][part]) for part in parts), rows=np.arange(300) + 7)
    np.testing.assert_array_equal(stream.probe_.inputs, X[stream.probe_.rows - 7])
