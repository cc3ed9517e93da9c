"""What somebody gave, quoted in an error: always, and never at length."""

import fractions
import math

import numpy as np
import pytest

from iknow.core.text import LONGEST_NAME, as_flag, as_real, as_whole, names, shown
from iknow.errors import InputError


class Unhelpful:
    def __repr__(self):
        raise RuntimeError("no")


def nested(depth):
    whole = []
    for _ in range(depth):
        whole = [whole]
    return whole


@pytest.mark.parametrize(
    ("value", "start"),
    [
        (1.5, "1.5"),
        ("a\x1b", r"'a\x1b'"),
        (Unhelpful(), "an object of type Unhelpful"),
        (nested(100_000), "an object of type list"),
        (10**5000, "an object of type int"),
        ("x" * 10**6, "'xxx"),
    ],
    ids=["number", "escape", "no repr", "deep", "digits", "long"],
)
def test_anything_can_be_quoted(value, start):
    assert shown(value).startswith(start)
    assert len(shown(value)) <= LONGEST_NAME


def test_of_many_names_the_first_are_quoted():
    assert names(["a", 1, Unhelpful()]) == "'a', 1, an object of type Unhelpful"
    assert names([]) == "none"
    assert len(names(["n" * 50_000] * 10_000)) <= 11 * (LONGEST_NAME + 2)


NO_NUMBERS = [
    None, True, np.True_, "1", 1j, [1], np.ones(1), np.array(1.0), np.timedelta64(1), math.nan,
]  # fmt: skip


def kind_of(value):
    return type(value).__name__


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
def test_flags_are_bools(value):
    assert as_flag(value, "evidence") is bool(value)


@pytest.mark.parametrize("value", [None, 1, 0, "yes", np.ones(3), np.array(True), []], ids=repr)
def test_what_is_no_flag_is_refused(value):
    with pytest.raises(InputError, match="evidence must be True or False; got"):
        as_flag(value, "evidence")


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), 10**5000], ids=kind_of)
def test_whole_numbers_of_any_size_are_taken(value):
    assert as_whole(value, "k", "be whole") == value


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1.0, np.float32(1)], ids=repr)
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(InputError, match="k must be whole; got"):
        as_whole(value, "k", "be whole")


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), fractions.Fraction(1, 2)])
def test_real_numbers_are_taken_as_floats(value):
    number = as_real(value, "p", "be a number")
    assert type(number) is float
    assert number == 0.5


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, 10**400, -(10**400), fractions.Fraction(10**400)], ids=kind_of
)
def test_what_is_no_number_that_a_float_can_hold_is_refused(value):
    with pytest.raises(InputError, match="p must be a number; got"):
        as_real(value, "p", "be a number")


def test_a_number_must_fit():
    assert as_real(0.5, "share", "lie above 0", lambda share: share > 0) == 0.5
    with pytest.raises(InputError, match=r"share must lie above 0; got -1"):
        as_real(-1, "share", "lie above 0", lambda share: share > 0)
