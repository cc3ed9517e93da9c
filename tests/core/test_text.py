"""What somebody gave, quoted in an error: always, and never at length."""

import pytest

from iknow.core.text import LONGEST_NAME, names, shown


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
