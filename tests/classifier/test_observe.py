"""Supports found first and evidence gathered later are what evidence gathered at once gives."""

import copy
import pickle
import threading
import time
import tracemalloc

import numpy as np
import pytest

import iknow.classifier.observe
from iknow import (
    Ball,
    BallElseNearest,
    BallWithNearest,
    EpistemicClassifier,
    Nearest,
    RelativeBall,
)
from iknow.core.quorum import find_contrast
from iknow.errors import InputError
from iknow.explain.later import Later
from iknow.metrics import Weighted
from iknow.models import PrecomputedModel
from iknow.models.samples import map_ahead, one_ahead
from iknow.search.layer import LayerIndex
from iknow.selection import Goal, choose
from iknow.selection.validation import Validation
from iknow.testing import assert_same_evidence

RULES = [
    Ball(1.5),
    Nearest(3),
    BallElseNearest(1.0, 2),
    BallWithNearest(1.5, 2),
    RelativeBall(2.0, 1.5),
    RelativeBall(2.0, 1.5, quorum=(1, 3)),
]


def make_outputs(n, seed, invalid=()):
    """Outputs in two layers, on a grid that makes ties, about three groups that overlap."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    layers = {
        name: np.round(2 * (2.0 * y[:, None] + rng.normal(size=(n, width)))) / 2
        for name, width in (("a", 2), ("b", 3))
    }
    layers["a"][list(invalid), 0] = np.nan
    beliefs = np.where(rng.random(n) < 0.2, (y + 1) % 3, y)
    return (np.eye(3)[beliefs], layers), y


def fitted(rule=RULES[0], **parameters):
    classifier = EpistemicClassifier(PrecomputedModel(), rule=rule, progress=False, **parameters)
    return classifier.fit(*make_outputs(60, seed=0))


class Counter:
    """Counts the samples that the layers were asked about, by kind of question."""

    def __init__(self, monkeypatch):
        self.gathered, self.decided = [], []
        for name, counts in (("gather", self.gathered), ("decide", self.decided)):
            monkeypatch.setattr(LayerIndex, name, self._counting(getattr(LayerIndex, name), counts))

    def _counting(self, method, counts):
        def count(index, queries, *arguments):
            counts.append(len(queries))
            return method(index, queries, *arguments)

        return count


@pytest.fixture
def counter(monkeypatch):
    return Counter(monkeypatch)


def assert_same(one, other):
    for name in ("belief", "scores", "assertion", "reason", "justification", "invalid"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert list(one.supports) == list(other.supports)
    for layer, mask in one.supports.items():
        np.testing.assert_array_equal(mask, other.supports[layer])
    assert [one.explain(i) for i in range(len(one))] == [other.explain(i) for i in range(len(one))]
    for layer in one.evidence:
        assert_same_evidence(one.evidence[layer], other.evidence[layer])


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("metric", [None, {"b": Weighted(np.eye(3)[:, :2] + 0.5)}])
def test_both_ways_say_the_same(rule, batch_size, metric, monkeypatch):
    queries, _ = make_outputs(40, seed=1, invalid=[3, 17])
    classifier = fitted(rule, batch_size=batch_size, metric=metric)
    # Enough for the 5 activations of each sample, not for its distances to the 3 classes.
    monkeypatch.setattr(iknow.classifier.observe, "BYTES_OF_ACTIVATIONS_KEPT", 40 * 5 * 4)
    later = classifier.assess(queries)
    assert isinstance(later.evidence, Later)
    at_once = classifier.assess(queries, evidence=True)
    assert type(at_once.evidence) is dict
    assert later.invalid.nonzero()[0].tolist() == [3, 17]
    assert len(set(later.assertion.tolist())) == 3
    assert_same(later, at_once)


@pytest.mark.parametrize("rule", [Nearest(3), RelativeBall(2.0, 1.5, quorum=(1, 3))], ids=repr)
def test_where_supports_take_all_distances_these_are_kept_and_not_searched_again(rule, counter):
    queries, _ = make_outputs(40, seed=1)
    assessment = fitted(rule).assess(queries)
    assessment.explain(3)
    assert assessment.margin.shape == (40,)
    assert counter.gathered == [40, 40]
    assert counter.decided == []


def test_layers_may_have_rules_of_different_kinds():
    queries, _ = make_outputs(40, seed=1)
    classifier = fitted({"a": Ball(1.0), "b": Nearest(4)})
    later, at_once = classifier.assess(queries), classifier.assess(queries, evidence=True)
    assert later.evidence["a"].n_neighbors == later.evidence["b"].n_neighbors == 4
    assert_same(later, at_once)


@pytest.mark.parametrize("n_neighbors", [0, 5])
def test_other_neighborhoods_can_be_tried_either_way(n_neighbors):
    queries, _ = make_outputs(40, seed=1, invalid=[5])
    classifier = fitted(Nearest(5))
    others = {"a": BallElseNearest(1.0, 4), "b": Ball(2.0)}
    tried = classifier.assess(queries, n_neighbors).under(others)
    assert_same(tried, fitted(others).assess(queries, k=5))


def test_an_explanation_tells_the_distances_of_its_own_sample():
    queries, _ = make_outputs(40, seed=1)
    later = fitted().assess(queries)
    told = [[layer.samples_for[0].distance for layer in later.explain(i).layers] for i in range(40)]
    rows = np.arange(40)
    own = [each.class_distances[rows, later.belief_codes] for each in later.evidence.values()]
    np.testing.assert_array_equal(told, np.transpose(own))


@pytest.fixture
def deciding(monkeypatch):
    """Layers decide, as large ones do; small ones gather at once, which takes no longer."""
    monkeypatch.setattr(LayerIndex, "decides", lambda index, rule: True)


def test_assertions_gather_nothing_and_an_explanation_its_own_sample_alone(counter, deciding):
    queries, _ = make_outputs(40, seed=1)
    assessment = fitted().assess(queries)
    assert assessment.reason.shape == assessment.assertion.shape == (40,)
    assert repr(assessment).startswith("Assessment of 40 predictions")
    assert counter.gathered == []
    assert counter.decided == [40, 40]
    assessment.explain(-1)
    assert counter.gathered == [1, 1]
    assert len(assessment.evidence["a"]) == 40
    assert counter.gathered == [1, 1, 40]
    assessment.explain(0)
    assert counter.gathered == [1, 1, 40, 1]
    assert len(assessment.under({"a": Ball(1), "b": Ball(1)}).supports) == 2
    assessment.explain(1)
    assert counter.gathered == [1, 1, 40, 1, 40]
    assert counter.decided == [40, 40]


@pytest.mark.parametrize("asked", [{"k": 2}, {"evidence": True}])
def test_evidence_that_is_asked_for_is_gathered_at_once_and_nothing_else(counter, asked):
    queries, _ = make_outputs(40, seed=1)
    assessment = fitted().assess(queries, **asked)
    assert (counter.gathered, counter.decided) == ([40, 40], [])
    assert assessment.evidence["b"].n_neighbors == asked.get("k", 0)
    assessment.explain(0)
    assert assessment.assertion.shape == (40,)
    assert (counter.gathered, counter.decided) == ([40, 40], [])


def test_tune_gathers_once_for_every_k_and_method(counter):
    classifier = EpistemicClassifier(PrecomputedModel(), rule=BallElseNearest, batch_size=16)
    classifier.fit(*make_outputs(60, seed=0))
    assert counter.gathered == []
    X, y = make_outputs(40, seed=1)
    for asked in ({}, {"k": [1, 2, 3, 5]}, {"method": "grid"}, {"accuracy": 0.2}):
        counter.gathered.clear()
        classifier.tune(X, y, **asked)
        assert counter.gathered == [16, 16, 16, 16, 8, 8]
    classifier.set_params(rule=Ball)
    counter.gathered.clear()
    classifier.tune(X, y)
    assert counter.gathered == [16, 16, 16, 16, 8, 8]
    assert counter.decided == []


def tuning_memory(n_classes, **goal):
    """The most that tuning 2,000 samples takes beyond what it is given."""
    rng = np.random.default_rng(0)
    y = np.arange(4000) % n_classes
    points = (3.0 * rng.normal(size=(n_classes, 4)))[y] + 0.3 * rng.normal(size=(4000, 4))
    scores = np.zeros((4000, n_classes), dtype=np.float32)
    scores[np.arange(4000), y] = 1
    model = PrecomputedModel()
    classifier = EpistemicClassifier(model, batch_size=50, progress=False, rule=BallElseNearest)
    classifier.fit((scores[:2000], {"a": points[:2000]}), y[:2000])
    queries = model.prepare((scores[2000:], {"a": points[2000:]}))
    classifier.tune(queries, y[2000:], **goal)  # once, so that caches are full
    tracemalloc.start()
    classifier.tune(queries, y[2000:], **goal)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("goal", [{}, {"accuracy": 0.5, "confidence": 0.5}], ids=repr)
def test_tuning_takes_no_memory_for_every_class_of_every_sample(goal):
    few, many = tuning_memory(20, **goal), tuning_memory(1000, **goal)
    each = 980 * 8  # one number of every sample for every further class would be 16 MB
    assert many - few < 500 * each


def test_tuning_on_contrasts_is_tuning_on_the_evidence():
    queries, y = make_outputs(80, seed=1)
    y_true = y.astype(np.int64)
    assessment = fitted().assess(queries, k=60)
    for rule in (Ball, BallElseNearest, BallWithNearest, RelativeBall, Nearest):
        matched = rule in (RelativeBall, Nearest)
        goals = [Goal(coverage=0.4)] if matched else [Goal(k=3), Goal(k=[1, 3], method="grid")]
        if rule is not Nearest:
            goals.append(Goal(accuracy=0.4, confidence=0.5, k=3))
        for goal in goals:
            belief = assessment.belief_codes
            evidence = dict(assessment.evidence)
            reduced = {layer: find_contrast(each, belief) for layer, each in evidence.items()}
            expected = choose(goal, Validation(evidence, belief, y_true), rule)
            assert choose(goal, Validation(reduced, belief, y_true), rule) == expected


def test_where_the_activations_would_be_too_many_evidence_is_gathered_at_once(counter, monkeypatch):
    queries, _ = make_outputs(40, seed=1, invalid=[2])
    classifier = fitted(batch_size=16)
    expected = classifier.assess(queries)
    monkeypatch.setattr(iknow.classifier.observe, "BYTES_OF_ACTIVATIONS_KEPT", 40 * 5 * 4)
    assert isinstance(classifier.assess(queries).evidence, Later)
    monkeypatch.setattr(iknow.classifier.observe, "BYTES_OF_ACTIVATIONS_KEPT", 40 * 5 * 4 - 1)
    counter.gathered.clear()
    assessment = classifier.assess(queries)
    assert type(assessment.evidence) is dict
    assert counter.gathered == [16, 16, 16, 16, 8, 8]
    assert_same(assessment, expected)


def test_evidence_is_gathered_in_pieces(counter, deciding, monkeypatch):
    monkeypatch.setattr(iknow.classifier.observe, "QUERIES_AT_ONCE", 16)
    queries, _ = make_outputs(40, seed=1, invalid=[20])
    classifier = fitted()
    later = classifier.assess(queries)
    assert len(later.evidence["a"]) == 40
    assert counter.gathered == [16, 16, 8]
    assert_same(later, classifier.assess(queries, evidence=True))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_a_copy_of_an_assessment_is_on_its_own(copied, counter):
    queries, _ = make_outputs(40, seed=1, invalid=[9])
    classifier = fitted()
    assessment = classifier.assess(queries)
    other = copied(assessment)
    assert type(other.evidence) is dict
    counter.gathered.clear()
    assert_same(other, assessment)
    assert counter.gathered == []  # of the original, too, all was gathered to be copied
    assert len(pickle.dumps(assessment)) < 20_000


def test_evidence_is_that_of_the_fit_which_assessed():
    queries, _ = make_outputs(40, seed=1)
    classifier = fitted()
    later, at_once = classifier.assess(queries), classifier.assess(queries, evidence=True)
    classifier.fit(*make_outputs(30, seed=9))
    assert_same(later, at_once)


def test_inputs_changed_afterwards_change_no_evidence():
    outputs, _ = make_outputs(40, seed=1)
    observation = PrecomputedModel().prepare(outputs)
    classifier = fitted()
    later, at_once = classifier.assess(observation), classifier.assess(outputs, evidence=True)
    for values in observation.activations.values():
        values += 100
    assert_same(later, at_once)


def test_errors_of_an_index_name_the_layer():
    (scores, layers), _ = make_outputs(10, seed=1)
    wide = scores, {**layers, "b": np.zeros((10, 7))}
    for asked in ({}, {"evidence": True}):
        with pytest.raises(InputError, match="layer 'b': queries must have 3 features"):
            fitted().assess(wide, **asked)


def test_one_ahead_gives_all_items_in_order_and_makes_one_more_than_was_taken():
    made = []

    def items():
        for i in range(5):
            made.append((i, threading.get_ident()))
            yield i

    taken = []
    for item in one_ahead(items()):
        taken.append(item)
        time.sleep(0.02)  # time to run ahead further than it may
        assert len(made) <= len(taken) + 1
    assert taken == [0, 1, 2, 3, 4]
    threads = {thread for _, thread in made}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_an_error_while_running_ahead_is_raised_in_its_turn():
    def items():
        yield 1
        raise InputError("the second cannot be made")

    ahead = one_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(InputError, match="the second"):
        next(ahead)


def test_work_ahead_is_done_in_another_thread_and_items_are_made_in_this_one():
    made, worked, taken = [], [], []

    def items():
        for i in range(5):
            made.append(threading.get_ident())
            yield i

    def work(item):
        worked.append(threading.get_ident())
        return 10 * item

    for result in map_ahead(work, items()):
        taken.append(result)
        time.sleep(0.02)  # time to run ahead further than it may
        assert len(worked) <= len(taken) + 1
    assert taken == [0, 10, 20, 30, 40]
    assert set(made) == {threading.get_ident()}
    assert threading.get_ident() not in worked
    assert list(map_ahead(work, [])) == []
    with pytest.raises(ZeroDivisionError):
        list(map_ahead(lambda item: 1 // item, [1, 0]))


def test_whoever_stops_early_leaves_no_thread_behind():
    before = threading.active_count()
    ahead = one_ahead(iter(range(100)))
    next(ahead)
    ahead.close()
    assert threading.active_count() == before


def test_a_model_on_its_own_device_sees_the_next_batch_while_one_is_searched_for(monkeypatch):
    classifier = fitted(batch_size=7)
    outputs, _ = make_outputs(40, seed=1)
    expected = classifier.assess(outputs)
    observers = []
    observe = type(classifier.model_).observe

    def watched(self, batch, layers):
        observers.append(threading.get_ident())
        return observe(self, batch, layers)

    monkeypatch.setattr(type(classifier.model_), "observe", watched)
    classifier.assess(outputs)
    assert set(observers) == {threading.get_ident()}
    observers.clear()
    monkeypatch.setattr(type(classifier.model_), "is_elsewhere", True, raising=False)
    assert_same(classifier.assess(outputs), expected)
    assert len(observers) == 6
    assert threading.get_ident() not in observers


@pytest.mark.parametrize("evidence", [True, False])
def test_an_empty_slice_has_empty_evidence(evidence):
    queries, _ = make_outputs(6, seed=1)
    part = fitted(Ball(1.0)).assess(queries, evidence=evidence)[4:4]
    assert len(part) == len(part.assertion) == len(part.margin) == 0
    assert all(len(about) == 0 for about in part.evidence.values())
