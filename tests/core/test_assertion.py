"""Assertions and reasons: what follows from a belief and the supports."""

import numpy as np
import pytest

from iknow.core.assertion import Assertion, Reason, find_reasons, make_assertions


def mask(*supports, n_classes=3):
    return np.array([[code in support for code in range(n_classes)] for support in supports])


@pytest.mark.parametrize(
    ("justification", "belief", "assertion"),
    [
        ({1}, 1, Assertion.IK),
        ({0, 1}, 1, Assertion.IMK),
        ({0, 1, 2}, 2, Assertion.IMK),
        ({0}, 1, Assertion.IDK),
        ({0, 2}, 1, Assertion.IDK),
        (set(), 1, Assertion.IDK),
    ],
)
def test_an_assertion_compares_the_belief_with_the_justification(justification, belief, assertion):
    assert make_assertions(np.array([belief]), mask(justification)).tolist() == [assertion]


def test_every_query_is_asserted_on_its_own():
    codes = make_assertions(np.array([0, 1, 2]), mask({0}, {1, 2}, {0}))
    assert codes.tolist() == [Assertion.IK, Assertion.IMK, Assertion.IDK]
    assert codes.dtype == np.int8


def test_a_belief_in_a_class_that_is_not_knowable_is_imk_at_most():
    belief = np.array([0, 1, 2, 1, 1, 1])
    support = mask({0}, {1}, {2}, {1, 2}, {2}, set())
    for knowable in ([0, 2], (0, 2), range(0, 3, 2)):
        assert make_assertions(belief, support, knowable).tolist() == [2, 1, 2, 1, 0, 0]
        assert find_reasons(belief, [support], None, knowable).tolist() == [
            Reason.KNOWN,
            Reason.UNCERTIFIED,
            Reason.KNOWN,
            Reason.OVERLAP,
            Reason.CONTRADICTION,
            Reason.EXTRAPOLATION,
        ]
    assert make_assertions(belief, support, ()).tolist() == [1, 1, 1, 1, 0, 0]
    assert make_assertions(belief, support, None).tolist() == [2, 2, 2, 1, 0, 0]


def test_what_the_model_doubts_is_imk_at_most_and_only_what_would_be_ik_is_so_for_its_doubt():
    belief = np.array([0, 0, 0, 0, 0])
    support = mask({0}, {0}, {0, 1}, {1}, set())
    doubted = np.array([False, True, True, True, True])
    assert make_assertions(belief, support, doubted=doubted).tolist() == [2, 1, 1, 0, 0]
    assert find_reasons(belief, [support], doubted=doubted).tolist() == [
        Reason.KNOWN,
        Reason.DOUBT,
        Reason.OVERLAP,
        Reason.CONTRADICTION,
        Reason.EXTRAPOLATION,
    ]
    # What is not certified is so whatever the model thinks of it.
    assert make_assertions(belief, support, (), doubted).tolist() == [1, 1, 1, 0, 0]
    uncertified = find_reasons(belief, [support], None, (), doubted)
    assert uncertified.tolist()[:2] == [Reason.UNCERTIFIED] * 2


def test_assertions_are_ordered_by_how_much_is_known():
    assert sorted(Assertion) == [Assertion.IDK, Assertion.IMK, Assertion.IK]


def test_the_codes_of_assertions_and_reasons_stay_as_they_are_stored():
    assert [(assertion.name, int(assertion)) for assertion in Assertion] == [
        ("IDK", 0),
        ("IMK", 1),
        ("IK", 2),
    ]
    assert [(reason.name, int(reason)) for reason in Reason] == [
        ("KNOWN", 0),
        ("OVERLAP", 1),
        ("DISAGREEMENT", 2),
        ("EXTRAPOLATION", 3),
        ("CONTRADICTION", 4),
        ("INVALID", 5),
        ("UNCERTIFIED", 6),
        ("DOUBT", 7),
    ]


@pytest.mark.parametrize(
    ("supports", "belief", "reason"),
    [
        ([{0}], 0, Reason.KNOWN),
        ([{0}, {0}, {0}], 0, Reason.KNOWN),
        ([{0, 1}], 0, Reason.OVERLAP),
        ([{0}, {0, 1}], 0, Reason.OVERLAP),
        ([{0}, {1, 2}], 0, Reason.OVERLAP),
        ([{0}, {1}], 0, Reason.DISAGREEMENT),
        ([{1}, {0}], 0, Reason.DISAGREEMENT),
        ([{1}, {0}, {2}], 0, Reason.DISAGREEMENT),
        ([set()], 0, Reason.EXTRAPOLATION),
        ([{0}, set()], 0, Reason.EXTRAPOLATION),
        ([set(), {0, 1}], 0, Reason.EXTRAPOLATION),
        ([{1}, set()], 0, Reason.EXTRAPOLATION),
        ([{1}], 0, Reason.CONTRADICTION),
        ([{1, 2}], 0, Reason.CONTRADICTION),
        ([{1}, {2}], 0, Reason.CONTRADICTION),
        ([{1}, {1, 2}], 0, Reason.CONTRADICTION),
    ],
)
def test_a_reason_follows_from_the_belief_and_the_supports(supports, belief, reason):
    masks = [mask(support) for support in supports]
    assert find_reasons(np.array([belief]), masks).tolist() == [reason]


@pytest.mark.parametrize("supports", [[{0}], [{0, 1}], [{0}, {1}], [set()], [{1}]])
def test_an_invalid_query_has_no_other_reason(supports):
    masks = [mask(support, support) for support in supports]
    found = find_reasons(np.array([0, 0]), masks, invalid=np.array([True, False]))
    assert found[0] == Reason.INVALID
    assert found[1] != Reason.INVALID
    assert found.dtype == np.int8


def test_a_belief_that_is_absent_is_justified_by_nothing():
    justification = mask({2}, {0, 1, 2}, {0})  # -1 is not the last class
    assert make_assertions(np.array([-1, -1, -1]), justification).tolist() == [Assertion.IDK] * 3
    reasons = find_reasons(np.array([-1, -1]), [mask({2}, {0, 2})])
    assert reasons.tolist() == [Reason.CONTRADICTION] * 2
    assert find_reasons(np.array([-1]), [mask({2})], np.array([True])).tolist() == [Reason.INVALID]
