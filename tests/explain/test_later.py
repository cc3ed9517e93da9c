"""Evidence on request: gathered when looked at, once, and no more of it than was asked for."""

import copy
import pickle
import threading
import time

import numpy as np
import pytest

from iknow.core.evidence import Evidence
from iknow.core.robustness import Movement
from iknow.explain.later import Later, about

WHOLE = {
    name: Evidence(np.full((4, 2), i + np.arange(4.0)[:, None]), np.empty((4, 0)), np.eye(4, 2))
    for i, name in enumerate(["hidden", "logits"])
}


class Gathering:
    """Gives the evidence of `WHOLE`, and remembers what was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, layer, samples):
        self.asked.append((layer, samples.tolist()))
        return WHOLE[layer][samples]


@pytest.fixture
def gathering():
    return Gathering()


@pytest.fixture
def evidence(gathering):
    return Later(WHOLE, gathering, np.arange(4))


def test_names_and_sizes_ask_for_nothing(evidence, gathering):
    assert list(evidence) == list(evidence.keys()) == ["hidden", "logits"]
    assert len(evidence) == 2
    assert "logits" in evidence
    assert "output" not in evidence
    assert repr(evidence) == "Later of hidden, logits; found: 0"
    assert gathering.asked == []


def test_each_layer_is_gathered_once_and_only_when_looked_at(
    evidence, gathering, assert_same_evidence
):
    assert evidence["logits"] is evidence["logits"]
    assert gathering.asked == [("logits", [0, 1, 2, 3])]
    for layer, found in evidence.items():
        assert_same_evidence(found, WHOLE[layer])
    assert gathering.asked == [("logits", [0, 1, 2, 3]), ("hidden", [0, 1, 2, 3])]


def test_an_unknown_layer_is_a_missing_key(evidence, gathering):
    with pytest.raises(KeyError, match="output"):
        evidence["output"]
    assert gathering.asked == []


@pytest.mark.parametrize("samples", [slice(1, 3), np.array([3, 1, 1]), np.array([], dtype=int)])
def test_of_some_samples_no_more_than_theirs_is_gathered(
    samples, evidence, gathering, assert_same_evidence
):
    part = about(evidence, samples)
    assert gathering.asked == []
    for layer, found in part.items():
        assert_same_evidence(found, WHOLE[layer][samples])
    positions = np.arange(4)[samples].tolist()
    assert gathering.asked == [("hidden", positions), ("logits", positions)]
    part_of_part = about(about(evidence, slice(1, None)), np.array([True, False, True]))
    assert_same_evidence(part_of_part["logits"], WHOLE["logits"][[1, 3]])
    assert_same_evidence(evidence["hidden"], WHOLE["hidden"])  # the part was not kept as the whole


def test_of_some_samples_nothing_is_gathered_where_all_of_it_is_there(
    evidence, gathering, assert_same_evidence
):
    for layer in evidence:
        assert evidence[layer] is not None
    gathering.asked.clear()
    for layer, found in about(evidence, slice(2, 3)).items():
        assert_same_evidence(found, WHOLE[layer][2:3])
    assert gathering.asked == []


def test_what_gathers_is_let_go_when_all_is_there():
    alive = threading.Event()

    class Activations:
        def __del__(self):
            alive.set()

    kept = Activations()
    evidence = Later(WHOLE, lambda layer, samples, kept=kept: WHOLE[layer][samples], np.arange(4))
    del kept
    assert evidence["hidden"] is not None
    assert not alive.is_set()
    assert evidence["logits"] is not None
    assert alive.is_set()


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_copies_and_pickles_are_plain_dicts_of_all_the_evidence(
    evidence, copied, assert_same_evidence
):
    other = copied(evidence)
    assert type(other) is dict
    assert list(other) == list(WHOLE)
    for layer, found in other.items():
        assert_same_evidence(found, WHOLE[layer])


def test_threads_that_ask_together_get_the_same_and_it_is_gathered_once():
    asked = []

    def gather(layer, samples):
        asked.append(layer)
        time.sleep(0.05)  # long enough for the others to come
        return WHOLE[layer][samples]

    evidence = Later(WHOLE, gather, np.arange(4))
    found = []
    threads = [threading.Thread(target=lambda: found.append(evidence["hidden"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == ["hidden"]
    assert len({id(each) for each in found}) == 1


def test_a_gathering_that_fails_is_tried_again():
    failures = [ValueError("not now")]

    def gather(layer, samples):
        if failures:
            raise failures.pop()
        return WHOLE[layer][samples]

    evidence = Later(WHOLE, gather, np.arange(4))
    with pytest.raises(ValueError, match="not now"):
        evidence["hidden"]
    assert len(evidence["hidden"]) == 4


def movements_later(calls, n=6):
    def find(layer, positions):
        calls.append((layer, positions.tolist()))
        return Movement(2.0, positions.astype(float))

    return Later(("a", "b"), find, np.arange(n))


def test_movements_are_found_once_for_the_samples_asked_about():
    calls = []
    movements = movements_later(calls)
    assert "a" in movements
    assert "c" not in movements
    assert list(movements) == ["a", "b"]
    assert not calls
    part = movements.about(slice(1, 4)).about(slice(None, None, 2))
    assert part["a"].rounding.tolist() == [1, 3]
    assert calls == [("a", [1, 3])]
    assert movements["a"].rounding.tolist() == [0, 1, 2, 3, 4, 5]
    assert movements["a"] is movements["a"]
    assert movements.about(slice(4, None))["a"].rounding.tolist() == [4, 5]
    assert len(calls) == 2
    with pytest.raises(KeyError):
        movements["c"]


def test_movements_let_go_of_what_finds_them_and_are_plain_when_copied():
    calls = []
    movements = movements_later(calls)
    plain = pickle.loads(pickle.dumps(movements))
    assert type(plain) is dict
    assert plain["b"].rounding.tolist() == [0, 1, 2, 3, 4, 5]
    assert movements.find is None
    assert movements.about(slice(2))["b"].rounding.tolist() == [0, 1]
    assert len(calls) == 2
