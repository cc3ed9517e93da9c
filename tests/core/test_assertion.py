"""Assertions and reasons: what follows from a belief and the supports."""

import copy
import io
import json
import pickle

import numpy as np
import pytest

from iknow.core.assertion import (
    Assertion,
    Assertions,
    Reason,
    Reasons,
    find_reasons,
    make_assertions,
)
from iknow.errors import InputError


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


PLAIN = np.array([2, 0, 1, 2, 0], dtype=np.int8)


@pytest.fixture
def codes():
    return PLAIN.copy().view(Assertions)


def test_they_print_as_names(codes):
    assert str(codes) == f"{codes}" == "[IK IDK IMK IK IDK]"
    assert repr(codes) == "Assertions([IK, IDK, IMK, IK, IDK])"
    assert str(list(codes)) == str(codes.tolist()) == "[IK, IDK, IMK, IK, IDK]"
    assert f"{codes[0]} {codes[2]:>5}" == f"{codes[0]!s} {codes[2]!r:>5}" == "IK   IMK"
    assert str({Assertion.IK: Reason.KNOWN}) == "{IK: KNOWN}"
    assert str(codes[:4].reshape(2, 2)) == "[[IK IDK]\n [IMK IK]]"
    assert codes[:4].reshape(2, 2).tolist() == [[2, 0], [1, 2]]
    assert str(np.array([0, 6], dtype=np.int8).view(Reasons)) == "[KNOWN UNCERTIFIED]"
    assert "..." in str(np.zeros(5000, dtype=np.int8).view(Assertions))


def test_a_format_for_numbers_gives_the_number(codes):
    assert f"{codes[0]:d} {codes[0]: d} {codes[0]:.1f}" == "2  2 2.0"


def test_items_are_members_and_parts_are_named(codes):
    for item in (codes[0], codes[-2], codes[np.int64(0)], next(iter(codes)), codes.max()):
        assert item is Assertion.IK
    for part in (codes[1:], codes[codes > 0], codes[[0, 3]], np.sort(codes), np.unique(codes)):
        assert type(part) is Assertions
    assert codes[np.array([True, False, True, False, False])].tolist() == [2, 1]
    assert np.concatenate([codes, PLAIN])[-1] is Assertion.IDK


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x == Assertion.IK,
        lambda x: x >= Assertion.IMK,
        lambda x: (x != Assertion.IK) & (x > 0),
        lambda x: x + 1,
        lambda x: -x,
        lambda x: x.astype(float),
        lambda x: x.astype(np.int64),
        np.bincount,
        np.cumsum,
        lambda x: np.where(x == 2, x, 0),
        lambda x: np.isin(x, [Assertion.IK]),
        lambda x: np.unique(x, return_counts=True)[1],
        lambda x: np.eye(3)[x],
        np.asarray,
        np.array,
    ],
)
def test_what_is_computed_is_plain_and_the_same(compute, codes):
    result, expected = compute(codes), compute(PLAIN)
    assert type(result) is np.ndarray
    assert result.dtype == expected.dtype
    assert result.tolist() == expected.tolist()


def test_single_figures_are_numbers(codes):
    assert (codes == Assertion.IK).mean() == 0.4
    assert codes.sum() == 5
    assert codes.mean() == np.mean(PLAIN)
    assert not isinstance(codes.sum(), Assertion)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, np.copy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_are_equal_and_hold_int8(copied, codes):
    other = copied(codes)
    other[0] = Assertion.IDK
    assert other.dtype == np.int8
    assert other.tolist() == [0, 0, 1, 2, 0]
    assert codes.tolist() == PLAIN.tolist()
    if copied is not np.copy:  # which always makes a plain array
        assert type(other) is Assertions


def test_files_hold_the_numbers(codes):
    buffer = io.BytesIO()
    np.save(buffer, codes)
    buffer.seek(0)
    assert np.load(buffer, allow_pickle=False).tolist() == PLAIN.tolist()
    assert json.dumps(codes.tolist()) == "[2, 0, 1, 2, 0]"
    assert json.dumps({codes[0]: 1}) == '{"2": 1}'


def test_a_code_that_has_no_name_is_shown_as_it_is(codes):
    codes[0] = 7
    assert str(codes[:2]) == "[7 IDK]"
    assert codes[0] == 7
    assert np.array(2, dtype=np.int8).view(Assertions).tolist() is Assertion.IK


def test_pandas_takes_them(codes):
    pd = pytest.importorskip("pandas")
    assert pd.Series(codes).value_counts().to_dict() == {2: 2, 0: 2, 1: 1}
    assert "2" in repr(pd.DataFrame({"assertion": codes}))


def test_assertions_and_reasons_are_compared_with_their_names() -> None:
    said = np.array([2, 0, 1], dtype=np.int8).view(Assertions)
    assert (said == "IK").tolist() == (said == Assertion.IK).tolist() == [True, False, False]
    assert (said != "IK").tolist() == [False, True, True]
    assert (said == ["IK", "IMK", "IMK"]).tolist() == [True, False, True]
    assert (said == np.array(["IK", "IDK", "IDK"], dtype=object)).tolist() == [True, True, False]
    assert type(said == "IK") is np.ndarray
    why = np.array([Reason.KNOWN, Reason.DOUBT], dtype=np.int8).view(Reasons)
    assert (why == "DOUBT").tolist() == [False, True]
    with pytest.raises(InputError, match="expected one of IDK, IMK, IK; got ik"):
        said == "ik"  # noqa: B015 - a slip that must not be False everywhere
