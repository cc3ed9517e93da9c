"""Named codes: they print as names, and numpy computes with them as with plain codes."""

import copy
import io
import json
import pickle

import numpy as np
import pytest

from iknow.core.assertion import Assertion, Assertions, Reason, Reasons

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
